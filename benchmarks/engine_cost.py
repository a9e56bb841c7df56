"""What provenance costs on a real engine, and what sharing gains there.

Cost: three engines that differ in the provenance mode alone (off, report, enforce) get the same work in every round,
one after the other in an order that is drawn anew each time. What is reported is the median of the *paired* ratios of a
round, with the quartiles: a slow moment of the machine hits one round and not one mode.

Gain: an agent-like load (a long common system prompt, growing histories, four turns) on an engine without sharing, with
sharing, and with sharing and a publication every few requests: time to the first token, and prompt tokens computed.

    python benchmarks/engine_cost.py [--part cost|gain|all] [--rounds N] [--format text|json] [--output FILE]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import httpx
import typer

from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import Request
from reef_ref.engines.process import Server, serve
from reef_ref.scenarios.configuration import FIRST, SECOND, THIRD, EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.report import write_atomically

SCHEMA = "reef-ref/engine-cost/1"
MODES = ("off", "report", "enforce")
IDLE = ("--sleep-on-idle",)  # An engine that waits for its turn must not take the other's core.
GOAL = 0.01

SYSTEM_PROMPT = 1500
TURNS = 4
CONVERSATIONS = 4
USER_TOKENS = 60
ANSWER_TOKENS = 40
REQUEST_S = 120.0


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"


class Part(StrEnum):
    COST = "cost"
    GAIN = "gain"
    ALL = "all"


@dataclass(frozen=True)
class Load:
    """Work of one round: `requests` at once, each with `prompt_tokens` in, `common` of them shared, and output."""

    name: str
    requests: int
    prompt_tokens: int
    common: int
    output_tokens: int

    def work(self, number: int) -> tuple[Request, ...]:
        """The requests of round `number`; other rounds have other prompts."""
        start = prompt(10 * number, self.common)
        return tuple(
            Request(
                input_ids=start + prompt(10 * number + 1 + index, self.prompt_tokens - self.common),
                max_new_tokens=self.output_tokens,
            )
            for index in range(self.requests)
        )

    @property
    def tokens(self) -> int:
        """Prompt and output tokens of a round."""
        return self.requests * (self.prompt_tokens + self.output_tokens)


LOADS = (
    Load("decode-heavy", requests=8, prompt_tokens=32, common=16, output_tokens=256),
    Load("prefill-heavy", requests=8, prompt_tokens=1500, common=1000, output_tokens=4),
)


@dataclass(frozen=True)
class Cost:
    """Paired cost of a mode: ratios of a round's seconds to those of the same round with provenance off."""

    load: str
    mode: str
    rounds: int
    requests_per_second: float
    tokens_per_second: float
    ratio_median: float
    ratio_quartiles: tuple[float, float]

    @property
    def within_goal(self) -> bool:
        return self.ratio_median <= 1 + GOAL


@dataclass(frozen=True)
class Gain:
    """An agent-like load: milliseconds to the first token, prompt tokens in all and those that were computed."""

    variant: str
    requests: int
    publications: int
    first_token_ms_median: float
    first_token_ms_p90: float
    prompt_tokens: int
    computed_tokens: int


async def measure_cost(models: Models, rounds: int) -> list[Cost]:
    async with contextlib.AsyncExitStack() as stack:
        servers = {
            mode: await stack.enter_async_context(
                serve(EngineConfiguration(provenance=mode, extra=IDLE).settings(models, None))
            )
            for mode in MODES
        }
        order = random.Random(0)
        costs: list[Cost] = []
        for load in LOADS:
            typer.echo(f"{load.name}: {rounds} rounds on {len(MODES)} engines", err=True)
            seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
            for number in range(-1, rounds):  # One round to warm up.
                for mode in order.sample(MODES, len(MODES)):
                    taken = await one_round(servers[mode], load.work(number + 1))
                    if number >= 0:
                        seconds[mode].append(taken)
            costs += [cost_of(load, mode, seconds) for mode in MODES]
        return costs


async def one_round(server: Server, work: Sequence[Request]) -> float:
    """Seconds for the whole work, from a cleared cache."""
    await server.engine.flush()
    started = time.perf_counter()
    await asyncio.gather(*(server.engine.generate(request) for request in work))
    return time.perf_counter() - started


def cost_of(load: Load, mode: str, seconds: dict[str, list[float]]) -> Cost:
    ratios = [taken / plain for taken, plain in zip(seconds[mode], seconds["off"], strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    typical = statistics.median(seconds[mode])
    return Cost(
        load=load.name,
        mode=mode,
        rounds=len(ratios),
        requests_per_second=load.requests / typical,
        tokens_per_second=load.tokens / typical,
        ratio_median=median,
        ratio_quartiles=(low, high),
    )


async def measure_gain(models: Models, every: int) -> list[Gain]:
    gains: list[Gain] = []
    for variant, sharing, publishing in (
        ("sharing off", False, False),
        ("sharing on", True, False),
        (f"sharing on, a publication every {every} requests", True, True),
    ):
        typer.echo(f"agent-like load, {variant}", err=True)
        configuration = EngineConfiguration(
            sharing=sharing, provenance="report" if sharing else "off", idle=sharing, extra=IDLE
        )
        async with serve(configuration.settings(models, None)) as server:
            gains.append(await agent_load(server, models, variant, every if publishing else None))
    return gains


async def agent_load(server: Server, models: Models, variant: str, every: int | None) -> Gain:
    system = prompt(1, SYSTEM_PROMPT)
    histories = [system for _ in range(CONVERSATIONS)]
    await server.engine.generate(Request(input_ids=prompt(2, 64), max_new_tokens=8))  # To warm up.
    first_ms: list[float] = []
    whole = computed = publications = 0
    loads = (SECOND, THIRD)
    async with httpx.AsyncClient(base_url=server.engine.address, timeout=REQUEST_S, trust_env=False) as client:
        for turn in range(TURNS):
            for index in range(CONVERSATIONS):
                if every is not None and first_ms and len(first_ms) % every == 0:
                    load = loads[publications % len(loads)]
                    publications += 1
                    name = f"engine:{publications + 1}"
                    await publish(server.engine, models.checkpoint(load.checkpoint), name)
                question = prompt(1000 + TURNS * index + turn, USER_TOKENS)
                history = histories[index] + question
                answer = await streamed(client, history)
                first_ms.append(answer.first_token_ms)
                whole += len(history)
                computed += len(history) - answer.cached_tokens
                histories[index] = history + answer.output_ids
    return Gain(
        variant=variant,
        requests=len(first_ms),
        publications=publications,
        first_token_ms_median=statistics.median(first_ms),
        first_token_ms_p90=statistics.quantiles(first_ms, n=10)[-1],
        prompt_tokens=whole,
        computed_tokens=computed,
    )


@dataclass(frozen=True)
class Answer:
    first_token_ms: float
    cached_tokens: int
    output_ids: tuple[int, ...]


async def streamed(client: httpx.AsyncClient, input_ids: tuple[int, ...]) -> Answer:
    """One request, with the time from sending it to its first token."""
    body = {
        "input_ids": list(input_ids),
        "sampling_params": {"temperature": 0.0, "max_new_tokens": ANSWER_TOKENS, "ignore_eos": True},
        "stream": True,
    }
    started = time.perf_counter()
    first: float | None = None
    last: dict[str, object] = {}
    async with client.stream("POST", "/generate", json=body) as response:
        async for chunk in chunks(response):
            first = first if first is not None else time.perf_counter() - started
            last = chunk
    meta = last.get("meta_info")
    output_ids = last.get("output_ids")
    if first is None or not isinstance(meta, dict) or not isinstance(output_ids, list):
        message = f"the stream ended without an answer: {last}"
        raise RuntimeError(message)
    return Answer(1000 * first, int(meta["cached_tokens"]), tuple(output_ids))


async def chunks(response: httpx.Response) -> AsyncIterator[dict[str, object]]:
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def as_text(costs: Sequence[Cost], gains: Sequence[Gain]) -> str:
    lines: list[str] = []
    if costs:
        lines.append("load           mode     requests/s  tokens/s  seconds of off (median, quartiles)  within 1 %")
    for cost in costs:
        low, high = cost.ratio_quartiles
        verdict = "" if cost.mode == "off" else "yes" if cost.within_goal else "no"
        lines.append(
            f"{cost.load:14} {cost.mode:8} {cost.requests_per_second:10.2f} {cost.tokens_per_second:9.0f}"
            f"  {cost.ratio_median:.3f} ({low:.3f} to {high:.3f}), {cost.rounds} rounds  {verdict}"
        )
    if gains:
        lines.append(
            "agent-like load                                  first token ms (median, p90)  prompt tokens computed"
        )
    for gain in gains:
        share = gain.computed_tokens / gain.prompt_tokens
        lines.append(
            f"{gain.variant:48} {gain.first_token_ms_median:8.1f} {gain.first_token_ms_p90:8.1f}"
            f"             {gain.computed_tokens} of {gain.prompt_tokens} ({share:.0%}), "
            f"{gain.publications} publications"
        )
    return "\n".join(lines)


def as_json(costs: Sequence[Cost], gains: Sequence[Gain], rounds: int) -> str:
    document = {
        "schema": SCHEMA,
        "machine": {"cores": os.cpu_count(), "load_average_at_end": os.getloadavg()[0]},
        "rounds": rounds,
        "cost": [asdict(cost) | {"within_goal": cost.within_goal} for cost in costs],
        "gain": [asdict(gain) for gain in gains],
    }
    return json.dumps(document, indent=2) + "\n"


async def measure(part: Part, rounds: int, every: int) -> tuple[list[Cost], list[Gain]]:
    with tempfile.TemporaryDirectory(prefix="reef-ref-engine-cost-") as folder:
        models = Models(Path(folder))
        for load in (FIRST, SECOND):
            models.checkpoint(load.checkpoint)
        costs = await measure_cost(models, rounds) if part is not Part.GAIN else []
        gains = await measure_gain(models, every) if part is not Part.COST else []
        return costs, gains


def main(
    part: Annotated[Part, typer.Option(help="What to measure.")] = Part.ALL,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each load.")] = 15,
    every: Annotated[int, typer.Option(min=1, help="Requests between publications.")] = 6,
    output_format: Annotated[Format, typer.Option("--format", help="Format of the results.")] = Format.TEXT,
    output: Annotated[Path | None, typer.Option("--output", help="Also write the results as JSON here.")] = None,
) -> None:
    """Measure what provenance costs and what sharing gains on real engines."""
    if output is not None and not output.parent.is_dir():
        typer.echo(f"error: --output {output}: the folder {output.parent} does not exist", err=True)
        raise typer.Exit(2)
    try:
        costs, gains = asyncio.run(measure(part, rounds, every))
    except EngineError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    document = as_json(costs, gains, rounds)
    if output is not None:
        write_atomically(output, document)
    typer.echo(document.rstrip() if output_format is Format.JSON else as_text(costs, gains))


if __name__ == "__main__":
    typer.run(main)
