"""What is asserted while the loop runs: every event against the specification, every reused KV slot by provenance.

`Watch` is the listener of everything that is told, and the one place where it is judged: the monitor is attached here.
Whatever else takes an `events.Line`, and neither raises nor waits, may be given to `run`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from examples.rl_loop.engines import Deployment
from examples.rl_loop.settings import OtherRun
from reef_ref import events
from reef_ref.engines.interface import Request
from reef_ref.monitor.notice import Violation
from reef_ref.monitor.sources import LineSplitter
from reef_ref.monitor.trace import Unreadable
from reef_ref.monitor.validate import Garbled, read
from reef_ref.monitor.watch import Monitor, Status
from reef_ref.rank_events import MalformedRankEvent, read_rank_event
from reef_ref.scenarios.provenance import StaleHit, named_stale_hits, read_counters

__all__ = ["Caught", "Provenance", "Watch"]

SHOWN = 4
"""Stale slots that are named one by one."""


class Caught(Exception):  # noqa: N818  The name says what became of it.
    """Something that must never happen was seen; the text is one line that says what, and who saw it."""


class Watch:
    """Keeps all events in a file, over all lives of a run, and has the monitor judge them as they come.

    Args:
        trace: the file. What earlier lives left there is judged first; a last line that a kill cut off is dropped.
        engines: how many slots the deployment has.

    Raises:
        OtherRun: the file holds something else.
    """

    def __init__(self, trace: Path, engines: int) -> None:
        self._monitor = Monitor(engines, self._violated)
        self._deaf = False
        self._violation: Violation | None = None
        self._ranks: Sequence[_Tail] = ()
        self._unread = ""
        self.last: events.Event | None = None
        """The last event that was told; none at the beginning of a run."""
        if trace.exists():
            _drop_torn_line(trace)
            self._read(trace)
        self._file = events.NdjsonFile(trace)

    def _read(self, trace: Path) -> None:
        line = 1
        try:
            with trace.open("rb") as stream:
                for numbered in read(stream):
                    line = numbered.line
                    self._take(numbered.event)
        except (Garbled, Unreadable) as error:
            where = error.line if isinstance(error, Garbled) else line
            message = f"{trace}, line {where}: {error}; the run cannot go on, name a new folder"
            raise OtherRun(message) from error

    def __call__(self, line: events.Line) -> None:
        """Take one event. What is found is asked for by `raise_if_violated`, for a listener does not raise."""
        self._file(line)
        self._take(line)

    def _take(self, line: events.Line) -> None:
        self.last = line.event
        self._monitor.coordinator(line)

    def _violated(self, violation: Violation) -> None:
        if self._violation is None and not self._deaf:
            self._violation = violation

    def attach(self, plugin_events: Sequence[Path]) -> None:
        """From now on take what the plugin of each slot's engine writes; what it wrote before is some other run's."""
        self._ranks = [_Tail(path) for path in plugin_events]
        self._deaf = True
        self.read_engines()
        self._deaf = False

    def read_engines(self) -> None:
        """Take what plugins have written since the last time."""
        for slot, tail in enumerate(self._ranks):
            for line in tail.new_lines():
                try:
                    self._monitor.rank(slot, read_rank_event(line))
                except MalformedRankEvent as error:
                    self._unread = f"engine {slot}: {error}"

    @property
    def violation(self) -> str | None:
        """The first violation, in one line."""
        return None if self._violation is None else f"monitor: {self._violation}"

    def raise_if_violated(self) -> None:
        """Raise `Caught` if anything is wrong, or if something was not seen, so that it cannot be known."""
        self.read_engines()
        if self.violation is not None:
            raise Caught(self.violation)
        status = self.status()
        unseen = self._unread or (f"{status.counts.lost} events were lost" if status.counts.lost else "")
        if unseen:
            message = f"monitor: unknown, {unseen}"
            raise Caught(message)

    def status(self) -> Status:
        """What the monitor knows."""
        return self._monitor.status()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class _Tail:
    """A file that others append to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0
        self._lines = LineSplitter()

    def new_lines(self) -> Sequence[bytes]:
        """The whole lines since the last time."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._place)
                data = stream.read()
        except FileNotFoundError:
            return ()
        self._place += len(data)
        return self._lines.split(data)


def _drop_torn_line(trace: Path) -> None:
    data = trace.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with trace.open("r+b") as stream:
            stream.truncate(whole)


class Provenance:
    """Asks the plugins of all engines what they have seen since this was made.

    `watch` gets an event for each engine that is looked at; `prompt` is one that rollouts use, so that its prefix is in
    every cache that was not flushed.
    """

    def __init__(
        self, deployment: Deployment, watch: Watch, prompt: tuple[int, ...], name: str, tells: Sequence[events.Teller]
    ) -> None:
        self._deployment = deployment
        self._watch = watch
        self._prompt = prompt
        self._name = name
        self._tells = tells
        self._hits: list[int] = []
        self._slots: list[int] = []

    async def begin(self) -> None:
        """What engines have counted until now is not this run's."""
        for engine, file in zip(self._deployment.engines, self._deployment.events, strict=True):
            self._hits.append(len(await named_stale_hits(engine, file)))
            self._slots.append((await read_counters(engine))["slots_checked"])

    async def slots_checked(self) -> int:
        """Reused KV slots that were compared since the last time this was asked. Raises `Caught` if one was stale."""
        checked = 0
        for slot, engine in enumerate(self._deployment.engines):
            for hit in await self._new_hits(slot):
                self._raise(slot, hit)
            count = (await read_counters(engine))["slots_checked"]
            checked += count - self._slots[slot]
            self._slots[slot] = count
        return checked

    async def look(self, load_id: str, publication: int) -> None:
        """Ask every engine the prompt, right after a publication: what it reuses must be of the load that is served.

        The answer is told as the engine's own event, so that the trace says it as well. Raises `Caught`.
        """
        first: tuple[int, StaleHit] | None = None
        for slot, engine in enumerate(self._deployment.engines):
            request = f"{self._name}-look-{publication}-{slot}"
            answer = await engine.generate(Request(input_ids=self._prompt, max_new_tokens=1, request_id=request))
            hits = await self._new_hits(slot)
            self._watch.read_engines()
            makers = tuple(_load(maker) for hit in hits if hit.request == request for maker in hit.written_by)
            if hits and first is None:
                first = slot, next((hit for hit in hits if hit.request == request), hits[0])
            if answer.cached_tokens:
                makers = makers or (load_id,)
                self._tells[slot](events.StartOnHit, slot, request, load_id, answer.cached_tokens, makers)
            else:
                self._tells[slot](events.Start, slot, request, load_id)
        if first is not None:
            self._raise(*first)

    async def _new_hits(self, slot: int) -> Sequence[StaleHit]:
        found = await named_stale_hits(self._deployment.engine(slot), self._deployment.events[slot])
        return found[self._hits[slot] :]

    def _raise(self, slot: int, hit: StaleHit) -> None:
        slots = ", ".join(map(str, hit.slots[:SHOWN]))
        message = (
            f"provenance, engine {slot}: request {hit.request} reuses {hit.stale} stale KV slots of {hit.reused} "
            f"({slots}, ...), written by {', '.join(hit.written_by)}, under {hit.serving}"
        )
        if self._watch.violation is not None:
            message += f"; {self._watch.violation}"
        raise Caught(message)


def _load(maker: str) -> str:
    """The load id in the plugin's words for whoever wrote a slot; the words themselves where there is none."""
    named = re.fullmatch(r"load (\S+) \(epoch \d+\)", maker)
    return maker if named is None else named[1]
