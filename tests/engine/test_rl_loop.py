"""`examples.rl_loop` on real engines: it learns, its broken twin is caught, a kill costs at most one step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from examples.rl_loop.engines import server_settings
from examples.rl_loop.head import Head, Step
from examples.rl_loop.policy import read_moments, read_notes
from examples.rl_loop.resume import first_checkpoint
from examples.rl_loop.settings import ENGINES, Mode, Places, Settings
from model_check.explain import Verdict
from reef_ref.engines.checkpoint import read_layout
from reef_ref.engines.launcher import ServerLauncher
from reef_ref.engines.process import ServerSettings
from reef_ref.load_id import LoadId
from reef_ref.markers import MARKER_NAME, Status, decode
from reef_ref.monitor.validate import validate

BOUND_S = 400.0
"""Of one command, in seconds."""
KILLS = (
    "record_running:1",  # the first job: there is no record to go back to
    "saving:1",  # weights and moments are written, the checkpoint has no name
    "train:2",  # it has its name, and no record names it
    "send:1",  # one engine has the bytes
    "record_ready:2",
    "commit_head:1",  # the service has moved its head, and nobody was told
    "continue_generation:2",
    "event:23",
)
"""When lives of one run are killed, one after the other."""
STEPS = 6
"""Steps of that run."""


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """Where processes put temporary files; a short name, for sockets lie there."""
    with tempfile.TemporaryDirectory(prefix="rl-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def running(temporary: Path) -> Iterator[Path]:
    """A file that names two running engines."""
    places = Places(temporary / "engines")
    places.checkpoints.mkdir(parents=True)
    settings = Settings(mode=Mode.DISJOINT, max_lag=0, seed=1)
    boot = first_checkpoint(settings, places)
    named = temporary / "engines.json"

    def what(slot: int) -> ServerSettings:
        return server_settings(settings, boot, places.folder / "models", places.plugin_events(slot))

    async def started(launcher: ServerLauncher) -> None:
        engines = await asyncio.gather(*(launcher.start(slot) for slot in range(ENGINES)))
        told = [
            {"address": engine.address, "events": str(places.plugin_events(slot))}
            for slot, engine in enumerate(engines)
        ]
        named.write_text(json.dumps(told))

    with asyncio.Runner() as runner:
        launcher = ServerLauncher(what)
        try:
            runner.run(started(launcher))
            yield named
        finally:
            runner.run(launcher.__aexit__(None, None, None))


def loop(temporary: Path, *arguments: str, module: str = "examples.rl_loop") -> subprocess.CompletedProcess[str]:
    """Run the loop in a process of its own, and see that it leaves none behind."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    _, left = psutil.wait_procs(list(processes_of(temporary)), timeout=30)
    assert not left, f"processes are still there: {left}"
    return done


def processes_of(temporary: Path) -> Iterator[psutil.Process]:
    """Every process that was given this place for its temporary files: the loop's own, and its engines'."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR", "").startswith(str(temporary)):
                yield process


def committed(folder: Path) -> list[Step]:
    return list(Head(Places(folder).head).steps)


def check_run(folder: Path, steps: int) -> None:
    """All steps, each a load of its own and in order; the newest checkpoint is of the last; the trace is explained."""
    places, found = Places(folder), committed(folder)
    assert [step.number for step in found] == list(range(1, steps + 1))
    ids = [LoadId.parse(step.load_id) for step in found]
    assert len({one.incarnation for one in ids}) == 1
    assert [one.sequence for one in ids] == list(range(2, steps + 2))
    record = decode((places.marker / MARKER_NAME).read_bytes())
    assert (record.status, record.rollout, record.load_id) == (Status.COMPLETE, steps, ids[-1])
    assert record.checkpoint is not None
    newest = Path(record.checkpoint)
    assert read_notes(newest)["step"] == steps
    taken = {int(count) for name, count in read_moments(newest).items() if name.startswith("step.")}
    assert taken == {steps}, "Adam has counted every step, and none twice"
    assert read_layout(newest).tensors == read_layout(places.checkpoint(0)).tensors
    with places.trace.open("rb") as trace:
        report = validate(trace, engines=ENGINES)
    assert (report.verdict, report.finding, report.gaps) == (Verdict.EXPLAINED, None, 0)


def test_twenty_steps_while_serving(temporary: Path) -> None:
    """The reward rises, samples live through publications, no slot is stale, and the end says so."""
    folder = temporary / "disjoint"
    done = loop(temporary, "--steps", "20", "--folder", str(folder))
    assert done.returncode == 0, done.stderr
    check_run(folder, 20)
    assert re.search(r"^publications: 20, load ids \w+:2 to 21$", done.stdout, re.MULTILINE)
    assert re.search(r"^stale slots: 0 of [\d,]{5,} reused KV slots compared$", done.stdout, re.MULTILINE)
    assert re.search(r"^trace: explained, [\d,]+ events of 2 engines$", done.stdout, re.MULTILINE)
    assert re.search(r"^reward rises: ", done.stdout, re.MULTILINE)
    assert "the monitor is silent: engine 0 fresh, engine 1 fresh\n" in done.stderr
    learned = [step.learned for step in committed(folder)]
    assert sum(one.across for one in learned) > 0, "no sample lived through a publication"
    assert sum(one.cached_tokens for one in learned) > sum(one.prompt_tokens for one in learned) / 2, (
        "nothing is shared"
    )
    again = loop(temporary, "--steps", "20", "--folder", str(folder))
    assert (again.returncode, again.stdout) == (0, done.stdout), "a run that is done starts no engine"
    shutil.rmtree(folder)


def test_colocated_steps_go_on_after_a_kill_while_memory_is_released(temporary: Path) -> None:
    """Engines give memory back and end with the loop; new ones are filled from the record. What is old is dropped."""
    folder = temporary / "colocated"
    Places(folder).claim(Settings(mode=Mode.COLOCATED, max_lag=0, seed=1))
    lives = loop(temporary, str(folder), "3", "-", "all_released:4", module="tests.engine.rl_loop_life")
    assert lives.stdout == f"all_released:4 {int(-signal.SIGKILL)} 1\n", lives.stderr
    done = loop(temporary, "--steps", "3", "--folder", str(folder), "--mode", "colocated", "--max-lag", "0")
    assert done.returncode == 0, done.stderr
    assert "the monitor is silent: engine 0 fresh, engine 1 fresh\n" in done.stderr
    check_run(folder, 3)
    dropped = [step.learned.dropped for step in committed(folder)]
    assert set().union(*dropped) == {"policy_lag_exceeded"}, "no request ran across a publication"
    told = [json.loads(line)["event"] for line in Places(folder).trace.read_text().splitlines()]
    assert told.count("tear_down") == 1
    assert told.count("rebuild") == ENGINES
    assert told.count("resume_kv") >= 3 * ENGINES
    shutil.rmtree(folder)


def test_the_broken_twin_is_caught_at_the_first_publication(temporary: Path, running: Path) -> None:
    """Provenance names request, slots and loads, the monitor says why it could be, and the trace remembers it."""
    folder = temporary / "broken"
    done = loop(temporary, "--break", "no-flush", "--folder", str(folder), "--attach", str(running))
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rl_loop: ")]
    assert re.fullmatch(
        r"rl_loop: provenance, engine 0: request \w+-look-1-0 reuses 55 stale KV slots of 55 \([\d, ]+, \.\.\.\), "
        r"written by load (\w+:1) \(epoch \d+\), under load (\w+:2) \(epoch \d+\); "
        r"monitor: flush_point violated at engine 0: bytes of \2 arrive \(update from disk\) over a tree that was not "
        r"emptied: the next request may reuse what it holds \[event \d+ of engine:0/rank:0/\d+\]",
        line,
    )
    assert len(committed(folder)) == 1
    again = loop(temporary, "--folder", str(folder), "--attach", str(running))
    assert again.returncode == 1
    assert "no_stale_hit is violated" in again.stderr


def test_a_kill_at_any_instant_costs_at_most_one_step(temporary: Path, running: Path) -> None:
    """Lives are killed one after the other; load ids, steps and the optimizer go on as if there had been one."""
    folder = temporary / "killed"
    Places(folder).claim(Settings(mode=Mode.DISJOINT, max_lag=2, seed=1))
    lives = loop(temporary, str(folder), str(STEPS), str(running), *KILLS, module="tests.engine.rl_loop_life")
    ended = [line.split() for line in lives.stdout.splitlines()]
    killed = str(-signal.SIGKILL)
    assert [(when, status) for when, status, _ in ended] == [(when, killed) for when in KILLS], lives.stderr
    committed_then = [int(count) for _, _, count in ended]
    assert committed_then == sorted(committed_then)
    assert 0 < committed_then[-1] < STEPS
    done = loop(temporary, "--steps", str(STEPS), "--folder", str(folder), "--attach", str(running))
    assert done.returncode == 0, done.stderr
    assert "the monitor is silent: engine 0 fresh, engine 1 fresh\n" in done.stderr
    check_run(folder, STEPS)
