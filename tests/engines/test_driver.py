"""The contract of an engine: the simulated engine keeps it, and every way to break it is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reef_ref.engines.interface import (
    AdapterChange,
    CacheState,
    Continued,
    Flush,
    Generation,
    Limits,
    LoadReport,
    MemoryChange,
    Pause,
    PauseMode,
    Region,
    Request,
    Span,
    Update,
)
from reef_ref.engines.simulated import (
    SimulatedEngine,
    SimulatedSettings,
    Weights,
    read_checkpoint,
    run_simulated,
    write_checkpoint,
)
from reef_ref.engines.simulated.scheduler import SchedulerSettings
from reef_ref.testing.driver import CLAUSES, ContractBroken, Driver, check_driver


def maker(
    folder: Path, kind: type[SimulatedEngine] = SimulatedEngine, **more: Any
) -> Callable[[], AbstractAsyncContextManager[Driver]]:
    checkpoints = (write_checkpoint(folder / "one", 1), write_checkpoint(folder / "two", 2))
    sharing = more.get("shares_prefixes", True)

    @asynccontextmanager
    async def make() -> AsyncIterator[Driver]:
        settings = SimulatedSettings(
            limits=Limits(flush_total_s=1.0), scheduler=SchedulerSettings(share_prefixes=sharing)
        )
        engine = kind(0, Weights(read_checkpoint(checkpoints[0]), "boot"), settings=settings)
        try:
            yield Driver(
                engine=engine,
                checkpoints=checkpoints,
                prompt=tuple(range(30, 50)),
                **{"adapter": write_checkpoint(folder / "adapter", 9), "in_flight_tokens": 50, **more},
            )
        finally:
            await engine.shut_down()
            await asyncio.sleep(1)

    return make


def test_the_simulated_engine_keeps_the_contract(tmp_path: Path) -> None:
    report = run_simulated(check_driver(maker(tmp_path)))
    assert report.held == tuple(CLAUSES)
    assert not report.skipped


def test_what_an_engine_does_not_have_is_skipped_by_name(tmp_path: Path) -> None:
    report = run_simulated(check_driver(maker(tmp_path, adapter=None, has_memory=False, shares_prefixes=False)))
    assert set(report.skipped) == {"adapters_are_apart", "memory_comes_and_goes_in_pairs"}
    assert len(report.held) + len(report.skipped) == len(CLAUSES)


class FlushesNothing(SimulatedEngine):
    async def flush(self) -> Flush:
        self._flushed = True
        return Flush(CacheState.CLEARED, 0, 0.0)


class PausesNothing(SimulatedEngine):
    async def pause(self, mode: PauseMode) -> Pause:
        await super().pause(mode)
        self.scheduler.paused = None
        self._wake()
        return Pause(mode)


class RetractsInPlace(SimulatedEngine):
    async def pause(self, mode: PauseMode) -> Pause:
        await super().pause(PauseMode.RETRACT)
        return Pause(mode)


class OnlyLabels(SimulatedEngine):
    async def update(self, checkpoint: Path, load_id: str) -> Update:
        seed = self.scheduler.weights.seed
        update = await super().update(checkpoint, load_id)
        self.scheduler.weights = Weights(seed, load_id)
        return update


class NoLabels(SimulatedEngine):
    async def update(self, checkpoint: Path, load_id: str) -> Update:
        label = self.scheduler.weights.load_id
        update = await super().update(checkpoint, load_id)
        self.scheduler.weights = Weights(self.scheduler.weights.seed, label)
        return update


class StaleFrontEnd(SimulatedEngine):
    async def report(self) -> LoadReport:
        return LoadReport((await super().report()).load_id, "boot")


class UpdatesUnpaused(SimulatedEngine):
    async def update(self, checkpoint: Path, load_id: str) -> Update:
        paused, self.scheduler.paused = self.scheduler.paused, PauseMode.RETRACT
        try:
            return await super().update(checkpoint, load_id)
        finally:
            self.scheduler.paused = paused


class LosesRequests(SimulatedEngine):
    async def pause(self, mode: PauseMode) -> Pause:
        pause = await super().pause(mode)
        for work in list(self.scheduler.waiting):
            work.finish(work)
        self.scheduler.waiting.clear()
        return pause


class ReleasesAnytime(SimulatedEngine):
    async def release(self, regions: frozenset[Region]) -> MemoryChange:
        self._flushed = True
        return await super().release(regions)


class ResumesTwice(SimulatedEngine):
    async def resume(self, regions: frozenset[Region]) -> MemoryChange:
        change = await super().resume(regions)
        return MemoryChange(regions, change.released)


class ContinuesWithoutMemory(SimulatedEngine):
    async def continue_generation(self) -> Continued:
        self.scheduler.released.clear()
        return await super().continue_generation()


class MixesAdapters(SimulatedEngine):
    async def generate(self, request: Request) -> Generation:
        return await super().generate(replace(request, adapter=None))


class LoadsTwice(SimulatedEngine):
    async def load_adapter(self, name: str, path: Path) -> AdapterChange:
        self._adapters.pop(name, None)
        return await super().load_adapter(name, path)


class UnloadsUnderAPause(SimulatedEngine):
    async def unload_adapter(self, name: str) -> AdapterChange:
        paused, self.scheduler.paused = self.scheduler.paused, None
        try:
            return await super().unload_adapter(name)
        finally:
            self.scheduler.paused = paused


class ChecksumsOfLabels(SimulatedEngine):
    async def checksum(self) -> str:
        return self.scheduler.weights.load_id


class DeadWhenPaused(SimulatedEngine):
    async def health(self) -> Any:
        health = await super().health()
        return replace(health, alive=health.alive and self.scheduler.paused is None)


class LabelsLate(SimulatedEngine):
    async def generate(self, request: Request) -> Generation:
        generation = await super().generate(request)
        spans = (Span(generation.spans[0].load_id, 0, len(generation.output_ids)),)
        return replace(generation, spans=spans)


BROKEN = {
    FlushesNothing: "a_flush_empties_the_cache|a_retract_pause|a_publication",
    PausesNothing: "a_retract_pause_keeps_requests",
    RetractsInPlace: "an_in_place_pause_keeps_requests",
    OnlyLabels: "a_publication_changes_everything",
    NoLabels: "a_publication_changes_everything",
    StaleFrontEnd: "a_publication_changes_everything",
    UpdatesUnpaused: "an_update_needs_a_pause",
    LosesRequests: "a_retract_pause_keeps_requests",
    ReleasesAnytime: "memory_comes_and_goes_in_pairs",
    ResumesTwice: "memory_comes_and_goes_in_pairs",
    ContinuesWithoutMemory: "memory_comes_and_goes_in_pairs",
    MixesAdapters: "adapters_are_apart",
    LoadsTwice: "adapters_are_apart",
    UnloadsUnderAPause: "adapters_are_apart",
    ChecksumsOfLabels: "checksums_are_of_the_content",
    DeadWhenPaused: "it_says_whether_it_lives",
    LabelsLate: "a_request_in_flight_over_a_publication_is_whole",
}


@pytest.mark.parametrize(("kind", "clause"), BROKEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_engine_is_noticed(tmp_path: Path, kind: type[SimulatedEngine], clause: str) -> None:
    with pytest.raises(ContractBroken, match=f"^({clause})"):
        run_simulated(check_driver(maker(tmp_path, kind)))
