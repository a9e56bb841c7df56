"""What the whole monitor costs an engine: ``python -m benchmarks.soak.overhead [--keep]``.

Four engines get the same work in every round, one after the other in an order that is drawn anew each time: provenance
off; in report mode with nobody attached; the same, with its events and its coordinator's sent to a `reef-ref monitor`;
and a second one with nobody attached, whose difference from the first is what this machine cannot tell apart. In a
round with publications the coordinator publishes while requests run. What is reported is the median of the *paired*
ratios of a round, with the quartiles.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
import typer
from pydantic import TypeAdapter
from rich.console import Console

from benchmarks.engine.cost import GOAL, IDLE, LOADS, Load
from benchmarks.engine.results import Machine, this_machine
from benchmarks.sections import put
from benchmarks.soak.stage import fixed_ports
from benchmarks.soak.watcher import Watcher
from benchmarks.spread import Spread
from reef_ref import events
from reef_ref.cli.output import write
from reef_ref.control import ControlSettings
from reef_ref.coordinator import Coordinator
from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import PauseMode, Request
from reef_ref.engines.process import Server, serve
from reef_ref.health import Slots
from reef_ref.markers import MarkerFile
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.testing.trainer import WrittenTrainer
from reef_ref.training import Job, Trained

__all__ = ["KEPT", "RESULTS", "SECTION", "Overhead", "Results", "as_markdown", "measure", "overheads_of"]

SECTION = "overhead"
KEPT = Path(__file__).with_name("overhead.json")
OFF, BARE, TWIN, MONITORED = "off", "report", "report again", "report, monitored"
MODES = (OFF, BARE, TWIN, MONITORED)
PUBLISHING = "decode-heavy, a publication in each round"
WAYS: tuple[tuple[str, Load, bool], ...] = (
    (LOADS[0].name, LOADS[0], False),
    (LOADS[1].name, LOADS[1], False),
    (PUBLISHING, LOADS[0], True),
)
REQUEST_S = 300.0
LEAST = 3
"""Rounds that say something, where somebody interrupts."""
PAIRS = ((MONITORED, BARE), (TWIN, BARE), (MONITORED, OFF), (BARE, OFF))


@dataclass(frozen=True)
class Round:
    """Seconds of one round, and seconds between two tokens of a request, over all of them."""

    seconds: float
    token_seconds: float | None


@dataclass(frozen=True)
class Overhead:
    """How many times as long one way takes as another, in the same round: whole rounds, and between two tokens."""

    load: str
    mode: str
    against: str
    time: Spread
    token: Spread | None
    requests_per_second: float

    @property
    def within_goal(self) -> bool:
        """Whether the medians keep to the goal."""
        return self.time.median <= 1 + GOAL and (self.token is None or self.token.median <= 1 + GOAL)


@dataclass(frozen=True)
class Results:
    """Everything that one run measured."""

    machine: Machine
    rounds: int
    overheads: tuple[Overhead, ...]
    events: int


RESULTS = TypeAdapter(Results)


class _Engine:
    """An engine of one mode, and its coordinator."""

    def __init__(self, server: Server, client: httpx.AsyncClient, coordinator: Coordinator) -> None:
        self.server = server
        self._client = client
        self._coordinator = coordinator
        self._job = 0

    async def round(self, work: Sequence[Request], *, publishing: bool) -> Round:
        """All of the work at once, from a cleared cache, and perhaps a publication meanwhile."""
        await self.server.engine.flush()
        if publishing:
            self._job += 1
            await self._coordinator.train(Job(job=f"job-{self._job}", rollout=self._job))
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(self._streamed(request)) for request in work]
            if publishing:
                group.create_task(self._publish())
        seconds = time.perf_counter() - began
        between = [token for task in asked if (token := task.result()) is not None]
        return Round(seconds, None if publishing or not between else statistics.fmean(between))

    async def _publish(self) -> None:
        await asyncio.sleep(0.2)  # Into the midst of what runs.
        await self._coordinator.publish(f"job-{self._job}")
        await self._coordinator.acknowledge(f"job-{self._job}")

    async def _streamed(self, request: Request) -> float | None:
        """Seconds between two tokens of a request; none where it has too few."""
        sampling = {"temperature": 0.0, "max_new_tokens": request.max_new_tokens, "ignore_eos": True}
        body = {"input_ids": list(request.input_ids), "sampling_params": sampling, "stream": True}
        first = last = 0.0
        async with self._client.stream("POST", "/generate", json=body) as response:
            response.raise_for_status()
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    last = time.perf_counter()
                    first = first or last
        few = request.max_new_tokens < 16
        return None if few else (last - first) / (request.max_new_tokens - 1)


async def measure(folder: Path, rounds: int, say: Callable[[str], None]) -> Results:
    """Start an engine for each mode, and give all of them each round's work."""
    models = Models(folder / "models")
    for number in (1, 2):
        models.checkpoint(number)
    found: dict[str, dict[str, list[Round]]] = {name: {mode: [] for mode in MODES} for name, _, _ in WAYS}
    async with AsyncExitStack() as stack:
        port, socket = fixed_ports(1)[0], folder / "monitor"
        watcher = Watcher(1, socket, {0: f"http://127.0.0.1:{port}"}, {})
        stack.push_async_callback(watcher.stop)
        await watcher.start()
        say("starting engines")
        async with asyncio.TaskGroup() as group:
            starts = {mode: group.create_task(_engine(stack, folder, models, mode, socket)) for mode in MODES}
        engines = {mode: start.result() for mode, start in starts.items()}
        order = random.Random(0)
        try:
            for number in range(-1, rounds):  # One round to warm up.
                for name, load, publishing in WAYS:
                    say(f"round {number + 1} of {rounds}: {name}")
                    for mode in order.sample(MODES, len(MODES)):
                        taken = await engines[mode].round(load.work(number + 1), publishing=publishing)
                        if number >= 0:
                            found[name][mode].append(taken)
        except asyncio.CancelledError:  # Whole rounds are worth what they are worth.
            rounds = min(len(taken) for modes in found.values() for taken in modes.values())
            if rounds < LEAST:
                raise
            found = {name: {mode: all_[:rounds] for mode, all_ in modes.items()} for name, modes in found.items()}
        status = await watcher.status()
    counts = status["counts"]
    if counts["violations"] or counts["lost"]:
        message = f"the monitor found {counts['violations']} violations and lost {counts['lost']} events"
        raise RuntimeError(message)
    overheads = tuple(o for name, load, _ in WAYS for o in overheads_of(name, load, found[name]))
    return Results(this_machine(), rounds, overheads, counts["ranks"] + counts["coordinator"])


async def _engine(stack: AsyncExitStack, folder: Path, models: Models, mode: str, socket: Path) -> _Engine:
    monitored = mode == MONITORED
    configuration = EngineConfiguration(provenance="off" if mode == OFF else "report", extra=IDLE)
    plain = configuration.settings(models, None)
    told = {"REEF_REF_EVENTS": f"unix:{socket}", "REEF_REF_ENGINE": "0"} if monitored else {}
    server = await stack.enter_async_context(
        serve(dataclasses.replace(plain, environment={**plain.environment, **told}))
    )
    client = httpx.AsyncClient(base_url=server.engine.address, timeout=REQUEST_S, trust_env=False)
    await stack.enter_async_context(client)
    place = folder / mode.replace(" ", "-").replace(",", "")
    place.mkdir()
    outlet = events.EventOutlet(f"unix:{socket}") if monitored else None
    if outlet is not None:
        stack.callback(outlet.close)
    coordinator = Coordinator(
        slots=Slots([server.engine]),
        settings=ControlSettings(pause_mode=PauseMode.RETRACT, owned=False),
        marker=stack.enter_context(MarkerFile(place)),
        trainer=WrittenTrainer(models.checkpoint(1), models.checkpoint(2)),
        initial=Trained(models.checkpoint(1)),
        listener=outlet,
    )
    await coordinator.start()
    return _Engine(server, client, coordinator)


def overheads_of(name: str, load: Load, rounds: Mapping[str, Sequence[Round]]) -> list[Overhead]:
    """What the rounds say of each pair of modes."""
    found = []
    for mode, against in PAIRS:
        pairs = list(zip(rounds[mode], rounds[against], strict=True))
        tokens = [a.token_seconds / b.token_seconds for a, b in pairs if a.token_seconds and b.token_seconds]
        found.append(
            Overhead(
                load=name,
                mode=mode,
                against=against,
                time=Spread.of([a.seconds / b.seconds for a, b in pairs]),
                token=Spread.of(tokens) if len(tokens) > 1 else None,
                requests_per_second=load.requests / statistics.median(one.seconds for one in rounds[mode]),
            )
        )
    return found


def as_markdown(results: Results) -> str:
    """The README's section."""
    machine = results.machine
    where = f"{machine.cores} cores ({machine.architecture}), SGLang {machine.sglang}, torch {machine.torch}"
    lines = [
        f"Measured on {where}, in one run, in {results.rounds} pairs: median (quartiles). The monitor took "
        f"{results.events:,} events. *Report again* is a second engine of the same kind: what two of them differ by.",
        "",
        f"| load | what | against | requests/s | times as long | between tokens | within {GOAL:.0%} |",
        "|---|---|---|--:|--:|--:|---|",
    ]
    lines += [
        f"| {one.load} | {one.mode} | {one.against} | {one.requests_per_second:.2f} | {one.time.text(3)} "
        f"| {'' if one.token is None else one.token.text(3)} | {'yes' if one.within_goal else 'no'} |"
        for one in results.overheads
    ]
    return "\n".join(lines)


def main(
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of each load.")] = 15,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the results, and write the README's section.")] = False,
) -> None:
    """Measure on real engines, and print a table."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="reef-ref-overhead-") as name, console.status("") as status:
        try:
            results = asyncio.run(measure(Path(name), rounds, status.update))
        except KeyboardInterrupt:
            typer.echo("error: interrupted", err=True)
            raise typer.Exit(1) from None
        except (EngineError, RuntimeError) as error:
            typer.echo(f"error: {error}", err=True)
            raise typer.Exit(1) from error
    if keep:
        write(KEPT, RESULTS.dump_json(results, indent=2).decode() + "\n")
        put(SECTION, as_markdown(results))
    typer.echo(as_markdown(results))


if __name__ == "__main__":
    typer.run(main)
