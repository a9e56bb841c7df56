"""The coordinator's view of its marker: one record in memory that never runs ahead of the disk.

A write that failed may have happened all the same (the failure came after the rename). So after every failed write the
file is read again, and nothing else is done before it could be read.

Source: reef-semantics sections 2.1, 2.2 and 10 (P10).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from reef_ref import events
from reef_ref.markers import (
    MarkerError,
    Record,
    RecordFile,
    Status,
    check_checkpoint_folder,
    check_edge,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Journal", "RecordNotWritten"]


class RecordNotWritten(MarkerError):  # noqa: N818  The name says what happened.
    """A durable write failed; the file was read again afterwards, if it could be."""


class Journal:
    """Reads and writes the marker, one write at a time, each bounded by `bound_s` seconds."""

    def __init__(self, file: RecordFile, *, tell: events.Teller, bound_s: float) -> None:
        self._file = file
        self._tell = tell
        self._bound_s = bound_s
        self._record: Record | None = None
        self._known = False

    @property
    def record(self) -> Record | None:
        """The record, as last read or durably written; none before the first job."""
        return self._record

    @property
    def known(self) -> bool:
        """Whether `record` is what the file holds; false after a failed write until the file was read again."""
        return self._known

    async def settle(self) -> Record | None:
        """Make sure that `record` is what the file holds, and answer it.

        Raises `MarkerError` if the file cannot be read, or holds no valid record.
        """
        if not self._known:
            self._record = await self._read()
            self._known = True
        return self._record

    async def _read(self) -> Record | None:
        try:
            async with asyncio.timeout(self._bound_s):
                data = await self._file.read()
        except TimeoutError as error:
            message = f"the marker could not be read within {self._bound_s:g} s"
            raise MarkerError(message) from error
        except OSError as error:
            message = f"the marker could not be read: {error.strerror or error}"
            raise MarkerError(message) from error
        if data is None:
            return None
        record = decode(data)
        if record.checkpoint is not None:
            check_checkpoint_folder(Path(record.checkpoint))
        return record

    async def write(self, record: Record, told: Callable[[], None]) -> Record:
        """Write a record durably, then call `told`, which tells the event.

        Raises `ForbiddenEdge` before anything is written, `RecordNotWritten` if the write failed.
        """
        check_edge(await self.settle(), record)
        data = encode(record)
        self._known = False
        try:
            async with asyncio.timeout(self._bound_s):
                await self._file.replace(data)
        except (OSError, TimeoutError, MarkerError) as error:
            reason = str(error) or type(error).__name__
            found = await self._found()
            self._tell(events.WriteFails, str(record.status), found, reason)
            message = f"{record.status} of job {record.job} was not written ({reason}); the file holds: {found}"
            raise RecordNotWritten(message) from error
        self._record = record
        self._known = True
        told()
        return record

    async def _found(self) -> str:
        try:
            record = await self.settle()
        except MarkerError:
            return "unknown"
        return "none" if record is None else str(record.status)

    @property
    def status(self) -> Status | None:
        """The record's status; none before the first job."""
        return None if self._record is None else self._record.status
