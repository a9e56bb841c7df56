"""`reef-ref refine`: exit statuses, formats, one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reef_ref.cli import main
from reef_ref.cli import refine as command

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(["refine", *args])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_wrong_protocol_is_told_in_the_ideals_words(capsys: Captured) -> None:
    status, out, err = run(capsys, "publication", "--mutant", "no-flush")
    assert (status, err) == (1, "")
    assert out.startswith("publication:no-flush refines atomic, in scope smoke: Engine 2, Load 2, Content 2\n")
    assert "To atomic this step changes request[engine 0] from WAITING to RUNNING" in out
    assert "false  start(engine 0, kept: no)" in out
    assert "violated: every_step_is_one_of_the_ideal is violated\n" in out


def test_json(capsys: Captured, tmp_path: Path) -> None:
    """All at once and into a file; what was stopped is undetermined."""
    report = tmp_path / "report.json"
    status, out, err = run(capsys, "--all", "--max-seconds", "0", "--format", "json", "--output", str(report))
    assert (status, out) == (3, "")
    assert "undetermined: stopped after 0 seconds" in err
    document = json.loads(report.read_text())
    assert (document["format"], document["version"]) == ("reef-ref.refine", 1)
    names = [(one["detailed"], one["ideal"], one["verdict"]) for one in document["refinements"]]
    assert names == [("publication", "atomic", "undetermined"), ("serving", "engine", "undetermined")]


def test_an_interrupt_loses_nothing_that_was_judged(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before is reported, what comes after is undetermined; with nothing judged there is only the line."""
    whole = command._refined

    def interrupted(name: str, *args: Any) -> Any:
        if name == "serving":
            raise KeyboardInterrupt
        return whole(name, *args)

    monkeypatch.setattr(command, "_refined", interrupted)
    status, out, err = run(capsys, "--all", "--max-seconds", "0")
    assert status == 3
    assert out.startswith("publication refines atomic")
    assert err == "reef-ref: undetermined: interrupted before serving was judged\n"
    assert run(capsys, "serving") == (3, "", "reef-ref: undetermined: interrupted before serving was ready\n")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("adapters",), "no refinement 'adapters': there are publication, serving"),
        (("--all", "--mutant", "no-flush"), "--all takes no --mutant, which belongs to one protocol"),
        (("--mutant", "no-flash"), "no mutant 'no-flash' of publication: did you mean no-flush"),
        (("--scope", "Engine=2"), "says nothing about"),
    ],
)
def test_bad_input_gets_one_line(args: tuple[str, ...], words: str, capsys: Captured) -> None:
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
