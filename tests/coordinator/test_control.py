"""The latch, the barrier and the monitor; what fan-out costs; and deployments whose engines are somebody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reef_ref import events
from reef_ref.control import (
    Bounds,
    CallsFailed,
    Control,
    ControlSettings,
    Mismatch,
    NotLatched,
    NotVerified,
    tell_failure,
)
from reef_ref.engines.interface import ALL_REGIONS, Health, LoadReport, PauseMode
from reef_ref.engines.simulated import Fault, Plan, SimulatedEngine, Weights, run_simulated, write_checkpoint
from reef_ref.engines.simulated.engine import SimulatedSettings
from reef_ref.health import HealthMonitor, MonitorSettings, Slots
from reef_ref.load_id import LoadId

A1, A2 = LoadId("a", 1), LoadId("a", 2)
BOUNDS = Bounds(pause_s=5, flush_s=5, start_s=5, update_s=5, report_s=5, continue_s=5, retire_s=5)


class Deployment:
    """Engines behind one control, and what was told."""

    def __init__(
        self, engines: int, *, faults: dict[int, Fault] | None = None, latency_s: float = 0.001, **more: Any
    ) -> None:
        self.plan = Plan(faults)
        self.heard: list[events.Event] = []
        self.tell = events.Teller("test", lambda line: self.heard.append(line.event), clock=lambda: 0.0)
        self.latency_s = latency_s
        self.engines = [self.engine(slot) for slot in range(engines)]
        self.slots = Slots(self.engines)
        self.monitor = HealthMonitor(self.slots, MonitorSettings(interval_s=30), tell=self.tell)
        settings = {"pause_mode": PauseMode.RETRACT, "bounds": BOUNDS, **more}
        self.control = Control(
            self.slots, ControlSettings(**settings), launcher=self, monitor=self.monitor, tell=self.tell
        )

    def engine(self, slot: int) -> SimulatedEngine:
        settings = SimulatedSettings(latency_s=self.latency_s)
        return SimulatedEngine(slot, Weights(77, "boot"), plan=self.plan, settings=settings)

    async def start(self, slot: int) -> SimulatedEngine:
        await asyncio.sleep(self.latency_s)
        return self.engine(slot)

    def names(self) -> list[str]:
        return [event.name() for event in self.heard]


async def fails(call: Awaitable[object], kind: type[Exception], match: str = ".") -> None:
    with pytest.raises(kind, match=match):
        await call


def simulated(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an asynchronous test in virtual time."""

    def run(tmp_path: Path) -> None:
        run_simulated(test(tmp_path))  # type: ignore[arg-type]

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@simulated
async def test_no_flush_before_every_pause(folder: Path) -> None:
    """With one slow engine as with equal ones."""
    d = Deployment(3)
    d.engines[1]._settings = SimulatedSettings(latency_s=3.0)
    await d.control.barrier()
    names = d.names()
    assert names.index("flush") > names.index("all_paused") > max(i for i, n in enumerate(names) if n == "pause")
    assert d.control.latched


@simulated
async def test_in_place_nothing_is_flushed(folder: Path) -> None:
    d = Deployment(2, pause_mode=PauseMode.IN_PLACE)
    await d.control.barrier()
    assert d.names() == ["pause", "pause", "all_paused"]


@pytest.mark.parametrize("engines", [1, 64])
def test_a_publication_costs_round_trips_of_one(tmp_path: Path, engines: int) -> None:
    """Pause, flush, update, report, checksum, continue: six, for one engine and for sixty-four."""

    async def main() -> None:
        d = Deployment(engines, latency_s=1.0)
        loop = asyncio.get_running_loop()
        await d.control.barrier()
        assert loop.time() == pytest.approx(2.0)
        await d.control.send(write_checkpoint(tmp_path, 2), A1)
        await d.control.verify(A1, None)
        await d.control.continue_all(A1)
        assert loop.time() == pytest.approx(6.0)

    run_simulated(main())


@simulated
async def test_the_latch_is_set_before_anything_can_fail(folder: Path) -> None:
    d = Deployment(2, faults={0: Fault.FAILS_BEFORE})
    await fails(d.control.barrier(), CallsFailed, "pause failed: engine 0")
    assert d.control.latched
    assert d.engines[1].scheduler.paused is PauseMode.RETRACT
    assert d.engines[1].scheduler is not None
    assert "flush" not in d.names()


@simulated
async def test_every_wait_has_a_bound(folder: Path) -> None:
    d = Deployment(1, faults={0: Fault.HANGS_BEFORE})
    await fails(d.control.barrier(), CallsFailed, "no answer within 5 s")
    assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)


@simulated
async def test_nothing_is_started_or_sent_or_released_without_the_latch(folder: Path) -> None:
    d = Deployment(1, released=ALL_REGIONS)
    for call in (d.control.rebuild(), d.control.send(folder, A1), d.control.release()):
        await fails(call, NotLatched)


@simulated
async def test_engines_continue_only_with_what_was_verified(folder: Path) -> None:
    """And not after anything that could have changed it."""
    d = Deployment(2)
    checkpoint = write_checkpoint(folder, 2)
    await d.control.barrier()
    await fails(d.control.continue_all(A1), NotVerified)
    await d.control.send(checkpoint, A1)
    await d.control.verify(A1, None)
    await fails(d.control.continue_all(A2), NotVerified)
    await d.control.barrier()
    await fails(d.control.continue_all(A1), NotVerified)
    await d.control.verify(A1, None)
    await d.control.continue_all(A1)
    assert not d.control.latched


@simulated
async def test_a_partial_continue_leaves_the_latch(folder: Path) -> None:
    d = Deployment(2)
    await d.control.barrier()
    await d.control.send(write_checkpoint(folder, 2), A1)
    await d.control.verify(A1, None)
    d.plan.arm(1, Fault.FAILS_BEFORE)
    await fails(d.control.continue_all(A1), CallsFailed)
    assert d.control.latched
    assert d.monitor.excluded
    await d.control.continue_all(A1)
    assert not d.control.latched
    assert not d.monitor.excluded


@simulated
async def test_verification_wants_every_engine_and_every_byte(folder: Path) -> None:
    old, new = write_checkpoint(folder / "old", 1), write_checkpoint(folder / "new", 2)
    known = Weights(2, "").checksum

    d = Deployment(2)
    await d.control.barrier()
    await d.control.send(new, A1)
    assert await d.control.verify(A1, None) == known
    assert await d.control.verify(A1, known) == known
    await fails(d.control.verify(A2, None), Mismatch, "engine 0 reports a:1")
    await fails(d.control.verify(A1, Weights(1, "").checksum), Mismatch, "contents differ")
    d.engines[1].scheduler.weights = Weights(1, "a:1")
    await fails(d.control.verify(A1, None), Mismatch, "contents differ")
    d.engines[1].scheduler.weights = Weights(2, "boot")
    await fails(d.control.verify(A1, None), Mismatch, "engine 1 reports boot")

    nobody = Deployment(0)
    await nobody.control.barrier()
    await fails(nobody.control.verify(A1, None), Mismatch, "no engine")

    labels = Deployment(1, faults={2: Fault.ONLY_LABELS})
    await labels.control.barrier()
    await labels.control.send(old, A1)
    await fails(labels.control.verify(A1, Weights(1, "").checksum), Mismatch, "contents differ")


class Labelled(SimulatedEngine):
    """Reports other labels than it has."""

    labels = LoadReport("a:1", "a:1")

    async def report(self) -> LoadReport:
        return self.labels


@simulated
async def test_both_labels_are_those_of_the_load(folder: Path) -> None:
    """The scheduler's follows the weights, the front end's is what clients are told."""
    for scheduler, front_end in (("boot", "a:1"), ("a:1", "boot")):
        d = Deployment(1)
        d.slots.clear(0, d.engines[0])
        engine = Labelled(0, Weights(77, "boot"))
        d.slots.fill(0, engine)
        assert await d.control.verify(A1, None)
        engine.labels = LoadReport(scheduler, front_end)
        await fails(d.control.verify(A1, None), Mismatch, "engine 0 reports")


@simulated
async def test_a_slot_is_empty_only_when_its_engine_is_gone(folder: Path) -> None:
    d = Deployment(2)
    await d.control.barrier()
    d.plan.arm(0, Fault.FAILS_BEFORE)
    await d.control.retire_all()
    assert d.control.empty == (1,)
    assert d.engines[0].alive
    assert {"retire", "retire_fails"} <= set(d.names())
    await d.control.retire_all()
    assert d.control.empty == (0, 1)
    await d.control.rebuild()
    assert d.control.empty == ()


@simulated
async def test_engines_of_somebody_else_are_never_started_or_ended(folder: Path) -> None:
    """And after a transfer that ended uncertain, nothing is sent to them any more."""
    d = Deployment(1, owned=False)
    await d.control.barrier()
    d.plan.arm(0, Fault.FAILS_AFTER)
    await fails(d.control.send(write_checkpoint(folder, 2), A1), CallsFailed)
    await d.control.retire_all()
    assert d.engines[0].alive
    assert d.control.empty == ()
    await fails(d.control.rebuild(), CallsFailed, "restart the external deployment")

    gone = Deployment(1, owned=False)
    gone.slots.clear(0, gone.engines[0])
    await gone.control.barrier()
    await fails(gone.control.rebuild(), CallsFailed, "does not start engines")


def test_memory_is_only_released_under_retract() -> None:
    with pytest.raises(ValueError, match="retract"):
        ControlSettings(pause_mode=PauseMode.IN_PLACE, released=ALL_REGIONS)


@simulated
async def test_the_monitor_empties_the_slot_of_a_dead_engine(folder: Path) -> None:
    d = Deployment(2)
    await d.monitor.look()
    assert d.control.empty == ()
    d.engines[1].die()
    task = asyncio.ensure_future(d.monitor.run())
    await asyncio.sleep(31)
    task.cancel()
    assert d.control.empty == (1,)
    assert d.heard == [events.EmptySlot(1)]


@simulated
async def test_the_monitor_rests_while_the_latch_is_set(folder: Path) -> None:
    d = Deployment(1)
    await d.control.barrier()
    d.engines[0].die()
    await d.monitor.look()
    assert d.control.empty == ()


class SlowToAnswer(SimulatedEngine):
    async def health(self) -> Health:
        await asyncio.sleep(10)
        return Health(alive=False, detail="as of ten seconds ago")


@simulated
async def test_a_probe_from_before_a_pause_has_no_power_after_it(folder: Path) -> None:
    d = Deployment(1)
    d.slots.clear(0, d.engines[0])
    slow = SlowToAnswer(0, Weights(77, "boot"))
    d.slots.fill(0, slow)
    look = asyncio.ensure_future(d.monitor.look())
    await asyncio.sleep(1)
    await d.control.barrier()
    await look
    assert slow.alive
    assert d.control.empty == ()


class SlowToEnd(SimulatedEngine):
    async def shut_down(self) -> None:
        await asyncio.sleep(10)
        await super().shut_down()


@simulated
async def test_a_pause_waits_for_a_retirement_that_was_begun(folder: Path) -> None:
    """The barrier returns when the slot is empty, not before, and not while the engine is half gone."""
    d = Deployment(1)
    d.slots.clear(0, d.engines[0])
    dying = SlowToEnd(0, Weights(77, "boot"))
    d.slots.fill(0, dying)
    dying.scheduler.paused = None
    health = dying.health

    async def unwell() -> Health:
        return Health(alive=False, detail=(await health()).detail)

    dying.health = unwell  # type: ignore[method-assign]
    look = asyncio.ensure_future(d.monitor.look())
    await asyncio.sleep(1)
    await d.control.barrier()
    assert d.control.empty == (0,)
    assert asyncio.get_running_loop().time() > 10
    await look


@simulated
async def test_a_monitor_that_does_not_end_fails_the_barrier_and_leaves_the_latch(folder: Path) -> None:
    """Nothing is paused, nothing is retired behind its back, and nothing is used."""
    d = Deployment(1, bounds=Bounds(exclude_monitor_s=2))
    d.slots.clear(0, d.engines[0])
    dying = SlowToEnd(0, Weights(77, "boot"))
    d.slots.fill(0, dying)
    dying.die()
    look = asyncio.ensure_future(d.monitor.look())
    await asyncio.sleep(1)
    await fails(d.control.barrier(), CallsFailed, "still retiring an engine after 2 s")
    assert d.control.latched
    await d.control.retire_all()
    assert d.names() == []
    await look


def test_a_dead_engine_is_told_as_dead_and_others_as_failed() -> None:
    async def main() -> None:
        d = Deployment(2, faults={1: Fault.ENGINE_DIES_BEFORE})
        with pytest.raises(CallsFailed) as caught:
            await d.control.barrier()
        tell_failure(d.tell, events.BarrierFails, caught.value)
        assert d.heard[-1] == events.FindDead(1, "pause")
        d = Deployment(2, faults={1: Fault.FAILS_AFTER})
        with pytest.raises(CallsFailed) as caught:
            await d.control.barrier()
        tell_failure(d.tell, events.BarrierFails, caught.value)
        failed = d.heard[-1]
        assert isinstance(failed, events.BarrierFails)
        assert (failed.call, failed.engines, failed.effects) == ("pause", (1,), ("unknown",))

    run_simulated(main())
