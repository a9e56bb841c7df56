"""The monitor on whole deployments: silent on what is right, whatever fails there; and it notices what is not."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reef_ref import events
from reef_ref.control import Control
from reef_ref.engines.simulated import Fault, Plan, run_simulated
from reef_ref.events import Line
from reef_ref.monitor.notice import CONFORMS, Violation
from reef_ref.monitor.trace import Unreadable
from reef_ref.monitor.watch import Monitor
from tests.conformance.explore import Scenario, live
from tests.conformance.world import Broken, Checkpoints, Layout, World

THREE = Scenario(Layout(engines=2), (True, False, True))


def told(folder: Path, scenario: Scenario = THREE, faults: dict[int, Fault] | None = None) -> list[Line]:
    """What a run tells, to its end or to where its world notices that it is broken."""
    lines: list[Line] = []

    async def run() -> None:
        world = World(Checkpoints(folder), scenario.layout, Plan(faults or {}), lines)
        try:
            with contextlib.suppress(Broken):
                await live(world, scenario)
        finally:
            await world.close()

    run_simulated(run())
    return lines


def watched(lines: list[Line], engines: int = 2) -> tuple[Monitor, list[Violation]]:
    found: list[Violation] = []
    monitor = Monitor(engines, found.append)
    for line in lines:
        monitor.coordinator(line)
    monitor.give_up()
    return monitor, found


@pytest.mark.parametrize(
    "faults",
    [{}, {3: Fault.FAILS_BEFORE}, {9: Fault.HANGS_AFTER}, {12: Fault.ENGINE_DIES_AFTER}, {20: Fault.CRASH_AFTER}],
    ids=str,
)
def test_a_right_deployment_is_not_accused(tmp_path: Path, faults: dict[int, Fault]) -> None:
    """Whatever fails in it."""
    monitor, found = watched(told(tmp_path, faults=faults))
    status = monitor.status()
    assert found == []
    assert status.deployment
    assert (status.counts.lost, status.counts.violations) == (0, 0)
    assert status.latched is False


def test_lines_may_be_late_and_come_again(tmp_path: Path) -> None:
    """What comes after the next of its source is in time; what comes again is counted."""
    lines = told(tmp_path)
    chance = random.Random(3)
    for n in range(1, len(lines)):
        if lines[n - 1].source == lines[n].source and lines[n - 1].number > 1 and chance.random() < 0.5:
            lines[n - 1 : n + 1] = lines[n], lines[n - 1]
    mixed = [line for line in lines for _ in range(1 + (chance.random() < 0.2 and line.number > 1))]
    monitor, found = watched(mixed)
    counts = monitor.status().counts
    assert found == []
    assert counts.lost == 0
    assert counts.late > 10
    assert counts.repeated > 10


def test_after_a_gap_nothing_is_known_until_a_job_has_settled(tmp_path: Path) -> None:
    """And then it is watched again: the same wrong is not seen in the gap, and seen after it."""
    lines = told(tmp_path)
    settled = [n for n, line in enumerate(lines) if line.event.name() in {"record_complete", "record_rejected"}]
    gone = settled[0] - 2
    monitor = Monitor(2, window=4)
    known = []
    for number, line in enumerate(lines):
        if number != gone:
            monitor.coordinator(line)
        known.append(monitor.status().deployment)
    assert all(known[: gone + 1])
    assert not all(known[gone + 1 : settled[1]])
    assert all(known[settled[1] :])
    assert monitor.status().counts.lost == 1
    assert monitor.status().counts.resynchronised >= 1
    assert monitor.status().counts.violations == 0


def _no_flush(patch: pytest.MonkeyPatch) -> None:
    async def barrier(self: Any) -> None:
        self._latched, self._verified = True, None
        await self.exclude_monitor()
        await self._all("pause", 5, lambda e: e.pause("retract"), lambda n, _: self._tell(events.Pause, n, "retract"))
        self._tell(events.AllPaused)

    patch.setattr(Control, "barrier", barrier)


def _flush_of_one(patch: pytest.MonkeyPatch) -> None:
    async def barrier(self: Any) -> None:
        self._latched, self._verified = True, None
        await self.exclude_monitor()
        await self._all("pause", 5, lambda e: e.pause("retract"), lambda n, _: self._tell(events.Pause, n, "retract"))
        self._tell(events.AllPaused)
        slot = self._slots.live[0]
        await self._slots[slot].flush()
        self._tell(events.Flush, slot)
        self._tell(events.AllFlushed)

    patch.setattr(Control, "barrier", barrier)


def _skipped(owner: type, name: str) -> Callable[[pytest.MonkeyPatch], None]:
    async def nothing(self: Any, *args: Any, **more: Any) -> None:
        del self, args, more

    return lambda patch: patch.setattr(owner, name, nothing)


def _continued_early(patch: pytest.MonkeyPatch) -> None:
    really = Control.send

    async def send(self: Any, *args: Any, **more: Any) -> Any:
        self._tell(events.ContinueGeneration, self._slots.live[0])
        return await really(self, *args, **more)

    patch.setattr(Control, "send", send)


def _untold(kind: type[events.Event]) -> Callable[[pytest.MonkeyPatch], None]:
    """A step that is left out, as a coordinator that forgot it would."""
    really = events.Teller.__call__

    def tell(self: Any, what: Any, *args: Any, **fields: Any) -> None:
        if what is not kind:
            really(self, what, *args, **fields)

    return lambda patch: patch.setattr(events.Teller, "__call__", tell)


def _stale_hit(patch: pytest.MonkeyPatch) -> None:
    really = events.Teller.__call__

    def tell(self: Any, what: Any, *args: Any, **fields: Any) -> None:
        if what is events.Start and args[2].endswith(":2"):
            really(self, events.StartOnHit, *args, 4, ("life1:1",))
        else:
            really(self, what, *args, **fields)

    patch.setattr(events.Teller, "__call__", tell)


WRONG: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no flush": _no_flush,
    "only one engine is flushed": _flush_of_one,
    "an engine continues before the bytes": _continued_early,
    "nobody declares UPDATING_WEIGHTS": _untold(events.Declare),
    "no target is recorded": _untold(events.RecordTarget),
    "nobody verifies": _untold(events.Verify),
    "READY_TO_COMMIT is not recorded": _untold(events.RecordReady),
    "the head is committed without a record": _untold(events.RecordHead),
    "an engine is left out of a transfer": _untold(events.AllSent),
    "engines are not paused": _untold(events.AllPaused),
    "a job is complete without an acknowledgement": _untold(events.Acknowledge),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_coordinator_does_wrong_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """In the very event that has no place, while the trace goes on."""
    WRONG[wrong](monkeypatch)
    lines = told(tmp_path)
    _, found = watched(lines)
    assert found, "not noticed"
    assert found[0].property == CONFORMS
    assert found[0].story[-1].startswith(f"{found[0].number}. ")
    assert "\n" not in str(found[0])


def test_a_stale_hit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its property, its engine and the loads that it mixed."""
    _stale_hit(monkeypatch)
    _, found = watched(told(tmp_path))
    stale = [one for one in found if one.property == "no_stale_hit"]
    assert stale
    assert "life1:1" in stale[0].reason


def test_it_goes_on_after_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong at every publication is found at each that follows a settled one."""
    _untold(events.AllSent)(monkeypatch)
    monitor, found = watched(told(tmp_path, Scenario(Layout(engines=2), (True, True, True, True))))
    assert len(found) >= 3
    assert monitor.status().counts.resynchronised >= 2


def test_an_engine_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """An event of it is an error of whoever configured the monitor, and changes nothing."""
    lines = told(tmp_path)
    monitor = Monitor(1)
    with pytest.raises(Unreadable, match="engine 1 of 1"):
        any(monitor.coordinator(line) for line in lines)  # type: ignore[func-returns-value]
