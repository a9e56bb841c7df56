"""`reef-ref prove`: exit statuses, formats, stories of wrong protocols, one line for bad input."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reef_ref.cli import main

TOY = "toy:build"
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


def test_a_protocol_that_is_proved(capsys: Captured) -> None:
    """What cannot be proved by induction is named, and not passed over."""
    status, out, err = run(capsys, "prove", TOY, "--workers", "1")
    assert (status, err) == (0, "")
    assert "engines_catch_up: says what can be reached" in out
    assert "toy: 3 claims hold for any number of Load and Engine" in out


def test_a_mutant_is_told_twice(capsys: Captured) -> None:
    """As the step that breaks an obligation, and as a run from the start."""
    status, out, _ = run(capsys, "prove", TOY, "--mutant", "runs-ahead")
    assert status == 1
    assert "send breaks loaded_was_named of toy:runs-ahead\n" in out
    assert "How toy:runs-ahead comes to violate loaded_was_named, in 2 steps\n" in out


def test_a_mutant_that_breaks_nothing_is_proved(capsys: Captured) -> None:
    status, out, _ = run(capsys, "prove", TOY, "--mutant", "harmless", "--workers", "1")
    assert status == 0
    assert "How " not in out


@pytest.mark.parametrize(("extra", "status"), [((), 0), (("--mutant", "runs-ahead"), 1)])
def test_every_format_says_the_verdict(capsys: Captured, tmp_path: Path, extra: tuple[str, ...], status: int) -> None:
    verdict = ("holds", "violated")[status]
    file = tmp_path / "proof"
    found, out, err = run(capsys, "prove", TOY, "--format", "json", "--output", str(file), *extra)
    assert (found, out) == (status, "")
    assert err.endswith(f"the report is in {file}\n")
    document = json.loads(file.read_text())
    assert (document["format"], document["version"], document["verdict"]) == ("reef-ref.proof", 1, verdict)
    assert (document["explored"] is not None) == (status == 1)
    assert {o["action"] for o in document["obligations"]} == {"initially", "publish", "send", "die", "everywhere"}
    found, out, _ = run(capsys, "prove", TOY, "--each", "--format", "markdown", *extra)
    assert found == status
    assert f"| {verdict} | loaded_was_named | send |" in out


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("prove", "nosuch"), "reef-ref: no protocol 'nosuch': there "),
        (
            ("prove", TOY, "--property", "target_grow"),
            "reef-ref: no property 'target_grow' of toy: did you mean target_",
        ),
        (("prove", TOY, "--property", "engines_catch_up"), "reef-ref: engines_catch_up says what can be reached"),
        (("prove", TOY, "--mutant", "run-ahead"), "reef-ref: no mutant 'run-ahead' of toy:build: did you mean runs-"),
        (("prove", "--all", "--mutant", "no-flush"), "reef-ref: --all takes neither --mutant nor --property"),
        (("prove", TOY, "--output", "/nowhere/x"), "reef-ref: --output /nowhere/x: the folder /nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line(capsys: Captured, args: tuple[str, ...], line: str) -> None:
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1


LEASES = "tests.prove.leases:build"


def test_a_missing_lemma_is_suggested(capsys: Captured) -> None:
    """With the obligation that demands it, and only where one is missing."""
    args = ("prove", LEASES, "--suggest", "--scope", "small")
    status, out, _ = run(capsys, *args)
    assert (status, out) == (0, "tests.prove.leases:build: every claim is proved, and nothing is missing\n")
    status, out, _ = run(capsys, *args, "--without", "holders_were_granted", "--format", "json")
    assert status == 0
    (found,) = json.loads(out)["suggestions"]
    assert (found["claim"], found["closed"]) == ("one_holder", True)
    assert [(le["text"], le["action"]) for le in found["lemmas"]] == [
        ("every Engine e: (holds[e] => granted == e)", "take")
    ]
    status, _, err = run(capsys, *args, "--without", "holders_granted")
    assert (status, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_leaves_unknown_what_was_not_proved(workers: str) -> None:
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "reef_ref.cli", "prove", "publication", "--workers", workers, "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    try:
        shown = ""
        while " claims of publication" not in shown:
            try:
                shown += os.read(mine, 4096).decode(errors="replace")
            except OSError:
                pytest.fail(f"it ended before it proved: {shown!r}, {process.communicate()[0]!r}")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert process.returncode == 3
    document = json.loads(out)
    assert (document["complete"], document["verdict"]) == (False, "unknown")
    assert document["obligations"]
    assert "unknown" in {c["verdict"] for c in document["claims"]}
