"""The command line of the scenarios; `reef-ref scenario` mounts `app`."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from reef_ref.scenarios.scenario import Outcome, Scenario

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Scenarios on real SGLang engines.")

NEEDED = ("sglang", "torch", "httpx", "psutil")
NOT_AS_IT_MUST_BE = 1
BAD_USE = 2
INTERRUPTED = 130


class Format(StrEnum):
    """How results are printed."""

    TEXT = "text"
    JSON = "json"


@app.command("list")
def list_scenarios() -> None:
    """Name every scenario and what it must show, then the public reports and where each is shown."""
    _require_engines()
    from reef_ref.scenarios.catalogue import CASES, SCENARIOS

    for scenario in SCENARIOS:
        typer.echo(f"{scenario.name:28} {scenario.shows}")
    typer.echo("")
    for case, where in CASES.items():
        typer.echo(f"{case:6} {where}")


@app.command("run")
def run(
    names: Annotated[list[str] | None, typer.Argument(help="Scenarios to run, by name.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every scenario.")] = False,
    output_format: Annotated[Format, typer.Option("--format", help="Format of the results.")] = Format.TEXT,
    output: Annotated[Path | None, typer.Option("--output", help="Also write the results as JSON here.")] = None,
) -> None:
    """Run scenarios. Exit status: 0 all as they must be, 1 not so, 2 bad use, 130 interrupted.

    Interrupted, it reports the scenarios that were played until then.
    """
    selected = _selected(names or [], every)
    if output is not None and not output.parent.is_dir():
        _bad_use(f"--output {output}: the folder {output.parent} does not exist")
    from reef_ref.scenarios.report import as_json, as_text, write_atomically

    started = time.monotonic()
    outcomes, interrupted = _run(selected)
    seconds = time.monotonic() - started
    document = as_json(outcomes, seconds)
    if output is not None:
        write_atomically(output, document)
    typer.echo(document.rstrip() if output_format is Format.JSON else as_text(outcomes, seconds))
    if interrupted:
        left = len(selected) - len(outcomes)
        typer.echo(f"interrupted with {left} scenarios not played; every engine that was started has ended", err=True)
        raise typer.Exit(INTERRUPTED)
    if not all(outcome.holds for outcome in outcomes):
        raise typer.Exit(NOT_AS_IT_MUST_BE)


def _require_engines() -> None:
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        _bad_use(f"{', '.join(missing)} not installed; the scenarios need the extra 'engine' (reef-ref[engine])")


def _selected(names: Sequence[str], every: bool) -> Sequence[Scenario]:
    if every == bool(names):
        _bad_use("give either names of scenarios or --all")
    _require_engines()
    from reef_ref.scenarios.catalogue import SCENARIOS

    if every:
        return SCENARIOS
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    if unknown := [name for name in names if name not in by_name]:
        _bad_use(f"no scenario {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _run(scenarios: Sequence[Scenario]) -> tuple[Sequence[Outcome], bool]:
    """The outcomes, and whether it was interrupted: then those of the scenarios that were played."""
    from reef_ref.scenarios.runner import run_scenarios

    played: list[Outcome] = []

    async def until_done_or_terminated() -> Sequence[Outcome]:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run_scenarios(scenarios, lambda line: typer.echo(line, err=True), played.append)

    try:
        return asyncio.run(until_done_or_terminated()), False
    except (KeyboardInterrupt, asyncio.CancelledError):
        return played, True


def _bad_use(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(BAD_USE)
