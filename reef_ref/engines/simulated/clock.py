"""An event loop whose time jumps to the next thing that waits: minutes of time-outs take no time, and always the same.

Only for code that waits for nothing outside the loop: no sockets, no threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["VirtualTimeLoop", "run_simulated"]

T = TypeVar("T")


class _Jump(selectors.DefaultSelector):
    """Answers at once; the time that it should have waited is added to the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            message = "nothing is left to wait for: the simulation waits for something that never comes"
            raise RuntimeError(message)
        self.now += max(timeout, 0.0)
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that starts at time 0, in seconds, and never waits. Waiting for nothing at all is an error."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Seconds since the start, virtual."""
        return self._jump.now


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
