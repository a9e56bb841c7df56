"""Scopes: how large a world is explored, and why that is enough to be worth it. Bounds never enter a specification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from spec.lang.nodes import (
    BoolSort,
    Const,
    CountSort,
    EnumSort,
    Field,
    IndexSort,
    MaybeSort,
    NaturalSort,
    Node,
    Plus,
    Read,
    Sort,
    Write,
)
from spec.lang.protocol import Protocol
from spec.lang.terms import Misuse

FAULTS = NaturalSort("Faults")


@dataclass(frozen=True)
class Scope:
    """A small world: elements per index sort, largest value per natural sort, how many faults (none: any number)."""

    name: str
    sizes: Mapping[str, int]
    reason: str
    faults: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", MappingProxyType(dict(self.sizes)))

    def cardinality(self, sort: Sort) -> int:
        """How many values a sort has in this world.

        Raises:
            Misuse: the scope does not bound the sort.
        """
        match sort:
            case BoolSort():
                return 2
            case EnumSort(members=members):
                return len(members)
            case MaybeSort(of=of):
                return self.cardinality(of) + 1
            case IndexSort(name=name):
                return self._size(name, at_least=1)
            case NaturalSort(name=name):
                return (self.faults or 0) + 1 if sort == FAULTS else self._size(name, at_least=0) + 1
            case CountSort():
                raise Misuse("a count is compared, never stored")

    def _size(self, name: str, at_least: int) -> int:
        size = self.sizes.get(name)
        if size is None:
            raise Misuse(f"scope {self.name}: says nothing about {name}")
        if size < at_least:
            raise Misuse(f"scope {self.name}: {name} is {size}, and must be {at_least} or more")
        return size


def count_faults(protocol: Protocol, scope: Scope) -> Protocol:
    """The protocol with a counter of faults, if the scope bounds them.

    The bound cuts a run as the bound of any natural does, so every reader treats it alike and reports it alike.
    """
    if scope.faults is None:
        return protocol
    counter = Field("faults", (), FAULTS, ghost=False, doc="how many faults have happened; the scope bounds it")
    counted = protocol.variant(protocol.name, protocol.doc)
    counted.fields = {**protocol.fields, counter.name: counter}
    before: Node = Read(counter, (), None, after=False)
    for action in protocol.actions.values():
        if action.kind == "fault":
            counted.actions[action.name] = replace(
                action, writes=(*action.writes, Write(counter, (), (), Plus(before, 1)))
            )
    assert protocol.initial is not None
    counted.initial = replace(
        protocol.initial, writes=(*protocol.initial.writes, Write(counter, (), (), Const(FAULTS, 0)))
    )
    return counted
