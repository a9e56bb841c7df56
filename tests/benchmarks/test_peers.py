"""What is written for other checkers is the same model: where one is installed, it finds the same counts."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import checkers
from benchmarks.checkers import Report, Row, compare
from benchmarks.expected import EXPECTED
from model_check.process import Failed, run

SMALL = (2, 3, 3)


def needs(*tools: str) -> pytest.MarkDecorator:
    """Skip where a program is not installed."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@needs("spin", "gcc")
def test_spin_agrees(tmp_path: Path) -> None:
    """The Promela text has the model's states and transitions."""
    row = checkers.spin(tmp_path, SMALL)
    assert (row.states, row.transitions, row.problem) == (7_944, 38_028, "")


@needs("rumur", "gcc")
@pytest.mark.parametrize("symmetry", ["off", "exhaustive"])
def test_rumur_agrees(tmp_path: Path, symmetry: str) -> None:
    """The Murphi text has the model's states and, engines and requests being scalarsets, its orbits."""
    known = EXPECTED[SMALL]
    row = checkers.rumur(tmp_path, SMALL, symmetry=symmetry)
    wanted = (known.states, known.transitions) if symmetry == "off" else (known.orbits, known.orbit_transitions)
    assert (row.states, row.transitions, row.problem) == (*wanted, "")


@needs("gcc")
def test_the_hand_written_search_agrees(tmp_path: Path) -> None:
    """So does the one in C."""
    row = checkers.handwritten(tmp_path, SMALL)
    assert (row.states, row.transitions, row.problem) == (7_944, 38_028, "")


def test_minicheck_agrees() -> None:
    """And the one in minicheck."""
    assert checkers.minicheck(SMALL).states == 7_944


@pytest.mark.parametrize(
    ("symmetry", "states", "transitions", "problem"),
    [
        ("", 7_944, 38_028, ""),
        ("", 7_943, 38_028, "states: 7,943, not 7,944"),
        ("", 7_944, 38_029, "transitions: 38,029, not 38,028"),
        ("exact", 1_133, 5_263, "states: 1,133, not 1,132"),
        ("heuristic", 1_140, 5_300, ""),
        ("heuristic", 1_131, 5_300, "1,131 classes, not from 1,132 to 7,944"),
    ],
)
def test_a_count_that_differs_is_a_problem(symmetry: str, states: int, transitions: int, problem: str) -> None:
    """A wrong count is named, with the right one."""
    assert compare(SMALL, symmetry, states, transitions, None) == problem


def test_a_problem_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One row with a wrong count makes the whole run end with 1, and its table say why."""

    def wrong(report: Report, console: object, *, quick: bool) -> None:
        checkers._attempt(report, Console(), "a checker", lambda: Row(SMALL, "t", "", 1, 1, 1.0, 0.0, None, "1"))

    monkeypatch.setattr(checkers, "measure", wrong)
    monkeypatch.setattr(sys, "argv", ["checkers", "--output", str(tmp_path / "report.json")])
    assert checkers.main() == 1
    assert "failed: a checker: 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["failures"] == ["a checker: 1"]


def test_a_missing_tool_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without SPIN there is no row of SPIN's, and the report says what to install."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    report = Report("a machine")
    made = checkers._attempt(report, Console(), "SPIN", lambda: checkers.spin(tmp_path, SMALL))
    assert made is None
    assert report.skipped == {"SPIN": "apt-get install spin"}
    assert not report.failures


def test_a_bad_folder_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An output that cannot be written is refused before anything runs."""
    monkeypatch.setattr(sys, "argv", ["checkers", "--output", "/nowhere/at/all.json"])
    with pytest.raises(SystemExit) as ended:
        checkers.main()
    assert ended.value.code == 2
    assert "the folder /nowhere/at does not exist" in capsys.readouterr().err


def test_a_program_that_hangs_is_ended() -> None:
    """Every wait has a bound."""
    with pytest.raises(Failed, match=r"not done after 0\.2 seconds"):
        run([sys.executable, "-c", "import time; time.sleep(60)"], limit=0.2)


def test_a_program_that_fails_says_why() -> None:
    """The last line it printed is in the message."""
    with pytest.raises(Failed, match="ended with 3: why"):
        run([sys.executable, "-c", "import sys; print('why', file=sys.stderr); sys.exit(3)"], limit=60)


def test_peak_memory_is_the_childs() -> None:
    """A child that holds 300 MB is seen to."""
    holds = "len(bytearray(b'x') * 300_000_000)"
    # In a process of its own: this one may have held more already, and then it cannot tell.
    asks = (
        f"import sys; from model_check.process import run; print(run([sys.executable, '-c', {holds!r}], limit=60).peak)"
    )
    peak = int(run([sys.executable, "-c", asks], limit=60, folder=checkers.ROOT).output)
    assert 300_000_000 < peak < 400_000_000
