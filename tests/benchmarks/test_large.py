"""The benchmark of a large world, with a small one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import large
from benchmarks.expected import EXPECTED

WORLD = (2, 3, 3)


def test_a_run_is_resumed_counted_and_told(tmp_path: Path) -> None:
    """The second run finds what the first has finished."""
    first, second = (large.run(WORLD, "64MiB", tmp_path, 300, until=None) for _ in range(2))
    assert large.kept(tmp_path / "kept") == first.report["states"] == large.expected(WORLD) == EXPECTED[WORLD].states
    assert second.report["bytes_on_disk"] <= first.report["bytes_on_disk"]
    assert 0 < second.peak < large.LIMIT
    table = large.told(WORLD, "64MiB", first, second)
    assert "| states                     | 7,944 |" in table
    assert "| transitions                | 38,028 |" in table


def test_a_run_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="not done after 0 seconds"):
        large.run(WORLD, "64MiB", tmp_path, 0, until=None)
