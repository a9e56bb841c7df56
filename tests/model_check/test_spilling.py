"""A search on disk finds what the same search in memory finds, and goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import pubmodel
from model_check.checkpoint import MANIFEST, Checkpoint
from model_check.evaluate import Space
from model_check.explore import Exploration, MemoryShort, Progress, Unfit, Verdict, explore
from model_check.graph import allowed
from model_check.links import Links
from model_check.record import Claims
from model_check.runs import FAN, Run, Runs
from model_check.search import Search
from model_check.spilling import Spilling
from spec.lang import Bool, CanReach, Protocol, Scope, exists, forall, wherever
from tests.model_check.test_search import strip

TINY = 320 << 10
"""Bytes that hold some ten thousand states, so that a level has many runs."""


def same(found: Exploration) -> object:
    """All that must not depend on where the states are."""
    story = found.counterexample and (found.counterexample.claim, found.counterexample.run)
    kept = dataclasses.replace(found, counterexample=None, seconds=0, seconds_ready=0, grown=0, disk=0)
    return kept, story


def with_goals(bug: int = 0) -> Protocol:
    model = pubmodel.build(bug)

    @model.goal
    def all_done(s: pubmodel.State) -> Bool:
        """Some request is done while an engine is paused."""
        return exists(pubmodel.Request, lambda r: s.status[r] == pubmodel.Status.DONE) & exists(
            pubmodel.Engine, lambda e: s.paused[e]
        )

    return model


def recovering() -> Protocol:
    model = pubmodel.build()

    @model.recovery()
    def served(s: pubmodel.State) -> CanReach:
        """Every request can be answered."""
        return wherever(True).can_reach(forall(pubmodel.Request, lambda r: s.status[r] == pubmodel.Status.DONE))

    @model.recovery()
    def published(s: pubmodel.State) -> CanReach:
        """There can be another publication; the bound says otherwise."""
        return wherever(s.phase == pubmodel.Phase.IDLE).can_reach(s.phase == pubmodel.Phase.UPDATE)

    @model.recovery(avoiding=["begin", "fail"])
    def rebuilt(s: pubmodel.State) -> CanReach:
        """Engines can be rebuilt though nothing fails."""
        return wherever(s.phase == pubmodel.Phase.IDLE).can_reach(s.phase == pubmodel.Phase.REBUILD)

    return model


@pytest.mark.parametrize(("bug", "workers"), [(0, 1), (0, 3), (1, 2), (2, 3)])
def test_the_same_is_found_on_disk(bug: int, workers: int) -> None:
    """States, steps, levels, coverage, cuts, goals, verdicts and, step for step, the story."""
    world = pubmodel.scope(3, 4, 3)
    in_memory = explore(with_goals(bug), world, symmetry=False, workers=workers)
    on_disk = explore(with_goals(bug), world, symmetry=False, workers=workers, memory=workers * TINY // 2)
    assert (in_memory.disk, on_disk.disk > 0) == (0, True)
    assert same(on_disk) == same(in_memory)
    assert (in_memory.counterexample is None) == (bug == 0)


@pytest.mark.parametrize("symmetry", [False, True])
def test_orbits_are_counted_on_disk(symmetry: bool, tmp_path: Path) -> None:
    world = pubmodel.scope(3, 4, 3)
    in_memory = explore(pubmodel.build(), world, symmetry=symmetry, orbits=True)
    on_disk = explore(pubmodel.build(), world, symmetry=symmetry, orbits=True, checkpoint=tmp_path)
    assert same(on_disk) == same(in_memory)
    assert on_disk.disk > 0
    assert on_disk.orbits == (331_292 if symmetry else 0)


@pytest.mark.parametrize(("cells", "symmetry"), [(3, False), (31, True), (40, False), (64, True), (70, False)])
def test_states_of_any_width_on_disk(cells: int, symmetry: bool, tmp_path: Path) -> None:
    protocol, scope = strip(), Scope("strip", {"Cell": cells, "Ink": 3}, "trial")
    in_memory = explore(protocol, scope, symmetry=symmetry)
    on_disk = explore(protocol, scope, symmetry=symmetry, checkpoint=tmp_path)
    assert same(on_disk) == same(in_memory)
    assert on_disk.verdict is Verdict.HOLDS


def test_levels_hold_the_same_states_though_they_had_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    space, most = Space(pubmodel.build(), pubmodel.scope(3, 4, 3)), 0
    merge = Runs.merge

    def counting(runs: Runs, candidates: list[Run], *args: Any) -> Run:
        nonlocal most
        most = max(most, len(candidates))
        return merge(runs, candidates, *args)

    monkeypatch.setattr(Runs, "merge", counting)
    monkeypatch.setattr("model_check.runs.FAN", 5)
    in_memory, on_disk = Search(space, Claims(), (), 2), Spilling(space, Claims(), (), 2, TINY)
    while in_memory.level():
        on_disk.level()
    on_disk.level()
    assert on_disk.on_disk
    assert most > 5, "or the world is too small for this test"
    assert on_disk.counts == in_memory.counts
    for level in range(len(in_memory.counts)):
        states = on_disk.packed_states(level)
        assert states == sorted(in_memory.packed_states(level))
    folder = on_disk._folder
    assert folder is not None
    assert folder.is_dir()
    for search in (in_memory, on_disk):
        search.close()
    assert not folder.exists()


def test_memory_for_less_than_the_buffers_is_refused() -> None:
    found = explore(pubmodel.build(), WORLD, symmetry=False, memory=200 << 10)
    assert (found.verdict, found.reason) == (Verdict.UNDETERMINED, "0.2 MiB are not even enough for buffers")
    with pytest.raises(MemoryShort):
        explore(pubmodel.build(), WORLD, symmetry=False, memory=10)


def test_recoveries_are_the_same_on_disk() -> None:
    """Whether each holds, needs what the bound cuts, or is lost, and where it is lost first."""
    world = pubmodel.scope(3, 4, 2)
    in_memory = explore(recovering(), world, symmetry=False)
    on_disk = explore(recovering(), world, symmetry=False, memory=1 << 20)
    assert on_disk.disk > 6 * on_disk.steps, "or there were no links"
    assert 8 * on_disk.states > 1 << 20, "or all states fit in memory at once"
    assert same(on_disk) == same(in_memory)
    assert {o.name: o.verdict for o in on_disk.outcomes if o.kind == "recovery"} == {
        "served": Verdict.HOLDS,
        "published": Verdict.UNDETERMINED,
        "rebuilt": Verdict.VIOLATED,
    }
    assert on_disk.counterexample is not None
    assert on_disk.counterexample.claim == "rebuilt"


def test_there_is_a_link_for_every_step_that_a_recovery_may_take() -> None:
    model = recovering()
    space = Space(model, pubmodel.scope(3, 4, 2))
    recoveries = list(model.recoveries.values())
    claims = Claims(recoveries=tuple((r.source, r.target) for r in recoveries))
    search = Spilling(space, claims, (), 2, 1 << 20)
    while search.level():
        pass
    links = Links(search, recoveries)
    found = np.concatenate([np.fromfile(search.runs.path(file), np.uint32).reshape(-1, 3) for file in links.files])
    assert len(links.files) > search.workers, "or all states fit in memory at once"
    for number, recovery in enumerate(recoveries):
        usable = allowed(search, recovery).astype(bool)
        assert int((found[:, 2] >> number & 1).sum()) == int(np.array(search.coverage)[usable].sum())
    (position,) = np.flatnonzero(np.bincount(found[:, 0]) == np.bincount(found[:, 0]).max())[:1]
    everything = np.fromfile(search.runs.path(links.states), np.uint64)
    after = {int(everything[target]) for target in found[found[:, 0] == position, 1]}
    assert after == {packed for _, packed in search.successors(int(everything[position]))}
    search.close()


def test_recoveries_that_need_more_memory_are_undetermined() -> None:
    found = explore(recovering(), pubmodel.scope(3, 4, 3), symmetry=False, memory=TINY)
    assert found.verdict is Verdict.UNDETERMINED
    assert found.reason == "recoveries need 1 MiB for marks of 331,292 states"
    assert found.outcome("no_dead_end").verdict is Verdict.HOLDS
    assert found.outcome("served").note == "it was not judged"


# Runs


@pytest.fixture(scope="module", params=[3, 40, 70])
def machine_of(request: pytest.FixtureRequest) -> Search:
    """Compiled code for states of one, two and four words."""
    found = Search(Space(strip(), Scope("strip", {"Cell": request.param, "Ink": 3}, "trial")), Claims(), (), 1)
    assert found.layout.words == {3: 1, 40: 2, 70: 4}[request.param]
    return found


def rows_of(states: list[int], words: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array([state >> 64 * n & (1 << 64) - 1 for state in states for n in range(words)], np.uint64)


def states_of(rows: np.ndarray[Any, np.dtype[np.uint64]], words: int) -> list[int]:
    return [sum(int(w) << 64 * n for n, w in enumerate(row)) for row in rows.reshape(-1, words)]


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 18, 1000])
@pytest.mark.parametrize("bits", [1, 5, 64, 255])
def test_rows_are_sorted(machine_of: Search, count: int, bits: int) -> None:
    words = machine_of.layout.words
    chance = np.random.default_rng(count + bits)
    top = min(bits, 64 * words)
    states = [int.from_bytes(chance.bytes(32), "little") & (1 << top) - 1 for _ in range(count)]
    for given in (states, sorted(states), sorted(states)[::-1], states[:1] * count):
        rows = rows_of(given, words)
        machine_of.machine.sort(rows.ctypes.data, len(given))
        assert states_of(rows, words) == sorted(given)


@pytest.mark.parametrize("room", [40, 1000])
def test_runs_are_merged_without_what_is_known(machine_of: Search, tmp_path: Path, room: int) -> None:
    words = machine_of.layout.words
    runs = Runs(tmp_path, words, machine_of.machine, durable=False)
    chance = np.random.default_rng(words)

    def made(count: int) -> tuple[set[int], Run]:
        states = {int(n) << (64 * words - 12) | int(n) for n in chance.integers(0, 2000, count)}
        return states, runs.write(runs.name(), [rows_of(sorted(states), words)])

    candidates = [made(count) for count in (0, 1, 300, 400, 500, *[3] * FAN)]
    known = [made(count) for count in (0, 1, 400, 30)]
    seen: list[int] = []
    merged = runs.merge(
        [run for _, run in candidates],
        [run for _, run in known],
        np.zeros(room * words, np.uint64),
        lambda rows: seen.extend(states_of(rows, words)),
    )
    expected = sorted(set().union(*(s for s, _ in candidates)) - set().union(*(s for s, _ in known)))
    assert states_of(np.fromfile(runs.path(merged), np.uint64), words) == expected == seen
    assert merged.rows == len(expected)
    assert sorted(tmp_path.iterdir()) == [*sorted(runs.path(r) for _, r in (*candidates, *known)), runs.path(merged)]


# Checkpoints


WORLD = pubmodel.scope(3, 3, 3)


def kept(folder: Path, bug: int = 0, **options: Any) -> Exploration:
    return explore(pubmodel.build(bug), options.pop("scope", WORLD), symmetry=False, checkpoint=folder, **options)


def interrupt_at(depth: int) -> Callable[[Progress], None]:
    def progress(now: Progress) -> None:
        if now.depth == depth:
            signal.raise_signal(signal.SIGINT)

    return progress


def test_an_interrupted_search_goes_on_at_the_level_it_had_reached(tmp_path: Path) -> None:
    whole = explore(pubmodel.build(), WORLD, symmetry=False)
    for depth in (1, 7, 20, 21):
        found = kept(tmp_path, progress=interrupt_at(depth))
        assert found.verdict is Verdict.UNDETERMINED
        assert found.reason == f"interrupted; {tmp_path} keeps what was found, to go on from"
        assert found.per_depth == whole.per_depth[:depth]
        assert found.states == sum(found.per_depth)
    depths: list[int] = []
    assert same(kept(tmp_path, progress=lambda now: depths.append(now.depth))) == same(whole)
    assert min(depths) == 21
    assert same(kept(tmp_path)) == same(whole), "what was finished is told again"


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_just_before_or_after_the_manifest_is_replaced_tears_nothing(
    late: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, calls = Checkpoint.keep, 0

    def interrupted(checkpoint: Checkpoint, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 15 and not late:
            raise KeyboardInterrupt
        keep(checkpoint, *args)
        if calls == 15:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "keep", interrupted)
    assert kept(tmp_path).reason.startswith("interrupted; ")
    assert same(kept(tmp_path)) == same(explore(pubmodel.build(), WORLD, symmetry=False))


def test_a_violation_is_told_after_a_stop(tmp_path: Path) -> None:
    whole = explore(pubmodel.build(1), WORLD, symmetry=False)
    assert kept(tmp_path, bug=1, max_states=100).reason.startswith("stopped past 100 states; ")
    for _ in range(2):
        assert same(kept(tmp_path, bug=1)) == same(whole)


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    """Killed between any two things it does: what lies there is the last level that was finished."""
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from benchmarks import pubmodel\n"
        "from model_check.explore import explore\n"
        "left = int(sys.argv[2])\n"
        "def audit(event, args):\n"
        "    global left\n"
        "    if event == 'open' and str(args[0]).startswith(sys.argv[1]) or event == 'os.rename':\n"
        "        left -= 1\n"
        "        if not left:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(audit)\n"
        "explore(pubmodel.build(), pubmodel.scope(3, 3, 3), symmetry=False, checkpoint=Path(sys.argv[1]))\n"
    )
    for operations in (3, 8, 50, 51, 52, 53, 54):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(operations)], timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL
    assert same(kept(tmp_path)) == same(explore(pubmodel.build(), WORLD, symmetry=False))


REFUSED = {
    "protocol": ({"bug": 1}, "the checkpoint is of protocol pubmodel, not of pubmodel-bug1"),
    "scope": ({"scope": pubmodel.scope(2, 3, 3)}, "is of scope Engine=3,Load=2,Request=3, not of Engine=2,Load=2,Req"),
    "properties": ({"only": ["kv_fresh"]}, "the checkpoint was made for other properties"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_checkpoint_of_something_else_is_refused(case: str, tmp_path: Path) -> None:
    kept(tmp_path, max_states=100)
    before = sorted(tmp_path.iterdir())
    options, message = REFUSED[case]
    with pytest.raises(Unfit, match=message):
        kept(tmp_path, **options)
    assert sorted(tmp_path.iterdir()) == before


def test_a_checkpoint_of_a_changed_protocol_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, max_states=100)
    changed = pubmodel.build()
    changed.change_action("flush", guard=())
    with pytest.raises(Unfit, match="was made before protocol pubmodel was changed"):
        explore(changed, WORLD, symmetry=False, checkpoint=tmp_path)
    with pytest.raises(Unfit, match="the checkpoint was made without symmetry"):
        explore(pubmodel.build(), WORLD, checkpoint=tmp_path)


def altered(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / MANIFEST).read_text())
    change(document)
    (folder / MANIFEST).write_text(json.dumps(document))


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    kept(tmp_path, max_states=100)
    altered(tmp_path, lambda document: document["identity"].update(source="older"))
    with pytest.raises(Unfit, match="was made by another version of this program; remove it, or go on with that ver"):
        kept(tmp_path)
    altered(tmp_path, lambda document: document.update(version=2))
    with pytest.raises(Unfit, match=r"the checkpoint has form reef-ref\.checkpoint 2 little, unknown here"):
        kept(tmp_path)


@pytest.mark.parametrize("cut", ["run", "byte", "manifest", "missing", "field"])
def test_a_torn_checkpoint_is_refused(cut: str, tmp_path: Path) -> None:
    kept(tmp_path, max_states=1000)
    manifest = tmp_path / MANIFEST
    run = tmp_path / json.loads(manifest.read_text())["levels"][-1]["name"]
    match cut:
        case "run":
            run.write_bytes(run.read_bytes()[:-3])
        case "byte":
            run.write_bytes(run.read_bytes()[:-3] + b"\1\2\3")
        case "manifest":
            manifest.write_bytes(manifest.read_bytes()[:-30])
        case "missing":
            run.unlink()
        case "field":
            altered(tmp_path, lambda document: document.pop("serial"))
    with pytest.raises(Unfit, match=r"the checkpoint is torn: \S+ (cannot be read|is not what was written); remove"):
        kept(tmp_path)


def test_a_folder_that_is_in_use_or_of_something_else_is_refused(tmp_path: Path) -> None:
    holder = Checkpoint(tmp_path / "mine")
    with pytest.raises(Unfit, match="another process goes on from this checkpoint"):
        kept(tmp_path / "mine")
    holder.close()
    kept(tmp_path / "mine", max_states=100)
    with pytest.raises(Unfit, match="is no checkpoint, and not empty; name a folder of its own"):
        kept(tmp_path)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(Unfit, match="file: cannot be written to: File exists"):
        kept(file)


def test_a_full_disk_is_never_a_pass(tmp_path: Path) -> None:
    """What was finished before is kept."""
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from benchmarks import pubmodel\n"
        "from model_check.explore import explore\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        "found = explore(pubmodel.build(), pubmodel.scope(3, 3, 3), symmetry=False, checkpoint=Path(sys.argv[1]))\n"
        "print(found.verdict.value, found.reason, sep='|')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == (
        f"undetermined|{tmp_path}: states cannot be written: File too large; "
        f"{tmp_path} keeps what was found, to go on from\n"
    )
    assert same(kept(tmp_path)) == same(explore(pubmodel.build(), WORLD, symmetry=False))
