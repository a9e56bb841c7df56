"""Reports that are one table and a sentence, as text, JSON or Markdown."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef_ref.cli.output import display, plain, write

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"killed": "green", "killed by another": "yellow", "survived": "bold red", "undetermined": "yellow"}


@dataclass(frozen=True)
class Report:
    """A table with a sentence below it; `document` is the same for programs.

    As text, only the first `shown` columns are told, and all but the last of those are never broken.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    summary: str
    document: dict[str, Any]
    shown: int


def deliver(report: Report, report_format: str, output: Path | None) -> None:
    """Write a report to a file, or print it."""
    if output is not None:
        write(output, _written(report, report_format))
        print(f"reef-ref: {report.summary}; the report is in {output}", file=sys.stderr)
    elif report_format == "text":
        display(partial(_show, report))
    else:
        sys.stdout.write(_written(report, report_format))


def _written(report: Report, report_format: str) -> str:
    match report_format:
        case "json":
            return json.dumps(report.document, indent=2, ensure_ascii=False) + "\n"
        case "markdown":
            rows = [report.head, tuple("---" for _ in report.head), *report.rows]
            lines = [
                "| " + " | ".join(cell.replace("|", "\\|").replace("\n", ", ") for cell in row) + " |" for row in rows
            ]
            return "\n".join([*lines, "", f"{report.summary}."]) + "\n"
        case _:
            return plain(partial(_show, report))


def _show(report: Report, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    if report.rows:
        table = Table(*report.head[: report.shown], box=None, padding=(0, 2, 0, 0), header_style="dim")
        for number, column in enumerate(table.columns):
            column.overflow = "fold"
            column.no_wrap = number < report.shown - 1
        for first, *rest in (row[: report.shown] for row in report.rows):
            table.add_row(Text(first, style=STYLES.get(first, "")), *map(Text, rest))
        console.print(table)
        console.print()
    console.print(report.summary, markup=False)


__all__ = ["Report", "deliver"]
