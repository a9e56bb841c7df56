"""Events in the order that they prove: each source's own numbers, and otherwise the order in which they came.

Clocks say nothing here. What one source tells is numbered without gaps; where something is missing, what came after it
waits, from every source, so that nothing is read before what it may rest on. After so many events, or so long, it is
taken for lost, and the gap is the reader's to know.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Lost", "Numbered", "Sequencer"]

T = TypeVar("T")
SOURCES = 1024
"""Sources whose last number is kept; the one that was silent longest is forgotten first."""


@dataclass(frozen=True, slots=True)
class Numbered(Generic[T]):
    """Something that a source told; `restarts` where number 1 begins a new count."""

    source: str
    number: int
    item: T


@dataclass(frozen=True, slots=True)
class Lost:
    """Numbers `first` to `last` of a source never came."""

    source: str
    first: int
    last: int


class Sequencer(Generic[T]):
    """Puts what comes in order, and says what is lost.

    Args:
        window: how many items may wait for one that is missing.
    """

    def __init__(self, window: int = 256) -> None:
        self.repeated = 0
        """Items that came again."""
        self.late = 0
        """Items that came after a later one of their source, in time."""
        self.lost = 0
        """Items that never came, or too late."""
        self._window = window
        self._last: OrderedDict[str, int] = OrderedDict()
        self._waiting: list[Numbered[T]] = []

    @property
    def waiting(self) -> int:
        """How many items wait for a missing one."""
        return len(self._waiting)

    def put(self, item: Numbered[T]) -> Iterator[Numbered[T] | Lost]:
        """Take one item; what may be read now comes out, in order.

        Number 1 begins a new count where the source has had it before: the process is another one.
        """
        if item.number == 1 and self._last.get(item.source, 0) > 0:
            # What the old process told and nobody saw cannot come any more.
            yield from self.give_up()
            self._last.pop(item.source, None)
        if self._is_repeated(item):
            self.repeated += 1
            return
        self._place(item)
        yield from self._ready()
        if len(self._waiting) > self._window:
            yield from self.give_up()

    def reached(self, source: str, number: int) -> Iterator[Numbered[T] | Lost]:
        """A source says that `number` was the last that it sent: what is missing up to there, is lost."""
        if number > self._last.get(source, 0):
            yield from self.give_up()
            last = self._last.get(source, 0)
            if number > last:
                yield self._lose(source, last + 1, number)

    def give_up(self) -> Iterator[Numbered[T] | Lost]:
        """Wait no longer for anything: take what is missing for lost."""
        while self._waiting:
            item = self._waiting.pop(0)
            last = self._last.get(item.source, 0)
            if item.number > last + 1:
                yield self._lose(item.source, last + 1, item.number - 1)
            self._pass(item)
            yield item
            yield from self._ready()

    def _is_repeated(self, item: Numbered[T]) -> bool:
        if item.number <= self._last.get(item.source, 0):
            return True
        return any(w.source == item.source and w.number == item.number for w in self._waiting)

    def _place(self, item: Numbered[T]) -> None:
        """Behind everything, but before what its source told after it."""
        for at, other in enumerate(self._waiting):
            if other.source == item.source and other.number > item.number:
                self.late += 1
                self._waiting.insert(at, item)
                return
        self._waiting.append(item)

    def _ready(self) -> Iterator[Numbered[T]]:
        while self._waiting and self._waiting[0].number == self._last.get(self._waiting[0].source, 0) + 1:
            item = self._waiting.pop(0)
            self._pass(item)
            yield item

    def _pass(self, item: Numbered[T]) -> None:
        self._last[item.source] = item.number
        self._last.move_to_end(item.source)
        if len(self._last) > SOURCES:
            self._last.popitem(last=False)

    def _lose(self, source: str, first: int, last: int) -> Lost:
        self.lost += last - first + 1
        self._last[source] = last
        return Lost(source, first, last)
