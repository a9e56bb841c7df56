"""Where the cells of a state lie in one packed integer.

Cells with the same element of an index sort among their keys lie side by side, in that element's *column*, and the
columns of a sort follow one another. Exchanging two elements then exchanges two runs of bits.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from model_check.evaluate import Space, State
from spec.lang.nodes import Field, IndexSort


@dataclass(frozen=True, slots=True)
class Place:
    """A field's cells: the first one's bit, bits from one key to the next, and bits of a cell (0: only one value)."""

    base: int
    strides: tuple[int, ...]
    width: int

    def shift(self, keys: tuple[int, ...]) -> int:
        """The lowest bit of one cell."""
        return self.base + sum(key * stride for key, stride in zip(keys, self.strides, strict=True))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one index sort: first bit, bits of a column, how many."""

    base: int
    width: int
    count: int


class Layout:
    """The packed form of the states of a space, `bits` wide, in `words` words of 64 bits.

    The top bit of the last word is free, so that something can be told from every state.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.places: dict[str, Place] = {}
        self.columns: dict[str, Columns] = {}
        fields = space.protocol.fields.values()
        owner = {f.name: next((k for k, key in enumerate(f.keys) if isinstance(key, IndexSort)), None) for f in fields}
        position = 0
        for field in fields:
            if owner[field.name] is None:
                position = self._put(field, position, None)
        sorts = dict.fromkeys(k.name for f in fields for k in f.keys if isinstance(k, IndexSort))
        for sort in sorts:
            base = position
            mine = [f for f in fields if (k := owner[f.name]) is not None and f.keys[k].name == sort]
            for field in mine:
                position = self._put(field, position, owner[field.name])
            width = position - base
            if mine:
                key = mine[0].keys[owner[mine[0].name] or 0]
                count = space.scope.cardinality(key)
                self.columns[sort] = Columns(base, width, count)
                for field in mine:
                    place, k = self.places[field.name], owner[field.name]
                    strides = tuple(width if i == k else stride for i, stride in enumerate(place.strides))
                    self.places[field.name] = Place(place.base, strides, place.width)
                position = base + width * count
        self.bits = position
        # A power of two, since LLVM lays wider integers out so.
        self.words = 1 << (position // 64).bit_length()

    def _put(self, field: Field, position: int, column: int | None) -> int:
        width = (self.space.scope.cardinality(field.sort) - 1).bit_length()
        shape = self.space.shapes[field.name]
        strides, step = [0] * len(shape), width
        for axis in reversed(range(len(shape))):
            if axis != column:
                strides[axis] = step
                step *= shape[axis]
        self.places[field.name] = Place(position, tuple(strides), width)
        return position + step

    def pack(self, state: State) -> int:
        """A state as one integer."""
        packed, cells = 0, iter(state)
        for name, shape in self.space.shapes.items():
            place = self.places[name]
            for keys in itertools.product(*map(range, shape)):
                packed |= next(cells) << place.shift(keys)
        return packed

    def unpack(self, packed: int) -> State:
        """The state of an integer."""
        return tuple(
            packed >> self.places[name].shift(keys) & (1 << self.places[name].width) - 1
            for name, shape in self.space.shapes.items()
            for keys in itertools.product(*map(range, shape))
        )
