"""Two real engines, a coordinator that may die and live again, and a service that drives it to the end of every job.

A life of the coordinator ends inside this process: from that moment on nothing that it does reaches an engine, the disk
or the monitor, as if its process had been killed. What it had begun is as a kill would leave it.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import socket
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from benchmarks.soak.meddling import Life, MeddledWire, Meddling
from reef_ref import events
from reef_ref.control import Bounds, ControlSettings
from reef_ref.coordinator import Coordinator
from reef_ref.engines.checkpoint import CheckpointLayout, read_layout
from reef_ref.engines.errors import EngineError
from reef_ref.engines.http import HttpWire
from reef_ref.engines.interface import Limits, PauseMode
from reef_ref.engines.launcher import ServerLauncher
from reef_ref.engines.process import ServerSettings
from reef_ref.engines.processes import end_session
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Wire
from reef_ref.health import HealthMonitor, MonitorSettings, Slots
from reef_ref.load_id import LoadId
from reef_ref.markers import MarkerFile, Status
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.testing.trainer import WrittenTrainer
from reef_ref.training import Job, Trained

__all__ = ["CHECKPOINTS", "ENGINES", "Stage", "Unsettled", "client", "fixed_ports", "staged"]

ENGINES = 2
CHECKPOINTS = (1, 2)
"""Their numbers; a job of an even number leaves the second."""
BOUNDS = Bounds(pause_s=12.0, flush_s=60.0, start_s=240.0, update_s=60.0, report_s=30.0, continue_s=30.0)
LIMITS = Limits(generate_s=400.0, flush_total_s=50.0)
PATIENCE = 12
"""Tries that a service makes to settle one job."""
KEPT_LOADS = 200
PORTS = range(20000, 32000)
"""Below those that the system gives to whoever connects, so that an engine finds its own free again."""


class Unsettled(RuntimeError):  # noqa: N818  The name says what a job is.
    """A job could not be brought to its end."""


def fixed_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on."""
    found: list[int] = []
    draw = random.Random()
    while len(found) < count:
        port = draw.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


class Stage:
    """See the module; made by `staged`. `watch` is called with every event of a living coordinator."""

    def __init__(self, folder: Path, models: Models, launcher: ServerLauncher, outlet: events.EventOutlet) -> None:
        self.models = models
        self.meddling = [Meddling() for _ in range(ENGINES)]
        self.slots = Slots([None] * ENGINES)
        self.coordinator: Coordinator | None = None
        self.watch: list[Callable[[events.Event], None]] = []
        self.published = 0
        self.attempts = 0
        """The most that one job needed."""
        self.failures: OrderedDict[str, int] = OrderedDict()
        """What operations failed with, and how often."""
        self.content: OrderedDict[str, int] = OrderedDict()
        """Which checkpoint each load is of."""
        self._folder = folder / "marker"
        self._folder.mkdir()
        self._launcher = launcher
        self._outlet = outlet
        self._wires: list[Wire | None] = [None] * ENGINES
        self._layout: CheckpointLayout = read_layout(models.checkpoint(1))
        self._life = Life(alive=False)
        self._lives = 0
        self._job = 0
        self._head: str | None = None
        self._marker: MarkerFile | None = None
        self._monitor: HealthMonitor | None = None
        self._task: asyncio.Task[object] | None = None
        self._tell_service = events.Teller("service", outlet, clock=time.monotonic)
        self._tell_deployment = events.Teller("deployment", outlet, clock=time.monotonic)

    # Engines

    async def start(self, slot: int) -> SGLangEngine:
        """The coordinator's launcher."""
        life = self._life
        engine = await self._launcher.start(slot)
        self._wires[slot] = engine.wire
        if not life.alive:
            await engine.shut_down()
            raise EngineError("the coordinator is dead")
        return self._handle(slot, life)

    def _handle(self, slot: int, life: Life) -> SGLangEngine:
        wire = self._wires[slot]
        assert wire is not None
        return SGLangEngine(MeddledWire(wire, self.meddling[slot], life), limits=LIMITS, layout=self._layout)

    def kill(self, slot: int) -> None:
        """SIGKILL to every process of an engine."""
        if left := end_session(self._launcher.server(slot).pid):
            message = f"processes {left} of engine {slot} are still there"
            raise RuntimeError(message)
        self._tell_deployment(events.Die, slot, ())

    def runs(self, slot: int) -> bool:
        """Whether an engine's processes are there."""
        return self._wires[slot] is not None and bool(self._launcher.server(slot).processes())

    # Lives

    def _listen(self, life: Life) -> events.Listener:
        def listen(line: events.Line) -> None:
            if life.alive:
                self._outlet(line)
                for look in list(self.watch):
                    look(line.event)

        return listen

    async def begin_life(self) -> str | None:
        """A new coordinator over the engines that are there, from its marker; what it failed with, if it did."""
        self._life = life = Life()
        self._lives += 1
        self._marker = MarkerFile(self._folder)
        living = [slot for slot in range(ENGINES) if self.runs(slot)]
        self.slots = Slots([self._handle(slot, life) if slot in living else None for slot in range(ENGINES)])
        listener, incarnation = self._listen(life), f"life{self._lives}"
        self._monitor = HealthMonitor(
            self.slots,
            MonitorSettings(probe_s=20.0),
            tell=events.Teller(f"health:{incarnation}", listener, clock=time.monotonic),
        )
        self.coordinator = Coordinator(
            slots=self.slots,
            settings=ControlSettings(pause_mode=PauseMode.RETRACT, bounds=BOUNDS),
            marker=_LivesMarker(self._marker, life),
            trainer=WrittenTrainer(*(self.models.checkpoint(number) for number in reversed(CHECKPOINTS))),
            initial=Trained(self.models.checkpoint(CHECKPOINTS[0])),
            launcher=self,
            monitor=self._monitor,
            incarnation=incarnation,
            listener=listener,
        )
        return await self.do(self.coordinator.start)

    def die(self) -> None:
        """The coordinator is dead from this very moment on."""
        if self._life.alive:
            self._life.alive = False
            if self._task is not None:
                self._task.cancel()

    async def end_life(self) -> None:
        """As `die`, where nothing is under way."""
        self.die()
        await self._bury()

    async def _bury(self) -> None:
        if self.coordinator is not None:
            self.coordinator = None
            self._tell_deployment(events.Crash)
        if self._marker is not None:
            await asyncio.to_thread(self._marker.close)
            self._marker = None

    async def do(self, operation: Callable[[], Awaitable[object]]) -> str | None:
        """Do one thing with the coordinator; what it failed with, in words, or none."""

        async def run() -> object:
            return await operation()

        self._task = asyncio.create_task(run())
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        if not self._life.alive:
            await self._bury()
            return "the coordinator died"
        error = task.exception() if not task.cancelled() else asyncio.CancelledError()
        if error is None:
            if self.coordinator is not None and self.coordinator.record is None:
                self._name(str(self.coordinator.served.load_id), CHECKPOINTS[0])
            return None
        if not isinstance(error, Exception):
            raise error
        name = type(error).__name__
        self.failures[name] = self.failures.get(name, 0) + 1
        return f"{name}: {error}"

    # The service

    def _name(self, load_id: str, checkpoint: int) -> None:
        self.content[load_id] = checkpoint
        if len(self.content) > KEPT_LOADS:
            self.content.popitem(last=False)

    @property
    def checkpoint(self) -> int:
        """The number of the checkpoint that is served, or was before what is under way."""
        assert self.coordinator is not None
        return self.content[str(self.coordinator.served.load_id)]

    async def publish(self) -> None:
        """One more job, from training to its end, whatever happens on the way. Raises `Unsettled`."""
        await self.settle()
        assert self.coordinator is not None
        self._job += 1
        job, coordinator = Job(job=f"job-{self._job}", rollout=self._job), self.coordinator
        if error := await self.do(lambda: coordinator.train(job)):
            raise Unsettled(f"{job.job} was not trained: {error}")
        await self.settle()
        self.published += 1

    async def settle(self) -> None:
        """Bring the newest job to its end, and engines to serving. Raises `Unsettled`."""
        errors: list[str] = []
        for attempt in range(PATIENCE):
            self.attempts = max(self.attempts, attempt)
            if self.coordinator is None:
                error = await self.begin_life()
            elif await self._settled(self.coordinator):
                return
            else:
                error = await self._next(self.coordinator)
            if error is not None:
                errors.append(error)
                await asyncio.sleep(0.2)
        message = f"not settled after {PATIENCE} tries: {'; '.join(errors[-3:])}"
        raise Unsettled(message)

    async def _settled(self, coordinator: Coordinator) -> bool:
        assert self._monitor is not None
        await self._monitor.look()
        health = coordinator.health()
        done = health.status in {None, Status.COMPLETE, Status.REJECTED}
        return done and health.ok and not health.empty_slots and not coordinator.latched

    async def _next(self, coordinator: Coordinator) -> str | None:
        health, record = coordinator.health(), coordinator.record
        if not health.ok and not health.recoverable:
            await self.end_life()
            return f"a new life is needed: {health.phase}"
        match health.status:
            case Status.CHECKPOINT | Status.UPDATING_WEIGHTS:
                assert record is not None
                return await self.do(lambda: coordinator.publish(record.job))
            case Status.READY_TO_COMMIT | Status.HEAD_COMMITTED if health.ok:
                assert record is not None
                load_id = str(record.load_id)
                if load_id != self._head:
                    self._head = load_id
                    self._name(load_id, CHECKPOINTS[(record.rollout + 1) % len(CHECKPOINTS)])
                    self._tell_service(events.CommitHead, load_id)
                error = await self.do(lambda: coordinator.acknowledge(record.job))
                if error is None or self.coordinator is None:
                    return error
                # An engine may be gone, or not have continued: only what is established again can be let go on.
                return await self.do(lambda: coordinator.republish(LoadId.parse(load_id))) or error
            case _:
                return await self.do(lambda: coordinator.republish(LoadId.parse(health.load_id)))

    async def republish(self) -> None:
        """Establish again what is served. Raises `Unsettled`."""
        coordinator = self.coordinator
        if coordinator is not None and coordinator.health().ok:
            await self.do(lambda: coordinator.republish(coordinator.served.load_id))
        await self.settle()

    @contextmanager
    def after(self, name: str, do: Callable[[], None]) -> Iterator[None]:
        """Do something right after the next event of a name; at most once."""

        def look(event: events.Event) -> None:
            if event.name() == name:
                self.watch.remove(look)
                do()

        self.watch.append(look)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):
                self.watch.remove(look)


class _LivesMarker:
    """The marker, as long as its life lasts."""

    def __init__(self, file: MarkerFile, life: Life) -> None:
        self._file = file
        self._life = life

    async def read(self) -> bytes | None:
        self._need_life()
        return await self._file.read()

    async def replace(self, data: bytes) -> None:
        self._need_life()
        await self._file.replace(data)

    def _need_life(self) -> None:
        if not self._life.alive:
            raise OSError("the coordinator is dead")


@asynccontextmanager
async def staged(folder: Path, socket_path: Path, ports: list[int]) -> AsyncIterator[Stage]:
    """Two engines on the first checkpoint, and a coordinator that has made sure of it; all of it ended afterwards."""
    models = Models(folder / "models")
    for number in CHECKPOINTS:
        await asyncio.to_thread(models.checkpoint, number)
    (folder / "stage").mkdir()

    def settings(slot: int) -> ServerSettings:
        plain = EngineConfiguration(extra=("--sleep-on-idle",)).settings(models, None)
        told = {"REEF_REF_EVENTS": f"unix:{socket_path}", "REEF_REF_ENGINE": str(slot)}
        return dataclasses.replace(plain, port=ports[slot], environment={**plain.environment, **told}, limits=LIMITS)

    outlet = events.EventOutlet(f"unix:{socket_path}")
    try:
        async with ServerLauncher(settings) as launcher:
            stage = Stage(folder / "stage", models, launcher, outlet)
            stage._life = Life()
            async with asyncio.TaskGroup() as group:
                for slot in range(ENGINES):
                    group.create_task(stage.start(slot))
            try:
                if error := await stage.begin_life():
                    raise Unsettled(error)
                yield stage
            finally:
                await stage.end_life()
    finally:
        await asyncio.to_thread(outlet.close)


def client(address: str, layout: CheckpointLayout) -> SGLangEngine:
    """An engine's own address, for whoever sends requests: no coordinator is between."""
    return SGLangEngine(HttpWire(address, connect_s=2.0), limits=LIMITS, layout=layout)
