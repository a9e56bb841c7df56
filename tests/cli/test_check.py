"""`reef-ref check`: exit statuses, formats, one line for bad input, files whole or not at all."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reef_ref.cli import main

TOY = "toy:build"
HERE = Path(__file__).parent
MODEL = ["benchmarks.pubmodel:build", "--scope", "Engine=3,Request=6,Load=2", "--no-symmetry"]

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


def test_a_protocol_that_holds(capsys: Captured) -> None:
    status, out, err = run(capsys, "check", TOY)
    assert status == 0
    assert out.endswith("holds: every state of the scope was seen\n")
    assert err == "", "nobody looks at a terminal, so there is no progress"


def test_a_violation_is_told(capsys: Captured) -> None:
    status, out, _ = run(capsys, "check", TOY, "--mutant", "runs-ahead")
    assert status == 1
    assert "  2. coordinator → engine 0  send(engine 0)\n     An engine receives the load.\n" in out
    assert "loaded[engine 0]  0 → 2" in out
    assert out.endswith("violated: loaded_was_named, in 2 steps\n")


@pytest.mark.parametrize(("extra", "status"), [((), 0), (("--mutant", "runs-ahead"), 1), (("--max-states", "2"), 3)])
def test_every_format_says_the_verdict(capsys: Captured, extra: tuple[str, ...], status: int) -> None:
    verdict = ("holds", "violated", "", "undetermined")[status]
    found, out, _ = run(capsys, "check", TOY, "--format", "json", *extra)
    assert found == status
    document = json.loads(out)
    assert (document["format"], document["version"], document["verdict"]) == ("reef-ref.exploration", 1, verdict)
    assert (document["counterexample"] is not None) == (status == 1)

    found, out, _ = run(capsys, "check", TOY, "--format", "markdown", *extra)
    assert found == status
    assert out.startswith(f"## toy{':runs-ahead' if status == 1 else ''} at pr: {verdict}\n")
    assert ("```mermaid\nsequenceDiagram\n" in out) == (status == 1)

    found, out, _ = run(capsys, "check", TOY, "--format", "junit", *extra)
    assert found == status
    suites = ElementTree.fromstring(out)
    assert (int(suites.attrib["failures"]) > 0) == (status == 1)
    assert (int(suites.attrib["errors"]) > 0) == (status != 0)


def test_undetermined_is_never_a_pass_in_junit(capsys: Captured) -> None:
    """Nor a skip: a test runner would show either as green."""
    _, out, _ = run(capsys, "check", TOY, "--format", "junit", "--max-states", "2")
    cases = ElementTree.fromstring(out).findall(".//testcase")
    judged = [case for case in cases if case.attrib["classname"] != "toy.goal"]
    assert [case.attrib["name"] for case in judged] == [
        "loaded_was_named",
        "target_grows",
        "no_dead_end",
        "engines_catch_up",
    ]
    assert all([child.tag for child in case] == ["error"] for case in judged)
    assert ElementTree.fromstring(out).attrib["skipped"] == "0"


def test_only_the_asked_property_is_judged(capsys: Captured) -> None:
    status, out, _ = run(capsys, "check", TOY, "--property", "target_grows", "--format", "json")
    assert status == 0
    assert [c["name"] for c in json.loads(out)["claims"]] == ["target_grows", "published"]
    args = ("check", TOY, "--mutant", "runs-ahead", "--property", "target_grows")
    assert run(capsys, *args)[0] == 3, "what the mutant breaks is not judged, and a goal is out of reach"


def test_a_mutant_is_judged_by_the_property_that_it_names(capsys: Captured) -> None:
    """So that the story is the one that the mutant is about, though another property may notice sooner."""
    for mutant, judged in (("runs-ahead", "loaded_was_named"), ("misnamed", "target_grows")):
        _, out, _ = run(capsys, "check", TOY, "--mutant", mutant, "--format", "json")
        assert [c["name"] for c in json.loads(out)["claims"]] == [judged, "published"]


def test_symmetry_and_orbits(capsys: Captured) -> None:
    _, with_symmetry, _ = run(capsys, "check", TOY, "--format", "json", "--orbits")
    _, without, _ = run(capsys, "check", TOY, "--format", "json", "--no-symmetry")
    assert json.loads(with_symmetry)["orbits"] == json.loads(without)["states"]
    assert json.loads(with_symmetry)["states"] < json.loads(without)["states"]


BAD = {
    "unknown protocol": (["check", "publicaton"], "no protocol 'publicaton': did you mean publication?"),
    "unknown module": (["check", "nosuch:thing"], "module nosuch: ModuleNotFoundError: No module named 'nosuch'"),
    "unknown attribute": (["check", "toy:bild"], "no attribute 'bild' of module toy: did you mean build"),
    "not a protocol": (["check", "toy:SCOPES"], "toy:SCOPES is a tuple: a spec.lang.Protocol is needed"),
    "no attribute": (["check", "toy:"], "'toy:' names no protocol: module:attribute is needed"),
    "unknown scope": (["check", TOY, "--scope", "smok"], "no scope 'smok' of toy:build: did you mean smoke?"),
    "bad sizes": (["check", TOY, "--scope", "Engine=x"], "'Engine=x' is not a size; Engine=2 is"),
    "missing size": (["check", TOY, "--scope", "Engine=2"], "says nothing about Load; add Load=2"),
    "zero engines": (["check", TOY, "--scope", "Engine=0,Load=1"], "Engine is 0, and must be 1 or more"),
    "unknown mutant": (
        ["check", TOY, "--mutant", "run-ahead"],
        "no mutant 'run-ahead' of toy:build: did you mean runs-a",
    ),
    "unknown property": (["check", TOY, "--property", "grows"], "no property 'grows' of toy: "),
    "unknown format": (["check", TOY, "--format", "xml"], "'xml' is not one of 'text', 'json', 'junit', 'markdown'"),
    "unknown option": (["check", TOY, "--scop", "pr"], "No such option: --scop"),
    "unknown command": (["chek"], "No such command 'chek'"),
    "not a number": (["check", TOY, "--max-states", "many"], "--max-states"),
    "no states": (["check", TOY, "--max-states", "0"], "--max-states"),
    "no size": (["check", TOY, "--memory", "2GB"], "'--memory': '2GB' is not a size; 2GiB and 512MiB are"),
    "too small a size": (["check", TOY, "--memory", "1MiB"], "'--memory': 1MiB is too little; 64MiB is the least"),
    "a checkpoint in a file": (["check", TOY, "--checkpoint", __file__], "cannot be written to: File exists"),
    "a checkpoint beside other things": (["check", TOY, "--checkpoint", "/"], "/: is no checkpoint, and not empty"),
    "no folder": (["check", TOY, "--output", "/nosuch/report"], "the folder /nosuch does not exist; make it first"),
    "a folder": (["check", TOY, "--output", "/"], "--output /: is a folder; name a file in it"),
    "below a file": (["check", TOY, "--output", f"{__file__}/report"], "does not exist; make it first"),
    "unknown mutants": (
        ["mutants", TOY, "--mutant", "harmles"],
        "no mutant 'harmles' of toy:build: did you mean harmless?",
    ),
    "walks judge no recovery": (["simulate", TOY, "--property", "engines_catch_up"], "cannot judge 'engines_catch_up'"),
    "list of nothing": (["list", "nosuch"], "no protocol 'nosuch'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(capsys: Captured, case: str) -> None:
    args, message = BAD[case]
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("reef-ref: ")
    assert message in err


def test_trouble_in_a_protocol_of_ones_own_is_one_line(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_at_import.py").write_text("1 / 0\n")
    (tmp_path / "without_beginning.py").write_text(
        "from spec.lang import Fields, Protocol\nclass S(Fields):\n    pass\nnone = Protocol('none', S, '')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    status, _, err = run(capsys, "check", "broken_at_import:x")
    assert (status, err) == (2, "reef-ref: module broken_at_import: ZeroDivisionError: division by zero\n")
    status, _, err = run(capsys, "check", "without_beginning:none")
    assert status == 2
    assert "declares no initial state" in err


def test_the_report_goes_to_the_file_and_only_there(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    status, out, err = run(capsys, "check", TOY, "--format", "json", "--output", str(file))
    assert (status, out) == (0, "")
    assert json.loads(file.read_text())["verdict"] == "holds"
    assert err == f"reef-ref: holds: every state of the scope was seen; the report is in {file}\n"


def test_states_go_to_a_checkpoint_and_the_search_goes_on_from_there(capsys: Captured, tmp_path: Path) -> None:
    given = ["check", TOY, "--format", "json", "--memory", "64MiB", "--checkpoint", str(tmp_path / "kept")]
    status, out, _ = run(capsys, *given, "--max-states", "20")
    stopped = json.loads(out)
    assert (status, stopped["verdict"]) == (3, "undetermined")
    assert stopped["reason"] == f"stopped past 20 states; {tmp_path / 'kept'} keeps what was found, to go on from"
    status, out, _ = run(capsys, *given)
    found = json.loads(out)
    assert (status, found["verdict"]) == (0, "holds")
    assert found["bytes_on_disk"] > stopped["bytes_on_disk"] > 0
    _, out, _ = run(capsys, "check", TOY, "--format", "json")
    in_memory = json.loads(out)
    assert in_memory["bytes_on_disk"] == 0
    for kind in ("bytes_on_disk", "bytes_grown", "seconds", "seconds_ready"):
        found[kind] = in_memory[kind]
    assert found == in_memory


def test_a_checkpoint_of_something_else_is_one_line(capsys: Captured, tmp_path: Path) -> None:
    run(capsys, "check", TOY, "--checkpoint", str(tmp_path), "--max-states", "20")
    status, out, err = run(capsys, "check", TOY, "--scope", "smoke", "--checkpoint", str(tmp_path))
    assert (status, out) == (2, "")
    assert err == (
        f"reef-ref: {tmp_path}: the checkpoint is of scope Engine=3,Load=3,faults=2, not of Engine=2,Load=2,faults=1\n"
    )


def test_no_memory_at_all_leaves_the_file_alone(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.txt"
    file.write_text("as it was")
    monkeypatch.setattr("model_check.search.available_memory", lambda: 0)
    status, out, err = run(capsys, "check", TOY, "--output", str(file))
    assert (status, out) == (3, "")
    assert re.fullmatch(r"reef-ref: undetermined: toy in scope pr does not fit in memory: .*\n", err)
    assert file.read_text() == "as it was"
    assert list(tmp_path.iterdir()) == [file]


def test_an_interrupt_ends_with_what_was_found() -> None:
    """Progress goes to the terminal of standard error, the report to standard output, which is none."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "reef_ref.cli", "check", *MODEL[:2], "Engine=4,Request=7,Load=3", "--no-symmetry"],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    )
    os.close(theirs)
    try:
        shown = ""
        while "exploring: " not in shown:
            try:
                shown += os.read(mine, 4096).decode(errors="replace")
            except OSError:
                pytest.fail(f"it ended before it explored: {shown!r}, {process.communicate()[0]!r}")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert process.returncode == 3
    assert out.endswith("undetermined: interrupted\n")
    assert "exploring: " not in out
