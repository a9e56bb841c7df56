"""What SGLang does when it is asked what this project's engines and configurations refuse to ask."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx

from reef_ref.engines.errors import CheckpointRejected, EngineError, EngineTimeout
from reef_ref.engines.interface import Generation, PauseMode
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Route
from reef_ref.scenarios.configuration import FIRST, SECOND, EngineConfiguration
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.stage import Stage
from reef_ref.scenarios.traffic import decoding, long_requests
from reef_ref.testing.tiny_model import TinyShape

__all__ = ["ANOTHER_SHAPE", "OUT_OF_TURN"]

PLACES = 2
TOKENS = 1500
FLUSH_S = 2.0
HANGS_S = 5.0
CALL_S = 60.0


async def out_of_turn(stage: Stage) -> None:
    """A queue limit under retract, a timed flush, and an abort after an in-place pause, on one engine."""
    first, later = long_requests(PLACES, TOKENS), long_requests(2 * PLACES, TOKENS)[PLACES:]
    flags = ("--max-running-requests", str(PLACES), "--max-queued-requests", str(PLACES))
    # SGLang's own idle check: the plugin's would let the timed flush through as well.
    async with stage.engine(EngineConfiguration(idle=False, extra=flags)) as subject:
        engine = subject.engine
        running = [asyncio.ensure_future(engine.generate(request)) for request in first]
        await decoding(engine)
        running += [asyncio.ensure_future(engine.generate(request)) for request in later]
        await asyncio.sleep(1.0)  # They arrive, and wait: the places are taken.
        await engine.pause(PauseMode.RETRACT)
        status, seconds = await _timed_flush(engine.address)
        stage.equal("status of a flush with a time-out, under retract, with a queue", status, 400)
        stage.at_least("its seconds", round(seconds, 1), FLUSH_S)
        stage.equal("refusals of a flush without one, at the same moment", (await engine.flush()).refusals, 0)
        await engine.continue_generation()
        answers = await asyncio.gather(*running, return_exceptions=True)
        whole = sum(isinstance(answer, Generation) and len(answer.output_ids) == TOKENS for answer in answers)
        stage.equal("requests that complete, of 4, with a limit of 2 on the queue", whole, PLACES)
        lost = [str(answer) for answer in answers if isinstance(answer, EngineError)]
        stage.equal("requests that are lost to the limit", sum("queue is full" in text for text in lost), PLACES)

        running = [asyncio.ensure_future(engine.generate(request)) for request in first]
        await decoding(engine)
        await engine.pause(PauseMode.IN_PLACE)
        try:
            answer = await engine.wire.call(Route.PAUSE, {"mode": "abort"}, HANGS_S)
        except EngineTimeout:
            seen = "no answer"
        else:
            seen = f"{answer.status}"
        stage.equal(f"an abort pause after an in-place pause, within {HANGS_S:g} s", seen, "no answer")
        for task in running:
            task.cancel()


async def _timed_flush(address: str) -> tuple[int, float]:
    started = time.monotonic()
    async with httpx.AsyncClient(base_url=address, timeout=CALL_S, trust_env=False) as client:
        response = await client.post("/flush_cache", params={"timeout": FLUSH_S})
    return response.status_code, time.monotonic() - started


async def another_shape(stage: Stage) -> None:
    """A checkpoint of another shape: SGLang loads a part of one and says success, and ends over another.

    An update from disk that fails half-way "rolls back" to the path that it has just taken down, and fails again.
    """
    layers = stage.models.other_shape("wider-layers", intermediate_size=2 * TinyShape().intermediate_size)
    states = stage.models.other_shape("wider-states", hidden_size=2 * TinyShape().hidden_size)
    async with stage.engine(EngineConfiguration()) as subject:
        engine = subject.engine
        await engine.pause(PauseMode.RETRACT)
        await engine.flush()
        for checkpoint in (layers, states):
            try:
                await engine.update(checkpoint, SECOND.load_id)
            except CheckpointRejected as error:
                seen = "refused"
                stage.note(f"why our engine refuses {checkpoint.name}", str(error).partition(": ")[2])
            else:
                seen = "loaded"
            stage.equal(f"{checkpoint.name}, by our engine", seen, "refused")
        stage.equal("load id after that", (await engine.report()).load_id, FIRST.load_id)
        stage.equal(f"{layers.name}, sent bare", await _sent_bare(engine, layers), "200")
        stage.equal("load id after that, of weights that are none", (await engine.report()).load_id, SECOND.load_id)
        stage.note(f"{states.name}, sent bare", await _sent_bare(engine, states))
        stage.equal("the engine is alive after that", (await engine.health()).alive, False)


async def _sent_bare(engine: SGLangEngine, checkpoint: Path) -> str:
    body = {"model_path": str(checkpoint), "weight_version": SECOND.load_id, "flush_cache": False}
    try:
        return str((await engine.wire.call(Route.UPDATE_FROM_DISK, body, CALL_S)).status)
    except EngineError as error:
        return str(error).partition(": ")[2]


OUT_OF_TURN = Scenario(
    name="out-of-turn",
    shows="a queue limit loses retracted requests, a timed flush under retract expires, an abort after in place hangs",
    run=out_of_turn,
    cases=("X2", "X6", "X7"),
)
ANOTHER_SHAPE = Scenario(
    name="another-shape",
    shows="checkpoints of another shape: sent bare, one is loaded in part as a success, one ends the engine; refused",
    run=another_shape,
    cases=("X11",),
)
