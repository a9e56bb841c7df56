"""Runs: files of distinct states in ascending order, each written once and then only read from its beginning.

A row of a run is a packed state, its words from the lowest on. Runs are merged with buffers of a fixed size, however
large they are.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from model_check.machine import Machine

Words = npt.NDArray[np.uint64]
FAN = 16
"""Runs of candidates that are merged at once."""
ROWS = 1 << 18
"""The most rows of a buffer: larger ones are no faster."""
SUFFIX = ".run"


class DiskShort(OSError):  # noqa: N818 - read as a word
    """States could not be written; the message is one line."""


@dataclass(frozen=True)
class Run:
    """A file of `rows` states; `check` is the CRC-32 of its bytes."""

    name: str
    rows: int
    check: int


class Runs:
    """The runs in a folder.

    Args:
        folder: where they lie.
        words: 64-bit words of a state.
        machine: the compiled search.
        durable: a run that was written outlives a failure of the machine.
        serial: the number of the next run.
    """

    def __init__(self, folder: Path, words: int, machine: Machine, *, durable: bool, serial: int = 0) -> None:
        self.folder = folder
        self.words = words
        self.serial = serial
        self.bytes = self.most = sum(file.stat().st_size for file in folder.glob(f"*{SUFFIX}"))
        self._counting = threading.Lock()
        self._machine = machine
        self._durable = durable

    def path(self, run: Run) -> Path:
        """Where a run lies."""
        return self.folder / run.name

    def name(self) -> str:
        """A name that no run has had."""
        self.serial += 1
        return f"{self.serial:06}{SUFFIX}"

    def write(self, name: str, parts: Iterable[npt.NDArray[Any]], row: int | None = None) -> Run:
        """Write states that come in ascending order, or rows of so many bytes.

        Raises:
            DiskShort: they cannot be written.
        """
        size = check = 0
        path = self.folder / name
        try:
            with FileIO(path, "w") as file:
                for part in parts:
                    left = _bytes(part)
                    check = zlib.crc32(left, check)
                    size += len(left)
                    while left:
                        left = left[file.write(left) or 0 :]
                if self._durable:
                    os.fsync(file.fileno())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise DiskShort(f"{self.folder}: states cannot be written: {error.strerror or error}") from error
        with self._counting:
            self.bytes += size
            self.most = max(self.most, self.bytes)
        return Run(name, size // (row or 8 * self.words), check)

    def remove(self, runs: Iterable[Run]) -> None:
        """Delete runs."""
        for run in runs:
            self.bytes -= self.path(run).stat().st_size
            self.path(run).unlink()

    def keep_only(self, runs: Collection[Run]) -> None:
        """Delete every run of the folder that is not among these."""
        names = {run.name for run in runs}
        for file in self.folder.glob(f"*{SUFFIX}"):
            if file.name not in names:
                file.unlink()

    def read(
        self, run: Run, room: npt.NDArray[Any], first: int = 0, last: int | None = None, row: int | None = None
    ) -> Iterator[int]:
        """Read a run, or some of its rows, through a buffer; answers how many rows are at the buffer's beginning."""
        size = row or 8 * self.words
        left = (run.rows if last is None else last) - first
        with FileIO(self.path(run)) as file:
            file.seek(first * size)
            while rows := _fill(file, _bytes(room)[: left * size]) // size:
                yield rows
                left -= rows

    def merge(
        self,
        candidates: Sequence[Run],
        known: Sequence[Run],
        room: Words,
        each: Callable[[Words], None] = lambda rows: None,
    ) -> Run:
        """What is in some of the candidates, and in none of the known runs, as a run. The candidates are left alone.

        Args:
            candidates: any number of runs.
            known: other runs.
            room: memory for the buffers.
            each: sees the rows before they are written.
        """
        made: list[Run] = []
        while len(candidates) > FAN:
            made.append(self.merge(candidates[:FAN], (), room))
            candidates = [*candidates[FAN:], made[-1]]

        def parts() -> Iterator[Words]:
            for part in self._sifted(candidates, known, room):
                each(part)
                yield part

        run = self.write(self.name(), parts())
        self.remove(made)
        return run

    def _sifted(self, candidates: Sequence[Run], known: Sequence[Run], room: Words) -> Iterator[Words]:
        streams = len(candidates) + len(known)
        rows = min(ROWS, len(room) // self.words // (streams + 1) - 1)
        assert rows > 0, "no room for the buffers"
        size = (rows + 1) * self.words
        buffers = [room[n * size : (n + 1) * size] for n in range(streams + 1)]
        out, heads = buffers.pop(), np.zeros((streams, 2), np.uint64)
        with ExitStack() as files:
            opened = [files.enter_context(FileIO(self.path(run))) for run in (*candidates, *known)]
            while True:
                for number in np.flatnonzero(heads[:, 0] == heads[:, 1]):
                    self._refill(opened[number], buffers[number], heads[number])
                found = self._machine.sift(heads.ctypes.data, len(candidates), len(known), out.ctypes.data, rows)
                yield out[: found * self.words]
                if found < rows and (heads[:, 0] != heads[:, 1]).all():
                    return

    def _refill(self, file: FileIO, buffer: Words, head: Words) -> None:
        """Read on; behind what was read, and alone at the end, stands a row of all ones."""
        read = _fill(file, _bytes(buffer[: -self.words])) // 8
        buffer[read : read + self.words] = (1 << 64) - 1
        head[0] = buffer.ctypes.data
        head[1] = head[0] + 8 * (read or self.words)


def _bytes(rows: npt.NDArray[Any]) -> memoryview:
    return rows.data.cast("B")


def _fill(file: FileIO, room: memoryview) -> int:
    """Read bytes until there is no room or no more; answers how many."""
    done = 0
    while done < len(room) and (read := file.readinto(room[done:])):
        done += read
    return done


def checksum(path: Path) -> tuple[int, int]:
    """The length of a file, and the CRC-32 of its bytes."""
    size = check = 0
    with FileIO(path) as file:
        while part := file.read(1 << 20):
            size += len(part)
            check = zlib.crc32(part, check)
    return size, check


__all__ = ["DiskShort", "Run", "Runs", "checksum"]
