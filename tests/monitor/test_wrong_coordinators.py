"""Coordinators that do one thing wrong, on simulated engines: each is noticed at the very event, and then it is watched
again. On real engines: `tests/engine/test_injected_violations.py`."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

from benchmarks.soak.alterations import ALTERATIONS, REBUILDING
from reef_ref.engines.simulated import Plan, run_simulated
from reef_ref.monitor.notice import CONFORMS, Violation
from reef_ref.monitor.watch import Monitor
from tests.conformance.world import Checkpoints, Layout, Wish, World

NOTICED = {
    "no_flush": "declare",
    "flush_of_one": "all_flushed",
    "bytes_before_the_declaration": "send",
    "bytes_before_their_id": "send",
    "ready_before_verification": "record_ready",
    "one_left_out_of_the_transfer": "all_sent",
    "the_parents_bytes_under_the_new_id": "send",
    "continued_before_the_bytes": "continue_generation",
    "continued_before_the_head": "continue_generation",
    "complete_before_the_engines_continue": "record_complete",
    "no_second_barrier": "send",
}
"""The event in which each is noticed: the first that the protocol does not explain."""


class Unwatched(World):
    """A world that leaves the judgement to the monitor: what is wrong here is wrong on purpose."""

    def before_bytes(self, *args: object) -> None:
        pass

    def before_continue(self, *args: object) -> None:
        pass


def lived(folder: Path, name: str) -> tuple[Monitor, list[Violation]]:
    """A right publication, one by a coordinator that is altered, and two right ones."""
    found: list[Violation] = []
    monitor = Monitor(2, found.append)

    async def run() -> None:
        world = Unwatched(Checkpoints(folder), Layout(engines=2), Plan({}))
        try:
            await world.restart()
            await world.settle(Wish(1))
            assert world.coordinator is not None
            if name in REBUILDING:
                world.made[1].end("it was killed")
                assert world.monitor is not None
                await world.monitor.look()
                with REBUILDING[name](world.coordinator), contextlib.suppress(Exception):
                    await world.coordinator.republish(world.coordinator.served.load_id)
            else:
                with ALTERATIONS[name](world.coordinator):
                    await world.settle(Wish(2))
            for number in (3, 4):
                await world.settle(Wish(number))
        finally:
            await world.close()
        for line in world.lines:
            monitor.coordinator(line)

    run_simulated(run())
    return monitor, found


@pytest.mark.parametrize("name", [*ALTERATIONS, *REBUILDING])
def test_a_wrong_coordinator_is_noticed(tmp_path: Path, name: str) -> None:
    """At the first event that shows it, and nothing that is right is accused afterwards."""
    monitor, found = lived(tmp_path, name)
    assert [re.sub(r"\(.*", "", one.reason) for one in found] == [NOTICED[name]]
    assert found[0].property == CONFORMS
    assert monitor.status().deployment, "it is watched again"
    assert monitor.status().latched is False
