"""Interrupts that are not lost.

Python drops whatever is raised while an object is let go of, an interrupt too, and those of z3 and LLVM are let go of
all the time; so it is remembered, and raised again where somebody looks.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def remembered() -> Iterator[Callable[[], None]]:
    """Remember interrupts; what is yielded raises one that was.

    Only the main thread is interrupted at all, and only where interrupts are not ignored.
    """
    interrupted = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if interrupted:
            raise KeyboardInterrupt

    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
        yield check
        return
    previous = signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, previous)


__all__ = ["remembered"]
