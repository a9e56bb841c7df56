"""Publications under load with faults and injected violations: ``python -m benchmarks.soak --minutes N``.

Two real engines, the project's coordinator, clients, and a `reef-ref monitor` in a process of its own. Ends 1 where
anything was not as it must be. ``make soak`` and ``make soak-short``.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.sections import put
from benchmarks.soak.injected import table
from benchmarks.soak.report import as_markdown, as_table, judged
from benchmarks.soak.run import soak
from reef_ref.engines.errors import EngineError

SECTION = "soak"


def main(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Of the plan and of the clients.")] = 1,
    keep: Annotated[bool, typer.Option("--keep", help="Write the README's section.")] = False,
) -> None:
    """Soak a deployment on real engines, and say what came of it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="reef-ref-soak-") as name, console.status("") as status:
        try:
            found = asyncio.run(soak(Path(name), 60 * minutes, seed, status.update))
        except EngineError as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error
    out = Console(width=None if console.is_terminal else 200)
    if found.injected:
        out.print(table(found.injected))
    out.print(as_table(found))
    wrong = judged(found)
    for one in wrong:
        out.print(f"not as it must be: {one}", style="red", markup=False)
    if keep:
        put(SECTION, as_markdown(found, minutes, seed))
    if wrong:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
