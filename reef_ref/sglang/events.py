"""Events out of the scheduler process, without ever blocking it (`reef_ref.outlet`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from reef_ref.outlet import CAPACITY, Outlet
from reef_ref.rank_events import Beat, RankEvent, encode

BEAT_S = 5.0
"""A source that has nothing to tell says so this often."""


class EventSink:
    """Numbers the events of this process and sends them to `target`; without one, nothing is made or sent.

    An event that finds no room still takes a number, so that a reader sees the gap.

    Args:
        target: a file or a socket, as `Outlet` takes it.
        pid, rank, engine: the source.
        counters: what a beat reports; called in the writer's thread.
    """

    def __init__(
        self,
        target: str | None,
        *,
        pid: int,
        rank: int,
        engine: int | None = None,
        counters: Callable[[], Mapping[str, int]] = dict,
        capacity: int = CAPACITY,
        beat_s: float = BEAT_S,
    ) -> None:
        self._source: dict[str, Any] = {"pid": pid, "rank": rank, "engine": engine}
        self._counters = counters
        self._number = 0
        self._written = 0
        self._outlet = (
            None if target is None else Outlet(target, self._line, capacity=capacity, idle=self._beat, idle_s=beat_s)
        )

    @property
    def dropped(self) -> int:
        """Events that found no room."""
        return 0 if self._outlet is None else self._outlet.dropped

    @property
    def failed(self) -> int:
        """Events that could not be written."""
        return 0 if self._outlet is None else self._outlet.failed

    def emit(self, kind: type[RankEvent], **fields: Any) -> None:
        """Hand over one event; returns at once."""
        if self._outlet is None:
            return
        self._number += 1
        self._outlet.put(kind(**self._source, time=time.time(), number=self._number, **fields))

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what waits, within `timeout_s` seconds, and stop."""
        if self._outlet is not None:
            self._outlet.close(timeout_s)

    def _line(self, event: RankEvent) -> bytes:
        self._written = event.number
        return encode(event)

    def _beat(self) -> bytes:
        # The number of the last event that left, not of the last that was made: one may be in the queue by now.
        return encode(
            Beat(
                **self._source,
                time=time.time(),
                number=self._written,
                dropped=self.dropped,
                counters=dict(self._counters()),
            )
        )
