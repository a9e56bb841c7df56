"""`reef-ref mutants` over several protocols and scopes, in processes and on a Ray cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from reef_ref.cli import main

TOY = "toy:build"
OTHER = "toy:another"
FATES = {"runs-ahead": "killed", "misnamed": "killed by another", "harmless": "survived", "idle": "killed"}
HERE = Path(__file__).parent
Captured = pytest.CaptureFixture[str]


def mutants(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(["mutants", *args])
    out, err = capsys.readouterr()
    return status, out, err


def test_every_mutant_of_every_protocol_in_every_scope(capsys: Captured) -> None:
    args = (TOY, OTHER, "--scope", "smoke", "--scope", "pr", "--format", "json")
    status, out, _ = mutants(capsys, *args)
    document = json.loads(out)
    assert status == 1, "one survives"
    assert [(k["protocol"], k["scope"], k["mutant"], k["fate"]) for k in document["mutants"]] == [
        (protocol, scope, mutant, fate)
        for protocol in (TOY, OTHER)
        for scope in ("smoke", "pr")
        for mutant, fate in FATES.items()
    ]
    assert document["title"] == "16 mutants of toy:build, toy:another at smoke, pr"


def test_a_table_of_several_says_where(capsys: Captured) -> None:
    args = (TOY, "--scope", "smoke", "--scope", "pr", "--mutant", "runs-ahead")
    status, out, _ = mutants(capsys, *args)
    assert status == 0
    assert [line.split()[1:4] for line in out.splitlines()[1:3]] == [
        ["toy:build:runs-ahead", "at", "smoke"],
        ["toy:build:runs-ahead", "at", "pr"],
    ]


def test_survivors_are_of_one_protocol_in_one_scope(capsys: Captured) -> None:
    for args in ((TOY, OTHER), (TOY, "--scope", "smoke", "--scope", "pr"), (TOY, "--ray")):
        status, out, err = mutants(capsys, *args, "--survivors")
        assert (status, out) == (2, "")
        assert err.endswith("--survivors takes one protocol and one scope, and is one process\n")


def test_without_ray_one_line_says_what_to_install(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    status, out, err = mutants(capsys, TOY, "--ray")
    assert (status, out, err) == (2, "", "reef-ref: --ray needs ray: install reef-ref[ray]\n")


def test_a_cluster_that_does_not_start_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray says it on a machine that is too busy."""

    def init(**options: object) -> None:
        raise Exception("The current node timed out during startup.\nSome process failed.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    status, out, err = mutants(capsys, TOY, "--ray")
    assert (status, out) == (3, "")
    assert err == (
        "reef-ref: --ray: no cluster on this machine: The current node timed out during startup. Some process failed.\n"
    )


with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: reef-ref[ray]")


def command(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, for a cluster leaves threads behind."""
    return subprocess.run(
        [sys.executable, "-m", "reef_ref.cli", "mutants", *args, "--ray"],
        cwd=HERE,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@with_ray
def test_a_cluster_answers_what_processes_answer(capsys: Captured) -> None:
    args = (TOY, OTHER, "--scope", "smoke", "--scope", "pr", "--format", "json")
    _, out, _ = mutants(capsys, *args)
    done = command(*args)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout) == json.loads(out)


@with_ray
def test_a_cluster_that_is_not_there_is_one_line() -> None:
    done = command(TOY, RAY_ADDRESS="127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("reef-ref: --ray: no cluster on 127.0.0.1:1: ")
    assert done.stderr.count("\n") == 1
