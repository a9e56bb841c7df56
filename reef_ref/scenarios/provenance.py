"""What the plugin inside the engine saw: its verdict and counters, and the stale hits in its event file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Route
from reef_ref.scenarios.stage import Stage, Subject

__all__ = ["StaleHit", "check_no_stale_hit", "named_stale_hits", "read_counters", "read_stale_hits"]

ASK_S = 30.0
EVENTS_S = 10.0
POLL_S = 0.05
KINDS = ("stale_prefix", "stale_adoption")
FOUND = ("stale_prefixes", "recomputed", "stale_adoptions")
"""The counters that have one event each for every increment."""


@dataclass(frozen=True, slots=True)
class StaleHit:
    """A request that would reuse `stale` of `reused` KV slots although other loads than the serving one wrote them."""

    request: str
    reused: int
    stale: int
    slots: tuple[int, ...]
    """The first few stale slots."""
    written_by: tuple[str, ...]
    serving: str
    action: str
    """`reported`, `recomputed` or `refused`."""


async def read_stale_hits(subject: Subject) -> list[StaleHit]:
    """Every stale hit that rank 0 of the engine has counted so far; see `named_stale_hits`."""
    return await named_stale_hits(subject.engine, subject.events)


async def named_stale_hits(engine: SGLangEngine, events: Path) -> list[StaleHit]:
    """Every stale hit that rank 0 of the engine has counted so far, as its event file tells them.

    Events are written behind the scheduler's back: wait, bounded, until the file holds as many as the counters say.
    Raises `TimeoutError` if it never does.
    """
    counters = await read_counters(engine)
    expected = sum(counters[name] for name in FOUND)
    async with asyncio.timeout(EVENTS_S):
        while len(hits := _hits_in_file(events)) < expected:
            await asyncio.sleep(POLL_S)
    return hits


async def read_counters(engine: SGLangEngine) -> Mapping[str, int]:
    """What provenance in rank 0 of the engine has counted since it started."""
    return dict((await _state(engine))["provenance"]["counters"])


def _hits_in_file(path: Path) -> list[StaleHit]:
    if not path.exists():
        return []
    complete, _, _ = path.read_text().rpartition("\n")
    events = [json.loads(line) for line in complete.splitlines()]
    return [
        StaleHit(
            request=event["request"],
            reused=event["reused"],
            stale=event["stale"],
            slots=tuple(entry["slot"] for entry in event["slots"]),
            written_by=tuple(event["written_by"]),
            serving=event["serving"],
            action=event["action"],
        )
        for event in events
        if event["event"] in KINDS and event["rank"] == 0
    ]


async def check_no_stale_hit(stage: Stage, subject: Subject, *, least_checked: int = 0) -> None:
    """Provenance was at work, has checked at least so many reused prefixes, and found none stale."""
    state = await _state(subject.engine)
    stage.equal("hooks verified by exercise, problems", state["problems"], [])
    counters = state["provenance"]["counters"]
    stage.at_least("reused prefixes checked", counters["prefixes_checked"], least_checked)
    stage.equal("stale hits", sum(counters[name] for name in FOUND), 0)
    stage.equal("events dropped", state["events"]["dropped"] + state["events"]["failed"], 0)


async def _state(engine: SGLangEngine) -> dict[str, Any]:
    answer = await engine.wire.call(Route.SERVER_INFO, None, ASK_S)
    state = answer.body["internal_states"][0].get("reef_ref")
    if state is None:
        message = f"{engine.address}: the plugin is not at work in this engine"
        raise RuntimeError(message)
    return dict(state)
