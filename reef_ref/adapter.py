"""A guard around a trainer that publishes its own weights: the barrier, the load ids and the checks, and nothing else.

```python
guard = PublicationGuard.over_http(["http://127.0.0.1:30000"], folder=Path("publications"))

with guard.publication() as publication:  # pauses all, then flushes all; the block is entered only if that succeeded
    trainer.update_weights(engines, weight_version=publication.load_id)  # the trainer's own calls
# every engine was verified to hold publication.load_id, and then all were continued
```

An asynchronous trainer writes `async with`. The guard sends no bytes. It takes the place of the trainer's own pause,
flush and continue calls, and holds the rest to this:

* No byte before every engine is paused in retract mode and flushed. A pause that aborts never reaches the scheduler,
  and one in place keeps KV of the old weights.
* One fresh load id for all of them, never used before, not by a publication that failed either. An engine that an
  update missed therefore reports another one.
* Nothing partial: no update session is left open, every engine's front end and scheduler report the id, all contents
  have one checksum, and the plugin, where there is one, calls the weights a complete load.
* The fence is closed again before engines are asked: whatever continued one meanwhile, and whatever that left in its
  cache, does not outlive the publication.
* No engine is continued before all are verified.
* Whatever fails, in the block or around it, leaves engines fenced and a durable record that says so, also when the
  trainer's process is killed. Only a further publication, from the barrier on, lets anybody continue.

What it cannot see: bytes that the trainer never had, and an update that sends the same wrong bytes to every engine.

Source: sglang-semantics sections 2 to 4, 7 and 12; reef-semantics sections 1 and 6.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from reef_ref import events
from reef_ref.control import Bounds, CallsFailed, Control, ControlSettings, Mismatch, tell_failure
from reef_ref.engines.checkpoint import CheckpointLayout
from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import Engine, Limits, PauseMode, PluginReport
from reef_ref.health import Slots
from reef_ref.load_id import LoadId, new_incarnation
from reef_ref.markers import MarkerError, MarkerFile, RecordFile, Status
from reef_ref.published import Published, decode, encode

__all__ = ["Attach", "CheckFailed", "GuardSettings", "Publication", "PublicationFailed", "PublicationGuard"]

T = TypeVar("T")
Attach = Callable[[], AbstractAsyncContextManager[Engine]]
"""Makes a handle of an engine for one publication, and lets go of it. Raises `EngineError`."""

SENDS_NOTHING = CheckpointLayout(Path(), {}, 0)
"""The layout of a handle that is never given a checkpoint: the trainer's bytes do not pass through it."""


@runtime_checkable
class EndsSessions(Protocol):
    """An engine whose updates may need a session around them."""

    async def end_update_session(self) -> bool:
        """End the session that is open; whether one was."""


@runtime_checkable
class HasPlugin(Protocol):
    """An engine that may run with the plugin."""

    async def plugin(self) -> PluginReport | None:
        """What the plugin says; none where the engine runs without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """How long calls may take, and whether an engine without the plugin is refused.

    `bounds` are those of each step over all engines, `limits` those of the calls to one. With `require_plugin`, no
    publication begins unless every engine's plugin keeps provenance and was verified (`able_to_share`).
    """

    bounds: Bounds = field(default_factory=Bounds)
    limits: Limits = field(default_factory=Limits)
    require_plugin: bool = False


class PublicationFailed(Exception):  # noqa: N818  The name says what happened.
    """A publication did not succeed; one line says which, why, and what became of the engines."""


class CheckFailed(Exception):  # noqa: N818  As above.
    """Engines do not serve what was published, or a stale prefix was reused; one line says where and what."""


class Reached(Enum):
    """How far a publication came; the value says what became of the engines if it ended there."""

    NOTHING = "no engine was asked to do anything"
    PAUSING = "no engine is continued until a publication succeeds"
    CONTINUING = "those that were continued serve it, and no other is continued until a publication succeeds"
    SERVING = "engines serve it, but that is not recorded: publish again"


class PublicationGuard:
    """Publications over the same engines, one at a time; see the module. `over_http` and `over_engines` make one.

    Args:
        engines: makes a handle of each engine, for one publication at a time.
        record: where the durable record is kept.
        listener: takes events; what they say is what `reef-ref validate` reads.
        loop: the event loop that engines of this process live on; none where they are elsewhere.
        clock: seconds, for events.
    """

    def __init__(
        self,
        engines: Sequence[Attach],
        record: RecordFile,
        *,
        settings: GuardSettings | None = None,
        listener: events.Listener | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not engines:
            message = "a guard needs an engine"
            raise ValueError(message)
        self._engines = tuple(engines)
        self._record = record
        self._settings = settings or GuardSettings()
        self._loop = loop
        self._last = LoadId(new_incarnation(), 0)
        self._tell = events.Teller(f"guard:{self._last.incarnation}", listener, clock=clock)
        self._busy = False
        self._stale_told: list[int | None] = [None] * len(engines)

    @classmethod
    def over_http(
        cls,
        addresses: Sequence[str],
        *,
        folder: Path,
        settings: GuardSettings | None = None,
        listener: events.Listener | None = None,
    ) -> Self:
        """Guard SGLang servers, for example `http://127.0.0.1:30000`; an engine over several nodes by its rank 0.

        `folder` holds the record; one guard at a time has it. Raises `MarkerError`.
        """
        limits = (settings or GuardSettings()).limits

        def attach(address: str) -> Attach:
            @contextlib.asynccontextmanager
            async def attached() -> AsyncIterator[Engine]:
                from reef_ref.engines.http import connect

                engine = await connect(address, limits=limits, layout=SENDS_NOTHING)
                try:
                    yield engine
                finally:
                    await engine.shut_down()  # The connections; the server is not the guard's to end.

            return attached

        return cls([attach(address) for address in addresses], MarkerFile(folder), settings=settings, listener=listener)

    @classmethod
    def over_engines(
        cls,
        engines: Sequence[Any],
        *,
        folder: Path,
        settings: GuardSettings | None = None,
        listener: events.Listener | None = None,
    ) -> Self:
        """Guard `sglang.Engine` objects of this process; `async with` has to run on their own loop, as their calls do.

        Raises `MarkerError`, and `ValueError` for engines that live on several loops.
        """
        loops = {id(engine.loop): engine.loop for engine in engines}
        if len(loops) > 1:
            message = f"engines of one guard live on one event loop, these on {len(loops)}: start them in one thread"
            raise ValueError(message)
        limits = (settings or GuardSettings()).limits

        def attach(number: int, engine: Any) -> Attach:
            @contextlib.asynccontextmanager
            async def attached() -> AsyncIterator[Engine]:
                from reef_ref.engines.in_process import BorrowedWire
                from reef_ref.engines.sglang_engine import SGLangEngine

                wire = BorrowedWire(engine, f"sglang.Engine {number}")
                yield await SGLangEngine.attach(wire, limits=limits, layout=SENDS_NOTHING)

            return attached

        attaches = [attach(number, engine) for number, engine in enumerate(engines)]
        loop = next(iter(loops.values()), None)
        return cls(attaches, MarkerFile(folder), settings=settings, listener=listener, loop=loop)

    def publication(self) -> Publication:
        """A publication, entered once: a block to send the trainer's bytes in, with `with` or `async with`.

        Entering raises `PublicationFailed` unless all engines were paused and flushed; leaving, unless all were
        verified and continued. An exception of the block goes on, with a note that says what became of the engines.
        """
        return Publication(self, self._engines, self._settings, self._tell)

    def check(self) -> tuple[PluginReport | None, ...]:
        """Assert that every engine serves what was published last, and answer what each one's plugin says.

        Raises `CheckFailed`: a publication has not ended (it may be that of a trainer that was killed), an engine is
        gone or reports another load, its plugin could not be verified where it is required, or a stale prefix was
        reused. Each stale prefix is told once, and none that an engine had counted when this guard first published.
        """
        with _driver(self._loop) as run:
            return run(self.check_async())

    async def check_async(self) -> tuple[PluginReport | None, ...]:
        """As `check`, where an event loop runs."""
        record = await self.recorded()
        if record is None:
            message = "nothing was published yet"
            raise CheckFailed(message)
        if not record.finished:
            message = f"publication {record.load_id} has not ended: {Reached.PAUSING.value}"
            raise CheckFailed(message)
        reports: list[PluginReport | None] = []
        problems: list[str] = []
        for number, attach in enumerate(self._engines):
            try:
                async with attach() as engine:
                    labels = await engine.report()
                    reports.append(await _plugin(engine))
                if {labels.load_id, labels.front_end_load_id} != {str(record.load_id)}:
                    found = f"{labels.load_id}, its front end {labels.front_end_load_id}"
                    problems.append(f"engine {number} reports {found}, and {record.load_id} was published")
                problems += self._problems_of_plugin(number, reports[-1])
            except EngineError as error:
                problems.append(f"engine {number}: {error}")
        if problems:
            raise CheckFailed("; ".join(problems))
        return tuple(reports)

    def _problems_of_plugin(self, number: int, report: PluginReport | None) -> Iterator[str]:
        if self._settings.require_plugin:
            yield from (f"engine {number} {lack}" for lack in _lacks(report))
        stale = 0 if report is None else report.stale
        told, self._stale_told[number] = self._stale_told[number] or 0, stale
        if stale > (told if stale >= told else 0):  # A counter that fell is that of a new process.
            yield f"engine {number} reused {stale} stale prefixes since it started"

    def _begin_counting(self, number: int, report: PluginReport | None) -> None:
        if self._stale_told[number] is None:
            self._stale_told[number] = 0 if report is None else report.stale

    async def recorded(self) -> Published | None:
        """The newest publication, as the disk has it; none before the first. Raises `MarkerError`."""
        bound = self._settings.bounds.write_s
        try:
            async with asyncio.timeout(bound):
                data = await self._record.read()
        except TimeoutError as error:
            message = f"the record could not be read within {bound:g} s"
            raise MarkerError(message) from error
        except OSError as error:
            message = f"the record could not be read: {error.strerror or error}"
            raise MarkerError(message) from error
        return None if data is None else decode(data)

    def close(self) -> None:
        """Let go of the record's folder, for another guard. Engines stay as they are."""
        if isinstance(self._record, MarkerFile):
            self._record.close()

    # What a publication asks of its guard.

    def _begin(self) -> None:
        if self._busy:
            message = "another publication of this guard is under way"
            raise PublicationFailed(message)
        self._busy = True

    def _end(self) -> None:
        self._busy = False

    def _next_load_id(self) -> LoadId:
        self._last = self._last.next()
        return self._last

    async def _write(self, published: Published) -> None:
        bound = self._settings.bounds.write_s
        try:
            async with asyncio.timeout(bound):
                await self._record.replace(encode(published))
        except TimeoutError as error:
            message = f"the record could not be written within {bound:g} s"
            raise MarkerError(message) from error
        except OSError as error:
            message = f"the record could not be written: {error.strerror or error}"
            raise MarkerError(message) from error


class Publication:
    """One publication; made by `PublicationGuard.publication`, and entered once."""

    def __init__(
        self, guard: PublicationGuard, engines: Sequence[Attach], settings: GuardSettings, tell: events.Teller
    ) -> None:
        self._guard = guard
        self._attaches = engines
        self._settings = settings
        self._tell = tell
        self._handles = contextlib.AsyncExitStack()
        self._drive = contextlib.ExitStack()
        self._run: _Run | None = None
        self._engines: list[Engine] = []
        self._load_id: LoadId | None = None
        self._reached = Reached.NOTHING
        self._entered = False

    @property
    def load_id(self) -> str:
        """The id under which every engine has to be sent the bytes; on SGLang's wire, its `weight_version`."""
        if self._load_id is None:
            message = "a publication has no load id before its block is entered"
            raise ValueError(message)
        return str(self._load_id)

    def __enter__(self) -> Self:
        self._run = self._drive.enter_context(_driver(self._guard._loop))
        try:
            return self._run(self.__aenter__())
        except BaseException:
            self._drive.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._run is not None
        with self._drive:
            self._run(self.__aexit__(kind, error, trace))

    async def __aenter__(self) -> Self:
        if self._entered:
            message = "a publication is entered once; ask the guard for another"
            raise RuntimeError(message)
        self._guard._begin()
        self._entered = True
        async with self._giving_up(events.BarrierFails):
            await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._give_up(events.TransferFails, error, fence=True)
            error.add_note(self._became_of_it())
            return
        async with self._giving_up(events.TransferFails):
            await self._close()
        await self._let_go()

    async def _open(self) -> None:
        """Fence all engines, durably: after this they may hold anything."""
        for attach in self._attaches:
            self._engines.append(await self._handles.enter_async_context(attach()))
        for number, engine in enumerate(self._engines):
            report = await _plugin(engine)
            self._guard._begin_counting(number, report)
            for lack in _lacks(report) if self._settings.require_plugin else ():
                message = f"engine {number} {lack}"
                raise EngineError(message)
        before = await self._guard.recorded()
        if before is not None and not before.finished:
            self._tell.skip()  # Nobody can tell what engines were sent by a publication that failed.
        self._load_id = self._guard._next_load_id()
        # Before the first pause: whoever finds engines paused is to know that they wait for a publication.
        await self._guard._write(Published(Status.UPDATING_WEIGHTS, self._load_id))
        self._reached = Reached.PAUSING
        await self._control().barrier()
        await self._end_sessions()  # A try that failed may have left one open, and none can be opened then.
        self._tell(events.Declare, self.load_id)
        self._tell(events.RecordTarget, self.load_id, self.load_id)

    async def _close(self) -> None:
        """Verify what the block has sent, and only then let engines generate."""
        assert self._load_id is not None
        reports = [await _plugin(engine) for engine in self._engines]
        await self._fence_again()
        if ran := [number for number, report in enumerate(reports) if report is not None and report.mixed]:
            message = f"engine {_listed(ran)} computed while weights changed: the block must not continue engines"
            raise EngineError(message)
        if left_open := await self._end_sessions():
            message = f"engine {_listed(left_open)}: the update session was not ended, so the update is partial"
            raise EngineError(message)
        if partial := [number for number, report in enumerate(reports) if report is not None and not report.complete]:
            message = f"engine {_listed(partial)}: its plugin says that the weights are no complete load"
            raise EngineError(message)
        control = self._control()
        checksum = await control.verify(self._load_id, None)
        for number in range(len(self._engines)):
            self._tell(events.Send, number, self.load_id, f"published as {self.load_id}")
        self._tell(events.AllSent)
        self._tell(events.Verify, self.load_id, checksum)
        self._reached = Reached.CONTINUING
        await control.continue_all(self._load_id)
        self._reached = Reached.SERVING
        await self._guard._write(Published(Status.COMPLETE, self._load_id, checksum))
        self._tell(events.RecordComplete, self.load_id)

    async def _fence_again(self) -> None:
        """Pause and flush whatever the block may have continued, which it should not; untold, for it is no step."""
        await self._control(deaf=True).barrier()

    def _control(self, *, deaf: bool = False) -> Control:
        """The engines as one thing; `deaf` where what is done is no step of a publication."""
        settings = ControlSettings(pause_mode=PauseMode.RETRACT, owned=False, bounds=self._settings.bounds)
        tell = events.Teller("nobody", clock=time.monotonic) if deaf else self._tell
        return Control(Slots(self._engines), settings, launcher=None, monitor=None, tell=tell)

    async def _end_sessions(self) -> list[int]:
        """End every update session that is open; at which engines one was."""
        return [
            number
            for number, engine in enumerate(self._engines)
            if isinstance(engine, EndsSessions) and await engine.end_update_session()
        ]

    @contextlib.asynccontextmanager
    async def _giving_up(self, kind: type[events.CallsFail]) -> AsyncIterator[None]:
        """Give up if the block fails, and raise what went wrong as one line."""
        try:
            yield
        except BaseException as error:
            fenced = self._reached is Reached.NOTHING or isinstance(error, CallsFailed)
            await self._give_up(kind, error, fence=not fenced)
            if isinstance(error, CallsFailed | Mismatch | EngineError | MarkerError | OSError):
                message = f"publication {self._load_id or 'not begun'}: {error}; {self._reached.value}"
                raise PublicationFailed(message) from error
            error.add_note(self._became_of_it())
            raise

    async def _give_up(self, kind: type[events.CallsFail], error: BaseException, *, fence: bool) -> None:
        if self._reached is not Reached.NOTHING:
            self._tell_why(kind, error)
        if fence and self._reached is Reached.PAUSING:
            # What does not answer is gone, or is as it was paused.
            with contextlib.suppress(CallsFailed):
                await self._fence_again()
        await self._let_go()

    def _became_of_it(self) -> str:
        return f"publication {self._load_id or 'not begun'} failed: {self._reached.value}"

    def _tell_why(self, kind: type[events.CallsFail], error: BaseException) -> None:
        reason = str(error) or type(error).__name__
        match self._reached, error:
            case Reached.SERVING, _:
                self._tell(events.WriteFails, Status.COMPLETE.value, "unknown", reason)
            case Reached.CONTINUING, CallsFailed():
                tell_failure(self._tell, events.ContinueFails, error)
            case _, CallsFailed():
                tell_failure(self._tell, kind, error)
            case _:
                self._tell(kind, "any", (), (), reason)  # What the block sent to whom is the trainer's to know.

    async def _let_go(self) -> None:
        self._guard._end()
        with contextlib.suppress(EngineError, OSError):
            await self._handles.aclose()


class _Run(Protocol):
    """Runs a coroutine to its end."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T:
        """Answer what it answers."""


@contextlib.contextmanager
def _driver(loop: asyncio.AbstractEventLoop | None) -> Iterator[_Run]:
    """What runs coroutines for a caller without an event loop: `loop`, or one of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        message = "an event loop runs here: write `async with guard.publication()`, `await guard.check_async()`"
        raise RuntimeError(message)
    if loop is not None:
        yield loop.run_until_complete
    else:
        with asyncio.Runner() as runner:
            yield runner.run


async def _plugin(engine: Engine) -> PluginReport | None:
    return await engine.plugin() if isinstance(engine, HasPlugin) else None


def _lacks(report: PluginReport | None) -> Iterator[str]:
    """What a plugin that is required lacks."""
    if report is None or not report.provenance:
        yield "runs without the plugin's provenance; start it with REEF_REF_PROVENANCE=report or enforce"
    elif not report.able_to_share:
        yield f"has a plugin that could not be verified: {'; '.join(report.problems)}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
