"""Proofs of a tiny protocol: proved, refuted by a replayed step, and never proved where something is missing."""

from __future__ import annotations

import json
from functools import partial

import pytest

from model_check.evaluate import Instance, Space
from model_check.prove.induction import Proof, prove
from model_check.prove.needs import needs
from model_check.prove.prover import Answer, Limits, Prover
from model_check.prove.report import Report, as_json, as_markdown, as_text_report, conclusion
from model_check.prove.tell import tell_step
from model_check.prove.theory import Theory
from model_check.story import as_text
from spec.lang import Misuse
from tests.prove import leases


def theory(*, careful: bool = True, without: str = "") -> Theory:
    full = Theory.of(leases.build(careful=careful), leases.LEMMAS)
    return full.without([without]) if without else full


def answers(proof: Proof) -> dict[str, Answer]:
    return {o.claim: o.answer for o in proof.outcomes}


def test_a_right_protocol_is_proved() -> None:
    proof = prove(theory)
    assert proof.answer is Answer.HOLDS
    assert set(answers(proof).values()) == {Answer.HOLDS}
    assert {(d.claim, d.action) for d in proof.discharges} == {
        (claim, action) for claim in proof.theory.claims for action in proof.theory.obligations(claim)
    }


def test_two_processes_answer_as_one_does() -> None:
    one, two = prove(theory), prove(theory, workers=2)
    assert [(d.claim, d.action, d.answer, d.assumed, d.frame) for d in one.discharges] == [
        (d.claim, d.action, d.answer, d.assumed, d.frame) for d in two.discharges
    ]


def test_a_wrong_guard_is_refuted_by_a_step_that_the_definition_takes() -> None:
    proof = prove(partial(theory, careful=False))
    assert proof.answer is Answer.VIOLATED
    broken = [d for d in proof.discharges if d.answer is Answer.VIOLATED]
    assert [(d.claim, d.action) for d in broken] == [("holders_were_granted", "grant")]
    (found,) = broken
    assert found.step is not None
    assert found.step.before is not None
    assert found.step.args is not None
    space = Space(proof.theory.protocol, found.step.scope)
    action = proof.theory.protocol.actions["grant"]
    assert space.step(found.step.before, Instance(action, found.step.args)) == found.step.after
    assert space.holds(proof.theory.claims["holders_were_granted"].node, found.step.before)
    story = as_text(tell_step(proof.theory, found))
    assert story.startswith("grant breaks holders_were_granted of leases\n")
    assert "engine 0 → engine 1" in story or "engine 1 → engine 0" in story


def test_what_rests_on_something_unproved_is_unknown() -> None:
    """Its own obligations hold all the same."""
    proof = prove(partial(theory, careful=False))
    outcome = next(o for o in proof.outcomes if o.claim == "one_holder")
    assert outcome.answer is Answer.UNKNOWN
    assert outcome.reason == "rests on holders_were_granted, which is not proved"
    assert all(d.answer is Answer.HOLDS for d in proof.discharges if d.claim == "one_holder")


@pytest.mark.parametrize("lemma", leases.LEMMAS)
def test_each_lemma_is_demanded_by_a_step(lemma: str) -> None:
    claim, action, _ = leases.LEMMAS.demanded_by[lemma]
    proof = prove(partial(theory, without=lemma), claims=[claim])
    broken = [(d.claim, d.action) for d in proof.discharges if d.answer is Answer.VIOLATED]
    assert (claim, action) in broken


def test_effort_that_does_not_suffice_is_unknown_and_never_holds() -> None:
    proof = prove(theory, claims=["granted_once"], limits=Limits(effort=1))
    assert answers(proof)["granted_once"] is Answer.UNKNOWN
    assert "no proof" in next(o.reason for o in proof.outcomes if o.claim == "granted_once")


def test_an_interrupt_leaves_the_rest_unknown() -> None:
    def stop(done: int, total: int, last: str) -> None:
        if done == 1:
            raise KeyboardInterrupt

    proof = prove(theory, progress=stop)
    assert proof.interrupted
    assert proof.answer is Answer.UNKNOWN
    assert "interrupted" in conclusion(proof)
    assert answers(proof)["terms_grow"] is Answer.UNKNOWN


def test_a_claim_takes_with_it_what_it_rests_on() -> None:
    proof = prove(theory, claims=["one_holder"])
    assert [o.claim for o in proof.outcomes] == ["one_holder", "holders_were_granted"]
    assert proof.answer is Answer.HOLDS
    with pytest.raises(Misuse, match="no claim 'two_holders'"):
        prove(theory, claims=["two_holders"])


def test_needs_are_what_is_declared() -> None:
    whole = theory()
    prover = Prover(whole, Limits())
    for claim, declared in whole.uses.items():
        assert needs(prover, claim, whole.invariants) == declared
    assert needs(prover, "one_holder", ["granted_once"]) is None


def test_a_bounded_claim_is_listed_and_not_counted() -> None:
    base = theory(without="terms_are_past")
    listed = Theory(base.protocol, base.lemmas, base.uses, {"granted_once": "its lemma is missing"})
    proof = prove(lambda: listed)
    assert answers(proof)["granted_once"] is Answer.UNKNOWN
    assert proof.answer is Answer.HOLDS
    assert "granted_once: its lemma is missing" in as_text_report([Report(proof)])
    tried = prove(lambda: listed, claims=["granted_once"])
    assert answers(tried)["granted_once"] is Answer.VIOLATED


def test_reports_name_every_claim_and_the_state_before() -> None:
    proof = prove(partial(theory, careful=False))
    document = json.loads(as_json([Report(proof)]))
    assert (document["format"], document["verdict"]) == ("reef-ref.proof", "violated")
    assert [c["name"] for c in document["claims"]] == list(proof.theory.claims)
    (told,) = [o for o in document["obligations"] if o["story"]]
    assert set(told["story"]["before"]) == set(proof.theory.protocol.fields)
    for text in (as_text_report([Report(proof)]), as_markdown([Report(proof, each=True)])):
        assert "grant breaks holders_were_granted of leases" in text
        assert all(claim in text for claim in proof.theory.claims)
