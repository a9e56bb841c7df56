"""A deployment in which nothing happens before it is told to: every call and every write waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TypeAlias

from reef_ref import events
from reef_ref.engines.errors import EngineRefused, EngineStartFailed
from reef_ref.engines.interface import (
    Continued,
    Flush,
    Health,
    LoadReport,
    MemoryChange,
    Pause,
    PauseMode,
    Region,
    Update,
)
from reef_ref.engines.simulated import CoordinatorDied, SimulatedDisk, Weights
from reef_ref.training import Job, Trained
from tests.conformance.world import HANG_S, WatchedEngine, World

TORN_SEED = 666
"""What a torn transfer leaves."""
Turn: TypeAlias = tuple[str, int | None]
"""A call, and the slot of the engine that it is made to."""


class Way(Enum):
    """How a call goes on when it is its turn."""

    WELL = auto()
    FAILS = auto()
    FAILS_AFTER = auto()
    """Its effect is there."""
    DECLINED = auto()
    TORN = auto()
    TORN_AND_STAMPED = auto()
    NOT_STAMPED = auto()
    ONLY_STAMPED = auto()


class PacedEngine(WatchedEngine):
    """An engine that does what it is asked when it is its turn."""

    world: PacedWorld

    async def _turn(self, call: str) -> Way:
        way = await self.world.turn(call, self.slot)
        if way is Way.FAILS:
            raise EngineRefused(call, self.address, 503, "refused")
        return way

    async def pause(self, mode: PauseMode) -> Pause:
        await self._turn("pause")
        return await super().pause(mode)

    async def flush(self) -> Flush:
        await self._turn("flush")
        return await super().flush()

    async def release(self, regions: frozenset[Region]) -> MemoryChange:
        await self._turn("release")
        return await super().release(regions)

    async def resume(self, regions: frozenset[Region]) -> MemoryChange:
        await self._turn("resume_weights" if Region.WEIGHTS in regions else "resume_kv")
        return await super().resume(regions)

    async def update(self, checkpoint: Path, load_id: str) -> Update:
        way = await self._turn("send")
        before = self.scheduler.weights
        answer = await super().update(checkpoint, load_id)
        sent = self.scheduler.weights
        self.scheduler.weights = {
            Way.TORN: Weights(TORN_SEED, before.load_id),
            Way.TORN_AND_STAMPED: Weights(TORN_SEED, load_id),
            Way.NOT_STAMPED: Weights(sent.seed, before.load_id),
            Way.ONLY_STAMPED: Weights(before.seed, load_id),
        }.get(way, sent)
        return answer

    async def report(self) -> LoadReport:
        await self._turn("report")
        return await super().report()

    async def continue_generation(self) -> Continued:
        await self._turn("continue_generation")
        return await super().continue_generation()

    async def shut_down(self) -> None:
        await self._turn("shut down")
        await super().shut_down()

    async def health(self) -> Health:
        if self.slot not in self.world.looked_at:
            return Health(alive=True, detail="nobody has asked yet")
        return await super().health()


class PacedDisk(SimulatedDisk):
    """A disk that writes when it is its turn."""

    world: PacedWorld

    async def replace(self, data: bytes) -> None:
        way = await self.world.turn("write")
        error = OSError("no space left on the paced disk")
        if way is Way.FAILS:
            raise error
        await super().replace(data)
        if way is Way.FAILS_AFTER:
            raise error


@dataclass
class PacedWorld(World):
    """See the module. `on_line` hears of every event at the moment in which it is told."""

    engine_type = PacedEngine

    free: bool = True
    """Whether everything happens at once, as in a world that nobody paces."""
    waiting: dict[Turn, asyncio.Future[Way]] = field(default_factory=dict)
    looked_at: set[int] = field(default_factory=set)
    """The slots at which the health monitor finds out whether anybody is there."""
    on_line: Callable[[events.Event], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        super().__post_init__()
        disk = PacedDisk(self.plan, hang_s=HANG_S)
        disk.world = self
        self.disk = disk

    async def turn(self, call: str, slot: int | None = None) -> Way:
        """Wait for the turn of a call. Raises `CoordinatorDied` if its coordinator is dead by then."""
        if self.free:
            return Way.WELL
        if self.plan.dead:
            raise CoordinatorDied
        future = self.waiting[call, slot] = asyncio.get_running_loop().create_future()
        try:
            way = await future
        finally:
            del self.waiting[call, slot]
        if self.plan.dead:
            raise CoordinatorDied
        return way

    def let(self, turn: Turn, way: Way = Way.WELL) -> None:
        """It is the turn of a call."""
        if not self.waiting[turn].done():
            self.waiting[turn].set_result(way)

    async def start(self, slot: int) -> WatchedEngine:
        if await self.turn("rebuild", slot) is Way.FAILS:
            raise EngineStartFailed(f"engine {slot} did not start")
        return await super().start(slot)

    async def prepare(self, job: Job) -> str | None:
        return "the data are too old" if await self.turn("prepare") is Way.DECLINED else None

    async def train(self, job: Job) -> Trained:
        if await self.turn("train") is Way.FAILS:
            raise RuntimeError("training failed")
        return await super().train(job)

    def _listen(self, line: events.Line) -> None:
        super()._listen(line)
        self.on_line(line.event)

    def _listen_while_alive(self, line: events.Line) -> None:
        super()._listen_while_alive(line)
        if not self.plan.dead:
            self.on_line(line.event)


__all__ = ["PacedWorld", "Turn", "Way"]
