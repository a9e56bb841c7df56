"""A simulator of publication that was written by hand, from the prose alone, comes to the same states."""

from __future__ import annotations

import pytest

from model_check.evaluate import Space, State
from model_check.record import Claims
from model_check.search import Search
from spec.lang import Protocol, Scope
from spec.lang.nodes import EnumSort, MaybeSort, Sort
from spec.publication import publication
from spec.publication.mutants import MUTANTS
from tests.agreement.plain_publication import Move, World, beginnings, moves, successors


def scope(engines: int, loads: int, contents: int) -> Scope:
    return Scope("small", {"Engine": engines, "Load": loads, "Content": contents}, "what a plain simulator can do")


def number(sort: Sort, value: object) -> int:
    """A value as a cell has it."""
    match sort:
        case EnumSort(members=members):
            return members.index(str(value))
        case MaybeSort():
            return 0 if value is None else 1 + int(str(value))
        case _:
            return int(value)  # type: ignore[call-overload, no-any-return]


def cells(space: Space, world: World) -> State:
    """A world as a state of the protocol."""
    values: dict[str, object] = {}
    for name, field in space.protocol.fields.items():
        where, _, part = name.partition("_")
        if where in ("disk", "memory"):
            values[name] = getattr(getattr(world, where), part)
        elif not field.keys:
            values[name] = getattr(world, name)
    state = [0] * space.cells
    for name, field in space.protocol.fields.items():
        for n, slot in enumerate(world.slots) if len(field.keys) == 1 else ():
            value = getattr(slot, "holds" if name == "slot" else name)
            state[space.cell(field, (n,))] = number(field.sort, value)
        if name in ("kv", "made_by"):
            for n, slot in enumerate(world.slots):
                for content in getattr(slot, name):
                    state[space.cell(field, (n, content))] = 1
        elif name == "sent":
            for load, content in world.sent:
                state[space.cell(field, (load, content))] = 1
        elif not field.keys:
            state[space.cell(field, ())] = number(field.sort, values[name])
    return tuple(state)


def by_hand(space: Space, possible: tuple[Move, ...] | None = None) -> set[State]:
    """Every state that the plain simulator comes to."""
    sizes = space.scope.sizes
    possible = possible or tuple(moves(sizes["Engine"]))
    todo = list(beginnings(sizes["Engine"], sizes["Load"], sizes["Content"]))
    seen = {cells(space, world) for world in todo}
    while todo:
        for world in successors(todo.pop(), possible):
            state = cells(space, world)
            if state not in seen:
                seen.add(state)
                todo.append(world)
    return seen


def by_protocol(protocol: Protocol, world: Scope) -> set[State]:
    """Every state of the protocol."""
    search = Search(Space(protocol, world), Claims(), (), workers=1, memory=1 << 28, effort=0)
    while search.level():
        continue
    search.close()
    return {search.layout.unpack(packed) for packed in search.packed_states()}


@pytest.mark.parametrize("world", [scope(1, 2, 2), scope(2, 0, 1)], ids=["one engine, one job", "two engines, no job"])
def test_the_same_states(world: Scope) -> None:
    """Of every configuration: one engine through a whole job and its failures, two beside each other."""
    plain, ours = by_hand(Space(publication, world)), by_protocol(publication, world)
    assert plain - ours == set()
    assert ours - plain == set()


@pytest.mark.parametrize("mutant", ["no-flush", "latch-set-on-success"])
def test_a_wrong_protocol_has_others(mutant: str) -> None:
    """So that a slip in either would be seen."""
    assert by_hand(Space(publication, scope(1, 1, 1))) != by_protocol(MUTANTS[mutant].build(), scope(1, 1, 1))


def test_a_simulator_that_forgets_something_has_others() -> None:
    """Such as that any process may die."""
    from tests.agreement.plain_publication import die

    world = scope(1, 1, 1)
    remembered = tuple(move for move in moves(1) if die not in (getattr(move, "__defaults__", None) or ()))
    assert len(remembered) == len(tuple(moves(1))) - 1
    assert by_hand(Space(publication, world), remembered) != by_protocol(publication, world)
