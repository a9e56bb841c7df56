"""Public reports that a real engine can show and that no other scenario covers."""

from __future__ import annotations

import asyncio

from reef_ref.engines.interface import Limits, PauseMode, Request
from reef_ref.engines.wire import Route
from reef_ref.scenarios.configuration import FIRST, SECOND, EngineConfiguration, Fresh
from reef_ref.scenarios.prompts import prompt
from reef_ref.scenarios.provenance import check_no_stale_hit
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.stage import Stage
from reef_ref.scenarios.traffic import boundary, decoding, long_requests, spans_in_order

__all__ = ["FLUSH_AFTER_LAST_TOKEN", "QUEUED_AND_RETRACTED", "REFUSED_FLUSH_IN_UPDATE", "SMALL_CHUNKS"]

CALL_S = 60.0


async def queued_and_retracted(stage: Stage) -> None:
    """A queue of retracted and of never scheduled requests is no obstacle to a flush, unless the flush is timed."""
    running_at_once, count, tokens = 4, 12, 600
    requests = long_requests(count, tokens)
    configuration = EngineConfiguration(extra=("--max-running-requests", str(running_at_once)))
    async with stage.engine(configuration) as subject:
        engine = subject.engine
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(engine.generate(request)) for request in requests]
            await decoding(engine)
            publication = await publish(engine, stage.models.checkpoint(2), SECOND.load_id)
        generations = [task.result() for task in tasks]
        assert publication.flush is not None
        stage.equal("refusals before the flush", publication.flush.refusals, 0)
        retracted = sum(generation.retractions > 0 for generation in generations)
        stage.equal("requests retracted by the pause", retracted, running_at_once)
        complete = sum(len(generation.output_ids) == tokens for generation in generations)
        stage.equal("requests that complete", f"{complete} of {count}", f"{count} of {count}")
        ordered = sum(spans_in_order(generation, FIRST, SECOND) for generation in generations)
        stage.equal("labelled in order", f"{ordered} of {count}", f"{count} of {count}")
        await check_no_stale_hit(stage, subject)
    # Requests sent together arrive in any order, so the figures say which of them waited.
    waited = [n for n, g in enumerate(generations) if g.retractions == 0 and boundary(g, SECOND) == 0]
    stage.at_least("requests that ran on the new load alone", len(waited), 1)
    for n in waited[:1]:
        answer = generations[n].output_ids
        stage.like_fresh("tokens of one that waited", Fresh(checkpoint=2), requests[n], answer)


async def refused_flush_in_update(stage: Stage) -> None:
    """SGLang's implicit flush: the update answers 400, the weights are the new ones, the cache is the old one."""
    requests = long_requests(2, 1500)
    probe = Request(input_ids=prompt(8, 600), max_new_tokens=32)
    async with stage.engine(EngineConfiguration()) as subject:
        engine = subject.engine
        await engine.generate(probe)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(engine.generate(request)) for request in requests]
            await decoding(engine)
            await engine.pause(PauseMode.IN_PLACE)
            body = {
                "model_path": str(stage.models.checkpoint(2)),
                "weight_version": SECOND.load_id,
                "flush_cache": True,
            }
            answer = await engine.wire.call(Route.UPDATE_FROM_DISK, body, CALL_S)
            report = await engine.report()
            health = await engine.health()
            await engine.continue_generation()
        stage.equal("status of the update", answer.status, 400)
        stage.note("its text", answer.message)
        stage.equal("load id of the scheduler", report.load_id, SECOND.load_id)
        stage.equal("load id of the front end", report.front_end_load_id, FIRST.load_id)
        stage.equal("the engine is alive", health.alive, True)
        complete = sum(len(task.result().output_ids) == 1500 for task in tasks)
        stage.equal("requests in flight that complete", complete, len(requests))
        stale = await engine.generate(probe)
        stage.equal("cached tokens of the probe afterwards", stale.cached_tokens, 599)
    stage.unlike_fresh("tokens of the probe, new load", Fresh(checkpoint=2), probe, stale.output_ids)
    stage.unlike_fresh("tokens of the probe, old load", Fresh(checkpoint=1), probe, stale.output_ids)


async def flush_after_last_token(stage: Stage) -> None:
    """A flush right after the last answer may find the look-ahead result undrained: refused, retried, done."""
    rounds, at_once = 40, 4
    requests = [Request(input_ids=prompt(9 + number, 60), max_new_tokens=8) for number in range(at_once)]
    async with stage.engine(EngineConfiguration(limits=Limits(flush_total_s=5.0))) as subject:
        refusals: list[int] = []
        hits: list[int] = []
        for _ in range(rounds):
            generations = await asyncio.gather(*(subject.engine.generate(request) for request in requests))
            hits += [generation.cached_tokens for generation in generations]
            refusals.append((await subject.engine.flush()).refusals)
        stage.equal("flushes that succeed", f"{len(refusals)} of {rounds}", f"{rounds} of {rounds}")
        stage.note("flushes refused at first", sum(count > 0 for count in refusals))
        stage.note("most refusals before one success", max(refusals))
        stage.equal("cached tokens in every round", max(hits), 0)


async def small_chunks(stage: Stage) -> None:
    """Retracted again and again with a prefill in small chunks, a request still gets the tokens of a fresh engine."""
    barriers, tokens = 6, 2400
    requests = long_requests(4, tokens, prompt_tokens=1000)
    configuration = EngineConfiguration(extra=("--chunked-prefill-size", "128"))
    async with stage.engine(configuration) as subject:
        engine = subject.engine
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(engine.generate(request)) for request in requests]
            await decoding(engine)
            done = 0
            while done < barriers and not any(task.done() for task in tasks):
                await engine.pause(PauseMode.RETRACT)
                await engine.flush()
                await engine.continue_generation()
                done += 1
                await decoding(engine, tasks)
        generations = [task.result() for task in tasks]
        stage.at_least("barriers while decoding", done, 4)
        stage.at_least("fewest retractions of a request", min(g.retractions for g in generations), 4)
        await check_no_stale_hit(stage, subject)
    for number, (request, generation) in enumerate(zip(requests, generations, strict=True)):
        stage.like_fresh(f"request {number}, tokens", Fresh(checkpoint=1), request, generation.output_ids)


QUEUED_AND_RETRACTED = Scenario(
    name="queued-and-retracted",
    shows="12 requests for 4 places: retracted and never scheduled ones wait while the flush succeeds, all complete",
    run=queued_and_retracted,
    cases=("C01",),
)
REFUSED_FLUSH_IN_UPDATE = Scenario(
    name="refused-flush-in-update",
    shows="an update that asks for the implicit flush while requests run: 400, yet new weights under the old cache",
    run=refused_flush_in_update,
    cases=("C03", "C08", "C91", "X8"),
)
FLUSH_AFTER_LAST_TOKEN = Scenario(
    name="flush-after-last-token",
    shows="a flush right after the last answer is at most refused for a moment, and clears the cache every time",
    run=flush_after_last_token,
    cases=("C10",),
)
SMALL_CHUNKS = Scenario(
    name="small-chunks",
    shows="many barriers and prefill in chunks of 128 tokens: every token as on a fresh engine",
    run=small_chunks,
    cases=("C27",),
)
