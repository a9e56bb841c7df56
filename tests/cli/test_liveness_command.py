"""`reef-ref liveness`: exit statuses, formats, and one line for what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reef_ref.cli import main

TOY = "toy:build"
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(["liveness", *args])
    out, err = capsys.readouterr()
    return status, out, err


def test_what_holds_and_under_which_assumptions(capsys: Captured) -> None:
    status, out, err = run(capsys, TOY)
    assert (status, err) == (0, "")
    assert "\nAssumed\n  Faults happen finitely often: no loop has one\n  weak  Whatever is named is sent.\n" in out
    assert out.endswith("holds: every run in this scope whose faults end, and that is fair as assumed\n")


def test_a_run_that_never_ends_is_told(capsys: Captured) -> None:
    status, out, _ = run(capsys, TOY, "--mutant", "idle")
    assert status == 1
    assert "How toy:idle comes to violate everybody_catches_up, in 1 step, and nothing more\n" in out
    assert out.endswith("violated: everybody_catches_up, on a run that never ends\n")


@pytest.mark.parametrize(("extra", "status"), [((), 0), (("--mutant", "idle"), 1), (("--max-states", "2"), 3)])
def test_every_format_says_the_verdict(capsys: Captured, extra: tuple[str, ...], status: int) -> None:
    verdict = ("holds", "violated", "", "undetermined")[status]
    found, out, _ = run(capsys, TOY, "--format", "json", *extra)
    document = json.loads(out)
    assert (found, document["verdict"]) == (status, verdict)
    assert [claim["kind"] for claim in document["claims"]] == ["eventuality"]
    found, out, _ = run(capsys, TOY, "--format", "markdown", *extra)
    assert found == status
    assert out.startswith(f"## toy{':idle' if status == 1 else ''} at pr: {verdict}\n")
    found, out, _ = run(capsys, TOY, "--format", "junit", *extra)
    suites = ElementTree.fromstring(out)
    assert (suites.attrib["failures"], suites.attrib["errors"]) == (str(int(status == 1)), str(int(status == 3)))


def test_a_report_goes_to_a_file(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    status, out, err = run(capsys, TOY, "--format", "json", "--output", str(file))
    assert (status, out) == (0, "")
    assert err.startswith("reef-ref: holds: ")
    assert json.loads(file.read_text())["assumed"][0]["name"] == "sending"


def test_the_story_of_a_mutant_that_breaks_something_else_is_not_asked_for(capsys: Captured) -> None:
    """Every eventuality is judged: a protocol that does something wrong may still come to an end."""
    status, out, _ = run(capsys, TOY, "--mutant", "harmless", "--format", "json")
    assert status == 0
    assert [claim["name"] for claim in json.loads(out)["claims"]] == ["everybody_catches_up"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([TOY, "--symmetry"], "liveness is not judged up to symmetry: a loop of representatives need not be one of "),
        ([TOY, "--property", "target_grows"], "no property 'target_grows' of toy: there is everybody_catches_up"),
        ([TOY, "--mutant", "idel"], "no mutant 'idel' of toy:build: did you mean idle?"),
        (["benchmarks.pubmodel:build", "--scope", "Engine=1,Request=1,Load=1"], "pubmodel claims no eventuality"),
    ],
)
def test_what_is_refused_in_one_line(capsys: Captured, args: list[str], message: str) -> None:
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    assert err.startswith(f"reef-ref: {message}")
    assert err.count("\n") == 1


def test_check_says_who_tells_what_it_cannot_see(capsys: Captured) -> None:
    status = main(["check", TOY, "--mutant", "idle"])
    assert status == 2
    assert capsys.readouterr().err == (
        "reef-ref: mutant idle breaks everybody_catches_up, which reef-ref liveness judges\n"
    )
    assert main(["check", TOY, "--mutant", "idle", "--property", "target_grows"]) == 0
