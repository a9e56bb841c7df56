"""Injects one violation, and says what came of it: who noticed what, how fast, what was done, and what lived on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from benchmarks.soak.acts import VICTIM, Act, Field
from benchmarks.soak.clients import PROBE, Answers, request
from benchmarks.soak.relay import Relay
from benchmarks.soak.stage import Unsettled
from benchmarks.soak.watcher import Reaction, Seen, Watcher
from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import Generation
from reef_ref.engines.sglang_engine import SGLangEngine

__all__ = ["Injector", "Outcome", "known_again", "outcome", "strongest"]

NOTICE_S = 60.0
REST_S = 90.0
CONSEQUENCES_S = 0.5
"""How long it is waited for what follows: another request may meet what was left."""
FAILURES = (EngineError, Unsettled, httpx.HTTPError, RuntimeError)
"""What doing something wrong may fail with: that is told, and the others are still injected."""
LONG = 5
"""The prompt of requests that are in flight."""
LONG_TOKENS = 120
FLIGHT_S = 180.0
ROUNDS = 3
"""Publications after which everything must be known again."""


@dataclass(frozen=True)
class Outcome:
    """What came of an act.

    Attributes:
        act, by: its name, and by whom.
        property: what was found violated; none: it was missed.
        events: events of the source from the beginning of the act to the one that shows it, that one included; none
            where nobody counted.
        seconds: from the beginning of the act to the monitor's line.
        lag: seconds from the event that shows it, as it passed on its way to the monitor, to the monitor's line; none
            where nobody looked.
        reaction: what the monitor did.
        faults: what was not as it must be.
    """

    act: str
    by: str
    property: str | None
    events: int | None
    seconds: float
    reaction: str
    faults: tuple[str, ...] = ()
    lag: float | None = None


@dataclass
class Injector:
    """Injects into one deployment that its monitor watches; `relay` counts events, where there is one."""

    field: Field
    watcher: Watcher
    engines: Sequence[SGLangEngine]
    answers: Answers
    relay: Relay | None = None

    async def inject(self, act: Act, *, in_flight: bool = True) -> Outcome:
        """Do it, see what is noticed and done, and bring the deployment back to where it was."""
        faults: list[str] = []
        flight = await self._in_flight() if in_flight else []
        last = dict(self.relay.last) if self.relay is not None else {}
        began = time.monotonic()
        try:
            await act.do(self.field)
        except FAILURES as error:
            faults.append(f"it could not be done: {type(error).__name__}: {error}")
        seen = await self.watcher.found(began, {act.shows}, NOTICE_S)
        for _ in range(2):
            if not await self.watcher.at_rest(REST_S):
                faults.append("the monitor's reaction did not end")
            await asyncio.sleep(CONSEQUENCES_S)
        reaction = self._reaction(began)
        while self.field.afterwards:
            await self.field.afterwards.pop()()
        if act.alone and seen is not None:
            faults += [f"after the reaction alone: {fault}" for fault in await self._wrong(VICTIM)]
        await self.field.stage.publish()
        faults += await self._landed(flight)
        faults += await known_again(self.watcher, self.field)
        for slot in range(len(self.engines)):
            faults += await self._wrong(slot)
        allowed = {act.shows, *act.follows}
        faults += [f"also: {v.why}" for v in self.watcher.violations if v.at >= began and v.property not in allowed]
        return outcome(
            act.name, act.by, seen, began=began, reaction=reaction, faults=faults, relay=self.relay, last=last
        )

    def _reaction(self, since: float) -> str:
        return strongest(one for one in self.watcher.reactions if one.at >= since)

    async def _in_flight(self) -> list[asyncio.Task[Generation]]:
        tasks = [asyncio.create_task(engine.generate(request(LONG, LONG_TOKENS))) for engine in self.engines]
        await asyncio.sleep(0.3)
        return tasks

    async def _landed(self, flight: list[asyncio.Task[Generation]]) -> list[str]:
        """Requests that were there before must be answered, in full."""
        faults = []
        for task in flight:
            try:
                async with asyncio.timeout(FLIGHT_S):
                    answer = await task
            except (TimeoutError, EngineError) as error:
                faults.append(f"a request in flight was lost: {error or type(error).__name__}")
            else:
                if len(answer.output_ids) != LONG_TOKENS:
                    faults.append(f"a request in flight got {len(answer.output_ids)} of {LONG_TOKENS} tokens")
        return faults

    async def _wrong(self, slot: int) -> list[str]:
        """What is wrong with an engine: twice the same question, the second time from a reused prefix."""
        told = self.watcher.told
        found = [await self.engines[slot].generate(request(PROBE)) for _ in range(2)]
        status = await self.watcher.status()
        faults = []
        if not all(self.answers.right(answer, PROBE, self.field.stage.content) for answer in found):
            faults.append(f"engine {slot} answers wrongly")
        if not found[1].cached_tokens:
            faults.append(f"engine {slot} reuses nothing")
        if (fresh := status["engines"][str(slot)])["freshness"] != "fresh":
            faults.append(f"engine {slot} is {fresh['freshness']}: {fresh['why']}")
        if self.watcher.told != told:
            faults.append(f"engine {slot}: {self.watcher.violations[-1].why}")
        return faults


def strongest(reactions: Iterable[Reaction]) -> str:
    """The most that was done."""
    order = ("report", "fence", "retire", "halt")
    best = max(reactions, key=lambda one: (one.done, order.index(one.reaction)), default=None)
    return "none" if best is None else best.reaction + ("" if best.done else " failed")


def outcome(
    act: str,
    by: str,
    seen: Seen | None,
    *,
    began: float,
    reaction: str,
    faults: Iterable[str],
    relay: Relay | None,
    last: Mapping[str, int],
) -> Outcome:
    """What came of an act that began at a moment, when the last events of sources had the numbers `last`."""
    if seen is None:
        return Outcome(act, by, None, None, 0.0, reaction, ("missed", *faults))
    events = lag = None
    if relay is not None:
        events = seen.number - last.get(seen.source, 0)
        lag = seen.at - relay.passed[seen.source, seen.number]
    return Outcome(act, by, seen.property, events, seen.at - began, reaction, tuple(faults), lag)


async def known_again(watcher: Watcher, field: Field, engines: Sequence[int] = (0, 1)) -> list[str]:
    """Publish until the monitor knows everything again; what it does not, after `ROUNDS` publications."""
    faults: list[str] = []
    for round_ in range(ROUNDS + 1):
        if round_:
            await field.stage.publish()
        status = await watcher.status()
        faults = [] if status["deployment"] else ["the deployment is not known again"]
        for slot in engines:
            one = status["engines"][str(slot)]
            if one["freshness"] != "fresh":
                faults.append(f"engine {slot} is not known to be fresh again: {one['freshness']}, {one['why']}")
        if not faults:
            return []
    return faults
