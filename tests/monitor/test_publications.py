"""Publications out of a coordinator's events: what each was for, how it ended, how long its parts took."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from reef_ref import events
from reef_ref.engines.simulated.faults import Fault
from reef_ref.events import Event, Line
from reef_ref.monitor.publications import Barrier, Errand, Outcome, PartName, Publication, Publications
from tests.conformance.world import Layout
from tests.monitor.deployments import trace

DISJOINT, COLOCATED, IN_PLACE = Layout(engines=2), Layout(engines=2, colocated=True), Layout(engines=2, in_place=True)
WHOLE = [PartName.BARRIER, PartName.TRANSFER, PartName.VERIFICATION, PartName.COMMIT]


def followed(lines: Iterable[Line]) -> tuple[list[Publication], list[Barrier], Publications]:
    publications = Publications()
    found = [one for line in lines for one in publications.feed(line)]
    ended = [one for one in found if isinstance(one, Publication)]
    return ended, [one for one in found if isinstance(one, Barrier)], publications


def told(*given: Event, source: str = "coordinator:a", first: int = 1) -> list[Line]:
    """One event a second."""
    return [Line(source, first + n, float(n), event) for n, event in enumerate(given)]


@pytest.mark.parametrize("layout", [DISJOINT, COLOCATED, IN_PLACE], ids=str)
def test_every_publication_of_a_life_is_told(layout: Layout, tmp_path: Path) -> None:
    """The first of a life, and that of each job; what was rejected is none."""
    ended, barriers, publications = followed(trace(tmp_path, layout, (True, False, True)))
    assert [(one.errand, one.outcome, one.job) for one in ended] == [
        (Errand.RECOVER, Outcome.SERVED, ""),
        (Errand.PUBLISH, Outcome.SERVED, "job-1"),
        (Errand.PUBLISH, Outcome.SERVED, "job-3"),
    ]
    assert [part.name for part in ended[0].parts] == [PartName.BARRIER, PartName.REBUILD, *WHOLE]
    assert [part.name for part in ended[1].parts] == WHOLE
    assert [one.load_id for one in ended] == ["life1:1", "life1:2", "life1:3"]
    assert not publications.pending
    # A colocated deployment pauses for training too, before each of the three jobs.
    assert len(barriers) == 3 + 3 * layout.colocated


@pytest.mark.parametrize("layout", [DISJOINT, COLOCATED, IN_PLACE], ids=str)
def test_parts_follow_each_other_without_gaps_but_the_writes(layout: Layout, tmp_path: Path) -> None:
    """In virtual time a write takes none, so that nothing is between two parts."""
    for one in followed(trace(tmp_path, layout, (True,)))[0]:
        assert one.start == one.parts[0].start
        assert one.end == one.parts[-1].end
        for before, after in zip(one.parts, one.parts[1:], strict=False):
            assert before.start <= before.end == after.start <= after.end


FAULTS = [
    ("pause", Fault.FAILS_BEFORE, Outcome.BARRIER_FAILED, PartName.BARRIER),
    ("flush", Fault.FAILS_AFTER, Outcome.BARRIER_FAILED, PartName.BARRIER),
    ("update", Fault.FAILS_BEFORE, Outcome.TRANSFER_FAILED, PartName.TRANSFER),
    ("update", Fault.ONLY_LABELS, Outcome.MISMATCH, PartName.VERIFICATION),
    ("report", Fault.FAILS_BEFORE, Outcome.TRANSFER_FAILED, PartName.VERIFICATION),
    ("continue", Fault.FAILS_BEFORE, Outcome.CONTINUE_FAILED, PartName.COMMIT),
    ("update", Fault.ENGINE_DIES_BEFORE, Outcome.ENGINE_DEAD, PartName.TRANSFER),
    ("update", Fault.CRASH_BEFORE, Outcome.INTERRUPTED, PartName.BARRIER),
]
UNDISTURBED = [c for c in ("pause", "flush", "write", "update", "report", "checksum", "continue") for _ in range(2)]
"""Calls of the publication of a first job, from the first on; the two writes behind `checksum` are left out."""
FIRST = 18
"""The number of the first of them in a life of two engines."""


def number(call: str) -> int:
    return FIRST + UNDISTURBED.index(call) + (2 if call == "continue" else 0)


@pytest.mark.parametrize(("call", "fault", "outcome", "part"), FAULTS, ids=[f"{c}-{f.name}" for c, f, *_ in FAULTS])
def test_a_fault_ends_a_publication_where_it_fell(
    call: str, fault: Fault, outcome: Outcome, part: PartName, tmp_path: Path
) -> None:
    """And what comes after it, in the end, serves."""
    ended, _, publications = followed(trace(tmp_path, DISJOINT, (True,), {number(call): fault}))
    first = ended[1]
    assert (first.errand, first.outcome) == (Errand.PUBLISH, outcome)
    assert first.broken
    assert first.parts[-1].name is part
    assert ended[-1].outcome is Outcome.SERVED
    assert not publications.pending


def test_a_write_that_fails_breaks_no_part(tmp_path: Path) -> None:
    ended, _, _ = followed(trace(tmp_path, DISJOINT, (True,), {number("write"): Fault.FAILS_BEFORE}))
    assert (ended[1].outcome, ended[1].broken) == (Outcome.WRITE_FAILED, False)


def test_a_barrier_is_as_long_as_its_events_say() -> None:
    """From the event before the first pause: that one was told when the engine had paused already."""
    lines = told(
        events.BeginPublish("j"),
        events.Pause(1, "retract"),
        events.Pause(0, "retract"),
        events.AllPaused(),
        events.Flush(0),
        events.AllFlushed(),
    )
    assert followed(lines)[1] == [Barrier(5.0)]
    in_place = told(events.BeginPublish("j"), events.Pause(0, "in_place"), events.AllPaused())
    assert followed(in_place)[1] == [Barrier(2.0)]


def test_pending_until_engines_generate_whatever_fails_between() -> None:
    lines = told(
        events.BeginPublish("j"),
        events.BarrierFails("flush", (0,), ("none",), "busy"),
        events.Retire(0),
        events.BeginRetry("j"),
        events.AllContinued(),
    )
    publications, seen = Publications(), []
    for line in lines:
        list(publications.feed(line))
        seen.append(publications.pending)
    assert seen == [True, True, True, True, False]


def test_events_that_are_missing_end_what_they_may_belong_to() -> None:
    """What came of it is not known, and what comes is not taken for its end."""
    begun = told(events.BeginPublish("j"), events.Pause(0, "retract"))
    later = told(events.AllContinued(), events.BeginRepublish("a:1"), events.AllContinued(), first=9)
    ended, barriers, publications = followed([*begun, *later])
    assert [(one.errand, one.outcome) for one in ended] == [
        (Errand.PUBLISH, Outcome.UNSEEN),
        (Errand.REPUBLISH, Outcome.SERVED),
    ]
    assert "event 3" in ended[0].reason
    assert barriers == []
    assert not publications.pending


def test_another_life_interrupts() -> None:
    begun = told(events.BeginPublish("j"), events.Pause(0, "retract"))
    second = told(events.Restart((0,)), events.Pause(0, "retract"), events.AllContinued(), source="coordinator:b")
    ended, _, _ = followed([*begun, *second])
    assert [(one.errand, one.outcome) for one in ended] == [
        (Errand.PUBLISH, Outcome.INTERRUPTED),
        (Errand.RECOVER, Outcome.SERVED),
    ]


def test_a_commit_alone_is_told_where_its_beginning_was_not_seen() -> None:
    ended, _, _ = followed(told(events.Acknowledge("j"), events.RecordHead("j"), events.AllContinued(), first=70))
    assert [(one.errand, one.outcome, one.job) for one in ended] == [(Errand.COMMIT, Outcome.SERVED, "j")]
