"""A rejection: what it asks of engines, and how it goes on after each way in which it can fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from reef_ref import events
from reef_ref.engines.simulated import Fault, Weights, run_simulated
from reef_ref.training import Job
from tests.conformance.world import INITIAL_SEED, Checkpoints, Layout, World

JOB = "job-1"
RESTORED = ["resume_weights", "all_weights_back", "resume_kv", "all_kv_back", "continue_generation", "all_continued"]


def trained(test: Callable[[World], Awaitable[None]], folder: Path, *, colocated: bool = True) -> None:
    """Run a test over a job that has its checkpoint."""

    async def main() -> None:
        world = World(Checkpoints(folder), Layout(colocated=colocated))
        await world.restart()
        assert await world.call(lambda c: c.train(Job(job=JOB, rollout=1))) is None
        world.lines.clear()
        await test(world)

    run_simulated(main())


def told(world: World) -> list[str]:
    """What was told since the last time, but for requests."""
    names = [line.event.name() for line in world.lines if not isinstance(line.event, events.OfRequest)]
    world.lines.clear()
    return names


async def reject(world: World) -> str | None:
    return await world.call(lambda c: c.reject(JOB))


async def republish(world: World) -> str | None:
    assert world.coordinator is not None
    load_id = world.coordinator.served.load_id
    return await world.call(lambda c: c.republish(load_id))


CALLS = ("write", "resume", "resume", "report", "checksum", "continue", "write")
"""The points of a rejection where memory is shared, in their order."""
RESUME_WEIGHTS, RESUME_KV, REPORT, CONTINUE, LAST_WRITE = 1, 2, 3, 5, 6


def check_rejected(world: World) -> None:
    assert world.record_status() == "REJECTED"
    (engine,) = world.in_slots()
    assert engine.scheduler.weights == Weights(INITIAL_SEED, "life1:1")
    assert engine.scheduler.paused is None
    assert not engine.scheduler.released
    assert world.coordinator is not None
    assert world.coordinator.health().ok
    assert not world.coordinator.latched


@pytest.mark.parametrize("colocated", [True, False])
def test_after_a_failed_write_everything_is_done_again(tmp_path: Path, colocated: bool) -> None:
    """What the failed try had done shows in no record. Engines are asked again, and stay as they are."""
    restored = RESTORED if colocated else []

    async def test(world: World) -> None:
        world.plan.arm(LAST_WRITE if colocated else 1, Fault.FAILS_BEFORE)
        assert await reject(world) is not None
        assert told(world) == ["begin_reject", "record_rejecting", *restored, "write_fails"]
        assert world.record_status() == "REJECTING"
        (engine,) = world.in_slots()
        before = engine.scheduler.weights
        assert await reject(world) is None
        assert told(world) == ["begin_reject", *restored, "record_rejected"]
        assert (list(world.in_slots()), engine.scheduler.weights) == ([engine], before)
        check_rejected(world)

    trained(test, tmp_path, colocated=colocated)


def test_the_points_are_those_of_the_table(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        before = len(world.plan.reached)
        assert await reject(world) is None
        assert tuple(point.call for point in world.plan.reached[before:]) == CALLS
        assert told(world) == ["begin_reject", "record_rejecting", *RESTORED, "record_rejected"]
        check_rejected(world)

    trained(test, tmp_path)


@pytest.mark.parametrize("point", [RESUME_WEIGHTS, RESUME_KV])
@pytest.mark.parametrize("fault", [Fault.FAILS_BEFORE, Fault.HANGS_AFTER, Fault.CANCELLED])
def test_engines_whose_memory_does_not_come_back_are_retired_and_a_republication_finishes(
    tmp_path: Path, point: int, fault: Fault
) -> None:
    async def test(world: World) -> None:
        world.plan.arm(point, fault)
        assert await reject(world) is not None
        assert told(world)[-2:] == ["transfer_fails", "retire"]
        assert world.coordinator is not None
        health = world.coordinator.health()
        assert (health.ok, health.recoverable, health.empty_slots) == (False, True, (0,))
        asked = len(world.plan.reached)
        error = await reject(world)
        assert error is not None
        assert error.startswith("Refused")
        assert (len(world.plan.reached), told(world), world.record_status()) == (asked, [], "REJECTING")
        assert await republish(world) is None
        assert told(world)[-1] == "record_rejected"
        check_rejected(world)

    trained(test, tmp_path)


@pytest.mark.parametrize("point", [REPORT, CONTINUE])
@pytest.mark.parametrize("fault", [Fault.FAILS_BEFORE, Fault.CANCELLED])
def test_engines_that_do_not_continue_stay_fenced_until_the_rejection_is_repeated(
    tmp_path: Path, point: int, fault: Fault
) -> None:
    async def test(world: World) -> None:
        world.plan.arm(point, fault)
        assert await reject(world) is not None
        assert told(world)[-1] == "continue_fails"
        assert world.coordinator is not None
        assert world.coordinator.latched
        assert world.coordinator.health().empty_slots == ()
        assert await reject(world) is None
        check_rejected(world)

    trained(test, tmp_path)


def test_engines_with_other_bytes_are_not_continued_and_a_republication_brings_the_right_ones(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        (engine,) = world.in_slots()
        engine.scheduler.weights = Weights(INITIAL_SEED + 1, "life1:1")
        assert "contents differ" in str(await reject(world))
        assert told(world)[-1] == "continue_fails"
        assert engine.scheduler.paused is not None
        assert str(await reject(world)).startswith("Refused")
        assert await republish(world) is None
        check_rejected(world)

    trained(test, tmp_path)
