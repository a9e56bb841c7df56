"""A world too large for its memory: explored on disk, interrupted once, resumed. ``make bench-large``.

The common model, every state on its own. How many states there must be is known beforehand: with symmetry the world is
small, and the sizes of its orbits add up to them. Both runs are commands as anybody would give them, each held to a
limit on its address space. A wrong count or a passed limit fails the run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pubmodel import build, scope
from benchmarks.sections import put
from model_check.explore import Verdict, explore
from reef_ref.cli.sizes import size

WORLD = (3, 7, 3)
MEMORY = "2GiB"
LIMIT = 4 << 30
"""Bytes of address space that a run may have, its code and buffers included."""
POLL = 0.5
"""Seconds between looks at a run's checkpoint."""


@dataclass(frozen=True)
class Part:
    """One run: its report, its seconds by the clock and of the processors, and its peak memory in bytes."""

    report: dict[str, Any]
    seconds: float
    processor: float
    peak: int


def expected(world: tuple[int, int, int]) -> int:
    """How many states a world has, by its orbits."""
    found = explore(build(), scope(*world), orbits=True)
    assert found.verdict is Verdict.HOLDS, found.reason
    return found.orbits


def kept(folder: Path) -> int:
    """How many states a checkpoint holds."""
    try:
        return sum(run["rows"] for run in json.loads((folder / "checkpoint.json").read_bytes())["levels"])
    except FileNotFoundError:
        return 0


def run(world: tuple[int, int, int], memory: str, folder: Path, limit: float, *, until: int | None) -> Part:
    """One run with a checkpoint, interrupted when that holds so many states.

    Raises:
        TimeoutError: it took longer than `limit` seconds.
    """
    engines, requests, loads = world
    report = folder / "report.json"
    command = [sys.executable, "-m", "reef_ref.cli", "check", "benchmarks.pubmodel:build", "--no-symmetry"]
    command += ["--scope", f"Engine={engines},Request={requests},Load={loads - 1}", "--memory", memory]
    command += ["--checkpoint", str(folder / "kept"), "--format", "json", "--output", str(report)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (LIMIT, LIMIT))
    try:
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            time.sleep(POLL)
            if time.perf_counter() - start > limit:
                raise TimeoutError(f"not done after {limit:g} seconds")
            if until is not None and kept(folder / "kept") >= until:
                process.send_signal(signal.SIGINT)
                until = None
    except BaseException:
        process.kill()
        process.wait()
        raise
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 3), f"ended with {process.returncode}"
    seconds = time.perf_counter() - start
    return Part(json.loads(report.read_text()), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def told(world: tuple[int, int, int], memory: str, first: Part, second: Part) -> str:
    """The figures, as Markdown."""
    states, transitions = second.report["states"], second.report["transitions"]
    seconds, processor = first.seconds + second.seconds, first.processor + second.processor
    disk = max(part.report["bytes_on_disk"] for part in (first, second))
    rows = {
        "world": f"{world[0]} engines, {world[1]} requests, {world[2]} loads; {second.report['bits_per_state']} bits",
        "states": f"{states:,}",
        "transitions": f"{transitions:,}",
        "depth": str(second.report["depth"]),
        "memory for states": memory,
        "interrupted after": f"{first.seconds:,.0f} s, with {first.report['states']:,} states",
        "resumed, and done after": f"{second.seconds:,.0f} s more",
        "processor time": f"{processor:,.0f} s on {second.report['workers']} workers",
        "peak memory of the process": f"{max(first.peak, second.peak) / 2**30:.2f} GiB",
        "states a second": f"{states / seconds:,.0f} by the clock, {states / processor:,.0f} of processor time",
        "disk, at most": f"{disk / 2**30:.2f} GiB, {disk / states:.1f} bytes a state",
    }
    width = max(map(len, rows))
    return "\n".join(("| | |", "|---|--:|", *(f"| {name:{width}} | {value} |" for name, value in rows.items())))


def main() -> int:
    """Run it twice, check it, print it."""
    # A shell has what it starts in the background ignore interrupts, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("world", type=int, nargs="*", default=WORLD, metavar="N", help="engines, requests, loads")
    parser.add_argument("--memory", default=MEMORY, help="for states, before they go to disk (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="on a disk with room (default: one for temporary files)")
    parser.add_argument("--limit", type=float, default=7200, help="seconds for each run (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="write what was seen into the README's section")
    given = parser.parse_args()
    if len(given.world) != 3:
        parser.error("a world is three numbers: engines, requests, loads")
    world = (given.world[0], given.world[1], given.world[2])
    size(given.memory)
    states = expected(world)
    print(f"{states:,} states by their orbits; now one by one", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="large-", dir=given.folder) as folder:
        first = run(world, given.memory, Path(folder), given.limit, until=states // 3)
        assert first.report["reason"].startswith("interrupted; "), first.report["reason"]
        print(f"interrupted with {first.report['states']:,} states", file=sys.stderr, flush=True)
        second = run(world, given.memory, Path(folder), given.limit, until=None)
    assert second.report["verdict"] == "holds", second.report["reason"]
    assert second.report["states"] == states, f"{second.report['states']:,} states, and orbits of {states:,}"
    assert max(first.peak, second.peak) <= LIMIT
    seen = told(world, given.memory, first, second)
    if given.keep:
        put("large", seen)
    print(seen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
