"""Where lines come from: files that others append to, and a Unix socket that they connect to.

Nothing that comes in is trusted: a line may be anything, and no longer than `LONGEST`; one that cannot be read is
counted and left out, and the numbers of the others say what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LONGEST", "LineSplitter", "SocketInUse", "follow", "listen"]

LONGEST = 1 << 20
"""Bytes that a line may have, its end included."""
CHUNK = 1 << 16
LOOK_S = 0.05
"""How often a file is looked at that has nothing new."""
CONNECTIONS = 256


@dataclass
class LineSplitter:
    """Cuts bytes into whole lines; `dropped` counts those that were too long."""

    dropped: int = 0
    _rest: bytes = b""
    _skipping: bool = False

    def split(self, chunk: bytes) -> list[bytes]:
        """The lines that are complete now, without their ends."""
        *whole, rest = (self._rest + chunk).split(b"\n")
        if whole and self._skipping:
            del whole[0]
            self._skipping = False
        self.dropped += sum(len(line) >= LONGEST for line in whole)
        if len(rest) >= LONGEST and not self._skipping:
            self.dropped += 1
            self._skipping = True
        self._rest = b"" if self._skipping else rest
        return [line for line in whole if len(line) < LONGEST]


async def follow(path: Path, take: Callable[[bytes], None], caught_up: Callable[[], None] = lambda: None) -> None:
    """Hand over the lines of a file, from its beginning, and go on with what is appended; runs until cancelled.

    A file that is not there yet is waited for. One that has become shorter, or another, is begun anew.

    Args:
        take: called with each line.
        caught_up: called whenever there is nothing more to read for now.
    """
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            caught_up()
            await asyncio.sleep(LOOK_S)
            continue
        try:
            await _follow_one(path, descriptor, take, caught_up)
        finally:
            os.close(descriptor)


async def _follow_one(
    path: Path, descriptor: int, take: Callable[[bytes], None], caught_up: Callable[[], None]
) -> None:
    lines, place = LineSplitter(), 0
    while True:
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            chunk = b""
        if chunk:
            place += len(chunk)
            for line in lines.split(chunk):
                take(line)
            await asyncio.sleep(0)
            continue
        caught_up()
        await asyncio.sleep(LOOK_S)
        ours = os.fstat(descriptor)
        try:
            there = path.stat()
        except FileNotFoundError:
            return
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino) or ours.st_size < place:
            return


class SocketInUse(OSError):  # noqa: N818  The name says what was found.
    """Somebody listens at a socket's path already, or something else is there."""


@contextlib.asynccontextmanager
async def listen(path: Path, take: Callable[[bytes], None]) -> AsyncIterator[None]:
    """Hand over the lines of everybody who connects, for the time of the block. The socket is its owner's alone (0600).

    Raises:
        SocketInUse: the path is taken. A socket that nobody listens at any more is replaced.
    """
    _clear(path)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(tasks) >= CONNECTIONS:
            writer.close()
            return
        tasks.add(task)
        lines = LineSplitter()
        try:
            while chunk := await reader.read(CHUNK):
                for line in lines.split(chunk):
                    take(line)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    # Made private before anybody can connect to it.
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            end.bind(str(path))
        finally:
            os.umask(before)
        server = await asyncio.start_unix_server(serve, sock=end)
    except BaseException:
        end.close()
        raise
    try:
        yield
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _clear(path: Path) -> None:
    """Remove a socket that its listener has left behind."""
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_socket():
        raise SocketInUse(f"{path}: something else than a socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise SocketInUse(f"{path}: {error.strerror or error}") from error
    raise SocketInUse(f"{path}: another monitor listens there")
