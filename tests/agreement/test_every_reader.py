"""One meaning for every reader: each finds the states of the definition, on thousands of random protocols.

Every protocol goes through the compiled search, by one worker or by two, and a share of them (`shares`) through it with
symmetry, through z3's formulas of the world, and through SPIN on the exported text. Each share has all of the language
in it; ``pytest -s`` prints how large it is, and what is least often in it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

import pytest
import z3
from hypothesis import HealthCheck, Phase, given, seed, settings

from model_check.evaluate import Instance, Refused, Space, State
from model_check.export.spin import verify
from model_check.prove.connectives import Expr
from model_check.prove.ground import ground
from model_check.record import DEAD_END, Claims, bounded
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Protocol, Scope
from spec.lang.nodes import Not, Read, Some, Var, Write
from spec.lang.protocol import Action
from tests.agreement.constructs import KINDS, constructs
from tests.agreement.drawn import SCOPES, SORTS, anonymous, base, protocols
from tests.agreement.shares import LEAST, Shares

BLOCKS = 8
PROTOCOLS = 270
"""Drawn in one block. Those whose worlds are too large to be worth the wait are not compared."""
COMPARED = 250
"""At least so many are compared in one block: 2,000 in all."""
LARGEST = 150
"""States of a world that is compared."""
SHARE = 0.015
"""Of the protocols that are compared in a block, at least so many have any one construct."""


class World:
    """A world as `evaluate` tells it: its states, its steps, how many steps the bound of each sort cuts, its claims."""

    def __init__(self, protocol: Protocol, scope: Scope) -> None:
        self.protocol = protocol
        self.space = space = Space(protocol, scope)
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
    found = Search(space, Claims(), symmetric, workers, memory=1 << 24, effort=0, beyond=False)
    while found.level():
        continue
    found.close()
    return found


def by_formulas(world: World) -> None:
    """z3 has the same first states, the same steps from them on, and judges every property alike."""
    formulas = ground(world.protocol, world.space.scope)
    before, after = (_packed(cells.constants) for cells in (formulas.before, formulas.after))
    both = z3.Concat(before, after)
    wide = formulas.before.constants
    states = _among(before, [(state,) for state in world.states], wide)
    steps = _among(both, world.steps, wide)

    def alike(where: Expr, told: Expr, known: Expr) -> None:
        solver = z3.Solver()
        solver.add(formulas.before.domain(), formulas.after.domain(), where, told != known)
        assert solver.check() == z3.unsat

    alike(z3.BoolVal(True), formulas.initial(), _among(before, [(state,) for state in world.first], wide))
    alike(states, formulas.transition(), steps)
    for name, told in formulas.properties().items():
        claim = world.space.protocol.properties[name]
        if claim.stepwise:
            known = [step for step in world.steps if world.space.holds(claim.node, *step)]
            alike(steps, told, _among(both, known, wide))
        else:
            holding = [(state,) for state in world.states if world.space.holds(claim.node, state)]
            alike(states, told, _among(before, holding, wide))


def _packed(cells: Sequence[Expr]) -> Expr:
    """Every cell in one bit-vector, so that a state is one constant."""
    return z3.Concat(
        *(z3.If(cell, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1)) if z3.is_bool(cell) else cell for cell in cells)
    )


def _among(packed: Expr, known: Collection[tuple[State, ...]], cells: Sequence[Expr]) -> Expr:
    """The packed cells are one of these states, or one of these pairs."""
    widths = [1 if z3.is_bool(cell) else cell.size() for cell in cells]
    numbers = set()
    for states in known:
        number = 0
        for state in states:
            for value, width in zip(state, widths, strict=True):
                number = number << width | value
        numbers.add(number)
    return z3.Or([packed == number for number in sorted(numbers)])


def by_spin(world: World) -> None:
    """SPIN visits every state, takes every step, and finds the same claims violated and the same goals reached."""
    found = verify(world.space, visit=True, quick=True, depth=20 * LARGEST)
    assert found.visited == world.states
    assert (found.states, found.steps) == (len(world.states), len(world.steps))
    assert (found.violated, found.reached) == (world.violated(), world.reached())


WITH_SPIN = shutil.which("spin") is not None and shutil.which("gcc") is not None
with_spin = pytest.mark.skipif(not WITH_SPIN, reason="not installed: spin or gcc")


READERS: dict[str, Callable[[World, int], None]] = {
    "search": by_search,
    "symmetry": by_symmetry,
    "z3": lambda world, workers: by_formulas(world),
    **({"SPIN": lambda world, workers: by_spin(world)} if WITH_SPIN else {}),
}
"""Each holds a reader to a world, with so many workers where it has any."""


def compare(block: int, readers: Mapping[str, Callable[[World, int], None]]) -> tuple[int, Shares]:
    """Draw the protocols of a block, and hold readers to those that are small.

    Answers how many were compared, and what each reader was given.
    """
    shares = Shares(readers)
    drawn = compared = 0

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
        nonlocal drawn, compared
        drawn += 1
        # Of every second protocol no element is named, so that there is something to exchange.
        world = World(anonymous(protocol) if drawn % 2 else protocol, scope)
        if not world.small:
            return
        found = constructs(protocol)
        for name, reader in readers.items():
            if (name != "symmetry" or symmetric_sorts(world.space)) and shares[name].takes(found):
                reader(world, 1 + compared % 2)
        compared += 1

    draw()
    return compared, shares


@pytest.mark.parametrize("block", range(BLOCKS))
def test_readers_agree_state_for_state(block: int) -> None:
    """And what each reader is held to has every construct of the language in it; what is searched, each often."""
    compared, shares = compare(block, READERS)
    print(f"\n{shares.told(KINDS)}")
    assert compared == shares["search"].given >= COMPARED
    wanted = dict.fromkeys(READERS, LEAST) | {"search": SHARE * compared}
    rare = {
        (name, kind): share.having[kind]
        for name, share in shares.items()
        for kind in KINDS
        if share.having[kind] < wanted[name]
    }
    assert not rare, f"hardly compared, of {compared} protocols: {rare}"


@with_spin
def test_spin_is_one_of_the_readers() -> None:
    """Where this is skipped, the test above is without it."""
    by_spin(World(base(), Scope("drawn", {"Engine": 2, "Request": 2, "Load": 1}, "drawn")))


def lose_a_state(world: World) -> None:
    world.states.discard(max(world.states))


def lose_a_step(world: World) -> None:
    world.steps = [step for step in world.steps if step != world.steps[0]]


def lose_a_beginning(world: World) -> None:
    world.first.discard(max(world.first))


@pytest.mark.parametrize(
    ("lose", "reader"),
    [
        (lose_a_state, partial(by_search, workers=1)),
        (lose_a_step, partial(by_search, workers=1)),
        (lose_a_state, partial(by_symmetry, workers=1)),
        (lose_a_step, by_formulas),
        (lose_a_beginning, by_formulas),
        pytest.param(lose_a_state, by_spin, marks=with_spin),
        pytest.param(lose_a_step, by_spin, marks=with_spin),
    ],
)
def test_a_difference_is_noticed(lose: Callable[[World], None], reader: Callable[[World], None]) -> None:
    """Each reader is held to every state and step of the definition, or to every first state."""
    protocol = base()
    flag, chosen = protocol.fields["flag"], protocol.fields["chosen"]
    anyone = Var(SORTS[4], "r")
    writes = (Write(flag, (), (), Not(Read(flag, (), None, False))), Write(chosen, (), (), Some(anyone)))
    protocol.actions["step"] = Action("step", "action", "drawn", "someone", "", (anyone,), (), writes)
    world = World(anonymous(protocol), Scope("drawn", {"Engine": 2, "Request": 2, "Load": 1}, "drawn"))
    reader(world)
    lose(world)
    with pytest.raises(AssertionError):
        reader(world)


def test_what_is_never_drawn_is_found() -> None:
    """A protocol without it has none of it."""
    assert "Count" in KINDS
    assert constructs(base())["Count"] == 0
