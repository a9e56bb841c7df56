"""What the coordinator adds to a publication on a real engine.

One engine; in every round, in an order that is drawn anew, the coordinator publishes a checkpoint and has it committed,
and the very calls that it made to SGLang are made again by a bare HTTP client. The coordinator's time has, beyond them,
the durable writes, the check of the checkpoint's headers, and its own work.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.engine.cost import IDLE
from benchmarks.spread import Spread
from reef_ref.control import ControlSettings
from reef_ref.coordinator import Coordinator
from reef_ref.engines.checkpoint import read_layout
from reef_ref.engines.http import READS
from reef_ref.engines.interface import Limits, PauseMode
from reef_ref.engines.process import serve
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Answer, Route, Wire
from reef_ref.health import Slots
from reef_ref.markers import MarkerFile
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.testing.tiny_model import TinyShape
from reef_ref.testing.trainer import WrittenTrainer
from reef_ref.training import Job, Trained

__all__ = ["GOAL", "Publishing", "measure_publishing"]

GOAL = 1.05
"""How many times as long as the bare calls a publication may take."""
CALL_S = 120.0
SHAPE = TinyShape(hidden_size=2048, intermediate_size=5632, layers=8)
"""Large enough that bytes are moved, as in any publication that somebody waits for."""


@dataclass(frozen=True)
class Publishing:
    """Typical milliseconds of publishing `megabytes` by the coordinator, and of the bare `calls` that it makes."""

    megabytes: float
    calls: int
    coordinator_ms: float
    bare_ms: float
    of_bare: Spread

    @property
    def within_goal(self) -> bool:
        """Whether the median keeps to `GOAL`."""
        return self.of_bare.median <= GOAL


Call = tuple[Route, Mapping[str, Any] | None]


class _Recorded:
    """A wire that keeps what was asked."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.calls: list[Call] = []

    @property
    def address(self) -> str:
        return self._wire.address

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        self.calls.append((route, body))
        return await self._wire.call(route, body, bound_s)

    async def close(self) -> None:
        await self._wire.close()


async def measure_publishing(folder: Path, rounds: int, say: Callable[[str], None]) -> Publishing:
    """Publish by the coordinator and bare, as often as there are rounds."""
    models = Models(folder, SHAPE)
    megabytes = read_layout(models.checkpoint(1)).size / 1e6
    configuration = EngineConfiguration(provenance="report", extra=IDLE)
    async with serve(configuration.settings(models, None)) as server:
        wire = _Recorded(server.engine.wire)
        engine = SGLangEngine(wire, limits=Limits(), layout=server.engine.layout)
        place = folder / "marker"
        place.mkdir()
        with MarkerFile(place) as marker:
            coordinator = Coordinator(
                slots=Slots([engine]),
                settings=ControlSettings(pause_mode=PauseMode.RETRACT, owned=False),
                marker=marker,
                trainer=WrittenTrainer(models.checkpoint(1), models.checkpoint(2)),
                initial=Trained(models.checkpoint(1)),
            )
            await coordinator.start()
            order = random.Random(0)
            times: dict[str, list[float]] = {"coordinator": [], "bare": []}
            async with httpx.AsyncClient(base_url=wire.address, timeout=CALL_S, trust_env=False) as client:
                for number in range(rounds + 1):  # The first is to warm up, and to learn the calls.
                    say(f"a publication: round {number} of {rounds}")
                    await coordinator.train(Job(job=f"job-{number}", rollout=number))
                    for way in ("coordinator", "bare") if number == 0 else order.sample(list(times), len(times)):
                        if way == "coordinator":
                            wire.calls.clear()
                            seconds = await _by_coordinator(coordinator, f"job-{number}")
                        else:
                            seconds = await _bare(client, list(wire.calls))
                        if number > 0:
                            times[way].append(seconds)
        return Publishing(
            megabytes=megabytes,
            calls=len(wire.calls),
            coordinator_ms=1000 * statistics.median(times["coordinator"]),
            bare_ms=1000 * statistics.median(times["bare"]),
            of_bare=Spread.of([ours / bare for ours, bare in zip(times["coordinator"], times["bare"], strict=True)]),
        )


async def _by_coordinator(coordinator: Coordinator, job: str) -> float:
    started = time.perf_counter()
    await coordinator.publish(job)
    await coordinator.acknowledge(job)
    return time.perf_counter() - started


async def _bare(client: httpx.AsyncClient, calls: list[Call]) -> float:
    started = time.perf_counter()
    for route, body in calls:
        method = "GET" if route in READS else "POST"
        response = await client.request(method, f"/{route.value}", json=body)
        response.raise_for_status()
    return time.perf_counter() - started
