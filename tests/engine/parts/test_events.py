"""Events leave without blocking; what is lost is counted."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from reef_ref.sglang.events import EventSink


def test_events_arrive_in_order_as_lines(tmp_path: Path) -> None:
    """One JSON object a line, with its source."""
    sink = EventSink(tmp_path / "events", source={"rank": 1})
    for number in range(100):
        sink.emit("count", number=number)
    sink.close()
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [event["number"] for event in events] == list(range(100))
    assert {(event["event"], event["rank"]) for event in events} == {("count", 1)}
    assert sink.dropped == sink.failed == 0


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    """Ranks append whole lines to one file."""
    sinks = [EventSink(tmp_path / "events", source={"rank": rank}) for rank in range(2)]
    for number in range(500):
        for sink in sinks:
            sink.emit("count", number=number, filler="x" * 200)
    for sink in sinks:
        sink.close()
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    for rank in range(2):
        assert [event["number"] for event in events if event["rank"] == rank] == list(range(500))


def test_a_stuck_reader_blocks_nobody(tmp_path: Path) -> None:
    """A pipe that nobody drains fills up; the scheduler goes on and the loss is counted."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    sink = EventSink(pipe, source={}, capacity=16)
    began = time.monotonic()
    for _ in range(5000):
        sink.emit("flood", filler="x" * 1000)
    assert time.monotonic() - began < 2.0
    assert sink.dropped > 4000
    began = time.monotonic()
    sink.close(timeout_s=0.2)
    assert time.monotonic() - began < 1.0, "closing is bounded as well"
    os.close(reader)


def test_a_file_that_cannot_be_written_is_counted() -> None:
    """A full disk is no reason to stop serving."""
    sink = EventSink(Path("/dev/full"), source={})
    sink.emit("lost")
    sink.close()
    assert sink.failed == 1


def test_without_a_file_there_is_no_thread() -> None:
    """Counters need no writer."""
    before = threading.active_count()
    sink = EventSink(None, source={})
    sink.emit("nothing")
    sink.close()
    assert threading.active_count() == before
    assert sink.dropped == 0


@pytest.mark.filterwarnings("error")
def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    """At exit a closed sink is closed again."""
    sink = EventSink(tmp_path / "events", source={})
    sink.close()
    sink.close()
