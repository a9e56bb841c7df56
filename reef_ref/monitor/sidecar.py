"""The monitor as a process of its own: reads what is told, judges it, reacts, and lets observers see all of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from reef_ref.events import Line, MalformedEvent, read_line
from reef_ref.monitor.notice import Freshness, Violation
from reef_ref.monitor.policy import Policy
from reef_ref.monitor.respond import Responder, Response, Responses
from reef_ref.monitor.sources import LONGEST, follow, listen
from reef_ref.monitor.trace import Unreadable
from reef_ref.monitor.watch import Monitor, Status
from reef_ref.rank_events import MalformedRankEvent, RankEvent, read_rank_event

__all__ = ["Inputs", "Observer", "Patience", "Sidecar"]

LOOK_S = 0.25
"""How often it is looked whether something has taken too long."""


class Observer(Protocol):
    """Sees what a sidecar takes and finds. It must not raise and must not wait.

    What was told comes once, in the order in which it is judged (`reef_ref.monitor.order`); a gap in a source's numbers
    is something that was lost.
    """

    def line(self, line: Line) -> None:
        """Something a coordinator told."""

    def rank(self, engine: int, event: RankEvent) -> None:
        """Something a rank told."""

    def unreadable(self, where: str, why: str) -> None:
        """A line that is no event, or of an engine that there is not."""

    def violation(self, violation: Violation) -> None:
        """A property does not hold."""

    def response(self, response: Response) -> None:
        """What was done about it."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Where lines come from.

    Attributes:
        coordinators: files of a coordinator's events.
        engines: files of ranks' events, each with the slot of their engine, or none where the events say it.
        socket: where anybody may send lines of either kind; ranks must say their engine.
    """

    coordinators: Sequence[Path] = ()
    engines: Sequence[tuple[int | None, Path]] = ()
    socket: Path | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long is waited, in seconds: for an event that is missing, and for an engine to say anything at all."""

    missing_s: float = 2.0
    silence_s: float = 30.0


@dataclass
class Sidecar:
    """Runs a monitor over its inputs until cancelled.

    Args:
        engines: how many slots the deployment has.
        inputs: where lines come from.
        policy: what is done about violations.
        responder: how; none: violations are only told. It is given the monitor's status.
        observers: who sees all of it.
        patience: how long is waited.
    """

    engines: int
    inputs: Inputs
    policy: Policy = field(default_factory=Policy)
    responder: Callable[[Callable[[], Status]], Responder] | None = None
    observers: Sequence[Observer] = ()
    patience: Patience = Patience()

    def __post_init__(self) -> None:
        self._monitor = Monitor(self.engines, self._violation, on_line=self._line, on_rank=self._rank)
        self._responses: Responses | None = None
        self._heard: dict[int, float] = {}
        self._unreadable = 0
        self._read_to_the_end: dict[Path, int] = {}

    def status(self) -> Status:
        """What is known now."""
        return self._monitor.status()

    @property
    def unreadable(self) -> int:
        """Lines that were no events."""
        return self._unreadable

    def saw_all(self) -> bool:
        """Whether nothing that its inputs could have told is unknown now, or was lost on the way.

        A file of an engine has to show that one fresh, a socket all of them, and a coordinator's file the deployment.
        """
        status = self.status()
        if status.counts.lost or self._unreadable or (self.inputs.coordinators and not status.deployment):
            return False
        slots = [slot for slot, _ in self.inputs.engines]
        expected = range(self.engines) if self.inputs.socket is not None or None in slots else slots
        return all(slot is None or status.engines[slot].freshness is Freshness.FRESH for slot in expected)

    @property
    def reacting(self) -> bool:
        """Whether something is being done about a violation, or waits to be."""
        return self._responses is not None and not self._responses.idle

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Watch until cancelled; `ready` is called when everything is listened to.

        Raises:
            SocketInUse, OSError: an input cannot be read.
        """
        responder = self.responder(self.status) if self.responder is not None else None
        self._responses = Responses(self.policy, responder, self._response)
        async with contextlib.AsyncExitStack() as stack:
            if self.inputs.socket is not None:
                await stack.enter_async_context(listen(self.inputs.socket, partial(self.take, "socket")))
            async with asyncio.TaskGroup() as group:
                for engine, path in [*((None, path) for path in self.inputs.coordinators), *self.inputs.engines]:
                    take = partial(self.take, str(path), engine=engine)
                    group.create_task(follow(path, take, partial(self._at_end, path)))
                group.create_task(self._responses.run())
                group.create_task(self._look())
                ready()

    async def catch_up(self, bound_s: float = 5.0) -> bool:
        """Read what stands in the files now; whether that was done within `bound_s` seconds. For the end of a watch."""
        before = dict(self._read_to_the_end)
        paths = {*self.inputs.coordinators, *(path for _, path in self.inputs.engines)}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(bound_s):
                while any(self._read_to_the_end.get(path, 0) == before.get(path, 0) for path in paths):
                    await asyncio.sleep(0.01)
                self._monitor.give_up()
                return True
        return False

    def _at_end(self, path: Path) -> None:
        self._read_to_the_end[path] = self._read_to_the_end.get(path, 0) + 1

    def take(self, where: str, raw: bytes, engine: int | None = None) -> None:
        """Take one line of either kind; `engine` is its slot where the line need not say it."""
        if not raw or raw.isspace():
            return
        try:
            if _of_a_rank(raw):
                self._take_rank(read_rank_event(raw), engine)
            else:
                self._monitor.coordinator(read_line(raw))
        except (MalformedEvent, MalformedRankEvent, Unreadable) as error:
            self._unreadable += 1
            for observer in self.observers:
                observer.unreadable(where, " ".join(str(error).split())[:200])

    def _take_rank(self, event: RankEvent, engine: int | None) -> None:
        slot = event.engine if engine is None else engine
        if slot is None:
            message = "it does not say which engine: set REEF_REF_ENGINE for the engine, or name it with its file"
            raise MalformedRankEvent(message)
        self._monitor.rank(slot, event)
        self._heard[slot] = asyncio.get_running_loop().time()

    async def _look(self) -> None:
        """Give up what has taken too long."""
        now, waiting_since = asyncio.get_running_loop().time, None
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._monitor.waiting:
                waiting_since = None
            elif waiting_since is None:
                waiting_since = now()
            elif now() - waiting_since > self.patience.missing_s:
                self._monitor.give_up()
                waiting_since = None
            for engine, heard in self._heard.items():
                if now() - heard > self.patience.silence_s:
                    self._monitor.silent(engine, f"nothing was heard of it for {self.patience.silence_s:g} s")

    def _line(self, line: Line) -> None:
        for observer in self.observers:
            observer.line(line)

    def _rank(self, engine: int, event: RankEvent) -> None:
        for observer in self.observers:
            observer.rank(engine, event)

    def _violation(self, violation: Violation) -> None:
        for observer in self.observers:
            observer.violation(violation)
        if self._responses is not None:
            self._responses.take(violation)

    def _response(self, response: Response) -> None:
        for observer in self.observers:
            observer.response(response)


class _Kind(msgspec.Struct):
    pid: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_KIND = msgspec.json.Decoder(_Kind)


def _of_a_rank(raw: bytes) -> bool:
    """Whether a line says from which process it is: only ranks do."""
    if len(raw) > LONGEST:
        raise MalformedEvent(f"longer than {LONGEST:,} bytes")
    try:
        return _KIND.decode(raw).pid is not msgspec.UNSET
    except (ValueError, RecursionError):
        return False
