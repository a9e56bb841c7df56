"""The same coordinator as in `tests/conformance`, on real SGLang engines; what it told is explained by the protocol."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from reef_ref import events
from reef_ref.control import CallsFailed
from reef_ref.engines.processes import end_session
from reef_ref.markers import MarkerFile, Status, decode
from reef_ref.monitor.validate import validate
from tests.engine.deployment import ENGINES, Deployment, deployed

BOUND_S = 600.0
LIFE_S = 120.0


def test_publications_a_hanging_engine_a_killed_one_and_a_killed_coordinator(tmp_path: Path) -> None:
    """One story after the other over the same deployment, for engines take their time to start."""

    async def stories() -> None:
        async with asyncio.timeout(BOUND_S), deployed(tmp_path) as deployment:
            one = await deployment.probe()
            assert len(one) == 1
            two = await a_publication(deployment, one)
            assert await deployment.stale_prefixes() == [0] * ENGINES
            await a_failed_barrier_is_retried(deployment, one)
            await a_killed_engine_is_rebuilt(deployment, two)
            await deployment.coordinator.stop()
            await a_killed_coordinator_goes_on(deployment, tmp_path / "other", one, two)

    asyncio.run(stories())
    assert not [child for child in psutil.Process().children(recursive=True) if "sglang" in " ".join(child.cmdline())]


async def a_publication(deployment: Deployment, before: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Requests in flight on both engines are answered in full, the old load first and the new one last."""
    await deployment.publish_across(2)
    assert deployment.status is Status.COMPLETE
    assert deployment.coordinator.record is not None
    assert deployment.coordinator.record.checksum, "SGLang tells what its weights are"
    after = await deployment.probe()
    assert len(after) == 1
    assert after.isdisjoint(before)
    explained(deployment)
    return after


async def a_failed_barrier_is_retried(deployment: Deployment, expected: set[tuple[int, ...]]) -> None:
    """An engine that hangs at the pause fails the barrier: nothing is sent, engines go, and a retry serves."""
    job = await deployment.train(3)
    for pid in deployment.launcher.server(0).processes():
        os.kill(pid, signal.SIGSTOP)
    told = len(deployment.lines)
    with pytest.raises(CallsFailed, match="pause failed: engine 0: no answer within 6 s"):
        await deployment.coordinator.publish(job)
    since = [type(line.event) for line in deployment.lines[told:]]
    assert events.Send not in since
    assert since.count(events.Retire) == ENGINES
    assert deployment.coordinator.health().recoverable
    await retried(deployment, job, expected)


async def a_killed_engine_is_rebuilt(deployment: Deployment, expected: set[tuple[int, ...]]) -> None:
    """An engine that dies between its flush and its bytes: the transfer fails, engines are replaced, a retry serves."""
    job = await deployment.train(4)
    victim = deployment.launcher.server(1).pid

    def kill(event: events.Event) -> None:
        if isinstance(event, events.AllFlushed):
            deployment.watch.remove(kill)
            assert end_session(victim) == []

    deployment.watch.append(kill)
    with pytest.raises(CallsFailed, match="send failed: engine 1"):
        await deployment.coordinator.publish(job)
    await retried(deployment, job, expected)
    assert deployment.launcher.server(1).pid != victim


async def retried(deployment: Deployment, job: str, expected: set[tuple[int, ...]]) -> None:
    """A second call of the same publication succeeds, on new engines, under one load id."""
    assert deployment.status is Status.UPDATING_WEIGHTS
    assert deployment.slots.live == ()
    assert await deployment.coordinator.publish(job) == await deployment.coordinator.publish(job)
    await deployment.commit(job)
    assert deployment.status is Status.COMPLETE
    assert await deployment.probe() == expected
    assert await deployment.stale_prefixes() == [0] * ENGINES
    explained(deployment)


async def a_killed_coordinator_goes_on(
    deployment: Deployment, folder: Path, one: set[tuple[int, ...]], two: set[tuple[int, ...]]
) -> None:
    """SIGKILL between two durable writes, with bytes on one engine: the next life sends again, under the same id."""
    folder.mkdir()
    (folder / "marker").mkdir()
    assert await deployment.probe() == two
    assert await life(deployment, folder, "first", die_at=events.Send.name()) == -signal.SIGKILL
    with MarkerFile(folder / "marker") as marker:  # The lock of the dead is free.
        data = marker.read_now()
    assert data is not None
    left = decode(data)
    assert left.status is Status.UPDATING_WEIGHTS
    with (folder / "events.ndjson").open("a") as trace:
        trace.write(events.Line("deployment", 1, 0.0, events.Crash()).to_json() + "\n")
    assert await life(deployment, folder, "second", die_at="none") == 0
    with MarkerFile(folder / "marker") as marker:
        data = marker.read_now()
    assert data is not None
    record = decode(data)
    assert (record.status, record.load_id) == (Status.COMPLETE, left.target)
    assert await deployment.probe() == two != one
    with (folder / "events.ndjson").open("rb") as trace:
        report = validate(trace, engines=ENGINES)
    assert (report.finding, report.gaps) == (None, 0)


async def life(deployment: Deployment, folder: Path, incarnation: str, *, die_at: str) -> int:
    """Run one life of a coordinator in a process of its own; how it ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.engine.coordinator_life", str(folder), incarnation, die_at,
        *(deployment.engine(slot).address for slot in range(ENGINES)),
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIFE_S):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def explained(deployment: Deployment) -> None:
    """The whole trace so far follows the protocol."""
    report = deployment.validated()
    assert report.finding is None, report.finding
    assert report.gaps == 0
