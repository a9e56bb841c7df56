"""`list`, `simulate`, `mutants`, what is mounted, what `--help` loads, and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reef_ref.cli import deferred, main
from reef_ref.cli.output import write

TOY = "toy:build"
HEAVY = (
    "numpy",
    "llvmlite",
    "networkx",
    "z3",
    "rich",
    "torch",
    "sglang",
    "prometheus_client",
    "starlette",
    "structlog",
    "uvicorn",
    "opentelemetry",
    "model_check",
    "spec.publication",
)
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *args: str) -> tuple[int, str, str]:
    status = main(args)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["check", "--help"], ["nosuch"]])
def test_what_only_answers_loads_nothing_heavy(args: list[str]) -> None:
    code = (
        "import sys; from reef_ref.cli import main; main(sys.argv[2:]);"
        "print('loaded', sorted(set(sys.argv[1].split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(HEAVY), *args], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_version_and_help(capsys: Captured) -> None:
    status, out, _ = run(capsys, "--version")
    assert status == 0
    assert out.startswith("reef-ref ")
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(f"\n  {name} " in out for name in ("check", "liveness", "mutants", "simulate", "list"))


def test_no_command_shows_the_help_as_an_error(capsys: Captured) -> None:
    status, out, err = run(capsys)
    assert (status, out) == (2, "")
    assert "Commands:" in err


def test_list_of_one_protocol(capsys: Captured) -> None:
    status, out, _ = run(capsys, "list", TOY)
    assert status == 0
    for line in (
        "  loaded_was_named  No engine has a load that was never named.",
        "  engines_catch_up  Every engine can still receive the load.",
        "  everybody_catches_up  An engine that is behind receives the load.",
        "  sending  Whatever is named is sent.",
        "  die  An engine starts again, without weights.",
        "  smoke  Engine 2, Load 2, at most 1 fault: two engines, two loads",
        "  runs-ahead  An engine receives the load after the named one.  (T1; breaks loaded_was_named)",
    ):
        assert line in out.splitlines()


def test_simulate_is_the_same_for_the_same_seed(capsys: Captured) -> None:
    found = []
    for seed in ("7", "7", "8"):
        status, out, _ = run(capsys, "simulate", TOY, "--seed", seed, "--walks", "5", "--format", "json")
        assert status == 0
        document = json.loads(out)
        assert document["verdict"] == "undetermined", "walks prove nothing"
        found.append({**document, "seconds": 0, "seed": 0})
    assert found[0] == found[1] != found[2]


def test_simulate_tells_a_violation(capsys: Captured) -> None:
    status, out, _ = run(capsys, "simulate", TOY, "--mutant", "runs-ahead")
    assert status == 1
    assert "How toy:runs-ahead comes to violate loaded_was_named" in out


def test_mutants_say_who_notices(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "mutants.json"
    status, out, err = run(capsys, "mutants", TOY, "--format", "json", "--output", str(file))
    assert (status, out) == (1, "")
    assert "2 killed, 1 killed by another, 1 survived" in err
    kills = json.loads(file.read_text())["mutants"]
    assert [(k["mutant"], k["fate"], k["by"], k["steps"], k["named_steps"]) for k in kills] == [
        ("runs-ahead", "killed", "loaded_was_named", 2, 2),
        ("misnamed", "killed by another", "loaded_was_named", 2, None),
        ("harmless", "survived", "", None, None),
        ("idle", "killed", "everybody_catches_up", 1, 1),
    ]


def test_one_mutant_that_is_killed_as_it_says(capsys: Captured) -> None:
    status, out, _ = run(capsys, "mutants", TOY, "--mutant", "runs-ahead")
    assert status == 0
    assert out.splitlines()[1].split() == ["killed", "runs-ahead", "loaded_was_named,", "2"]


def test_survivors(capsys: Captured) -> None:
    """`send` may as well send to engines that have the load: nothing changes but for steps that change nothing."""
    status, out, _ = run(capsys, "mutants", TOY, "--survivors", "--format", "markdown")
    assert "| survived | send: guard 1 | loaded[e] != target |" in out
    assert status == 1


# What lives elsewhere

GROUP = """
import typer
app = typer.Typer()

@app.callback()
def whole() -> None:
    "A group."

@app.command()
def answer(status: int) -> int:
    print("answered")
    return status
"""


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    package = tmp_path / "elsewhere"
    package.mkdir()
    (package / "__init__.py").write_text("loaded = True\n")
    (package / "commands.py").write_text(GROUP)
    (package / "own.py").write_text("def main(arguments):\n    print(arguments)\n    return 1\n")
    (package / "needy.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    groups = {
        "mounted": ("elsewhere.commands", "Somewhere else."),
        "own": ("elsewhere.own", "Reads its own arguments."),
        "needy": ("elsewhere.needy", "Needs a library."),
        "absent": ("elsewhere.absent", "Not installed."),
    }
    monkeypatch.setattr(deferred, "GROUPS", groups)
    return "elsewhere"


def test_a_group_is_listed_where_it_is_and_not_loaded(capsys: Captured, group: str) -> None:
    _, out, _ = run(capsys, "--help")
    assert "  mounted   Somewhere else.\n" in out
    assert "absent" not in out
    assert group not in sys.modules


def test_a_group_is_loaded_when_it_is_called(capsys: Captured, group: str) -> None:
    assert run(capsys, "mounted", "answer", "3") == (3, "answered\n", "")
    assert run(capsys, "own", "--help", "-x", "y", "--z=1") == (1, "['--help', '-x', 'y', '--z=1']\n", "")
    assert run(capsys, "absent")[0] == 2
    status, _, err = run(capsys, "needy")
    assert (status, err) == (2, "reef-ref: needy needs no_such_library: install reef-ref[engine]\n")


# Files


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "report"
    file.write_text("old")
    file.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(file)
    write(link, "new")
    assert file.read_text() == "new"
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert sorted(tmp_path.iterdir()) == [link, file]


def test_a_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()


def test_a_reader_that_leaves_is_no_crash() -> None:
    """As `reef-ref list | head -0` is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reef_ref.cli", "list", "benchmarks.pubmodel:build"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), err) == (3, "")
