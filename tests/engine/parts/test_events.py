"""A rank's events leave without blocking; what is lost leaves a gap in the numbers."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from reef_ref.rank_events import Beat, Flush, RankEvent, read_rank_event
from reef_ref.sglang.events import EventSink


def _read(path: Path) -> list[RankEvent]:
    return [read_rank_event(line) for line in path.read_bytes().splitlines()]


def test_events_arrive_in_order_as_lines(tmp_path: Path) -> None:
    """One JSON object a line, with its source and its number."""
    sink = EventSink(str(tmp_path / "events"), pid=7, rank=1)
    for number in range(100):
        sink.emit(Flush, load_id=str(number))
    sink.close()
    events = _read(tmp_path / "events")
    assert [(event.number, event.load_id) for event in events if isinstance(event, Flush)] == [
        (number + 1, str(number)) for number in range(100)
    ]
    assert {(event.pid, event.rank) for event in events} == {(7, 1)}
    assert sink.dropped == sink.failed == 0


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    """Ranks append whole lines to one file."""
    sinks = [EventSink(str(tmp_path / "events"), pid=7, rank=rank) for rank in range(2)]
    for _ in range(500):
        for sink in sinks:
            sink.emit(Flush, load_id="x" * 200)
    for sink in sinks:
        sink.close()
    events = _read(tmp_path / "events")
    for rank in range(2):
        assert [event.number for event in events if event.rank == rank] == list(range(1, 501))


def test_a_stuck_reader_blocks_nobody(tmp_path: Path) -> None:
    """A pipe that nobody drains fills up; the scheduler goes on and the loss is counted."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = EventSink(str(pipe), pid=7, rank=0, capacity=16)
    began = time.monotonic()
    for _ in range(5000):
        sink.emit(Flush, load_id="x" * 1000)
    assert time.monotonic() - began < 2.0
    assert sink.dropped > 4000
    began = time.monotonic()
    sink.close(timeout_s=0.2)
    assert time.monotonic() - began < 1.0, "closing is bounded as well"
    os.close(reader)


def test_what_found_no_room_leaves_a_gap(tmp_path: Path) -> None:
    """A dropped event takes its number with it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = EventSink(str(pipe), pid=7, rank=0, capacity=4)
    while not sink.dropped:
        sink.emit(Flush, load_id="x" * 1000)
    assert sink._number > sink._written + sink.dropped > sink._written
    os.close(reader)
    sink.close(timeout_s=0.2)


def test_a_file_that_cannot_be_written_is_counted() -> None:
    """A full disk is no reason to stop serving."""
    sink = EventSink("/dev/full", pid=7, rank=0)
    sink.emit(Flush, load_id=None)
    sink.close()
    assert sink.failed == 1


def test_without_a_file_there_is_no_thread() -> None:
    """Counters need no writer."""
    before = threading.active_count()
    sink = EventSink(None, pid=7, rank=0)
    sink.emit(Flush, load_id=None)
    sink.close()
    assert threading.active_count() == before
    assert sink.dropped == 0


def test_a_quiet_source_says_how_far_it_is(tmp_path: Path) -> None:
    """A beat has the number of the event before it, what was lost, and the counters."""
    sink = EventSink(str(tmp_path / "events"), pid=7, rank=0, counters=lambda: {"flushes": 1}, beat_s=0.01)
    sink.emit(Flush, load_id=None)
    for _ in range(500):
        beats = [event for event in _read(tmp_path / "events") if isinstance(event, Beat) and event.number == 1]
        if beats:
            break
        time.sleep(0.01)
    sink.close()
    assert (beats[0].number, beats[0].dropped, beats[0].counters) == (1, 0, {"flushes": 1})


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    """At exit a closed sink is closed again."""
    sink = EventSink(str(tmp_path / "events"), pid=7, rank=0)
    sink.close()
    sink.close()
