"""Deployments at rest are alike exactly where nothing but their past differs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reef_ref.engines.simulated import Fault, run_simulated
from reef_ref.engines.simulated.model import Kv
from reef_ref.publication import Phase
from tests.conformance.alike import at_rest
from tests.conformance.explore import Scenario, pairs
from tests.conformance.world import Checkpoints, Layout, Wish, World


def settled(folder: Path, change: Callable[[Any], object] | None = None, faults: tuple[int, ...] = ()) -> Hashable:
    """What a deployment is after one job, a change made to it in the end, or faults of a first try of that job."""

    async def main() -> Hashable:
        world = World(Checkpoints(folder), Layout(engines=2, colocated=True))
        await world.restart()
        for distance in faults:
            world.plan.arm(distance, Fault.FAILS_BEFORE)
        assert await world.settle(Wish(1)) == "settled"
        if change is not None:
            change(world)
        return at_rest(world)

    return run_simulated(main())


CHANGES: dict[str, Callable[[Any], object]] = {
    "the disk": lambda w: setattr(w.disk, "data", w.disk.data + b" "),
    "the head": lambda w: setattr(w, "head", "life1:9"),
    "what was sent": lambda w: w.sent.setdefault("life1:9", {1}),
    "what was trained": lambda w: w.trained.add("job-9"),
    "the phase": lambda w: setattr(w.coordinator._publication, "phase", Phase.TRAINING),
    "the latch": lambda w: setattr(w.coordinator._control, "_latched", True),
    "what is verified": lambda w: setattr(w.coordinator._control, "_verified", None),
    "the copy of the record": lambda w: setattr(w.coordinator._journal, "_known", False),
    "the monitor": lambda w: setattr(w.monitor, "_excluded", True),
    "a slot": lambda w: w.slots.clear(0, w.slots[0]),
    "a death": lambda w: w.slots[1].die(),
    "weights": lambda w: setattr(w.slots[1].scheduler, "weights", replace(w.slots[1].scheduler.weights, seed=1)),
    "a pause": lambda w: setattr(w.slots[0].scheduler, "paused", "retract"),
    "memory": lambda w: w.slots[0].scheduler.released.add("weights"),
    "a cache": lambda w: w.slots[0].scheduler.tree.insert(None, [Kv(1, 2, frozenset({"life1:1"}))]),
    "a timer": lambda w: w._clock.__self__.call_later(1, print),
}


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_matters_is_told_apart(tmp_path: Path, what: str) -> None:
    assert settled(tmp_path, CHANGES[what]) != settled(tmp_path)


def test_the_past_does_not_matter(tmp_path: Path) -> None:
    """A declined write, repeated, leaves what a first one would have; what was told and when differs."""
    assert settled(tmp_path) == settled(tmp_path)
    assert settled(tmp_path, faults=(0,)) == settled(tmp_path)


def test_pairs_are_left_out_and_most_are_not(tmp_path: Path) -> None:
    """The first faults of a rejection; what is left out was compared on the way."""
    tally, found = pairs(tmp_path, Scenario(Layout(), (False,)))
    assert tally.same > 0
    assert len(found) > tally.runs
    assert len(set(found)) == len(found)
