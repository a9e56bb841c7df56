"""A job up to its checkpoint: declined, failed, or durable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from reef_ref import events
from reef_ref.coordinator import gate_may_open
from reef_ref.engines.simulated import Fault, run_simulated
from reef_ref.markers import Record, Status
from reef_ref.publication import Phase
from reef_ref.training import Job, Trained
from tests.conformance.world import Checkpoints, Layout, World

JOB = Job(job="job-1", rollout=1)


def started(test: Callable[[World], Awaitable[None]], folder: Path, layout: Layout | None = None) -> None:
    async def main() -> None:
        world = World(Checkpoints(folder), layout or Layout())
        await world.restart()
        world.lines.clear()
        await test(world)

    run_simulated(main())


def told(world: World) -> list[events.Event]:
    return [line.event for line in world.lines]


def test_a_declined_job_writes_nothing_and_may_be_offered_again(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        async def stale(job: Job) -> str | None:
            return "the data of this job are too old"

        world.prepare = stale  # type: ignore[method-assign]
        assert world.coordinator is not None
        assert await world.coordinator.train(JOB) == "the data of this job are too old"
        assert world.disk.data is None
        assert told(world) == [
            events.BeginTraining("job-1"),
            events.DeclineJob("job-1", "the data of this job are too old"),
        ]
        del world.prepare
        await world.coordinator.train(JOB)
        assert world.record_status() == "CHECKPOINT"

    started(test, tmp_path)


def test_a_trainer_that_cannot_say_declines(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        async def broken(job: Job) -> str | None:
            raise RuntimeError("no answer")

        world.prepare = broken  # type: ignore[method-assign]
        assert await world.call(lambda c: c.train(JOB)) == "RuntimeError: no answer"
        assert world.disk.data is None
        assert told(world)[-1] == events.DeclineJob("job-1", "no answer")

    started(test, tmp_path)


@pytest.mark.parametrize("fault", [Fault.FAILS_BEFORE, Fault.FAILS_AFTER, Fault.CANCELLED])
def test_failed_training_is_ambiguous_and_never_run_again(tmp_path: Path, fault: Fault) -> None:
    async def test(world: World) -> None:
        world.plan.arm(1, fault)
        assert await world.call(lambda c: c.train(JOB)) is not None
        assert world.record_status() == "RUNNING"
        assert isinstance(told(world)[-1], events.TrainFails)
        assert world.coordinator is not None
        health = world.coordinator.health()
        assert (health.phase, health.ok, health.recoverable) == (Phase.TRAINING_FAILED, False, False)
        for call in (lambda c: c.train(JOB), lambda c: c.publish("job-1"), lambda c: c.reject("job-1")):
            error = await world.call(call)
            assert error is not None
            assert error.startswith("Refused")
        assert world.record_status() == "RUNNING"

    started(test, tmp_path)


@pytest.mark.parametrize("what", ["missing", "a link", "a file"])
def test_a_checkpoint_that_is_no_folder_is_no_checkpoint(tmp_path: Path, what: str) -> None:
    path = tmp_path / "candidate"
    if what == "a link":
        path.symlink_to(tmp_path)
    elif what == "a file":
        path.write_text("")

    async def test(world: World) -> None:
        async def train(job: Job) -> Trained:
            return Trained(path)

        world.train = train  # type: ignore[method-assign]
        assert await world.call(lambda c: c.train(JOB)) is not None
        assert world.record_status() == "RUNNING"
        assert world.coordinator is not None
        assert world.coordinator.health().phase is Phase.CHECKPOINT_FAILED

    started(test, tmp_path)


def test_engines_give_memory_back_before_training_and_only_where_it_is_shared(tmp_path: Path) -> None:
    async def colocated(world: World) -> None:
        assert await world.call(lambda c: c.train(JOB)) is None
        names = [event.name() for event in told(world)]
        assert names.index("record_running") < names.index("all_flushed") < names.index("release")
        assert names.index("all_released") < names.index("train") < names.index("record_checkpoint")

    async def disjoint(world: World) -> None:
        assert await world.call(lambda c: c.train(JOB)) is None
        assert [event.name() for event in told(world)] == [
            *("begin_training", "record_running", "train", "record_checkpoint")
        ]

    started(colocated, tmp_path, Layout(colocated=True))
    started(disjoint, tmp_path)


def test_the_gate_follows_the_record() -> None:
    """Section 2.7, row by row."""
    opens = {
        status: (
            gate_may_open(Record.model_construct(status=status), colocated=True),
            gate_may_open(Record.model_construct(status=status), colocated=False),
        )
        for status in Status
    }
    assert gate_may_open(None, colocated=True)
    assert opens == {
        Status.RUNNING: (False, True),
        Status.CHECKPOINT: (False, True),
        Status.UPDATING_WEIGHTS: (False, False),
        Status.READY_TO_COMMIT: (False, False),
        Status.HEAD_COMMITTED: (False, False),
        Status.COMPLETE: (True, True),
        Status.REJECTING: (False, False),
        Status.REJECTED: (True, True),
    }
