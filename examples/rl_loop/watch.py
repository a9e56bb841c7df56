"""What is asserted while the loop runs: every event against the specification, every reused KV slot by provenance.

`Watch` is the listener of everything that is told, and the one place where another may be attached: whatever takes an
`events.Line` and neither raises nor waits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from examples.rl_loop.engines import Deployment
from examples.rl_loop.settings import OtherRun
from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.interface import Request
from reef_ref.monitor.trace import Unreadable
from reef_ref.monitor.validate import Garbled, Report, Validator, called, read
from reef_ref.scenarios.provenance import StaleHit, named_stale_hits, read_counters

__all__ = ["Caught", "Provenance", "Watch"]

SHOWN = 4
"""Stale slots that are named one by one."""


class Caught(Exception):  # noqa: N818  The name says what became of it.
    """Something that must never happen was seen; the text is one line that says what, and who saw it."""


class Watch:
    """Keeps all events in a file, over all lives of a run, and validates them as they come.

    Args:
        trace: the file. What earlier lives left there is read first; a last line that a kill cut off is dropped.
        engines: how many slots the deployment has.

    Raises:
        OtherRun: the file holds something else.
    """

    def __init__(self, trace: Path, engines: int) -> None:
        self._validator = Validator(engines)
        self._lines = 0
        self.last: events.Event | None = None
        """The last event that was told; none at the beginning of a run."""
        if trace.exists():
            _drop_torn_line(trace)
            try:
                with trace.open("rb") as stream:
                    for numbered in read(stream):
                        self._feed(numbered.event)
            except (Garbled, Unreadable) as error:
                message = f"{trace}, line {self._lines + 1}: {error}; the run cannot go on, name a new folder"
                raise OtherRun(message) from error
        self._file = events.NdjsonFile(trace)

    def __call__(self, line: events.Line) -> None:
        """Take one event. What it means is asked for by `raise_if_inexplicable`, for a listener does not raise."""
        self._file(line)
        self._feed(line)

    def _feed(self, line: events.Line) -> None:
        self._lines += 1
        self.last = line.event
        self._validator.feed(line, self._lines)

    @property
    def finding(self) -> str | None:
        """The first event that no behaviour explains, in words."""
        finding = self._validator.finding
        if finding is None:
            return None
        what = finding.note or f"no behaviour explains {called(finding.event)} of {finding.source}"
        return f"trace, line {finding.line}: {what}"

    def raise_if_inexplicable(self) -> None:
        """Raise `Caught` unless all that was told is explained."""
        if self.finding is not None:
            raise Caught(self.finding)
        report = self.report()
        if report.verdict is not Verdict.EXPLAINED:
            message = f"trace, line {self._lines}: {report.verdict}: {report.reason}"
            raise Caught(message)

    def report(self) -> Report:
        """What the trace is so far."""
        return self._validator.report()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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
        if self._watch.finding is not None:
            message += f"; {self._watch.finding}"
        raise Caught(message)


def _load(maker: str) -> str:
    """The load id in the plugin's words for whoever wrote a slot; the words themselves where there is none."""
    named = re.fullmatch(r"load (\S+) \(epoch \d+\)", maker)
    return maker if named is None else named[1]
