"""Every kind of violation, injected into two real engines that serve: noticed, answered by policy, and nothing lost.

The same as `python -m benchmarks.soak.injected`, which prints it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil

from benchmarks.soak.acts import ACTS
from benchmarks.soak.inject import Outcome
from benchmarks.soak.injected import injected

BOUND_S = 600.0


def test_every_violation_is_noticed_and_nothing_else_is_lost(tmp_path: Path) -> None:
    """By its property; requests in flight are answered, and later ones are right, fresh, and from a reused prefix."""

    async def story() -> dict[str, tuple[str, ...]]:
        outcomes: list[Outcome] = []
        async with asyncio.timeout(BOUND_S):
            await injected(tmp_path, outcomes)
        assert len(outcomes) == len(ACTS) + 4
        return {outcome.act: outcome.faults for outcome in outcomes if outcome.faults or outcome.property is None}

    assert asyncio.run(story()) == {}
    words = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert not [line for line in words if "sglang" in line or "monitor" in line]
