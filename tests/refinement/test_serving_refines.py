"""An engine from inside is the engine that the publication protocol assumes; and that one may do a little more."""

from __future__ import annotations

import pytest

from model_check.explore import Verdict, explore
from model_check.refine import refine
from spec import engine as assumed
from spec.lang import Protocol, Step, each, when
from spec.lang.refinement import BEGINS, REFINES
from spec.publication import publication
from spec.publication.coordinator import drop
from spec.publication.scopes import SCOPES as PUBLICATION_SCOPES
from spec.publication.state import UNLOADED, Content, Engine, Mode, Request, Stage, State, live
from spec.refinement import serving_is_an_engine
from spec.serving.mutants import MUTANTS
from spec.serving.scopes import SCOPES


def test_the_engine_itself() -> None:
    """What it claims holds, and nothing idly; and its wrong variants are noticed."""
    found = explore(assumed.engine, assumed.SCOPES["smoke"])
    assert found.verdict is Verdict.HOLDS, found.reason
    assert found.never == ()
    for wrong in assumed.MUTANTS.values():
        broken = explore(wrong.build(), assumed.SCOPES["smoke"], only=[wrong.breaks])
        assert broken.verdict is Verdict.VIOLATED
    assert {wrong.breaks for wrong in assumed.MUTANTS.values()} == set(assumed.engine.properties)


def test_serving_refines_the_engine() -> None:
    """Every step is one of the engine's, or none; and each of the engine's happens."""
    found = refine(serving_is_an_engine, SCOPES["smoke"])
    assert found.verdict is Verdict.HOLDS, found.reason
    assert set(found.taken) == set(assumed.engine.actions)
    assert None not in found.taken.values()


SEEN = {
    "retract-without-flush": "update",
    "update-flushes-afterwards": "update",
    "flush-forgets-a-tier": "flush",
    "flush-overlooks-the-chunked-request": "flush",
    "pause-is-not-looked-at": "decode",
}
"""Wrong engines that are not what a publication assumes, and the step in which they are not."""


@pytest.mark.parametrize("name", SEEN)
def test_wrong_engines_do_not(name: str) -> None:
    found = refine(serving_is_an_engine, SCOPES["smoke"], detailed=MUTANTS[name].build())
    assert found.verdict is Verdict.VIOLATED
    assert found.story is not None
    assert (found.story.claim, found.story.steps[-1].action) == (REFINES, SEEN[name])


def test_an_engine_that_shares_in_place_does_not() -> None:
    wrong = MUTANTS["sharing-in-place"].build()
    assert explore(serving_is_an_engine.first(wrong), SCOPES["smoke"], only=[BEGINS]).verdict is Verdict.VIOLATED


# What the publication protocol leaves out


def doing_more() -> Protocol:
    """The publication protocol, with the steps of an engine that it does not have."""
    more = publication.variant("publication with more of an engine", doing_more.__doc__ or "")

    @more.action(by="e", on="e")
    def insert(s: State, e: Engine) -> Step:
        """KV enters the tree while its request runs, or is drained."""
        return when(s.sharing, s.request[e] == Request.RUNNING, ~s.paused[e] | (s.mode == Mode.RETRACT)).then(
            cached={e: True}, made_by={e: each(Content, lambda c: s.made_by[e, c] | s.kv[e, c])}
        )

    @more.action(by="e", on="e")
    def preempt(s: State, e: Engine) -> Step:
        """Memory is short, and a request goes back to the queue without its KV."""
        return when(s.request[e] == Request.RUNNING, ~s.paused[e]).then(
            request={e: Request.WAITING}, kv={e: each(Content, lambda c: False)}
        )

    @more.action(by="e", on="e")
    def give_up(s: State, e: Engine) -> Step:
        """A request that waits is ended with an error."""
        return when(s.request[e] == Request.WAITING).then(request={e: Request.NONE})

    @more.action(by="client", on="e")
    def flush_for_anybody(s: State, e: Engine) -> Step:
        """An engine on which no request holds KV is flushed, by whomever."""
        return when(live(s, e), s.request[e] != Request.RUNNING).then(**drop(s, e))

    return more


FORBIDS_THEM = "pauses_mean_what_they_say"
"""The one claim that says that only a pause sends requests back."""


def test_what_an_engine_does_more_matters_to_no_other_claim() -> None:
    more = doing_more()
    others = [name for name in (*more.properties, *more.recoveries) if name != FORBIDS_THEM]
    found = explore(more, PUBLICATION_SCOPES["smoke"], only=others)
    assert found.verdict is Verdict.HOLDS, found.reason
    assert all(found.coverage[name] for name in ("insert", "preempt", "give_up", "flush_for_anybody"))
    assert explore(more, PUBLICATION_SCOPES["smoke"], only=[FORBIDS_THEM]).verdict is Verdict.VIOLATED


def test_a_publication_counts_on_a_copy_of_released_weights() -> None:
    """Where memory that comes back holds nothing, a rejection continues engines on what nobody sent."""
    bare = publication.variant("publication without a backup", "Released weights are lost.")

    def release(s: State, e: Engine) -> Step:
        return when(
            s.stage == Stage.RELEASE, live(s, e), ~(s.kv_out[e] & s.weights_out[e]), s.request[e] != Request.RUNNING
        ).then(kv_out={e: True}, weights_out={e: True}, weights={e: UNLOADED}, **drop(s, e))

    bare.replace_action(release)
    found = explore(bare, PUBLICATION_SCOPES["smoke"], only=["uniform_when_serving"])
    assert found.verdict is Verdict.VIOLATED
    assert found.counterexample is not None
    taken = [step.action.name for step, _ in found.counterexample.run if step is not None]
    assert "begin_reject" in taken
