"""The same story on an engine over HTTP and on one in this process: what the interface promises, on real engines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psutil
import pytest

from reef_ref.engines.errors import CallRefused, EngineRefused, GenerationFailed
from reef_ref.engines.in_process import start
from reef_ref.engines.interface import ALL_REGIONS, CacheState, Engine, PauseMode, Region, Request, WeightState
from reef_ref.engines.process import serve
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt

BOUND_S = 300.0
PROBE = Request(input_ids=prompt(1, 400), max_new_tokens=16)
CONFIGURATION = EngineConfiguration(memory_saver=True, adapters=("A",), provenance="off", idle=False)
ARGUMENTS = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "dtype": "float32",
    "max_total_tokens": 60000,
    "mem_fraction_static": 0.5,
    "weight_version": "engine:1",
    "enable_memory_saver": True,
    "enable_lora": True,
    "lora_backend": "torch_native",
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("checkpoints"))


@contextlib.asynccontextmanager
async def over_http(checkpoints: Models) -> AsyncIterator[SGLangEngine]:
    async with serve(CONFIGURATION.settings(checkpoints, None)) as server:
        yield server.engine


@contextlib.asynccontextmanager
async def in_process(checkpoints: Models) -> AsyncIterator[SGLangEngine]:
    engine = await start(
        {
            **ARGUMENTS,
            "model_path": str(checkpoints.checkpoint(1)),
            "lora_paths": [f"A={checkpoints.adapter('A')}"],
        }
    )
    try:
        yield engine
    finally:
        await engine.shut_down()


@pytest.mark.usefixtures("sglang_imported")
@pytest.mark.parametrize("kind", [over_http, in_process], ids=["http", "in process"])
def test_a_life_of_an_engine(kind: object, checkpoints: Models) -> None:
    """Generate, publish with a memory release and a request in flight, change adapters, report, end."""
    assert kind in (over_http, in_process)
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    async def life() -> None:
        opened = over_http(checkpoints) if kind is over_http else in_process(checkpoints)
        async with asyncio.timeout(BOUND_S), opened as engine:
            assert isinstance(engine, Engine)
            await publish_with_release(engine, checkpoints)
            await change_adapters(engine, checkpoints)
            await engine.shut_down()
            await engine.shut_down()
            assert not (await engine.health()).alive

    asyncio.run(life())
    left = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert {pid for pid in left if "sglang" in " ".join(psutil.Process(pid).cmdline())} == set()


async def publish_with_release(engine: SGLangEngine, checkpoints: Models) -> None:
    first = await engine.generate(PROBE)
    assert (first.cached_tokens, first.prompt_tokens, len(first.output_ids)) == (0, 400, 16)
    assert (await engine.generate(PROBE)).cached_tokens == 399
    running = asyncio.create_task(engine.generate(Request(input_ids=prompt(2, 100), max_new_tokens=1500)))
    await asyncio.sleep(1.0)
    assert (await engine.pause(PauseMode.RETRACT)).mode is PauseMode.RETRACT
    assert (await engine.health()).alive
    with pytest.raises(CallRefused, match="pause and flush first"):
        await engine.release(ALL_REGIONS)
    flushed = await engine.flush()
    assert flushed.cache is CacheState.CLEARED
    assert (await engine.release(ALL_REGIONS)).released == ALL_REGIONS
    with pytest.raises(CallRefused, match="memory is released"):
        await engine.update(checkpoints.checkpoint(2), "engine:2")
    assert (await engine.resume(frozenset({Region.WEIGHTS}))).changed == {Region.WEIGHTS}
    updated = await engine.update(checkpoints.checkpoint(2), "engine:2")
    assert (updated.weights, updated.cache) == (WeightState.CHANGED, CacheState.KEPT)
    with pytest.raises(CallRefused, match="resume first"):
        await engine.continue_generation()
    assert (await engine.resume(ALL_REGIONS)).released == frozenset()
    report = await engine.report()
    assert (report.load_id, report.front_end_load_id) == ("engine:2", "engine:2")
    await engine.continue_generation()
    across = await running
    assert len(across.output_ids) == 1500
    assert across.spans[-1].load_id == "engine:2"
    second = await engine.generate(PROBE)
    assert second.cached_tokens == 0
    assert second.output_ids != first.output_ids


async def change_adapters(engine: SGLangEngine, checkpoints: Models) -> None:
    with_adapter = Request(input_ids=PROBE.input_ids, max_new_tokens=16, adapter="B")
    with pytest.raises((GenerationFailed, EngineRefused)):
        await engine.generate(with_adapter)
    assert (await engine.load_adapter("B", checkpoints.adapter("B"))).loaded == {"A", "B"}
    with pytest.raises(EngineRefused):
        await engine.load_adapter("B", checkpoints.adapter("B"))
    assert len((await engine.generate(with_adapter)).output_ids) == 16
    assert (await engine.unload_adapter("B")).loaded == {"A"}
