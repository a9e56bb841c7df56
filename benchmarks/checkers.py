"""This project's checker beside others, on the common model, in one run on one machine.

``python -m benchmarks.checkers [--quick] [--output FILE.json]``. Every tool runs in a process of its own, one after
another. A tool that is not installed is named with what to install, and its rows are left out. Every count is compared
with those on which independent checkers agree (`benchmarks.expected`); any difference makes the run fail (exit 1).

Seconds are of the search alone: SPIN's own clock, the wall clock of the whole process for Rumur (its own counts whole
seconds), and each Python program's clock around its search. What comes before, compilation above all, is *ready*.
Bytes a state are the growth of the process's peak memory over what it held before its search, over the states found.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.expected import EXPECTED, VIOLATION_STEPS, World
from benchmarks.peers.murphi import murphi
from benchmarks.peers.promela import promela
from model_check.export.spin import Pan, make, pan
from model_check.process import Failed, Finished, Missing, run, tool
from reef_ref.cli.output import check_writable, write
from reef_ref.cli.trouble import Trouble

ROOT = Path(__file__).resolve().parent.parent
WORLDS: tuple[World, ...] = ((3, 4, 3), (3, 5, 3), (3, 6, 2))
LIMIT = 900.0
"""Seconds for any one program."""
SPIN = "SPIN, depth-first"
MANY = 100_000
"""With fewer states, what a process holds for other reasons is most of its memory, and bytes a state say nothing."""


@dataclass(frozen=True)
class Row:
    """One tool on one world. `symmetry`: "" for none, else of which kind. `problem` is empty where the counts agree."""

    world: World
    tool: str
    symmetry: str
    states: int
    transitions: int | None
    seconds: float
    ready: float
    bytes_per_state: float | None
    problem: str = ""

    @property
    def rate(self) -> float:
        """Distinct states a second."""
        return self.states / self.seconds


@dataclass(frozen=True)
class Told:
    """A deliberate bug found: steps, seconds from the start of the search to the story, and the story's steps."""

    world: World
    bug: int
    tool: str
    steps: int
    shortest: bool
    seconds: float
    story: tuple[str, ...]
    problem: str = ""


@dataclass
class Report:
    """Everything of one run."""

    machine: str
    rows: list[Row] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    starts: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


# The tools


def ours(cache: Path, world: World, *, workers: int, symmetry: bool) -> Row:
    """This project: once to compile, once from the cache, so that compiling counts neither as search nor as memory."""
    words = [*map(str, world), "--workers", str(workers), *(["--symmetry"] if symmetry else [])]
    place = {"REEF_REF_CACHE": str(cache / f"{workers}")}
    compiled = _json(_python("benchmarks.ours", *words, environment=place))
    finished = _python("benchmarks.ours", *words, environment=place)
    found = _json(finished)
    name = f"reef-ref, {workers} thread{'s' if workers > 1 else ''}"
    return _row(world, name, "exact" if symmetry else "", found, finished, ready=compiled["warm_up"])


def handwritten(folder: Path, world: World) -> Row:
    """The search in C, written by hand for this model."""
    n, r, v = world
    source = Path(__file__).parent / "peers" / "handwritten.c"
    command: list[str | Path] = [
        tool("gcc"),
        "-O3",
        "-march=native",
        f"-DN={n}",
        f"-DR={r}",
        f"-DV={v}",
        "-o",
        folder / "hand",
        source,
    ]
    ready = run(command, limit=LIMIT).seconds
    finished = run([folder / "hand"], limit=LIMIT)
    found = {**_json(finished), "before": 0}
    assert found["safe"], "the hand-written search finds a violation"
    return _row(world, "hand-written C, 1 thread", "", found, finished, ready=ready)


def spin(folder: Path, world: World) -> Row:
    """SPIN as fast as it goes here: depth-first, no partial order reduction, a table with room for every state."""
    ready = _make(folder, world, 0, "-DSAFETY", "-DNOREDUCE")
    found = _pan(folder, world)
    assert found.errors == 0, "SPIN finds a violation"
    # SPIN counts the arrival at the initial state.
    counts = {"states": found.states, "transitions": found.transitions - 1, "seconds": found.seconds, "before": 0}
    return _row(world, SPIN, "", counts, found.finished, ready=ready)


def rumur(folder: Path, world: World, *, symmetry: str) -> Row:
    """Rumur with two threads; `symmetry` is what it calls off, heuristic or exhaustive."""
    model, source, program = folder / "pub.m", folder / "rumur.c", folder / "checker"
    model.write_text(murphi(*world, scalarsets=symmetry != "off"))
    command = [tool("rumur"), "--threads", "2", "--deadlock-detection", "off", "--symmetry-reduction", symmetry]
    ready = run([*command, "--output", source, model], limit=LIMIT).seconds
    build: list[str | Path] = [tool("gcc"), "-O3", "-march=native", "-std=c11", "-o", program, source, "-lpthread"]
    ready += run(build, limit=LIMIT).seconds
    finished = run([program], limit=LIMIT)
    states, fired = re.findall(r"(\d+) states, (\d+) rules fired", finished.output)[-1]
    found = {"states": int(states), "transitions": int(fired), "seconds": finished.seconds, "before": 0}
    kind = {"off": "", "heuristic": "heuristic", "exhaustive": "exact"}[symmetry]
    return _row(world, "Rumur, 2 threads", kind, found, finished, ready=ready)


def plain(world: World, *, symmetry: bool) -> Row:
    """A dictionary and a list, in plain Python."""
    finished = _python("benchmarks.peers.plain", *map(str, world), *(["--symmetry"] if symmetry else []))
    return _row(world, "plain Python", "exact" if symmetry else "", _json(finished), finished)


def minicheck(world: World) -> Row:
    """minicheck, a model checker from PyPI."""
    try:
        run([sys.executable, "-c", "import minicheck"], limit=60)
    except Failed:
        raise Missing("pip install minicheck==0.4.0") from None
    finished = _python("benchmarks.peers.minicheck_peer", *map(str, world))
    return _row(world, "minicheck", "", _json(finished), finished)


def musil(world: World) -> Row:
    """musil, a model checker from PyPI, under whichever Python has it."""
    named = os.environ.get("MUSIL_PYTHON")
    for python in [named] if named else [sys.executable, "python3.12", "python3.13", "python3.14"]:
        try:
            run([python, "-c", "import musil"], limit=60)
        except Failed:
            continue
        finished = _python("benchmarks.peers.musil_peer", *map(str, world), python=python)
        return _row(world, "musil", "", _json(finished), finished)
    raise Missing("a Python 3.12 or later with musil (pip install musil), named in MUSIL_PYTHON")


def bug_ours(cache: Path, world: World, bug: int) -> Told:
    """From the start of the search to the printed story; the same story with one thread and with two."""
    words = [*map(str, world), "--bug", str(bug)]
    place = {"REEF_REF_CACHE": str(cache)}
    _python("benchmarks.ours", *words, environment=place)
    one, two = (_json(_python("benchmarks.ours", *words, "--workers", n, environment=place)) for n in ("1", "2"))
    problem = "" if one["story"] == two["story"] else "one thread and two tell different stories"
    if len(two["story"]) != VIOLATION_STEPS[bug]:
        problem = f"{len(two['story'])} steps, not {VIOLATION_STEPS[bug]}"
    return Told(world, bug, "reef-ref, 2 threads", len(two["story"]), True, two["told"], tuple(two["story"]), problem)


def bug_spin(folder: Path, world: World, bug: int, *, breadth: bool) -> Told:
    """SPIN to its first error: the run's own clock."""
    _make(folder, world, bug, "-DSAFETY", "-DNOREDUCE", *(["-DBFS"] if breadth else []))
    finished = _pan(folder, world).finished
    if "errors: 1" not in finished.output:
        raise Failed("SPIN does not find the bug")
    # SPIN counts the first step as depth 0.
    steps = int(_match(r"assertion violated .*\(at depth (\d+)\)", finished.output)) + 1
    wanted = VIOLATION_STEPS[bug]
    problem = f"{steps} steps, not {wanted}" if breadth and steps != wanted else ""
    name = "SPIN, breadth-first" if breadth else SPIN
    return Told(world, bug, name, steps, breadth, finished.seconds, (), problem)


def bug_plain(world: World, bug: int) -> Told:
    """Plain Python to the first violation."""
    found = _json(_python("benchmarks.peers.plain", *map(str, world), "--bug", str(bug)))
    steps = len(found["story"])
    problem = f"{steps} steps, not {VIOLATION_STEPS[bug]}" if steps != VIOLATION_STEPS[bug] else ""
    return Told(world, bug, "plain Python", steps, True, found["seconds"], tuple(found["story"]), problem)


def starts(cache: Path, *, quick: bool) -> Iterator[tuple[str, float]]:
    """Wall seconds of whole commands, from a cold process; compiled code is kept from the second one of a kind on."""
    command = Path(sys.executable).with_name("reef-ref")
    if not command.exists():
        raise Missing("pip install . into this environment")
    place = {"REEF_REF_CACHE": str(cache)}
    yield "reef-ref list", run([command, "list"], limit=LIMIT, environment=place).seconds
    scopes = ["smoke"] if quick else ["smoke", "pr"]
    for scope in scopes:
        words: list[str | Path] = [command, "check", "publication", "--scope", scope]
        for kept in ("nothing compiled", "compiled before"):
            seconds = run(words, limit=LIMIT, environment=place).seconds
            yield f"reef-ref check publication --scope {scope} ({kept})", seconds


# Helpers


def _python(
    module: str, *words: str, python: str = sys.executable, environment: dict[str, str] | None = None
) -> Finished:
    return run([python, "-m", module, *words], limit=LIMIT, folder=ROOT, environment=environment)


def _json(finished: Finished) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(finished.output.strip().splitlines()[-1])
    return found


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise Failed(f"no {pattern!r} in what it printed")
    return found[1]


def _make(folder: Path, world: World, bug: int, *options: str) -> float:
    return make(folder, promela(*world, bug), limit=LIMIT, build=("-O3", "-march=native", *options))


def _pan(folder: Path, world: World) -> Pan:
    bits = EXPECTED[world].states.bit_length()
    return pan(folder, "-m1000000", f"-w{bits}", limit=LIMIT)


def _row(world: World, tool: str, symmetry: str, found: dict[str, Any], finished: Finished, *, ready: float = 0) -> Row:
    states, transitions = found["states"], found.get("transitions")
    grown = finished.peak - found["before"] if finished.peak is not None else None
    if grown is not None and finished.peak is not None and finished.peak <= found.get("peak_before", 0):
        grown = None
    return Row(
        world,
        tool,
        symmetry,
        states,
        transitions,
        found["seconds"],
        ready,
        grown / states if grown is not None else None,
        compare(world, symmetry, states, transitions, found.get("depth")),
    )


def compare(world: World, symmetry: str, states: int, transitions: int | None, depth: int | None) -> str:
    """What differs from the counts that are known, in words, or nothing."""
    known = EXPECTED[world]
    if symmetry == "heuristic":
        # Not every pair of exchangeable states is recognised, so there are at least as many as orbits.
        fine = known.orbits <= states <= known.states
        return "" if fine else f"{states:,} classes, not from {known.orbits:,} to {known.states:,}"
    wanted = (known.orbits, known.orbit_transitions) if symmetry else (known.states, known.transitions)
    for name, got, want in (
        ("states", states, wanted[0]),
        ("transitions", transitions, wanted[1]),
        ("depth", depth, known.depth),
    ):
        if got is not None and want is not None and got != want:
            return f"{name}: {got:,}, not {want:,}"
    return ""


# The run


def measure(report: Report, console: Console, *, quick: bool) -> None:
    """Everything, one after another, into the report."""
    with tempfile.TemporaryDirectory(prefix="checkers-") as name:
        folder, cache = Path(name), Path(name) / "cache"

        def row(what: str, make: Callable[[], Row]) -> None:
            if (made := _attempt(report, console, what, make)) is not None:
                report.rows.append(made)

        def told(what: str, make: Callable[[], Told]) -> None:
            if (made := _attempt(report, console, what, make)) is not None:
                report.told.append(made)

        for world in WORLDS[:1] if quick else WORLDS:
            where = f"world {','.join(map(str, world))}"
            row(f"reef-ref, {where}", partial(ours, cache, world, workers=2, symmetry=False))
            row(f"reef-ref with one thread, {where}", partial(ours, cache, world, workers=1, symmetry=False))
            row(f"hand-written C, {where}", partial(handwritten, folder, world))
            row(f"SPIN, {where}", partial(spin, folder, world))
            row(f"Rumur, {where}", partial(rumur, folder, world, symmetry="off"))
            if world != WORLDS[2]:
                row(f"plain Python, {where}", partial(plain, world, symmetry=False))
            if world == WORLDS[0]:
                row(f"minicheck, {where}", partial(minicheck, world))
                row(f"musil, {where}", partial(musil, world))
            row(f"reef-ref with symmetry, {where}", partial(ours, cache, world, workers=2, symmetry=True))
            row(f"Rumur with scalarsets, {where}", partial(rumur, folder, world, symmetry="heuristic"))
            if world == WORLDS[0]:
                exact = partial(rumur, folder, world, symmetry="exhaustive")
                row(f"Rumur with scalarsets, every permutation, {where}", exact)
            row(f"plain Python with symmetry, {where}", partial(plain, world, symmetry=True))
        world = WORLDS[0] if quick else WORLDS[1]
        told("reef-ref, bug 1", partial(bug_ours, cache, world, 1))
        told("SPIN breadth-first, bug 1", partial(bug_spin, folder, world, 1, breadth=True))
        told("SPIN depth-first, bug 1", partial(bug_spin, folder, world, 1, breadth=False))
        told("plain Python, bug 1", partial(bug_plain, world, 1))
        begun = _attempt(report, console, "cold starts", lambda: dict(starts(cache, quick=quick)))
        report.starts = begun or {}


def _attempt(report: Report, console: Console, what: str, make: Callable[[], Any]) -> Any:
    """What was made, or nothing where a tool is missing or fails; the report says which."""
    with console.status(what):
        try:
            made = make()
        except Missing as missing:
            report.skipped[what] = str(missing)
            return None
        except (Failed, AssertionError) as error:
            report.failures.append(f"{what}: {error}")
            return None
    if problem := getattr(made, "problem", ""):
        report.failures.append(f"{what}: {problem}")
    return made


# What is shown


def show(report: Report, console: Console) -> None:
    """The report as tables."""
    console.print(report.machine)
    base = {row.world: row.rate for row in report.rows if row.tool == SPIN}
    for world in dict.fromkeys(row.world for row in report.rows):
        table = Table(title="engines {}, requests {}, loads {}".format(*world), title_justify="left")
        table.add_column("checker")
        for name in ("symmetry", "states", "transitions", "seconds", "states/s", "to SPIN", "bytes/state", "ready, s"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in report.rows:
            if row.world == world:
                table.add_row(*_cells(row, None if row.symmetry else base.get(world)))
        console.print(table)
    if report.told:
        table = Table(title="deliberate bug, from the start of the search to the story", title_justify="left")
        table.add_column("checker")
        for name in ("world", "bug", "steps", "shortest", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        for t in report.told:
            shortest = "yes" if t.shortest else "no"
            table.add_row(t.tool, ",".join(map(str, t.world)), str(t.bug), str(t.steps), shortest, f"{t.seconds:.2f}")
        console.print(table)
    if report.starts:
        table = Table(title="whole commands, from a cold process", title_justify="left")
        table.add_column("command")
        table.add_column("seconds", justify="right")
        for command, seconds in report.starts.items():
            table.add_row(command, f"{seconds:.2f}")
        console.print(table)
    for ratio in ratios(report):
        console.print(ratio)
    for what, how in report.skipped.items():
        console.print(f"left out: {what}: {how}", style="yellow")
    for failure in report.failures:
        console.print(f"failed: {failure}", style="bold red")


def _cells(row: Row, base: float | None) -> list[str]:
    return [
        row.tool,
        row.symmetry,
        f"{row.states:,}",
        f"{row.transitions:,}" if row.transitions is not None else "",
        f"{row.seconds:.3f}",
        f"{row.rate:,.0f}",
        f"{row.rate / base:.2f}" if base else "",
        f"{row.bytes_per_state:.1f}" if row.bytes_per_state is not None and row.states >= MANY else "",
        f"{row.ready:.2f}" if row.ready else "",
    ]


def ratios(report: Report) -> Iterator[str]:
    """How the generated code compares with the hand-written, thread for thread."""
    seconds = {(row.world, row.tool): row.seconds for row in report.rows if not row.symmetry}
    for world in dict.fromkeys(row.world for row in report.rows):
        generated = seconds.get((world, "reef-ref, 1 thread"))
        hand = seconds.get((world, "hand-written C, 1 thread"))
        if generated and hand:
            name = ",".join(map(str, world))
            times = f"{generated / hand:.2f} times as long as hand-written"
            yield f"world {name}: generated code takes {times}, one thread each"


def _machine() -> str:
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    cpus = len(os.sched_getaffinity(0))
    name = model[1] if model else platform.machine()
    return f"{name}, {cpus} processors, load {os.getloadavg()[0]:.1f} at the start, Python {platform.python_version()}"


def main() -> int:
    """Measure, show, save. Answers the exit code: 0, or 1 where a count differs or a tool failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the smallest world only")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="also write everything measured here")
    given = parser.parse_args()
    try:
        check_writable(given.output)
    except Trouble as trouble:
        parser.error(str(trouble))
    console, start = Console(), time.perf_counter()
    report = Report(_machine())
    try:
        measure(report, console, quick=given.quick)
    except KeyboardInterrupt:
        report.failures.append("interrupted")
    show(report, console)
    console.print(f"{time.perf_counter() - start:.0f} seconds in all")
    if given.output is not None:
        write(given.output, json.dumps(asdict(report), indent=2) + "\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
