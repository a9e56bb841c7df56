"""`reef-ref monitor` as a process of its own, and everything that it has said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Reaction", "Seen", "Watcher"]

START_S = 60.0
STATUS_S = 20.0
END_S = 20.0
KEPT = 1000
"""Violations and reactions that are kept."""


@dataclass(frozen=True)
class Seen:
    """A violation that the monitor told: when its line came (seconds of the monotonic clock), and what it says."""

    at: float
    property: str
    engine: int | None
    source: str
    number: int
    why: str


@dataclass(frozen=True)
class Reaction:
    """What the monitor did about one."""

    at: float
    reaction: str
    done: bool
    why: str


class Watcher:
    """Starts, asks, kills and ends the monitor of a deployment.

    Args:
        engines: how many slots there are.
        socket: where it listens.
        addresses: where the engines are.
        policy: reactions other than the usual, by property.
    """

    def __init__(self, engines: int, socket: Path, addresses: Mapping[int, str], policy: Mapping[str, str]) -> None:
        self._command = [
            sys.executable, "-m", "reef_ref.cli", "monitor", "--engines", str(engines), "--socket", str(socket),
            *(word for slot, address in addresses.items() for word in ("--address", f"{slot}={address}")),
            *(word for name, reaction in policy.items() for word in ("--on", f"{name}={reaction}")),
        ]  # fmt: skip
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._said = asyncio.Condition()
        self._statuses: deque[dict[str, Any]] = deque(maxlen=4)
        self._watching = False
        self.violations: deque[Seen] = deque(maxlen=KEPT)
        self.reactions: deque[Reaction] = deque(maxlen=KEPT)
        self.told = 0
        """Violations so far, of every life of the monitor."""

    @property
    def pid(self) -> int | None:
        """Its process, if it runs."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def start(self) -> None:
        """Start it, and wait until it listens. Raises `TimeoutError`, or `RuntimeError` where it ended."""
        self._watching = False
        self._process = await asyncio.create_subprocess_exec(*self._command, stdout=PIPE, limit=1 << 22)
        self._reader = asyncio.create_task(self._read(self._process))
        async with asyncio.timeout(START_S), self._said:
            await self._said.wait_for(lambda: self._watching or self._process is None or self._reader.done())  # type: ignore[union-attr]
        if not self._watching:
            raise RuntimeError("the monitor ended while it started")

    async def kill(self) -> None:
        """End it without a warning."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        await self._reap()

    async def stop(self) -> int | None:
        """Have it end, or end it; its exit status."""
        process = self._process
        if process is None:
            return None
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await process.wait()
        await self.kill()
        return process.returncode

    async def status(self) -> dict[str, Any]:
        """What it knows now. Raises `TimeoutError`, or `RuntimeError` where it does not run."""
        if self.pid is None or self._process is None:
            raise RuntimeError("the monitor does not run")
        self._statuses.clear()
        self._process.send_signal(signal.SIGUSR1)
        async with asyncio.timeout(STATUS_S), self._said:
            await self._said.wait_for(lambda: bool(self._statuses))
        return self._statuses[-1]

    async def found(self, since: float, properties: Collection[str], bound_s: float) -> Seen | None:
        """The first violation of one of some properties after a moment; none if there is none for so long."""

        def first() -> Seen | None:
            return next((seen for seen in self.violations if seen.at >= since and seen.property in properties), None)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s), self._said:
                await self._said.wait_for(lambda: first() is not None)
        return first()

    async def at_rest(self, bound_s: float) -> bool:
        """Wait until nothing is being done about a violation; whether that came within so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                while (await self.status())["reacting"]:
                    await asyncio.sleep(0.1)
                return True
        return False

    async def _reap(self) -> None:
        if self._process is not None:
            await self._process.wait()
        if self._reader is not None:
            await self._reader
        self._process = self._reader = None

    async def _read(self, process: Process) -> None:
        assert process.stdout is not None
        while raw := await process.stdout.readline():
            self._take(json.loads(raw))
            async with self._said:
                self._said.notify_all()
        async with self._said:
            self._said.notify_all()

    def _take(self, said: dict[str, Any]) -> None:
        now = time.monotonic()
        match said["monitor"]:
            case "watching":
                self._watching = True
            case "status":
                self._statuses.append(said)
            case "violation":
                self.told += 1
                found = (said[name] for name in ("property", "engine", "source", "number", "why"))
                self.violations.append(Seen(now, *found))
            case "response":
                self.reactions.append(Reaction(now, said["reaction"], said["done"], said["why"]))
