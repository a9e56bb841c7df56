"""Traces of the protocol are explained whatever is left out of them; traces of wrong protocols are not."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_check.evaluate import Space, State
from model_check.explain import Explainer, Observation, Seen, Verdict
from model_check.explore import explore
from model_check.liveness import judge
from reef_ref import events
from reef_ref.cli import main
from reef_ref.events import Line
from reef_ref.monitor.trace import UNLOGGED, WATCHED, world
from reef_ref.monitor.validate import Finding, Garbled, Validator, read, validate
from spec.publication import publication
from spec.publication.mutants import MUTANTS
from spec.publication.scopes import SCOPES
from tests.monitor.logged import Step, Teller, text, walk

FEW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
SPACE = Space(publication, world(2))
ENGINE_INTERNAL = ("admit", "start", "start_on_hit", "finish", "retract", "migrate", "die")


@cache
def validator() -> Validator:
    return Validator(2)


def fed(lines: list[Line]) -> Validator:
    """A validator after a trace, or after the first event of it that is inexplicable."""
    taken = validator()
    taken.begin()
    for at, line in enumerate(lines, 1):
        if taken.feed(line, at) is Verdict.INEXPLICABLE:
            break
    return taken


@FEW
@given(st.integers(0, 10**6))
def test_a_run_of_the_protocol_is_explained_though_what_is_hidden_is_left_out(seed: int) -> None:
    """Any part of the engines' and the service's own events may be missing from the start."""
    chance = random.Random(seed)
    steps = walk(SPACE, chance, 120)
    share = chance.random()
    lines = Teller(SPACE).tell(steps, lambda i: i.action.name not in UNLOGGED or chance.random() < share)
    report = fed(lines).report()
    assert report.verdict is Verdict.EXPLAINED, report


def test_what_is_explained_was_possible_all_the_time() -> None:
    """The true state is among the possible ones after every event."""
    steps = walk(SPACE, random.Random(7), 150)
    explainer = Explainer(SPACE, hidden=UNLOGGED, fields=WATCHED)
    for instance, _, after in steps:
        if instance.action.name in UNLOGGED:
            continue
        assert explainer.feed(Observation((Seen(instance.action.name, instance.args),))) is Verdict.EXPLAINED
        kept = tuple((cell, frozenset({after[cell]})) for cell in explainer.boxes.place)
        assert any(_within(explainer, box, dict(kept)) for box in explainer.possible)


def _within(explainer: Explainer, box: tuple[int, ...], shown: dict[int, frozenset[int]]) -> bool:
    left: tuple[int, ...] | None = box
    for cell, allowed in shown.items():
        left = None if left is None else explainer.boxes.show(left, cell, allowed)
    return left is not None


# Wrong protocols


@cache
def counterexample(name: str) -> tuple[Space, State, tuple[Step, ...]]:
    """A shortest run by which a wrong protocol shows what is wrong with it."""
    mutant = MUTANTS[name]
    judging = judge if mutant.breaks in publication.eventualities else explore
    found = judging(mutant.build(), SCOPES["smoke"], only=[mutant.breaks], workers=1).counterexample
    assert found is not None
    steps = tuple((i, a, b) for (_, a), (i, b) in itertools.pairwise(found.run) if i is not None)
    assert found.kind == "recovery" or name not in UNREACHABLE
    assert found.kind == "eventuality" or name not in ENDLESS
    return found.space, found.run[0][1], steps


def by_cells(first: State, steps: tuple[Step, ...]) -> Verdict:
    """What the right protocol says where every step is told, and everything that components know is shown."""
    right = Space(publication, SCOPES["smoke"])
    real = [cell for cell in range(right.cells) if not right.cell_name(cell)[0].ghost]
    explainer = Explainer(right, fields=[f.name for f in publication.fields.values() if not f.ghost])
    explainer.feed(Observation((Seen(shown=tuple((cell, frozenset({first[cell]})) for cell in real)),)))
    for instance, _, after in steps:
        known = instance.action.name in publication.actions
        shown = tuple((cell, frozenset({after[cell]})) for cell in real)
        explainer.feed(
            Observation((Seen(instance.action.name if known else "", instance.args if known else (), shown),))
        )
    return explainer.verdict


BY_EVENTS = frozenset(
    {
        "acknowledge-again",
        "calls-overlap",
        "colocated-in-place",
        "commit-skips-the-continue",
        "continue-before-head",
        "declare-after-bytes",
        "flush-after-own-pause",
        "flush-before-pause",
        "flush-reaches-one-engine",
        "in-place-pause-retracts",
        "in-place-poisons-the-tree",
        "kv-back-before-the-bytes",
        "memory-back-while-training",
        "monitor-ignores-the-latch",
        "no-flush",
        "publish-over-retired-engines",
        "refused-flush-taken-for-done",
        "reject-what-is-ready",
        "reject-what-may-have-moved",
        "rejection-leaves-memory-out",
        "release-answered-early",
        "replacement-serves-at-once",
        "replacements-not-flushed",
        "restart-serves-what-is-ready",
        "target-not-persisted",
        "tier-outlives-the-flush",
        "transfer-forgets-an-engine",
        "verify-nobody",
    }
)
"""Wrong protocols whose shortest counterexample is inexplicable already by what coordinators and engines tell."""
BY_CELLS = frozenset(
    {
        "answers-counted-twice",
        "barrier-failure-leaves-checkpoint",
        "barriers-time-out",
        "bytes-nobody-sent",
        "failed-transfer-continues",
        "failed-write-not-read-back",
        "flush-beside-a-running-request",
        "flush-only-when-colocated",
        "fresh-target-on-retry",
        "give-up-without-retiring",
        "in-place-shares",
        "latch-outlives-its-coordinator",
        "latch-set-on-success",
        "memory-leads-disk",
        "mixed-kv-enters-the-tree",
        "partial-continue-clears-the-latch",
        "pause-answered-early",
        "probe-kills-recovery",
        "publish-with-open-gate",
        "recovery-continues-before-restoring",
        "recovery-leaves-memory-out",
        "recovery-restores-the-candidate",
        "recovery-stamps-without-sending",
        "release-beside-a-running-request",
        "release-keeps-the-tree",
        "replacements-not-paused",
        "restart-behind-open-gate",
        "restart-resumes-running",
        "resume-what-was-not-released",
        "retired-in-name-only",
        "retry-by-difference",
        "second-way-to-update",
        "sender-owns-generation",
        "somebody-else-continues",
        "stamp-before-bytes",
        "verify-any",
        "verify-ids-only",
    }
)
"""Those that are found where each step shows what components know after it."""
UNREACHABLE = frozenset(
    {
        "continue-reaches-empty-slots",
        "failed-republish-is-beyond-repair",
        "flush-under-in-place",
        "flush-waits-for-the-queue",
        "gate-opens-after-a-commit-only",
        "health-hides-the-retry",
        "rejection-not-repeated",
        "republish-refused-after-rejection",
        "restart-refuses-rejection",
        "retry-without-rebuilding",
        "update-waits-for-readers",
    }
)
"""Those that do nothing wrong, and cannot go on: what can no longer be reached shows in no trace."""
ENDLESS = frozenset(
    {
        "lost-engines-are-not-missed",
        "pause-waits-for-requests",
        "retraction-throws-work-away",
        "service-keeps-no-record",
    }
)
"""Those that do nothing wrong, and never do something right: every trace ends before that shows."""
UNSEEN = frozenset({"flush-forgets-a-tier"})
"""Those where only provenance is wrong when the run ends: nobody sees it before something is reused."""


def test_every_wrong_protocol_has_its_place_in_the_table() -> None:
    places = (BY_EVENTS, BY_CELLS, UNREACHABLE, ENDLESS, UNSEEN)
    assert frozenset().union(*places) == set(MUTANTS)
    assert sum(map(len, places)) == len(MUTANTS)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_trace_of_a_wrong_protocol_is_found_where_the_table_says(name: str) -> None:
    space, first, steps = counterexample(name)
    told = fed(Teller(space).tell(steps)).report().verdict
    assert (told is Verdict.INEXPLICABLE) == (name in BY_EVENTS)
    if name not in BY_EVENTS:
        assert (by_cells(first, steps) is Verdict.INEXPLICABLE) == (name in BY_CELLS)


def test_a_stale_hit_is_told_in_words() -> None:
    space, _, steps = counterexample("no-flush")
    report = fed(Teller(space).tell(steps)).report()
    assert report.finding is not None
    assert "no_stale_hit is violated" in report.finding.note
    assert isinstance(report.finding.event, events.StartOnHit)


def test_a_wrong_protocol_explains_its_own_trace_and_the_property_is_found_violated() -> None:
    _, _, steps = counterexample("no-flush")
    wrong = MUTANTS["no-flush"].build()
    explainer = Explainer(Space(wrong, SCOPES["smoke"]), hidden=ENGINE_INTERNAL, judged=["no_stale_hit", "flush_point"])
    for instance, _, _ in steps:
        if instance.action.name not in ("admit", "finish"):
            assert explainer.feed(Observation((Seen(instance.action.name, instance.args),))) is Verdict.EXPLAINED
    held = {name: value.value for name, value in explainer.properties().items()}
    assert held == {"no_stale_hit": "violated in all", "flush_point": "violated in all"}


# Gaps, repeated and late events


def test_after_a_gap_the_verdict_is_unknown_and_errors_are_found_again() -> None:
    lines = publications(3)
    missing = lines[:10] + lines[11:]
    report = fed(missing).report()
    assert (report.verdict, report.gaps, report.resynchronised) == (Verdict.UNKNOWN, 1, 1)
    assert "event 11 of run is missing" in report.reason
    swapped = [*missing[:-3], missing[-2], missing[-3], missing[-1]]
    swapped = [Line("run", n + (n > 10), 0.0, line.event) for n, line in enumerate(swapped, 1)]
    assert fed(swapped).report().verdict is Verdict.INEXPLICABLE


def test_a_repeated_event_is_counted_and_changes_nothing() -> None:
    lines = publications(1)
    report = fed([*lines[:8], lines[7], *lines[8:]]).report()
    assert (report.verdict, report.repeated, report.gaps) == (Verdict.EXPLAINED, 1, 0)


def test_numbers_stay_small_over_many_publications() -> None:
    """A hundred loads in a world of a few, and nothing new is learned after the first ones."""
    taken = fed(publications(100))
    assert taken.report().verdict is Verdict.EXPLAINED
    size = taken.explainer.boxes.size
    assert fed(publications(200)).explainer.boxes.size == size


def publications(count: int) -> list[Line]:
    """A deployment of two engines that publishes again and again."""
    told: list[events.Event] = []
    for job in range(1, count + 1):
        name, old, new, path = f"job-{job}", f"a:{job}", f"a:{job + 1}", f"/c/{job}"
        told += [
            *(events.BeginTraining(name), events.RecordRunning(name, old), events.Train(name)),
            *(events.RecordCheckpoint(name, path), events.BeginPublish(name)),
            *(events.Pause(e, "retract") for e in (0, 1)),
            events.AllPaused(),
            *(events.Flush(e) for e in (1, 0)),
            *(events.AllFlushed(), events.Declare(name), events.RecordTarget(name, new)),
            *(events.Send(e, new, path) for e in (0, 1)),
            *(events.AllSent(), events.Verify(new, None), events.RecordReady(name, new), events.CommitHead(new)),
            *(events.Acknowledge(name), events.RecordHead(name)),
            *(events.ContinueGeneration(e) for e in (0, 1)),
            *(events.AllContinued(), events.RecordComplete(name), events.OpenGate()),
        ]
    return [Line("run", number, 0.0, event) for number, event in enumerate(told, 1)]


def changed(kind: type[events.Event], **fields: object) -> Finding | None:
    """What is found in two publications if the last event of a kind says something else."""
    lines = publications(2)
    last = max(n for n, line in enumerate(lines) if isinstance(line.event, kind))
    lines[last] = replace(lines[last], event=replace(lines[last].event, **fields))
    report = fed(lines).report()
    assert report.finding is None or report.finding.line == last + 1
    return report.finding


LIES: dict[str, tuple[type[events.Event], dict[str, object]]] = {
    "an id that no record names": (events.Send, {"load_id": "a:9"}),
    "the parent's id": (events.Send, {"load_id": "a:2"}),
    "the parent's bytes": (events.Send, {"checkpoint": "/c/1"}),
    "bytes of no job": (events.Send, {"checkpoint": "/c/9"}),
    "an id that was used": (events.RecordTarget, {"target": "a:2"}),
    "another load verified": (events.Verify, {"load_id": "a:2"}),
    "another load ready": (events.RecordReady, {"load_id": "a:2"}),
    "another head": (events.CommitHead, {"load_id": "a:2"}),
    "another parent": (events.RecordRunning, {"parent": "a:1"}),
    "another mode": (events.Pause, {"mode": "in_place"}),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_an_event_says_is_compared_with_what_must_be(lie: str) -> None:
    kind, fields = LIES[lie]
    assert changed(kind) is None
    assert changed(kind, **fields) is not None


# Files


def written(folder: Path, data: bytes) -> Path:
    file = folder / "trace.ndjson"
    file.write_bytes(data)
    return file


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = main(["validate", *args])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_good_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path, b"".join(text(publications(2))))
    assert run(capsys, str(file)) == (0, "explained: 52 events, 2 engines\n", "")


def test_a_bad_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in publications(2) if not isinstance(line.event, events.AllFlushed)]
    lines = [Line("run", n, 0.0, line.event) for n, line in enumerate(lines, 1)]
    file = written(tmp_path, b"".join(text(lines)))
    status, out, err = run(capsys, str(file), "--format", "json")
    assert (status, err) == (1, "")
    found = json.loads(out)["finding"]
    assert (found["line"], found["event"]) == (11, "declare(job='job-1')")
    assert found["objections"] == [{"step": "declare", "needs": "stage == DECLARE", "facts": ["stage is FLUSH"]}]
    assert "all_flushed" in found["possible"]
    status, out, err = run(capsys, str(file))
    assert (status, err) == (1, "")
    assert "declare: needs stage == DECLARE (stage is FLUSH)" in out


def test_a_trace_with_a_gap_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = publications(1)
    status, out, err = run(capsys, str(written(tmp_path, b"".join(text(lines[:5] + lines[6:])))))
    assert (status, err) == (3, "")
    assert out.startswith("unknown: ")


GOOD = b"".join(text(publications(1)))
BAD = {
    "cut off": (GOOD[:-20], "26: is cut off: the trace is truncated"),
    "empty": (b"", "1: there is no event"),
    "not UTF-8": (GOOD.replace(b'"run"', b'"\xff"', 1), "1: not an event: Invalid UTF-8"),
    "not text": (b"\xff\xfe\n" + GOOD, "1: not an event"),
    "not JSON": (GOOD.replace(b"{", b"(", 1), "1: not an event"),
    "not an object": (b"[]\n", "1: not an event"),
    "unknown event": (GOOD.replace(b"all_paused", b"all_poised"), "8: not an event"),
    "wrong type": (
        GOOD.replace(b'"engine":0', b'"engine":"0"', 1),
        "6: not an event: Expected `int`, got `str`",
    ),
    "a truth for a number": (
        GOOD.replace(b'"engine":0', b'"engine":true', 1),
        "6: not an event: Expected `int`, got `bool` - at `$.engine`",
    ),
    "another schema": (GOOD.replace(b'"schema":1', b'"schema":2', 1), "1: unknown schema"),
    "too many engines": (GOOD.replace(b'"engine":0', b'"engine":5000', 1), "1: 5,001 engines are named"),
    "no such engine": (GOOD.replace(b'"engine":0', b'"engine":-1', 1), "6: engine -1 of 2"),
    "nested too deeply": (b"[" * 100_000 + b"\n", "1: "),
    "too long": (b" " * (1 << 20) + GOOD, "1: longer than"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_trace_is_one_clear_line(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, message = BAD[case]
    file = written(tmp_path, data)
    status, out, err = run(capsys, str(file))
    assert (status, out) == (2, "")
    assert err.startswith(f"reef-ref: {file}:{message}"), err
    assert err.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, str(tmp_path / "none"))
    assert (status, out) == (2, "")
    assert err == f"reef-ref: {tmp_path / 'none'}: No such file or directory\n"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.data())
def test_any_bytes_are_a_trace_or_garbled(data: st.DataObject) -> None:
    """Never another error; whatever is read can be validated."""
    lines = text(publications(1))
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["bytes", "field", "flip"]))
    if how == "bytes":
        lines[at] = data.draw(st.binary(max_size=60)) + b"\n"
    elif how == "field":
        body = json.loads(lines[at])
        body[data.draw(st.sampled_from(sorted(body)))] = data.draw(JSON)
        lines[at] = json.dumps(body).encode() + b"\n"
    else:
        raw = bytearray(lines[at])
        raw[data.draw(st.integers(0, len(raw) - 2))] = data.draw(st.integers(0, 255))
        lines[at] = bytes(raw)
    try:
        numbers = list(read(lines))
    except Garbled as error:
        numbers = []
        told = (error.line, str(error))
        assert told > (0, "")
    taken = validator()
    taken.begin()
    for numbered in numbers:
        if getattr(numbered.event.event, "engine", 0) in (0, 1):
            taken.feed(numbered.event, numbered.line)


def test_a_stream_is_read_no_further_than_it_is_judged() -> None:
    """A trace that never ends is judged while it grows; its memory is what may be the case."""
    lines = iter(text(publications(100)))
    taken = 0

    def growing() -> Iterator[bytes]:
        nonlocal taken
        for line in lines:
            taken += 1
            yield line
        yield b"{"

    with pytest.raises(Garbled, match="truncated"):
        validate(growing(), engines=2)
    assert taken == 2600
