"""Events out of the scheduler process, as one JSON object a line, without ever blocking it.

The scheduler puts an event on a bounded queue and goes on; a thread writes the file. When the queue is full the event
is dropped and counted: serving is never slowed by a slow disk, and a reader can tell that something is missing.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import time
from pathlib import Path

CAPACITY = 8192
"""Events that may wait for the writer."""


class EventSink:
    """Writes events to a file that several processes may share: every line is one append.

    A sink without a file drops nothing and writes nothing.
    """

    def __init__(self, path: Path | None, *, source: dict[str, object], capacity: int = CAPACITY) -> None:
        self.dropped = 0
        self.failed = 0
        self._source = source
        self._waiting: queue.Queue[dict[str, object] | None] | None = None
        if path is None:
            return
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._waiting = queue.Queue(capacity)
        self._writer = threading.Thread(target=self._write, name="reef-ref-events", daemon=True)
        self._writer.start()
        atexit.register(self.close)

    def emit(self, kind: str, **fields: object) -> None:
        """Hand over one event; returns at once."""
        if self._waiting is None:
            return
        try:
            self._waiting.put_nowait({"event": kind, "time": time.time(), **self._source, **fields})
        except queue.Full:
            self.dropped += 1

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what waits, within `timeout_s` seconds, and stop."""
        if self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        deadline = time.monotonic() + timeout_s
        try:
            waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._writer.join(max(0.0, deadline - time.monotonic()))

    def _write(self) -> None:
        waiting = self._waiting
        assert waiting is not None
        while (event := waiting.get()) is not None:
            line = json.dumps(event, separators=(",", ":"), default=str) + "\n"
            try:
                os.write(self._descriptor, line.encode())
            except OSError:
                self.failed += 1
        os.close(self._descriptor)
