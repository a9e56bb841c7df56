"""`export`: texts for other checkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reef_ref.cli import main
from reef_ref.cli.catalogue import PROTOCOLS

TOY = "toy:build"
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize(
    ("language", "first"),
    [
        ("promela", "/* toy in scope smoke: Engine 2, Load 2, at most 1 faults."),
        ("tla", "---------------------------------- MODULE toy ----------------------------------"),
        ("cfg", r"\* toy in scope smoke."),
    ],
)
def test_each_language(capsys: Captured, tmp_path: Path, language: str, first: str) -> None:
    """To standard output, or the same into a file."""
    status, out, _ = run(capsys, "export", TOY, "--to", language)
    assert status == 0
    assert out.splitlines()[0] == first
    file = tmp_path / "text"
    assert run(capsys, "export", TOY, "--to", language, "--output", str(file)) == (0, "", "")
    assert file.read_text() == out


def test_the_scope_decides_whether_faults_are_counted(capsys: Captured) -> None:
    counted = run(capsys, "export", TOY, "--to", "tla", "--scope", "smoke")[1]
    free = run(capsys, "export", TOY, "--to", "tla", "--scope", "Engine=1,Load=1")[1]
    assert "MaxFaults" in counted
    assert "MaxFaults" not in free


def test_a_mutant(capsys: Captured) -> None:
    status, out, _ = run(capsys, "export", TOY, "--to", "tla", "--mutant", "runs-ahead")
    assert status == 0
    assert " MODULE toy_runs_ahead " in out.splitlines()[0]


def test_all_of_them(capsys: Captured, tmp_path: Path) -> None:
    assert run(capsys, "export", "all", "--to", "tla", "--output", str(tmp_path)) == (0, "", "")
    assert {file.stem for file in tmp_path.glob("*.tla")} == set(PROTOCOLS)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("all", "--to", "promela"), "export all: only --to tla"),
        (("all", "--to", "tla"), "export all: --output FOLDER is needed"),
        (("all", "--to", "tla", "--output", "no/such/folder"), "--output no/such/folder: is no folder"),
        ((TOY, "--to", "tla", "--scope", "nosuch"), "no scope 'nosuch' of toy:build"),
        ((TOY, "--to", "tla", "--output", "no/such/folder"), "--output no/such/folder"),
    ],
)
def test_bad_usage_gets_one_line(capsys: Captured, args: tuple[str, ...], message: str) -> None:
    status, out, err = run(capsys, "export", *args)
    assert (status, out) == (2, "")
    assert err.startswith(f"reef-ref: {message}")
    assert len(err.splitlines()) == 1
