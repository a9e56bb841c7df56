"""A guard on simulated engines: every way to fail leaves engines fenced and says why; every fault, at every point."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef_ref import adapter, events
from reef_ref.adapter import CheckFailed, PublicationFailed, PublicationGuard
from reef_ref.engines.interface import Engine
from reef_ref.engines.simulated import Fault, Plan, run_simulated, write_checkpoint
from reef_ref.load_id import LoadId
from reef_ref.markers import InvalidRecord, MarkerFile, MarkerInUse, Status
from reef_ref.markers import decode as decode_marker
from reef_ref.monitor.notice import Violation
from reef_ref.monitor.validate import Verdict, validate
from reef_ref.monitor.watch import Monitor
from reef_ref.published import Published, decode, encode
from tests.guard.guarded import Deployment, GuardedEngine
from tests.guard.stories import STORIES, Story


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_guard(story: Story, tmp_path: Path) -> None:
    """Each story's name says what."""
    run_simulated(story(adapter, tmp_path))  # type: ignore[arg-type]


# Every fault at every point: the guard's own calls, the trainer's, and the disk.


async def points_of_a_publication(folder: Path) -> int:
    d = Deployment(adapter, folder)
    await d.publish(1)
    before = len(d.plan.reached)
    await d.publish(2)
    return len(d.plan.reached) - before


async def a_fault(folder: Path, at: int, fault: Fault) -> bool:
    """A publication with a fault in it, and then one without; whether the first succeeded all the same."""
    d = Deployment(adapter, folder)
    old = await d.publish(1)
    await d.serves(1, old)
    d.plan.arm(at, fault)
    task = asyncio.ensure_future(d.publish(2))
    d.plan.cancel = task.cancel
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    crashed = d.plan.dead
    d.plan.disarm()
    d.plan.revive()
    await d.disk.quiet()
    if isinstance(outcome, str):
        await d.serves(2, outcome)
    else:
        if isinstance(outcome, PublicationFailed):
            assert "\n" not in str(outcome)
        nobody_serves_what_was_not_verified(d, old)
    for slot, engine in enumerate(d.engines):
        if not engine.alive:
            d.engines[slot] = GuardedEngine(slot, d.plan, [])
    if crashed:
        d.guard = d.new_guard()
    assert d.record is not None
    if not d.record.finished:
        with pytest.raises(CheckFailed, match="has not ended"):
            await d.guard.check_async()
    await d.serves(3, await d.publish(3))
    await d.guard.check_async()
    report = d.validated()
    assert report.finding is None, report.finding
    return isinstance(outcome, str)


def nobody_serves_what_was_not_verified(d: Deployment, old: str) -> None:
    """Whoever generates holds what all were verified to hold; or nobody was asked for anything."""
    assert d.record is not None
    served = {e.scheduler.weights.load_id for e in d.engines if e.alive and e.scheduler.paused is None}
    if served == {old}:
        assert all(e.scheduler.weights.load_id == old for e in d.engines if e.alive), "some are about to change"
        return
    for engine in d.engines:
        if served and engine.alive:
            assert {engine.scheduler.weights.load_id} == served
            assert engine.scheduler.weights.checksum == d.engines[0].scheduler.weights.checksum


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_a_fault_at_any_point_leaves_nothing_that_a_publication_does_not_put_right(
    fault: Fault, tmp_path: Path
) -> None:
    """In between nobody serves what was not verified, and the trace is never called wrong."""
    points = run_simulated(points_of_a_publication(tmp_path / "clean"))
    assert points > 15
    succeeded = [run_simulated(a_fault(tmp_path / str(at), at, fault)) for at in range(points)]
    assert not all(succeeded), "the fault was never met"


# A trainer without an event loop, a real file, real processes.


def blocking_guard(
    folder: Path, listener: events.Listener | None = None
) -> tuple[PublicationGuard, list[GuardedEngine]]:
    """A guard over two engines and a marker's file, for a caller without an event loop."""
    engines = [GuardedEngine(slot, Plan(), []) for slot in range(2)]

    def attach(engine: GuardedEngine) -> adapter.Attach:
        @contextlib.asynccontextmanager
        async def attached() -> AsyncIterator[Engine]:
            yield engine

        return attached

    return PublicationGuard([attach(engine) for engine in engines], MarkerFile(folder), listener=listener), engines


def publish(guard: PublicationGuard, engines: list[GuardedEngine], folder: Path, seed: int) -> str:
    with guard.publication() as publication:
        for engine in engines:
            asyncio.run(engine.update(write_checkpoint(folder / f"checkpoint-{seed}", seed), publication.load_id))
    return publication.load_id


def test_a_trainer_without_an_event_loop(tmp_path: Path) -> None:
    """Publishes, checks, fails and publishes again, with `with`."""
    guard, engines = blocking_guard(tmp_path)
    with contextlib.closing(guard):
        first = publish(guard, engines, tmp_path, 1)
        assert [engine.scheduler.paused for engine in engines] == [None, None]
        guard.check()
        with pytest.raises(PublicationFailed, match="engine 0 reports"), guard.publication():
            pass  # A trainer that forgot to send anything.
        with pytest.raises(CheckFailed, match="has not ended"):
            guard.check()
        assert publish(guard, engines, tmp_path, 2) != first
        guard.check()


def test_with_is_refused_where_an_event_loop_runs(tmp_path: Path) -> None:
    """In one line that says what to write."""
    guard, _ = blocking_guard(tmp_path)

    async def main() -> None:
        with guard.publication():
            raise AssertionError

    with contextlib.closing(guard), pytest.raises(RuntimeError, match="write `async with"):
        asyncio.run(main())


def test_a_guard_needs_engines_on_one_loop(tmp_path: Path) -> None:
    """And at least one of them."""

    class SomeEngine:
        def __init__(self) -> None:
            self.loop = object()

    with pytest.raises(ValueError, match="one event loop"):
        PublicationGuard.over_engines([SomeEngine(), SomeEngine()], folder=tmp_path)
    with pytest.raises(ValueError, match="needs an engine"):
        PublicationGuard([], MarkerFile(tmp_path))


def test_one_guard_has_a_folder(tmp_path: Path) -> None:
    """Until it is closed."""
    guard, _ = blocking_guard(tmp_path)
    with pytest.raises(MarkerInUse, match="another coordinator holds the marker"):
        blocking_guard(tmp_path)
    guard.close()
    blocking_guard(tmp_path)[0].close()


def life(folder: Path, kill_at: int) -> None:
    """A process that publishes twice and is killed at an event, if there are so many."""
    heard = 0

    def listen(line: events.Line) -> None:
        nonlocal heard
        heard += 1
        with (folder / "trace.ndjson").open("a") as trace:
            trace.write(line.to_json() + "\n")
        if heard == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    guard, engines = blocking_guard(folder, listen)
    for seed in (1, 2):
        publish(guard, engines, folder, seed)


def killed(folder: Path, at: int) -> bool:
    """Run a life; whether it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            life(folder, at)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) != 0


def test_whenever_a_trainer_is_killed_the_record_says_whether_engines_wait(tmp_path: Path) -> None:
    """SIGKILL after each event: before the last of a publication engines wait for another, which a new life makes."""
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        folder.mkdir()
        if not killed(folder, at):
            break
        told = [events.read_line(line).event for line in (folder / "trace.ndjson").read_text().splitlines()]
        guard, engines = blocking_guard(folder)
        with contextlib.closing(guard):
            record = asyncio.run(guard.recorded())
            assert record is not None
            assert record.finished == isinstance(told[-1], events.RecordComplete)
            publish(guard, engines, folder, 3)
            guard.check()
    assert at > 2 * 15, "the lives told less than two publications"


# The record.


def test_a_guard_and_a_coordinator_do_not_read_each_other() -> None:
    """Each refuses the other's record in one line."""
    record = encode(Published(Status.COMPLETE, LoadId("a", 1), "c"))
    assert decode(record) == Published(Status.COMPLETE, LoadId("a", 1), "c")
    with pytest.raises(InvalidRecord, match="not a record"):
        decode_marker(record)
    with pytest.raises(InvalidRecord, match="a folder of its own"):
        decode(b'{"schema":1,"record":{}}')


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b'{"schema":2,"publication":{"status":"COMPLETE","load_id":"a:1"}}', "schema 2"),
        (b'{"schema":1,"publication":{"status":"RUNNING","load_id":"a:1"}}', "status RUNNING"),
        (b'{"schema":1,"publication":{"status":"COMPLETE","load_id":"a"}}', "has no colon"),
        (b'{"schema":1,"publication":{"status":"COMPLETE"}}', "load_id"),
        (b'{"schema":1,"publication":{"status":"COMPLETE","load_id":"a:1"', "not the record of a guard"),
        (b"[" * 100_000, "not the record of a guard"),
    ],
)
def test_another_record_is_refused(text: bytes, match: str) -> None:
    """In one line that says why."""
    with pytest.raises(InvalidRecord, match=match) as caught:
        decode(text)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    """Nothing else is raised."""
    with contextlib.suppress(InvalidRecord):
        assert decode(data)


def test_the_trace_of_a_guard_is_explained_and_one_without_a_flush_is_not(tmp_path: Path) -> None:
    """By what `reef-ref validate` calls, which sees by the source what a guard does not tell."""

    async def main() -> list[events.Line]:
        d = Deployment(adapter, tmp_path)
        for seed in (1, 2, 3, 1, 2, 3, 1):
            await d.publish(seed)
        return d.trace

    lines = run_simulated(main())
    assert validate([line.to_json().encode() + b"\n" for line in lines]).verdict is Verdict.EXPLAINED
    flushes = [n for n, line in enumerate(lines) if isinstance(line.event, events.Flush)]
    fewer = [line for n, line in enumerate(lines) if n != flushes[3]]
    renumbered = [events.Line(line.source, n, 0.0, line.event) for n, line in enumerate(fewer, 1)]
    report = validate([line.to_json().encode() + b"\n" for line in renumbered])
    assert report.verdict is Verdict.INEXPLICABLE
    assert report.finding is not None
    assert isinstance(report.finding.event, events.AllFlushed)
    assert violations(lines) == []
    assert violations(renumbered) != []


def violations(lines: list[events.Line]) -> list[Violation]:
    """What the live monitor objects to."""
    found: list[Violation] = []
    monitor = Monitor(2, found.append)
    for line in lines:
        monitor.coordinator(line)
    return found
