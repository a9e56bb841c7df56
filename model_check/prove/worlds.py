"""What sorts become: `Unbounded`, where there may be any number of elements, and `Finite`, the world of a scope.

In `Unbounded`, an index sort is an uninterpreted sort and a natural an integer that is not negative. In `Finite`, all
but truth values are bit-vectors of one width. Members of an enumeration are bit-vectors in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import z3

from model_check.prove.connectives import FALSE, TRUE, Expr
from spec.lang.nodes import (
    BoolSort,
    Const,
    EnumSort,
    IndexSort,
    KeySort,
    NaturalSort,
    Node,
    Plus,
    Sort,
    walk,
)
from spec.lang.scope import Scope


class Untranslatable(Exception):  # noqa: N818 - read as a word
    """What the protocol says here has no translation; the message is the reason."""


class World(Protocol):
    """What sorts become."""

    def sort(self, sort: KeySort) -> Expr:
        """The sort of z3."""

    def constant(self, sort: Sort, value: int) -> Expr:
        """A value that the specification writes."""

    def elements(self, sort: KeySort) -> Sequence[Expr] | None:
        """Every value, or none where there is no knowing how many."""

    def within(self, sort: KeySort, term: Expr) -> Expr:
        """The term is a value of the sort."""

    def less(self, left: Expr, right: Expr) -> Expr:
        """Strict order."""


def _members(sort: EnumSort) -> int:
    return max(1, (len(sort.members) - 1).bit_length())


class Unbounded:
    """Any number of elements, numbers of any size."""

    def __init__(self) -> None:
        self._index: dict[str, Expr] = {}
        self._named: dict[str, dict[int, Expr]] = {}

    def sort(self, sort: KeySort) -> Expr:
        """The sort of z3."""
        match sort:
            case BoolSort():
                return z3.BoolSort()
            case EnumSort():
                return z3.BitVecSort(_members(sort))
            case NaturalSort():
                return z3.IntSort()
            case IndexSort(name=name):
                return self._index.setdefault(name, z3.DeclareSort(name))

    def constant(self, sort: Sort, value: int) -> Expr:
        """A value that the specification writes."""
        match sort:
            case BoolSort():
                return TRUE if value else FALSE
            case EnumSort():
                return z3.BitVecVal(value, _members(sort))
            case IndexSort(name=name):
                named = self._named.setdefault(name, {})
                return named.setdefault(value, z3.Const(f"{name}:{value}", self.sort(sort)))
            case _:
                return z3.IntVal(value)

    def elements(self, sort: KeySort) -> Sequence[Expr] | None:
        """Truth values and members of an enumeration; of the others there may be any number."""
        match sort:
            case BoolSort():
                return [self.constant(sort, value) for value in range(2)]
            case EnumSort(members=members):
                return [self.constant(sort, value) for value in range(len(members))]
            case _:
                return None

    def within(self, sort: KeySort, term: Expr) -> Expr:
        """A natural is not negative; a member is one of those that there are."""
        match sort:
            case NaturalSort():
                return term >= 0
            case EnumSort(members=members) if len(members) != 1 << _members(sort):
                return z3.ULT(term, len(members))
            case _:
                return TRUE

    def less(self, left: Expr, right: Expr) -> Expr:
        """Order of integers."""
        return left < right

    def distinct(self) -> list[Expr]:
        """The elements that the protocol names are different ones."""
        return [z3.Distinct(*named.values()) for named in self._named.values() if len(named) > 1]


class Finite:
    """The world of a scope, in bit-vectors wide enough for every number and every sum that the nodes can come to."""

    def __init__(self, scope: Scope, sorts: Sequence[Sort], nodes: Sequence[Node]) -> None:
        self.scope = scope
        self._bounds = {sort: scope.cardinality(sort) for sort in sorts}
        sums = max((sum(n.amount for n in walk(node) if isinstance(n, Plus)) for node in nodes), default=0)
        written = max((n.value for node in nodes for n in walk(node) if isinstance(n, Const)), default=0)
        largest = max([2, written, *self._bounds.values()]) + sums
        self.width = (largest + 1).bit_length()
        self._numbers: dict[int, Expr] = {}
        self._elements: dict[KeySort, Sequence[Expr]] = {}

    def sort(self, sort: KeySort) -> Expr:
        """Truth values are such, everything else a bit-vector of one width."""
        return z3.BoolSort() if isinstance(sort, BoolSort) else z3.BitVecSort(self.width)

    def constant(self, sort: Sort, value: int) -> Expr:
        """A value that the specification writes. Making a number takes longer than finding it again."""
        if isinstance(sort, BoolSort):
            return TRUE if value else FALSE
        if value not in self._numbers:
            self._numbers[value] = z3.BitVecVal(value, self.width)
        return self._numbers[value]

    def elements(self, sort: KeySort) -> Sequence[Expr]:
        """Every value in the scope."""
        if sort not in self._elements:
            self._elements[sort] = tuple(self.constant(sort, value) for value in range(self._bounds[sort]))
        return self._elements[sort]

    def within(self, sort: KeySort, term: Expr) -> Expr:
        """The term does not pass the scope's bound."""
        return TRUE if isinstance(sort, BoolSort) else z3.ULT(term, self._bounds[sort])

    def less(self, left: Expr, right: Expr) -> Expr:
        """Order of numbers without sign."""
        return z3.ULT(left, right)
