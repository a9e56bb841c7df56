"""`reef-ref check`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from functools import partial
from pathlib import Path

from model_check.explore import Exploration, Unfit, Verdict, explore
from model_check.itf import as_itf
from model_check.report import as_json, as_junit, as_markdown, as_text, conclusion, show
from reef_ref.cli.catalogue import asked
from reef_ref.cli.output import check_writable, display, progress, write
from reef_ref.cli.trouble import Status, Trouble
from spec.lang import Misuse

STATUS = {
    Verdict.HOLDS: Status.HOLDS,
    Verdict.VIOLATED: Status.VIOLATED,
    Verdict.UNDETERMINED: Status.UNDETERMINED,
}
WRITERS = {"text": as_text, "json": as_json, "junit": as_junit, "markdown": as_markdown}


def run_check(
    protocol: str,
    scope: str,
    *,
    mutant: str | None,
    only: Collection[str] | None,
    symmetry: bool,
    orbits: bool,
    workers: int | None,
    max_states: int | None,
    max_seconds: float | None,
    memory: int | None,
    checkpoint: Path | None,
    report_format: str,
    output: Path | None,
    itf: Path | None,
) -> Status:
    """Explore, report, and answer the verdict's exit status."""
    check_writable(output)
    check_writable(itf, "--itf")
    question = asked(protocol, scope, mutant, only, told=True)
    name = question.protocol.name
    try:
        with progress(f"getting {name} ready for scope {question.scope.name}") as update:
            found = explore(
                question.protocol,
                question.scope,
                symmetry=symmetry,
                only=question.only,
                workers=workers or processors(),
                max_states=max_states,
                max_seconds=max_seconds,
                memory=memory,
                checkpoint=checkpoint,
                orbits=orbits,
                progress=update,
            )
    except (Misuse, Unfit) as error:
        raise Trouble(str(error)) from error
    except MemoryError as error:
        raise Trouble(
            f"undetermined: {name} in scope {question.scope.name} does not fit in memory: {error}; a smaller scope may",
            Status.UNDETERMINED,
        ) from error
    except KeyboardInterrupt:
        raise Trouble(f"undetermined: interrupted before {name} was ready", Status.UNDETERMINED) from None
    report(found, report_format, output)
    if itf is not None and found.counterexample is not None:
        write(itf, json.dumps(as_itf(found.counterexample), indent=2) + "\n", "--itf")
    return STATUS[found.verdict]


def report(found: Exploration, report_format: str, output: Path | None) -> None:
    """Write the report where it belongs."""
    if output is not None:
        write(output, WRITERS[report_format](found))
        print(f"reef-ref: {conclusion(found)}; the report is in {output}", file=sys.stderr)
    elif report_format == "text":
        display(partial(show, found))
    else:
        sys.stdout.write(WRITERS[report_format](found))


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


__all__ = ["STATUS", "processors", "report", "run_check"]
