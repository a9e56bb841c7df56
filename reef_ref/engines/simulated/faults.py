"""Where things fail: a plan, not chance.

Every call to an engine and every access to the disk is a *point*. Points are numbered in the order in which they are
reached, which is the same in every run, so a plan is a table from numbers to faults. A run without faults lists the
points that there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NoReturn, TypeVar

__all__ = ["CoordinatorDied", "Fault", "Plan", "Point"]

T = TypeVar("T")


class Fault(StrEnum):
    """What happens at a point."""

    FAILS_BEFORE = "fails before its effect"
    FAILS_AFTER = "fails after its effect"
    HANGS_BEFORE = "hangs, before its effect"
    HANGS_AFTER = "hangs, after its effect"
    ENGINE_DIES_BEFORE = "the engine dies before"
    ENGINE_DIES_AFTER = "the engine dies after"
    CRASH_BEFORE = "the coordinator dies before"
    CRASH_AFTER = "the coordinator dies after"
    ONLY_LABELS = "the label changes and the bytes do not"


class CoordinatorDied(BaseException):
    """This life is over: nothing that it still tries has an effect."""


@dataclass(frozen=True, slots=True)
class Point:
    """Something that may fail: a call, and at which engine; none is the disk."""

    call: str
    slot: int | None

    def __str__(self) -> str:
        return self.call if self.slot is None else f"{self.call} at engine {self.slot}"


class Plan:
    """Which fault at which point. `reached` are the points so far; `dead` says that the coordinator is."""

    def __init__(self, faults: Mapping[int, Fault] | None = None) -> None:
        self._faults = dict(faults or {})
        self.reached: list[Point] = []
        self.dead = False
        self.counting = True
        """Off while the harness itself asks, so that its questions move no number."""

    def at(self, point: Point) -> Fault | None:
        """Count a point and say what happens there. Raises `CoordinatorDied` for whatever a dead one still tries."""
        if self.dead:
            raise CoordinatorDied
        if not self.counting:
            return None
        number = len(self.reached)
        self.reached.append(point)
        return self._faults.get(number)

    def crash(self) -> NoReturn:
        """The coordinator dies here. Raises `CoordinatorDied`."""
        self.dead = True
        raise CoordinatorDied

    def revive(self) -> None:
        """A new life begins."""
        self.dead = False

    async def carry_out(
        self,
        fault: Fault | None,
        act: Callable[[], T],
        *,
        before: Exception,
        after: Exception,
        die: Callable[[], Exception],
    ) -> T:
        """Act as the fault has it; `before` and `after` are the errors of a failed call, `die` ends the engine."""
        match fault:
            case Fault.FAILS_BEFORE:
                raise before
            case Fault.HANGS_BEFORE:
                await asyncio.sleep(FOREVER_S)
            case Fault.CRASH_BEFORE:
                self.crash()
            case Fault.ENGINE_DIES_BEFORE:
                raise die()
        answer = act()
        match fault:
            case Fault.FAILS_AFTER:
                raise after
            case Fault.HANGS_AFTER:
                await asyncio.sleep(FOREVER_S)
            case Fault.CRASH_AFTER:
                self.crash()
            case Fault.ENGINE_DIES_AFTER:
                raise die()
        return answer


FOREVER_S = 1e9
"""Longer than any bound, in virtual seconds."""
