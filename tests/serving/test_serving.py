"""The serving protocol holds in its named scopes, in the exact counts pinned here, and claims nothing idly."""

from __future__ import annotations

import pytest

from benchmarks.readme import scope_row
from model_check.explore import Verdict, explore
from model_check.simulate import simulate
from spec.serving import serving
from spec.serving.mutants import MUTANTS
from spec.serving.properties import SHOWN_BY
from spec.serving.scopes import NIGHTLY, SCOPES
from tests.figures import FIGURES

COUNTS = {
    # scope: states with symmetry, steps with symmetry, states without, depth
    "smoke": (284_818, 1_516_318, 1_107_080, 37),
    "pr": (963_876, 4_913_202, 3_732_800, 43),
}
"""Exact: a change of the protocol changes them, and nothing else may. `nightly` is explored by its own job."""


@pytest.mark.parametrize("scope", COUNTS)
def test_holds_and_counts(scope: str) -> None:
    """Every property, recovery and goal, every action taken, no dead end, and the pinned counts."""
    found = explore(serving, SCOPES[scope], orbits=True)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert {outcome.verdict for outcome in found.outcomes} == {Verdict.HOLDS}
    assert found.never == ()
    assert (found.states, found.steps, found.orbits, found.depth) == COUNTS[scope]
    assert scope_row(found) in FIGURES


def test_symmetry_hides_nothing() -> None:
    """Without symmetry there are as many states as the orbits of those with it add up to."""
    _, _, states, depth = COUNTS["smoke"]
    found = explore(serving, SCOPES["smoke"], symmetry=False)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert (found.states, found.depth) == (states, depth)
    assert scope_row(found) in FIGURES


def test_every_claim_has_a_goal() -> None:
    """Each claim names a goal, and each goal shows a claim."""
    assert set(SHOWN_BY) == {*serving.properties, *serving.recoveries, *serving.eventualities}
    assert set(SHOWN_BY.values()) == set(serving.goals)


def test_nothing_rests() -> None:
    """No state is excused from having a step."""
    assert not serving.rest


def test_random_walks_hold() -> None:
    """Walks through a world that is too large to see whole violate nothing, and get somewhere."""
    walked = simulate(serving, NIGHTLY, seed=5, walks=12, length=120)
    assert walked.violation is None
    assert not walked.reason
    assert walked.steps == 12 * 120


def test_random_walks_find_what_is_wrong() -> None:
    """The same walks through a wrong protocol come upon its violation."""
    wrong = MUTANTS["update-without-pause"]
    walked = simulate(wrong.build(), NIGHTLY, seed=5, walks=40, length=150, only=[wrong.breaks])
    assert walked.violation is not None
    assert walked.violation.claim == wrong.breaks
