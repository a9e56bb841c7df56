"""A whole deployment in one process: coordinator, simulated engines, disk, trainer, service, clients.

Whatever happens is a function of the plan. The invariants are checked where they could break, by looking at the engines
and the disk from outside: when bytes are about to be sent, when an engine is about to generate, when a request is
answered, and when everything has settled.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from reef_ref import events
from reef_ref.control import Bounds, ControlSettings
from reef_ref.coordinator import Coordinator, gate_may_open
from reef_ref.engines.errors import EngineError, EngineStartFailed
from reef_ref.engines.interface import ALL_REGIONS, Continued, Generation, Limits, PauseMode, Region, Request, Update
from reef_ref.engines.simulated import (
    CoordinatorDied,
    Plan,
    Point,
    SimulatedDisk,
    SimulatedEngine,
    SimulatedSettings,
    Weights,
    expected_tokens,
    read_checkpoint,
    write_checkpoint,
)
from reef_ref.engines.simulated.model import Kv, forward
from reef_ref.engines.simulated.scheduler import SchedulerSettings
from reef_ref.health import HealthMonitor, MonitorSettings, Slots
from reef_ref.load_id import LoadId
from reef_ref.markers import Record, Status, decode
from reef_ref.recovery import TrainerEvidence
from reef_ref.training import Job, Trained

BOUNDS = Bounds(
    pause_s=5, flush_s=5, memory_s=5, start_s=5, update_s=5, report_s=5, continue_s=5, retire_s=5, write_s=5
)
HANG_S = 8.0
"""A disk that hangs is back after the bound of a write, and within that of the read that follows."""
PATIENCE = 12
"""How often a service looks what to do next for one job."""
PROMPT = (11, 12, 13, 14, 15)
INITIAL_SEED = 1000
BOOT_SEED = 77

EDGES: Mapping[str | None, frozenset[str]] = {
    None: frozenset({"RUNNING"}),
    "RUNNING": frozenset({"CHECKPOINT", "COMPLETE"}),  # COMPLETE: the restored record of before.
    "CHECKPOINT": frozenset({"UPDATING_WEIGHTS", "REJECTING"}),
    "UPDATING_WEIGHTS": frozenset({"UPDATING_WEIGHTS", "READY_TO_COMMIT"}),
    "READY_TO_COMMIT": frozenset({"HEAD_COMMITTED"}),
    "HEAD_COMMITTED": frozenset({"COMPLETE"}),
    "COMPLETE": frozenset({"RUNNING"}),
    "REJECTING": frozenset({"REJECTED"}),
    "REJECTED": frozenset({"RUNNING"}),
}
"""Which status may follow which on disk: written again here, from section 2.2 of the prose, not imported."""


class Broken(AssertionError):  # noqa: N818  The name says what an invariant is.
    """An invariant does not hold."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What kind of deployment: number of engines, colocated or not, and whether engines outlive their coordinator."""

    engines: int = 1
    colocated: bool = False
    survive: bool = True
    in_place: bool = False
    adapter_slots: int = 0

    def __str__(self) -> str:
        kind = "in place" if self.in_place else "colocated" if self.colocated else "disjoint"
        return f"{self.engines} engine(s), {kind}, engines {'survive' if self.survive else 'go with the coordinator'}"


class Checkpoints:
    """Checkpoint folders by seed, made once and only read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, seed: int) -> Path:
        path = self._folder / str(seed)
        return path if path.is_dir() else write_checkpoint(path, seed)


class WatchedEngine(SimulatedEngine):
    """An engine that asks the world before it changes or continues."""

    world: World

    async def update(self, checkpoint: Path, load_id: str) -> Update:
        self.world.before_bytes(self, read_checkpoint(checkpoint), load_id)
        return await super().update(checkpoint, load_id)

    async def continue_generation(self) -> Continued:
        self.world.before_continue(self)
        return await super().continue_generation()


def warmed_up() -> list[Kv]:
    """The KV of the prompt under the weights that engines boot with."""
    entries: list[Kv] = []
    for token in PROMPT:
        entries.append(forward(entries[-1] if entries else None, token, Weights(BOOT_SEED, "boot")))
    return entries


@dataclass(frozen=True)
class Wish:
    """What the service wants of a job."""

    number: int
    accept: bool = True

    @property
    def job(self) -> str:
        return f"job-{self.number}"

    @property
    def seed(self) -> int:
        return 2000 + self.number


@dataclass
class World:
    """See the module. `lines` is everything that was told, in order."""

    engine_type: ClassVar[type[WatchedEngine]] = WatchedEngine

    checkpoints: Checkpoints
    layout: Layout
    plan: Plan = field(default_factory=Plan)
    lines: list[events.Line] = field(default_factory=list)
    sent: dict[str, set[int]] = field(default_factory=dict)
    """For each load id, the contents that were ever sent under it."""
    head: str | None = None
    """The load id that the service's durable head names."""
    committed: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)
    """Jobs whose training has moved the optimizer."""
    clients: list[tuple[tuple[int, ...], asyncio.Task[Generation]]] = field(default_factory=list)
    coordinator: Coordinator | None = None
    monitor: HealthMonitor | None = None
    lives: int = 0
    attempts: int = 0
    """The most that the service needed for one job."""

    def __post_init__(self) -> None:
        self.slots = Slots([None] * self.layout.engines)
        self.disk = SimulatedDisk(self.plan, hang_s=HANG_S)
        self.made: list[WatchedEngine] = []
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()
        self.tell_service = events.Teller("service", self._listen, clock=self._now)
        self.tell_deployment = events.Teller("deployment", self._listen, clock=self._now)
        self._names = itertools.count()

    def _now(self) -> float:
        return self._clock() - self._start

    def _listen(self, line: events.Line) -> None:
        self.lines.append(line)

    def _listen_while_alive(self, line: events.Line) -> None:
        if not self.plan.dead:
            self.lines.append(line)

    # What the coordinator is given.

    async def start(self, slot: int) -> WatchedEngine:
        """The launcher."""
        fault = self.plan.at(Point("start", slot))
        await asyncio.sleep(0.001)

        def boot() -> WatchedEngine:
            name = f"engine:{slot}:{len(self.made)}"
            engine = self.engine_type(
                slot,
                Weights(BOOT_SEED, "boot"),
                settings=SimulatedSettings(
                    scheduler=SchedulerSettings(chunk=4, share_prefixes=not self.layout.in_place),
                    limits=Limits(flush_total_s=2.0),
                    step_s=0.002,
                ),
                plan=self.plan,
                tell=events.Teller(name, self._listen, clock=self._now),
            )
            engine.world = self
            # SGLang warms up with a request of its own, whose prefix is cached before anybody has loaded anything.
            engine.scheduler.tree.insert(None, warmed_up())
            self.made.append(engine)
            return engine

        def die() -> Exception:
            return EngineStartFailed(f"engine {slot} ended while it started")

        error = EngineStartFailed(f"engine {slot} did not start")
        before = len(self.made)
        try:
            return await self.plan.carry_out(fault, boot, before=error, after=error, die=die)
        except BaseException:
            # A start that fails, or is given up, leaves no engine behind; a deployment sees to that.
            for engine in [made for made in self.made[before:] if made.slot == slot]:
                engine.end("its start failed")
            raise

    async def prepare(self, job: Job) -> str | None:
        """The trainer, asked."""
        await asyncio.sleep(0)
        return None

    async def train(self, job: Job) -> Trained:
        """The trainer, at work."""
        fault = self.plan.at(Point("train", None))
        await asyncio.sleep(0.001)
        seed = Wish(job.rollout).seed

        def act() -> Trained:
            self.trained.add(job.job)
            return Trained(self.checkpoints(seed), Weights(seed, "").checksum)

        error = RuntimeError("training failed")
        return await self.plan.carry_out(fault, act, before=error, after=error, die=lambda: error)

    # Lives of the coordinator.

    async def restart(self, *, tear_down: bool = False) -> None:
        """Begin a new life of the coordinator, over what engines are left."""
        self.plan.revive()
        self.coordinator = None
        kept = [self.slots[slot] for slot in range(len(self.slots))]
        for engine in self.made:
            if tear_down or engine not in kept:
                engine.end("its deployment ended it")
        if tear_down:
            kept = [None] * len(self.slots)
            self.tell_deployment(events.TearDown)
        self.slots = Slots(kept)
        self.lives += 1
        incarnation = f"life{self.lives}"
        tell = events.Teller(f"monitor:{incarnation}", self._listen_while_alive, clock=self._now)
        self.monitor = HealthMonitor(self.slots, MonitorSettings(probe_s=5, retire_s=5), tell=tell)
        released = ALL_REGIONS if self.layout.colocated else frozenset[Region]()
        self.coordinator = Coordinator(
            slots=self.slots,
            settings=ControlSettings(
                pause_mode=PauseMode.IN_PLACE if self.layout.in_place else PauseMode.RETRACT,
                released=released,
                bounds=BOUNDS,
            ),
            marker=self.disk,
            trainer=self,
            initial=Trained(self.checkpoints(INITIAL_SEED), Weights(INITIAL_SEED, "").checksum),
            launcher=self,
            monitor=self.monitor,
            incarnation=incarnation,
            listener=self._listen_while_alive,
            clock=self._now,
            adapter_slots=self.layout.adapter_slots,
        )
        await self._attempt(self.coordinator.start(self.evidence()))

    def evidence(self) -> TrainerEvidence | None:
        """What the trainer's files say about a RUNNING job."""
        record = self.record()
        if record is None or record.status is not Status.RUNNING or record.previous is None:
            return None
        return TrainerEvidence(iteration=record.previous.rollout, job_left_files=record.job in self.trained)

    async def _attempt(self, operation: Coroutine[object, object, object]) -> str | None:
        """Do one thing; the error's text if it failed. A death ends the life, and is told by the deployment."""
        task = asyncio.ensure_future(operation)
        self.plan.cancel = task.cancel
        try:
            await task
        except Broken:
            raise
        except asyncio.CancelledError:
            return "cancelled"
        except CoordinatorDied:
            assert self.plan.dead
        except BaseExceptionGroup as group:
            if (broken := group.subgroup(Broken)) is not None:
                raise _first(broken) from None
            if not self.plan.dead:
                raise
        except Exception as error:
            if not self.plan.dead:
                return f"{type(error).__name__}: {error}"
        if self.plan.dead:
            self.coordinator = None
            self.tell_deployment(events.Crash)
            self.plan.revive()
            return "the coordinator died"
        return None

    # The service.

    async def call(self, operation: Callable[[Coordinator], Coroutine[object, object, object]]) -> str | None:
        """Make one call to the coordinator; the error's text if it failed."""
        assert self.coordinator is not None
        return await self._attempt(operation(self.coordinator))

    async def publish(self, job: str) -> str | None:
        """Publish, or retry; and hold a failure to P3: engines are retired or fenced, and the disk says so."""
        before = len(self.lines)
        error = await self.call(lambda c: c.publish(job))
        if error is not None and self.coordinator is not None and not error.startswith("Refused"):
            if not self.coordinator.latched:
                raise Broken(f"P3: engines are not fenced after {error}")
            disk_failed = any(isinstance(line.event, events.WriteFails) for line in self.lines[before:])
            if self.record_status() == "CHECKPOINT" and not disk_failed:
                raise Broken(f"P3: the disk says CHECKPOINT after {error}")
        return error

    async def commit(self, job: str) -> str | None:
        """Move the head to the published load, then acknowledge."""
        assert self.coordinator is not None
        record = self.coordinator.record
        assert record is not None
        if str(record.load_id) != self.head:
            self.head = str(record.load_id)
            self.committed.add(self.head)
            self.tell_service(events.CommitHead, self.head)
        return await self.call(lambda c: c.acknowledge(job))

    async def settle(self, wish: Wish | None) -> str:
        """Drive the newest job as a patient service would, until it is settled; "settled", or what it is stuck in."""
        for attempt in range(PATIENCE):
            self.at_rest(wish, attempt)
            coordinator = self.coordinator
            if coordinator is None:
                await self.restart(tear_down=not self.layout.survive)
                continue
            assert self.monitor is not None
            await self.monitor.look()
            health = coordinator.health()
            await self.disk.quiet()  # An operator does not decide while a write may still land.
            if self.ambiguous():
                return "RUNNING"
            if not health.ok and not health.recoverable:
                await self.restart(tear_down=True)
                continue
            job = health.job
            match health.status:
                case None | Status.COMPLETE | Status.REJECTED if not health.ok or health.empty_slots:
                    await self.call(lambda c: c.republish(c.served.load_id))
                case None | Status.COMPLETE | Status.REJECTED:
                    if wish is None or job == wish.job:
                        return "settled"
                    await self.call(lambda c: c.train(Job(job=wish.job, rollout=wish.number)))
                case Status.CHECKPOINT if wish is not None and not wish.accept:
                    await self.call(lambda c: c.reject(wish.job))
                case Status.CHECKPOINT | Status.UPDATING_WEIGHTS:
                    assert job is not None
                    await self.publish(job)
                case Status.READY_TO_COMMIT | Status.HEAD_COMMITTED if not health.ok:
                    await self.call(lambda c: c.republish(LoadId.parse(health.load_id)))  # noqa: B023
                case Status.READY_TO_COMMIT | Status.HEAD_COMMITTED:
                    assert job is not None
                    if (await self.commit(job)) is not None and self.coordinator is not None:
                        await self.call(lambda c: c.republish(c.served.load_id))
                case Status.REJECTING if not health.ok:
                    await self.call(lambda c: c.republish(LoadId.parse(health.load_id)))  # noqa: B023
                case Status.REJECTING:
                    assert job is not None
                    await self.call(lambda c: c.reject(job))  # noqa: B023
                case Status.RUNNING:
                    await self.restart(tear_down=True)
        record = self.record()
        return f"unsettled in {None if record is None else record.status}"

    def at_rest(self, wish: Wish | None, attempt: int) -> None:
        """Nothing is under way, and the service is about to look what to do next for a job."""
        self.attempts = max(self.attempts, attempt)

    def ambiguous(self) -> bool:
        """Whether the disk says RUNNING and no file of the trainer proves that the job left nothing."""
        record = self.record()
        if record is None or record.status is not Status.RUNNING:
            return False
        evidence = self.evidence()
        restorable = record.previous is not None and record.previous.status is Status.COMPLETE
        return evidence is None or evidence.job_left_files or not restorable

    async def check_ambiguous(self) -> None:
        """P13: a new life refuses a RUNNING job, and asks no engine."""
        asked = len([point for point in self.plan.reached if point.slot is not None])
        await self.restart(tear_down=True)
        if self.record_status() != "RUNNING" or asked != len([p for p in self.plan.reached if p.slot is not None]):
            raise Broken("P13: an ambiguous job was touched")

    def open_gate(self) -> bool:
        """Admit requests, if the record allows it."""
        coordinator = self.coordinator
        if coordinator is None or not gate_may_open(coordinator.record, colocated=self.layout.colocated):
            return False
        if coordinator.health().ok:
            self.tell_service(events.OpenGate)
            return True
        return False

    def send_requests(self, tokens: int = 4) -> None:
        """One request to each engine that serves; same prompt, so that prefixes are shared."""
        for slot in self.slots.live:
            engine = self.slots[slot]
            assert isinstance(engine, WatchedEngine)
            name = f"request-{next(self._names)}"
            request = Request(input_ids=PROMPT, max_new_tokens=tokens, request_id=name)
            self.clients.append((PROMPT, asyncio.get_running_loop().create_task(engine.generate(request))))

    async def close(self) -> None:
        """End what still runs."""
        for engine in self.made:
            engine.end("the run is over")
        await asyncio.gather(*(task for _, task in self.clients), return_exceptions=True)
        await asyncio.sleep(1)

    # Invariants.

    def record(self) -> Record | None:
        """What the disk holds."""
        return None if self.disk.data is None else decode(self.disk.data)

    def record_status(self) -> str | None:
        record = self.record()
        return None if record is None else str(record.status)

    def in_slots(self) -> Iterator[WatchedEngine]:
        for slot in self.slots.live:
            engine = self.slots[slot]
            assert isinstance(engine, WatchedEngine)
            if engine.alive:
                yield engine

    def before_bytes(self, engine: WatchedEngine, seed: int, load_id: str) -> None:
        """P1, P2, P8, S3: what must hold whenever an engine is told to load bytes."""
        if self.plan.dead:
            return
        record = self.record()
        if record is None:
            allowed = load_id.startswith("life") and seed == INITIAL_SEED
        elif record.status is Status.UPDATING_WEIGHTS:
            allowed = str(record.target) == load_id
        elif record.status.published:
            allowed = str(record.load_id) == load_id
        elif record.status in {Status.REJECTED, Status.REJECTING}:
            allowed = str(record.parent.load_id) == load_id
        else:
            allowed = False
        if not allowed:
            raise Broken(f"P1: {load_id} (content {seed}) is sent while the disk says {record}")
        contents = self.sent.setdefault(load_id, set())
        contents.add(seed)
        if len(contents) > 1:
            raise Broken(f"P8: {load_id} names contents {sorted(contents)}")
        for other in self.in_slots():
            if other.scheduler.paused is None:
                raise Broken(f"S3: {load_id} is sent while {other.address} generates")
            if not self.layout.in_place and len(other.scheduler.tree):
                raise Broken(f"S3: {load_id} is sent while {other.address} has cached prefixes")

    def before_continue(self, engine: WatchedEngine) -> None:
        """P5, P6, P7: what must hold whenever an engine is told to generate."""
        if self.plan.dead:
            return
        record = self.record()
        expected = None
        if record is None:
            expected = engine.scheduler.weights.load_id
        elif record.status in {Status.HEAD_COMMITTED, Status.COMPLETE}:
            expected = str(record.load_id)
            if expected not in self.committed:
                raise Broken(f"P5: {expected} is about to be served, the head never named it")
        elif record.status in {Status.REJECTING, Status.REJECTED}:
            expected = str(record.parent.load_id)
        if expected is None:
            raise Broken(f"P5: {engine.address} is told to continue while the disk says {self.record_status()}")
        for other in self.in_slots():
            weights = other.scheduler.weights
            if weights.load_id != expected or self.sent.get(expected) != {weights.seed}:
                raise Broken(f"P7: {expected} is about to be served, {other.address} holds {weights}")

    def check_history(self) -> None:
        """P10: consecutive records follow an edge, and a job's facts never change."""
        status: str | None = None
        for data in self.disk.history:
            record = decode(data)
            if str(record.status) not in EDGES[status]:
                raise Broken(f"P10: {status} was followed by {record.status}")
            status = str(record.status)

    async def check_clients(self) -> int:
        """S1, L1, T1 to T3: every request is answered or reported failed, and every answer is a fresh engine's."""
        answered = 0
        for prompt, task in self.clients:
            try:
                async with asyncio.timeout(1000):
                    generation = await asyncio.shield(task)
            except TimeoutError:
                raise Broken("L1: a request was never answered") from None
            except EngineError:
                continue
            answered += 1
            seeds = []
            for span in generation.spans:
                contents = self.sent.get(span.load_id, {BOOT_SEED} if span.load_id == "boot" else set())
                if len(contents) != 1:
                    raise Broken(f"T1: a token is stamped {span.load_id}, which was never sent")
                seeds += list(contents) * (span.end - span.start)
            if not self.layout.in_place and generation.output_ids != expected_tokens(prompt, seeds):
                raise Broken(f"S1: {generation} does not follow from its own loads {seeds}")
        self.clients.clear()
        return answered

    def check_settled(self) -> None:
        """P7, L4: after settling, engines serve the record's load, and there is at least one."""
        self.check_history()
        record = self.record()
        expected = None if record is None else record.served_after_settling
        engines = list(self.in_slots())
        if not engines:
            raise Broken("L4: settled without an engine")
        for engine in engines:
            weights = engine.scheduler.weights
            if engine.scheduler.paused is not None or engine.scheduler.released:
                raise Broken(f"L4: settled, but {engine.address} does not serve")
            if expected is not None and weights.load_id != str(expected.load_id):
                raise Broken(f"P7: settled on {expected.load_id}, {engine.address} holds {weights}")
        if record is not None and record.status is Status.COMPLETE and str(record.load_id) != self.head:
            raise Broken(f"P5: {record.load_id} is complete, the head names {self.head}")


def _first(group: BaseExceptionGroup[Broken]) -> Broken:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def trace_of(world: World) -> list[str]:
    """Everything that was told in a run, as lines of NDJSON, in the order in which it happened."""
    return [line.to_json() for line in world.lines]


@contextmanager
def told(world: World, what: str) -> Iterator[None]:
    """On a broken invariant, say in which run, and how it went."""
    try:
        yield
    except Broken as error:
        story = "\n".join(trace_of(world))
        raise Broken(f"{what}: {error}\n{story}") from error
