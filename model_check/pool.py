"""Calls spread over processes of this machine, or one after the other in this one.

An interrupt is never lost (`interrupts`): it is raised again before the next answer.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any, TypeVar

from model_check.interrupts import remembered

T = TypeVar("T")

GLANCE = 1.0
"""Seconds between two looks at whether an interrupt was dropped."""


def pooled(
    function: Callable[..., T], calls: Sequence[tuple[Any, ...]], workers: int | None
) -> Iterator[tuple[int, T]]:
    """What the calls answer, each with its number, in the order in which they are done.

    Args:
        function: what to call; for processes, one that pickles.
        calls: its arguments.
        workers: processes; none: this one.

    Raises:
        BrokenProcessPool: a process was killed.
        KeyboardInterrupt: somebody interrupts, who waits for an answer or works on the last one.
    """
    with remembered() as check:
        if workers is None:
            for number, call in enumerate(calls):
                answer = function(*call)
                check()
                yield number, answer
                check()
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_die_quietly)
        try:
            waiting = {pool.submit(function, *call): number for number, call in enumerate(calls)}
            while waiting:
                for future in wait(waiting, timeout=GLANCE, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
                    check()
                check()
        finally:
            for process in multiprocessing.active_children():
                process.terminate()
            pool.shutdown(cancel_futures=True)


def _die_quietly() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


__all__ = ["pooled"]
