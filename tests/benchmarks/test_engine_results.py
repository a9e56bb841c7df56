"""Results of measurements on engines: ratios, the file that is kept, and the README's section."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engine.__main__ import KEPT
from benchmarks.engine.cost import LOADS, costs_of
from benchmarks.engine.publishing import Publishing
from benchmarks.engine.results import SECTION, Machine, Results, as_markdown, keep, read
from benchmarks.sections import README, between
from benchmarks.spread import Spread


def test_the_readme_shows_the_kept_results() -> None:
    """`make bench-engine` writes both."""
    assert between(README.read_text(), SECTION) == as_markdown(read(KEPT))


def test_the_goals_are_judged_by_the_median(tmp_path: Path) -> None:
    """And what was written is read again."""
    costs = tuple(costs_of(LOADS[0], {"off": [1.0, 1.0], "report": [1.005, 1.009], "enforce": [1.02, 1.03]}))
    assert [cost.within_goal for cost in costs] == [True, True, False]
    slow = Publishing(megabytes=250.0, calls=7, coordinator_ms=106.0, bare_ms=100.0, of_bare=Spread.of([1.05, 1.07]))
    found = Results(Machine(2, "x86_64", "0.5.23", "2.9"), 2, costs, (), slow)
    keep(tmp_path / "results.json", found)
    assert read(tmp_path / "results.json") == found
    text = as_markdown(found)
    assert "| decode-heavy | report | 7.94 | 2,288 | 1.007 (1.006 to 1.008) | yes |" in text
    assert "not within the goal of 1.05" in text
