"""`reef-ref validate`: a trace of a deployment, held against the publication protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from reef_ref.cli.trouble import Status, Trouble, unknown

if TYPE_CHECKING:
    from reef_ref.monitor.validate import Report

app = typer.Typer(rich_markup_mode=None, add_completion=False)
SHOWN = 12
"""Alternatives that are listed before the rest is only counted."""


class Format(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"


@app.command()
def validate(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A file of events, one JSON object a line; - to read.")
    ],
    *,
    engines: Annotated[
        int | None, typer.Option(min=1, max=64, help="Slots of the deployment.  [default: as many as the trace names]")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME", help="Judge this on the way; may be given again.")
    ] = None,
    report_format: Annotated[Format, typer.Option("--format", help="Of the report.")] = Format.TEXT,
) -> int:
    """Say whether some behaviour of the publication protocol looks like a trace.

    What a trace leaves out stays open. The first event that nothing explains is shown with what was possible there.

    Exit status: 0 explained, 1 inexplicable, 2 not a trace, 3 unknown.
    """
    from model_check.explain import Verdict
    from reef_ref.monitor.validate import Garbled
    from reef_ref.monitor.validate import validate as validated
    from spec.publication import publication

    for name in only or ():
        if name not in publication.properties:
            raise unknown("property", name, publication.properties, publication.name)
    try:
        with _opened(trace) as stream:
            report = validated(stream, engines=engines, judged=only or ())
    except Garbled as error:
        raise Trouble(f"{trace}:{error.line}: {error}") from error
    except OSError as error:
        raise Trouble(f"{trace}: {error.strerror or error}") from error
    print(json.dumps(as_json(report), indent=2) if report_format is Format.JSON else "\n".join(as_text(report)))
    return {
        Verdict.EXPLAINED: Status.HOLDS,
        Verdict.INEXPLICABLE: Status.VIOLATED,
        Verdict.UNKNOWN: Status.UNDETERMINED,
    }[report.verdict]


@contextmanager
def _opened(trace: Path) -> Iterator[Iterable[bytes]]:
    if str(trace) == "-":
        yield _lines(sys.stdin.buffer)
        return
    with trace.open("rb") as file:
        yield _lines(file)


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines, none of them held in memory past what a line may have."""
    from reef_ref.monitor.validate import LONGEST

    while line := file.readline(LONGEST + 1):
        yield line


def as_json(report: Report) -> dict[str, Any]:
    """A report as plain values."""
    from reef_ref.monitor.validate import called

    finding = report.finding
    return {
        "verdict": report.verdict.value,
        "events": report.events,
        "engines": report.engines,
        "repeated": report.repeated,
        "gaps": report.gaps,
        "resynchronised": report.resynchronised,
        "possible_states": report.states,
        "reason": report.reason,
        "properties": {name: held.value for name, held in report.properties.items()},
        "finding": finding
        and {
            "line": finding.line,
            "source": finding.source,
            "number": finding.number,
            "event": called(finding.event),
            "note": finding.note,
            "objections": [{"step": o.step, "needs": o.wanted, "facts": list(o.facts)} for o in finding.objections],
            "possible": list(finding.possible),
        },
    }


def as_text(report: Report) -> Iterator[str]:
    """A report as lines."""
    from reef_ref.monitor.validate import called

    count = f"{report.events:,} event{'' if report.events == 1 else 's'}"
    yield f"{report.verdict.value}: {count}, {report.engines} engine{'' if report.engines == 1 else 's'}"
    if report.reason:
        yield f"  {report.reason}"
    if report.gaps or report.repeated:
        yield f"  gaps: {report.gaps}, begun again after one: {report.resynchronised}, repeated: {report.repeated}"
    finding = report.finding
    if finding is not None:
        yield f"  line {finding.line}, event {finding.number} of {finding.source}: {called(finding.event)}"
        if finding.note:
            yield f"  {finding.note}"
        yield "  No behaviour explains it:"
        yield from (f"    {objection}" for objection in finding.objections[:SHOWN])
        if len(finding.objections) > SHOWN:
            yield f"    and {len(finding.objections) - SHOWN} more"
        yield f"  Possible there: {', '.join(finding.possible) or 'nothing that would be told'}"
    for name, held in report.properties.items():
        yield f"  {name}: {held.value}"
