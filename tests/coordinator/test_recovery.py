"""What a new coordinator does about every record that it can find, and what a living one refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.simulated import Fault, Weights, run_simulated
from reef_ref.load_id import LoadId
from reef_ref.markers import Load, Record, Status, encode
from reef_ref.publication import Phase
from reef_ref.training import Disposition, Job, disposition
from tests.conformance.explore import judge
from tests.conformance.world import INITIAL_SEED, Checkpoints, Layout, Wish, World

PARENT_SEED, CANDIDATE_SEED = 1500, 1600


def found(world: World, status: Status, *, target: bool = False) -> Record:
    """Put a record on the disk, as a life "a" would have left it."""
    load_id = LoadId("a", 8)
    has_target = status.published or (status is Status.UPDATING_WEIGHTS and target)
    previous = Record(
        status=Status.COMPLETE,
        job="job-1",
        rollout=1,
        parent=Load(load_id=LoadId("a", 6), checkpoint=str(world.checkpoints(INITIAL_SEED))),
        checkpoint=str(world.checkpoints(PARENT_SEED)),
        target=LoadId("a", 7),
        load_id=LoadId("a", 7),
        acknowledged=True,
    )
    record = Record(
        status=status,
        job="job-2",
        rollout=2,
        scenario_step=2,
        parent=Load(
            load_id=LoadId("a", 7),
            checkpoint=str(world.checkpoints(PARENT_SEED)),
            checksum=Weights(PARENT_SEED, "").checksum,
        ),
        checkpoint=None if status is Status.RUNNING else str(world.checkpoints(CANDIDATE_SEED)),
        target=load_id if has_target else None,
        load_id=load_id if status.published else None,
        acknowledged=status in {Status.HEAD_COMMITTED, Status.COMPLETE},
        previous=previous if status is Status.RUNNING else None,
    )
    world.disk.data = encode(record)
    world.committed.add("a:8")
    return record


@dataclass(frozen=True)
class Row:
    """The record found (and whether it has a target); then the record afterwards, and what engines hold and do."""

    status: Status
    target: bool
    after: Status
    load_id: str
    seed: int
    served: bool


TABLE = [
    Row(Status.CHECKPOINT, False, Status.READY_TO_COMMIT, "life1:1", CANDIDATE_SEED, False),
    Row(Status.UPDATING_WEIGHTS, False, Status.READY_TO_COMMIT, "life1:1", CANDIDATE_SEED, False),
    Row(Status.UPDATING_WEIGHTS, True, Status.READY_TO_COMMIT, "a:8", CANDIDATE_SEED, False),
    Row(Status.READY_TO_COMMIT, True, Status.READY_TO_COMMIT, "a:8", CANDIDATE_SEED, False),
    Row(Status.HEAD_COMMITTED, True, Status.COMPLETE, "a:8", CANDIDATE_SEED, True),
    Row(Status.COMPLETE, True, Status.COMPLETE, "a:8", CANDIDATE_SEED, True),
    Row(Status.REJECTING, False, Status.REJECTED, "a:7", PARENT_SEED, True),
    Row(Status.REJECTED, False, Status.REJECTED, "a:7", PARENT_SEED, True),
]


@pytest.mark.parametrize("colocated", [False, True])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.status}-{row.target}")
def test_every_record_has_one_answer(tmp_path: Path, row: Row, colocated: bool) -> None:
    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout(engines=2, colocated=colocated))
        found(world, row.status, target=row.target)
        await world.restart()
        record = world.record()
        assert record is not None
        assert record.status is row.after
        for engine in world.in_slots():
            assert engine.scheduler.weights == Weights(row.seed, row.load_id)
            assert (engine.scheduler.paused is None) == row.served
            assert bool(engine.scheduler.released) is False
        assert world.coordinator is not None
        assert world.coordinator.latched is not row.served
        assert world.coordinator.health().ok
        if row.served:
            assert await world.settle(Wish(3)) == "settled"
            following = world.record()
            assert following is not None
            assert following.load_id == LoadId.parse(row.load_id).next()

    run_simulated(main())


def test_nothing_found_is_the_initial_load(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout(engines=2))
        await world.restart()
        assert world.disk.data is None
        assert {engine.scheduler.weights for engine in world.in_slots()} == {Weights(INITIAL_SEED, "life1:1")}

    run_simulated(main())


def test_a_running_job_is_refused_before_any_engine_is_asked(tmp_path: Path) -> None:
    """Unless the trainer's files prove that it left nothing: then the record of before is served again."""

    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout())
        running = found(world, Status.RUNNING)
        world.trained.add("job-2")
        await world.restart()
        assert world.disk.data == encode(running)
        assert {point.call for point in world.plan.reached} == {"read"}
        assert world.coordinator is not None
        health = world.coordinator.health()
        assert not health.ok
        assert not health.recoverable
        assert world.monitor is not None
        assert world.monitor.excluded

        world.trained.clear()
        world.committed.add("a:7")
        await world.restart()
        record = world.record()
        assert record == running.previous
        assert {engine.scheduler.weights for engine in world.in_slots()} == {Weights(PARENT_SEED, "a:7")}

    run_simulated(main())


@pytest.mark.parametrize("data", [b"", b"{", b'{"schema":9,"record":{}}', b'{"schema":1,"record":{}}'])
def test_a_record_that_is_not_understood_stops_the_start(tmp_path: Path, data: bytes) -> None:
    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout())
        world.evidence = lambda: None  # type: ignore[method-assign]
        world.disk.data = data
        await world.restart()
        assert world.coordinator is not None
        assert world.coordinator.health().phase is Phase.STOPPED
        assert world.monitor is not None
        assert world.monitor.excluded
        assert world.disk.data == data
        assert {point.call for point in world.plan.reached} == {"read"}
        error = await world.call(lambda c: c.publish("job-1"))
        assert error is not None
        assert error.startswith("Refused")

    run_simulated(main())


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("same", [True, False])
def test_disposition_over_all_records(tmp_path: Path, status: Status, same: bool) -> None:
    """Section 2.5, row by row."""

    async def main() -> None:
        record = found(World(Checkpoints(tmp_path), Layout()), status, target=True)
        answer = disposition(record.job if same else "another", record)
        if same and status.published:
            assert answer is Disposition.REPLAY
        elif same and status is Status.CHECKPOINT:
            assert answer is Disposition.RESUME
        elif status is Status.REJECTED or (status is Status.COMPLETE and not same):
            assert answer is Disposition.FRESH
        else:
            assert answer is Disposition.CONFLICT

    run_simulated(main())


@pytest.mark.parametrize(
    ("status", "call"),
    [
        (Status.READY_TO_COMMIT, lambda c: c.publish("job-2")),
        (Status.COMPLETE, lambda c: c.publish("job-2")),
        (Status.COMPLETE, lambda c: c.acknowledge("job-2")),
        (Status.REJECTED, lambda c: c.reject("job-2")),
        (Status.COMPLETE, lambda c: c.train(Job(job="job-2", rollout=2))),
    ],
)
def test_what_is_done_already_asks_nobody(
    tmp_path: Path, status: Status, call: Callable[..., Awaitable[object]]
) -> None:
    """P11."""

    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout())
        found(world, status, target=True)
        await world.restart()
        points, told = len(world.plan.reached), len(world.lines)
        assert await world.call(call) is None  # type: ignore[arg-type]
        assert (len(world.plan.reached), len(world.lines)) == (points, told)

    run_simulated(main())


def test_a_failed_republish_is_replayable_in_place(tmp_path: Path) -> None:
    """For a published record, for a rejected one, and for none."""

    async def main(status: Status | None) -> None:
        world = World(Checkpoints(tmp_path), Layout(engines=2))
        if status is not None:
            found(world, status, target=True)
        await world.restart()
        world.plan.arm(0, Fault.FAILS_BEFORE)
        assert world.coordinator is not None
        served = world.coordinator.served.load_id
        assert await world.call(lambda c: c.republish(served)) is not None
        health = world.coordinator.health()
        assert (health.ok, health.recoverable, health.empty_slots) == (False, True, (0, 1))
        assert await world.call(lambda c: c.republish(served)) is None
        assert world.coordinator.health().ok
        assert {engine.scheduler.weights.load_id for engine in world.in_slots()} == {str(served)}

    for status in (None, Status.READY_TO_COMMIT, Status.COMPLETE, Status.REJECTED):
        run_simulated(main(status))


def checkpoint_written_though_its_write_failed(world: World) -> None:
    world.plan.arm(2, Fault.FAILS_AFTER)


def engines_retired_and_the_disk_full(world: World) -> None:
    world.plan.arm(3, Fault.FAILS_BEFORE)
    world.plan.arm(5, Fault.FAILS_BEFORE)


@pytest.mark.parametrize(
    ("arm", "phase", "empty"),
    [
        (checkpoint_written_though_its_write_failed, Phase.CHECKPOINT_FAILED, ()),
        (engines_retired_and_the_disk_full, Phase.WEIGHT_SYNC_FAILED, (0,)),
    ],
)
def test_after_a_failure_only_a_restart_publishes_a_checkpoint(
    tmp_path: Path, arm: Callable[[World], None], phase: Phase, empty: tuple[int, ...]
) -> None:
    """CHECKPOINT says that engines are untouched, so that nothing would rebuild them (section 2.6, H5)."""

    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout())
        await world.restart()
        arm(world)
        await world.call(lambda c: c.train(Job(job="job-1", rollout=1)))
        if empty:
            assert await world.publish("job-1") is not None
        assert world.coordinator is not None
        health = world.coordinator.health()
        assert (health.phase, health.status, health.empty_slots) == (phase, Status.CHECKPOINT, empty)
        assert (health.ok, health.recoverable) == (False, False)
        points, told, disk = len(world.plan.reached), len(world.lines), world.disk.data
        assert str(await world.call(lambda c: c.publish("job-1"))).startswith("Refused")
        assert (len(world.plan.reached), len(world.lines), world.disk.data) == (points, told, disk)
        await world.restart()
        assert world.record_status() == "READY_TO_COMMIT"
        assert judge(world.lines, 1).verdict is Verdict.EXPLAINED

    run_simulated(main())


def test_the_order_of_a_publication_is_that_of_the_prose(tmp_path: Path) -> None:
    """P2 and P6: pauses, flushes, declaration, target, bytes, verification, record; head, continue, complete."""

    async def main() -> None:
        world = World(Checkpoints(tmp_path), Layout(engines=2, colocated=True))
        await world.restart()
        world.lines.clear()
        assert await world.settle(Wish(1)) == "settled"
        order = [line.event.name() for line in world.lines if not isinstance(line.event, events.OfRequest)]
        steps = list(dict.fromkeys(order))
        assert order.count("pause") == 4
        assert steps == [
            *("begin_training", "record_running", "pause", "all_paused", "flush", "all_flushed"),
            *("release", "all_released", "train", "record_checkpoint", "begin_publish", "declare", "record_target"),
            *("resume_weights", "all_weights_back", "send", "all_sent", "resume_kv", "all_kv_back", "verify"),
            *("record_ready", "commit_head", "acknowledge", "record_head"),
            *("continue_generation", "all_continued", "record_complete"),
        ]

    run_simulated(main())
