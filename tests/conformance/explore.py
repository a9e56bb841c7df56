"""Every fault at every point, singly and in pairs: no randomness, nothing left out.

A run without faults lists its points. Each of them gets each fault that it can have; each such run lists the points
that it reached after its fault, and each of those gets each fault again.

`python -m tests.conformance.explore [--pairs]` prints the number of runs for each deployment.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from reef_ref.engines.simulated.clock import VirtualTimeLoop
from reef_ref.engines.simulated.faults import Fault, Plan, Point
from tests.conformance.world import Broken, Checkpoints, Layout, Wish, World, told

CALLS = (
    Fault.FAILS_BEFORE,
    Fault.FAILS_AFTER,
    Fault.HANGS_BEFORE,
    Fault.HANGS_AFTER,
    Fault.ENGINE_DIES_BEFORE,
    Fault.ENGINE_DIES_AFTER,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
)
DISK = tuple(fault for fault in CALLS if fault not in {Fault.ENGINE_DIES_BEFORE, Fault.ENGINE_DIES_AFTER})


@dataclass(frozen=True)
class Scenario:
    """A deployment, and what becomes of its jobs: True is accepted, False rejected."""

    layout: Layout
    wishes: tuple[bool, ...]

    def __str__(self) -> str:
        return f"{self.layout}; {', '.join('accept' if wish else 'reject' for wish in self.wishes)}"


@dataclass(frozen=True)
class Outcome:
    """How a run ended, the points that it reached, and how many of its requests were answered."""

    end: str
    points: tuple[Point, ...]
    answered: int


def faults_of(point: Point) -> tuple[Fault, ...]:
    """The faults that a point can have."""
    if point.slot is None:
        return DISK
    return (*CALLS, Fault.ONLY_LABELS) if point.call == "update" else CALLS


async def run(checkpoints: Checkpoints, scenario: Scenario, faults: dict[int, Fault]) -> Outcome:
    """One run: start, then each job, with requests in flight over every publication. Raises `Broken`."""
    world = World(checkpoints, scenario.layout, Plan(faults))
    with told(world, f"{scenario}; {faults}"):
        await world.restart()
        end = await world.settle(None)
        answered = 0
        for number, accept in enumerate(scenario.wishes, start=1):
            if end != "settled":
                break
            world.check_settled()
            if world.open_gate():
                world.send_requests(8)
            end = await world.settle(Wish(number, accept))
        if end == "settled":
            world.check_settled()
            assert world.open_gate()
            world.send_requests()
            answered = await world.check_clients()
        else:
            if end != "RUNNING":
                raise Broken(f"L3: {end}")
            await world.check_ambiguous()
        world.check_history()
        await world.close()
        return Outcome(end, tuple(world.plan.reached), answered)


class Explorer:
    """Runs in one process, on one loop."""

    def __init__(self, folder: Path) -> None:
        self._checkpoints = Checkpoints(folder)
        self._loop = VirtualTimeLoop()
        self.runs = 0
        self.ends: Counter[str] = Counter()

    def run(self, scenario: Scenario, faults: dict[int, Fault]) -> Outcome:
        """One run."""
        outcome = self._loop.run_until_complete(run(self._checkpoints, scenario, faults))
        self.runs += 1
        self.ends[outcome.end] += 1
        return outcome

    def close(self) -> None:
        """Let go of the loop."""
        self._loop.close()


def singles(outcome: Outcome, after: int = -1) -> Iterator[tuple[int, Fault]]:
    """Every fault at every point of a run behind `after`."""
    for number in range(after + 1, len(outcome.points)):
        for fault in faults_of(outcome.points[number]):
            yield number, fault


def explore(folder: Path, scenario: Scenario, *, pairs: bool, share: int = 0, of: int = 1) -> tuple[int, Counter[str]]:
    """All runs of a scenario (or every `of`-th single fault with its pairs); how many, and how they ended."""
    explorer = Explorer(folder)
    try:
        baseline = explorer.run(scenario, {})
        assert baseline.end == "settled", baseline
        if share:
            explorer.runs = 0
            explorer.ends.clear()
        for index, (number, fault) in enumerate(singles(baseline)):
            if index % of != share:
                continue
            first = explorer.run(scenario, {number: fault})
            if pairs:
                for later, second in singles(first, number):
                    explorer.run(scenario, {number: fault, later: second})
        return explorer.runs, explorer.ends
    finally:
        explorer.close()


SINGLES = tuple(
    Scenario(Layout(engines=engines, colocated=colocated, survive=survive, in_place=in_place), wishes)
    for engines in (1, 2)
    for colocated, in_place in ((False, False), (True, False), (False, True))
    for survive in (True, False)
    for wishes in ((True, True), (False, True), (True, False, True))
)
PAIRS = tuple(
    Scenario(Layout(engines=engines, colocated=colocated), (accept,))
    for engines in (1, 2)
    for colocated in (False, True)
    for accept in (True, False)
)


def _part(arguments: tuple[str, Scenario, bool, int, int]) -> tuple[Scenario, int, Counter[str]]:
    folder, scenario, pairs, share, of = arguments
    runs, ends = explore(Path(folder), scenario, pairs=pairs, share=share, of=of)
    return scenario, runs, ends


def main() -> None:
    """Explore and print the number of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="also every pair of faults")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reef-ref-explore-") as folder:
        parts = [(folder, scenario, False, 0, 1) for scenario in SINGLES]
        if options.pairs:
            parts += [(folder, scenario, True, share, 8) for scenario in PAIRS for share in range(8)]
        total: Counter[str] = Counter()
        by_scenario: Counter[str] = Counter()
        with ProcessPoolExecutor(options.processes) as pool:
            for scenario, runs, ends in pool.map(_part, parts):
                by_scenario[str(scenario)] += runs
                total += ends
        for scenario_name, runs in by_scenario.items():
            print(f"{runs:7}  {scenario_name}")
        print(f"{sum(by_scenario.values()):7}  runs in {time.monotonic() - started:.0f} s; ends: {dict(total)}")


if __name__ == "__main__":
    main()
