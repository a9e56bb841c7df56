"""The folder of examples: one for every row of the sharing table, and what files may do besides."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from reef_ref.cli import main
from tests.conformance.example_files import FOLDER, examples, text

FILES = sorted(FOLDER.rglob("*.yaml"))


def test_every_row_has_its_example() -> None:
    """Refresh: python -m tests.conformance.example_files"""
    for path, (row, case) in examples().items():
        assert (FOLDER / path).read_text() == text(row, case), path


def assumption(file: Path) -> list[str]:
    found = re.search(r"^# Judged with (--adapter-keys) (yes|no)\.$", file.read_text(), re.MULTILINE)
    return list(found.groups()) if found else []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_the_command_says_what_the_example_says(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["config", "check", str(file), "--explain", *assumption(file)])
    shown = capsys.readouterr()
    good = file.parent.name == "good"
    assert status == (0 if good else 2)
    first = file.read_text().splitlines()[0]
    if good:
        assert first.startswith("# Accepted:")
        for rule in re.findall(r"\(([a-z-]+)\)", file.read_text()):
            assert f"rule    {rule}\n" in shown.out
        assert not shown.err
    else:
        said = re.match(r"# Refused by ([a-z-]+)[.:]", first)
        assert said is not None
        assert not shown.out
        assert shown.err.startswith(f"reef-ref: {file}")
        assert shown.err.count("\n") == 1
        assert shown.err.endswith(f"[{said[1]}]\n") or said[1] == "shape"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_json_says_the_same(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["config", "check", str(file), "--format", "json", *assumption(file)])
    answer = json.loads(capsys.readouterr().out)
    assert answer["accepted"] is (status == 0)
    assert answer["file"] == str(file)
    if status == 0:
        assert {scope["disable_radix_cache"] for scope in answer["scopes"]} <= {True, False}
    else:
        assert answer["rule"]
        assert answer["reason"]
