"""The wrong engines and drivers: who notices them, and that no report was forgotten."""

from __future__ import annotations

import re

import pytest

from model_check.explore import explore
from model_check.liveness import judge
from spec.serving import serving
from spec.serving.mutants import MUTANTS, NOT_HERE
from spec.serving.scopes import SCOPES
from tests.cases.table import ROWS


@pytest.mark.parametrize("name", MUTANTS)
def test_is_killed_by_the_claim_that_it_names(name: str) -> None:
    """The claim that the mutant names is violated, and the story ends with a step."""
    mutant = MUTANTS[name]
    judging = judge if mutant.breaks in serving.eventualities else explore
    found = judging(mutant.build(), SCOPES["smoke"], only=[mutant.breaks], workers=1)
    assert found.counterexample is not None
    assert found.counterexample.claim == mutant.breaks
    assert found.counterexample.steps > 0


@pytest.mark.parametrize("name", MUTANTS)
def test_each_is_another_protocol(name: str) -> None:
    """A mutant changes the first states, the steps or what is counted on, and no claim."""
    mutant = MUTANTS[name]
    wrong = mutant.build()
    assert wrong.doc == mutant.doc != ""
    assert any(getattr(wrong, part) != getattr(serving, part) for part in ("initial", "actions", "assumptions"))
    for table in ("properties", "recoveries", "eventualities", "goals", "rest"):
        assert getattr(wrong, table) == getattr(serving, table)


def test_every_claim_is_broken_by_a_mutant() -> None:
    """Each property, recovery and eventuality has a wrong protocol that it must notice."""
    claims = {*serving.properties, *serving.recoveries, *serving.eventualities}
    assert {m.breaks for m in MUTANTS.values()} == claims


def test_every_report_is_answered() -> None:
    """Each report on a protocol that went wrong, and each foretold one, has a mutant or a reason, and not both."""
    wanted = {row.id for row in ROWS if "b" in row.forms or row.id.startswith("X")}
    assert all(m.report for m in MUTANTS.values())
    expressed = {row for m in MUTANTS.values() for row in m.report if re.fullmatch(r"[CX]\d+", row)}
    excused = [row for rows in NOT_HERE.values() for row in rows]
    assert len(excused) == len(set(excused))
    assert wanted <= expressed | set(excused) <= {row.id for row in ROWS}
    assert not expressed & set(excused)
