"""Every request is answered and every pause ends, under assumptions of which each is needed."""

from __future__ import annotations

import pytest

from model_check.explore import Verdict, explore
from model_check.liveness import judge
from model_check.reliance import reliances
from model_check.story import as_text, tell
from spec.lang.text import show
from spec.serving import serving
from spec.serving.mutants import MUTANTS
from spec.serving.scopes import SMOKE


def test_holds() -> None:
    """Both, from states where they are still to come."""
    found = judge(serving, SMOKE)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert {outcome.name for outcome in found.outcomes} == set(serving.eventualities)


def test_nothing_is_assumed_in_vain() -> None:
    """Without any one action of an assumption, or with a weaker one, an eventuality is lost."""
    found = reliances(serving, SMOKE)
    assert {(r.assumption, r.action) for r in found} == {
        (a.name, action) for a in serving.assumptions.values() for action in a.actions
    }
    assert [r for r in found if not r.claim] == []


@pytest.mark.parametrize("name", [m.name for m in MUTANTS.values() if m.breaks in serving.eventualities])
def test_only_liveness_notices(name: str) -> None:
    """Every property, recovery and goal holds: what goes wrong is only that something never happens."""
    found = explore(MUTANTS[name].build(), SMOKE)
    assert found.verdict is Verdict.HOLDS, found.reason


def test_the_grammar_deadlock_is_a_lasso() -> None:
    """The flush is refused while a grammar compiles, and the grammar is not looked at before the engine continues."""
    told = judge(MUTANTS["flush-waits-for-grammars"].build(), SMOKE, only=["every_pause_ends"]).counterexample
    assert told is not None
    assert told.loop is not None
    assert told.loop.begins == told.steps
    space, last = told.space, told.run[-1][1]
    (flush,) = (i for i in space.instances if i.action.name == "flush")
    assert [show(part) for part in space.blocking(last, flush)] == ["~(some Request r: phase[r] == GRAMMAR)"]
    story = tell(told)
    assert "Nothing more happens, and nothing that is counted on is possible." in as_text(story)


def test_a_prompt_that_is_never_computed_whole_is_a_lasso() -> None:
    """Started, one chunk, paused, sent back, continued: again and again."""
    told = judge(MUTANTS["requests-get-no-whole-turn"].build(), SMOKE).counterexample
    assert told is not None
    assert told.loop is not None
    repeated = {instance.action.name for instance, _ in told.run[told.loop.begins + 1 :] if instance is not None}
    assert {"start", "take_chunk", "pause", "retract", "continue_generation"} <= repeated
