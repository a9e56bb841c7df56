"""Every kind of step with one engine; `python -m tests.conformance.replay` takes those with two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model_check.cover import Cover
from reef_ref.control import Control
from reef_ref.publication import Publication
from spec.lang import Scope
from tests.conformance.kinds import BEFORE_TRAINING, BY_DIFFERENCE, runs
from tests.conformance.replay import Played, lines, play

ALONE = Scope("alone", {"Engine": 1, "Load": 2, "Content": 2}, "one engine meets every step that is not about another")


@pytest.fixture(scope="module")
def found() -> Cover:
    return runs(ALONE)


def played(found: Cover, folder: Path) -> Iterator[Played]:
    return (play(folder, found.space, run) for run in found.runs)


def test_every_kind_of_step_is_taken_or_excused(found: Cover, tmp_path: Path) -> None:
    """The coordinator goes where every run goes, and the protocol explains what it tells."""
    results = dict(enumerate(played(found, tmp_path)))
    print("\n".join(lines(found, results)))
    assert [one.problem for one in results.values() if one.problem] == []
    assert [one.taken for one in results.values()] == [len(run) for run in found.runs]
    assert found.taken + found.excused.total() + found.beyond.total() == found.kinds.total()


def test_excuses_are_few_and_each_is_needed(found: Cover) -> None:
    """What is not taken is a small part, and whole kinds of action are not among it."""
    why = {reason for _, reason in found.excused}
    assert {BY_DIFFERENCE, BEFORE_TRAINING} <= why
    assert found.excused.total() + found.beyond.total() < found.kinds.total() / 8
    taken = {step.instance.action.name for run in found.runs for step in run}
    assert set(found.kinds) <= taken


def test_a_coordinator_that_does_not_declare_goes_astray(
    found: Cover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(self: Any) -> None:
        del self

    monkeypatch.setattr(Publication, "declare", nothing)
    assert any(one.problem for one in played(found, tmp_path))


def test_a_coordinator_that_clears_the_latch_too_early_goes_astray(
    found: Cover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is told; the latch is looked at."""
    really = Control.continue_all

    async def early(self: Any, load_id: Any) -> None:
        self._latched = False
        await really(self, load_id)

    monkeypatch.setattr(Control, "continue_all", early)
    problems = [one.problem for one in played(found, tmp_path) if one.problem]
    assert any("latch" in problem for problem in problems)
