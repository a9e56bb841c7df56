"""Every single fault at every point, in every deployment; for pairs run `python -m tests.conformance.explore`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from model_check.explain import Verdict
from reef_ref.engines.simulated.faults import Fault
from reef_ref.publication import Publication
from tests.conformance.explore import DISAGREEMENTS, PARTLY_RETIRED, SINGLES, Explorer, Scenario, explore
from tests.conformance.world import Layout


@pytest.mark.parametrize("scenario", SINGLES, ids=str)
def test_no_single_fault_breaks_anything(tmp_path: Path, scenario: Scenario) -> None:
    """Every run settles and serves, or is stuck in RUNNING, which only an operator may resolve; all are explained."""
    tally = explore(tmp_path, scenario, pairs=False)
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
    tally = explore(tmp_path, Scenario(Layout(colocated=True), (False, True)), pairs=False)
    assert tally.traces[Verdict.INEXPLICABLE] > 0
    assert {kind.partition(":")[0] for kind in tally.kinds} == {"record_rejected"}


def test_each_known_disagreement_is_one(tmp_path: Path) -> None:
    """A run shows it; the day that nothing is inexplicable there, it leaves the table."""
    explorer = Explorer(tmp_path)
    scenario = Scenario(Layout(engines=2), (True,))
    try:
        points = explorer.run(scenario, {}).points
        pause = [point.call for point in points].index("pause", [point.call for point in points].index("train"))
        failed = explorer.run(scenario, {pause: Fault.FAILS_BEFORE}).points
        retire = next(n for n in range(pause, len(failed)) if failed[n].call == "shut down")
        explorer.run(scenario, {pause: Fault.FAILS_BEFORE, retire: Fault.FAILS_BEFORE})
    finally:
        explorer.close()
    assert explorer.tally.kinds == {PARTLY_RETIRED: 1}
    assert set(DISAGREEMENTS) == {PARTLY_RETIRED}
