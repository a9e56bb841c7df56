"""Exchanging interchangeable elements: a representative of every set of states that differ by nothing else.

Exact for any number of symmetric sorts. The columns of a sort that no field has as a value, and that is nobody's second
key, are just sorted; of the other sorts every permutation is tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from llvmlite import ir

from model_check.building import I1, I32, I64, Code, i64
from model_check.codegen import Emitter
from model_check.evaluate import Space
from model_check.layout import Layout
from spec.lang.nodes import IndexSort, MaybeSort

MOST_IMAGES = 720
"""How many permutations of a state are tried at most."""


class Exchange:
    """Code for the images of a state of one layout under exchange of the elements of the symmetric sorts."""

    def __init__(self, layout: Layout, symmetric: Sequence[str]) -> None:
        self.layout = layout
        self.space = layout.space
        self.state = ir.IntType(64 * layout.words)
        tried = tried_sorts(self.space, symmetric)
        self.tried = [s for s in symmetric if s in tried]
        self.sortable = [s for s in symmetric if s not in tried and s in layout.columns]

    def _permuted(self, c: Code, value: ir.Value, order: dict[str, tuple[int, ...]]) -> ir.Value:
        """The state after element ``i`` of a sort has become element ``order[sort][i]``."""
        emit, result = Emitter(c.b, self.layout), value
        for field in self.space.protocol.fields.values():
            place = self.layout.places[field.name]
            if place.width == 0:
                continue
            optional = isinstance(field.sort, MaybeSort)
            inner = field.sort.of if isinstance(field.sort, MaybeSort) else field.sort
            table = order.get(inner.name) if isinstance(inner, IndexSort) else None
            moved = any(isinstance(k, IndexSort) and k.name in order for k in field.keys)
            if table is None and not moved:
                continue
            pending = {}
            for keys in itertools.product(*map(range, self.space.shapes[field.name])):
                old = emit.cell(value, place.width, place.shift(keys))
                if table is not None:
                    names = [0, *(t + 1 for t in table)] if optional else list(table)
                    packed = sum(n << 4 * i for i, n in enumerate(names))
                    wide = c.b.zext(c.b.mul(emit.word(old), ir.Constant(I32, 4)), I64)
                    old = c.b.and_(c.b.trunc(c.b.lshr(i64(packed), wide), I32), ir.Constant(I32, 15))
                new = tuple(
                    order[k.name][i] if isinstance(k, IndexSort) and k.name in order else i
                    for k, i in zip(field.keys, keys, strict=True)
                )
                pending[place.shift(new)] = (place.width, old)
            result = emit.store(result, pending)
        return result

    def _column(self, c: Code, value: ir.Value, sort: str, number: int) -> ir.Value:
        columns = self.layout.columns[sort]
        shift = ir.Constant(self.state, columns.base + number * columns.width)
        return c.b.trunc(c.b.lshr(value, shift), ir.IntType(columns.width))

    def _sorted(self, c: Code, value: ir.Value, sort: str) -> ir.Value:
        """The state with the columns of a sort in ascending order, by a network of exchanges."""
        columns, b = self.layout.columns[sort], c.b
        if columns.width == 0:
            return value
        parts = [self._column(c, value, sort, n) for n in range(columns.count)]
        for low, high in _network(columns.count):
            swap = b.icmp_unsigned(">", parts[low], parts[high])
            parts[low], parts[high] = b.select(swap, parts[high], parts[low]), b.select(swap, parts[low], parts[high])
        full = (1 << 64 * self.layout.words) - 1
        mask = ((1 << columns.width * columns.count) - 1) << columns.base
        result = b.and_(value, ir.Constant(self.state, full & ~mask))
        for number, part in enumerate(parts):
            shift = ir.Constant(self.state, columns.base + number * columns.width)
            result = b.or_(result, b.shl(b.zext(part, self.state), shift))
        return result

    def images(self, c: Code, value: ir.Value) -> Iterator[ir.Value]:
        """The state under every permutation that has to be tried, its sortable columns sorted."""
        sizes = [self.space.scope.sizes[s] for s in self.tried]
        for choice in itertools.product(*(itertools.permutations(range(n)) for n in sizes)):
            image = self._permuted(c, value, dict(zip(self.tried, choice, strict=True)))
            for sort in self.sortable:
                image = self._sorted(c, image, sort)
            yield image

    def least(self, c: Code, value: ir.Value) -> ir.Value:
        """The representative: the least image."""
        best: ir.Value | None = None
        for image in self.images(c, value):
            best = image if best is None else c.b.select(c.b.icmp_unsigned("<", image, best), image, best)
        assert best is not None
        return best

    def orbit(self, c: Code, value: ir.Value) -> ir.Value:
        """How many states a representative stands for: the size of the group over how many of its members fix it.

        0 where the group is too large for 64 bits.
        """
        b = c.b
        group = math.prod(math.factorial(self.space.scope.sizes[s]) for s in (*self.sortable, *self.tried))
        if group >= 1 << 63:
            return i64(0)
        fixed: ir.Value = i64(0)
        for image in self.images(c, value):
            fixed = b.add(fixed, b.zext(b.icmp_unsigned("==", image, value), I64))
        for sort in self.sortable:
            # Equal columns stand side by side in a representative: a run of n of them has n! exchanges.
            run: ir.Value = i64(1)
            for number in range(1, self.layout.columns[sort].count):
                same = (
                    ir.Constant(I1, 1)
                    if self.layout.columns[sort].width == 0
                    else b.icmp_unsigned("==", *(self._column(c, value, sort, n) for n in (number - 1, number)))
                )
                run = b.select(same, b.add(run, i64(1)), i64(1))
                fixed = b.mul(fixed, run)
        return b.udiv(i64(group), fixed)


def tried_sorts(space: Space, symmetric: Sequence[str]) -> set[str]:
    """The sorts whose every permutation has to be tried: those that are values, or somebody's second key."""
    fields = space.protocol.fields.values()
    values = {s.of.name if isinstance(s, MaybeSort) else s.name for s in (f.sort for f in fields)}
    second = {f.keys[1].name for f in fields if len(f.keys) == 2 and all(isinstance(k, IndexSort) for k in f.keys)}
    return {s for s in symmetric if s in values | second}


def symmetric_sorts(space: Space) -> tuple[str, ...]:
    """The index sorts whose elements the protocol cannot tell apart, as far as they are worth exchanging.

    Trying every permutation of a large sort would cost more than it saves: such a sort is left out, and not reported as
    symmetric.
    """
    alike = [
        s.name
        for s in space.protocol.sorts
        if isinstance(s, IndexSort) and s.name not in space.protocol.asymmetric and space.scope.sizes[s.name] > 1
    ]
    tried, images, chosen = tried_sorts(space, alike), 1, []
    for sort in sorted(alike, key=lambda s: space.scope.sizes[s]):
        more = math.factorial(space.scope.sizes[sort]) if sort in tried else 1
        if images * more <= MOST_IMAGES:
            images *= more
            chosen.append(sort)
    return tuple(s for s in alike if s in chosen)


def _network(count: int) -> list[tuple[int, int]]:
    """Pairs to compare and exchange that sort any sequence: Batcher's odd-even merge sort."""
    pairs: list[tuple[int, int]] = []
    size = 1
    while size < count:
        gap = size
        while gap >= 1:
            for start in range(gap % size, count - gap, 2 * gap):
                pairs += [
                    (i, i + gap)
                    for i in range(start, min(start + gap, count - gap))
                    if i // (2 * size) == (i + gap) // (2 * size)
                ]
            gap //= 2
        size *= 2
    return pairs
