"""The contract of an engine, `check_driver`, on real SGLang engines over HTTP and in this process; none outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psutil
import pytest

from reef_ref.engines.http import connect
from reef_ref.engines.in_process import start
from reef_ref.engines.interface import Limits, PauseMode
from reef_ref.engines.process import serve
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt
from reef_ref.testing.driver import CLAUSES, Driver, MakeDriver, check_driver
from tests.engine.deployment import IN_PROCESS

BOUND_S = 400.0
LIMITS = Limits(flush_total_s=10.0)
CONFIGURATION = EngineConfiguration(memory_saver=True, adapters=("A",), provenance="off", limits=LIMITS)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What was started has ended, with all that it started."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    left = {child for child in psutil.Process().children(recursive=True) if child.pid not in before}
    assert not [child for child in left if "sglang" in " ".join(child.cmdline())]


def driver(engine: SGLangEngine, checkpoints: Models) -> Driver:
    return Driver(
        engine=engine,
        checkpoints=(checkpoints.checkpoint(1), checkpoints.checkpoint(2)),
        prompt=prompt(1, 400),
        adapter=checkpoints.adapter("B"),
        in_flight_tokens=800,
        quiet_s=5.0,
    )


async def as_if_new(engine: SGLangEngine, checkpoints: Models) -> SGLangEngine:
    """An engine takes half a minute to start; a publication of its first checkpoint leaves nothing of what was."""
    await engine.pause(PauseMode.RETRACT)
    await engine.flush()
    await engine.update(checkpoints.checkpoint(1), "engine:1")
    await engine.continue_generation()
    return engine


def test_an_engine_over_http_keeps_the_contract(checkpoints: Models) -> None:
    async def check() -> None:
        async with asyncio.timeout(BOUND_S), serve(CONFIGURATION.settings(checkpoints, None)) as server:

            @asynccontextmanager
            async def make() -> AsyncIterator[Driver]:
                engine = await as_if_new(await connect(server.engine.address, limits=LIMITS), checkpoints)
                try:
                    yield driver(engine, checkpoints)
                finally:
                    await engine.shut_down()

            await keeps_the_contract(make)

    asyncio.run(check())


@pytest.mark.usefixtures("sglang_imported")
def test_an_engine_in_this_process_keeps_the_contract(checkpoints: Models) -> None:
    async def check() -> None:
        async with asyncio.timeout(BOUND_S):
            paths = {"model_path": str(checkpoints.checkpoint(1)), "lora_paths": [f"A={checkpoints.adapter('A')}"]}
            engine = await start({**IN_PROCESS, **paths}, limits=LIMITS)
            try:

                @asynccontextmanager
                async def make() -> AsyncIterator[Driver]:
                    handle = await SGLangEngine.attach(engine.wire, limits=LIMITS)
                    yield driver(await as_if_new(handle, checkpoints), checkpoints)

                await keeps_the_contract(make)
            finally:
                await engine.shut_down()

    asyncio.run(check())


async def keeps_the_contract(make: MakeDriver) -> None:
    report = await check_driver(make)
    assert report.held == tuple(CLAUSES)
    assert not report.skipped


def test_the_clause_that_ends_the_engine_is_the_last() -> None:
    """In this process, the engine that all clauses share ends with the handle of the last one."""
    assert list(CLAUSES)[-1] == "it_says_whether_it_lives"
