"""The publication protocol refines its ideal; wrong ones that a client would notice do not, and others do."""

from __future__ import annotations

import pytest

from model_check.explore import Verdict, explore
from model_check.refine import refine
from spec.atomic import MUTANTS as WRONG_IDEALS
from spec.atomic import SCOPES as IDEAL_SCOPES
from spec.atomic import SHOWN_BY, atomic
from spec.lang.refinement import BEGINS, REFINES
from spec.publication.mutants import MUTANTS
from spec.publication.scopes import SCOPES
from spec.refinement import REFINEMENTS, publication_is_atomic


def test_the_ideal_itself() -> None:
    """What it claims of itself holds, and nothing idly."""
    found = explore(atomic, IDEAL_SCOPES["smoke"])
    assert found.verdict is Verdict.HOLDS, found.reason
    assert found.never == ()
    assert set(SHOWN_BY) == set(atomic.properties)
    assert set(SHOWN_BY.values()) == set(atomic.goals)


@pytest.mark.parametrize("name", WRONG_IDEALS)
def test_wrong_ideals(name: str) -> None:
    """Each property of the ideal has a wrong ideal that it notices."""
    wrong = WRONG_IDEALS[name]
    found = explore(wrong.build(), IDEAL_SCOPES["smoke"], only=[wrong.breaks])
    assert found.verdict is Verdict.VIOLATED
    assert {mutant.breaks for mutant in WRONG_IDEALS.values()} == set(atomic.properties)


def test_publication_refines_the_ideal() -> None:
    """Every step is one of the ideal's, or none; and each of the ideal's happens, publishing too."""
    found = refine(publication_is_atomic, SCOPES["smoke"])
    assert found.verdict is Verdict.HOLDS, found.reason
    assert set(found.taken) == set(atomic.actions)
    assert found.taken["publish"] == 16
    assert None not in found.taken.values()


def test_publication_refines_the_ideal_over_three_jobs() -> None:
    """The same for every step of the larger scope."""
    found = explore(publication_is_atomic.steps(), SCOPES["pr"], only=[REFINES])
    assert found.verdict is Verdict.HOLDS, found.reason
    assert explore(publication_is_atomic.first(), SCOPES["pr"], only=[BEGINS]).verdict is Verdict.HOLDS


SEEN = {
    "no-flush": "start_on_hit",
    "tier-outlives-the-flush": "start_on_hit",
    "pause-answered-early": "start",
    "somebody-else-continues": "start",
    "verify-any": "start",
}
"""Wrong protocols that a client would notice, and the step in which it would."""

UNSEEN = ("monitor-ignores-the-latch", "flush-waits-for-the-queue")
"""Wrong protocols that never serve anything wrong: they only break their own rules, or never end."""


@pytest.mark.parametrize("name", SEEN)
def test_wrong_protocols_do_not(name: str) -> None:
    found = refine(publication_is_atomic, SCOPES["smoke"], detailed=MUTANTS[name].build())
    assert found.verdict is Verdict.VIOLATED
    assert found.story is not None
    assert found.story.steps[-1].action == SEEN[name]


@pytest.mark.parametrize("name", UNSEEN)
def test_a_mistake_that_no_client_sees_is_none_here(name: str) -> None:
    found = explore(publication_is_atomic.steps(MUTANTS[name].build()), SCOPES["smoke"], only=[REFINES])
    assert found.verdict is Verdict.HOLDS


def test_first_states_that_share_under_in_place() -> None:
    found = refine(publication_is_atomic, SCOPES["smoke"], detailed=MUTANTS["in-place-shares"].build())
    assert found.verdict is Verdict.VIOLATED
    assert found.explored.counterexample is not None
    assert found.explored.counterexample.claim == BEGINS


@pytest.mark.parametrize("name", REFINEMENTS)
def test_every_field_of_the_ideal_is_given(name: str) -> None:
    refinement = REFINEMENTS[name]
    assert set(refinement.images) == set(refinement.abstract.fields)
    assert refinement.detailed.name == name
