"""Every fault at every point, singly and in pairs: no randomness, nothing left out.

A run without faults lists its points. Each of them gets each fault that it can have; each such run lists the points
that it reached after its fault, and each of those gets each fault again.

Each run is judged twice: by the invariants of its world while it runs, and afterwards by the publication protocol,
which has to explain everything that was told (`judge`).

`python -m tests.conformance.explore [--pairs]` prints what was run for each deployment, and what came of it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.simulated.clock import VirtualTimeLoop
from reef_ref.engines.simulated.faults import Fault, Plan, Point
from reef_ref.monitor.validate import Report, Validator, called
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
    Fault.CANCELLED,
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
    """How a run ended, the points that it reached, how many of its requests were answered, and what was told."""

    end: str
    points: tuple[Point, ...]
    answered: int
    lines: Sequence[events.Line]


@dataclass
class Tally:
    """What was run, and what came of it; tallies add up."""

    runs: int = 0
    faults: int = 0
    events: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    traces: Counter[Verdict] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """Traces that are not explained, by what is the matter with them."""
    stories: dict[str, str] = field(default_factory=dict)
    """The first of each kind."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.runs + other.runs,
            self.faults + other.faults,
            self.events + other.events,
            self.ends + other.ends,
            self.traces + other.traces,
            self.kinds + other.kinds,
            other.stories | self.stories,
        )

    def __str__(self) -> str:
        traces = ", ".join(f"{self.traces[verdict]} {verdict.value}" for verdict in Verdict)
        return (
            f"{self.runs} runs, {self.faults} faults, {self.events} events; traces: {traces}; ends: {dict(self.ends)}"
        )


@cache
def validator(engines: int) -> Validator:
    """One for all traces of a process: what a trace teaches about the protocol serves the next one."""
    return Validator(engines)


def judge(lines: Sequence[events.Line], engines: int) -> Report:
    """What the protocol says of all that was told in a run."""
    taken = validator(engines)
    taken.begin()
    for number, line in enumerate(lines, start=1):
        if taken.feed(line, number) is Verdict.INEXPLICABLE:
            break
    return taken.report()


def kind_of(report: Report) -> str:
    """What is the matter with a trace that is not explained: the event, and what it needs."""
    if report.finding is None:
        return report.reason
    objections = "; ".join(f"{o.step}: {o.wanted} ({', '.join(o.facts)})" for o in report.finding.objections)
    return f"{report.finding.event.name()}: {objections or report.finding.note}"


def story(lines: Sequence[events.Line], report: Report, before: int = 20) -> str:
    """The end of a trace, up to what is not explained."""
    last = len(lines) if report.finding is None else report.finding.line
    return "\n".join(called(line.event) for line in lines[max(0, last - before) : last])


def faults_of(point: Point) -> tuple[Fault, ...]:
    """The faults that a point can have."""
    if point.slot is None:
        return DISK
    return (*CALLS, Fault.ONLY_LABELS) if point.call == "update" else CALLS


async def run(checkpoints: Checkpoints, scenario: Scenario, faults: dict[int, Fault]) -> Outcome:
    """One run: start, then each job, with requests in flight over every publication. Raises `Broken`."""
    world = World(checkpoints, scenario.layout, Plan(faults))
    try:
        with told(world, f"{scenario}; {faults}"):
            end, answered = await live(world, scenario)
            world.check_history()
    finally:
        await world.close()
    return Outcome(end, tuple(world.plan.reached), answered, world.lines)


async def live(world: World, scenario: Scenario) -> tuple[str, int]:
    """The whole life of a deployment: how it ended, and how many requests were answered."""
    await world.restart()
    end = await world.settle(None)
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
        return end, await world.check_clients()
    if end != "RUNNING":
        raise Broken(f"L3: {end}")
    await world.check_ambiguous()
    return end, await world.check_clients()


class Explorer:
    """Runs in one process, on one loop."""

    def __init__(self, folder: Path) -> None:
        self._checkpoints = Checkpoints(folder)
        self._loop = VirtualTimeLoop()
        self.tally = Tally()

    def run(self, scenario: Scenario, faults: dict[int, Fault], *, counted: bool = True) -> Outcome:
        """One run, judged and counted."""
        outcome = self._loop.run_until_complete(run(self._checkpoints, scenario, faults))
        if counted:
            self._count(scenario, faults, outcome)
        return outcome

    def _count(self, scenario: Scenario, faults: dict[int, Fault], outcome: Outcome) -> None:
        report = judge(outcome.lines, scenario.layout.engines)
        tally = self.tally
        tally.runs += 1
        tally.faults += len(faults)
        tally.events += report.events
        tally.ends[outcome.end] += 1
        tally.traces[report.verdict] += 1
        if report.verdict is not Verdict.EXPLAINED:
            kind = kind_of(report)
            tally.kinds[kind] += 1
            tally.stories.setdefault(kind, f"{scenario}; {faults}\n{story(outcome.lines, report)}")

    def close(self) -> None:
        """Let go of the loop."""
        self._loop.close()


def singles(outcome: Outcome, after: int = -1) -> Iterator[tuple[int, Fault]]:
    """Every fault at every point of a run behind `after`."""
    for number in range(after + 1, len(outcome.points)):
        for fault in faults_of(outcome.points[number]):
            yield number, fault


def explore(folder: Path, scenario: Scenario, *, pairs: bool, share: int = 0, of: int = 1) -> Tally:
    """All runs of a scenario, or every `of`-th single fault with its pairs. Raises `Broken`."""
    explorer = Explorer(folder)
    try:
        baseline = explorer.run(scenario, {}, counted=not share)
        assert baseline.end == "settled", baseline.end
        for index, (number, fault) in enumerate(singles(baseline)):
            if index % of != share:
                continue
            first = explorer.run(scenario, {number: fault})
            if pairs:
                for later, second in singles(first, number):
                    explorer.run(scenario, {number: fault, later: second})
        return explorer.tally
    finally:
        explorer.close()


SINGLES = tuple(
    Scenario(Layout(engines=engines, colocated=colocated, survive=survive, in_place=in_place), wishes)
    for engines in (1, 2)
    for colocated, in_place in ((False, False), (True, False), (False, True))
    for survive in (True, False)
    for wishes in ((True, True), (False, True), (True, False, True))
)
PAIRS = (
    *(
        Scenario(Layout(engines=1, colocated=colocated), (accept,))
        for colocated in (False, True)
        for accept in (True, False)
    ),
    Scenario(Layout(engines=2), (True,)),
)


SHARES = 16
"""Parts of a scenario with pairs, so that several processes share it."""


def _part(arguments: tuple[str, Scenario, bool, int, int]) -> tuple[Scenario, Tally]:
    folder, scenario, pairs, share, of = arguments
    return scenario, explore(Path(folder), scenario, pairs=pairs, share=share, of=of)


def main() -> int:
    """Explore, and print what was run and what came of it; 1 if the protocol does not explain one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="also every pair of faults")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reef-ref-explore-") as folder:
        parts = [(folder, scenario, False, 0, 1) for scenario in SINGLES]
        if options.pairs:
            parts = [(folder, scenario, True, share, SHARES) for scenario in PAIRS for share in range(SHARES)] + parts
        total = Tally()
        by_scenario: dict[str, Tally] = {}
        with ProcessPoolExecutor(options.processes) as pool:
            for done, (scenario, tally) in enumerate(pool.map(_part, parts), start=1):
                by_scenario[str(scenario)] = by_scenario.get(str(scenario), Tally()) + tally
                total += tally
                print(f"\r{done} of {len(parts)} parts, {total.runs} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for name, tally in by_scenario.items():
        print(f"{tally.runs:7}  {name}")
    print(f"{total}; in {time.monotonic() - started:.0f} s")
    for kind, times in total.kinds.most_common():
        print(f"{times} times {kind}; first in {total.stories[kind]}")
    return 1 if total.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
