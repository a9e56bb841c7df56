"""Random walks: repeatable, every step one of the definition's, every violation a real one."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from benchmarks import pubmodel
from model_check.explore import DEAD_END, Interrupted, Progress, explore
from model_check.minimise import replayed
from model_check.simulate import Simulation, simulate
from spec.lang import Bool, Fields, Misuse, Natural, Protocol, Scope, Step, all_of, field, when

WORLD = pubmodel.scope(2, 2, 3)


def same(found: Simulation) -> Simulation:
    return dataclasses.replace(found, seconds=0, violation=None, seed=0)


def test_the_same_seed_gives_the_same_walks() -> None:
    once, again, other = (simulate(pubmodel.build(), WORLD, seed=seed, walks=5) for seed in (3, 3, 4))
    assert same(once) == same(again)
    assert same(once) != same(other)


def test_a_violation_is_a_run_of_the_definition() -> None:
    found = simulate(pubmodel.build(2), pubmodel.scope(1, 1, 3), walks=200, seed=1)
    assert found.violation is not None
    space, run = found.violation.space, found.violation.run
    assert run[0][1] in space.initial_states()
    for (_, before), (instance, after) in itertools.pairwise(run):
        assert instance is not None
        assert space.step(before, instance) == after
    claim = space.protocol.properties[found.violation.claim]
    assert not space.holds(claim.node, run[-1][1])
    assert all(space.holds(claim.node, state) for _, state in run[:-1])


def test_a_violation_is_told_without_the_steps_that_it_can_do_without() -> None:
    """No single step can be left out, and the walk was longer."""
    found = simulate(pubmodel.build(1), pubmodel.scope(2, 3, 3), walks=200, length=300, seed=3)
    assert found.violation is not None
    run = found.violation.run
    assert found.met > found.violation.steps
    actions = [instance for instance, _ in run if instance is not None]
    assert replayed(found.violation, run[0][1], actions) == run
    for left_out in range(len(actions)):
        rest = actions[:left_out] + actions[left_out + 1 :]
        assert replayed(found.violation, run[0][1], rest) is None
    shortest = explore(pubmodel.build(1), pubmodel.scope(2, 3, 3), only=[found.violation.claim]).counterexample
    assert shortest is not None
    assert shortest.steps <= found.violation.steps


def test_an_interrupt_while_steps_are_left_out_tells_the_walk() -> None:
    def stop(progress: Progress) -> None:
        if progress.doing != "walking":
            raise Interrupted

    walked = simulate(pubmodel.build(1), pubmodel.scope(2, 3, 3), walks=200, length=300, seed=3, progress=stop)
    assert walked.reason == "interrupted"
    assert walked.violation is not None
    assert walked.violation.steps == walked.met > 0


def test_walks_stay_within_what_exploration_finds() -> None:
    """Every goal and action that a walk meets is one that exhaustive search meets."""
    walked = simulate(pubmodel.build(), WORLD, walks=20)
    explored = explore(pubmodel.build(), WORLD)
    assert {name for name, n in walked.coverage.items() if n} <= {name for name, n in explored.coverage.items() if n}
    assert sum(walked.coverage.values()) == walked.steps
    assert walked.longest <= 200


class Hour(Natural):
    """An hour."""


class Hours(Fields):
    """A number."""

    time: Hour = field("the hour")


def clock(*, rests: bool, strikes: bool) -> Protocol:
    protocol = Protocol("clock", Hours, "A clock.")

    @protocol.initially
    def midnight() -> Step:
        """It begins."""
        return when().then(time=0)

    @protocol.action(by="clock")
    def tick(s: Hours) -> Step:
        """An hour passes."""
        return when(s.time < 3).then(time=s.time + 1)

    if strikes:

        @protocol.fault(by="weather")
        def strike(s: Hours) -> Step:
            """Lightning sets it back."""
            return when(s.time == 3).then(time=0)

    @protocol.goal
    def two(s: Hours) -> Bool:
        """It is two."""
        return s.time == 2

    if rests:

        @protocol.may_rest
        def three(s: Hours) -> Bool:
            """It stops at three."""
            return s.time == 3

    return protocol


DAY = Scope("day", {"Hour": 12}, "half a day")


def test_a_walk_ends_where_nothing_is_possible() -> None:
    found = simulate(clock(rests=True, strikes=False), DAY, walks=4)
    assert (found.rested, found.cut, found.violation, found.goals) == (4, 0, None, {"two": 4})


def test_a_walk_ends_at_the_bound() -> None:
    found = simulate(clock(rests=False, strikes=False), Scope("morning", {"Hour": 2}, ""), walks=4)
    assert (found.rested, found.cut, found.violation) == (0, 4, None)


@pytest.mark.parametrize("strikes", [False, True])
def test_a_dead_end_is_a_violation_as_exploration_says(strikes: bool) -> None:
    """A fault is no way out."""
    found = simulate(clock(rests=False, strikes=strikes), DAY)
    explored = explore(clock(rests=False, strikes=strikes), DAY)
    assert found.violation is not None
    assert explored.counterexample is not None
    assert found.violation.claim == explored.counterexample.claim == DEAD_END
    assert found.violation.run == explored.counterexample.run
    assert simulate(clock(rests=False, strikes=strikes), DAY, only=[]).violation is None


def test_what_a_walk_cannot_judge_is_refused() -> None:
    with pytest.raises(Misuse, match="a walk through clock cannot judge 'two'; it can judge no_dead_end"):
        simulate(clock(rests=True, strikes=False), DAY, only=["two"])


def test_a_step_property_is_judged_on_every_step() -> None:
    protocol = clock(rests=True, strikes=True)

    @protocol.step_property
    def forward(s: Hours, t: Hours) -> Bool:
        """Time goes forward."""
        return all_of(s.time < t.time)

    found = simulate(protocol, DAY, length=10)
    assert found.violation is not None
    assert (found.violation.claim, found.violation.kind, found.violation.steps) == ("forward", "step property", 4)


def test_an_interrupt_keeps_what_was_found() -> None:
    def stop(progress: Progress) -> None:
        if progress.frontier == 2:
            raise Interrupted

    found = simulate(clock(rests=True, strikes=False), DAY, walks=9, progress=stop)
    assert (found.walks, found.reason) == (2, "interrupted")
