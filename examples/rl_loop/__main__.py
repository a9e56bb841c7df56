"""The command: ``python -m examples.rl_loop --steps 20``."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from examples.rl_loop.settings import Break, Mode, OtherRun, Places, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.rl_loop.engines import Attached
    from examples.rl_loop.loop import Outcome

NEEDED = ("sglang", "torch", "transformers", "safetensors", "httpx", "psutil")
WRONG, BAD_USE, INTERRUPTED = 1, 2, 130


def main(
    *,
    steps: Annotated[int, typer.Option(min=1, help="Steps that the run has in the end.")] = 20,
    mode: Annotated[Mode, typer.Option(help="Where training happens.")] = Mode.DISJOINT,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run is kept, and goes on.  [default: a folder that is removed]")
    ] = None,
    max_lag: Annotated[int, typer.Option(min=0, help="Loads that a sample may be behind.")] = 2,
    seed: Annotated[int, typer.Option(help="Of prompts and of which tokens are rewarded.")] = 1,
    leave_out: Annotated[Break | None, typer.Option("--break", help="Leave something out, and be caught.")] = None,
    attach: Annotated[
        Path | None, typer.Option(help='Use running engines: a file of [{"address": ..., "events": ...}, ...].')
    ] = None,
) -> None:
    """Train a tiny policy on real engines, and assert all the while that no stale prefix is served.

    Exit status: 0 all as it must be, 1 caught or failed, 2 bad use, 130 interrupted. After a failure, an interrupt or a
    kill, the same command with the same --folder goes on.
    """
    if mode is Mode.COLOCATED and attach is not None:
        _end(BAD_USE, "--attach: colocated engines give memory back to this process, so they are its own; leave it out")
    if mode is Mode.COLOCATED and leave_out is Break.NO_FLUSH:
        _end(BAD_USE, "--break no-flush: SGLang flushes when KV is released, so nothing breaks; use --mode disjoint")
    engines = () if attach is None else _attached(attach)
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        _end(BAD_USE, f"{', '.join(missing)} not installed; the loop needs the extra 'engine' (reef-ref[engine])")
    settings = Settings(mode=mode, max_lag=max_lag, seed=seed)
    with tempfile.TemporaryDirectory(prefix="reef-ref-rl-") as temporary:
        places = Places(folder.absolute() if folder is not None else Path(temporary) / "run")
        try:
            places.claim(settings)
        except (OtherRun, OSError) as error:
            _end(BAD_USE, str(error))
        outcome = _run(settings, places, steps, leave_out, engines)
    _show(outcome)


def _attached(path: Path) -> Sequence[Attached]:
    from examples.rl_loop.engines import NotEngines, read_attached

    try:
        return read_attached(path)
    except NotEngines as error:
        _end(BAD_USE, str(error))


def _run(settings: Settings, places: Places, steps: int, broken: Break | None, engines: Sequence[Attached]) -> Outcome:
    from examples.rl_loop.engines import NotEngines
    from examples.rl_loop.loop import FAILURES, run

    async def until_done_or_terminated() -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await run(
            settings, places, steps, broken=broken, engines=engines, say=lambda line: typer.echo(line, err=True)
        )

    try:
        return asyncio.run(until_done_or_terminated())
    except (KeyboardInterrupt, asyncio.CancelledError):
        _end(INTERRUPTED, "interrupted; the same command goes on")
    except Exception as error:
        first = _first(error)
        if isinstance(first, NotEngines | OtherRun):
            _end(BAD_USE, str(first))
        if not isinstance(first, FAILURES):
            raise
        _end(WRONG, str(first))


def _first(error: BaseException) -> BaseException:
    """What a group of errors is about: the first of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _show(outcome: Outcome) -> None:
    from rich.console import Console

    from examples.rl_loop.learning import judge
    from examples.rl_loop.table import conclusion, table

    judgement = judge([step.learned.rewards for step in outcome.steps])
    console = Console(soft_wrap=True, highlight=False)
    console.print(table(outcome.steps))
    for line in conclusion(outcome.steps, outcome.trace, judgement):
        console.print(line, markup=False)
    if judgement is not None and not judgement.rises:
        _end(WRONG, "the reward does not rise")


def _end(status: int, message: str) -> NoReturn:
    typer.echo(f"rl_loop: {message}", err=True)
    raise typer.Exit(status)


if __name__ == "__main__":
    typer.run(main)
