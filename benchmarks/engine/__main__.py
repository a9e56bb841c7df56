"""Measure what provenance costs, what sharing gains, and what the coordinator adds, on real engines.

``make bench-engine`` runs all of it, keeps the results and writes the README's section. It takes about a quarter of an
hour, on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.engine import results
from benchmarks.engine.cost import measure_cost
from benchmarks.engine.gain import measure_gain
from benchmarks.engine.publishing import measure_publishing
from benchmarks.engine.results import Results
from benchmarks.sections import put
from reef_ref.engines.errors import EngineError

KEPT = Path(__file__).with_name("results.json")


class Part(StrEnum):
    """What to measure."""

    COST = "cost"
    GAIN = "gain"
    PUBLISHING = "publishing"
    ALL = "all"


async def measured(part: Part, rounds: int, every: int) -> Results:
    """The results of one run."""
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="reef-ref-bench-") as name, console.status("starting engines") as status:
        places = {part: Path(name) / part for part in Part}
        for place in places.values():
            place.mkdir()
        wanted = {part} if part is not Part.ALL else set(Part)
        costs = await measure_cost(places[Part.COST], rounds, status.update) if Part.COST in wanted else ()
        gains = await measure_gain(places[Part.GAIN], every, status.update) if Part.GAIN in wanted else ()
        publishing = None
        if Part.PUBLISHING in wanted:
            publishing = await measure_publishing(places[Part.PUBLISHING], rounds, status.update)
        return Results(results.this_machine(), rounds, costs, gains, publishing)


def main(
    part: Annotated[Part, typer.Option(help="What to measure.")] = Part.ALL,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of each load.")] = 15,
    every: Annotated[int, typer.Option(min=1, help="Requests between publications.")] = 6,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the results, and write the README's section.")] = False,
) -> None:
    """Measure on real engines, and print tables."""
    if keep and part is not Part.ALL:
        typer.echo("error: --keep needs --part all: the README shows one run", err=True)
        raise typer.Exit(2)
    try:
        found = asyncio.run(measured(part, rounds, every))
    except EngineError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    if keep:
        results.keep(KEPT, found)
        put(results.SECTION, results.as_markdown(found))
    typer.echo(results.as_markdown(found))


if __name__ == "__main__":
    typer.run(main)
