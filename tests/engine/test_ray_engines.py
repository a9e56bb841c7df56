"""Engines as Ray actors: the contract, a publication over two, actors that are killed on the way, a killed driver."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from reef_ref import events
from reef_ref.control import CallsFailed
from reef_ref.engines.errors import EngineLost, EngineStartFailed, EngineUnreachable
from reef_ref.engines.interface import PauseMode, Request
from reef_ref.engines.ray import ActorSettings, RayEngine, RayLauncher, alone
from reef_ref.markers import MarkerFile, Record, Status, decode
from reef_ref.monitor.validate import validate
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt
from reef_ref.testing.driver import CLAUSES, Driver, check_driver
from tests.engine.deployment import ENGINES, Deployment, coordinated
from tests.engine.ray_cluster import Cluster, cluster
from tests.engine.ray_life import settings

os.environ.update(alone())  # Before anybody imports Ray, which reads it then.

BOUND_S = 600.0
LIFE_S = 120.0
SOON_S = 20.0
NAMESPACE = "stories"


def homes() -> set[Path]:
    """The folders of engines on this machine, also of those that other clusters have left."""
    return set(Path(tempfile.gettempdir()).glob("reef-ref-ray-*"))


@pytest.fixture(autouse=True)
def no_folder_left() -> Iterator[None]:
    """What an engine keeps on disk goes with it."""
    before = homes()
    yield
    assert homes() <= before


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Cluster]:
    """A cluster of two CPUs, to which this process is connected."""
    import ray

    with cluster(ENGINES) as started:
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
        try:
            yield started
            assert started.engines() == []
        finally:
            ray.shutdown()


def test_a_start_that_does_not_come_up_leaves_no_process(ray_cluster: Cluster, tmp_path: Path) -> None:
    """Neither on a cluster without room, nor where the actor's process hangs, which Ray takes seconds to end."""
    unused = ActorSettings(arguments={"model_path": str(tmp_path)}, start_s=1.0)

    async def check() -> None:
        crowded = RayLauncher(lambda _: replace(unused, cpus=ENGINES + 1), namespace="crowded")
        assert await crowded.find(0) is None
        with pytest.raises(EngineStartFailed, match="engine-0 did not start: start at Ray actor engine-0: no answer"):
            await crowded.start(0)
        assert await crowded.find(0) is None

        hanging = RayLauncher(lambda _: unused, namespace="hanging")
        before = homes()
        start = asyncio.create_task(hanging.start(0))
        pid = await process_of_another(before)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineStartFailed, match="did not start"):
            await start
        assert not psutil.pid_exists(pid)
        assert await hanging.find(0) is None

    asyncio.run(check())
    assert ray_cluster.engines() == []


async def process_of_another(before: set[Path]) -> int:
    """The process of the actor that is being started, once it has its folder."""
    async with asyncio.timeout(SOON_S):
        while not (found := [home for home in homes() - before if (home / "leader.json").exists()]):
            await asyncio.sleep(0.05)
    return int(json.loads((found[0] / "leader.json").read_text())["pid"])


@pytest.mark.usefixtures("ray_cluster")
def test_without_a_connection_nothing_is_asked_or_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would start a cluster."""
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(EngineUnreachable, match=r"call ray\.init"):
        asyncio.run(RayLauncher(lambda _: ActorSettings(arguments={})).find(0))


def test_publications_killed_actors_a_killed_driver_and_the_contract(ray_cluster: Cluster, tmp_path: Path) -> None:
    """One story after the other over the same deployment, for engines take their time to start."""
    models = Models(tmp_path / "models")
    models.checkpoint(2)
    launcher = RayLauncher(settings(models), namespace=NAMESPACE)

    async def stories() -> None:
        async with asyncio.timeout(BOUND_S), ending(launcher):
            async with coordinated(tmp_path, models, launcher) as deployment:
                one = await deployment.probe()
                assert len(one) == 1
                two = await a_publication(deployment, one)
                await an_actor_dies_between_pause_and_flush(deployment, one)
                await an_actor_dies_between_two_updates(deployment, two)
                await an_actor_dies_before_continue(deployment, one)
                await deployment.coordinator.stop()
                await a_killed_driver_finds_its_engines_again(deployment, ray_cluster, tmp_path / "other", two)
            await the_contract_is_kept(launcher, models)
            await a_scheduler_that_dies_takes_its_actor_along(launcher)
            assert ray_cluster.engines() == []

    asyncio.run(stories())


@asynccontextmanager
async def ending(launcher: RayLauncher) -> AsyncIterator[None]:
    """Actors outlive whoever started them, so also a story that fails."""
    try:
        yield
    finally:
        for slot in range(ENGINES):
            await launcher.end(slot)


def actor(deployment: Deployment, slot: int) -> int:
    """The id of an actor's process."""
    engine = deployment.engine(slot)
    assert isinstance(engine, RayEngine)
    return engine.place.pid


async def a_publication(deployment: Deployment, before: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Requests in flight on both actors are answered in full, the old load first and the new one last."""
    await deployment.publish_across(2)
    after = await deployment.probe()
    assert after.isdisjoint(before)
    await settled(deployment, after)
    return after


async def an_actor_dies_between_pause_and_flush(deployment: Deployment, expected: set[tuple[int, ...]]) -> None:
    """The barrier fails at once: nothing is sent, engines go, and a retry serves."""
    job = await deployment.train(3)
    victim = actor(deployment, 1)
    told = len(deployment.lines)

    def kill(event: events.Event) -> None:
        if isinstance(event, events.AllPaused):
            deployment.watch.remove(kill)
            os.kill(victim, signal.SIGKILL)

    deployment.watch.append(kill)
    with pytest.raises(CallsFailed, match="flush failed: engine 1: flush at Ray actor engine-1: The actor is dead"):
        await deployment.coordinator.publish(job)
    since = [type(line.event) for line in deployment.lines[told:]]
    assert events.Send not in since
    assert since.count(events.Retire) == ENGINES
    await retried(deployment, job, expected)


async def an_actor_dies_between_two_updates(deployment: Deployment, expected: set[tuple[int, ...]]) -> None:
    """One engine has the new bytes and the other is gone: the transfer fails, and a retry sends to new ones."""
    job = await deployment.train(4)
    victim = actor(deployment, 1)

    def kill(event: events.Event) -> None:
        match event:
            case events.AllFlushed():
                os.kill(victim, signal.SIGSTOP)  # So that its bytes come second.
            case events.Send(engine=0):
                deployment.watch.remove(kill)
                os.kill(victim, signal.SIGKILL)

    deployment.watch.append(kill)
    with pytest.raises(CallsFailed, match="send failed: engine 1: update at Ray actor engine-1: refused with status 0"):
        await deployment.coordinator.publish(job)
    assert kill not in deployment.watch
    await retried(deployment, job, expected)


async def retried(deployment: Deployment, job: str, expected: set[tuple[int, ...]]) -> None:
    """A second call of the same publication succeeds, on new engines, under one load id."""
    assert deployment.status is Status.UPDATING_WEIGHTS
    assert deployment.slots.live == ()
    await deployment.coordinator.publish(job)
    await deployment.commit(job)
    await settled(deployment, expected)


async def an_actor_dies_before_continue(deployment: Deployment, expected: set[tuple[int, ...]]) -> None:
    """The load is committed, so it is what new engines are sent: the dead one fails a barrier, and a second fills."""
    coordinator = deployment.coordinator
    job = await deployment.train(5)
    load_id = await coordinator.publish(job)
    os.kill(actor(deployment, 1), signal.SIGKILL)
    with pytest.raises(CallsFailed, match="continue failed: engine 1: continue_generation at Ray actor engine-1: The"):
        await deployment.commit(job)
    assert deployment.status is Status.HEAD_COMMITTED
    assert deployment.coordinator.latched
    with pytest.raises(CallsFailed, match="pause failed: engine 1"):
        await coordinator.republish(load_id)
    assert deployment.slots.live == ()
    await coordinator.republish(load_id)
    assert coordinator.served.load_id == load_id
    await settled(deployment, expected)


async def settled(deployment: Deployment, expected: set[tuple[int, ...]]) -> None:
    """Both engines serve what was committed, from no stale prefix, and the protocol explains all that was told."""
    assert deployment.status is Status.COMPLETE
    assert await deployment.probe() == expected
    assert await deployment.stale_prefixes() == [0] * ENGINES
    report = deployment.validated()
    assert (report.finding, report.gaps) == (None, 0)


async def a_killed_driver_finds_its_engines_again(
    deployment: Deployment, started: Cluster, folder: Path, expected: set[tuple[int, ...]]
) -> None:
    """SIGKILL with bytes on one engine: the next life finds both by name, sends again, and starts none."""
    folder.mkdir()
    (folder / "marker").mkdir()
    before = [actor(deployment, slot) for slot in range(ENGINES)]
    assert await deployment.probe() != expected
    assert await life(started, folder, "first", die_at=events.Send.name()) == -signal.SIGKILL
    left = recorded(folder)
    assert left.status is Status.UPDATING_WEIGHTS
    with (folder / "events.ndjson").open("a") as trace:
        trace.write(events.Line("deployment", 1, 0.0, events.Crash()).to_json() + "\n")
    assert await life(started, folder, "second", die_at="none") == 0
    record = recorded(folder)
    assert (record.status, record.load_id) == (Status.COMPLETE, left.target)
    assert [actor(deployment, slot) for slot in range(ENGINES)] == before
    assert await deployment.probe() == expected
    with (folder / "events.ndjson").open("rb") as trace:
        report = validate(trace, engines=ENGINES)
    assert (report.finding, report.gaps) == (None, 0)


def recorded(folder: Path) -> Record:
    """The record that a life has left, whose lock is free."""
    with MarkerFile(folder / "marker") as marker:
        data = marker.read_now()
    assert data is not None
    return decode(data)


async def life(started: Cluster, folder: Path, incarnation: str, *, die_at: str) -> int:
    """Run one life of a driver in a process of its own; how it ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.engine.ray_life", str(folder), incarnation, die_at, started.address, NAMESPACE
    )
    try:
        async with asyncio.timeout(LIFE_S):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def the_contract_is_kept(launcher: RayLauncher, models: Models) -> None:
    """The engine in slot 0 is found for each clause and made as if new; the last clause ends it."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Driver]:
        engine = await launcher.find(0)
        assert engine is not None
        await engine.pause(PauseMode.RETRACT)
        await engine.flush()
        await engine.update(models.checkpoint(1), "engine:1")
        await engine.continue_generation()
        yield Driver(
            engine=engine,
            checkpoints=(models.checkpoint(1), models.checkpoint(2)),
            prompt=prompt(1, 400),
            adapter=models.adapter("B"),
            in_flight_tokens=800,
            quiet_s=5.0,
        )

    report = await check_driver(make)
    assert report.held == tuple(CLAUSES)
    assert await launcher.find(0) is None


async def a_scheduler_that_dies_takes_its_actor_along(launcher: RayLauncher) -> None:
    """Who waits for an answer hears of it, and nothing is left to be found."""
    engine = await launcher.find(1)
    assert engine is not None
    waiting = asyncio.create_task(engine.generate(Request(input_ids=prompt(3, 100), max_new_tokens=6_000)))
    await asyncio.sleep(0.5)
    schedulers = [p for p in psutil.Process(engine.place.pid).children() if "scheduler" in " ".join(p.cmdline())]
    assert len(schedulers) == 1
    schedulers[0].kill()
    with pytest.raises(EngineLost, match="generate at Ray actor engine-1"):
        await waiting
    assert not (await engine.health()).alive
    assert await launcher.find(1) is None
