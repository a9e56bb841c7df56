"""One meaning for every reader: each finds the states of the definition, on thousands of random protocols.

The readers are the compiled search, with and without symmetry, by one worker and by two; z3's formulas of the world;
and, for a portion, SPIN on the exported text, whose compiler takes longer than all the rest together.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from model_check.evaluate import Instance, Refused, Space, State
from model_check.export.spin import verify
from model_check.record import DEAD_END, Claims, bounded
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Protocol, Scope
from tests.agreement.constructs import KINDS, constructs
from tests.agreement.drawn import SCOPES, anonymous, base, protocols

BLOCKS = 8
PROTOCOLS = 270
"""Drawn in one block. Those whose worlds are too large to be worth the wait are not compared."""
COMPARED = 250
"""At least so many are compared in one block: 2,000 in all."""
LARGEST = 300
"""States of a world that is compared."""
EVERY = 15
"""Of so many protocols that are compared, one goes through SPIN as well."""
SHARE = 0.05
"""Of the protocols of a block, at least so many have any one construct."""


class World:
    """A world as `evaluate` tells it: its states, its steps, how many steps the bound of each sort cuts, its claims."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.first = set(space.initial_states())
        self.states = set(self.first)
        self.steps: list[tuple[State, State]] = []
        self.cuts: Counter[str] = Counter()
        todo = list(self.first)
        while todo and len(self.states) <= LARGEST:
            state = todo.pop()
            for instance in space.instances:
                after = space.step(state, instance)
                if after is Refused.CUT:
                    self.cuts.update(self._passed(state, instance))
                if isinstance(after, Refused):
                    continue
                self.steps.append((state, after))
                if after not in self.states:
                    self.states.add(after)
                    todo.append(after)

    def _passed(self, state: State, instance: Instance) -> set[str]:
        """The sorts whose bound a step would pass: those of the writes that would by themselves."""
        alone = ((w, Instance(replace(instance.action, writes=(w,)), instance.args)) for w in instance.action.writes)
        return {bounded(write) for write, one in alone if self.space.step(state, one) is Refused.CUT}

    @property
    def small(self) -> bool:
        """All of it was seen."""
        return len(self.states) <= LARGEST

    def violated(self) -> frozenset[str]:
        """The claims that fail somewhere."""
        space, failed = self.space, set()
        for claim in space.protocol.properties.values():
            fails = (
                any(not space.holds(claim.node, *step) for step in self.steps)
                if claim.stepwise
                else any(not space.holds(claim.node, state) for state in self.states)
            )
            if fails:
                failed.add(claim.name)
        ordinary = [instance for instance in space.instances if instance.action.kind != "fault"]
        for state in self.states:
            rests = any(space.holds(rest.node, state) for rest in space.protocol.rest.values())
            if not rests and all(space.step(state, i) is Refused.DISABLED for i in ordinary):
                failed.add(DEAD_END)
        return frozenset(failed)

    def reached(self) -> frozenset[str]:
        """The goals that hold somewhere."""
        goals = self.space.protocol.goals.values()
        return frozenset(g.name for g in goals if any(self.space.holds(g.node, state) for state in self.states))


def by_search(world: World, workers: int) -> None:
    """The compiled search finds every state, every step and every cut."""
    found = search(world.space, (), workers)
    assert {found.layout.unpack(packed) for packed in found.packed_states()} == world.states
    assert found.states == len(world.states)
    assert (found.steps, found.cuts) == (len(world.steps), world.cuts)


def by_symmetry(world: World, workers: int) -> None:
    """With symmetry it finds a state of every orbit, and knows how many there are."""
    symmetric = symmetric_sorts(world.space)
    if symmetric:
        found = search(world.space, symmetric, workers)
        assert found.orbit_total() == len(world.states)
        representatives = {found.canonical(found.layout.pack(state)) for state in world.states}
        assert set(found.packed_states()) == representatives


def search(space: Space, symmetric: tuple[str, ...], workers: int) -> Search:
    found = Search(space, Claims(), symmetric, workers, memory=1 << 24, effort=0)
    while found.level():
        continue
    found.close()
    return found


def by_spin(world: World) -> None:
    """SPIN visits every state, takes every step, and finds the same claims violated and the same goals reached."""
    found = verify(world.space, visit=True, depth=20 * LARGEST)
    assert found.visited == world.states
    assert (found.states, found.steps) == (len(world.states), len(world.steps))
    assert (found.violated, found.reached) == (world.violated(), world.reached())


def by_all(world: World, number: int) -> None:
    """Two workers with symmetry where one is without, and the other way round."""
    by_search(world, 1 + number % 2)
    by_symmetry(world, 2 - number % 2)
    if WITH_SPIN and number % EVERY == 0:
        by_spin(world)


WITH_SPIN = shutil.which("spin") is not None and shutil.which("gcc") is not None


def compare(block: int, readers: Callable[[World, int], None]) -> tuple[int, Counter[str]]:
    """Draw the protocols of a block, and hold readers to every one that is small.

    Answers how many were compared, and how many of those drawn have each construct.
    """
    having: Counter[str] = Counter()
    compared = 0

    @seed(block)
    @settings(
        max_examples=PROTOCOLS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(protocols(), SCOPES)
    def draw(protocol: Protocol, scope: Scope) -> None:
        nonlocal compared
        having.update(["protocol", *constructs(protocol)])
        # Of every second protocol no element is named, so that there is something to exchange.
        world = World(Space(anonymous(protocol) if having["protocol"] % 2 else protocol, scope))
        if world.small:
            readers(world, compared)
            compared += 1

    draw()
    return compared, having


@pytest.mark.parametrize("block", range(BLOCKS))
def test_readers_agree_state_for_state(block: int) -> None:
    """And what they agree on has every construct of the language in it, each often."""
    compared, having = compare(block, by_all)
    assert compared >= COMPARED
    rare = {kind: having[kind] for kind in KINDS if having[kind] < SHARE * having["protocol"]}
    assert not rare, f"hardly drawn, of {having['protocol']} protocols: {rare}"


@pytest.mark.skipif(not WITH_SPIN, reason="not installed: spin or gcc")
def test_spin_is_one_of_the_readers() -> None:
    """Where this is skipped, the test above is without it."""
    by_spin(World(Space(base(), Scope("drawn", {"Engine": 2, "Request": 2, "Load": 1}, "drawn"))))


@pytest.mark.parametrize("what", ["state", "step"])
def test_a_reader_that_is_wrong_is_found(what: str) -> None:
    """Such as one that loses a state or a step of the definition."""

    def forgetful(world: World, number: int) -> None:
        match what:
            case "state":
                world.states.discard(max(world.states))
            case "step":
                world.steps = world.steps[1:]
        by_search(world, 1)

    with pytest.raises(AssertionError):
        compare(0, forgetful)


def test_what_is_never_drawn_is_found() -> None:
    """A protocol without it has none of it."""
    assert "Count" in KINDS
    assert constructs(base())["Count"] == 0
