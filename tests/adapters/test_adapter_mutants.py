"""The wrong adapter protocols: who notices them. `make mutants` explores them all."""

from __future__ import annotations

import re

import pytest

from model_check.explore import Verdict, explore
from spec.adapters import adapters
from spec.adapters.mutants import MUTANTS
from spec.adapters.scopes import SCOPES
from spec.publication.mutants import ABOUT_ADAPTERS, NOT_HERE

STORIES = {
    "upsert-keeps-prefixes": "start_on_hit",
    "key-without-adapter": "start_on_hit",
    "slot-opened-before-its-bytes": "start",
    "refusal-aborts": "refuse",
    "retry-forgets-living-engines": "begin_retry",
}
"""The last step of the shortest story."""


@pytest.mark.parametrize("name", STORIES)
def test_shortest_stories_of_adapters(name: str) -> None:
    """The property that the mutant names is violated, by the step that the mistake is about."""
    mutant = MUTANTS[name]
    found = explore(mutant.build(), SCOPES["smoke"], only=[mutant.breaks])
    assert found.verdict is Verdict.VIOLATED
    assert found.counterexample is not None
    last, _ = found.counterexample.run[-1]
    assert last is not None
    assert (found.counterexample.claim, last.action.name) == (mutant.breaks, STORIES[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_each_is_another_adapter_protocol(name: str) -> None:
    """A mutant changes the first states or the steps, and no claim."""
    mutant = MUTANTS[name]
    wrong = mutant.build()
    assert wrong.doc == mutant.doc != ""
    assert (wrong.initial, wrong.actions) != (adapters.initial, adapters.actions)
    for table in ("properties", "recoveries", "goals", "rest"):
        assert getattr(wrong, table) == getattr(adapters, table)


def test_every_claim_on_adapters_is_broken_by_a_mutant() -> None:
    """Each property and recovery has a wrong protocol that it must notice."""
    assert {m.breaks for m in MUTANTS.values()} == set(adapters.properties) | set(adapters.recoveries)


def test_every_report_about_adapters_is_answered() -> None:
    """What the publication protocol leaves out because it is about adapters has a mutant here."""
    reported = {row for m in MUTANTS.values() for row in m.report if re.fullmatch(r"[MHC]\d+", row)}
    assert set(NOT_HERE[ABOUT_ADAPTERS]) <= reported
