"""The simulated engine behind the common interface: the scheduler, a loop that drives it, and a wire that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from reef_ref import events
from reef_ref.engines.errors import (
    AdapterRejected,
    CallRefused,
    CheckpointRejected,
    EngineError,
    EngineLost,
    EngineRefused,
    EngineUnreachable,
    FlushAttempts,
    FlushRefused,
    GenerationFailed,
    UpdateFailed,
)
from reef_ref.engines.interface import (
    AdapterChange,
    CacheState,
    Continued,
    Flush,
    Generation,
    Health,
    Limits,
    LoadReport,
    MemoryChange,
    Pause,
    PauseMode,
    Region,
    Request,
    Span,
    Update,
    WeightState,
)
from reef_ref.engines.simulated.faults import CoordinatorDied, Fault, Plan, Point
from reef_ref.engines.simulated.model import Weights, mix, read_checkpoint
from reef_ref.engines.simulated.scheduler import Scheduler, SchedulerSettings, Work

__all__ = ["SimulatedEngine", "SimulatedSettings"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSettings:
    """The engine's scheduler, and its times in seconds: of one round of the loop, and of one call's way."""

    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    limits: Limits = field(default_factory=Limits)
    step_s: float = 0.01
    latency_s: float = 0.001


class SimulatedEngine:
    """One engine; see `reef_ref.engines.interface.Engine` for what the methods promise.

    It boots generating, with the weights of `boot` under a label that is no load's. Call it from one event loop.
    """

    def __init__(
        self,
        slot: int,
        boot: Weights,
        *,
        settings: SimulatedSettings | None = None,
        plan: Plan | None = None,
        tell: events.Teller | None = None,
    ) -> None:
        self._slot = slot
        self._settings = settings or SimulatedSettings()
        self._plan = plan or Plan()
        self._tell = tell or events.Teller(f"engine:{slot}", clock=lambda: 0.0)
        self._flushed = False
        self._dead: str | None = None
        self._adapters: dict[str, tuple[int, Path]] = {}
        self._answers: dict[Work, asyncio.Future[None]] = {}
        self._names = count()
        self._loop_task: asyncio.Task[None] | None = None
        self.scheduler = Scheduler(self._settings.scheduler, boot, slot=slot, tell=self._tell)

    @property
    def address(self) -> str:
        """Where the engine is, for messages."""
        return f"simulated://{self._slot}"

    @property
    def slot(self) -> int:
        """The number of its slot."""
        return self._slot

    @property
    def alive(self) -> bool:
        """Whether the engine answers at all."""
        return self._dead is None

    # Requests.

    async def generate(self, request: Request) -> Generation:
        """Run one request to its end."""
        self._need_alive("generate")
        if request.adapter is not None and request.adapter not in self._adapters:
            raise GenerationFailed("generate", self.address, 400, f"adapter {request.adapter} is not loaded")
        if not request.input_ids or request.max_new_tokens < 1:
            raise GenerationFailed("generate", self.address, 400, "a prompt and a length of at least one are needed")
        name = request.request_id or f"{self._slot}-{next(self._names)}"
        adapter = 0 if request.adapter is None else self._adapters[request.adapter][0]
        work = Work(request, name, self._finished, adapter)
        answer = self._answers[work] = asyncio.get_running_loop().create_future()
        self.scheduler.admit(work)
        self._wake()
        try:
            await answer
        finally:
            self._answers.pop(work, None)
        return _generation(work)

    def _finished(self, work: Work) -> None:
        answer = self._answers.get(work)
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _wake(self) -> None:
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """The loop: rounds as long as there is something to do. Whoever brings new work wakes it again."""
        while self._dead is None and self.scheduler.step():
            await asyncio.sleep(self._settings.step_s)

    # Control.

    async def pause(self, mode: PauseMode) -> Pause:
        """Stop generating."""

        def act() -> Pause:
            self.scheduler.pause(mode)
            self._flushed = False
            return Pause(mode)

        return await self._call("pause", act)

    async def flush(self) -> Flush:
        """Empty the prefix cache, with bounded retries where it is refused."""
        limits = self._settings.limits
        loop = asyncio.get_running_loop()
        started, wait, refusals, last = loop.time(), limits.flush_first_wait_s, 0, None
        while True:
            busy = await self._call("flush", self.scheduler.flush)
            elapsed = loop.time() - started
            if busy is None:
                self._flushed = self.scheduler.paused is not None
                return Flush(CacheState.CLEARED, refusals, elapsed, last)
            refusals, last = refusals + 1, busy
            if elapsed + wait > limits.flush_total_s:
                raise FlushRefused(self.address, 400, busy, FlushAttempts(refusals, elapsed))
            await asyncio.sleep(wait)
            wait = min(2 * wait, limits.flush_longest_wait_s)

    async def release(self, regions: frozenset[Region]) -> MemoryChange:
        """Give regions of memory back."""
        if self.scheduler.paused is None or not self._flushed:
            self._refuse("release", "pause and flush first")

        def act() -> MemoryChange:
            changed = regions - self.scheduler.released
            self.scheduler.release(changed)
            return MemoryChange(changed, frozenset(self.scheduler.released))

        return await self._call("release", act)

    async def resume(self, regions: frozenset[Region]) -> MemoryChange:
        """Take regions back."""

        def act() -> MemoryChange:
            changed = regions & self.scheduler.released
            self.scheduler.released -= changed
            return MemoryChange(changed, frozenset(self.scheduler.released))

        return await self._call("resume", act)

    async def update(self, checkpoint: Path, load_id: str) -> Update:
        """Load a checkpoint under a new load id; the cache stays as it is, for better or worse."""
        if self.scheduler.paused is None:
            self._refuse("update", "pause first; requests would mix two loads")
        if Region.WEIGHTS in self.scheduler.released:
            self._refuse("update", "the weights' memory is released; resume it first")
        seed = read_checkpoint(checkpoint)
        unknown = Update(weights=WeightState.UNKNOWN, cache=CacheState.KEPT, load_id=None)
        before = UpdateFailed(self.address, 500, "the transfer broke off", unknown)
        after = UpdateFailed(self.address, 0, "the connection broke before the answer", unknown)

        def act() -> Update:
            self.scheduler.weights = Weights(seed, load_id)
            return Update(weights=WeightState.CHANGED, cache=CacheState.KEPT, load_id=load_id)

        def only_label() -> Update:
            self.scheduler.weights = Weights(self.scheduler.weights.seed, load_id)
            return Update(weights=WeightState.CHANGED, cache=CacheState.KEPT, load_id=load_id)

        def break_off() -> None:
            old = self.scheduler.weights
            self.scheduler.weights = Weights(mix(old.seed, seed), old.load_id)

        return await self._call(
            "update", act, before=before, after=after, instead={Fault.ONLY_LABELS: only_label}, break_off=break_off
        )

    async def continue_generation(self) -> Continued:
        """Generate again."""
        if self.scheduler.released:
            self._refuse("continue", f"{', '.join(sorted(self.scheduler.released))} released; resume first")

        def act() -> Continued:
            self.scheduler.resume_generation()
            self._flushed = False
            self._wake()
            return Continued()

        return await self._call("continue", act)

    async def report(self) -> LoadReport:
        """The label of the weights."""

        def act() -> LoadReport:
            label = self.scheduler.weights.load_id
            return LoadReport(label, label)

        return await self._call("report", act)

    async def checksum(self) -> str:
        """A digest of the weights' content; `EngineRefused` while their memory is released."""
        if Region.WEIGHTS in self.scheduler.released:
            raise EngineRefused("checksum", self.address, 400, "the weights' memory is released")
        return await self._call("checksum", lambda: self.scheduler.weights.checksum)

    async def load_adapter(self, name: str, path: Path) -> AdapterChange:
        """Load an adapter: a checkpoint folder whose name on this engine is `name`."""
        try:
            seed = read_checkpoint(path)
        except CheckpointRejected as error:
            raise AdapterRejected(path, error.reason) from error

        def act() -> AdapterChange:
            if name in self._adapters:
                raise EngineRefused("load adapter", self.address, 400, f"{name} is already loaded")
            self._adapters[name] = seed, path
            return AdapterChange(name, frozenset(self._adapters))

        return await self._call("load adapter", act)

    async def unload_adapter(self, name: str) -> AdapterChange:
        """Unload an adapter."""
        if self.scheduler.paused is not None:
            self._refuse("unload adapter", "continue first; paused requests that use it cannot end")

        def act() -> AdapterChange:
            if name not in self._adapters:
                raise EngineRefused("unload adapter", self.address, 400, f"{name} is not loaded")
            del self._adapters[name]
            return AdapterChange(name, frozenset(self._adapters))

        return await self._call("unload adapter", act)

    async def adapters(self) -> Mapping[str, Path]:
        """The adapters that the engine holds."""
        return await self._call("adapters", lambda: {name: path for name, (_, path) in self._adapters.items()})

    async def health(self) -> Health:
        """Whether the engine answers."""
        await asyncio.sleep(self._settings.latency_s)
        return Health(alive=self._dead is None, detail=self._dead or "the scheduler answers")

    async def shut_down(self) -> None:
        """End the engine; its requests are reported failed. A dead engine stays dead."""
        if self._plan.dead:
            raise CoordinatorDied
        if self._dead is None:
            await self._call("shut down", lambda: self.end("it was shut down"))

    def die(self) -> None:
        """The process is gone, and the requests in it."""
        if self._dead is None:
            lost = tuple(work.name for work in self.scheduler.unfinished)
            self.end("it died")
            self._tell(events.Die, self._slot, lost)

    def end(self, why: str) -> None:
        """The process is gone, whoever saw to that; its requests are told."""
        self._dead = why
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineLost(f"generate at {self.address}: the engine is gone, {why}"))

    # The wire.

    async def _call(
        self,
        name: str,
        act: Callable[[], T],
        *,
        before: EngineError | None = None,
        after: EngineError | None = None,
        instead: Mapping[Fault, Callable[[], T]] = MappingProxyType({}),
        break_off: Callable[[], None] | None = None,
    ) -> T:
        """Make a call: its way, what the plan has for it, and its effect unless the engine is gone by then."""
        self._need_alive(name)
        fault = self._plan.at(Point(name, self._slot))

        def if_alive() -> T:
            self._need_alive(name)
            return act() if fault is None else instead.get(fault, act)()

        def die() -> Exception:
            self.die()
            return EngineUnreachable(f"{name} at {self.address}: nothing listens there")

        await asyncio.sleep(self._settings.latency_s)
        if fault is Fault.FAILS_BEFORE and break_off is not None:
            break_off()
        return await self._plan.carry_out(
            fault,
            if_alive,
            before=before or EngineRefused(name, self.address, 503, "refused by the plan"),
            after=after or EngineLost(f"{name} at {self.address}: the connection broke before the answer"),
            die=die,
        )

    def _need_alive(self, call: str) -> None:
        if self._dead is not None:
            message = f"{call} at {self.address}: nothing listens there ({self._dead})"
            raise EngineUnreachable(message)

    def _refuse(self, call: str, reason: str) -> None:
        message = f"{call} at {self.address}: not sent: {reason}"
        raise CallRefused(message)


def _generation(work: Work) -> Generation:
    spans, start = [], 0
    for load_id, tokens in groupby(work.loads):
        end = start + len(list(tokens))
        spans.append(Span(load_id, start, end))
        start = end
    return Generation(
        request_id=work.name,
        output_ids=tuple(work.output),
        text=" ".join(map(str, work.output)),
        finish="length",
        prompt_tokens=len(work.request.input_ids),
        cached_tokens=work.cached_tokens,
        retractions=work.retractions,
        spans=tuple(spans),
    )
