"""SGLang engines as Ray actors: named and detached, so that a driver may end and the next one finds them again.

```python
ray.init(address=...)
launcher = RayLauncher(settings_of_slot, namespace="policy")
slots = Slots([await launcher.find(slot) for slot in range(2)])  # Empty ones are filled by the coordinator.
```

The actor's process holds the whole `SGLangEngine`, in process: what is paused, flushed, released or uncertain is known
there and outlives a driver. A `RayEngine` is no more than the way to it. Results come as they are, and so do errors, as
values: an exception that an actor raises is wrapped by Ray, and its class lost to whoever catches it.

What is left to Ray, and what is not (Ray 2.60, seen by running it):

* A killed actor is known to be dead within some milliseconds: whoever waits for an answer gets `EngineLost` at once.
* Ray never starts one again (`max_restarts=0`): a new process has booted some weights, and only a coordinator knows
  which it has to be sent, behind which barrier.
* Ray calls an actor dead, and gives its name away, before its process is gone: seconds before, if that hangs. So an end
  is only told once every process of the engine's group was seen to be gone, by a task on its node.
* Calls beyond an actor's concurrency wait in line. Control calls therefore have a line of their own: a pause must not
  wait for requests that it is to stop.
* An actor with asynchronous methods lives in other threads than the main one, so no signal can be taken over there. A
  failure of the engine, which SGLang reports by SIGQUIT, ends the actor.

On other machines, reef-ref must be installed in the same version, and checkpoints be found under the same path.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef_ref.engines.errors import (
    CallRefused,
    EngineError,
    EngineLost,
    EngineNotSupported,
    EngineStartFailed,
    EngineTimeout,
    EngineUnreachable,
    UpdateFailed,
)
from reef_ref.engines.interface import CacheState, Health, Limits, Update, WeightState
from reef_ref.engines.sglang_engine import NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reef_ref.engines.checkpoint import CheckpointLayout
    from reef_ref.engines.interface import (
        AdapterChange,
        Continued,
        Flush,
        Generation,
        LoadReport,
        MemoryChange,
        Pause,
        PauseMode,
        Region,
        Request,
    )
    from reef_ref.engines.sglang_engine import SGLangEngine
    from reef_ref.engines.wire import Answer, Route

__all__ = ["ActorSettings", "RayEngine", "RayLauncher", "alone"]

CONTROL = "control"
REQUESTS = "requests"
AT_ONCE = {CONTROL: 64, REQUESTS: 16384}
"""How many calls of each kind an actor works on at a time."""
CARRY_S = 5.0
"""For a call's way to the actor and back, in seconds, beside what the engine itself may take."""
ASK_S = 20.0
"""For what Ray itself is asked, in seconds."""
END_S = 60.0
"""For the task that ends an engine's processes on its node, in seconds, with the start of its worker."""
LEADER = "leader.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSettings:
    """What to start: arguments of `sglang.Engine`, further environment variables, and what the actor takes of a node.

    `start_s` bounds the time until the engine answers, in seconds. `resources` are Ray's own, by name.
    """

    arguments: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    start_s: float = 300.0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine lives, and what a driver has to know of it.

    `pid` leads the process group that the engine is; `home` is the name of its folder among the node's temporary ones.
    """

    node: str
    pid: int
    home: str
    limits: Limits
    layout: CheckpointLayout


class _Host:
    """The inside of an actor: one engine in this process, asked by the name of a method."""

    def __init__(self, name: str, home: str, settings: ActorSettings) -> None:
        self._address = _address(name)
        self._home = Path(tempfile.gettempdir()) / home
        self._settings = settings
        self._engine: SGLangEngine | None = None

    async def start(self) -> Place | EngineError:
        """Start the engine: where it is, or why it did not start."""
        from reef_ref.engines import in_process

        settings = self._settings
        try:
            self._settle()
            self._engine = await in_process.start(
                settings.arguments,
                start_s=settings.start_s,
                limits=settings.limits,
                address=self._address,
                process_is_its_own=True,
            )
        except EngineError as error:
            return error
        except OSError as error:
            return EngineStartFailed(f"{self._address}: {error}")
        return await self.place()

    def _settle(self) -> None:
        """Make this process one that can be found and ended with all that it starts."""
        import resource

        import psutil

        if os.getpgrp() != os.getpid():
            os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT, by which SGLang reports, would leave a core.
        self._home.mkdir(mode=0o700)
        leader = {"pid": os.getpid(), "started": psutil.Process().create_time()}
        unfinished = self._home / "leader.new"
        unfinished.write_text(json.dumps(leader))
        unfinished.replace(self._home / LEADER)
        os.environ.update(
            {
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                **self._settings.environment,
                "TMPDIR": str(self._home),  # SGLang leaves socket files behind when it is killed.
            }
        )
        tempfile.tempdir = None  # Where it was looked up before, it is looked up again.

    async def place(self) -> Place | EngineError:
        """Where the engine is, if it has started."""
        import ray

        if self._engine is None:
            return CallRefused(f"{self._address}: the engine has not started")
        node = ray.get_runtime_context().get_node_id()
        return Place(node, os.getpid(), self._home.name, self._settings.limits, self._engine.layout)

    async def ask(self, method: str, *arguments: Any) -> Any:
        """What the engine's method answers, or the error that it raises."""
        try:
            return await getattr(self._engine, method)(*arguments)
        except EngineError as error:
            return error

    async def carry(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer | EngineError:
        """One call of SGLang's own, past the interface."""
        assert self._engine is not None
        try:
            return await self._engine.wire.call(route, body, bound_s)
        except EngineError as error:
            return error


class _Actor:
    """An actor's handle: calls with a bound, and errors in the words of `reef_ref.engines.errors`."""

    def __init__(self, handle: Any, name: str) -> None:
        self._handle = handle
        self._name = name
        self.closed = False

    @property
    def address(self) -> str:
        return _address(self._name)

    async def call(self, what: str, bound_s: float, method: str, *arguments: Any, line: str = CONTROL) -> Any:
        """Ask the actor. Raises `EngineUnreachable`, `EngineLost`, `EngineTimeout`, and what the engine raised."""
        import ray

        where = f"{what} at {self.address}"
        if self.closed:
            message = f"{where}: this handle was shut down"
            raise EngineUnreachable(message)
        reference = None
        try:
            async with asyncio.timeout(bound_s):
                reference = getattr(self._handle, method).options(concurrency_group=line).remote(*arguments)
                outcome = await reference
        except TimeoutError as error:
            _give_up(reference)
            message = f"{where}: no answer within {bound_s:g} s"
            raise EngineTimeout(message) from error
        except asyncio.CancelledError:
            _give_up(reference)
            raise
        except ray.exceptions.RayError as error:
            message = f"{where}: {_said(error)}"
            raise EngineLost(message) from error
        if isinstance(outcome, EngineError):
            raise outcome
        return outcome

    async def kill(self) -> None:
        """Have Ray end the actor; one that is dead stays dead."""
        self.closed = True
        await _ask_ray(f"kill {self.address}", _connected().kill, self._handle, no_restart=True)


class RayEngine:
    """An SGLang engine in a Ray actor; see `reef_ref.engines.interface.Engine` for the methods' meaning.

    Made by `RayLauncher`. Letting go of it ends nothing; `shut_down` ends the actor, for everybody who has a handle.
    """

    def __init__(self, actor: _Actor, place: Place) -> None:
        self._actor = actor
        self._place = place
        self._ended = False

    @property
    def address(self) -> str:
        """The actor's name, for messages."""
        return self._actor.address

    @property
    def place(self) -> Place:
        """The node and the process that the engine is."""
        return self._place

    @property
    def layout(self) -> CheckpointLayout:
        """Names, shapes and types of the tensors that the engine serves."""
        return self._place.layout

    @property
    def wire(self) -> _RayWire:
        """The way to SGLang's own calls that are not part of a publication."""
        return _RayWire(self)

    async def generate(self, request: Request) -> Generation:
        """Run one request to its end."""
        bound_s = self._place.limits.generate_s + CARRY_S
        answer: Generation = await self._actor.call("generate", bound_s, "ask", "generate", request, line=REQUESTS)
        return answer

    async def pause(self, mode: PauseMode) -> Pause:
        """Stop generating, and make sure that the scheduler has heard it."""
        answer: Pause = await self._ask("pause", 2 * self._place.limits.control_s, mode)
        return answer

    async def flush(self) -> Flush:
        """Clear the prefix cache, with bounded retries in the actor."""
        limits = self._place.limits
        answer: Flush = await self._ask("flush", limits.flush_total_s + limits.flush_try_s)
        return answer

    async def release(self, regions: frozenset[Region]) -> MemoryChange:
        """Give regions of memory back."""
        answer: MemoryChange = await self._ask("release", self._place.limits.memory_s, regions)
        return answer

    async def resume(self, regions: frozenset[Region]) -> MemoryChange:
        """Take regions back."""
        answer: MemoryChange = await self._ask("resume", self._place.limits.memory_s, regions)
        return answer

    async def update(self, checkpoint: Path, load_id: str) -> Update:
        """Load a checkpoint's weights under a new load id, leaving the cache alone."""
        try:
            answer: Update = await self._ask("update", self._place.limits.update_s, checkpoint, load_id)
        except (EngineTimeout, EngineLost) as error:
            unknown = Update(weights=WeightState.UNKNOWN, cache=CacheState.KEPT, load_id=None)
            raise UpdateFailed(self.address, NO_ANSWER, str(error), unknown) from error
        return answer

    async def continue_generation(self) -> Continued:
        """Generate again."""
        answer: Continued = await self._ask("continue_generation", self._place.limits.control_s)
        return answer

    async def report(self) -> LoadReport:
        """The load ids that the scheduler and the front end report."""
        answer: LoadReport = await self._ask("report", 2 * self._place.limits.control_s)
        return answer

    async def checksum(self) -> str:
        """A digest of the weights' content; see `SGLangEngine.checksum`."""
        answer: str = await self._ask("checksum", self._place.limits.checksum_s)
        return answer

    async def load_adapter(self, name: str, path: Path) -> AdapterChange:
        """Load a LoRA adapter."""
        answer: AdapterChange = await self._ask("load_adapter", self._place.limits.control_s, name, path)
        return answer

    async def unload_adapter(self, name: str) -> AdapterChange:
        """Unload a LoRA adapter."""
        answer: AdapterChange = await self._ask("unload_adapter", self._place.limits.control_s, name)
        return answer

    async def adapters(self) -> Mapping[str, Path]:
        """The LoRA adapters that the engine holds."""
        answer: Mapping[str, Path] = await self._ask("adapters", self._place.limits.control_s)
        return answer

    async def health(self) -> Health:
        """Whether the scheduler answers, paused or not."""
        try:
            answer: Health = await self._ask("health", self._place.limits.health_s)
        except EngineError as error:
            return Health(alive=False, detail=str(error))
        return answer

    async def shut_down(self) -> None:
        """End the actor, and see every process of the engine gone. Raises `EngineError` where one is left."""
        if self._ended:
            return
        await self._actor.kill()
        await _end_processes(self.address, [self._place.node], self._place.home)
        self._ended = True

    async def _ask(self, method: str, bound_s: float, *arguments: Any) -> Any:
        return await self._actor.call(method, bound_s + CARRY_S, "ask", method, *arguments)


class _RayWire:
    """A `reef_ref.engines.wire.Wire` to the SGLang engine in an actor."""

    def __init__(self, engine: RayEngine) -> None:
        self._engine = engine

    @property
    def address(self) -> str:
        return self._engine.address

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        actor = self._engine._actor
        answer: Answer = await actor.call(route.value, bound_s + CARRY_S, "carry", route, body, bound_s)
        return answer

    async def close(self) -> None:
        await self._engine.shut_down()


class RayLauncher:
    """A `reef_ref.control.Launcher` of actors, one a slot, on the cluster that this process is connected to.

    Args:
        settings: what to start for a slot, by its number.
        namespace: where the actors have their names, `engine-0` and so on: one for each deployment.
    """

    def __init__(self, settings: Callable[[int], ActorSettings], *, namespace: str = "reef-ref") -> None:
        self._settings = settings
        self._namespace = namespace

    async def start(self, slot: int) -> RayEngine:
        """Start an engine, once whatever had the slot's name is gone.

        Raises `EngineStartFailed`, and what the engine raises when it is attached to; a start that fails leaves no
        process.
        """
        ray = _connected()
        await self.end(slot)
        name, settings = self._name(slot), self._settings(slot)
        kind = ray.remote(concurrency_groups=AT_ONCE)(_Host).options(
            name=name,
            namespace=self._namespace,
            lifetime="detached",
            num_cpus=settings.cpus,
            num_gpus=settings.gpus,
            resources=dict(settings.resources),
            max_restarts=0,
            max_task_retries=0,
        )
        try:
            actor = _Actor(kind.remote(name, f"{self._homes(slot)}{os.urandom(4).hex()}", settings), name)
            # An actor that no node has room for is waited for just as long.
            place: Place = await actor.call("start", settings.start_s + CARRY_S, "start")
        except BaseException as error:
            await self.end(slot)
            if isinstance(error, EngineLost | EngineTimeout | ValueError):  # The last: another driver was faster.
                message = f"{_address(name)} did not start: {error}"
                raise EngineStartFailed(message) from error
            raise
        return RayEngine(actor, place)

    async def find(self, slot: int) -> RayEngine | None:
        """The engine that an earlier driver started for a slot; none if there is none that works.

        What is left of one that died, or that was never up, is ended. Raises `EngineTimeout` if one is there and does
        not answer, for it may work again; `end` ends it.
        """
        actor = await self._named(slot)
        if actor is not None:
            with contextlib.suppress(EngineLost, CallRefused):
                place: Place = await actor.call("find", Limits().control_s, "place")
                return RayEngine(actor, place)
        await self.end(slot)
        return None

    async def end(self, slot: int) -> None:
        """End whatever has the slot's name or had it, on every node; nothing if there is nothing.

        Raises `EngineError` where a process is left.
        """
        if (actor := await self._named(slot)) is not None:
            await actor.kill()
        address = _address(self._name(slot))
        nodes = await _ask_ray(f"end {address}", _connected().nodes)
        await _end_processes(address, [node["NodeID"] for node in nodes if node["Alive"]], self._homes(slot))

    async def _named(self, slot: int) -> _Actor | None:
        name = self._name(slot)
        try:
            handle = await _ask_ray(f"find {name}", _connected().get_actor, name, namespace=self._namespace)
        except ValueError:  # Nobody has the name.
            return None
        return _Actor(handle, name)

    def _name(self, slot: int) -> str:
        return f"engine-{slot}"

    def _homes(self, slot: int) -> str:
        """How the names of a slot's folders begin; the paths of sockets in them have to be short."""
        session = _connected().get_runtime_context().get_session_name()
        whole = "\0".join((session, self._namespace, self._name(slot)))
        return f"reef-ref-ray-{hashlib.sha256(whole.encode()).hexdigest()[:16]}-"


def alone() -> dict[str, str]:
    """An environment under which a cluster of this machine is nobody else's; for its drivers, too.

    Ray reads it when it is imported. Otherwise Ray 2.60 tells its makers how it is used, listens on all interfaces, and
    leaves a token in the user's home.
    """
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray turns a loopback address into that of the machine, unless it takes itself to be where it has no clusters.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # A cluster runs whatever it is sent.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # What a later Ray does anyway, and this one warns of.
    }


def _address(name: str) -> str:
    return f"Ray actor {name}"


def _connected() -> Any:
    """Ray, connected to a cluster: by itself it would start one here, which nobody has asked for."""
    try:
        import ray
    except ModuleNotFoundError:
        message = "engines as Ray actors need ray: install reef-ref[engine,ray]"
        raise EngineNotSupported(message) from None
    if not ray.is_initialized():
        message = "this process is not connected to a Ray cluster: call ray.init(address=...) first"
        raise EngineUnreachable(message)
    return ray


def _give_up(reference: Any) -> None:
    """Cancel a call that nobody waits for any more; an engine ends a request of its own that is cancelled."""
    import ray

    if reference is not None:
        with contextlib.suppress(ray.exceptions.RayError):
            ray.cancel(reference)


def _said(error: Exception) -> str:
    """What Ray says, in one line and without its advice."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("The actor is dead because")), lines[-1] if lines else "")
    return told.split("Some common causes")[0].strip() or type(error).__name__


async def _ask_ray(what: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What Ray itself answers; it waits for its cluster, so not on this loop. Raises `EngineTimeout`, `EngineError`."""
    import ray

    try:
        async with asyncio.timeout(ASK_S):
            return await asyncio.to_thread(call, *arguments, **named)
    except TimeoutError as error:
        message = f"{what}: Ray did not answer within {ASK_S:g} s"
        raise EngineTimeout(message) from error
    except ray.exceptions.RayError as error:
        message = f"{what}: {_said(error)}"
        raise EngineError(message) from error


async def _end_processes(address: str, nodes: list[str], homes: str) -> None:
    """End the engines whose folders' names begin with `homes`, on some nodes, and wait until they are gone."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    end = ray.remote(num_cpus=0, max_retries=1)(_end_here)
    ends = [
        end.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)).remote(homes)
        for node in nodes
    ]
    try:
        async with asyncio.timeout(END_S):
            left = [pid for pids in await asyncio.gather(*ends) for pid in pids]
    except TimeoutError as error:
        message = f"{address}: its processes were not seen to end within {END_S:g} s"
        raise EngineError(message) from error
    except ray.exceptions.RayError as error:
        message = f"{address}: its processes were not seen to end: {_said(error)}"
        raise EngineError(message) from error
    if left:
        message = f"{address}: processes {left} did not end after SIGKILL"
        raise EngineError(message)


def _end_here(homes: str) -> list[int]:
    """On an engine's node: kill what is left of its processes, and remove its folder; the ids that are still there."""
    from reef_ref.engines.processes import end_group

    left: list[int] = []
    for home in Path(tempfile.gettempdir()).glob(f"{homes}*"):
        if home.is_symlink() or home.stat().st_uid != os.getuid():
            continue  # Somebody else's: an engine makes its own, or does not start.
        if (written := home / LEADER).exists():
            leader = json.loads(written.read_text())
            if still := end_group(leader["pid"], leader["started"]):
                left += still
                continue  # Whoever tries again has to find them.
        shutil.rmtree(home, ignore_errors=True)
    return left
