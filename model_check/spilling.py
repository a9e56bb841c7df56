"""A search whose states go to disk when memory is short, level by level as before.

On disk, every level is a run, and so is what has been found up to some level (`known`): a few runs of very different
sizes, which together hold every state. To go one level deeper, the last level is read through the arena's first blocks
and expanded by the same compiled code as in memory. What it leads to collects in the rest of the arena, where the table
keeps it distinct; whenever that is full, it is written as sorted *candidates*. Merging all candidates, without what is
known, gives the next level: duplicates are detected late, but all of them are. So the levels are those of the search in
memory, and with them every count, verdict and story.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from model_check.checkpoint import Checkpoint, Identity, Kept
from model_check.compiled import described, source_digest
from model_check.evaluate import Space
from model_check.record import BLOCK, Claims, Ctx, Stat
from model_check.runs import Run, Runs
from model_check.search import MemoryShort, Search, Words

SOURCES = 8
"""One in so many blocks of the arena holds states to expand, the others what they lead to."""
LEAST = 4
"""The fewest blocks for each worker to collect candidates in."""


class Spilling(Search):
    """Breadth-first search of a space, on disk from where memory is short.

    Args:
        space: the protocol in its scope.
        claims: what to judge.
        symmetric: index sorts whose elements are interchangeable, explored up to exchange.
        workers: threads.
        memory: bytes the search may grow by.
        checkpoint: where every finished level is kept, and where to go on from. With one, states are on disk from the
            first level on. Without, they are in a folder for temporary files, until `close`.

    Raises:
        MemoryShort: there is not even memory for buffers.
        Unfit: the checkpoint is not one of this search.
    """

    def __init__(
        self,
        space: Space,
        claims: Claims,
        symmetric: Sequence[str],
        workers: int = 2,
        memory: int | None = None,
        *,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(space, claims, symmetric, workers, memory)
        self._checkpoint = checkpoint
        self._folder: Path | None = None
        self._runs: Runs | None = None
        self._level_runs: list[Run] = []
        self._known: list[Run] = []
        self._wanted: set[Run] = set()
        if checkpoint is not None:
            self._identity = _identity(space, claims, self.symmetric)
            kept = checkpoint.read(self._identity, self.layout.words)
            self._go_to_disk(checkpoint.folder, kept)

    @property
    def on_disk(self) -> bool:
        """States have gone to disk."""
        return self._runs is not None

    @property
    def disk(self) -> int:
        """The most bytes that states took on disk at once."""
        return self._runs.most if self._runs else 0

    def level(self, tick: Callable[[], None] | None = None) -> int:
        """Explore one level deeper. Answers how many new states it has; of a level that was stopped, none are kept.

        Raises:
            MemoryShort: there is not even memory for buffers.
            DiskShort: states cannot be written.
        """
        if self._runs is None:
            try:
                return super().level(tick)
            except MemoryShort:
                self._folder = Path(tempfile.mkdtemp(prefix="reef-ref-"))
                self._go_to_disk(self._folder, None)
        return self._deeper(tick)

    def close(self) -> None:
        """Let the workers go, and what is on disk but for the checkpoint."""
        super().close()
        if self._runs is not None:
            self._runs.keep_only(self._wanted)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    # To disk

    def _go_to_disk(self, folder: Path, kept: Kept | None) -> None:
        usable = int(self._ctx[Ctx.LAST_BLOCK])
        self._sources = max(usable // SOURCES, 1)
        if usable - self._sources < LEAST * self.workers:
            raise MemoryShort(f"{self._memory / 2**20:.1f} MiB are not even enough for buffers")
        serial = kept.serial if kept else 0
        durable = self._checkpoint is not None
        self._runs = Runs(folder, self.layout.words, self.machine, durable=durable, serial=serial)
        if kept is not None:
            self._take_up(kept)
            return
        names = [self.runs.name() for _ in self.levels]
        jobs = [partial(self._write, *blocks, name) for blocks, name in zip(self.levels, names, strict=True)]
        self._level_runs = self.crew.run(jobs)
        self._keep(self._level_runs)

    def _take_up(self, kept: Kept) -> None:
        """Be where an earlier search was."""
        self._level_runs, self._known = list(kept.levels), list(kept.known)
        self._wanted = {*kept.levels, *kept.known}
        self.counts = [run.rows for run in kept.levels]
        self._stats[:, : self.shape.violation(3)] = 0
        self._stats[0, : self.shape.violation(0)] = kept.counters
        self._stats[:, Stat.RECENT] = [row.ctypes.data for row in self._recent]
        for kind, prop, instance, packed in kept.found:
            record = self._stats[0, self.shape.violation(kind) :]
            record[:3] = 1, prop, instance
            record[3 : 3 + self.layout.words] = self._split(packed)

    def _write(self, first: int, last: int, name: str) -> Run:
        """Sort the states of some blocks where they are, and write them as a run."""
        words = self.layout.words
        for block in first + np.flatnonzero(self._fills[first:last] < BLOCK):
            self._arena[(block * BLOCK + int(self._fills[block])) * words : (block + 1) * BLOCK * words] = (1 << 64) - 1
        rows = self._arena[first * BLOCK * words : last * BLOCK * words]
        self.machine.sort(rows.ctypes.data, len(rows) // words)
        return self.runs.write(name, [rows[: int(self._fills[first:last].sum()) * words]])

    # One level

    def _deeper(self, tick: Callable[[], None] | None) -> int:
        before = self._stats.copy()
        try:
            candidates = self._candidates(tick)
            if self.stopped:
                self._forget(before)
                self.runs.remove(candidates)
                return 0
            goals = np.zeros(max(self.shape.goals, 1), np.uint64)

            def judge(rows: Words) -> None:
                if tick is not None:
                    tick()
                self.machine.tally(rows.ctypes.data, len(rows) // self.layout.words, goals.ctypes.data)

            level = self.runs.merge(candidates, self._known, self._arena, judge)
        except BaseException:
            self._forget(before)
            raise
        # Candidates were counted as found, though some may have been known.
        self._stats[:, Stat.STATES] = before[:, Stat.STATES]
        self._stats[0, Stat.STATES] += np.uint64(level.rows)
        places = slice(Stat.GOALS, Stat.GOALS + self.shape.goals)
        self._stats[:, places] = before[:, places]
        self._stats[0, places] += goals[: self.shape.goals]
        self.runs.remove(candidates)
        self._level_runs.append(level)
        self.counts.append(level.rows)
        self._keep([level])
        return level.rows

    def _candidates(self, tick: Callable[[], None] | None) -> list[Run]:
        """All that one step from the last level leads to, a state perhaps in several runs."""
        runs: list[Run] = []
        self._make_room()
        for blocks in self._loaded(self._level_runs[-1]):
            self._take(0, blocks)
            workers = self._workers_for(0, blocks)
            while not self._expand(workers, tick, self._sources):
                runs += self._collected()
            if self.stopped:
                return runs
        return runs + self._collected()

    def _make_room(self) -> None:
        """Have no candidates in memory. The table begins as large as the last ones would have needed it."""
        self._new_table(int(self._ctx[Ctx.FOUND]))
        self._ctx[Ctx.FOUND] = 0
        self._fills[self._sources :] = 0
        self._open(self._sources, self.workers)

    def _collected(self) -> list[Run]:
        """The candidates in memory as runs, one from each worker."""
        shares = self.shares(int(self._ctx[Ctx.NEXT_BLOCK]), self._sources)
        names = [self.runs.name() for _ in shares]
        runs = self.crew.run([partial(self._write, *blocks, name) for blocks, name in zip(shares, names, strict=True)])
        self._make_room()
        return runs

    def _loaded(self, run: Run) -> Iterator[int]:
        """Read a run into the arena's first blocks, as often as it takes; answers how many blocks are in use."""
        room = self._arena[: self._sources * BLOCK * self.layout.words]
        for rows in self.runs.read(run, room):
            blocks = -(-rows // BLOCK)
            self._fills[:blocks] = BLOCK
            self._fills[blocks - 1] = rows - (blocks - 1) * BLOCK
            yield blocks

    def _keep(self, levels: Sequence[Run]) -> None:
        """Merge finished levels into what is known, so that few runs hold it all, and keep a checkpoint."""
        known, passing = list(self._known), list[Run]()
        for level in levels:
            known.append(level)
            while len(known) > 1 and known[-2].rows < 2 * known[-1].rows:
                pair = [known.pop(), known.pop()]
                known.append(self.runs.merge(pair, (), self._arena))
                passing += pair
        self._remember(known, passing)

    def _remember(self, known: list[Run], passing: Sequence[Run] = ()) -> None:
        """Have other runs hold what is known, keep a checkpoint, and delete what no longer has a use."""
        wanted = {*known, *self._level_runs}
        useless = {*self._known, *passing} - wanted
        # Until the manifest is replaced, and if an interrupt comes in between, either set may be the one it names.
        self._wanted |= wanted
        self._known = known
        if self._checkpoint is not None:
            counters = self._stats[:, : self.shape.violation(0)].sum(axis=0)
            counters[[Stat.BLOCK, Stat.USED, Stat.RECENT]] = 0
            found = tuple((f.kind, f.prop, f.instance, f.packed) for f in self.found())
            kept = Kept(tuple(map(int, counters)), found, tuple(self._level_runs), tuple(self._known), self.runs.serial)
            self._checkpoint.keep(self._identity, kept)
        self._wanted = wanted
        self.runs.remove(useless)

    # What was found

    @property
    def runs(self) -> Runs:
        """The runs of a search on disk."""
        assert self._runs is not None, "states are in memory"
        return self._runs

    def everything(self) -> Run:
        """All states found, as one run."""
        if len(self._known) > 1:
            self._remember([self.runs.merge(self._known, (), self._arena)])
        return self._known[0]

    def room_beside(self, size: int) -> Words | None:
        """The memory of a finished search, where so many bytes may be had beside it; none where that is too much."""
        self._new_table(0)
        return self._arena if self._arena.nbytes + size <= self._memory else None

    def shallowest_of(self, chosen: Run) -> tuple[int, int]:
        """The least of some states found among the shallowest ones, packed, and its depth. The run is deleted."""
        for depth, level in enumerate(self._level_runs):
            others = self.runs.merge([chosen], [level], self._arena)
            here = self.runs.merge([chosen], [others], self._arena)
            self.runs.remove([others])
            if here.rows:
                next(self.runs.read(here, self._arena))
                self.runs.remove([chosen, here])
                return self._join(self._arena), depth
            self.runs.remove([here])
        raise AssertionError("every state is in a level")

    def _parents(self, packed: int, level: int) -> list[int]:
        if self._runs is None:
            return super()._parents(packed, level)
        return [p for blocks in self._loaded(self._level_runs[level]) for p in self._parent(packed, 0, blocks)]

    def packed_states(self, level: int | None = None) -> list[int]:
        """The states of one level, or of all."""
        if self._runs is None:
            return super().packed_states(level)
        runs = self._level_runs if level is None else [self._level_runs[level]]
        return [p for run in runs for blocks in self._loaded(run) for p in self._packed(0, blocks)]

    def orbit_total(self) -> int:
        """How many states the representatives stand for; 0 where that is too many to count in 64 bits."""
        if self._runs is None:
            return super().orbit_total()
        chunks = (blocks for run in self._level_runs for blocks in self._loaded(run))
        return sum(self.machine.orbits(self.context, 0, blocks) for blocks in chunks)


def _identity(space: Space, claims: Claims, symmetric: tuple[str, ...]) -> Identity:
    sizes = ",".join(f"{name}={size}" for name, size in sorted(space.scope.sizes.items()))
    faults = "" if space.scope.faults is None else f",faults={space.scope.faults}"

    def digest(value: object) -> str:
        return hashlib.sha256(repr(value).encode()).hexdigest()

    return Identity(
        source=source_digest(),
        protocol=space.protocol.name,
        scope=sizes + faults,
        symmetric=symmetric,
        claims=digest(claims),
        world=digest(described(space)),
    )


__all__ = ["Spilling"]
