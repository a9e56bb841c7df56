"""Parts of `examples.rl_loop` that need no engine: who is admitted, what is learned, what survives a kill."""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.rl_loop.__main__ import main
from examples.rl_loop.admission import Refusal, refusal
from examples.rl_loop.broken import Unflushed
from examples.rl_loop.durable import replace_file, whole_folder
from examples.rl_loop.engines import NotEngines, read_attached, require_provenance
from examples.rl_loop.head import Head, Learned, Step
from examples.rl_loop.learning import LEAST_STEPS, Figures, advantages, chosen_tokens, judge, reward
from examples.rl_loop.resume import clear_unnamed, give_up_first_job, tell_end_of_last_life
from examples.rl_loop.rollout import prompts
from examples.rl_loop.settings import Mode, OtherRun, Places, Settings
from examples.rl_loop.watch import Caught, Watch
from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.checkpoint import CheckpointLayout
from reef_ref.engines.interface import Limits, Span
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Answer, Route
from reef_ref.load_id import LoadId
from reef_ref.markers import MARKER_NAME, Load, Record, Status, encode
from reef_ref.monitor.notice import Freshness
from reef_ref.monitor.validate import validate
from reef_ref.rank_events import Flush as RankFlush
from reef_ref.rank_events import Load as RankLoad
from reef_ref.rank_events import RankEvent, Start
from reef_ref.rank_events import encode as encode_rank_event

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = Settings(mode=Mode.DISJOINT, max_lag=1, seed=1)
SERVED = LoadId("a", 7)


# Admission (T6)


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([("a:7", 0, 10)], None),
        ([("a:6", 0, 4), ("a:7", 4, 10)], None),
        ([("a:6", 0, 10)], None),
        ([], Refusal.MISSING),
        ([("seven", 0, 10)], Refusal.MALFORMED),
        ([("a:7", 0, 9)], Refusal.MALFORMED),
        ([("a:7", 1, 10)], Refusal.MALFORMED),
        ([("a:6", 0, 4), ("a:7", 5, 10)], Refusal.MALFORMED),
        ([("a:6", 0, 6), ("a:7", 5, 10)], Refusal.MALFORMED),
        ([("a:6", 0, 4), ("a:6", 4, 4), ("a:7", 4, 10)], Refusal.MALFORMED),
        ([("b:7", 0, 10)], Refusal.CROSS_INCARNATION),
        ([("b:6", 0, 4), ("a:7", 4, 10)], Refusal.CROSS_INCARNATION),
        ([("a:7", 0, 4), ("a:6", 4, 10)], Refusal.NON_MONOTONIC),
        ([("a:7", 0, 4), ("a:8", 4, 10)], Refusal.FUTURE),
        ([("a:5", 0, 10)], Refusal.POLICY_LAG_EXCEEDED),
        ([("a:5", 0, 1), ("a:7", 1, 10)], Refusal.POLICY_LAG_EXCEEDED),
    ],
)
def test_a_sample_is_admitted_by_its_spans(spans: list[tuple[str, int, int]], expected: Refusal | None) -> None:
    """Well-formed, of one incarnation, monotone, and not more loads behind than the bound."""
    assert refusal([Span(*span) for span in spans], 10, SERVED, 1) is expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 4))
def test_the_oldest_token_decides(numbers: list[int], bound: int) -> None:
    """Over all sequences of loads, admitted are just the sorted ones within the bound."""
    spans = [Span(f"a:{number}", place, place + 1) for place, number in enumerate(numbers)]
    fresh = all(0 <= SERVED.sequence - number <= bound for number in numbers)
    assert (refusal(spans, len(numbers), SERVED, bound) is None) == (fresh and numbers == sorted(numbers))


# Learning


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_advantages_order_samples_as_rewards_do_and_sum_to_nothing(rewards: list[float]) -> None:
    """A step that makes some samples likelier makes others less likely."""
    found = advantages(rewards)
    assert abs(sum(found)) < 1e-6 * max(1.0, *map(abs, found))
    by_reward = [advantage for _, advantage in sorted(zip(rewards, found, strict=True))]
    assert by_reward == pytest.approx(sorted(by_reward))


def test_a_baseline_is_the_mean_of_the_others() -> None:
    """In standard deviations of the batch."""
    spread = statistics.pstdev([0.0, 0.0, 0.3])
    assert advantages([0.0, 0.0, 0.3]) == pytest.approx([-0.15 / spread, -0.15 / spread, 0.3 / spread])
    assert advantages([0.5, 0.5]) == [0.0, 0.0]


def test_the_reward_is_the_share_of_chosen_tokens() -> None:
    """An eighth of all tokens is chosen, the same ones in every life of a run."""
    chosen = chosen_tokens(1)
    assert len(chosen) == 64
    assert chosen == chosen_tokens(1) != chosen_tokens(2)
    some, other = min(chosen), min(set(range(512)) - chosen)
    assert reward([some, other, other, some], chosen) == 0.5


@given(st.lists(st.lists(st.floats(0, 1), min_size=2, max_size=8), min_size=1, max_size=4))
def test_figures_of_parts_are_those_of_the_whole(parts: list[list[float]]) -> None:
    """So that a judgement needs no sample to be kept."""
    whole = [one for part in parts for one in part]
    together = Figures.together([Figures.of(part) for part in parts])
    assert together.count == len(whole)
    assert together.mean == pytest.approx(statistics.fmean(whole))
    assert together.deviation == pytest.approx(statistics.stdev(whole), abs=1e-9)


def test_a_rise_is_told_from_chance() -> None:
    """Noise alone does not rise in any of many runs, a clear rise does, and few steps are not judged."""
    for seed in range(50):
        draw = random.Random(seed)
        flat = [Figures.of([draw.gauss(0.13, 0.06) for _ in range(24)]) for _ in range(20)]
        rising = [Figures.of([draw.gauss(0.13 + step / 100, 0.06) for _ in range(24)]) for step in range(20)]
        noise, rise = judge(flat), judge(rising)
        assert noise is not None
        assert rise is not None
        assert rise.rises
        assert rise.first.mean < rise.last.mean
        assert not noise.rises, seed
        falling = judge(rising[::-1])
        assert falling is not None
        assert not falling.rises
        assert judge(flat[: LEAST_STEPS - 1]) is None


def test_prompts_share_their_beginning() -> None:
    """And differ in their ends."""
    made = prompts(SETTINGS)
    assert len({prompt[: SETTINGS.shared_prompt] for prompt in made}) == 1
    assert len(set(made)) == SETTINGS.prompts
    assert {len(prompt) for prompt in made} == {SETTINGS.shared_prompt + SETTINGS.own_prompt}


# Files


def test_a_folder_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    """A failure leaves nothing under the name, and what it left beside is no obstacle."""

    def fail(folder: Path) -> None:
        with whole_folder(folder) as unfinished:
            (unfinished / "half").write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail(tmp_path / "one")
    assert not (tmp_path / "one").exists()
    with whole_folder(tmp_path / "one") as unfinished:
        (unfinished / "file").write_text("whole")
    assert [path.name for path in tmp_path.rglob("*")] == ["one", "file"]


def step(number: int) -> Step:
    figures = Figures(2, 0.5, 0.1)
    learned = Learned(
        rewards=figures, across=0, dropped={"future": 1}, cached_tokens=1, prompt_tokens=2, slots_checked=3
    )
    return Step(number=number, load_id=f"a:{number + 1}", learned=learned)


def test_a_head_moves_once_and_is_remembered(tmp_path: Path) -> None:
    """A commit that is repeated after a kill changes nothing."""
    head = Head(tmp_path / "head.json")
    assert head.commit(step(1))
    assert head.commit(step(2))
    before = (tmp_path / "head.json").stat().st_mtime_ns
    again = Head(tmp_path / "head.json")
    assert not again.commit(step(2))
    assert again.steps == head.steps == (step(1), step(2))
    assert (tmp_path / "head.json").stat().st_mtime_ns == before


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    """Other settings, a torn file, other files: one line each."""
    places = Places(tmp_path / "run").claim(SETTINGS)
    assert Places(tmp_path / "run").claim(SETTINGS).folder == places.folder
    with pytest.raises(OtherRun, match="was begun with mode disjoint, not colocated; name another folder"):
        places.claim(SETTINGS.model_copy(update={"mode": Mode.COLOCATED}))
    replace_file(places.settings, b"{")
    with pytest.raises(OtherRun, match=r"run.json: not the settings of a run"):
        places.claim(SETTINGS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(OtherRun, match="is not empty and holds no run"):
        Places(tmp_path / "full").claim(SETTINGS)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["file"]


# Going on


def record(places: Places, number: int, status: Status, previous: Record | None = None) -> Record:
    """The record of a step; each is trained on the load of the step before it."""
    running = status is Status.RUNNING
    published = status.published
    return Record(
        status=status,
        job=f"step-{number}",
        rollout=number,
        scenario_step=number,
        parent=Load(load_id=LoadId("a", number), checkpoint=str(places.checkpoint(number - 1))),
        checkpoint=None if running else str(places.checkpoint(number)),
        target=LoadId("a", number + 1) if published else None,
        load_id=LoadId("a", number + 1) if published else None,
        acknowledged=status is Status.COMPLETE,
        previous=previous,
    )


@pytest.mark.parametrize(
    ("status", "kept", "job_left_files"),
    [
        (Status.RUNNING, [0, 2, 3], False),
        (Status.CHECKPOINT, [0, 3, 4], True),
        (Status.COMPLETE, [0, 3, 4], True),
    ],
)
def test_what_no_record_names_is_removed(tmp_path: Path, status: Status, kept: list[int], job_left_files: bool) -> None:
    """After a kill in step 4, whose checkpoint may be there: it counts only where the record says so."""
    places = Places(tmp_path / "run").claim(SETTINGS)
    for number in range(5):
        places.checkpoint(number).mkdir()
    (places.checkpoints / "step-000004.unfinished").mkdir()
    previous = record(places, 3, Status.COMPLETE) if status is Status.RUNNING else None
    evidence = clear_unnamed(places, record(places, 4, status, previous))
    assert sorted(map(places.step, places.checkpoints.iterdir())) == kept
    assert (evidence.iteration, evidence.job_left_files) == (max(kept), job_left_files)


def test_a_first_job_that_left_nothing_is_given_up(tmp_path: Path) -> None:
    """There is no record then, and the trace says so: a refusing life, the decision, and one that begins anew."""
    places = Places(tmp_path / "run").claim(SETTINGS)
    (places.marker / MARKER_NAME).write_bytes(encode(record(places, 1, Status.RUNNING)))
    told: list[events.Line] = []
    give_up_first_job(places.marker, "step-1", events.Teller("operator", told.append, clock=lambda: 0.0))
    assert [line.event for line in told] == [events.RestorePreviousRecord("step-1")]
    assert not (places.marker / MARKER_NAME).exists()


@pytest.mark.parametrize("owned", [False, True])
def test_lives_that_end_anywhere_are_one_trace(tmp_path: Path, owned: bool) -> None:
    """Killed while starting, at once, or after a torn line: what the next life tells is explained."""
    trace = tmp_path / "trace.ndjson"
    for life in range(4):
        watch = Watch(trace, 2)
        deployment = events.Teller(f"deployment:{life}", watch, clock=lambda: 0.0)
        coordinator = events.Teller(f"coordinator:{life}", watch, clock=lambda: 0.0)
        if watch.last is not None:
            tell_end_of_last_life(watch.last, deployment, owned=owned)
        if life != 1:  # killed before its coordinator began
            coordinator(events.Restart, () if owned and life else (0, 1))
            if not (owned and life):
                coordinator(events.Pause, 0, "retract")
        watch.raise_if_violated()
        watch.close()
        with trace.open("a") as stream:
            stream.write('{"schema":1,"source":"coord')
    watch = Watch(trace, 2)
    watch.raise_if_violated()
    assert watch.status().deployment
    watch.close()
    with trace.open("rb") as stream:
        report = validate(stream, engines=2)
    assert (report.verdict, report.gaps, report.repeated) == (Verdict.EXPLAINED, 0, 0)


def test_what_nothing_explains_is_caught_and_stays_caught(tmp_path: Path) -> None:
    """Also by the next life, which reads the trace before it does anything."""
    trace = tmp_path / "trace.ndjson"
    watch = Watch(trace, 2)
    tell = events.Teller("coordinator:1", watch, clock=lambda: 0.0)
    tell(events.Restart, (0, 1))
    tell(events.AllFlushed)
    expected = r"monitor: follows_the_protocol violated at deployment: all_flushed\(\) has no place in the protocol"
    with pytest.raises(Caught, match=expected):
        watch.raise_if_violated()
    watch.close()
    again = Watch(trace, 2)
    with pytest.raises(Caught, match=expected):
        again.raise_if_violated()
    again.close()


def rank_event(kind: type[RankEvent], number: int, **fields: object) -> bytes:
    """A line as the plugin of an engine writes it."""
    return encode_rank_event(kind(pid=7, rank=0, time=0.0, number=number, **fields)) + b"\n"  # type: ignore[arg-type]


def test_what_plugins_write_is_judged_from_when_they_are_attached(tmp_path: Path) -> None:
    """What another run left in the file is not this one's; weights over a full tree are, and so is a torn line."""
    old = {"load_id": "a:2", "reason": "update from disk", "mixed": True, "paused": "retract"}
    start = {"able_to_share": True, "sharing": True, "problems": (), "verdicts": (), "idle": "retract"}
    file = tmp_path / "engine-0.ndjson"
    file.write_bytes(
        rank_event(Start, 1, provenance={"load_id": "a:1"}, **start) + rank_event(RankLoad, 2, epoch=1, **old)
    )
    watch = Watch(tmp_path / "trace.ndjson", 1)
    watch.attach([file])
    watch.raise_if_violated()
    with file.open("ab") as stream:
        stream.write(rank_event(RankFlush, 3, load_id="a:2"))
    watch.raise_if_violated()
    assert watch.status().engines[0].freshness is Freshness.FRESH
    with file.open("ab") as stream:
        stream.write(b"torn")
    watch.raise_if_violated()
    with file.open("ab") as stream:
        stream.write(b"\n")
    with pytest.raises(Caught, match="monitor: unknown, engine 0: not a rank's event"):
        watch.raise_if_violated()
    with file.open("ab") as stream:
        stream.write(rank_event(RankLoad, 4, epoch=2, **old))
    with pytest.raises(Caught, match="monitor: flush_point violated at engine 0: bytes of a:2 arrive"):
        watch.raise_if_violated()
    watch.close()


@settings(deadline=None, max_examples=30)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_run_or_are_refused(data: bytes) -> None:
    """Of a head and of a trace, in one line that names the file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, read in (("head.json", Head), ("trace.ndjson", lambda path: Watch(path, 2).close())):
            path, said = Path(folder, name), ""
            path.write_bytes(data)
            try:
                read(path)
            except OtherRun as error:
                said = str(error)
            assert not said or (said.startswith(str(path)) and said.endswith("name a new folder"))


# Engines


class Recorded:
    """A wire that keeps what was asked and answers one thing."""

    address = "http://nowhere"

    def __init__(self, body: object) -> None:
        self.body = body
        self.asked: list[Route] = []

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        self.asked.append(route)
        return Answer(200, self.body)

    async def close(self) -> None:
        pass


def engine(wire: Any) -> SGLangEngine:
    return SGLangEngine(wire, limits=Limits(), layout=CheckpointLayout(Path(), {}, 0))


def test_the_broken_wire_leaves_out_the_flush_and_nothing_else() -> None:
    """The engine believes that it was flushed."""
    wire = Recorded({})
    flush = asyncio.run(engine(Unflushed(wire)).flush())
    assert (flush.cache, flush.refusals, wire.asked) == ("cleared", 0, [])
    asyncio.run(engine(Unflushed(wire)).continue_generation())
    assert wire.asked == [Route.CONTINUE]


@pytest.mark.parametrize("state", [{}, {"reef_ref": {"idle": "retract"}}])
def test_engines_without_provenance_are_refused(state: dict[str, object]) -> None:
    """What they reuse would not be looked at."""
    wire = Recorded({"internal_states": [state]})
    with pytest.raises(NotEngines, match="http://nowhere: provenance is not at work there"):
        asyncio.run(require_provenance(engine(wire)))


@pytest.mark.parametrize("text", ["", "{}", "[]", '[{"address": "x"}]', '[{"address": 1, "events": "f"}]'])
def test_a_file_that_names_no_engines_is_refused(tmp_path: Path, text: str) -> None:
    """In one line that names the file."""
    path = tmp_path / "engines.json"
    path.write_text(text)
    with pytest.raises(NotEngines, match=r"engines.json: names no engine"):
        read_attached(path)


# The command


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "examples.rl_loop", *arguments],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mode", "colocated", "--break", "no-flush"], "--break no-flush: SGLang flushes when KV is released"),
        (["--mode", "colocated", "--attach", "engines.json"], "--attach: colocated engines give memory back"),
        (["--attach", "no-such-file.json"], "no-such-file.json: No such file or directory"),
    ],
)
def test_bad_use_gets_one_line(arguments: list[str], message: str) -> None:
    """And ends 2, before an engine is started."""
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_an_environment_without_engines_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no folder is made."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sglang" else name)
    with pytest.raises(typer.Exit) as ended:
        main(folder=tmp_path / "run")
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == (
        "rl_loop: sglang not installed; the loop needs the extra 'engine' (reef-ref[engine])\n"
    )
    assert not (tmp_path / "run").exists()
