"""A coordinator in a process of its own, over engines that somebody else runs; it may kill itself at an event.

    python -m tests.engine.coordinator_life FOLDER INCARNATION DIE_AT ADDRESS...

`FOLDER` holds `marker` and `events.ndjson`, and `models` lies beside it. At the first event named `DIE_AT` after
training ("none": never) it sends itself SIGKILL. Otherwise it recovers, trains and publishes job 2 if there is no
record, and has it committed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from reef_ref import events
from reef_ref.control import ControlSettings, Launcher
from reef_ref.coordinator import Coordinator
from reef_ref.engines.http import connect
from reef_ref.engines.interface import PauseMode
from reef_ref.health import Slots
from reef_ref.markers import MarkerFile
from reef_ref.scenarios.models import Models
from reef_ref.training import Job, Trained
from tests.engine.deployment import BOUNDS, trainer

JOB = "job-2"


async def live(folder: Path, incarnation: str, die_at: str, slots: Slots, launcher: Launcher | None = None) -> None:
    """One life over the engines in `slots`; it owns them if it has what starts them."""
    models = Models(folder.parent / "models")
    trace = events.NdjsonFile(folder / "events.ndjson")
    trained = False

    def listen(line: events.Line) -> None:
        nonlocal trained
        trace(line)
        trained = trained or isinstance(line.event, events.RecordCheckpoint)
        if trained and line.event.name() == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    with MarkerFile(folder / "marker") as marker:
        coordinator = Coordinator(
            slots=slots,
            settings=ControlSettings(pause_mode=PauseMode.RETRACT, owned=launcher is not None, bounds=BOUNDS),
            marker=marker,
            trainer=trainer(models),
            initial=Trained(models.checkpoint(1)),
            incarnation=incarnation,
            listener=listen,
            launcher=launcher,
        )
        await coordinator.start()
        if coordinator.record is None:
            await coordinator.train(Job(job=JOB, rollout=2))
            await coordinator.publish(JOB)
        load_id = coordinator.served.load_id
        events.Teller(f"service:{incarnation}", listen, clock=time.monotonic)(events.CommitHead, str(load_id))
        await coordinator.acknowledge(JOB)
    trace.close()


async def main(folder: str, incarnation: str, die_at: str, *addresses: str) -> None:
    """One life over servers."""
    engines = [await connect(address) for address in addresses]
    await live(Path(folder), incarnation, die_at, Slots(engines))
    for engine in engines:
        await engine.shut_down()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
