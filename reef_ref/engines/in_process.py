"""An SGLang engine whose front end lives in this process (`sglang.Engine`).

SGLang's own Python methods run an event loop of their own to the end of each call, so one thread could not generate and
pause at the same time. Here the engine's loop turns in a thread of its own for as long as the engine lives, and calls
are handed to it.

SGLang keeps its settings in process-wide state: one engine a process. Its scheduler reports a failure by SIGQUIT to
this process, which would end it; `start` takes that signal over and `InProcessWire` answers `EngineLost` from then on.
A process that lives for its engine alone may leave the signal as it is, and end with its engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from reef_ref.engines.errors import EngineLost, EngineNotSupported, EngineStartFailed, EngineTimeout
from reef_ref.engines.interface import Limits
from reef_ref.engines.processes import end_processes
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Answer, Route

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from types import FrameType

    from reef_ref.engines.checkpoint import CheckpointLayout

__all__ = ["BorrowedWire", "InProcessWire", "start"]

ADDRESS = "sglang.Engine in this process"


class InProcessWire:
    """Calls to the tokenizer manager of an `sglang.Engine` that this object starts and ends.

    Args:
        arguments: those of `sglang.Engine`.
        address: a name for messages.
        process_is_its_own: whether a failure of the engine may end this process.
    """

    def __init__(
        self, arguments: Mapping[str, Any], *, address: str = ADDRESS, process_is_its_own: bool = False
    ) -> None:
        self._arguments = dict(arguments)
        self._address = address
        self._process_is_its_own = process_is_its_own
        self._engine: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lost: str | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._previous_handler: Any = None

    @property
    def address(self) -> str:
        """A name for messages."""
        return self._address

    async def start(self, bound_s: float) -> None:
        """Start the engine's processes and its loop. Raises `EngineStartFailed`."""
        if not self._process_is_its_own:
            if threading.current_thread() is not threading.main_thread():
                message = f"{self._address}: start it from the main thread, which is where signals are received"
                raise EngineStartFailed(message)
            self._previous_handler = signal.signal(signal.SIGQUIT, self._on_child_failure)
        self._thread = threading.Thread(target=self._serve, name="sglang-engine", daemon=True)
        self._thread.start()
        came_up = await asyncio.to_thread(self._started.wait, bound_s)
        if not came_up or self._failure is not None or self._lost is not None:
            reason = self._failure or self._lost or f"not up within {bound_s:g} s"
            await self.close()
            message = f"{self._address}: {reason}"
            raise EngineStartFailed(message)

    def _serve(self) -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())
        try:
            import sglang

            self._engine = sglang.Engine(**self._arguments)
        except BaseException as error:  # SGLang also raises SystemExit here.
            self._failure = error
            self._started.set()
            return
        loop: asyncio.AbstractEventLoop = self._engine.loop
        manager = self._engine.tokenizer_manager
        self._loop = loop
        loop.call_soon(self._started.set)
        loop.run_forever()
        _wind_down(loop, manager)

    def _on_child_failure(self, _signal: int, _frame: FrameType | None) -> None:
        self._lost = "a process of the engine ended"

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        """Make one call on the engine's loop."""
        self._raise_if_lost(route)
        if self._loop is None:
            message = f"{route.value} at {self._address}: not started"
            raise EngineLost(message)
        task = asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(_answer(self._engine, route, dict(body or {})), self._loop)
        )
        deadline = asyncio.get_running_loop().time() + bound_s
        try:
            while not task.done():
                remaining = deadline - asyncio.get_running_loop().time()
                if remaining <= 0:
                    message = f"{route.value} at {self._address}: no answer within {bound_s:g} s"
                    raise EngineTimeout(message)
                self._raise_if_lost(route)
                # Short waits: a child's failure arrives as a signal, which wakes no future.
                await asyncio.wait({task}, timeout=min(0.2, remaining))
            return task.result()
        finally:
            task.cancel()

    def _raise_if_lost(self, route: Route) -> None:
        if self._lost is not None:
            message = f"{route.value} at {self._address}: {self._lost}"
            raise EngineLost(message)

    async def close(self) -> None:
        """End the engine's processes, by their ids, and its loop."""
        engine, self._engine = self._engine, None
        self._lost = self._lost or "shut down"
        if engine is not None:
            await asyncio.to_thread(_end_engine, engine)
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 10.0)
            self._thread = None
        if self._previous_handler is not None:
            signal.signal(signal.SIGQUIT, self._previous_handler)
            self._previous_handler = None


class BorrowedWire:
    """Calls to the tokenizer manager of an `sglang.Engine` that somebody else started, and ends.

    Await it on the engine's own loop (`engine.loop`): SGLang's front end lives there.
    """

    def __init__(self, engine: Any, name: str) -> None:
        self._engine = engine
        self._name = name

    @property
    def address(self) -> str:
        """A name for messages."""
        return self._name

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        """Make one call."""
        if asyncio.get_running_loop() is not self._engine.loop:
            message = f"{route.value} at {self._name}: called from another event loop than the engine's own"
            raise EngineNotSupported(message)
        try:
            async with asyncio.timeout(bound_s):
                return await _answer(self._engine, route, dict(body or {}))
        except TimeoutError as error:
            message = f"{route.value} at {self._name}: no answer within {bound_s:g} s"
            raise EngineTimeout(message) from error

    async def close(self) -> None:
        """The engine is not ours to end."""


def _end_engine(engine: Any) -> None:
    # SGLang's own shutdown ends every child of this process, also those that are none of its business.
    import atexit

    atexit.unregister(engine.shutdown)
    watchdog = getattr(engine.tokenizer_manager, "_subprocess_watchdog", None)
    if watchdog is not None:
        watchdog.stop()
    if engine.send_to_rpc is not None:
        context = engine.send_to_rpc.context
        engine.send_to_rpc.close(linger=0)
        context.destroy(linger=0)
    end_processes(engine.get_all_child_pids())


def _wind_down(loop: asyncio.AbstractEventLoop, manager: Any) -> None:
    """End the front end's tasks, then its sockets; a task that met a closed socket would end this process."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=5.0))
    context = manager.recv_from_detokenizer.context
    for socket in (manager.recv_from_detokenizer, manager.send_to_scheduler):
        socket.close(linger=0)
    context.destroy(linger=0)
    loop.close()


async def _answer(engine: Any, route: Route, body: dict[str, Any]) -> Answer:
    from sglang.srt.managers import io_struct

    manager = engine.tokenizer_manager

    async def done(call: Coroutine[Any, Any, Any]) -> Answer:
        await call
        return Answer(200, {"status": "ok"})

    async def adapters(call: Callable[..., Coroutine[Any, Any, Any]], request: Any) -> Answer:
        result = await call(request, None)
        body = {"error_message": result.error_message, "loaded_adapters": dict(result.loaded_adapters or {})}
        return Answer(200 if result.success else 400, body)

    match route:
        case Route.GENERATE:
            try:
                return Answer(200, await anext(manager.generate_request(io_struct.GenerateReqInput(**body), None)))
            except ValueError as error:
                return Answer(int(getattr(error, "status_code", 400)), {"message": str(error)})
        case Route.PAUSE:
            return await done(manager.pause_generation(io_struct.PauseGenerationReqInput(**body)))
        case Route.CONTINUE:
            return await done(manager.continue_generation(io_struct.ContinueGenerationReqInput(**body)))
        case Route.RELEASE:
            return await done(
                manager.release_memory_occupation(io_struct.ReleaseMemoryOccupationReqInput(**body), None)
            )
        case Route.RESUME:
            return await done(manager.resume_memory_occupation(io_struct.ResumeMemoryOccupationReqInput(**body), None))
        case Route.FLUSH:
            result = await manager.flush_cache()
            return Answer(200 if result.success else 400, {"message": result.message or ""})
        case Route.UPDATE_FROM_DISK:
            request = io_struct.UpdateWeightFromDiskReqInput(**body)
            success, message, _ = await manager.update_weights_from_disk(request, None)
            return Answer(200 if success else 400, {"message": message})
        case Route.END_UPDATE:
            success, message = await manager.end_weight_update(io_struct.EndWeightUpdateReqInput(), None)
            return Answer(200 if success else 400, {"message": message})
        case Route.CHECK_WEIGHTS:
            success, message, _, digest = await manager.check_weights(io_struct.CheckWeightsReqInput(**body), None)
            return Answer(200 if success else 400, {"message": message, "per_engine_checksum": digest})
        case Route.LOAD_ADAPTER:
            return await adapters(manager.load_lora_adapter, io_struct.LoadLoRAAdapterReqInput(**body))
        case Route.UNLOAD_ADAPTER:
            return await adapters(manager.unload_lora_adapter, io_struct.UnloadLoRAAdapterReqInput(**body))
        case Route.MODELS:
            registry = getattr(manager, "lora_registry", None)
            loaded = registry.get_all_adapters().values() if registry is not None else ()
            cards = [{"id": a.lora_name, "root": a.lora_path, "parent": manager.served_model_name} for a in loaded]
            return Answer(200, {"data": cards})
        case Route.MODEL_INFO:
            return Answer(
                200, {"model_path": manager.model_path, "weight_version": manager.config_value("weight_version")}
            )
        case Route.SERVER_INFO:
            states = await manager.get_internal_state()
            return Answer(200, {**engine.server_args.resolved_dict(), "internal_states": states})


async def start(
    arguments: Mapping[str, Any],
    *,
    start_s: float = 300.0,
    limits: Limits | None = None,
    layout: CheckpointLayout | None = None,
    address: str = ADDRESS,
    process_is_its_own: bool = False,
) -> SGLangEngine:
    """Start an engine in this process with the arguments of `sglang.Engine`; bounded by `start_s` seconds.

    `address` and `process_is_its_own` are those of `InProcessWire`. Raises `EngineStartFailed`, and what
    `SGLangEngine.attach` raises.
    """
    wire = InProcessWire(arguments, address=address, process_is_its_own=process_is_its_own)
    await wire.start(start_s)
    try:
        return await SGLangEngine.attach(wire, limits=limits or Limits(), layout=layout)
    except BaseException:
        with contextlib.suppress(asyncio.CancelledError):
            await wire.close()
        raise
