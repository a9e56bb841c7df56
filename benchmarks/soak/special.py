"""Violations that need more than the usual deployment: an engine of their own, lost events, or a rebuilt engine."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.soak.acts import POLICY, VICTIM
from benchmarks.soak.clients import PROBE, PROMPTS, request
from benchmarks.soak.inject import NOTICE_S, REST_S, Injector, Outcome, known_again, outcome, strongest
from benchmarks.soak.meddling import swallow
from benchmarks.soak.relay import Relay
from benchmarks.soak.stage import fixed_ports
from benchmarks.soak.watcher import Watcher
from reef_ref.engines.interface import Request
from reef_ref.engines.process import Server, serve
from reef_ref.engines.wire import Route
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.testing.altered import FORGETFUL, altered

__all__ = ["another_adapters_kv", "lost_events", "provenance_off", "unfenced_replacement"]

BEAT_S = 20.0
"""Longer than a rank is silent."""


async def lost_events(injector: Injector) -> Outcome:
    """What a rank told of a stale hit is lost on the way: its engine becomes unknown, and is not called fresh."""
    relay, watcher, field = injector.relay, injector.watcher, injector.field
    assert relay is not None
    faults: list[str] = []
    told = watcher.told
    lost = relay.lost
    relay.loses = lambda line: line.get("engine") == VICTIM and "pid" in line and line["event"] != "beat"
    began = time.monotonic()
    try:
        await field.ask()
        await field.pause()
        await field.update()
        await field.resume()
        await field.ask()
    finally:
        await asyncio.sleep(0.5)  # What was told is on its way.
        relay.loses = lambda _: False
    fresh_for = 0.0
    freshness = "fresh"
    while time.monotonic() - began < BEAT_S:
        freshness = (await watcher.status())["engines"][str(VICTIM)]["freshness"]
        if freshness != "fresh":
            break
        fresh_for = time.monotonic() - began
        await asyncio.sleep(0.2)
    if freshness != "unknown":
        faults.append(f"after the loss it is {freshness} (still fresh {fresh_for:.1f} s after the act)")
    if watcher.told != told:
        faults.append("something was found in what was not seen")
    seconds = time.monotonic() - began
    await field.stage.publish()
    faults += await known_again(watcher, field)
    property_ = "unknown, not fresh" if freshness == "unknown" else None
    return Outcome("a rank's events are lost", "the way", property_, relay.lost - lost, seconds, "none", tuple(faults))


async def unfenced_replacement(injector: Injector) -> Outcome:
    """An engine is killed; the one that replaces it serves a request, and says that it was fenced, and was not."""
    field, watcher, stage = injector.field, injector.watcher, injector.field.stage
    faults: list[str] = []
    stage.kill(VICTIM)
    rules = stage.meddling[VICTIM].rules

    lied: list[float] = []

    def fenced_no_more() -> None:
        lied.append(time.monotonic())
        rules.update({Route.PAUSE: swallow, Route.FLUSH: swallow})

    began = time.monotonic()
    try:
        with stage.after("all_rebuilt", fenced_no_more):
            await stage.settle()
    finally:
        rules.clear()
    await field.ask()
    seen = await watcher.found(began, {"bytes_arrive_in_a_pause"}, NOTICE_S)
    if not await watcher.at_rest(REST_S):
        faults.append("the monitor's reaction did not end")
    reaction = injector._reaction(began)
    await stage.publish()
    faults += await known_again(watcher, field)
    for slot in range(len(injector.engines)):
        faults += await injector._wrong(slot)
    name = "a replacement that was not fenced"
    return outcome(
        name,
        "coordinator",
        seen,
        began=lied[0] if lied else began,
        reaction=reaction,
        faults=faults,
        relay=injector.relay,
        last={},
    )


async def provenance_off(folder: Path, models: Models) -> Outcome:
    """An engine shares prefixes, and nobody looks at what is reused."""
    port = fixed_ports(1)[0]
    folder.mkdir()
    async with _Watched(folder, port) as watched:
        began = time.monotonic()
        settings = watched.told(EngineConfiguration(provenance="off"), models, port)
        async with serve(settings) as server:
            await watched.watcher.found(began, {"provenance_is_watched"}, NOTICE_S)
            freshness = (await watched.watcher.status())["engines"]["0"]["freshness"]
            faults = [] if freshness == "unknown" else [f"the engine is called {freshness}"]
            answer = await server.engine.generate(request(PROBE))
            faults += [] if answer.output_ids else ["the engine does not serve"]
        told = min(watched.relay.passed.values(), default=began)
        return watched.outcome("provenance off while sharing", "provenance_is_watched", told, faults, {})


async def another_adapters_kv(folder: Path, models: Models) -> Outcome:
    """An SGLang whose cache keys forget the adapter: one adapter's KV is reused for another's request."""
    port = fixed_ports(1)[0]
    folder.mkdir()
    async with _Watched(folder, port) as watched:
        plain = watched.told(EngineConfiguration(adapters=("A", "B")), models, port)
        changed = altered(folder / "altered", "sglang.srt.managers.schedule_batch", FORGETFUL)
        settings = dataclasses.replace(plain, environment={**plain.environment, **changed})
        async with serve(settings) as server:
            right = await _asked(server, "B")
            await server.engine.flush()
            await _asked(server, "A")
            last = dict(watched.relay.last)
            began = time.monotonic()
            await _asked(server, "B")
            await watched.watcher.found(began, {"adapters_are_apart"}, NOTICE_S)
            faults = [] if await watched.watcher.at_rest(REST_S) else ["the monitor's reaction did not end"]
            told = watched.watcher.told
            after = [await _asked(server, "B"), await _asked(server, "B")]
            status = await watched.watcher.status()
            if after != [right, right]:
                faults.append("after the reaction the engine answers wrongly")
            if status["engines"]["0"]["freshness"] != "fresh" or watched.watcher.told != told:
                faults.append("after the reaction the engine is not fresh")
        return watched.outcome("another adapter's KV", "adapters_are_apart", began, faults, last)


async def _asked(server: Server, adapter: str) -> tuple[int, ...]:
    answer = await server.engine.generate(Request(input_ids=PROMPTS[PROBE], max_new_tokens=8, adapter=adapter))
    return answer.output_ids


class _Watched:
    """A monitor and a relay for one engine."""

    def __init__(self, folder: Path, port: int) -> None:
        self._inner, self._outer = folder / "monitor", folder / "relay"
        self.watcher = Watcher(1, self._inner, {0: f"http://127.0.0.1:{port}"}, POLICY)

    async def __aenter__(self) -> _Watched:
        await self.watcher.start()
        self._between = Relay.between(self._outer, self._inner)
        self.relay = await self._between.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._between.__aexit__(None, None, None)
        await self.watcher.stop()

    def told(self, configuration: EngineConfiguration, models: Models, port: int) -> Any:
        """The settings of an engine that tells its monitor."""
        plain = configuration.settings(models, None)
        told = {"REEF_REF_EVENTS": f"unix:{self._outer}", "REEF_REF_ENGINE": "0"}
        return dataclasses.replace(plain, port=port, environment={**plain.environment, **told})

    def outcome(self, name: str, shows: str, began: float, faults: list[str], last: Mapping[str, int]) -> Outcome:
        """What came of it."""
        seen = next((one for one in self.watcher.violations if one.property == shows and one.at >= began), None)
        reaction = strongest(one for one in self.watcher.reactions if one.at >= began)
        also = [v.why for v in self.watcher.violations if v.property not in {shows}]
        faults = [*faults, *(f"also: {why}" for why in also)]
        return outcome(name, "engine", seen, began=began, reaction=reaction, faults=faults, relay=self.relay, last=last)
