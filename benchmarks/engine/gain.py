"""What sharing gains on a real engine, under an agent-like load.

A few conversations with one long system prompt and growing histories, turn by turn, on an engine without sharing, with
sharing, and with sharing and a publication every few requests: time to the first token, and prompt tokens computed.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.engine.cost import IDLE
from reef_ref.engines.interface import Request
from reef_ref.engines.process import Server, serve
from reef_ref.scenarios.configuration import SECOND, THIRD, EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt
from reef_ref.scenarios.publication import publish
from reef_ref.testing.tiny_model import TinyShape

__all__ = ["Gain", "measure_gain"]

SHAPE = TinyShape(hidden_size=256, intermediate_size=1024, layers=4)
"""Large enough that a prefill takes longer than everything around it."""
SYSTEM_PROMPT = 1500
TURNS = 4
CONVERSATIONS = 4
USER_TOKENS = 60
ANSWER_TOKENS = 40
REQUEST_S = 120.0


@dataclass(frozen=True)
class Gain:
    """One variant of the engine: milliseconds to the first token, prompt tokens in all and those that were computed."""

    variant: str
    requests: int
    publications: int
    first_token_ms_median: float
    first_token_ms_p90: float
    prompt_tokens: int
    computed_tokens: int


async def measure_gain(folder: Path, every: int, say: Callable[[str], None]) -> tuple[Gain, ...]:
    """The same conversations on each variant; one publishes after every `every` requests."""
    models = Models(folder, SHAPE)
    for number in (1, 2):
        models.checkpoint(number)
    gains: list[Gain] = []
    for variant, sharing, publishing in (
        ("sharing off", False, False),
        ("sharing on", True, False),
        (f"sharing on, a publication every {every} requests", True, True),
    ):
        say(f"gain of sharing: {variant}")
        configuration = EngineConfiguration(
            sharing=sharing, provenance="report" if sharing else "off", idle=sharing, extra=IDLE
        )
        async with serve(configuration.settings(models, None)) as server:
            gains.append(await _agents(server, models, variant, every if publishing else None))
    return tuple(gains)


async def _agents(server: Server, models: Models, variant: str, every: int | None) -> Gain:
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
                answer = await _streamed(client, history)
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
class _Answer:
    first_token_ms: float
    cached_tokens: int
    output_ids: tuple[int, ...]


async def _streamed(client: httpx.AsyncClient, input_ids: tuple[int, ...]) -> _Answer:
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
        async for chunk in _chunks(response):
            first = first if first is not None else time.perf_counter() - started
            last = chunk
    meta = last.get("meta_info")
    output_ids = last.get("output_ids")
    if first is None or not isinstance(meta, dict) or not isinstance(output_ids, list):
        message = f"the stream ended without an answer: {last}"
        raise RuntimeError(message)
    return _Answer(1000 * first, int(meta["cached_tokens"]), tuple(output_ids))


async def _chunks(response: httpx.Response) -> AsyncIterator[dict[str, object]]:
    async for line in response.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))
