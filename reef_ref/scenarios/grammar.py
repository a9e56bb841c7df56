"""Requests whose grammar is still being compiled at the pause: with the plugin's idle check, and without it."""

from __future__ import annotations

import asyncio

from reef_ref.engines.errors import FlushRefused
from reef_ref.engines.interface import Limits, PauseMode, Request
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Route
from reef_ref.scenarios.configuration import FIRST, SECOND, EngineConfiguration
from reef_ref.scenarios.prompts import pending_schema, prompt
from reef_ref.scenarios.provenance import check_no_stale_hit
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.stage import Stage
from reef_ref.scenarios.traffic import spans_in_order

__all__ = ["GRAMMAR_PENDING", "GRAMMAR_PENDING_PLAIN"]

FIELDS = 800
REQUESTS = 4
TOKENS = 48
ARRIVAL_BOUND_S = 60.0
POLL_S = 0.02
HEAD_START_S = 0.2
PATIENT = Limits(flush_total_s=4.0, flush_try_s=ARRIVAL_BOUND_S)
"""On a busy machine the compilation keeps the scheduler from answering for a while: that is no refusal."""


def _requests() -> tuple[Request, ...]:
    return tuple(
        Request(
            input_ids=prompt(3000 + number, 100),
            max_new_tokens=TOKENS,
            ignore_eos=False,
            json_schema=pending_schema(FIELDS, f"s{number}k"),
        )
        for number in range(REQUESTS)
    )


async def _compiling(stage: Stage, engine: SGLangEngine) -> None:
    """Wait, bounded, until the scheduler has requests, none of which can be past its compilation.

    Not paused, a flush is refused as soon as the scheduler holds one request in whatever queue; a compilation takes
    far longer than the poll.
    """
    async with asyncio.timeout(ARRIVAL_BOUND_S):
        while (answer := await engine.wire.call(Route.FLUSH, None, ARRIVAL_BOUND_S)).ok:
            await asyncio.sleep(POLL_S)
    await asyncio.sleep(HEAD_START_S)
    stage.equal("status of a flush before the pause", answer.status, 400)


async def grammar_pending(stage: Stage) -> None:
    """The flush succeeds at once, and the queued requests complete under the new load."""
    async with stage.engine(EngineConfiguration(limits=PATIENT)) as subject:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(subject.engine.generate(request)) for request in _requests()]
            await _compiling(stage, subject.engine)
            pending = sum(not task.done() for task in waiting)
            publication = await publish(subject.engine, stage.models.checkpoint(2), SECOND.load_id)
        stage.equal("requests pending at the pause", pending, REQUESTS)
        assert publication.flush is not None
        stage.equal("the flush", publication.flush.cache.value, "cleared")
        stage.equal("refusals before it", publication.flush.refusals, 0)
        generations = [task.result() for task in waiting]
        complete = sum(bool(generation.output_ids) and generation.text.startswith("{") for generation in generations)
        stage.equal("queued requests that complete", f"{complete} of {REQUESTS}", f"{REQUESTS} of {REQUESTS}")
        ids = sorted({span.load_id for generation in generations for span in generation.spans})
        stage.equal("load ids of their tokens", ids, [SECOND.load_id])
        await check_no_stale_hit(stage, subject)


async def grammar_pending_plain(stage: Stage) -> None:
    """Control: SGLang's own idle check counts the grammar queue, so that no flush succeeds during the pause."""
    async with stage.engine(EngineConfiguration(idle=False, limits=PATIENT)) as subject:
        engine = subject.engine
        refusal: FlushRefused | None = None
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(engine.generate(request)) for request in _requests()]
            await _compiling(stage, engine)
            await engine.pause(PauseMode.RETRACT)
            try:
                await engine.flush()
            except FlushRefused as error:
                refusal = error
            await engine.continue_generation()
        stage.equal("status of every flush during the pause", refusal.status if refusal else 200, 400)
        if refusal is not None:
            stage.at_least("tries", refusal.attempts.tries, 1)
            stage.note("the last refusal", refusal.message)
        complete = sum(spans_in_order(task.result(), FIRST, FIRST) for task in waiting)
        stage.equal("requests that complete after continue", f"{complete} of {REQUESTS}", f"{REQUESTS} of {REQUESTS}")


GRAMMAR_PENDING = Scenario(
    name="grammar-pending",
    shows=f"{REQUESTS} requests compiling schemas of {FIELDS} fields at the pause: the flush succeeds, they complete",
    run=grammar_pending,
    cases=("C12",),
)
GRAMMAR_PENDING_PLAIN = Scenario(
    name="grammar-pending-plain",
    shows="control: the same on SGLang's own idle check, every flush of the pause is refused",
    run=grammar_pending_plain,
    cases=("C11", "C12"),
)
