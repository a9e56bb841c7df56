"""The publication protocol holds in its named scopes, in the exact counts pinned here, and claims nothing idly."""

from __future__ import annotations

import pytest

from benchmarks.readme import scope_row
from model_check.explore import Verdict, explore
from spec.publication import publication
from spec.publication.properties import SHOWN_BY
from spec.publication.scopes import SCOPES
from tests.figures import FIGURES

COUNTS = {
    # scope: states with symmetry, steps with symmetry, states without, depth
    "smoke": (312_089, 1_674_247, 600_394, 98),
    "pr": (2_179_881, 11_750_537, 4_197_017, 174),
}
"""Exact: a change of the protocol changes them, and nothing else may. `nightly` is explored by its own job."""


@pytest.mark.parametrize("scope", COUNTS)
def test_holds_and_counts(scope: str) -> None:
    """Every property, recovery and goal, every action taken, no dead end, and the pinned counts."""
    found = explore(publication, SCOPES[scope], orbits=True)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert {outcome.verdict for outcome in found.outcomes} == {Verdict.HOLDS}
    assert found.never == ()
    assert (found.states, found.steps, found.orbits, found.depth) == COUNTS[scope]
    assert scope_row(found) in FIGURES


def test_symmetry_hides_nothing() -> None:
    """Without symmetry there are as many states as the orbits of those with it add up to."""
    _, _, states, depth = COUNTS["smoke"]
    found = explore(publication, SCOPES["smoke"], symmetry=False)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert (found.states, found.depth) == (states, depth)
    assert scope_row(found) in FIGURES


def test_every_claim_has_a_goal() -> None:
    """Each claim names a goal, and each goal shows a claim."""
    assert set(SHOWN_BY) == {*publication.properties, *publication.recoveries, *publication.eventualities}
    assert set(SHOWN_BY.values()) <= set(publication.goals)


def test_nothing_rests() -> None:
    """No state is excused from having a step."""
    assert not publication.rest
