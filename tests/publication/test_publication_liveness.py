"""Every publication settles and every request is answered, under assumptions of which each is needed."""

from __future__ import annotations

import pytest

from model_check.explore import Exploration, Verdict, explore
from model_check.liveness import judge
from model_check.reliance import reliances
from model_check.story import as_text, tell
from spec.lang.text import show
from spec.publication import publication
from spec.publication.mutants import MUTANTS
from spec.publication.scopes import SMOKE

LASSOS = {
    # mutant: the eventuality that it breaks, steps of the way, steps of the loop, an action of the loop
    "barriers-time-out": ("every_publication_settles", 6, 5, "time_out"),
    "service-keeps-no-record": ("every_commit_completes", 15, 0, ""),
    "pause-waits-for-requests": ("every_errand_ends", 7, 0, ""),
    "retraction-throws-work-away": ("every_request_is_answered", 1, 24, "retract"),
    "lost-engines-are-not-missed": ("every_lost_engine_is_replaced", 1, 0, ""),
    "probe-kills-recovery": ("everybody_serves", 2, 2, "kill"),
}
"""Wrong protocols that do nothing wrong, and never do something right."""
DEADLOCK = "flush-waits-for-the-queue"
"""The grammar deadlock: a flush waits for a queue that waits for what comes after the flush."""


@pytest.fixture(scope="module")
def smoke() -> Exploration:
    return judge(publication, SMOKE)


def test_holds(smoke: Exploration) -> None:
    """Every eventuality, from states where it is still to come; however many faults there were."""
    assert smoke.verdict is Verdict.HOLDS, smoke.reason
    assert {outcome.name for outcome in smoke.outcomes} == set(publication.eventualities)
    assert SMOKE.faults is None
    assert smoke.assumed == tuple(publication.assumptions.values())


def test_it_is_the_same_world_that_is_explored(smoke: Exploration) -> None:
    found = explore(publication, SMOKE, symmetry=False, only=["no_dead_end"])
    assert (smoke.states, smoke.steps, smoke.per_depth) == (found.states, found.steps, found.per_depth)


def test_nothing_is_assumed_in_vain() -> None:
    """Without any one action of an assumption, or with a weaker one, some eventuality is lost."""
    found = reliances(publication, SMOKE)
    assert {(r.assumption, r.action) for r in found} == {
        (a.name, action) for a in publication.assumptions.values() for action in a.actions
    }
    assert [r for r in found if not r.claim] == []


def test_every_eventuality_has_its_lasso() -> None:
    assert {claim for claim, *_ in LASSOS.values()} == set(publication.eventualities)
    assert {m.name for m in MUTANTS.values() if m.breaks in publication.eventualities} == set(LASSOS)


@pytest.mark.parametrize("name", LASSOS)
def test_lassos(name: str) -> None:
    """The eventuality that the mutant names is broken by a way and a loop of known lengths."""
    mutant = MUTANTS[name]
    claim, way, loop, action = LASSOS[name]
    found = judge(mutant.build(), SMOKE, only=[mutant.breaks])
    told = found.counterexample
    assert found.verdict is Verdict.VIOLATED
    assert told is not None
    assert told.loop is not None
    assert (told.claim, told.loop.begins, told.steps - told.loop.begins) == (claim, way, loop)
    repeated = {instance.action.name for instance, _ in told.run[told.loop.begins + 1 :] if instance is not None}
    assert action in repeated if action else not repeated


@pytest.mark.parametrize("name", LASSOS)
def test_only_liveness_notices(name: str) -> None:
    """Every property, recovery and goal holds: what goes wrong is only that something never happens."""
    found = explore(MUTANTS[name].build(), SMOKE)
    assert found.verdict is Verdict.HOLDS, found.reason


def test_the_grammar_deadlock_is_a_lasso() -> None:
    """The flush is refused because a request waits, and nothing else is left to happen."""
    told = judge(MUTANTS[DEADLOCK].build(), SMOKE, only=["every_errand_ends"]).counterexample
    assert told is not None
    assert told.loop is not None
    assert told.loop.begins == told.steps
    last = told.run[-1][1]
    space = told.space
    flushes = [i for i in space.instances if i.action.name == "flush"]
    blocking = [[show(part) for part in space.blocking(last, flush)] for flush in flushes]
    assert ["request[e] == NONE"] in blocking
    story = tell(told)
    assert story.steps[-1].action == "all_paused"
    assert "Nothing more happens, and nothing that is counted on is possible." in as_text(story)


def test_the_commit_that_nobody_makes_is_a_lasso() -> None:
    """Published, verified, and every engine paused for ever: READY_TO_COMMIT."""
    told = judge(MUTANTS["service-keeps-no-record"].build(), SMOKE, only=["every_commit_completes"]).counterexample
    assert told is not None
    story = tell(told)
    assert story.steps[-1].action == "record_ready"
    assert dict(story.ending)["disk_status"] == "READY_TO_COMMIT"
