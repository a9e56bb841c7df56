"""An event loop whose time jumps to the next thing that waits: minutes of time-outs take no time, and always the same.

Only for code that waits for nothing outside the loop: no sockets, no threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

__all__ = ["VirtualTimeLoop", "run_simulated"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
TIE_S = 1e-12
"""Between two that are due at the same time: a thousand of them are still within the same nanosecond."""


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
    """A loop that starts at time 0, in seconds, and never waits. Waiting for nothing at all is an error.

    What is due at the same nanosecond comes in the order in which it was asked for, whatever else the loop waits for.
    """

    def __init__(self) -> None:
        self._jump = _Jump()
        self._asked = 0
        self._asked_at = 0.0
        super().__init__(self._jump)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As any loop's. The heap of timers keeps no order among equals, so that equal times are told apart."""
        self._asked = self._asked + 1 if self._asked_at == self.time() else 0
        self._asked_at = self.time()
        return super().call_at(round(when, 9) + self._asked * TIE_S, callback, *args, context=context)

    def time(self) -> float:
        """Seconds since the start, virtual."""
        return self._jump.now


def run_simulated(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
