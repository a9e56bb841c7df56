"""The coordinator over two real engines, which it starts and ends, with everything that is told kept as a trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reef_ref import events
from reef_ref.control import Bounds, ControlSettings, Launcher
from reef_ref.coordinator import Coordinator
from reef_ref.engines.interface import Generation, PauseMode, Request
from reef_ref.engines.launcher import ServerLauncher
from reef_ref.engines.ray import RayEngine
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Route
from reef_ref.health import Slots
from reef_ref.markers import MarkerFile, Status
from reef_ref.monitor.validate import Report, validate
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt
from reef_ref.testing.trainer import WrittenTrainer
from reef_ref.training import Job, Trained

ENGINES = 2
PAUSE_S = 6.0
ASK_S = 30.0
BOUNDS = Bounds(pause_s=PAUSE_S)
PROBE = Request(input_ids=prompt(1, 400), max_new_tokens=16)
ACROSS = Request(input_ids=prompt(2, 100), max_new_tokens=800)
CONFIGURATION = EngineConfiguration(provenance="report")
IN_PROCESS = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "dtype": "float32",
    "max_total_tokens": 60000,
    "mem_fraction_static": 0.5,
    "weight_version": "engine:1",
    "enable_memory_saver": True,
    "enable_lora": True,
    "lora_backend": "torch_native",
    "log_level": "error",
}
"""Arguments of an `sglang.Engine` in a process of the tests, but for its model and adapters."""


def trainer(models: Models) -> WrittenTrainer:
    """Even jobs leave checkpoint 2, odd ones checkpoint 1."""
    return WrittenTrainer(models.checkpoint(2), models.checkpoint(1))


@dataclass
class Deployment:
    """A living coordinator, its engines and its trace; `watch` is called with each event before it is kept."""

    models: Models
    launcher: Any
    slots: Slots
    coordinator: Coordinator
    lines: list[events.Line]
    tell_service: events.Teller
    watch: list[Callable[[events.Event], None]] = field(default_factory=list)

    def engine(self, slot: int) -> SGLangEngine | RayEngine:
        """The engine in a slot."""
        engine = self.slots[slot]
        assert isinstance(engine, SGLangEngine | RayEngine)
        return engine

    async def train(self, number: int) -> str:
        """Train job `number`, and answer its name."""
        job = f"job-{number}"
        await self.coordinator.train(Job(job=job, rollout=number))
        return job

    async def commit(self, job: str) -> None:
        """Move the service's head, and acknowledge."""
        assert self.coordinator.record is not None
        self.tell_service(events.CommitHead, str(self.coordinator.record.load_id))
        await self.coordinator.acknowledge(job)

    @property
    def status(self) -> Status | None:
        """The record's status."""
        return None if self.coordinator.record is None else self.coordinator.record.status

    async def probe(self) -> set[tuple[int, ...]]:
        """What all engines answer to `PROBE`, asked twice, so that the second answer comes from a reused prefix."""
        answers = set()
        for slot in self.slots.live:
            first = await self.engine(slot).generate(PROBE)
            second = await self.engine(slot).generate(PROBE)
            assert second.cached_tokens == len(PROBE.input_ids) - 1
            answers |= {first.output_ids, second.output_ids}
        return answers

    async def in_flight(self) -> list[asyncio.Task[Generation]]:
        """One long request on each engine, which has begun."""
        tasks = [asyncio.create_task(self.engine(slot).generate(ACROSS)) for slot in self.slots.live]
        await asyncio.sleep(1.0)
        assert not any(task.done() for task in tasks), "requests were over before anything was done to them"
        return tasks

    async def publish_across(self, number: int) -> None:
        """Publish a job while requests are in flight: each is answered in full, first by the old load, then the new."""
        old = str(self.coordinator.served.load_id)
        across = await self.in_flight()
        job = await self.train(number)
        load_id = await self.coordinator.publish(job)
        assert not any(task.done() for task in across), "engines wait for the commit"
        await self.commit(job)
        for answer in await asyncio.gather(*across):
            assert len(answer.output_ids) == ACROSS.max_new_tokens
            assert [answer.spans[0].load_id, answer.spans[-1].load_id] == [old, str(load_id)]

    async def stale_prefixes(self) -> list[int]:
        """What the plugin of each engine has counted."""
        counts = []
        for slot in self.slots.live:
            answer = await self.engine(slot).wire.call(Route.SERVER_INFO, None, ASK_S)
            counters = answer.body["internal_states"][0]["reef_ref"]["provenance"]["counters"]
            assert counters["prefixes_checked"] > 0
            counts.append(counters["stale_prefixes"])
        return counts

    def validated(self) -> Report:
        """The trace so far, held against the protocol."""
        return validate((line.to_json().encode() + b"\n" for line in self.lines), engines=ENGINES)


@asynccontextmanager
async def deployed(folder: Path) -> AsyncIterator[Deployment]:
    """Two servers on checkpoint 1, and a coordinator that has made sure of it."""
    models = Models(folder / "models")
    models.checkpoint(1)
    models.checkpoint(2)
    async with (
        ServerLauncher(lambda _: CONFIGURATION.settings(models, None)) as launcher,
        coordinated(folder, models, launcher) as deployment,
    ):
        yield deployment


@asynccontextmanager
async def coordinated(folder: Path, models: Models, launcher: Launcher) -> AsyncIterator[Deployment]:
    """The engines that a launcher starts, and a coordinator over them; who ends them is the launcher's business."""
    (folder / "marker").mkdir()
    lines: list[events.Line] = []
    watch: list[Callable[[events.Event], None]] = []

    def listen(line: events.Line) -> None:
        lines.append(line)
        for look in watch:
            look(line.event)

    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(launcher.start(slot)) for slot in range(ENGINES)]
    slots = Slots([start.result() for start in starts])
    with MarkerFile(folder / "marker") as marker:
        coordinator = Coordinator(
            slots=slots,
            settings=ControlSettings(pause_mode=PauseMode.RETRACT, bounds=BOUNDS),
            marker=marker,
            trainer=trainer(models),
            initial=Trained(models.checkpoint(1)),
            launcher=launcher,
            listener=listen,
        )
        tell_service = events.Teller("service", listen, clock=time.monotonic)
        await coordinator.start()
        yield Deployment(models, launcher, slots, coordinator, lines, tell_service, watch)
