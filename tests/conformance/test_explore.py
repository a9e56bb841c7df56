"""Every single fault at every point, in every deployment; for pairs run `python -m tests.conformance.explore`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.explore import SINGLES, Scenario, explore


@pytest.mark.parametrize("scenario", SINGLES, ids=str)
def test_no_single_fault_breaks_anything(tmp_path: Path, scenario: Scenario) -> None:
    """Every run settles and serves, or is stuck in RUNNING, which only an operator may resolve."""
    runs, ends = explore(tmp_path, scenario, pairs=False)
    print(f"{runs} runs: {dict(ends)}")
    assert ends["settled"] > ends["RUNNING"] > 0
    assert ends.total() == runs
