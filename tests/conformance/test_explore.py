"""Every single fault at every point, in every deployment; for pairs run `python -m tests.conformance.explore`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.simulated.faults import Fault
from reef_ref.publication import Publication
from tests.conformance.explore import CALLS, SINGLES, Explorer, Scenario, explore
from tests.conformance.world import Layout


@pytest.mark.parametrize("scenario", SINGLES, ids=str)
def test_no_single_fault_breaks_anything(tmp_path: Path, scenario: Scenario) -> None:
    """Every run settles and serves, or is stuck in RUNNING, which only an operator may resolve; all are explained."""
    tally = explore(tmp_path, scenario)
    print(tally)
    assert tally.ends["settled"] > tally.ends["RUNNING"] > 0
    assert tally.ends.total() == tally.runs == tally.faults + 1
    assert tally.traces == {Verdict.EXPLAINED: tally.runs}, "\n\n".join(tally.stories.values())


def test_the_protocol_finds_what_no_invariant_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejection that goes straight to its write, the second time: engines serve the parent all the same."""
    really = Publication._restore_parent

    async def only_once(self: Any, parent: Any) -> None:
        if self._control.latched:
            await really(self, parent)

    monkeypatch.setattr(Publication, "_restore_parent", only_once)
    tally = explore(tmp_path, Scenario(Layout(colocated=True), (False, True)))
    assert tally.traces[Verdict.INEXPLICABLE] > 0
    assert {kind.partition(":")[0] for kind in tally.kinds} == {"record_rejected"}


def test_a_retirement_of_some_engines_is_explained(tmp_path: Path) -> None:
    """One engine is shut down and its slot emptied; the other cannot be, and keeps its slot behind the latch."""
    explorer = Explorer(tmp_path)
    scenario = Scenario(Layout(engines=2), (True,))
    try:
        points = explorer.run(scenario, {}).points
        pause = [point.call for point in points].index("pause", [point.call for point in points].index("train"))
        failed = explorer.run(scenario, {pause: Fault.FAILS_BEFORE}).points
        shutdowns = [n for n in range(pause, len(failed)) if failed[n].call == "shut down"][:2]
        for retire, fault in itertools.product(shutdowns, CALLS):
            told = [line.event for line in explorer.run(scenario, {pause: Fault.FAILS_BEFORE, retire: fault}).lines]
            if fault is Fault.FAILS_BEFORE:
                gone = {event.engine for event in told if isinstance(event, events.Retire)}
                kept = {event.engine for event in told if isinstance(event, events.RetireFails)}
                assert (gone, kept) == ({1 - failed[retire].slot}, {failed[retire].slot})
    finally:
        explorer.close()
    assert explorer.tally.traces == {Verdict.EXPLAINED: explorer.tally.runs}, explorer.tally.stories
