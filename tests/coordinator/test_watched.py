"""A coordinator and its monitor: losing it stops nobody, unless it is required."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reef_ref import events
from reef_ref.control import ControlSettings
from reef_ref.coordinator import Coordinator
from reef_ref.engines.interface import PauseMode
from reef_ref.engines.simulated import Plan, SimulatedDisk, SimulatedEngine, Weights, run_simulated, write_checkpoint
from reef_ref.health import Slots
from reef_ref.monitor.sources import listen
from reef_ref.publication import Refused
from reef_ref.training import Job, Trained


class Deployment:
    """One engine, and a monitor that is there or not."""

    def __init__(self, folder: Path) -> None:
        self.attached = True
        self.plan = Plan({})
        self.engine = SimulatedEngine(0, Weights(1, "boot"), plan=self.plan)
        self.disk = SimulatedDisk(self.plan, hang_s=1.0)
        self.initial, self.trained = (write_checkpoint(folder / str(seed), seed) for seed in (1, 2))

    async def prepare(self, job: Job) -> str | None:
        return None

    async def train(self, job: Job) -> Trained:
        return Trained(self.trained, Weights(2, "").checksum)

    async def coordinator(self, *, required: bool) -> Coordinator:
        return await Coordinator(
            slots=Slots([self.engine]),
            settings=ControlSettings(pause_mode=PauseMode.RETRACT),
            marker=self.disk,
            trainer=self,
            initial=Trained(self.initial, Weights(1, "").checksum),
            watched=(lambda: self.attached) if required else None,
        ).start()


def test_without_its_required_monitor_no_engine_gets_other_weights(tmp_path: Path) -> None:
    """Refused in one line, nothing changed; it goes on when the monitor is back."""

    async def story() -> None:
        d = Deployment(tmp_path)
        coordinator = await d.coordinator(required=True)
        await coordinator.train(Job(job="job-1", rollout=1))
        d.attached, before = False, d.disk.data
        with pytest.raises(Refused, match="the monitor is required here and does not listen; start it again"):
            await coordinator.publish("job-1")
        assert d.disk.data == before
        assert d.engine.scheduler.paused is None
        d.attached = True
        await coordinator.publish("job-1")
        # What engines have already may be let go on in any case.
        d.attached = False
        await coordinator.acknowledge("job-1")
        assert d.engine.scheduler.paused is None

    run_simulated(story())


def test_a_monitor_that_is_not_required_may_be_lost(tmp_path: Path) -> None:
    """Nobody asks for it."""

    async def story() -> None:
        d = Deployment(tmp_path)
        d.attached = False
        coordinator = await d.coordinator(required=False)
        await coordinator.train(Job(job="job-1", rollout=1))
        await coordinator.publish("job-1")

    run_simulated(story())


def test_events_reach_a_monitor_and_its_loss_is_seen(tmp_path: Path) -> None:
    """They are the lines that a file would have."""
    path, taken = tmp_path / "socket", list[bytes]()

    async def story() -> None:
        async with listen(path, taken.append):
            outlet = events.EventOutlet(f"unix:{path}")
            tell = events.Teller("coordinator:a", outlet, clock=lambda: 1.5)
            assert outlet.attached
            tell(events.Flush, 3)
            async with asyncio.timeout(30):
                while not taken:
                    await asyncio.sleep(0.01)
        assert not outlet.attached
        tell(events.AllFlushed)
        outlet.close()
        assert outlet.lost == 1

    asyncio.run(story())
    assert [events.read_line(line) for line in taken] == [events.Line("coordinator:a", 1, 1.5, events.Flush(3))]
