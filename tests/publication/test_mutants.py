"""The wrong protocols: who notices them, and that no report was forgotten. `make mutants` explores them all."""

from __future__ import annotations

import re

import pytest

from model_check.explore import Verdict, explore
from spec.publication import publication
from spec.publication.coordinator import RECORDS
from spec.publication.mutants import MUTANTS, NOT_HERE, UNMISSED
from spec.publication.scopes import SCOPES

STORIES = {
    "no-flush": (25, "start_on_hit"),
    "flush-after-own-pause": (27, "start_on_hit"),
    "barrier-failure-leaves-checkpoint": (7, "retire_fails"),
}
"""How many steps the shortest story has, and its last one."""

CASES = (
    *("C01", "C02", "C03", "C05", "C07", "C08", "C09", "C10", "C12", "C13", "C14", "C15", "C18", "C19", "C20", "C21"),
    *("C22", "C23", "C25", "C26", "C29", "C30", "C31", "C32", "C36", "C37", "C40", "C41", "C42", "C43", "C45", "C46"),
    *("C49", "C50", "C51", "C52", "C53", "C56", "C58", "C59", "C60", "C64", "C67", "C68", "C69", "C70", "C71", "C72"),
    *("C73", "C74", "C75", "C76", "C77", "C78", "C79", "C80", "C81", "C82", "C83", "C84", "C86", "C88", "C89", "C90"),
    *("C91", "C95", "C100", "C102", "C103", "C104", "C105", "C106", "C107"),
)
"""The public reports that describe a protocol that went wrong."""


@pytest.mark.parametrize("name", STORIES)
def test_shortest_stories(name: str) -> None:
    """The property that the mutant names is violated, by a story of known length and end."""
    mutant = MUTANTS[name]
    found = explore(mutant.build(), SCOPES["smoke"], only=[mutant.breaks])
    assert found.verdict is Verdict.VIOLATED
    assert found.counterexample is not None
    last, _ = found.counterexample.run[-1]
    assert last is not None
    assert (found.counterexample.claim, found.counterexample.steps, last.action.name) == (
        mutant.breaks,
        *STORIES[name],
    )


@pytest.mark.parametrize("name", MUTANTS)
def test_each_is_another_protocol(name: str) -> None:
    """A mutant changes the first states, the steps or what is counted on, and no claim."""
    mutant = MUTANTS[name]
    wrong = mutant.build()
    assert wrong.doc == mutant.doc != ""
    assert any(getattr(wrong, part) != getattr(publication, part) for part in ("initial", "actions", "assumptions"))
    for table in ("properties", "recoveries", "eventualities", "goals", "rest"):
        assert getattr(wrong, table) == getattr(publication, table)


def test_every_claim_is_broken_by_a_mutant() -> None:
    """Each property, recovery and eventuality has a wrong protocol that it must notice."""
    claims = {*publication.properties, *publication.recoveries, *publication.eventualities}
    assert {m.breaks for m in MUTANTS.values()} == claims


def test_every_report_is_answered() -> None:
    """Each report has a mutant or a reason why it has none, and not both."""
    wanted = {*(f"M{n}" for n in range(1, 36)), *(f"H{n}" for n in range(1, 27)), *CASES}
    assert all(m.report for m in MUTANTS.values())
    expressed = {row for m in MUTANTS.values() for row in m.report if re.fullmatch(r"[MHC]\d+", row)}
    excused = [row for rows in NOT_HERE.values() for row in rows]
    assert len(excused) == len(set(excused))
    assert expressed | set(excused) == wanted
    assert not expressed & set(excused)


def test_unmissed_parts_exist() -> None:
    """What is listed as not missed is there to be dropped, and listed once."""
    names = [name for parts in UNMISSED.values() for name in parts]
    assert len(names) == len(set(names))
    for name in names:
        action, _, part = name.partition(": ")
        what, _, number = part.partition(" ")
        found = publication.actions[action]
        parts: tuple[object, ...] = {"guard": found.guard, "write": found.writes}[what]
        assert 1 <= int(number) <= len(parts), name


def test_a_record_for_every_stage_of_writing() -> None:
    """Every stage that writes has an action of its name."""
    assert {stage.name.lower() for stage in RECORDS} <= set(publication.actions)
