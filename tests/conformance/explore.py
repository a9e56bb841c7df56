"""Every fault at every point, singly and in pairs: no randomness, nothing left out.

A run without faults lists its points. Each of them gets each fault that it can have; each such run lists the points
that it reached after its fault, and each of those gets each fault again: up to where it comes to rest as another run
has before it (`alike`), from where on they go the same way, and the same second faults have been tried.

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
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.simulated.clock import VirtualTimeLoop
from reef_ref.engines.simulated.faults import Fault, Plan, Point
from reef_ref.monitor.validate import Report, Validator, called
from tests.conformance.alike import at_rest, explained
from tests.conformance.world import PATIENCE, Broken, Checkpoints, Layout, Wish, World, told

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
class Rest:
    """Where a run came to rest, by its numbers of points, events and attempts so far, and what it was there."""

    points: int
    lines: int
    attempt: int
    what: Hashable


@dataclass(frozen=True)
class Outcome:
    """How a run ended, the points that it reached, how many of its requests were answered, and what was told."""

    end: str
    points: tuple[Point, ...]
    answered: int
    lines: Sequence[events.Line]
    rests: Sequence[Rest]
    attempts: int

    def after(self, rest: Rest) -> tuple[object, ...]:
        """How it went on."""
        told = [line.event for line in self.lines[rest.lines :] if not isinstance(line.event, events.OfRequest)]
        return self.end, self.points[rest.points :], told


@dataclass
class RestingWorld(World):
    """A world that notes where it comes to rest."""

    rests: list[Rest] = field(default_factory=list)
    judged: int = 0
    """Events that the validator has taken."""

    def at_rest(self, wish: Wish | None, attempt: int) -> None:
        super().at_rest(wish, attempt)
        taken = validator(self.layout.engines)
        for number, line in enumerate(self.lines[self.judged :], start=self.judged + 1):
            taken.feed(line, number)
        self.judged = len(self.lines)
        what = at_rest(self)
        if what is not None:
            key = (wish, what, explained(taken))
            self.rests.append(Rest(len(self.plan.reached), self.judged, attempt, key))


@dataclass
class Tally:
    """What was run, and what came of it; tallies add up."""

    runs: int = 0
    faults: int = 0
    same: int = 0
    """Pairs of faults that would have been tried a second time from the same state."""
    events: int = 0
    attempts: int = 0
    """The most that a service needed for one job."""
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
            self.same + other.same,
            self.events + other.events,
            max(self.attempts, other.attempts),
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


async def run(checkpoints: Checkpoints, scenario: Scenario, faults: dict[int, Fault], *, resting: bool) -> Outcome:
    """One run: start, then each job, with requests in flight over every publication. Raises `Broken`."""
    validator(scenario.layout.engines).begin()
    world = (RestingWorld if resting else World)(checkpoints, scenario.layout, Plan(faults))
    try:
        with told(world, f"{scenario}; {faults}"):
            end, answered = await live(world, scenario)
            world.check_history()
    finally:
        await world.close()
    rests = world.rests if isinstance(world, RestingWorld) else ()
    return Outcome(end, tuple(world.plan.reached), answered, world.lines, rests, world.attempts)


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

    def run(self, scenario: Scenario, faults: dict[int, Fault], *, resting: bool = False) -> Outcome:
        """One run, judged and counted; with `resting`, where it comes to rest is noted."""
        outcome = self._loop.run_until_complete(run(self._checkpoints, scenario, faults, resting=resting))
        self._count(scenario, faults, outcome)
        return outcome

    def _count(self, scenario: Scenario, faults: dict[int, Fault], outcome: Outcome) -> None:
        report = judge(outcome.lines, scenario.layout.engines)
        tally = self.tally
        tally.runs += 1
        tally.faults += len(faults)
        tally.events += report.events
        tally.attempts = max(tally.attempts, outcome.attempts)
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


def explore(folder: Path, scenario: Scenario) -> Tally:
    """Every single fault of a scenario. Raises `Broken`."""
    explorer = Explorer(folder)
    try:
        baseline = explorer.run(scenario, {})
        assert baseline.end == "settled", baseline.end
        for number, fault in singles(baseline):
            explorer.run(scenario, {number: fault})
        return explorer.tally
    finally:
        explorer.close()


Pair = tuple[int, Fault, int, Fault]
"""Two points, and the fault at each."""


def pairs(folder: Path, scenario: Scenario) -> tuple[Tally, list[Pair]]:
    """Every single fault of a scenario, and the pairs that are to be tried.

    Raises:
        Broken: an invariant does not hold, or runs that came to rest alike have gone different ways.
    """
    explorer = Explorer(folder)
    found: list[Pair] = []
    known: dict[Hashable, tuple[Outcome, Rest]] = {}
    try:
        baseline = explorer.run(scenario, {}, resting=True)
        for rest in baseline.rests:
            known.setdefault(rest.what, (baseline, rest))
        for number, fault in singles(baseline):
            first = explorer.run(scenario, {number: fault}, resting=True)
            end = len(first.points)
            for rest in first.rests:
                if rest.points <= number:
                    continue
                before = known.setdefault(rest.what, (first, rest))
                if before[0] is not first:
                    same(scenario, before, (first, rest))
                    end = min(end, rest.points)
                    # Whoever came there first had this much more patience left.
                    later = first.attempts + rest.attempt - before[1].attempt
                    explorer.tally.attempts = max(explorer.tally.attempts, later)
            every = [(number, fault, *second) for second in singles(first, number)]
            found += [pair for pair in every if pair[2] < end]
            explorer.tally.same += sum(pair[2] >= end for pair in every)
        return explorer.tally, found
    finally:
        explorer.close()


def same(scenario: Scenario, one: tuple[Outcome, Rest], other: tuple[Outcome, Rest]) -> None:
    """Hold two runs that came to rest alike to what follows: the same."""
    if one[0].after(one[1]) != other[0].after(other[1]):
        raise Broken(f"{scenario}: {one[0].after(one[1])} after the same state as {other[0].after(other[1])}")


def tried(folder: Path, scenario: Scenario, chosen: Sequence[Pair]) -> Tally:
    """Runs with two faults each. Raises `Broken`."""
    explorer = Explorer(folder)
    try:
        for number, fault, later, second in chosen:
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


SHARE = 300
"""Pairs that a process takes at a time."""


def _explore(arguments: tuple[str, Scenario]) -> tuple[Scenario, Tally]:
    folder, scenario = arguments
    return scenario, explore(Path(folder), scenario)


def _pairs(arguments: tuple[str, Scenario]) -> tuple[Scenario, Tally, list[Pair]]:
    folder, scenario = arguments
    return scenario, *pairs(Path(folder), scenario)


def _tried(arguments: tuple[str, Scenario, list[Pair]]) -> tuple[Scenario, Tally]:
    folder, scenario, chosen = arguments
    return scenario, tried(Path(folder), scenario, chosen)


def tallies(folder: str, processes: int, *, in_pairs: bool) -> Iterator[tuple[Scenario, Tally]]:
    """What came of each part of the work, as it is done."""
    with ProcessPoolExecutor(processes) as pool:
        if in_pairs:
            parts = []
            for scenario, tally, found in pool.map(_pairs, [(folder, scenario) for scenario in PAIRS]):
                yield scenario, tally
                parts += [(folder, scenario, found[at : at + SHARE]) for at in range(0, len(found), SHARE)]
            yield from pool.map(_tried, parts)
        yield from pool.map(_explore, [(folder, scenario) for scenario in SINGLES])


def main() -> int:
    """Explore, and print what was run and what came of it; 1 if the protocol does not explain one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", action="store_true", help="also every pair of faults")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    total = Tally()
    by_scenario: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="reef-ref-explore-") as folder:
        for scenario, tally in tallies(folder, options.processes, in_pairs=options.pairs):
            by_scenario[str(scenario)] = by_scenario.get(str(scenario), Tally()) + tally
            total += tally
            print(f"\r{total.runs} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for name, tally in by_scenario.items():
        print(f"{tally.runs:7}  {name}")
    print(f"{total}; in {time.monotonic() - started:.0f} s")
    if total.same:
        print(f"{total.same} further pairs start from a state in which the same second fault was tried: not run again")
    if total.attempts >= PATIENCE:
        print(f"a service may need {total.attempts} attempts, and makes {PATIENCE}: such pairs have to be run")
    for kind, times in total.kinds.most_common():
        print(f"{times} times {kind}; first in {total.stories[kind]}")
    return 1 if total.kinds or total.attempts >= PATIENCE else 0


if __name__ == "__main__":
    sys.exit(main())
