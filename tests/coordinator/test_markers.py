"""The marker: replaced whole, read strictly, held by one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref.events import Teller
from reef_ref.journal import Journal
from reef_ref.load_id import LoadId
from reef_ref.markers import (
    EDGES,
    ForbiddenEdge,
    InvalidRecord,
    Load,
    MarkerError,
    MarkerFile,
    MarkerInUse,
    Record,
    Status,
    check_edge,
    decode,
    encode,
)

PARENT = Load(load_id=LoadId("a", 1), checkpoint="/parent")


def record(status: Status, **changes: Any) -> Record:
    load_id = LoadId("a", 2) if status.published else None
    fields: dict[str, Any] = {
        "status": status,
        "job": "j",
        "rollout": 1,
        "scenario_step": 1,
        "parent": PARENT,
        "checkpoint": None if status is Status.RUNNING else "/candidate",
        "target": load_id,
        "load_id": load_id,
        "acknowledged": status in {Status.HEAD_COMMITTED, Status.COMPLETE},
    }
    return Record(**{**fields, **changes})


RECORDS = {status: record(status) for status in Status}


@pytest.mark.parametrize("status", Status)
def test_what_is_written_is_read(status: Status) -> None:
    one = RECORDS[status]
    assert decode(encode(one)) == one
    running = record(Status.RUNNING, previous=RECORDS[Status.COMPLETE])
    assert decode(encode(running)) == running


@pytest.mark.parametrize(("old", "new"), list(product([None, *Status], Status)), ids=str)
def test_only_the_edges_are_edges(old: Status | None, new: Status) -> None:
    """Over all pairs: an edge keeps every fact, everything else is refused, but for the writes that are no edge."""
    before = None if old is None else RECORDS[old]
    after = RECORDS[new]
    if old is Status.UPDATING_WEIGHTS and new is Status.READY_TO_COMMIT:
        before = record(old, target=LoadId("a", 2))
    begins = new is Status.RUNNING and (old is None or old.settled)
    if begins or (old, new) in EDGES:
        check_edge(before, after)
        if not begins:
            with pytest.raises(ForbiddenEdge):
                check_edge(before, after.model_copy(update={"job": "other"}))
            with pytest.raises(ForbiddenEdge):
                check_edge(before, after.model_copy(update={"parent": Load(load_id=LoadId("b", 9), checkpoint="/x")}))
    else:
        with pytest.raises(ForbiddenEdge):
            check_edge(before, after)


def test_the_target_is_written_once() -> None:
    updating = RECORDS[Status.UPDATING_WEIGHTS]
    targeted = updating.becoming(Status.UPDATING_WEIGHTS, target=LoadId("a", 2))
    check_edge(updating, targeted)
    with pytest.raises(ForbiddenEdge):
        check_edge(targeted, targeted.becoming(Status.UPDATING_WEIGHTS, target=LoadId("a", 3)))
    with pytest.raises(ForbiddenEdge):
        check_edge(targeted, updating)


def test_only_the_record_of_before_may_be_restored() -> None:
    complete = RECORDS[Status.COMPLETE]
    running = record(Status.RUNNING, job="k", previous=complete)
    check_edge(running, complete)
    with pytest.raises(ForbiddenEdge):
        check_edge(running, complete.model_copy(update={"rollout": 7}))


BAD_FIELDS: list[tuple[Status, dict[str, Any]]] = [
    (Status.CHECKPOINT, {"job": ""}),
    (Status.CHECKPOINT, {"rollout": -1}),
    (Status.CHECKPOINT, {"rollout": True}),
    (Status.CHECKPOINT, {"rollout": "1"}),
    (Status.CHECKPOINT, {"scenario_step": None}),
    (Status.CHECKPOINT, {"checkpoint": None}),
    (Status.CHECKPOINT, {"target": "a:2"}),
    (Status.CHECKPOINT, {"load_id": "a:2"}),
    (Status.CHECKPOINT, {"acknowledged": True}),
    (Status.UPDATING_WEIGHTS, {"target": ""}),
    (Status.UPDATING_WEIGHTS, {"target": "a"}),
    (Status.READY_TO_COMMIT, {"load_id": None}),
    (Status.READY_TO_COMMIT, {"load_id": "a:3"}),
    (Status.HEAD_COMMITTED, {"acknowledged": False}),
    (Status.COMPLETE, {"status": "DONE"}),
    (Status.COMPLETE, {"surprise": 1}),
    (Status.RUNNING, {"checkpoint": "/candidate"}),
    (Status.RUNNING, {"previous": {"status": "RUNNING"}}),
]


@pytest.mark.parametrize(("status", "changes"), BAD_FIELDS, ids=str)
def test_an_invalid_record_is_an_error_that_names_the_field(status: Status, changes: dict[str, Any]) -> None:
    body = json.loads(encode(RECORDS[status]))
    body["record"].update(changes)
    if changes.get("scenario_step", 0) is None or changes.get("checkpoint", "") is None:
        body["record"] = {key: value for key, value in body["record"].items() if value is not None}
    with pytest.raises(InvalidRecord) as caught:
        decode(json.dumps(body).encode(), "here")
    text = str(caught.value)
    assert text.startswith("here: ")
    assert "\n" not in text
    assert any(name in text for name in changes)


@given(st.sampled_from(Status), st.data())
def test_a_torn_record_is_an_error(status: Status, data: st.DataObject) -> None:
    """Cut anywhere but for the final newline."""
    whole = encode(RECORDS[status])
    cut = data.draw(st.integers(0, len(whole) - 2))
    with pytest.raises(InvalidRecord):
        decode(whole[:cut])


@given(st.binary())
def test_any_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode(data)


@settings(max_examples=300)
@given(st.sampled_from(Status), st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_byte_is_read_as_what_it_says_or_refused(status: Status, place: int, byte: int) -> None:
    """Whatever is accepted is a valid record: it can be written and read again. Never another error."""
    data = bytearray(encode(RECORDS[status]))
    data[place % len(data)] = byte
    try:
        found = decode(bytes(data))
    except InvalidRecord:
        return
    assert decode(encode(found)) == found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.sampled_from(sorted(Record.model_fields)) | st.text(), below),
)


@settings(max_examples=300)
@given(JSON)
def test_any_json_is_an_error_or_a_record(body: Any) -> None:
    for candidate in (body, {"schema": 1, "record": body}, {"schema": body, "record": {}}):
        try:
            decode(json.dumps(candidate).encode())
        except InvalidRecord:
            continue
        raise AssertionError(candidate)


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"schema":1,"schema":1,"record":{}}', b'{"schema":NaN,"record":{}}', b"1" * 5000]
)
def test_hostile_json_is_an_error(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        decode(data)


def test_an_unknown_schema_is_named() -> None:
    with pytest.raises(InvalidRecord, match="schema 2 is unknown"):
        decode(b'{"schema":2,"record":{}}')


def test_nothing_then_old_then_new(tmp_path: Path) -> None:
    with MarkerFile(tmp_path) as marker:
        assert marker.read_now() is None
        marker.replace_now(b"old")
        marker.replace_now(b"new")
        assert marker.read_now() == b"new"
    with MarkerFile(tmp_path) as marker:
        assert marker.read_now() == b"new"


@pytest.mark.parametrize("name", [".reef-latest-job.json", ".reef-latest-job.json.new", ".reef-latest-job.lock"])
def test_a_symbolic_link_is_refused_at_every_name(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    if name.endswith(".lock"):
        with pytest.raises(MarkerError):
            MarkerFile(folder)
    else:
        with MarkerFile(folder) as marker:
            call = (lambda: marker.replace_now(b"record")) if name.endswith(".new") else marker.read_now
            with pytest.raises((MarkerError, OSError)):
                call()
    assert victim.read_text() == "precious"


def test_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(MarkerError, match="not a symbolic link"):
        MarkerFile(tmp_path / "link")


def test_a_pipe_in_the_markers_place_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".reef-latest-job.json")
    with MarkerFile(tmp_path) as marker, pytest.raises(MarkerError, match="plain file"):
        marker.read_now()


def test_an_enormous_file_is_no_record(tmp_path: Path) -> None:
    (tmp_path / ".reef-latest-job.json").write_bytes(b" " * (2 << 20))
    with MarkerFile(tmp_path) as marker, pytest.raises(InvalidRecord):
        marker.read_now()


def test_a_failed_write_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every system call of a replace."""
    with MarkerFile(tmp_path) as marker:
        marker.replace_now(b"old")
        for name in ("fsync", "replace"):
            with monkeypatch.context() as patch:
                patch.setattr(os, name, _fail)
                with pytest.raises(OSError, match="full"):
                    marker.replace_now(b"new")
            assert marker.read_now() == b"old"
        marker.replace_now(b"new")
        assert marker.read_now() == b"new"


def _fail(*_: object, **__: object) -> None:
    raise OSError(28, "full")


def test_a_second_coordinator_is_kept_out(tmp_path: Path) -> None:
    """Also in the same process; and the place is free when the first is gone."""
    with MarkerFile(tmp_path), pytest.raises(MarkerInUse, match=f"process {os.getpid()}"):
        MarkerFile(tmp_path)
    MarkerFile(tmp_path).close()


def test_another_process_is_kept_out_and_told_who_holds_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from reef_ref.markers import MarkerFile; MarkerFile(Path(sys.argv[1]))"
    )
    with MarkerFile(tmp_path):
        result = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
        )
    assert result.returncode != 0
    assert f"process {os.getpid()}" in result.stderr


def test_a_write_that_hangs_is_given_up_and_what_it_left_is_read_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk comes back: the late write lands before the read that follows, and memory says what the disk says."""
    release = threading.Event()
    really = os.fsync

    def slow(file: int) -> None:
        release.wait(10)
        really(file)

    async def main(marker: MarkerFile) -> None:
        # The bound holds for reads as well, which have to come through on a busy machine.
        journal = Journal(marker, tell=Teller("test", clock=lambda: 0.0), bound_s=1.0)
        monkeypatch.setattr(os, "fsync", slow)
        with pytest.raises(MarkerError, match="unknown"):
            await journal.write(record(Status.RUNNING), lambda: None)
        assert not journal.known
        release.set()
        found = await Journal(marker, tell=Teller("test", clock=lambda: 0.0), bound_s=10).settle()
        assert found == record(Status.RUNNING)
        assert await journal.settle() == found

    with MarkerFile(tmp_path) as marker:
        asyncio.run(main(marker))


def test_a_missing_or_linked_checkpoint_is_an_error_at_the_start(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for path, reason in ((tmp_path / "gone", "No such file"), (link, "symbolic link")):
        folder = tmp_path / f"for-{path.name}"
        folder.mkdir()
        with MarkerFile(folder) as marker:
            marker.replace_now(encode(record(Status.CHECKPOINT, checkpoint=str(path))))
            journal = Journal(marker, tell=Teller("test", clock=lambda: 0.0), bound_s=10)
            with pytest.raises(MarkerError, match=reason):
                asyncio.run(journal.settle())
