"""A disk for one record, in memory, that fails where a plan says so.

Like the real marker's thread it does one thing after the other: a write that hangs holds up what comes behind it, and
still happens when its caller has long given up.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import TypeVar

from reef_ref.engines.simulated.faults import Fault, Plan, Point

__all__ = ["SimulatedDisk"]

T = TypeVar("T")


class SimulatedDisk:
    """A `reef_ref.markers.RecordFile` in memory. `history` is every content that it ever had, in order."""

    def __init__(self, plan: Plan, *, hang_s: float) -> None:
        self._plan = plan
        self._hang_s = hang_s
        self._free_at = 0.0
        self.data: bytes | None = None
        self.history: list[bytes] = []

    async def read(self) -> bytes | None:
        """The bytes."""
        return await self._in_turn(Point("read", None), lambda: self.data)

    async def replace(self, data: bytes) -> None:
        """Replace the bytes."""

        def write() -> None:
            self.data = data
            self.history.append(data)

        await self._in_turn(Point("write", None), write)

    async def _in_turn(self, point: Point, act: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        fault = self._plan.at(point)
        if self._free_at > loop.time():
            await asyncio.sleep(self._free_at - loop.time())
        error = OSError(errno.ENOSPC, "no space left on the simulated disk")
        match fault:
            case Fault.FAILS_BEFORE:
                raise error
            case Fault.CRASH_BEFORE:
                self._plan.crash()
            case Fault.HANGS_BEFORE:
                self._free_at = loop.time() + self._hang_s
                loop.call_at(self._free_at, act)
                await asyncio.sleep(self._hang_s)
                return act()
        answer = act()
        match fault:
            case Fault.FAILS_AFTER:
                raise error
            case Fault.CRASH_AFTER:
                self._plan.crash()
            case Fault.HANGS_AFTER:
                self._free_at = loop.time() + self._hang_s
                await asyncio.sleep(self._hang_s)
        return answer
