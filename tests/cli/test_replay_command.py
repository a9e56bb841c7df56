"""`check --itf` writes a run, and `replay` takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reef_ref.cli import main

TOY = "toy:build"
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def trace(tmp_path: Path, capsys: Captured) -> Path:
    """A run of a wrong toy."""
    path = tmp_path / "run.itf.json"
    status, _, _ = run(capsys, "check", TOY, "--mutant", "runs-ahead", "--scope", "smoke", "--itf", str(path))
    assert status == 1
    return path


def test_a_violation_is_replayed(trace: Path, capsys: Captured) -> None:
    """In the world that the trace names."""
    status, out, _ = run(capsys, "replay", str(trace), TOY, "--mutant", "runs-ahead")
    assert status == 1
    first, second = out.splitlines()
    assert first == "2 steps of toy:runs-ahead in scope smoke, each as it must be"
    assert second == "violated: loaded_was_named, after step 2"


def test_the_right_protocol_has_no_such_run(trace: Path, capsys: Captured) -> None:
    status, out, err = run(capsys, "replay", str(trace), TOY)
    assert (status, out) == (2, "")
    assert err.startswith(f"reef-ref: {trace}: states[2].loaded[engine 0]: send(engine 0) makes it 1, not 2\n")
    assert len(err.splitlines()) == 1


def test_a_run_that_violates_nothing(trace: Path, capsys: Captured) -> None:
    document = json.loads(trace.read_text())
    del document["states"][1:]
    trace.write_text(json.dumps(document))
    status, out, _ = run(capsys, "replay", str(trace), TOY, "--scope", "smoke")
    assert (status, out) == (0, "0 steps of toy in scope smoke, each as it must be\n")


def test_nothing_is_written_where_nothing_is_violated(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "run.itf.json"
    status, _, _ = run(capsys, "check", TOY, "--scope", "smoke", "--itf", str(path))
    assert status == 0
    assert not path.exists()


@pytest.mark.parametrize("content", [None, b"\xff", b"{}"])
def test_bad_files_get_one_line(tmp_path: Path, capsys: Captured, content: bytes | None) -> None:
    path = tmp_path / "run.itf.json"
    if content is not None:
        path.write_bytes(content)
    status, out, err = run(capsys, "replay", str(path), TOY)
    assert (status, out) == (2, "")
    assert err.startswith(f"reef-ref: {path}: ")
    assert len(err.splitlines()) == 1


def test_the_folder_of_a_trace_must_be_there(tmp_path: Path, capsys: Captured) -> None:
    status, _, err = run(capsys, "check", TOY, "--scope", "smoke", "--itf", str(tmp_path / "no" / "run.json"))
    assert status == 2
    assert err.startswith("reef-ref: --itf ")
