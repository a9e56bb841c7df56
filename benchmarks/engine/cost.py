"""What provenance costs on a real engine.

Three engines that differ in the provenance mode alone (off, report, enforce) get the same work in every round, one
after the other in an order that is drawn anew each time. What is reported is the median of the *paired* ratios of a
round, with the quartiles: a slow moment of the machine hits one round and not one mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.spread import Spread
from reef_ref.engines.interface import Request
from reef_ref.engines.process import Server, serve
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt

__all__ = ["GOAL", "IDLE", "LOADS", "Cost", "Load", "costs_of", "measure_cost"]

MODES = ("off", "report", "enforce")
IDLE = ("--sleep-on-idle",)  # An engine that waits for its turn must not take the other's core.
GOAL = 0.01
"""The share of time that provenance may take."""


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
    """A mode under a load: its typical speed, and its time in parts of that of the same round with provenance off."""

    load: str
    mode: str
    requests_per_second: float
    tokens_per_second: float
    of_off: Spread

    @property
    def within_goal(self) -> bool:
        """Whether the median keeps to `GOAL`."""
        return self.of_off.median <= 1 + GOAL


async def measure_cost(folder: Path, rounds: int, say: Callable[[str], None]) -> tuple[Cost, ...]:
    """Start an engine for each mode, and give all of them each round's work."""
    models = Models(folder)
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
            seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
            for number in range(-1, rounds):  # One round to warm up.
                say(f"cost of provenance, {load.name}: round {number + 1} of {rounds}")
                for mode in order.sample(MODES, len(MODES)):
                    taken = await _one_round(servers[mode], load.work(number + 1))
                    if number >= 0:
                        seconds[mode].append(taken)
            costs += costs_of(load, seconds)
        return tuple(costs)


async def _one_round(server: Server, work: Sequence[Request]) -> float:
    """Seconds for the whole work, from a cleared cache."""
    await server.engine.flush()
    started = time.perf_counter()
    await asyncio.gather(*(server.engine.generate(request) for request in work))
    return time.perf_counter() - started


def costs_of(load: Load, seconds: Mapping[str, Sequence[float]]) -> list[Cost]:
    """What the rounds' seconds say of each mode."""
    return [
        Cost(
            load=load.name,
            mode=mode,
            requests_per_second=load.requests / statistics.median(taken),
            tokens_per_second=load.tokens / statistics.median(taken),
            of_off=Spread.of([ours / off for ours, off in zip(taken, seconds["off"], strict=True)]),
        )
        for mode, taken in seconds.items()
    ]
