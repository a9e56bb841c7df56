"""Does the installed SGLang behave as the hooks need? Starts one and lets it answer.

A tiny model is written to a temporary directory and a real engine is started on it with every hook of every mode. Its
scheduler exercises the hooks before it serves, as each engine does; then one prompt is sent twice, which shows
whether prefixes are in fact shared.

    python -m reef_ref.sglang.doctor [--json] [--timeout SECONDS]

exits with 0 where prefixes may be shared, with 1 where they may not, and with 2 on wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

TIMEOUT_S = 300.0
"""How long one start and two requests may take, in seconds."""

PROMPT = tuple(20 + 7 * index % 400 for index in range(200))
"""Token ids of the prompt that is sent twice."""

_MARK = "reef-ref-doctor:"
_LAST_LINES = 5


@dataclass(frozen=True)
class Check:
    """One hook target and what exercising it showed."""

    target: str
    expected: str
    problem: str | None


@dataclass(frozen=True)
class Report:
    """What the doctor found."""

    sglang: str | None
    """Version of the installed SGLang, or `None`."""
    able_to_share: bool
    """Whether an engine of it may share prefixes."""
    problems: tuple[str, ...]
    """Why not, one line each."""
    checks: tuple[Check, ...]
    """Every exercised target, in order."""
    reused_tokens: int | None
    """Tokens of the prompt's repetition that were reused, or `None` where it was not sent."""
    prompt_tokens: int = len(PROMPT)

    def lines(self) -> list[str]:
        """The report for people."""
        if self.sglang is None:
            return ["SGLang: not installed", *(f"  {problem}" for problem in self.problems)]
        lines = [f"SGLang {self.sglang}"]
        # A target that several modes use is exercised in each of them; one line says it all unless they disagree.
        lines += dict.fromkeys(
            f"  {'ok     ' if check.problem is None else 'DIFFERS'}  {check.target.removeprefix('sglang.srt.')}: "
            f"{check.expected}{'' if check.problem is None else f' ({check.problem})'}"
            for check in self.checks
        )
        if self.reused_tokens is not None:
            lines.append(f"  a repeated prompt of {self.prompt_tokens} tokens reused {self.reused_tokens}")
        lines += [f"  problem: {problem}" for problem in self.problems]
        lines.append("prefixes may be shared" if self.able_to_share else "prefixes must not be shared; sharing is off")
        return lines

    def as_json(self) -> dict[str, object]:
        """The report for programs."""
        return {
            "sglang": self.sglang,
            "able_to_share": self.able_to_share,
            "problems": list(self.problems),
            "checks": [
                {"target": check.target, "expected": check.expected, "problem": check.problem} for check in self.checks
            ],
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
        }


def diagnose(*, timeout_s: float = TIMEOUT_S, environment: Mapping[str, str] | None = None) -> Report:
    """Start an engine with every hook and report what it says of itself.

    Args:
        timeout_s: bound for the whole diagnosis, in seconds; the engine is ended when it passes.
        environment: what the engine inherits; this process's environment if `None`.
    """
    try:
        version = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return Report(None, False, ("install the `engine` extra: pip install 'reef-ref[engine]'",), (), None)
    inherited = dict(os.environ if environment is None else environment)
    inherited |= {
        "REEF_REF_PROVENANCE": "report",
        "REEF_REF_ON_STALE": "recompute",
        "REEF_REF_IDLE": "retract",
        "REEF_REF_VERIFY_ALL": "1",
        "REEF_REF_EVENTS": "",
    }
    inherited.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="reef-ref-doctor-") as directory:
        command = [sys.executable, "-m", "reef_ref.sglang.doctor", "--probe", directory]
        child = subprocess.Popen(
            command, env=inherited, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            output, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return Report(version, False, (f"the engine did not answer within {timeout_s:g} s",), (), None)
        finally:
            _end(child)
    for line in output.splitlines():
        if line.startswith(_MARK):
            return _report(version, json.loads(line.removeprefix(_MARK)))
    return Report(version, False, _why(output, child.returncode), (), None)


def _report(version: str, answer: dict[str, Any]) -> Report:
    state = answer["state"]
    if state is None:
        return Report(version, False, ("the plugin is not loaded in the scheduler",), (), answer["reused_tokens"])
    checks = tuple(Check(**verdict) for verdict in state["verdicts"])
    problems = list(state["problems"])
    reused = answer["reused_tokens"]
    if not problems and reused != len(PROMPT) - 1:
        problems.append(f"{reused} of {len(PROMPT)} tokens were reused where {len(PROMPT) - 1} can be")
    if problems and reused:
        problems.append(f"sharing should be off, but {reused} tokens were reused")
    return Report(version, not problems, tuple(problems), checks, reused)


def _why(output: str, status: int) -> tuple[str, ...]:
    said = [line.partition("reef-ref: ")[2] for line in output.splitlines() if "reef-ref: " in line]
    if said:
        return tuple(dict.fromkeys(said))
    last = [line for line in output.splitlines() if line.strip()][-_LAST_LINES:]
    return (f"the engine did not start (exit status {status})", *last)


def _end(child: subprocess.Popen[str]) -> None:
    """End the child with everything it started, and collect it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


def _probe(directory: Path) -> None:
    """The child: start the engine, ask it, print one marked line."""
    import sglang

    from reef_ref.sglang.cpu_platform import accelerator_present
    from reef_ref.sglang.plugin import STATE_KEY
    from reef_ref.testing.tiny_model import write_checkpoint

    arguments: dict[str, Any] = {
        "model_path": str(write_checkpoint(directory / "model", seed=1)),
        "dtype": "bfloat16",
        "max_total_tokens": 4096,
        "mem_fraction_static": 0.05,
        "log_level": "error",
    }
    if not accelerator_present():
        arguments |= {"device": "cpu", "attention_backend": "torch_native", "sampling_backend": "pytorch"}
    engine = sglang.Engine(**arguments)
    try:
        sampling = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True}
        answers = [engine.generate(input_ids=list(PROMPT), sampling_params=sampling) for _ in range(2)]
        states = engine.get_server_info()["internal_states"]
        answer = {"state": states[0].get(STATE_KEY), "reused_tokens": answers[1]["meta_info"]["cached_tokens"]}
        print(_MARK + json.dumps(answer), flush=True)
    finally:
        engine.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(prog="python -m reef_ref.sglang.doctor", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help="bound for the whole diagnosis"
    )
    parser.add_argument("--probe", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.timeout <= 0:
        parser.error(f"--timeout {options.timeout:g}: must be more than 0 seconds")
    if options.probe is not None:
        _probe(options.probe)
        return 0
    report = diagnose(timeout_s=options.timeout)
    print(json.dumps(report.as_json(), indent=2) if options.json else "\n".join(report.lines()))
    return 0 if report.able_to_share else 1


if __name__ == "__main__":
    raise SystemExit(main())
