"""What can be seen of a state in its protocol's vocabulary, value by value, and which values occur together."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from model_check.evaluate import Space, State
from model_check.record import Claims
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Protocol, Scope
from spec.lang.nodes import (
    BoolSort,
    Const,
    EnumSort,
    Eq,
    Field,
    Forall,
    IndexSort,
    Less,
    MaybeSort,
    NaturalSort,
    Node,
    Not,
    Or,
    OrElse,
    Read,
    Some,
    Var,
    named_after,
)

Values = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Term:
    """A field at no key, or at the element that a candidate speaks of."""

    field: Field
    keyed: bool

    def node(self, element: Var | None) -> Node:
        """The term as an expression."""
        return Read(self.field, (element,) if self.keyed and element else (), None, after=False)

    def values(self, space: Space, states: Values, element: int) -> Values:
        """The term's values in many states, as `evaluate` counts them."""
        found: Values = states[:, space.cell(self.field, (element,) if self.keyed else ())]
        return found


@dataclass(frozen=True)
class Feature:
    """Something with few values that a state, or an element of it, has: the conditions tell which.

    `of` is compared with `to`, or with the element itself where there is no `to` and `alike`; alone, it is a value.
    """

    of: Term
    to: Term | None = None
    alike: bool = False
    less: bool = False

    @property
    def keyed(self) -> bool:
        """It is about an element."""
        return self.of.keyed or self.alike or (self.to is not None and self.to.keyed)

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields that it reads."""
        return frozenset({self.of.field.name} | ({self.to.field.name} if self.to else set()))

    @property
    def size(self) -> int:
        """How many values it has."""
        if self.to is None and not self.alike and isinstance(self.of.field.sort, EnumSort):
            return len(self.of.field.sort.members)
        return 2

    def condition(self, value: int, element: Var | None) -> Node:
        """The condition under which the feature has a value."""
        one = self.of.node(element)
        sort = self.of.field.sort
        if self.to is not None or self.alike:
            other = self.to.node(element) if self.to else element
            assert other is not None
            if self.less:
                node: Node = Less(*(_number(n, s) for n, s in zip((one, other), self._sorts(), strict=True)))
            else:
                both = [one, other]
                if any(isinstance(s, MaybeSort) for s in self._sorts()):
                    both = [
                        n if isinstance(s, MaybeSort) else Some(n) for n, s in zip(both, self._sorts(), strict=True)
                    ]
                node = Eq(both[0], both[1])
            return node if value else Not(node)
        match sort:
            case BoolSort():
                return one if value else Not(one)
            case MaybeSort():
                none = Eq(one, Const(sort, 0))
                return Not(none) if value else none
            case NaturalSort():
                zero = Eq(one, Const(sort, 0))
                return Not(zero) if value else zero
            case _:
                return Eq(one, Const(sort, value))

    def _sorts(self) -> list[object]:
        first = self.of.field.sort
        return [first, self.to.field.sort if self.to else (first.of if isinstance(first, MaybeSort) else first)]

    def values(self, space: Space, states: Values, element: int) -> Values:
        """The feature's values in many states."""
        one = self.of.values(space, states, element)
        if self.to is None and not self.alike:
            few: Values = one if isinstance(self.of.field.sort, BoolSort | EnumSort) else np.minimum(one, 1)
            return few
        other = self.to.values(space, states, element) if self.to else np.full_like(one, element)
        first, second = (int(not isinstance(s, MaybeSort)) for s in self._sorts())
        if self.less:
            fewer: Values = (np.maximum(one + first, 1) < np.maximum(other + second, 1)).astype(np.int64)
            return fewer
        same: Values = (one + first == other + second).astype(np.int64)
        return same


def features(protocol: Protocol, sort: IndexSort | None) -> tuple[Feature, ...]:
    """Everything of the vocabulary that can be seen of a state and, where a sort is given, of one element of it."""
    fields = protocol.fields.values()
    terms = [Term(f, False) for f in fields if not f.keys]
    terms += [Term(f, True) for f in fields if sort is not None and f.keys == (sort,)]
    found = [Feature(t) for t in terms if isinstance(t.field.sort, BoolSort | EnumSort | MaybeSort | NaturalSort)]
    if sort is not None:
        found += [Feature(t, alike=True) for t in terms if t.field.sort in (sort, MaybeSort(sort))]
    for one, other in itertools.combinations(terms, 2):
        a, b = one.field.sort, other.field.sort
        base = a.of if isinstance(a, MaybeSort) else a
        if isinstance(base, IndexSort | NaturalSort) and b in (base, MaybeSort(base)):
            found.append(Feature(one, other))
            if isinstance(base, NaturalSort):
                found += [Feature(one, other, less=True), Feature(other, one, less=True)]
    return tuple(found)


def _number(node: Node, sort: object) -> Node:
    """A natural, or an optional one with 0 for none, as something to compare."""
    return OrElse(node, Const(sort.of, 0)) if isinstance(sort, MaybeSort) else node


@dataclass(frozen=True)
class Candidate:
    """A condition that every explored state meets: where these features have these values, one has one of those."""

    premises: tuple[tuple[Feature, int], ...]
    feature: Feature
    values: tuple[int, ...]
    sort: IndexSort | None

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields that it reads."""
        return self.feature.fields.union(*(f.fields for f, _ in self.premises))

    @property
    def numbers(self) -> int:
        """How many of its features are about numbers, whose small world may have too few to tell chance from rule."""
        told = [self.feature, *(f for f, _ in self.premises)]
        return sum(isinstance(f.of.field.sort, NaturalSort | MaybeSort) for f in told)

    @property
    def possible(self) -> float:
        """How many of its feature's values it leaves possible, as a part of all."""
        return len(self.values) / self.feature.size

    @cached_property
    def node(self) -> Node:
        """The candidate as a condition."""
        keyed = self.feature.keyed or any(f.keyed for f, _ in self.premises)
        element = named_after(Var(self.sort, "x"), ()) if keyed and self.sort else None
        premises = [Not(f.condition(v, element)) for f, v in self.premises]
        node: Node = Or((*premises, *(self.feature.condition(v, element) for v in self.values)))
        return Forall(element, node) if element else node


class Seen:
    """Every state of a small world, seen through features: what never occurred together is a candidate."""

    def __init__(self, protocol: Protocol, scope: Scope) -> None:
        self.space = Space(protocol, scope)
        self._states = np.array(_reachable(self.space), np.int64)
        sorts = [s for s in protocol.sorts if isinstance(s, IndexSort)]
        self.sorts: tuple[IndexSort | None, ...] = tuple(sorts) or (None,)
        self.states = len(self._states)
        self._tables: dict[IndexSort | None, Values] = {}
        self._features = {sort: features(protocol, sort) for sort in self.sorts}

    def _table(self, sort: IndexSort | None) -> Values:
        """One row for each combination of the features' values that occurs."""
        if sort not in self._tables:
            elements = range(self.space.scope.cardinality(sort) if sort else 1)
            rows = [
                np.stack([f.values(self.space, self._states, e) for f in self._features[sort]], axis=1)
                for e in elements
            ]
            self._tables[sort] = np.unique(np.concatenate(rows), axis=0)
        return self._tables[sort]

    def excluding(self, space: Space, state: State, premises: int, fields: Collection[str]) -> Iterator[Candidate]:
        """The candidates with so many premises over these fields that a state, perhaps of another world, breaks."""
        one = np.array([state], np.int64)
        for sort in self.sorts:
            told = self._features[sort]
            chosen = [i for i, f in enumerate(told) if f.fields <= set(fields)]
            table = self._table(sort)[:, chosen]
            for element in range(space.scope.cardinality(sort) if sort else 1):
                values = np.array([told[i].values(space, one, element)[0] for i in chosen])
                alike = table == values
                for given in itertools.combinations(range(len(chosen)), premises):
                    rows = np.flatnonzero(np.all(alike[:, given], axis=1))
                    if len(rows) == 0:
                        continue
                    for g in np.flatnonzero(~np.any(alike[rows], axis=0)):
                        seen = tuple(map(int, np.unique(table[rows, g])))
                        told_premises = tuple((told[chosen[i]], int(values[i])) for i in given)
                        yield Candidate(told_premises, told[chosen[g]], seen, sort)


def _reachable(space: Space) -> Sequence[State]:
    search = Search(space, Claims((), (), (), (), ()), symmetric_sorts(space), workers=1)
    try:
        while search.counts[-1]:
            search.level()
        return [search.layout.unpack(packed) for packed in search.packed_states()]
    finally:
        search.close()
