"""The engines of one deployment as one thing: slots, the latch, the barrier, and what is done to all engines at once.

The *latch* is set before the first engine is asked to pause and cleared after the last has continued. While it is set,
the health monitor retires nothing, and an engine that is started joins only through another barrier.

The *barrier* pauses every engine and, where pausing retracts, flushes every one after all pauses have returned. Retract
alone invalidates nothing: what the prefix tree holds stays matchable (SGLang 0.5.23, `mem_cache`), so the flush is what
keeps KV of one load from being reused under the next.

Source: reef-semantics sections 6, 8 and 9.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from reef_ref import events
from reef_ref.engines.blockers import blocker_of
from reef_ref.engines.errors import EngineError, EngineLost, EngineTimeout, EngineUnreachable, UpdateFailed
from reef_ref.engines.interface import ALL_REGIONS, Engine, Flush, PauseMode, Region, WeightState
from reef_ref.health import HealthMonitor, Slots
from reef_ref.load_id import LoadId
from reef_ref.residency import Adapter, Residency

__all__ = [
    "Bounds",
    "CallsFailed",
    "ChecksContent",
    "Control",
    "ControlSettings",
    "Launcher",
    "Mismatch",
    "NotLatched",
    "NotServing",
    "tell_failure",
    "telling",
]

T = TypeVar("T")


class Launcher(Protocol):
    """Starts engines, for deployments that own theirs."""

    async def start(self, slot: int) -> Engine:
        """Start an engine for a slot. It may hold any weights. Raises `EngineStartFailed`."""


@runtime_checkable
class ChecksContent(Protocol):
    """An engine that can say what its weights are, not only what they are called. SGLang: `POST /weights_checker`."""

    async def checksum(self) -> str:
        """A digest of the weights' content: equal for equal weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long each kind of call may take, in seconds, whatever the engine promises."""

    pause_s: float = 60.0
    flush_s: float = 120.0
    memory_s: float = 180.0
    start_s: float = 1200.0
    update_s: float = 600.0
    report_s: float = 60.0
    continue_s: float = 60.0
    retire_s: float = 30.0
    adapter_s: float = 60.0
    exclude_monitor_s: float = 60.0
    write_s: float = 30.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                message = f"Bounds.{name} must be positive, got {getattr(self, name)!r}"
                raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """What the deployment decided.

    `released` are the regions given back while training uses the devices (colocated); none where engines have their
    own. `owned` engines are started and shut down here; others only paused, updated and continued.
    """

    pause_mode: PauseMode
    released: frozenset[Region] = frozenset()
    owned: bool = True
    bounds: Bounds = Bounds()

    def __post_init__(self) -> None:
        if self.released and self.pause_mode is not PauseMode.RETRACT:
            message = "memory can only be released under pause mode retract: in place, requests keep their KV"
            raise ValueError(message)

    @property
    def colocated(self) -> bool:
        """Whether training and generation share devices."""
        return bool(self.released)


class NotLatched(Exception):  # noqa: N818  The name says what was wrong with the call.
    """Something was asked for that is only safe behind the latch."""


class NotServing(Exception):  # noqa: N818  The name says what engines do not do.
    """Something was asked for that is only possible while all engines generate; nothing was changed."""


class NotVerified(Exception):  # noqa: N818  The name says what was missing.
    """Engines were to generate without having been verified."""


class Mismatch(Exception):  # noqa: N818  The name says what was found.
    """Engines do not all report the load, or not the same content."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed call: at which slot, and why."""

    slot: int
    error: Exception

    @property
    def effect(self) -> str:
        """Whether the engine may have acted: "none" or "unknown"."""
        unknown = isinstance(self.error, EngineTimeout | EngineLost | TimeoutError | UpdateFailed)
        return "unknown" if unknown else "none"


class CallsFailed(Exception):  # noqa: N818  The name says what happened.
    """A call failed at one engine or more; every call had returned when this was raised."""

    def __init__(self, call: str, failures: Sequence[Failure], reason: str | None = None) -> None:
        super().__init__(f"{call} failed: {reason or _listed(failures)}")
        self.call = call
        self.failures = tuple(failures)

    @property
    def dead(self) -> tuple[int, ...]:
        """Slots at whose address nothing answers."""
        return tuple(f.slot for f in self.failures if isinstance(f.error, EngineUnreachable))


def _listed(failures: Sequence[Failure]) -> str:
    first = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"engine {first.slot}: {str(first.error) or type(first.error).__name__}{more}"


class Control:
    """All engines of a deployment; every method asks all of them at once and waits for all."""

    def __init__(
        self,
        slots: Slots,
        settings: ControlSettings,
        *,
        launcher: Launcher | None,
        monitor: HealthMonitor | None,
        tell: events.Teller,
        adapters: Residency | None = None,
    ) -> None:
        self._slots = slots
        self._settings = settings
        self._launcher = launcher
        self._monitor = monitor
        self._tell = tell
        self._adapters = adapters
        self._latched = False
        self._verified: LoadId | None = None
        self._poison: dict[int, Engine] = {}

    @property
    def settings(self) -> ControlSettings:
        """What the deployment decided."""
        return self._settings

    @property
    def latched(self) -> bool:
        """Whether a pause was begun and not every engine has continued since."""
        return self._latched

    @property
    def verified(self) -> LoadId | None:
        """The load that engines were verified to hold, with nothing done to any since."""
        return self._verified

    @property
    def empty(self) -> tuple[int, ...]:
        """The slots without an engine."""
        return self._slots.empty

    async def barrier(self) -> None:
        """Pause all engines; then, if pausing retracts, flush all.

        Sets the latch first, and leaves it set. Engines that did pause stay paused when another did not.
        Raises `CallsFailed`.
        """
        # Before anything can fail: a pause that was only attempted has to be fenced too.
        self._latched = True
        self._verified = None
        bounds, mode = self._settings.bounds, self._settings.pause_mode
        if not await self.exclude_monitor():
            reason = f"the health monitor is still retiring an engine after {bounds.exclude_monitor_s:g} s"
            raise CallsFailed("pause", [], reason)
        await self._all(
            "pause", bounds.pause_s, lambda e: e.pause(mode), lambda n, _: self._tell(events.Pause, n, mode)
        )
        self._tell(events.AllPaused)
        if mode is PauseMode.RETRACT:
            await self._all("flush", bounds.flush_s, lambda e: e.flush(), self._flushed)
            self._tell(events.AllFlushed)

    def _flushed(self, slot: int, flush: Flush) -> None:
        blocker = "" if flush.last_refusal is None else blocker_of(flush.last_refusal).value
        self._tell(events.Flush, slot, flush.refusals, blocker)

    async def rebuild(self) -> None:
        """Start an engine in every empty slot, with the adapters that all engines hold.

        The new engines generate, with whatever weights they booted: the caller's next step is a barrier. Raises
        `NotLatched` without the latch (nothing would keep that barrier from being forgotten), `CallsFailed`.
        """
        self._need_latch("rebuild")
        if self._poison and not self._settings.owned:
            slots = ", ".join(map(str, sorted(self._poison)))
            failure = EngineError(f"engine {slots}: a transfer ended uncertain; restart the external deployment")
            raise CallsFailed("rebuild", [Failure(min(self._poison), failure)])
        empty = self._slots.empty
        if empty:
            launcher = self._launcher
            if launcher is None or not self._settings.owned:
                failure = EngineError("the slot is empty, and this deployment does not start engines")
                raise CallsFailed("rebuild", [Failure(slot, failure) for slot in empty])

            async def start(slot: int) -> None:
                engine = await launcher.start(slot)
                self._slots.fill(slot, engine)
                self._tell(events.Rebuild, slot)
                if self._adapters is not None:
                    await self._adapters.restore(engine)

            await self._fan_out("rebuild", self._settings.bounds.start_s, dict.fromkeys(empty, start))
        self._tell(events.AllRebuilt)

    async def release(self) -> None:
        """Give back the regions that training uses; those already given back are skipped by the engines."""
        self._need_latch("release")
        regions = self._settings.released
        if regions:
            named = tuple(sorted(regions))
            await self._all(
                "release",
                self._settings.bounds.memory_s,
                lambda e: e.release(regions),
                lambda n, _: self._tell(events.Release, n, named),
            )
            self._tell(events.AllReleased)

    async def resume_weights(self) -> None:
        """Take the memory for weights back, where it was given."""
        if self._settings.released:
            await self._all(
                "resume weights",
                self._settings.bounds.memory_s,
                lambda e: e.resume(frozenset({Region.WEIGHTS})),
                lambda n, _: self._tell(events.ResumeWeights, n),
            )
            self._tell(events.AllWeightsBack)

    async def resume_kv(self) -> None:
        """Take all other memory back, where it was given."""
        if self._settings.released:
            await self._all(
                "resume kv",
                self._settings.bounds.memory_s,
                lambda e: e.resume(ALL_REGIONS - {Region.WEIGHTS}),
                lambda n, _: self._tell(events.ResumeKv, n),
            )
            self._tell(events.AllKvBack)

    async def send(self, checkpoint: Path, load_id: LoadId) -> None:
        """Load a whole checkpoint on every engine. There is no other kind: a delta needs a base that a retry lacks."""
        self._need_latch("send")
        self._verified = None
        try:
            await self._all(
                "send",
                self._settings.bounds.update_s,
                lambda e: e.update(checkpoint, str(load_id)),
                lambda n, _: self._tell(events.Send, n, str(load_id), str(checkpoint)),
            )
        except CallsFailed as error:
            for failure in error.failures:
                engine = self._slots[failure.slot]
                if engine is not None and _may_be_mixed(failure.error):
                    self._poison[failure.slot] = engine
            raise
        self._tell(events.AllSent)

    async def verify(self, load_id: LoadId, checksum: str | None) -> str | None:
        """Ask every engine what it holds; answer the content's checksum, or none where an engine cannot tell.

        Ids are labels that engines were given. Checksums speak of the bytes: they must agree with each other, and with
        `checksum` if that is known. Raises `Mismatch`, also when there is no engine to ask, and `CallsFailed`.
        """
        bound = self._settings.bounds.report_s
        reports = await self._all("report", bound, lambda e: e.report(), lambda _, __: None)
        wrong = [
            f"engine {slot} reports {report.load_id}, its front end {report.front_end_load_id}"
            for slot, report in reports.items()
            if {report.load_id, report.front_end_load_id} != {str(load_id)}
        ]
        if not reports:
            wrong.append("there is no engine")
        contents: dict[int, str] = {}
        if not wrong and all(isinstance(self._slots[slot], ChecksContent) for slot in reports):
            contents = await self._all("checksum", bound, _checksum, lambda _, __: None)
            known = set(contents.values()) | ({checksum} if checksum is not None else set())
            if len(known) > 1:
                told = ", ".join(f"engine {slot} {content}" for slot, content in contents.items())
                wrong.append(f"contents differ: {told}; expected {checksum or 'one for all'}")
        if wrong:
            raise Mismatch("; ".join(wrong))
        self._verified = load_id
        return next(iter(contents.values()), None)

    async def continue_all(self, load_id: LoadId) -> None:
        """Let every engine generate; then clear the latch and let the monitor work.

        Raises `NotVerified` unless every engine was verified to hold this load, with nothing done to any since; and
        `CallsFailed`, with the latch still set.
        """
        if self._verified != load_id:
            message = f"engines were not verified to hold {load_id} since they were last touched; republish it"
            raise NotVerified(message)
        await self._all(
            "continue",
            self._settings.bounds.continue_s,
            lambda e: e.continue_generation(),
            lambda n, _: self._tell(events.ContinueGeneration, n),
        )
        self._latched = False
        if self._monitor is not None:
            self._monitor.admit()
        self._tell(events.AllContinued)

    async def retire_all(self) -> None:
        """Shut every owned engine down and empty its slot; the latch is set and stays set.

        An engine that cannot be shut down keeps its slot: a slot is only empty when nothing of it can generate. That is
        told, and not raised.
        """
        self._latched = True
        self._verified = None
        if not self._settings.owned:
            return
        if not await self.exclude_monitor():
            return  # It is retiring an engine that will not end; behind the latch, nobody uses any.

        async def retire(slot: int) -> None:
            engine = self._slots[slot]
            assert engine is not None
            await engine.shut_down()
            self._slots.clear(slot, engine)
            self._poison.pop(slot, None)
            self._tell(events.Retire, slot)

        try:
            await self._fan_out("retire", self._settings.bounds.retire_s, dict.fromkeys(self._slots.live, retire))
        except CallsFailed as error:
            for failure in error.failures:
                self._tell(events.RetireFails, failure.slot, str(failure.error) or type(failure.error).__name__)

    async def activate(self, adapter: Adapter, path: Path) -> bool:
        """Have all engines hold an adapter, while they generate; see `Residency.activate`.

        No barrier is needed: a name is one content, so that nothing cached under it can be stale, and requests go to it
        only when whoever sends them knows that it is everywhere. Engines are asked first what they hold: the books may
        be those of a new life. Raises `CallsFailed`, and `NotServing` while engines are fenced or one is
        missing: an unload under a pause waits for requests that cannot end.
        """
        if self._adapters is None:
            message = "this deployment has no adapter slots"
            raise NotServing(message)
        if self._latched or self._slots.empty:
            message = "engines are fenced, or one is missing; an adapter is loaded while all of them generate"
            raise NotServing(message)
        engines = [engine for slot in self._slots.live if (engine := self._slots[slot]) is not None]
        bound = self._settings.bounds.adapter_s
        loaded = await self._all("adapters", bound, lambda e: e.adapters(), lambda _, __: None)
        await self._adapters.reconcile(engines, list(loaded.values()))
        return await self._adapters.activate(engines, adapter, path)

    async def exclude_monitor(self) -> bool:
        """Keep the health monitor from emptying slots until engines continue; false if it does not end in time."""
        if self._monitor is not None:
            try:
                async with asyncio.timeout(self._settings.bounds.exclude_monitor_s):
                    await self._monitor.exclude()
            except TimeoutError:
                return False
        return True

    def _need_latch(self, call: str) -> None:
        if not self._latched:
            message = f"{call} without the latch: run the barrier first"
            raise NotLatched(message)

    async def _all(
        self,
        call: str,
        bound_s: float,
        ask: Callable[[Engine], Awaitable[T]],
        told: Callable[[int, T], None],
    ) -> dict[int, T]:
        """Ask every live engine; `told` is called for each answer as it comes."""

        async def one(slot: int) -> T:
            engine = self._slots[slot]
            assert engine is not None
            answer = await ask(engine)
            told(slot, answer)
            return answer

        return await self._fan_out(call, bound_s, dict.fromkeys(self._slots.live, one))

    async def _fan_out(
        self, call: str, bound_s: float, calls: dict[int, Callable[[int], Awaitable[T]]]
    ) -> dict[int, T]:
        """Make calls at once, wait for all, and raise what failed together: none is left behind unawaited."""
        answers: dict[int, T] = {}
        failures: list[Failure] = []

        async def make(slot: int, one: Callable[[int], Awaitable[T]]) -> None:
            try:
                async with asyncio.timeout(bound_s):
                    answers[slot] = await one(slot)
            except TimeoutError:
                failures.append(Failure(slot, TimeoutError(f"no answer within {bound_s:g} s")))
            except (EngineError, OSError) as error:
                failures.append(Failure(slot, error))

        async with asyncio.TaskGroup() as group:
            for slot, one in calls.items():
                group.create_task(make(slot, one))
        if failures:
            raise CallsFailed(call, sorted(failures, key=lambda failure: failure.slot))
        return {slot: answers[slot] for slot in sorted(answers)}


async def _checksum(engine: Engine) -> str:
    assert isinstance(engine, ChecksContent)
    return await engine.checksum()


def _may_be_mixed(error: Exception) -> bool:
    """Whether an update that failed so may have left part of its bytes."""
    if isinstance(error, UpdateFailed):
        return error.result.weights is not WeightState.UNCHANGED
    return isinstance(error, EngineTimeout | EngineLost | TimeoutError)


def tell_failure(tell: events.Teller, kind: type[events.CallsFail], error: CallsFailed) -> None:
    """Tell a failed step: that an engine is dead, if one is, and otherwise that calls failed."""
    if error.dead:
        tell(events.FindDead, error.dead[0], error.call)
        return
    slots = tuple(failure.slot for failure in error.failures)
    effects = tuple(failure.effect for failure in error.failures)
    tell(kind, error.call, slots, effects, str(error))


@contextlib.contextmanager
def telling(tell: events.Teller, kind: type[events.CallsFail]) -> Iterator[None]:
    """Tell if a step inside fails or is cancelled; the failure goes on."""
    try:
        yield
    except CallsFailed as error:
        tell_failure(tell, kind, error)
        raise
    except asyncio.CancelledError:
        tell(kind, "any", (), (), "cancelled")
        raise
