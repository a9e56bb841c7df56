"""The explored graph where states are on disk: which states can still reach others, without faults.

As in `model_check.graph`, with another trade: a link of the graph is 12 bytes on disk, a state 2 bytes in memory. All
states in ascending order are one run, and a state is named by its position there. To find where steps lead, as many
states as fit are in memory at a time, and where among them a step leads is found by bisection. Who can reach a target
is found by passes over all links, until one marks nothing new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from model_check.graph import allowed
from model_check.runs import Run
from model_check.search import Marks, MemoryShort
from model_check.spilling import Spilling
from spec.lang.protocol import Recovery

LINK = 12
"""Bytes of a link."""
BUFFER = 4 << 20
"""The most bytes of links that a worker collects, or reads, at once."""


class Links:
    """The steps of a finished search on disk that at least one of the recoveries may take.

    `tick` is called about ten times a second, and may call the search's `stop`. What is answered then means nothing.

    Raises:
        MemoryShort: there is no memory for the marks.
        DiskShort: the links cannot be written.
    """

    def __init__(
        self, search: Spilling, recoveries: Collection[Recovery], tick: Callable[[], None] | None = None
    ) -> None:
        self.search = search
        self._tick = tick
        self.runs = search.runs
        self.states = search.everything()
        self.size = self.states.rows
        room = search.room_beside(2 * self.size)
        if self.size >= 1 << 32 or room is None:
            raise MemoryShort(f"recoveries need {2 * self.size / 2**20:,.0f} MiB for marks of {self.size:,} states")
        self.room = room
        self.marks: Marks = np.zeros(self.size, np.uint8)
        self.cut: Marks = np.zeros(self.size, np.uint8)
        takers = np.zeros(len(search.space.instances), np.uint32)
        for number, recovery in enumerate(recoveries):
            takers |= allowed(search, recovery).astype(np.uint32) << np.uint32(number)
        self.files = list(self._linked(takers))

    def _linked(self, takers: npt.NDArray[np.uint32]) -> Iterator[Run]:
        """All links, by which part of the states they lead to and which worker found them."""
        search, words, workers = self.search, self.search.layout.words, self.search.workers
        share = len(self.room) // (8 * workers)
        sources = [self.room[n * share : (n + 1) * share] for n in range(workers)]
        part, base = self.room[workers * share :], 0
        bounds = [self.size * n // workers for n in range(workers + 1)]
        for rows in self.runs.read(self.states, part):
            jobs = [
                partial(
                    self.runs.write,
                    self.runs.name(),
                    self._leading_to(part[: rows * words], base, takers, sources[n], (bounds[n], bounds[n + 1])),
                    LINK,
                )
                for n in range(workers)
            ]
            yield from search.crew.run(jobs, tick=self._tick, stop=search.stop)
            base += rows

    def _leading_to(
        self,
        part: npt.NDArray[np.uint64],
        base: int,
        takers: npt.NDArray[np.uint32],
        room: npt.NDArray[np.uint64],
        range_: tuple[int, int],
    ) -> Iterator[npt.NDArray[np.uint32]]:
        """The links from a range of the states to those of a part."""
        first, last = range_
        search, words, instances = self.search, self.search.layout.words, len(self.search.space.instances)
        most = max(BUFFER // LINK // instances, 1)
        out = np.empty(3 * most * instances, np.uint32)
        for rows in self.runs.read(self.states, room, first, last):
            for at in range(0, rows, most):
                count = min(most, rows - at)
                found = search.machine.link(
                    room[at * words :].ctypes.data,
                    count,
                    first + at,
                    part.ctypes.data,
                    len(part) // words,
                    base,
                    takers.ctypes.data,
                    self.cut.ctypes.data,
                    out.ctypes.data,
                    search.switch,
                )
                yield out[: 3 * found]
                if search.stopped:
                    return
            first += rows

    def lost(self, number: int, *, past_cuts: bool) -> tuple[int, int] | None:
        """A source of a recovery that cannot reach a target: the least of the shallowest, packed, and its depth.

        With `past_cuts`, a state with a step that the scope's bound cut counts as a target: who knows where it leads.
        """
        search = self.search
        for first, rows, answers in self._asked(number):
            self.marks[first : first + rows] = answers >> 1
        if past_cuts:
            self.marks |= self.cut
        passes = [partial(self._swept, file, number) for file in self.files]
        while sum(search.crew.run(passes, tick=self._tick, stop=search.stop)) and not search.stopped:
            continue
        lost = self.runs.write(self.runs.name(), self._without_mark(number))
        if not lost.rows:
            self.runs.remove([lost])
            return None
        return search.shallowest_of(lost)

    def _asked(self, number: int) -> Iterator[tuple[int, int, Marks]]:
        """What a recovery says of the states in memory: where they begin, how many they are, what it says of each."""
        answers, first = np.zeros(len(self.room) // self.search.layout.words, np.uint8), 0
        for rows in self.runs.read(self.states, self.room):
            self.search.machine.ask(self.room.ctypes.data, rows, number, answers.ctypes.data)
            yield first, rows, answers[:rows]
            first += rows

    def _without_mark(self, number: int) -> Iterator[npt.NDArray[np.uint64]]:
        words = self.search.layout.words
        for first, rows, answers in self._asked(number):
            wanted = (answers & 1).astype(bool) & (self.marks[first : first + rows] == 0)
            yield self.room[: rows * words].reshape(rows, words)[wanted].reshape(-1)

    def _swept(self, file: Run, number: int) -> int:
        """One pass over some links; how many states it marked."""
        room, marked = np.empty(BUFFER // LINK * 3, np.uint32), 0
        for count in self.runs.read(file, room, row=LINK):
            marked += self.search.machine.sweep(room.ctypes.data, count, 1 << number, self.marks.ctypes.data)
            if self.search.stopped:
                break
        return marked


__all__ = ["Links"]
