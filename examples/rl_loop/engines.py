"""Who serves: two SGLang engines that the loop starts and ends, or engines that somebody else runs.

Both have prefix sharing on, and the plugin's provenance on `report`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from examples.rl_loop.broken import Unflushed
from examples.rl_loop.settings import ENGINES, Break, Mode, Places, Settings
from reef_ref.control import Launcher
from reef_ref.engines.http import connect
from reef_ref.engines.interface import Limits
from reef_ref.engines.launcher import ServerLauncher
from reef_ref.engines.process import ServerSettings
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.health import Slots
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.provenance import read_counters

__all__ = [
    "Attached",
    "Deployment",
    "NotEngines",
    "attached",
    "owned",
    "read_attached",
    "require_provenance",
    "server_settings",
]

LIMITS = Limits(generate_s=120.0)


class NotEngines(Exception):  # noqa: N818  The name says what the file does not hold.
    """A file does not say which engines there are; the text says what would be right."""


class Attached(BaseModel):
    """An engine that somebody else runs: its address, and the file to which its plugin writes events."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str
    events: Path


_ATTACHED = TypeAdapter(list[Attached])


def read_attached(path: Path) -> Sequence[Attached]:
    """The engines that a JSON file names. Raises `NotEngines`."""
    try:
        found = _ATTACHED.validate_json(path.read_bytes())
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        raise NotEngines(message) from error
    except ValidationError as error:
        message = f'{path}: names no engines; expected [{{"address": "http://...", "events": "FILE"}}, ...]'
        raise NotEngines(message) from error
    if not found:
        message = f"{path}: names no engine; at least one is needed"
        raise NotEngines(message)
    return found


async def require_provenance(engine: SGLangEngine) -> None:
    """Raise `NotEngines` unless the engine's plugin compares what is reused."""
    try:
        await read_counters(engine)
    except (RuntimeError, KeyError) as error:
        message = f"{engine.address}: provenance is not at work there; start it with REEF_REF_PROVENANCE=report"
        raise NotEngines(message) from error


@dataclass(frozen=True, slots=True)
class Deployment:
    """Engines in their slots, who fills an empty slot, if anybody does, and where each slot's plugin writes."""

    slots: Slots
    launcher: Launcher | None
    events: Sequence[Path]

    def engine(self, slot: int) -> SGLangEngine:
        """The engine in a slot."""
        engine = self.slots[slot]
        assert isinstance(engine, SGLangEngine)
        return engine

    @property
    def engines(self) -> Sequence[SGLangEngine]:
        """All engines."""
        return [self.engine(slot) for slot in self.slots.live]


def server_settings(settings: Settings, boot: Path, models: Path, events: Path) -> ServerSettings:
    """What to start for a slot: a scenario's engine, on the checkpoint `boot`."""
    configuration = EngineConfiguration(
        provenance="report", memory_saver=settings.mode is Mode.COLOCATED, limits=LIMITS
    )
    return replace(configuration.settings(Models(models), events), model_path=boot)


class _Breaking:
    """A launcher whose engines are broken as asked for."""

    def __init__(self, launcher: Launcher, broken: Break | None) -> None:
        self._launcher = launcher
        self._broken = broken

    async def start(self, slot: int) -> SGLangEngine:
        engine = await self._launcher.start(slot)
        assert isinstance(engine, SGLangEngine)
        return _broken(engine, self._broken)


def _broken(engine: SGLangEngine, broken: Break | None) -> SGLangEngine:
    match broken:
        case None:
            return engine
        case Break.NO_FLUSH:
            return SGLangEngine(Unflushed(engine.wire), limits=LIMITS, layout=engine.layout)


@contextlib.asynccontextmanager
async def owned(
    settings: Settings, places: Places, boot: Path, broken: Break | None, *, goes_on: bool
) -> AsyncIterator[Deployment]:
    """Engines of the loop's own, which end with it, however it ends.

    In a run's first life they are started here. In a later one (`goes_on`) slots are empty, for the engines of the life
    before ended with it, and recovery fills them.
    """
    events = [places.plugin_events(slot) for slot in range(ENGINES)]
    for file in events:
        file.unlink(missing_ok=True)  # New engines count from nothing.

    def what(slot: int) -> ServerSettings:
        return server_settings(settings, boot, places.folder / "models", events[slot])

    async with ServerLauncher(what) as servers:
        launcher = _Breaking(servers, broken)
        if goes_on:
            yield Deployment(Slots([None] * ENGINES), launcher, events)
            return
        async with asyncio.TaskGroup() as group:
            starts = [group.create_task(launcher.start(slot)) for slot in range(ENGINES)]
        yield Deployment(Slots([start.result() for start in starts]), launcher, events)


@contextlib.asynccontextmanager
async def attached(engines: Sequence[Attached], broken: Break | None) -> AsyncIterator[Deployment]:
    """Engines of somebody else, which serve on when the loop has ended."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for one in engines:
            engine = await connect(one.address, limits=LIMITS)
            stack.push_async_callback(engine.shut_down)
            await require_provenance(engine)
            found.append(_broken(engine, broken))
        yield Deployment(Slots(found), None, [one.events for one in engines])
