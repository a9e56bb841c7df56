"""Events: typed, numbered without gaps, read back as they were; nothing is made where nobody listens."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref import events
from reef_ref.events import EVENTS, Line, MalformedEvent, NdjsonFile, Teller, read_line


def drawn(kind: type[events.Event]) -> st.SearchStrategy[events.Event]:
    values: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(),
        str: st.text(),
        str | None: st.none() | st.text(),
        tuple[int, ...]: st.lists(st.integers()).map(tuple),
        tuple[str, ...]: st.lists(st.text()).map(tuple),
    }
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: values[hints[field.name]] for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read(kind: type[events.Event], data: st.DataObject) -> None:
    line = Line("source", 3, 1.5, data.draw(drawn(kind)))
    text = line.to_json()
    assert "\n" not in text
    assert read_line(text) == line


NAMES = """
    pause all_paused flush all_flushed release all_released train rebuild all_rebuilt resume_weights all_weights_back
    send all_sent resume_kv all_kv_back verify find_mismatch continue_generation all_continued find_dead retire
    record_running record_checkpoint declare record_target record_ready record_head record_complete record_rejecting
    record_rejected declare_retired decline_job
    begin_training begin_publish begin_retry begin_republish begin_reject commit_head acknowledge open_gate
    admit start start_on_hit finish retract migrate
    empty_slot restart tear_down restore_previous_record
    barrier_fails transfer_fails continue_fails retire_fails write_fails train_fails crash die
"""


def test_there_is_one_event_for_each_transition() -> None:
    assert set(EVENTS) == set(NAMES.split())


@pytest.mark.parametrize(
    "change", [{"schema": 2}, {"event": "explode"}, {"number": None, "drop": "number"}, {"more": 1}, {"drop": "engine"}]
)
def test_another_line_is_an_error(change: dict[str, Any]) -> None:
    body = json.loads(Line("s", 1, 0.0, events.Flush(2)).to_json())
    body.update({key: value for key, value in change.items() if key != "drop"})
    body.pop(change.get("drop", ""), None)
    with pytest.raises(MalformedEvent):
        read_line(json.dumps(body))


@given(st.text())
def test_any_text_is_an_event_or_an_error(text: str) -> None:
    with pytest.raises(MalformedEvent):
        read_line(text)


def test_a_source_numbers_without_gaps() -> None:
    heard: list[Line] = []
    tell = Teller("one", heard.append, clock=lambda: 7.0)
    tell(events.AllPaused)
    tell(events.Pause, 1, "retract")
    tell(events.Pause, 2, mode="retract")
    assert [(line.number, line.at) for line in heard] == [(1, 7.0), (2, 7.0), (3, 7.0)]
    assert heard[2].event == events.Pause(2, "retract")


def test_nothing_is_made_where_nobody_listens() -> None:
    def explode(*_: object) -> events.Event:
        raise AssertionError

    Teller("deaf", clock=lambda: 0.0)(explode, 1)


def test_a_file_holds_one_line_for_each(tmp_path: Path) -> None:
    file = NdjsonFile(tmp_path / "trace.ndjson")
    tell = Teller("one", file, clock=lambda: 0.0)
    tell(events.AllPaused)
    tell(events.Flush, 0)
    lines = (tmp_path / "trace.ndjson").read_text().splitlines()
    file.close()
    assert [read_line(line).event for line in lines] == [events.AllPaused(), events.Flush(0)]
