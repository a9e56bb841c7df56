"""Every kind of violation, injected into real engines: ``python -m benchmarks.soak.injected [--keep]``.

Prints who noticed what, how fast, and what was done about it; ends 1 where something was missed, or lost that should
live. ``--keep`` writes the README's section. It takes a few minutes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from benchmarks.sections import put
from benchmarks.soak import special
from benchmarks.soak.acts import ACTS, POLICY, Act, Field
from benchmarks.soak.clients import Answers
from benchmarks.soak.inject import Injector, Outcome
from benchmarks.soak.relay import Relay
from benchmarks.soak.stage import CHECKPOINTS, ENGINES, Unsettled, client, fixed_ports, staged
from benchmarks.soak.watcher import Watcher
from reef_ref.cli.output import write
from reef_ref.engines.checkpoint import read_layout
from reef_ref.engines.errors import EngineError
from reef_ref.scenarios.models import Models

__all__ = ["KEPT", "OUTCOMES", "SECTION", "as_markdown", "injected", "learnt", "table"]

SECTION = "injected"
KEPT = Path(__file__).with_name("injected.json")
OUTCOMES = TypeAdapter(list[Outcome])


async def learnt(field: Field, answers: Answers, engines: Sequence[object]) -> None:
    """Have every checkpoint asked everything, on an engine that could reuse nothing stale."""
    from reef_ref.engines.sglang_engine import SGLangEngine

    engine = engines[0]
    assert isinstance(engine, SGLangEngine)
    for _ in range(2 * len(CHECKPOINTS)):
        await answers.learn(engine, field.stage.checkpoint)
        if answers.complete:
            return
        await field.stage.publish()
    message = "the checkpoints do not differ in what they answer"
    raise RuntimeError(message)


async def injected(
    folder: Path,
    outcomes: list[Outcome],
    acts: Iterable[Act] = ACTS,
    *,
    specials: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Inject one after the other into one deployment, then those that need an engine of their own.

    Args:
        outcomes: where what came of each is put, so that it is there whatever happens to the next.
    """
    ports = fixed_ports(ENGINES)
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    inner, outer = folder / "monitor", folder / "relay"
    async with AsyncExitStack() as stack:
        watcher = Watcher(ENGINES, inner, dict(enumerate(addresses)), POLICY)
        say("starting the monitor and two engines")
        stack.push_async_callback(watcher.stop)
        await watcher.start()
        relay = await stack.enter_async_context(Relay.between(outer, inner))
        stage = await stack.enter_async_context(staged(folder, outer, ports))
        field = await stack.enter_async_context(Field.over(stage, addresses))
        layout = await asyncio.to_thread(read_layout, stage.models.checkpoint(CHECKPOINTS[0]))
        engines = [client(address, layout) for address in addresses]
        for engine in engines:
            stack.push_async_callback(engine.shut_down)
        answers = Answers()
        await learnt(field, answers, engines)
        injector = Injector(field, watcher, engines, answers, relay)
        for act in acts:
            say(act.name)
            outcomes.append(await injector.inject(act))
        if specials:
            for kind in (special.lost_events, special.unfenced_replacement):
                say(kind.__name__.replace("_", " "))
                outcomes.append(await kind(injector))
    if specials:
        models = Models(folder / "models")
        for alone in (special.provenance_off, special.another_adapters_kv):
            say(alone.__name__.replace("_", " "))
            outcomes.append(await alone(folder / alone.__name__, models))


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    """The README's section."""
    missed = sum(one.property is None for one in outcomes)
    amiss = sum(bool(one.faults) for one in outcomes)
    lines = [
        f"{len(outcomes)} kinds, each injected once into two real engines with requests in flight: {missed} missed, "
        f"{amiss} with something amiss. *Events* are those of the source that shows it, from the beginning of the act; "
        "*seconds* run from there to the monitor's line, and have in them what the act itself takes; the *lag* is the "
        "monitor's part of it, from the event to the line.",
        "",
        "| injected | by | found as | events | seconds | lag | done about it |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    lines += [
        f"| {one.act} | {one.by} | {'missed' if one.property is None else one.property} "
        f"| {'' if one.events is None else one.events} | {one.seconds:.2f} | {_lag(one)} | {one.reaction} |"
        for one in outcomes
    ]
    lines += [f"\n* {one.act}: {'; '.join(one.faults)}" for one in outcomes if one.faults]
    return "\n".join(lines)


def table(outcomes: Sequence[Outcome]) -> Table:
    """The same for a terminal."""
    found = Table("injected", "by", "found as", "events", "seconds", "lag", "done about it", "amiss")
    for one in outcomes:
        events = "" if one.events is None else str(one.events)
        property_ = one.property or "[red]missed[/red]"
        amiss = "; ".join(one.faults)
        found.add_row(one.act, one.by, property_, events, f"{one.seconds:.2f}", _lag(one), one.reaction, amiss)
    return found


def _lag(one: Outcome) -> str:
    return "" if one.lag is None else f"{1000 * one.lag:.0f} ms"


def main(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the results, and write the README's section.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only these; may be given again.")] = None,
) -> None:
    """Inject every kind of violation into real engines, and say what came of it."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    acts = [act for act in ACTS if not only or act.name in only]
    if (only and len(acts) != len(only)) or (keep and only):
        typer.echo("error: --only takes names of kinds, and is not for --keep", err=True)
        raise typer.Exit(2)
    console, outcomes, error = Console(stderr=True), list[Outcome](), ""
    with tempfile.TemporaryDirectory(prefix="reef-ref-injected-") as name, console.status("") as status:
        try:
            asyncio.run(injected(Path(name), outcomes, acts, specials=not only, say=status.update))
        except KeyboardInterrupt:
            error = "interrupted"
        except (EngineError, Unsettled, TimeoutError, RuntimeError) as failure:
            error = f"{type(failure).__name__}: {failure}"
    Console(width=None if console.is_terminal else 200).print(table(outcomes))
    if error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1)
    if keep:
        write(KEPT, OUTCOMES.dump_json(outcomes, indent=2).decode() + "\n")
        put(SECTION, as_markdown(outcomes))
    if any(one.faults for one in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
