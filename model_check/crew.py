"""Threads that run compiled code side by side.

Compiled code writes to memory that Python owns. So none is ever left running, whatever happens in the thread that waits
for it: the memory would be given back under its hands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


class Crew:
    """A fixed number of threads, started when they are first needed."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ThreadPoolExecutor | None = None

    def run(
        self,
        jobs: Sequence[Callable[[], T]],
        *,
        tick: Callable[[], None] | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> list[T]:
        """Run the jobs side by side, and answer what they answer.

        Args:
            jobs: what to run.
            tick: called about ten times a second meanwhile.
            stop: asks the jobs to end early; called if `tick` raises, or somebody interrupts.
        """
        try:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="search")
            futures = [self._pool.submit(job) for job in jobs]
            while wait(futures, timeout=0.1).not_done:
                if tick is not None:
                    tick()
            return [future.result() for future in futures]
        except BaseException:
            stop()
            self.close()
            raise

    def close(self) -> None:
        """Wait until every thread has ended. An interrupt does not cut the wait short; it is raised afterwards."""
        pool, self._pool, interrupt = self._pool, None, None
        while pool is not None:
            try:
                pool.shutdown(wait=True)
                pool = None
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
