"""The compiled search and the definition agree on random protocols: states, steps, depths, cuts, verdicts."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

from model_check.evaluate import Refused, Space, State
from model_check.explore import DEAD_END, Verdict, explore
from model_check.record import Claims
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Protocol, Scope
from tests.agreement.drawn import SCOPES, anonymous, protocols
from tests.model_check.test_spilling import same

MOST = 3_000
AGREE = settings(
    max_examples=25,  # `test_every_reader` draws two thousand; these also compare what it does not: stories, disk.
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)


def reference(space: Space) -> tuple[list[set[State]], int, Counter[str]] | None:
    """Levels, steps and cuts by `evaluate` alone; nothing if the world is too large to be worth the wait."""
    levels, steps, cuts = [set(space.initial_states())], 0, Counter[str]()
    seen = set(levels[0])
    while levels[-1]:
        level: set[State] = set()
        for state in levels[-1]:
            for instance in space.instances:
                after = space.step(state, instance)
                if after is Refused.CUT:
                    cuts[instance.action.name] += 1
                elif not isinstance(after, Refused):
                    steps += 1
                    if after not in seen:
                        seen.add(after)
                        level.add(after)
        levels.append(level)
        if len(seen) > MOST:
            return None
    return levels, steps, cuts


def search(space: Space, *, symmetric: bool) -> Search:
    found = Search(space, Claims(), symmetric_sorts(space) if symmetric else (), 2, memory=1 << 26, effort=0)
    while found.level():
        pass
    found.close()
    return found


@AGREE
@given(protocols(), SCOPES)
def test_search_finds_the_states_steps_and_depths_of_the_definition(protocol: Protocol, scope: Scope) -> None:
    space = Space(protocol, scope)
    expected = reference(space)
    if expected is None:
        return
    levels, steps, _ = expected
    found = search(space, symmetric=False)
    assert found.steps == steps
    for depth, level in enumerate(levels):
        unpacked = [found.layout.unpack(p) for p in found.packed_states(depth)]
        assert len(unpacked) == len(level)
        assert set(unpacked) == level
    for state in levels[0]:
        by_code = sorted(
            (i.action.name, i.args, found.layout.unpack(t)) for i, t in found.successors(found.layout.pack(state))
        )
        by_definition = sorted((i.action.name, i.args, t) for i, t in space.successors(state))
        assert by_code == by_definition


@AGREE
@given(protocols(), SCOPES)
def test_orbits_add_up_to_the_states_of_the_definition(protocol: Protocol, scope: Scope) -> None:
    space = Space(anonymous(protocol), scope)
    expected = reference(space)
    if expected is None:
        return
    found = search(space, symmetric=True)
    everything = set().union(*expected[0])
    assert found.orbit_total() == len(everything)
    representatives = {found.canonical(found.layout.pack(state)) for state in everything}
    assert representatives == set(found.packed_states())


@AGREE
@given(protocols(), SCOPES)
def test_verdicts_and_shortest_stories_are_those_of_the_definition(protocol: Protocol, scope: Scope) -> None:
    """In memory and on disk."""
    protocol = anonymous(protocol)
    space = Space(protocol, scope)
    expected = reference(space)
    if expected is None:
        return
    levels, _, _ = expected
    shortest = shortest_violation(space, levels)
    for symmetry in (False, True):
        result = explore(protocol, scope, symmetry=symmetry, memory=1 << 26)
        with tempfile.TemporaryDirectory() as folder:
            on_disk = explore(protocol, scope, symmetry=symmetry, memory=1 << 26, checkpoint=Path(folder))
        assert on_disk.disk > 0
        assert same(on_disk) == same(result)
        if shortest is None:
            assert result.counterexample is None or result.counterexample.kind == "recovery"
            lost = recovery_lost(space, set().union(*levels))
            assert result.outcome("back").verdict is lost
            total = sum(space.holds(protocol.goals["goal"].node, s) for s in set().union(*levels))
            if not symmetry:
                assert result.goals["goal"] == total
            assert (result.goals["goal"] > 0) == (total > 0)
        else:
            assert result.verdict is Verdict.VIOLATED
            assert result.counterexample is not None
            assert result.counterexample.steps == shortest


def shortest_violation(space: Space, levels: list[set[State]]) -> int | None:
    """The length of the shortest story of any violation."""
    properties = space.protocol.properties.values()
    lengths = []
    for depth, level in enumerate(levels):
        for state in level:
            if any(not p.stepwise and not space.holds(p.node, state) for p in properties):
                lengths.append(depth)
            steps = list(space.successors(state))
            if any(p.stepwise and not space.holds(p.node, state, t) for p in properties for _, t in steps):
                lengths.append(depth + 1)
            ordinary = [i for i in space.instances if i.action.kind != "fault"]
            stuck = all(space.step(state, i) is Refused.DISABLED for i in ordinary)
            if stuck and not space.holds(space.protocol.rest["rest"].node, state):
                lengths.append(depth)
    return min(lengths, default=None)


def recovery_lost(space: Space, states: set[State]) -> Verdict:
    """Backwards reachability by `evaluate`."""
    claim = space.protocol.recoveries["back"]

    def closed(marked: set[State]) -> bool:
        while True:
            more = {
                s
                for s in states - marked
                if any(t in marked for i, t in space.successors(s) if i.action.kind != "fault")
            }
            if not more:
                return all(s in marked for s in states if space.holds(claim.source, s))
            marked |= more

    if closed({s for s in states if space.holds(claim.target, s)}):
        return Verdict.HOLDS
    ordinary = [i for i in space.instances if i.action.kind != "fault"]
    cut = {s for s in states if any(space.step(s, i) is Refused.CUT for i in ordinary)}
    if closed({s for s in states if space.holds(claim.target, s)} | cut):
        return Verdict.UNDETERMINED
    return Verdict.VIOLATED


def test_dead_end_has_a_name() -> None:
    assert DEAD_END == "no_dead_end"
