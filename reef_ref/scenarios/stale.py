"""Negative controls: without the barrier the stale hit happens, and what `enforce` makes of it."""

from __future__ import annotations

import asyncio

from reef_ref.engines.errors import GenerationFailed
from reef_ref.engines.interface import Generation, PauseMode, Request
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.configuration import SECOND, EngineConfiguration, Fresh
from reef_ref.scenarios.prompts import prompt
from reef_ref.scenarios.provenance import StaleHit, read_stale_hits
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.stage import Stage, Subject
from reef_ref.scenarios.traffic import PROMPT_TOKENS, boundary, decoding

__all__ = ["STALE_ENFORCED", "STALE_IN_PLACE", "STALE_REFUSED", "STALE_RETRACT"]

STALE_PROMPT = 600
STALE_REQUEST = Request(input_ids=prompt(5, STALE_PROMPT), max_new_tokens=32, request_id="reuses-stale-prefix")
FILLING_REQUEST = Request(input_ids=STALE_REQUEST.input_ids, max_new_tokens=32)
UNRELATED_REQUEST = Request(input_ids=prompt(6, STALE_PROMPT), max_new_tokens=32)
RETRACTED = 4
RETRACTED_TOKENS = 1500
COMPARED_TOKENS = 64


def _retracted_requests() -> tuple[Request, ...]:
    return tuple(
        Request(
            input_ids=prompt(4000 + number, PROMPT_TOKENS),
            max_new_tokens=RETRACTED_TOKENS,
            request_id=f"retracted-{number}",
        )
        for number in range(RETRACTED)
    )


async def _publish_in_place(stage: Stage, engine: SGLangEngine) -> None:
    """Fill the cache under the old load, then publish in place without a flush."""
    await engine.generate(FILLING_REQUEST)
    stage.equal(
        "cached tokens before the publication", (await engine.generate(FILLING_REQUEST)).cached_tokens, STALE_PROMPT - 1
    )
    await publish(engine, stage.models.checkpoint(2), SECOND.load_id, mode=PauseMode.IN_PLACE, flush=False)


async def _publish_unflushed(stage: Stage, engine: SGLangEngine) -> list[asyncio.Task[Generation]]:
    """Publish under a retract pause without a flush while requests are in flight; they are done on return."""
    requests = _retracted_requests()
    running = [asyncio.create_task(engine.generate(request)) for request in requests]
    try:
        await decoding(engine)
        await publish(engine, stage.models.checkpoint(2), SECOND.load_id, flush=False)
        await asyncio.wait(running)
    finally:
        for task in running:
            task.cancel()
    return running


def _check_named(stage: Stage, hits: list[StaleHit], requests: list[str], least_slots: int) -> None:
    stage.equal("requests that provenance names", sorted({hit.request for hit in hits}), sorted(requests))
    largest = {request: max((hit.stale for hit in hits if hit.request == request), default=0) for request in requests}
    stage.at_least("stale slots of each, at least", min(largest.values()), least_slots)
    named = all(hit.slots and hit.written_by for hit in hits) and bool(hits)
    stage.equal("slots and loads named", named, True)
    for hit in hits:
        stage.note(f"{hit.request}, {hit.stale} of {hit.reused} stale, first slots {list(hit.slots[:3])}", _loads(hit))


def _check_recomputed(stage: Stage, when: str, hits: list[StaleHit], requests: list[str]) -> None:
    """The stale matches were there, and every one was computed anew."""
    stage.equal(f"{when}: requests kept from a stale prefix", sorted({hit.request for hit in hits}), sorted(requests))
    stage.equal(f"{when}: what was done", sorted({hit.action for hit in hits}), ["recomputed"])


def _loads(hit: StaleHit) -> str:
    return f"written by {', '.join(hit.written_by)}, serving {hit.serving}"


async def stale_in_place(stage: Stage) -> None:
    """In place with sharing forced and no flush: a later request reuses KV of the old load.

    Two requests that run across the publication keep their own KV, which is legal: they must not be named.
    """
    across = _retracted_requests()[:2]
    async with stage.engine(EngineConfiguration()) as subject:
        engine = subject.engine
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(engine.generate(request)) for request in across]
            await decoding(engine)
            await _publish_in_place(stage, engine)
            stale = await engine.generate(STALE_REQUEST)
        kept = sum(0 < boundary(task.result(), SECOND) < RETRACTED_TOKENS for task in running)
        stage.equal("requests that kept their own KV across it", kept, len(across))
        stage.equal("cached tokens under the new load", stale.cached_tokens, STALE_PROMPT - 1)
        stage.equal("label of its tokens", [span.load_id for span in stale.spans], [SECOND.load_id])
        hits = await read_stale_hits(subject)
        assert STALE_REQUEST.request_id is not None
        _check_named(stage, hits, [STALE_REQUEST.request_id], STALE_PROMPT - 1)
    stage.unlike_fresh("tokens of the stale hit", Fresh(checkpoint=2), FILLING_REQUEST, stale.output_ids)


async def stale_retract(stage: Stage) -> None:
    """Retract without a flush: each retracted request matches its own old prompt, and the response hides it."""
    async with stage.engine(EngineConfiguration()) as subject:
        running = await _publish_unflushed(stage, subject.engine)
        generations = [task.result() for task in running]
        stage.equal("cached tokens in the responses", [g.cached_tokens for g in generations], [0] * RETRACTED)
        stage.equal("retractions", [g.retractions for g in generations], [1] * RETRACTED)
        names = [request.request_id or "" for request in _retracted_requests()]
        _check_named(stage, await read_stale_hits(subject), names, PROMPT_TOKENS)
    for number, (request, generation) in enumerate(zip(_retracted_requests(), generations, strict=True)):
        until = boundary(generation, SECOND)
        stage.unlike_fresh(
            f"request {number}, tokens after the publication",
            Fresh(checkpoint=2),
            Request(input_ids=request.input_ids + generation.output_ids[:until], max_new_tokens=COMPARED_TOKENS),
            generation.output_ids[until : until + COMPARED_TOKENS],
        )


async def stale_enforced(stage: Stage) -> None:
    """Both controls under `enforce` with recomputation: no token comes from a stale prefix."""
    async with stage.engine(EngineConfiguration(provenance="enforce")) as subject:
        engine = subject.engine
        await _publish_in_place(stage, engine)
        generation = await engine.generate(STALE_REQUEST)
        stage.like_fresh("in place: tokens", Fresh(checkpoint=2), FILLING_REQUEST, generation.output_ids)
        _check_recomputed(stage, "in place", await read_stale_hits(subject), ["reuses-stale-prefix"])
        await _check_alive(stage, subject, "in place")
    async with stage.engine(EngineConfiguration(provenance="enforce")) as subject:
        running = await _publish_unflushed(stage, subject.engine)
        generations = [task.result() for task in running]
        names = [request.request_id or "" for request in _retracted_requests()]
        _check_recomputed(stage, "retract", await read_stale_hits(subject), names)
        complete = sum(len(generation.output_ids) == RETRACTED_TOKENS for generation in generations)
        stage.equal("retract: requests that complete", f"{complete} of {RETRACTED}", f"{RETRACTED} of {RETRACTED}")
        for number, (request, generation) in enumerate(zip(_retracted_requests(), generations, strict=True)):
            until = boundary(generation, SECOND)
            stage.like_fresh(
                f"retract: request {number}, tokens after the publication",
                Fresh(checkpoint=2),
                Request(input_ids=request.input_ids + generation.output_ids[:until], max_new_tokens=COMPARED_TOKENS),
                generation.output_ids[until : until + COMPARED_TOKENS],
            )
        await _check_alive(stage, subject, "retract")


async def stale_refused(stage: Stage) -> None:
    """The same under `enforce` with refusal: the request is answered with an error, the engine serves on."""
    async with stage.engine(EngineConfiguration(provenance="enforce", on_stale="refuse")) as subject:
        engine = subject.engine
        await _publish_in_place(stage, engine)
        try:
            generation = await engine.generate(STALE_REQUEST)
            stage.check("the stale request", f"{len(generation.output_ids)} tokens", "an error", holds=False)
        except GenerationFailed as error:
            stage.check(
                "the stale request",
                f"{error.status}: {error.message}",
                "an error that says stale",
                "stale" in error.message,
            )
        await _check_alive(stage, subject, "afterwards")


async def _check_alive(stage: Stage, subject: Subject, when: str) -> None:
    """The engine answers, and an unrelated request gets the tokens of a fresh engine."""
    health = await subject.engine.health()
    stage.equal(f"{when}: the engine is alive", health.alive, True)
    unrelated = await subject.engine.generate(UNRELATED_REQUEST)
    stage.like_fresh(f"{when}: an unrelated request", Fresh(checkpoint=2), UNRELATED_REQUEST, unrelated.output_ids)


STALE_IN_PLACE = Scenario(
    name="stale-in-place",
    shows="control: in place, sharing forced, no flush: the stale hit happens and provenance names it",
    run=stale_in_place,
    cases=("C13", "C42"),
)
STALE_RETRACT = Scenario(
    name="stale-retract",
    shows="control: retract without a flush: stale hits that cached_tokens hides, provenance catches all",
    run=stale_retract,
    cases=("C02", "X1"),
)
STALE_ENFORCED = Scenario(
    name="stale-enforced",
    shows="control: both under enforce: no token is sampled from a stale prefix",
    run=stale_enforced,
)
STALE_REFUSED = Scenario(
    name="stale-refused",
    shows="control: in place under enforce with refusal: a clear error, the engine serves on",
    run=stale_refused,
)
