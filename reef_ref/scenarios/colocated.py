"""Trainer and engine on one device: memory is released around the update, and adapters share it."""

from __future__ import annotations

from reef_ref.engines.interface import Request
from reef_ref.scenarios.configuration import SECOND, EngineConfiguration, Fresh
from reef_ref.scenarios.in_flight import compare_both_sides, publish_in_flight
from reef_ref.scenarios.prompts import prompt
from reef_ref.scenarios.provenance import check_no_stale_hit
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.sharing import LONG_REQUEST, REUSED
from reef_ref.scenarios.stage import Stage

__all__ = ["COLOCATED", "COLOCATED_LORA"]

ADAPTERS = ("A", "B")
LORA_PROMPT = 600
SEQUENCE: tuple[str | None, ...] = ("A", "A", "B", "B", None, None, "A")


async def colocated(stage: Stage) -> None:
    """Everything is released at the barrier, weights come back for the update, KV after it."""
    async with stage.engine(EngineConfiguration(memory_saver=True)) as subject:
        engine = subject.engine
        stage.equal("cached tokens, first time", (await engine.generate(LONG_REQUEST)).cached_tokens, 0)
        stage.at_least("cached tokens, repeated", (await engine.generate(LONG_REQUEST)).cached_tokens, REUSED)
        generations = await publish_in_flight(stage, engine, long=6, schema=8, release=True)
        after = await engine.generate(LONG_REQUEST)
        stage.equal("cached tokens after the publication", after.cached_tokens, 0)
        stage.at_least("cached tokens, repeated after it", (await engine.generate(LONG_REQUEST)).cached_tokens, REUSED)
        await check_no_stale_hit(stage, subject, least_checked=2)
    stage.like_fresh("tokens after the publication", Fresh(checkpoint=2), LONG_REQUEST, after.output_ids)
    compare_both_sides(stage, generations)


async def colocated_lora(stage: Stage) -> None:
    """One prompt under two adapters and none: each reuses its own prefix, a publication clears all of them."""
    fresh = Fresh(checkpoint=2, adapters=ADAPTERS)
    async with stage.engine(EngineConfiguration(memory_saver=True, adapters=ADAPTERS)) as subject:
        engine = subject.engine
        seen = [(await engine.generate(_on(adapter))).cached_tokens for adapter in SEQUENCE]
        reused = LORA_PROMPT - 1
        names = " ".join(adapter or "base" for adapter in SEQUENCE)
        stage.equal(f"cached tokens of {LORA_PROMPT} for {names}", seen, [0, reused, 0, reused, 0, reused, reused])
        await publish(engine, stage.models.checkpoint(2), SECOND.load_id, release=True)
        for adapter in (*ADAPTERS, None):
            name = adapter or "base"
            generation = await engine.generate(_on(adapter))
            stage.equal(f"cached tokens after the publication, {name}", generation.cached_tokens, 0)
            stage.like_fresh(f"tokens after the publication, {name}", fresh, _on(adapter), generation.output_ids)
        stage.equal("cached tokens, A repeated", (await engine.generate(_on("A"))).cached_tokens, reused)
        await check_no_stale_hit(stage, subject, least_checked=5)


def _on(adapter: str | None) -> Request:
    return Request(input_ids=prompt(7, LORA_PROMPT), max_new_tokens=32, adapter=adapter)


COLOCATED = Scenario(
    name="colocated",
    shows="pause, flush, release all, weights back, update, KV back: requests in flight complete, the cache is empty",
    run=colocated,
)
COLOCATED_LORA = Scenario(
    name="colocated-lora",
    shows="two adapters and the base on one prompt: reuse within each, never across, nothing after a publication",
    run=colocated_lora,
    cases=("C69", "C71"),
)
