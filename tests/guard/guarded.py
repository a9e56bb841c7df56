"""Simulated engines under a guard, with a trainer that sends their bytes; what the guard may never do is checked here.

Stories are told to a module, the guard's own or one with a check less, so that each can be shown to notice something.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reef_ref import events
from reef_ref.control import Bounds
from reef_ref.engines.errors import EngineRefused
from reef_ref.engines.interface import Engine, Generation, LoadReport, Pause, PauseMode, PluginReport, Request
from reef_ref.engines.simulated import (
    Plan,
    SimulatedDisk,
    SimulatedEngine,
    Weights,
    expected_tokens,
    write_checkpoint,
)
from reef_ref.monitor.trace import GUARD, unlogged_by
from reef_ref.monitor.validate import Report, Validator, Verdict
from reef_ref.published import Published, decode

BOUNDS = Bounds(pause_s=5, flush_s=100, report_s=5, continue_s=5, write_s=5)
UPDATE_S = 50.0
PROMPT = tuple(range(40, 60))
BOOT = 77
"""The seed of the weights that engines boot with."""


@cache
def validator(engines: int) -> Validator:
    """Of traces of guards; what it has learnt about the protocol serves for the next trace as well."""
    return Validator(engines, unlogged=unlogged_by([GUARD]))


class GuardedEngine(SimulatedEngine):
    """A simulated engine with the parts that only a guard looks at: update sessions, the plugin, a wrong label."""

    def __init__(self, slot: int, plan: Plan, told: list[events.Event]) -> None:
        tell = events.Teller(f"engine:{slot}", lambda line: told.append(line.event), clock=lambda: 0.0)
        super().__init__(slot, Weights(BOOT, "boot"), plan=plan, tell=tell)
        self.told = told
        self.session = False
        self.complete = True
        self.able_to_share = True
        self.has_plugin = True
        self.modes: list[PauseMode] = []
        self.reports_instead: LoadReport | None = None
        self._mixed = False

    async def pause(self, mode: PauseMode) -> Pause:
        self.modes.append(mode)
        return await super().pause(mode)

    async def begin_update_session(self) -> None:
        """As SGLang's, which opens no second one."""
        if self.session:
            raise EngineRefused("begin", self.address, 400, "a weight-update session is already open")
        self.session = True

    async def end_update_session(self) -> bool:
        was_open, self.session = self.session, False
        return was_open

    async def update(self, checkpoint: Path, load_id: str) -> Any:
        self._mixed = len(self.scheduler.tree) > 0
        return await super().update(checkpoint, load_id)

    async def flush(self) -> Any:
        answer = await super().flush()
        self._mixed = False
        return answer

    async def report(self) -> LoadReport:
        answer = await super().report()
        return self.reports_instead or answer

    async def plugin(self) -> PluginReport | None:
        if not self.has_plugin:
            return None
        stale = sum(
            isinstance(event, events.StartOnHit) and set(event.made_by) != {event.load_id} for event in self.told
        )
        return PluginReport(
            able_to_share=self.able_to_share,
            problems=() if self.able_to_share else ("a hook is missing",),
            provenance=True,
            complete=self.complete,
            mixed=self._mixed,
            stale=stale,
        )


class Deployment:
    """Two engines, the disk, a trainer's checkpoints, and the guards that come one after the other."""

    def __init__(self, adapter: ModuleType, folder: Path, *, require_plugin: bool = False) -> None:
        self.adapter = adapter
        self.plan = Plan()
        self.disk = SimulatedDisk(self.plan, hang_s=20.0)
        self.settings = adapter.GuardSettings(bounds=BOUNDS, require_plugin=require_plugin)
        self.trace: list[events.Line] = []
        self.told: list[events.Event] = []
        self.engines = [GuardedEngine(slot, self.plan, []) for slot in range(2)]
        self.checkpoints = {seed: write_checkpoint(folder / str(seed), seed) for seed in (1, 2, 3)}
        self.guard = self.new_guard()

    def new_guard(self) -> Any:
        """The guard of a new process of the trainer's, over the same disk and engines."""

        def attach(slot: int) -> Callable[[], Any]:
            @contextlib.asynccontextmanager
            async def attached() -> AsyncIterator[Engine]:
                yield self.engines[slot]

            return attached

        def listen(line: events.Line) -> None:
            self.trace.append(line)
            self.told.append(line.event)

        return self.adapter.PublicationGuard(
            [attach(slot) for slot in range(len(self.engines))],
            self.disk,
            settings=self.settings,
            listener=listen,
            clock=lambda: 0.0,
        )

    @property
    def record(self) -> Published | None:
        return None if self.disk.data is None else decode(self.disk.data)

    async def send(self, publication: Any, seed: int, *engines: int) -> None:
        """The trainer's own update, to all engines or some, with its own bound."""
        for slot in engines or range(len(self.engines)):
            async with asyncio.timeout(UPDATE_S):
                await self.engines[slot].update(self.checkpoints[seed], publication.load_id)

    async def publish(self, seed: int) -> str:
        """A publication as it should be."""
        async with self.guard.publication() as publication:
            await self.send(publication, seed)
        load_id: str = publication.load_id
        return load_id

    async def ask(self, slot: int, seed: int) -> Generation:
        """An answer of an engine, which has to be that of these weights, whatever its cache holds."""
        answer = await self.engines[slot].generate(Request(input_ids=PROMPT, max_new_tokens=4))
        assert answer.output_ids == expected_tokens(PROMPT, [seed] * 4), f"engine {slot} answers from other weights"
        return answer

    async def serves(self, seed: int, load_id: str) -> None:
        """Every engine generates, with these weights alone, under this id; and the record says so."""
        for slot, engine in enumerate(self.engines):
            assert engine.scheduler.paused is None, f"engine {slot} is paused"
            assert engine.scheduler.weights.load_id == load_id
            await self.ask(slot, seed)
            await self.ask(slot, seed)
        assert self.record is not None
        assert (self.record.finished, str(self.record.load_id)) == (True, load_id)

    def fenced(self) -> None:
        """No engine generates, and the record says that none may."""
        for slot, engine in enumerate(self.engines):
            assert not engine.alive or engine.scheduler.paused is PauseMode.RETRACT, f"engine {slot} generates"
        assert self.record is not None
        assert not self.record.finished

    def validated(self) -> Report:
        """The trace so far, held against the protocol."""
        taken = validator(len(self.engines))
        taken.begin()
        for at, line in enumerate(self.trace, 1):
            if taken.feed(line, at) is Verdict.INEXPLICABLE:
                break
        return taken.report()


async def refused(call: Awaitable[object], kind: type[BaseException], *words: str) -> None:
    """The call fails so, in one line that has these words."""
    with pytest.raises(kind) as caught:
        await call
    assert "\n" not in str(caught.value)
    text = "; ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert [word for word in words if word not in text] == [], text
