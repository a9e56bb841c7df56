"""How much memory processes have over time, and how fast that grows."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from benchmarks.spread import Spread

__all__ = ["Growth", "Memory"]

EVERY_S = 1.0
SETTLING_S = 30.0
"""What a process takes while it gets going is left out."""
APART_S = 20.0
MOST = 400
"""Samples of which slopes are taken: more are thinned out evenly."""
MIB = 1 << 20


@dataclass(frozen=True)
class Growth:
    """MiB at the first and the last sample, and MiB an hour: the slopes between all pairs of samples."""

    first: float
    last: float
    samples: int
    per_hour: Spread | None


@dataclass
class Memory:
    """Samples what processes have resident; `pids` says which process has a name now."""

    pids: dict[str, Callable[[], int | None]]
    _samples: dict[tuple[str, int], list[tuple[float, float]]] = field(default_factory=dict)

    async def run(self) -> None:
        """Sample until cancelled."""
        born: dict[tuple[str, int], float] = {}
        while True:
            for name, pid_of in self.pids.items():
                if (pid := pid_of()) is None:
                    continue
                now = time.monotonic()
                if now - born.setdefault((name, pid), now) < SETTLING_S:
                    continue
                try:
                    resident = psutil.Process(pid).memory_info().rss / MIB
                except psutil.Error:
                    continue
                samples = self._samples.setdefault((name, pid), [])
                samples.append((now, resident))
                if len(samples) > 2 * MOST:
                    del samples[::2]
            await asyncio.sleep(EVERY_S)

    def growth(self, name: str) -> Growth | None:
        """Of all lives of a process; none where it was never there for long enough."""
        lives = [samples for (who, _), samples in self._samples.items() if who == name]
        slopes = [
            3600.0 * (there[1] - here[1]) / (there[0] - here[0])
            for samples in lives
            for here, there in itertools.combinations(samples, 2)
            if there[0] - here[0] >= APART_S
        ]
        samples = [one for life in lives for one in life]
        if not samples:
            return None
        spread = Spread.of(slopes) if len(slopes) > 1 else None
        return Growth(samples[0][1], samples[-1][1], len(samples), spread)


def own() -> int:
    """This process."""
    return os.getpid()
