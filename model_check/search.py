"""One search in memory: the table, the arena and the workers that fill them level by level."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model_check.compiled import compiled
from model_check.crew import Crew
from model_check.evaluate import Instance, Space, State
from model_check.layout import Layout
from model_check.record import BATCH, BLOCK, LINE, RECENT, UNIT, Claims, Ctx, Shape, Stat

Words = npt.NDArray[np.uint64]
Marks = npt.NDArray[np.uint8]
LOAD = 0.7
"""How full the table may get."""


class MemoryShort(MemoryError):  # noqa: N818 - read as a word
    """The world does not fit in the memory that may be used."""


@dataclass(frozen=True)
class Found:
    """The least violation of one kind at the depth where the search stopped."""

    kind: int
    prop: int
    instance: int
    packed: int


def available_memory() -> int:
    """Bytes that could be used without swapping: free ones, and on Linux also those that only cache files."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Search:
    """Breadth-first search of a space. Call `level` until it answers 0; look at what was found between levels.

    Args:
        space: the protocol in its scope.
        claims: what to judge.
        symmetric: index sorts whose elements are interchangeable, explored up to exchange.
        workers: threads.
        memory: bytes the search may grow by.
        effort: how hard LLVM tries to make the code fast.
        switches: make every part of an action removable, by its number in `switch`.
        beyond: have what `Graph`, `Spilling` and their like need as well; a search alone compiles in half the time.
    """

    def __init__(
        self,
        space: Space,
        claims: Claims,
        symmetric: Sequence[str],
        workers: int = 2,
        memory: int | None = None,
        *,
        effort: int = 2,
        switches: bool = False,
        beyond: bool = True,
    ) -> None:
        self.space = space
        self.layout = Layout(space)
        self.symmetric = tuple(symmetric)
        self.workers = workers
        self.crew = Crew(workers)
        self.shape = Shape.of(self.layout, claims)
        self.machine = compiled(self.layout, claims, self.symmetric, effort, switches=switches, beyond=beyond)
        self.switch = 0
        self._memory = int(available_memory() * 0.7) if memory is None else memory
        self.begin()

    def begin(self) -> None:
        """Forget everything found, and start again from the initial states."""
        words = self.layout.words
        # After a worker has seen that room is short, it may still finish the states it holds.
        slack = self.workers * ((UNIT + 1) * (len(self.space.instances) + 1) + BATCH)
        first = sorted({self.canonical(self.layout.pack(state)) for state in self.space.initial_states()})
        if not first:
            raise ValueError(f"{self.space.protocol.name}: no initial state in scope {self.space.scope.name}")
        self._least = 1 << 16
        while self._least * (0.95 - LOAD) < slack:
            self._least *= 2
        # Bytes of a state: itself in the arena, and a slot of the table at worst just after it has doubled.
        self._most = self._memory // (8 * words + int(16 / LOAD))
        spare = slack // BLOCK + self.workers + 1
        blocks = self._most // BLOCK + spare
        try:
            self._arena: Words = np.empty(blocks * BLOCK * words, np.uint64)
        except MemoryError:
            raise MemoryShort(f"no address space for {blocks * BLOCK:,} states") from None
        self._fills: Words = np.zeros(blocks, np.uint64)
        self._stats: Words = np.zeros((self.workers, self.shape.size), np.uint64)
        # No state is all ones.
        self._recent: Words = np.full((self.workers, RECENT * words), (1 << 64) - 1, np.uint64)
        self._stats[:, Stat.RECENT] = [row.ctypes.data for row in self._recent]
        self._ctx: Words = np.zeros(16, np.uint64)
        self._ctx[Ctx.ARENA] = self._arena.ctypes.data
        self._ctx[Ctx.FILLS] = self._fills.ctypes.data
        self._ctx[Ctx.STATS] = self._stats.ctypes.data
        self._ctx[Ctx.STRIDE] = self.shape.size
        self._ctx[Ctx.LAST_BLOCK] = blocks - spare
        self._new_table(len(first))
        self.levels: list[tuple[int, int]] = []
        self.counts: list[int] = []
        self._first_level(first)

    def _new_table(self, states: int) -> None:
        """An empty table for so many states, aligned to cache lines.

        The old one is let go first, so that both are never there at once.
        """
        capacity = self._least
        while capacity * LOAD < states:
            capacity *= 2
        self._table: Words | None = None
        raw = np.zeros(capacity + LINE, np.uint64)
        first = -raw.ctypes.data // 8 % LINE
        self._table = raw[first : first + capacity]
        self._ctx[Ctx.TABLE] = self._table.ctypes.data
        self._ctx[Ctx.MASK] = capacity - 1
        self._ctx[Ctx.LIMIT] = int(capacity * LOAD)

    def _first_level(self, states: list[int]) -> None:
        """Put the initial states in, and judge them."""
        blocks = -(-len(states) // BLOCK)
        if blocks > int(self._ctx[Ctx.LAST_BLOCK]):
            raise self._short()
        self._ctx[Ctx.FOUND] = len(states)
        for position, state in enumerate(states):
            self._arena[position * self.layout.words : (position + 1) * self.layout.words] = self._split(state)
            self._fills[position // BLOCK] += 1
        self._ctx[Ctx.NEXT_BLOCK] = blocks
        self.machine.rehash(self._ctx.ctypes.data, 0, blocks)
        self._stats[0, Stat.STATES] = len(states)
        held = np.zeros(1, np.uint64)
        for state in states:
            words = self._split(state)
            bad = self.machine.judge(words.ctypes.data, held.ctypes.data) & ~(1 << 63)
            for goal in range(self.shape.goals):
                self._stats[0, Stat.GOALS + goal] += int(held[0]) >> goal & 1
            if bad:
                prop = (bad & -bad).bit_length() - 1
                record = self._stats[0, self.shape.violation(0) :]
                if not record[0] or int(record[1]) > prop:
                    record[:3] = 1, prop, 0
                    record[3 : 3 + self.layout.words] = words
        self.levels = [(0, blocks)]
        self.counts = [len(states)]

    def level(self, tick: Callable[[], None] | None = None) -> int:
        """Explore one level deeper. Answers how many new states it has.

        `tick` is called about ten times a second, and may call `stop`.

        Raises:
            MemoryShort: the states no longer fit; what was found before this level still stands.
        """
        before, blocks = self._stats.copy(), self.levels[-1]
        start = int(self._ctx[Ctx.NEXT_BLOCK])
        workers = self._workers_for(*blocks)
        self._open(start, workers)
        self._take(*blocks)
        if not self._expand(workers, tick):
            short = self._short()
            self._forget(before)
            raise short
        self.levels.append((start, int(self._ctx[Ctx.NEXT_BLOCK])))
        self.counts.append(self.states - int(before[:, Stat.STATES].sum()))
        return self.counts[-1]

    def _workers_for(self, first: int, last: int) -> int:
        """Few states are not worth sharing out."""
        return 1 if int(self._fills[first:last].sum()) <= UNIT else self.workers

    def _open(self, start: int, workers: int) -> None:
        """Give each worker a block to fill, from a block on."""
        for worker in range(workers):
            self._stats[worker, Stat.BLOCK] = start + worker
            self._stats[worker, Stat.USED] = 0
        self._ctx[Ctx.NEXT_BLOCK] = start + workers

    def _take(self, first: int, last: int) -> None:
        """Have the states of some blocks expanded next."""
        self._ctx[Ctx.FIRST], self._ctx[Ctx.LAST], self._ctx[Ctx.NEXT_UNIT] = first, last, 0

    def _expand(self, workers: int, tick: Callable[[], None] | None, start: int = 0) -> bool:
        """Expand what was taken, or what is left of it. Answers whether there was room for all that it leads to.

        The table holds the states of the blocks from `start` on.
        """
        ctx = self._ctx
        while True:
            ctx[Ctx.GROW] = ctx[Ctx.FULL] = 0
            self._run(workers, tick)
            if ctx[Ctx.STOP]:
                return True
            if ctx[Ctx.FULL]:
                return False
            if not ctx[Ctx.GROW]:
                return True
            self._grow(start)

    def _forget(self, before: Words) -> None:
        """Forget what was found since the workers' records were as they are given."""
        self._stats[:] = before
        self._recent.fill((1 << 64) - 1)

    def _run(self, workers: int, tick: Callable[[], None] | None) -> None:
        if workers == 1 and (self.workers > 1 or tick is None):
            self.machine.expand(self.context, 0, self.switch)
            return
        expand = self.machine.expand
        jobs = [partial(expand, self.context, worker, self.switch) for worker in range(workers)]
        self.crew.run(jobs, tick=tick, stop=self.stop)

    def _short(self) -> MemoryShort:
        return MemoryShort(f"{self.states:,} states found, and {self._most:,} are about what fits in memory")

    def _grow(self, start: int) -> None:
        used = int(self._ctx[Ctx.NEXT_BLOCK])
        self._new_table(int(2 * LOAD * self.capacity))
        self.crew.run([partial(self.machine.rehash, self.context, a, b) for a, b in self.shares(used, start)])

    def shares(self, last: int, first: int = 0) -> list[tuple[int, int]]:
        """Blocks from the first up to but not with the last, shared out among the workers."""
        parts = [first + (last - first) * n // self.workers for n in range(self.workers + 1)]
        return list(itertools.pairwise(parts))

    def stop(self) -> None:
        """Ask the workers to end after the states they have in hand."""
        self._ctx[Ctx.STOP] = 1

    @property
    def stopped(self) -> bool:
        """`stop` was called."""
        return bool(self._ctx[Ctx.STOP])

    def close(self) -> None:
        """Let the workers go."""
        self.crew.close()

    # What was found

    @property
    def context(self) -> int:
        """Where the compiled functions find the search."""
        return int(self._ctx.ctypes.data)

    @property
    def capacity(self) -> int:
        """Slots of the table."""
        assert self._table is not None
        return len(self._table)

    @property
    def states(self) -> int:
        """Distinct states (representatives, under symmetry) so far."""
        return int(self._stats[:, Stat.STATES].sum())

    @property
    def steps(self) -> int:
        """Steps taken so far, those to known states included."""
        return int(self._stats[:, Stat.STEPS].sum())

    @property
    def goals(self) -> list[int]:
        """In how many states each goal held."""
        return [int(n) for n in self._stats[:, Stat.GOALS : Stat.GOALS + self.shape.goals].sum(axis=0)]

    @property
    def coverage(self) -> list[int]:
        """How often each instance was taken."""
        first = self.shape.coverage
        return [int(n) for n in self._stats[:, first : first + self.shape.instances].sum(axis=0)]

    @property
    def cuts(self) -> dict[str, int]:
        """How many steps the bound of each sort cut."""
        counts = self._stats[:, self.shape.cut : self.shape.cut + len(self.shape.cuts)].sum(axis=0)
        return {name: int(n) for name, n in zip(self.shape.cuts, counts, strict=True) if n}

    def found(self) -> list[Found]:
        """The least violation of each kind, if any."""
        result = []
        for kind in range(3):
            first = self.shape.violation(kind)
            records = [
                (int(r[1]), self._join(r[3:]), int(r[2]))
                for r in self._stats[:, first : first + 3 + self.layout.words]
                if r[0]
            ]
            if records:
                prop, packed, instance = min(records)
                result.append(Found(kind, prop, instance, packed))
        return result

    # Single states

    def _split(self, packed: int) -> Words:
        return np.array([packed >> 64 * i & (1 << 64) - 1 for i in range(self.layout.words)], np.uint64)

    def _join(self, words: Words) -> int:
        return sum(int(w) << 64 * i for i, w in enumerate(words[: self.layout.words]))

    def canonical(self, packed: int) -> int:
        """The representative of a state."""
        if not self.symmetric:
            return packed
        words = self._split(packed)
        self.machine.canonical(words.ctypes.data)
        return self._join(words)

    def successors(self, packed: int) -> list[tuple[Instance, int]]:
        """Every step from a state, by the compiled code."""
        n, words = len(self.space.instances) + 1, self.layout.words
        out, numbers = np.zeros(n * words, np.uint64), np.zeros(n, np.uint16)
        idle = np.zeros(self.shape.size, np.uint64)
        source = self._split(packed)
        count = self.machine.generate(
            source.ctypes.data, out.ctypes.data, numbers.ctypes.data, idle.ctypes.data, idle.ctypes.data, self.switch
        ) & ((1 << 32) - 1)
        return [(self.space.instances[numbers[i]], self._join(out[i * words : (i + 1) * words])) for i in range(count)]

    def packed_states(self, level: int | None = None) -> list[int]:
        """The states of one level, or of all."""
        return self._packed(*((0, self.levels[-1][1]) if level is None else self.levels[level]))

    def _packed(self, first: int, last: int) -> list[int]:
        words = self.layout.words
        places = (
            at for block in range(first, last) for at in range(block * BLOCK, block * BLOCK + int(self._fills[block]))
        )
        return [self._join(self._arena[at * words : (at + 1) * words]) for at in places]

    def packed_at(self, position: int) -> int:
        """The state at a position of the arena."""
        words = self.layout.words
        return self._join(self._arena[position * words : (position + 1) * words])

    def sorted_states(self) -> Words:
        """Every state found, in ascending order: rows of words, the lowest first."""
        words, last = self.layout.words, self.levels[-1][1]
        rows = self._arena[: last * BLOCK * words].reshape(last, BLOCK, words)
        found = rows[np.arange(BLOCK)[None, :] < self._fills[:last, None]]
        return found[np.lexsort(found.T)]

    def path(self, packed: int, depth: int) -> list[int]:
        """The least path of representatives from an initial state to a state of a level."""
        path = [packed]
        for level in reversed(range(depth)):
            parents = self._parents(path[-1], level)
            assert parents, "every state of a level has a parent in the one before"
            path.append(min(parents))
        return path[::-1]

    def _parents(self, packed: int, level: int) -> list[int]:
        """States of a level with a step to a state; the least is among them."""
        return self._parent(packed, *self.levels[level])

    def _parent(self, packed: int, first: int, last: int) -> list[int]:
        """The least state of some blocks with a step to a state, if any has one."""
        target, best = self._split(packed), np.zeros(self.layout.words, np.uint64)
        found = self.machine.parent(self.context, target.ctypes.data, first, last, best.ctypes.data, self.switch)
        return [self._join(best)] if found else []

    def run_of(self, path: list[int]) -> list[tuple[Instance | None, State]]:
        """A run, as `evaluate` takes it, whose states are represented by a path."""
        state = min(s for s in self.space.initial_states() if self.canonical(self.layout.pack(s)) == path[0])
        run: list[tuple[Instance | None, State]] = [(None, state)]
        for wanted in path[1:]:
            for instance, after in self.space.successors(state):
                if self.canonical(self.layout.pack(after)) == wanted:
                    run.append((instance, after))
                    state = after
                    break
            else:
                raise AssertionError("the compiled search took a step that evaluate does not know")
        return run

    def shallowest(self, marks: Marks, recovery: int) -> tuple[int, int] | None:
        """The least source of a recovery without a mark among the shallowest ones, and its depth."""
        best = np.zeros(self.layout.words, np.uint64)
        for depth, (first, last) in enumerate(self.levels):
            if self.machine.seed(self._ctx.ctypes.data, marks.ctypes.data, first, last, recovery, 1, best.ctypes.data):
                return self._join(best), depth
        return None

    def orbit_total(self) -> int:
        """How many states the representatives stand for; 0 where that is too many to count in 64 bits."""
        return self.machine.orbits(self._ctx.ctypes.data, 0, self.levels[-1][1])


__all__ = ["Claims", "Found", "MemoryShort", "Search", "Shape"]
