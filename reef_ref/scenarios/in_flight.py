"""Many requests in flight across a barrier and a publication: all complete, none mixes what it must not."""

from __future__ import annotations

import asyncio

from reef_ref.engines.interface import Generation, Request
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.configuration import FIRST, SECOND, THIRD, EngineConfiguration, Fresh, Load
from reef_ref.scenarios.provenance import check_no_stale_hit
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.sharing import share_across_publication
from reef_ref.scenarios.stage import Stage
from reef_ref.scenarios.traffic import (
    LONG_TOKENS,
    boundary,
    check_long,
    check_schema,
    decoding,
    long_requests,
    schema_requests,
)

__all__ = ["IN_FLIGHT", "IN_FLIGHT_NO_OVERLAP", "TENSOR_PARALLEL", "publish_in_flight"]

LONG, SCHEMA = 8, 16
SCHEMA_HEAD_START_S = 0.5
COMPARED = 2
COMPARED_TOKENS = 64


async def publish_in_flight(
    stage: Stage,
    engine: SGLangEngine,
    *,
    old: Load = FIRST,
    new: Load = SECOND,
    long: int = LONG,
    schema: int = SCHEMA,
    release: bool = False,
) -> list[Generation]:
    """Publish `new` over `old` while requests are in flight, check all of them, return the long ones."""
    requests, constrained = long_requests(long), schema_requests(schema)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(engine.generate(request)) for request in requests]
        await decoding(engine)
        with_schema = [group.create_task(engine.generate(request)) for request in constrained]
        await asyncio.sleep(SCHEMA_HEAD_START_S)
        pending = sum(not task.done() for task in (*running, *with_schema))
        publication = await publish(engine, stage.models.checkpoint(new.checkpoint), new.load_id, release=release)
    stage.equal("requests in flight at the pause", pending, long + schema)
    flush = publication.flush
    assert flush is not None
    stage.equal("the flush", flush.cache.value, "cleared")
    stage.note("refusals before it", flush.refusals)
    stage.note("seconds from pause to continue", round(publication.seconds, 3))
    generations = [task.result() for task in running]
    check_long(stage, generations, old, new)
    check_schema(stage, constrained, [task.result() for task in with_schema], old, new)
    return generations


def compare_both_sides(
    stage: Stage, generations: list[Generation], *, old: Load = FIRST, new: Load = SECOND, ranks: int = 1
) -> None:
    """Tokens on either side of the boundary must be those of fresh engines on the old and on the new load."""
    for number, (request, generation) in enumerate(zip(long_requests(COMPARED), generations, strict=False), start=1):
        until = boundary(generation, new)
        stage.like_fresh(
            f"request {number}, tokens before the barrier",
            Fresh(checkpoint=old.checkpoint, ranks=ranks),
            Request(input_ids=request.input_ids, max_new_tokens=until),
            generation.output_ids[:until],
        )
        stage.like_fresh(
            f"request {number}, tokens after the barrier",
            Fresh(checkpoint=new.checkpoint, ranks=ranks),
            Request(input_ids=request.input_ids + generation.output_ids[:until], max_new_tokens=COMPARED_TOKENS),
            generation.output_ids[until : until + COMPARED_TOKENS],
        )


async def in_flight(stage: Stage) -> None:
    """With the overlap scheduler, SGLang's default."""
    await _in_flight(stage, EngineConfiguration())


async def in_flight_no_overlap(stage: Stage) -> None:
    """With the plain scheduler."""
    await _in_flight(stage, EngineConfiguration(overlap=False))


async def _in_flight(stage: Stage, configuration: EngineConfiguration) -> None:
    async with stage.engine(configuration) as subject:
        generations = await publish_in_flight(stage, subject.engine)
        await check_no_stale_hit(stage, subject)
    compare_both_sides(stage, generations)


async def tensor_parallel(stage: Stage) -> None:
    """Two ranks: the repeated prompt across one publication, the requests in flight across the next."""
    async with stage.engine(EngineConfiguration(ranks=2)) as subject:
        await share_across_publication(stage, subject.engine, Fresh(checkpoint=SECOND.checkpoint, ranks=2))
        generations = await publish_in_flight(stage, subject.engine, old=SECOND, new=THIRD)
        await check_no_stale_hit(stage, subject)
    compare_both_sides(stage, generations, old=SECOND, new=THIRD, ranks=2)


IN_FLIGHT = Scenario(
    name="in-flight",
    shows=f"{LONG} requests of {LONG_TOKENS} tokens and {SCHEMA} with JSON schemas cross a publication and complete",
    run=in_flight,
    cases=("C01", "C02", "C08"),
)
IN_FLIGHT_NO_OVERLAP = Scenario(
    name="in-flight-no-overlap",
    shows="the same without overlap scheduling",
    run=in_flight_no_overlap,
)
TENSOR_PARALLEL = Scenario(
    name="tensor-parallel",
    shows="in-flight and disjoint-sharing on two tensor-parallel ranks",
    run=tensor_parallel,
    engines=2,
)
