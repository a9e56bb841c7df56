"""A repeated prompt before and after a publication, in both layouts that keep an engine serving."""

from __future__ import annotations

import asyncio

from reef_ref.engines.interface import CacheState, PauseMode, Request
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.configuration import FIRST, SECOND, EngineConfiguration, Fresh
from reef_ref.scenarios.prompts import LONG_PROMPT, prompt
from reef_ref.scenarios.provenance import check_no_stale_hit
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.stage import Stage
from reef_ref.scenarios.traffic import LONG_TOKENS, boundary, check_long, decoding, long_requests

__all__ = ["DISJOINT_DEFAULT", "DISJOINT_SHARING", "LONG_REQUEST", "share_across_publication"]

LONG_REQUEST = Request(input_ids=prompt(1, LONG_PROMPT), max_new_tokens=32)
REUSED = LONG_PROMPT - 2


async def disjoint_default(stage: Stage) -> None:
    """In place and without sharing: requests run on across the publication, nothing is ever reused."""
    requests = long_requests(4)
    async with stage.engine(EngineConfiguration(sharing=False, provenance="off", idle=False)) as subject:
        engine = subject.engine
        for occasion in ("first", "repeated"):
            generation = await engine.generate(LONG_REQUEST)
            stage.equal(f"cached tokens, {occasion} prompt of {LONG_PROMPT}", generation.cached_tokens, 0)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(engine.generate(request)) for request in requests]
            await decoding(engine)
            publication = await publish(
                engine, stage.models.checkpoint(2), SECOND.load_id, mode=PauseMode.IN_PLACE, flush=False
            )
        generations = [task.result() for task in running]
        stage.equal("health while paused", publication.health_while_paused.alive, True)
        check_long(stage, generations, FIRST, SECOND)
        stage.equal("retractions", sum(generation.retractions for generation in generations), 0)
        after = await engine.generate(LONG_REQUEST)
        stage.equal("cached tokens after the publication", after.cached_tokens, 0)
    stage.like_fresh(
        "tokens of a new request after the publication", Fresh(checkpoint=2), LONG_REQUEST, after.output_ids
    )
    # With overlap scheduling one result is under way at the pause: its token is labelled new although the old load
    # sampled it. The label is SGLang's; what counts here is that the fresh old engine agrees to that token inclusively.
    first = generations[0]
    until = boundary(first, SECOND) + 1
    stage.like_fresh(
        f"tokens up to the first one labelled {SECOND.load_id}, in place with overlap",
        Fresh(checkpoint=1),
        Request(input_ids=requests[0].input_ids, max_new_tokens=until),
        first.output_ids[:until],
    )


async def disjoint_sharing(stage: Stage) -> None:
    """Retract with sharing: full reuse, none right after the publication, full reuse again."""
    async with stage.engine(EngineConfiguration()) as subject:
        await share_across_publication(stage, subject.engine, Fresh(checkpoint=2))
        await check_no_stale_hit(stage, subject, least_checked=2)


async def share_across_publication(stage: Stage, engine: SGLangEngine, fresh: Fresh) -> None:
    """The long prompt twice, a publication, and twice again, with tokens as on a fresh engine."""
    stage.equal("cached tokens, first time", (await engine.generate(LONG_REQUEST)).cached_tokens, 0)
    before = await engine.generate(LONG_REQUEST)
    stage.at_least(f"cached tokens of {LONG_PROMPT}, repeated", before.cached_tokens, REUSED)
    publication = await publish(engine, stage.models.checkpoint(2), SECOND.load_id)
    flush = publication.flush
    assert flush is not None
    stage.equal("the flush", flush.cache.value, CacheState.CLEARED.value)
    stage.equal("health while paused", publication.health_while_paused.alive, True)
    stage.equal("load id of the scheduler", publication.report.load_id, SECOND.load_id)
    stage.equal("load id of the front end", publication.report.front_end_load_id, SECOND.load_id)
    after = await engine.generate(LONG_REQUEST)
    stage.equal("cached tokens right after the publication", after.cached_tokens, 0)
    again = await engine.generate(LONG_REQUEST)
    stage.at_least(f"cached tokens of {LONG_PROMPT}, repeated again", again.cached_tokens, REUSED)
    stage.check(
        "the publication shows in the tokens",
        "different" if after.output_ids != before.output_ids else "the same",
        "different",
        after.output_ids != before.output_ids,
    )
    stage.like_fresh("tokens right after the publication", fresh, LONG_REQUEST, after.output_ids)
    stage.like_fresh("tokens of the request that reuses", fresh, LONG_REQUEST, again.output_ids)


DISJOINT_DEFAULT = Scenario(
    name="disjoint-default",
    shows=f"in place, sharing off: nothing reused, 4 requests of {LONG_TOKENS} tokens run on across a publication",
    run=disjoint_default,
    cases=("X5",),
)
DISJOINT_SHARING = Scenario(
    name="disjoint-sharing",
    shows="retract, sharing on: the whole prompt reused, nothing right after a publication, and reused again",
    run=disjoint_sharing,
    cases=("C42", "X15"),
)
