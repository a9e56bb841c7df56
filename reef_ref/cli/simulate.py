"""`reef-ref simulate`."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

from model_check.report import as_json, as_text, show
from model_check.simulate import Simulation, simulate
from reef_ref.cli.catalogue import asked
from reef_ref.cli.output import check_writable, display, progress, write
from reef_ref.cli.trouble import Status, Trouble
from spec.lang import Misuse


def run_simulate(
    protocol: str,
    scope: str,
    *,
    mutant: str | None,
    only: Collection[str] | None,
    seed: int,
    walks: int,
    steps: int,
    report_format: str,
    output: Path | None,
) -> Status:
    """Walk, report, and answer 0 where all walks were done and nothing was violated."""
    check_writable(output)
    question = asked(protocol, scope, mutant, only)
    try:
        with progress(f"walking through {question.protocol.name}") as update:
            found = simulate(
                question.protocol,
                question.scope,
                seed=seed,
                walks=walks,
                length=steps,
                only=question.only,
                progress=update,
            )
    except Misuse as error:
        raise Trouble(str(error)) from error
    written = as_json if report_format == "json" else as_text
    if output is not None:
        write(output, written(found))
        print(f"reef-ref: {_verdict(found)}; the report is in {output}", file=sys.stderr)
    elif report_format == "text":
        display(partial(show, found))
    else:
        sys.stdout.write(written(found))
    if found.violation:
        return Status.VIOLATED
    return Status.UNDETERMINED if found.reason else Status.HOLDS


def _verdict(found: Simulation) -> str:
    if found.violation:
        return f"violated: {found.violation.claim}"
    return found.reason or "no violation met"


__all__ = ["run_simulate"]
