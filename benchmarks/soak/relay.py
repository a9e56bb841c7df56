"""Between those who tell and their monitor: passes every line on, knows how far each source is, and may lose some."""

from __future__ import annotations

import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from reef_ref.monitor.sources import listen
from reef_ref.outlet import Outlet

__all__ = ["Relay"]

KEPT = 4096
"""Events whose time is kept."""


class Relay:
    """Made by `between`.

    Attributes:
        last: the number of the last event of each source.
        passed: when the newest events passed, by source and number, in seconds of the monotonic clock.
        loses: whether a line is lost; it may be exchanged at any time.
    """

    def __init__(self, onwards: Path) -> None:
        self.last: dict[str, int] = {}
        self.passed: OrderedDict[tuple[str, int], float] = OrderedDict()
        self.loses: Callable[[dict[str, Any]], bool] = lambda _: False
        self.lost = 0
        self._outlet: Outlet[bytes] = Outlet(f"unix:{onwards}", lambda line: line)

    def take(self, raw: bytes) -> None:
        """Take a line."""
        line = json.loads(raw)
        source = f"engine:{line['engine']}/rank:{line['rank']}/{line['pid']}" if "pid" in line else line["source"]
        self.last[source] = max(line["number"], 0 if line["number"] == 1 else self.last.get(source, 0))
        if self.loses(line):
            self.lost += 1
        else:
            self.passed[source, line["number"]] = time.monotonic()
            if len(self.passed) > KEPT:
                self.passed.popitem(last=False)
            self._outlet.put(raw)

    @classmethod
    @contextlib.asynccontextmanager
    async def between(cls, path: Path, onwards: Path) -> AsyncIterator[Relay]:
        """Listen at `path` for a monitor that listens at `onwards`."""
        relay = cls(onwards)
        try:
            async with listen(path, relay.take):
                yield relay
        finally:
            relay._outlet.close()
