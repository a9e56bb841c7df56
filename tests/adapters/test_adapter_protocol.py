"""The adapter protocol holds in its named scopes, in the exact counts pinned here, and claims nothing idly."""

from __future__ import annotations

import pytest

from benchmarks.readme import scope_row, sum_row
from model_check.explore import Verdict, explore
from spec.adapters import adapters
from spec.adapters.properties import SHOWN_BY
from spec.adapters.scopes import SCOPES
from tests.figures import FIGURES

COUNTS = {
    # scope: states with symmetry, steps with symmetry, depth
    "smoke": (544_420, 3_509_843, 99),
    "pr": (1_823_739, 12_420_888, 99),
}
"""Exact: a change of the protocol changes them, and nothing else may. `nightly` is explored by its own job."""


@pytest.mark.parametrize("scope", COUNTS)
def test_adapters_hold_and_counts(scope: str) -> None:
    """Every property, recovery and goal, every action taken, no dead end, and the pinned counts."""
    found = explore(adapters, SCOPES[scope], orbits=True)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert {outcome.verdict for outcome in found.outcomes} == {Verdict.HOLDS}
    assert found.never == ()
    assert (found.states, found.steps, found.depth) == COUNTS[scope]
    assert {scope_row(found), sum_row(found)} <= set(FIGURES)


def test_every_claim_on_adapters_has_a_goal() -> None:
    """Each property and recovery names a goal, and each goal shows a property or a recovery."""
    assert set(SHOWN_BY) == set(adapters.properties) | set(adapters.recoveries)
    assert set(SHOWN_BY.values()) == set(adapters.goals)


def test_no_adapter_state_rests() -> None:
    """No state is excused from having a step."""
    assert not adapters.rest
