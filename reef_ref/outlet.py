"""Where lines leave a process: to a file or a Unix socket, from a thread of their own, so that nobody waits for it.

Whoever has a line puts it into a bounded queue and goes on. What does not fit, and what cannot be written, is lost and
counted: serving is never slowed by a slow disk or a reader that is gone, and the numbers that lines carry let a reader
see that something is missing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ["CAPACITY", "SOCKET", "Outlet", "check_target"]

CAPACITY = 8192
"""Lines that may wait for the writer."""
SOCKET = "unix:"
"""How the name of a socket begins; any other target is a file."""
CONNECT_AGAIN_S = 1.0
SEND_S = 5.0

T = TypeVar("T")


def check_target(target: str) -> None:
    """Refuse a target that can never be written.

    Raises:
        ValueError: its folder does not exist; the message says so and what would be right.
    """
    folder = Path(target.removeprefix(SOCKET)).absolute().parent
    if not folder.is_dir():
        raise ValueError(f"{target!r}: the directory does not exist; name a file in one that does")


class Outlet(Generic[T]):
    """Encodes and writes what is put into it, one line each, in order.

    Args:
        target: a file, to which several processes may append, or `unix:` and the path of a socket that a reader
            listens on; a reader that comes later, or comes back, is connected to.
        encode: makes the bytes of a line, without its end, in the writer's thread.
        capacity: how many may wait.
        idle: makes a line that is written when nothing was for `idle_s` seconds, in the writer's thread.
    """

    def __init__(
        self,
        target: str,
        encode: Callable[[T], bytes],
        *,
        capacity: int = CAPACITY,
        idle: Callable[[], bytes] | None = None,
        idle_s: float = 10.0,
    ) -> None:
        self.dropped = 0
        """Lines that found the queue full."""
        self.failed = 0
        """Lines that could not be written."""
        self._encode = encode
        self._idle = idle
        self._idle_s = idle_s
        self._waiting: queue.Queue[T | None] = queue.Queue(capacity)
        self._closed = False
        self._end: _File | _Socket = (
            _Socket(target.removeprefix(SOCKET)) if target.startswith(SOCKET) else _File(target)
        )
        self._writer = threading.Thread(target=self._write, name="reef-ref-outlet", daemon=True)
        self._writer.start()
        atexit.register(self.close)

    @property
    def attached(self) -> bool:
        """Whether somebody takes what is written: always so for a file that was opened."""
        return self._end.attached()

    def put(self, item: T) -> None:
        """Hand over one line; returns at once."""
        if self._closed:
            return
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            self.dropped += 1

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what waits, within `timeout_s` seconds, and stop. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        deadline = time.monotonic() + timeout_s
        try:
            self._waiting.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._writer.join(max(0.0, deadline - time.monotonic()))

    def _write(self) -> None:
        while True:
            try:
                item = self._waiting.get(timeout=self._idle_s if self._idle else None)
            except queue.Empty:
                assert self._idle is not None
                self._send(self._idle)
                continue
            if item is None:
                break
            self._send(lambda item=item: self._encode(item))  # type: ignore[misc]
        self._end.close()

    def _send(self, line: Callable[[], bytes]) -> None:
        try:
            self._end.send(line() + b"\n")
        except (OSError, ValueError, TypeError):
            self.failed += 1


class _File:
    """Every line is one append, so that several processes may share a file."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def attached(self) -> bool:
        return True

    def send(self, line: bytes) -> None:
        os.write(self._descriptor, line)

    def close(self) -> None:
        os.close(self._descriptor)


class _Socket:
    """A reader's socket; connected to when there is something to send, at most every `CONNECT_AGAIN_S` seconds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._again = 0.0
        with contextlib.suppress(OSError):
            self._connect()

    def attached(self) -> bool:
        """Whether the reader is there: it never sends, so that anything to read is its end."""
        end = self._socket
        if end is None:
            return False
        poll = select.poll()
        try:
            poll.register(end, select.POLLIN)
        except ValueError:  # Closed by the writer in this very moment.
            return False
        return not poll.poll(0)

    def send(self, line: bytes) -> None:
        if self._socket is None or not self.attached():
            self.close()
            self._connect()
        assert self._socket is not None
        try:
            self._socket.sendall(line)
        except OSError:
            self.close()  # A part of the line may be out: the reader drops it, and sees the gap in the numbers.
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self) -> None:
        now = time.monotonic()
        if now < self._again:
            raise ConnectionError(f"{self._path}: nobody listens")
        self._again = now + CONNECT_AGAIN_S
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            end.settimeout(SEND_S)
            end.connect(self._path)
        except OSError:
            end.close()
            raise
        self._socket = end
