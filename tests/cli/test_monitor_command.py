"""`reef-ref monitor` as a process: what it takes, what it says, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reef_ref.cli import main
from reef_ref.rank_events import encode
from tests.monitor.deployments import Rank

BOUND_S = 120


@contextmanager
def monitor(*options: str) -> Iterator[subprocess.Popen[str]]:
    """A monitor that listens; ended at last, whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reef_ref.cli", "monitor", "--engines", "2", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert said(process)["monitor"] == "watching"
        yield process
    finally:
        process.kill()
        process.wait(BOUND_S)
        assert process.stdout is not None
        process.stdout.close()


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_a_violation_is_told_while_it_happens(tmp_path: Path) -> None:
    """From a file that grows; the exit says it once more."""
    file, rank = tmp_path / "rank", Rank()
    with monitor("--engine", f"1={file}") as process:
        with file.open("ab", buffering=0) as out:
            for event in (rank.start(), *rank.publication("a:2"), rank.stale()):
                out.write(encode(event) + b"\n")
        violation, response = said(process), said(process)
        process.send_signal(signal.SIGTERM)
        status = said(process)
        assert process.wait(BOUND_S) == 1
    assert (violation["monitor"], violation["property"], violation["engine"]) == ("violation", "no_stale_hit", 1)
    assert (response["monitor"], response["reaction"]) == ("response", "report")
    assert status["engines"]["1"]["freshness"] == "stale"
    assert status["engines"]["0"]["freshness"] == "unknown"


def test_a_socket_takes_what_says_whose_it_is(tmp_path: Path) -> None:
    """And a line that does not is told and left out; nothing wrong was seen, but not everything: 3."""
    path, rank = tmp_path / "socket", Rank()
    with monitor("--socket", str(path)) as process:
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(str(path))
            end.sendall(encode(rank.start()) + b"\n")
            told = said(process)
        process.send_signal(signal.SIGINT)
        said(process)
        assert process.wait(BOUND_S) == 3
    assert told["monitor"] == "unreadable"
    assert "set REEF_REF_ENGINE" in told["why"]
    assert not path.exists()


def test_it_ends_by_itself_at_the_first_violation(tmp_path: Path) -> None:
    """For a test that waits for one."""
    file, rank = tmp_path / "rank", Rank()
    file.write_bytes(encode(rank.start()) + b"\n" + encode(rank.stale()) + b"\n")
    with monitor("--engine", f"0={file}", "--until", "violation") as process:
        assert process.wait(BOUND_S) == 1


def test_what_is_right_ends_with_nothing(tmp_path: Path) -> None:
    """0."""
    file, rank = tmp_path / "rank", Rank()
    file.write_bytes(b"".join(encode(event) + b"\n" for event in (rank.start(), *rank.publication("a:2"))))
    with monitor("--engine", f"0={file}") as process:
        process.send_signal(signal.SIGTERM)
        status = said(process)
        assert process.wait(BOUND_S) == 0
    assert status["counts"]["violations"] == 0
    assert (status["engines"]["0"]["freshness"], status["engines"]["0"]["load_id"]) == ("fresh", "a:2")


def test_an_engine_that_was_never_heard_is_not_all_right(tmp_path: Path) -> None:
    """Nothing was violated, and nothing was seen: 3, whatever the file's engine may have done."""
    with monitor("--engine", f"0={tmp_path / 'nobody'}") as process:
        process.send_signal(signal.SIGTERM)
        assert said(process)["engines"]["0"]["freshness"] == "unknown"
        assert process.wait(BOUND_S) == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "there is nothing to read; give --coordinator, --engine or --socket"),
        (("--engine", "2=x"), "--engine 2=x: write SLOT=FILE, with a slot from 0 to 1"),
        (("--engine", "x"), "--engine x: write SLOT=FILE, with a slot from 0 to 1"),
        (("--engine", "0=a", "--engine", "0=b"), "--engine 0=b: slot 0 was given before"),
        (("--coordinator", "x", "--on", "flush=halt"), "--on unknown property 'flush': one of no_stale_hit"),
        (("--coordinator", "x", "--on", "no_stale_hit"), "write PROPERTY=report|fence|retire|halt"),
        (("--coordinator", "x", "--policy", "/nowhere.yaml"), "--policy /nowhere.yaml: No such file or directory"),
        (("--coordinator", "x", "--address", "5=http://x"), "--address 5=http://x: write SLOT=URL"),
        (("--socket", "/nowhere/socket"), "No such file or directory"),
        (("--socket", os.devnull), "something else than a socket is there"),
        (("--coordinator", "/"), "Is a directory"),
    ],
)
def test_bad_usage_is_one_line(capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str) -> None:
    """What, where, and what would be right."""
    assert main(["monitor", "--engines", "2", *options]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("reef-ref: ")
    assert why in captured.err
    assert captured.err.count("\n") == 1
