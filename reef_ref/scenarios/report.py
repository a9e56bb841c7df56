"""Results of scenarios for people and for machines."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reef_ref.scenarios.scenario import Check, Outcome

__all__ = ["SCHEMA", "as_json", "as_text", "write_atomically"]

SCHEMA = "reef-ref/scenarios/1"


def as_text(outcomes: Sequence[Outcome], seconds: float) -> str:
    """One block a scenario: its verdict, then every check with what was seen and what is required."""
    lines: list[str] = []
    for outcome in outcomes:
        verdict = "as it must be" if outcome.holds else "NOT AS IT MUST BE"
        lines.append(f"{outcome.scenario.name}: {verdict} ({outcome.seconds:.1f} s)")
        lines += [_line(check) for check in outcome.checks]
        if outcome.error is not None:
            lines += [f"  error  {line}" for line in outcome.error.splitlines()]
    good = sum(outcome.holds for outcome in outcomes)
    checks = sum(len(outcome.checks) for outcome in outcomes)
    lines.append(f"{good} of {len(outcomes)} scenarios as they must be, {checks} checks, {seconds:.0f} s")
    return "\n".join(lines)


def _line(check: Check) -> str:
    mark = "  --  " if check.required is None else "  ok  " if check.holds else "  NO  "
    required = "" if check.required is None else f"  (required: {check.required})"
    return f"{mark} {check.label}: {check.seen}{required}"


def as_json(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The same as one JSON object, with what it was run on."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "holds": all(outcome.holds for outcome in outcomes),
        "seconds": round(seconds, 1),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), **_versions("sglang", "torch")},
        "scenarios": [
            {
                "name": outcome.scenario.name,
                "shows": outcome.scenario.shows,
                "cases": list(outcome.scenario.cases),
                "holds": outcome.holds,
                "seconds": round(outcome.seconds, 1),
                "error": outcome.error,
                "checks": [
                    {"label": check.label, "seen": check.seen, "required": check.required, "holds": check.holds}
                    for check in outcome.checks
                ],
            }
            for outcome in outcomes
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _versions(*names: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
