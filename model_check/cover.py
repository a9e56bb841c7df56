"""Runs that together take every kind of step that a view of a protocol tells apart.

A *view* is what somebody sees of a state: some of its fields, and of a field perhaps not every value. Two steps are of
one *kind* if they are the same action, with the same arguments, and look the same before and after it, up to exchange
of interchangeable elements. A step counts if its view changes, or if the one who looks takes it.

The runs are found greedily: from where a run stands, the nearest step of a kind that no run has taken yet. They start
in an initial state, and every step of them is one of `evaluate`'s.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from model_check.boxes import cone
from model_check.evaluate import Instance, Space, State
from model_check.graph import Steps
from model_check.record import Claims
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Protocol, Scope
from spec.lang.nodes import Field, IndexSort, MaybeSort, Sort

Look = Mapping[str, tuple[int, ...]]
"""The fields of a view, each with its cells in order of their keys."""
Excuse = Callable[[Instance, Look, Look], str]
"""Why a step need not be taken; empty: it must be."""
Seen = tuple[tuple[int, ...], ...]
Order = dict[str, tuple[int, ...]]
"""By symmetric sort, what each element becomes."""


@dataclass(frozen=True)
class View:
    """What somebody sees and does.

    Attributes:
        fields: what is seen of a state, by name.
        alike: for a field, values that look like another one.
        actors: whose actions count even where nothing is seen of them.
        unseen: actions that neither change what is seen nor are needed for what does: they are left out.
    """

    fields: tuple[str, ...]
    alike: Mapping[str, Mapping[int, int]]
    actors: frozenset[str]
    unseen: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Taken:
    """One step of a run: `kind` numbers what it is an example of, -1 where it does not count."""

    instance: Instance
    before: State
    after: State
    kind: int


@dataclass(frozen=True)
class Cover:
    """The runs, and how many kinds of steps there are, by action.

    `excused` and `beyond` count those that no run takes: that are excused, by action and reason, and that could only be
    reached through excused ones.
    """

    space: Space
    runs: tuple[tuple[Taken, ...], ...]
    kinds: Counter[str]
    excused: Counter[tuple[str, str]]
    beyond: Counter[str]

    @property
    def taken(self) -> int:
        """How many kinds of steps the runs take."""
        return len({step.kind for run in self.runs for step in run} - {-1})


def reduced(protocol: Protocol, scope: Scope, view: View) -> Protocol:
    """A protocol without what is unseen, and without fields on which nothing depends that is seen."""
    left = protocol.variant(protocol.name, protocol.doc)
    for name in view.unseen:
        left.remove_action(name)
    kept = cone(Space(left, scope), view.fields, ())
    for name, action in tuple(left.actions.items()):
        left.change_action(name, writes=tuple(w for w in action.writes if w.field.name in kept))
    assert left.initial is not None, "a protocol needs its first states"
    left.initial = replace(left.initial, writes=tuple(w for w in left.initial.writes if w.field.name in kept))
    return left


def cover(protocol: Protocol, scope: Scope, view: View, excuse: Excuse, longest: int = 400) -> Cover:
    """Runs that take a step of every kind that is not excused. A run that has `longest` steps gets no further one."""
    space = Space(reduced(protocol, scope, view), scope)
    search = Search(space, Claims(), (), workers=1)
    try:
        while search.level():
            continue
        graph = _Graph(search, view, excuse)
    finally:
        search.close()
    return graph.cover(longest)


@dataclass
class _Kinds:
    """The kinds of steps, numbered as they are met: what each is called, and why it is excused, if it is."""

    numbers: dict[object, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    excuses: list[str] = field(default_factory=list)

    def number(self, key: object, name: str, why: str) -> int:
        """The number of a kind. It is excused only while every step of it is."""
        number = self.numbers.setdefault(key, len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self.excuses.append(why)
        elif not why:
            self.excuses[number] = ""
        return number


class _Graph:
    """Every step of a finished search, with its kind."""

    def __init__(self, search: Search, view: View, excuse: Excuse) -> None:
        self.search = search
        self.space = search.space
        self.view = view
        self.fields = [self.space.protocol.fields[name] for name in view.fields]
        self.orders = list(_orders(self.space))
        steps = Steps(search, np.ones(len(self.space.instances), np.uint8))
        self.offsets, self.targets, self.via = steps.offsets.tolist(), steps.targets.tolist(), steps.via.tolist()
        place = {search.packed_at(position): position for position in self._positions() | set(self.targets)}
        self.first = [place[search.layout.pack(state)] for state in self.space.initial_states()]
        self.kinds = _Kinds()
        self.kind = self._classify(place, excuse)

    def _positions(self) -> set[int]:
        """The states with a step."""
        return {position for position, (start, end) in enumerate(itertools.pairwise(self.offsets)) if start != end}

    def _classify(self, places: Mapping[int, int], excuse: Excuse) -> list[int]:
        """The kind of every step; -1: it does not count, -2: it is excused and not to be taken."""
        looks: dict[Seen, int] = {}
        at = [0] * len(self.offsets)
        cells = [self._cells(f) for f in self.fields]
        for packed, position in places.items():
            state = self.search.layout.unpack(packed)
            seen = tuple(tuple(state[cell] for cell in of) for of in cells)
            at[position] = looks.setdefault(seen, len(looks))
        views = [self._images(seen) for seen in looks]
        full = [dict(zip(self.view.fields, seen, strict=True)) for seen in looks]
        images = [[self._image(i, order) for order in self.orders] for i in self.space.instances]
        known: dict[tuple[int, int, int], int] = {}
        kind = []
        for position in sorted(self._positions()):
            for step in range(self.offsets[position], self.offsets[position + 1]):
                triple = (at[position], self.via[step], at[self.targets[step]])
                number = known.get(triple)
                if number is None:
                    before, via, after = triple
                    instance = self.space.instances[via]
                    why = excuse(instance, full[before], full[after])
                    counts = views[before] != views[after] or instance.action.by in self.view.actors
                    number = -1
                    if counts:
                        key = min(zip(views[before], images[via], views[after], strict=True))
                        number = self.kinds.number(key, instance.action.name, why)
                    known[triple] = number = -2 if why else number
                kind.append(number)
        return kind

    def _cells(self, of: Field) -> list[int]:
        return [self.space.cell(of, keys) for keys in itertools.product(*map(range, self.space.shapes[of.name]))]

    def _images(self, seen: Seen) -> list[Seen]:
        """What a view is under every exchange of elements."""
        blurred = [
            tuple(self.view.alike.get(f.name, {}).get(value, value) for value in values)
            for f, values in zip(self.fields, seen, strict=True)
        ]
        return [
            tuple(self._moved(f, values, order) for f, values in zip(self.fields, blurred, strict=True))
            for order in self.orders
        ]

    def _moved(self, of: Field, values: tuple[int, ...], order: Order) -> tuple[int, ...]:
        keys = list(itertools.product(*map(range, self.space.shapes[of.name])))
        moved = {
            tuple(_exchanged(sort, key, order) for sort, key in zip(of.keys, at, strict=True)): _exchanged(
                of.sort, value, order
            )
            for at, value in zip(keys, values, strict=True)
        }
        return tuple(moved[at] for at in keys)

    def _image(self, instance: Instance, order: Order) -> tuple[str, tuple[int, ...]]:
        moved = (_exchanged(p.sort, v, order) for p, v in zip(instance.action.params, instance.args, strict=True))
        return instance.action.name, tuple(moved)

    def cover(self, longest: int) -> Cover:
        """The runs."""
        left = {number for number in self.kind if number >= 0}
        runs: list[tuple[Taken, ...]] = []
        for first in self.first:
            run: list[int] = []
            at = first
            while True:
                way = self._way(at, left)
                if way:
                    run += way
                    left.difference_update(self.kind[step] for step in way)
                    at = self.targets[way[-1]]
                if run and (not way or len(run) >= longest):
                    runs.append(tuple(self._taken(first, run)))
                    run, at = [], first
                elif not way:
                    break
        names, excuses = self.kinds.names, self.kinds.excuses
        return Cover(
            self.space,
            tuple(runs),
            Counter(names),
            Counter((name, why) for name, why in zip(names, excuses, strict=True) if why),
            Counter(names[number] for number in left),
        )

    def _way(self, start: int, left: set[int]) -> list[int]:
        """The steps to and with the nearest one of a kind that is left; none if none can be reached."""
        came: dict[int, tuple[int, int]] = {start: (-1, -1)}
        queue = deque([start])
        while queue:
            position = queue.popleft()
            for step in range(self.offsets[position], self.offsets[position + 1]):
                number = self.kind[step]
                if number == -2:
                    continue
                if number in left:
                    way = [step]
                    while position != start:
                        position, last = came[position]
                        way.append(last)
                    return way[::-1]
                target = self.targets[step]
                if target not in came:
                    came[target] = (position, step)
                    queue.append(target)
        return []

    def _taken(self, first: int, run: list[int]) -> Iterator[Taken]:
        """The steps of a run, as `evaluate` takes them."""
        state = self.search.layout.unpack(self.search.packed_at(first))
        for step in run:
            instance = self.space.instances[self.via[step]]
            after = self.space.step(state, instance)
            assert after == self.search.layout.unpack(self.search.packed_at(self.targets[step]))
            yield Taken(instance, state, after, self.kind[step])
            state = after


def _orders(space: Space) -> Iterator[Order]:
    """Every exchange of the elements of the symmetric sorts; the first one exchanges nothing."""
    sorts = symmetric_sorts(space)
    ranges = [itertools.permutations(range(space.scope.sizes[sort])) for sort in sorts]
    for orders in itertools.product(*ranges):
        yield dict(zip(sorts, orders, strict=True))


def _exchanged(sort: Sort, value: int, order: Order) -> int:
    """A value after an exchange: an element becomes another, anything else stays."""
    match sort:
        case IndexSort(name=name) if name in order:
            return order[name][value]
        case MaybeSort(of=of) if value:
            return _exchanged(of, value - 1, order) + 1
        case _:
            return value


__all__ = ["Cover", "Excuse", "Look", "Taken", "View", "cover", "reduced"]
