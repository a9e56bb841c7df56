"""Requests in flight: started together, known to be decoding, and what must be true of each afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from reef_ref.engines.interface import Generation, Request
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Route
from reef_ref.scenarios.configuration import Load
from reef_ref.scenarios.prompts import conforms, prompt, small_schema
from reef_ref.scenarios.stage import Stage

__all__ = ["boundary", "check_long", "check_schema", "decoding", "long_requests", "schema_requests", "spans_in_order"]

LONG_TOKENS = 3000
PROMPT_TOKENS = 300
SCHEMA_FIELDS = 40
DECODING_BOUND_S = 120.0
POLL_S = 0.1


def long_requests(count: int, tokens: int = LONG_TOKENS, prompt_tokens: int = PROMPT_TOKENS) -> tuple[Request, ...]:
    """`count` greedy requests of exactly `tokens` output tokens on different prompts."""
    return tuple(
        Request(input_ids=prompt(1000 + number, prompt_tokens), max_new_tokens=tokens) for number in range(count)
    )


def schema_requests(count: int) -> tuple[Request, ...]:
    """`count` requests whose output has to be a JSON object, each with a schema of its own."""
    return tuple(
        Request(
            input_ids=prompt(2000 + number, PROMPT_TOKENS),
            max_new_tokens=LONG_TOKENS,
            ignore_eos=False,
            json_schema=small_schema(SCHEMA_FIELDS, f"f{number}x"),
        )
        for number in range(count)
    )


async def decoding(engine: SGLangEngine) -> None:
    """Wait until the engine has decoded for a while since this was called; bounded.

    SGLang measures its throughput anew every 40 decoding steps: two new values mean that at least one whole interval
    has passed. Raises `TimeoutError`.
    """
    async with asyncio.timeout(DECODING_BOUND_S):
        seen = {await _throughput(engine)}
        while len(seen) < 3:
            await asyncio.sleep(POLL_S)
            seen.add(await _throughput(engine))


async def _throughput(engine: SGLangEngine) -> float:
    answer = await engine.wire.call(Route.SERVER_INFO, None, DECODING_BOUND_S)
    return float(answer.body["internal_states"][0]["last_gen_throughput"])


def spans_in_order(generation: Generation, old: Load, new: Load) -> bool:
    """Whether the labels cover the output without a gap, the old id only before the new one and no third."""
    position = 0
    for span in generation.spans:
        if span.start != position:
            return False
        position = span.end
    ids = [span.load_id for span in generation.spans]
    return position == len(generation.output_ids) and ids in ([old.load_id], [new.load_id], [old.load_id, new.load_id])


def boundary(generation: Generation, new: Load) -> int:
    """The number of output tokens labelled with an id other than that of `new`."""
    return sum(span.end - span.start for span in generation.spans if span.load_id != new.load_id)


def check_long(
    stage: Stage, generations: Sequence[Generation], old: Load, new: Load, tokens: int = LONG_TOKENS
) -> None:
    """All long requests complete in full, each with tokens of both loads, in order."""
    count = len(generations)
    complete = sum(len(generation.output_ids) == tokens for generation in generations)
    stage.equal(f"requests with {tokens} of {tokens} tokens", f"{complete} of {count}", f"{count} of {count}")
    ordered = sum(
        spans_in_order(generation, old, new) and 0 < boundary(generation, new) < tokens for generation in generations
    )
    stage.equal(f"requests labelled {old.load_id}, then {new.load_id}", f"{ordered} of {count}", f"{count} of {count}")
    stage.note(f"tokens before {new.load_id}", [boundary(generation, new) for generation in generations])


def check_schema(
    stage: Stage, requests: Sequence[Request], generations: Sequence[Generation], old: Load, new: Load
) -> None:
    """All schema requests complete with valid JSON, their labels in order."""
    count = len(generations)
    valid = sum(
        generation.finish == "stop" and conforms(generation.text, request.json_schema or "")
        for request, generation in zip(requests, generations, strict=True)
    )
    stage.equal("valid JSON objects", f"{valid} of {count}", f"{count} of {count}")
    ordered = sum(spans_in_order(generation, old, new) for generation in generations)
    stage.equal(
        f"JSON requests labelled in order, {old.load_id} or {new.load_id} only",
        f"{ordered} of {count}",
        f"{count} of {count}",
    )
