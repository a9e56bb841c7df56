"""What a publication costs over many engines: ``python -m benchmarks.fan_out [--engines N ...]``.

Every call takes an engine one second of virtual time, so the virtual time of an operation is its number of round trips.
Beside it the processor's time for the whole of it: what the coordinator, and so many simulated engines, cost.

Ends 1 where the round trips depend on the number of engines.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spread import Spread
from reef_ref import events
from reef_ref.control import Control, ControlSettings
from reef_ref.engines.interface import PauseMode
from reef_ref.engines.simulated import SimulatedEngine, SimulatedSettings, Weights, run_simulated, write_checkpoint
from reef_ref.health import Slots
from reef_ref.load_id import LoadId

ROUNDS = 5
LOAD = LoadId("a", 1)


@dataclass(frozen=True)
class Cost:
    """Round trips of a barrier and of a whole publication, and milliseconds of the processor for the latter."""

    barrier: float
    publication: float
    milliseconds: float


async def publish(engines: int, folder: Path) -> Cost:
    """One publication: barrier, send, verify, continue."""
    settings = SimulatedSettings(latency_s=1.0)
    slots = Slots([SimulatedEngine(slot, Weights(77, "boot"), settings=settings) for slot in range(engines)])
    tell = events.Teller("benchmark", clock=lambda: 0.0)
    control = Control(slots, ControlSettings(pause_mode=PauseMode.RETRACT), launcher=None, monitor=None, tell=tell)
    loop, checkpoint = asyncio.get_running_loop(), write_checkpoint(folder, 2)
    began, start = time.process_time(), loop.time()

    async def passed(call: Awaitable[object]) -> float:
        await call
        return loop.time() - start

    barrier = await passed(control.barrier())
    await control.send(checkpoint, LOAD)
    await control.verify(LOAD, None)
    publication = await passed(control.continue_all(LOAD))
    return Cost(barrier, publication, 1e3 * (time.process_time() - began))


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fan_out", description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 8, 64])
    options = parser.parse_args()
    trips = set()
    print(f"round trips of virtual time, and processor time over {ROUNDS} rounds; median (quartiles)")
    for engines in options.engines:
        with tempfile.TemporaryDirectory() as folder:
            costs = [run_simulated(publish(engines, Path(folder))) for _ in range(ROUNDS)]
        spread = Spread.of([cost.milliseconds for cost in costs])
        trips |= {(round(cost.barrier, 3), round(cost.publication, 3)) for cost in costs}
        for barrier, publication in sorted({(cost.barrier, cost.publication) for cost in costs}):
            what = f"barrier {barrier:g}, publication {publication:g}"
            print(f"  {engines:>3} engines: {what} round trips; {spread.text(1)} ms")
    if len(trips) > 1:
        print("failed: the number of round trips depends on the number of engines")
    return 1 if len(trips) > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
