"""A guard on simulated engines: every way to fail leaves engines fenced and says why; every fault, at every point."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef_ref import adapter, events
from reef_ref.adapter import CheckFailed, PublicationFailed, PublicationGuard
from reef_ref.engines.interface import Engine
from reef_ref.engines.simulated import Fault, Plan, run_simulated
from reef_ref.load_id import LoadId
from reef_ref.markers import InvalidRecord, MarkerFile, MarkerInUse, Status
from reef_ref.markers import decode as decode_marker
from reef_ref.monitor.validate import Verdict, validate
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
