"""The publication protocol is proved for any number of engines, loads and contents; wrong ones are not."""

from __future__ import annotations

import pytest

from model_check.explore import Verdict, explore
from model_check.prove.finder import Finder
from model_check.prove.induction import Proof, discharge, prove
from model_check.prove.prover import Answer, Limits, Prover
from model_check.prove.theory import INITIALLY, Theory
from spec.publication import publication
from spec.publication.lemmas import LEMMAS
from spec.publication.mutants import MUTANTS
from spec.publication.scopes import SMOKE

LIMITS = Limits()


def theory() -> Theory:
    return Theory.of(publication, LEMMAS)


@pytest.fixture(scope="module")
def proof() -> Proof:
    return prove(theory, workers=2)


def test_every_claim_is_proved_but_those_listed(proof: Proof) -> None:
    """A listed one that could be proved belongs off the list, and one that is neither proved nor listed is a gap."""
    unproved = {o.claim: o.reason for o in proof.outcomes if o.answer is not Answer.HOLDS}
    assert unproved.keys() == LEMMAS.bounded_only.keys(), unproved
    assert set(publication.properties) <= {o.claim for o in proof.outcomes}
    if LEMMAS.bounded_only:
        tried = prove(theory, claims=list(LEMMAS.bounded_only), workers=2)
        assert not [o.claim for o in tried.outcomes if o.claim in LEMMAS.bounded_only and o.answer is Answer.HOLDS]


def test_each_proof_rests_on_what_is_declared_and_is_far_from_its_limit(proof: Proof) -> None:
    """So it is the same proof on every machine, and one that takes a little more is no failure."""
    assert set(LEMMAS.uses) == set(proof.theory.claims)
    for found in proof.discharges:
        assert set(found.assumed) <= set(proof.theory.assumed(found.claim)), (found.claim, found.action)
        assert found.effort < LIMITS.effort / 10, (found.claim, found.action)


@pytest.mark.parametrize("lemma", LEMMAS)
def test_each_lemma_is_demanded_by_a_step(lemma: str) -> None:
    """Without it, that step breaks that claim though every other claim holds before."""
    whole = theory()
    claim, action, how = LEMMAS.demanded_by[lemma]
    assert lemma in whole.assumed(claim)
    assert how.endswith(".")
    assert Finder(whole, LIMITS).find(claim, action, [n for n in whole.invariants if n != lemma]) is not None


def test_lemmas_hold_in_every_state_of_the_small_world() -> None:
    """The exploration knows nothing of the proof."""
    found = explore(theory().protocol, SMOKE, only=list(LEMMAS), workers=2)
    assert {found.outcome(name).verdict for name in LEMMAS} == {Verdict.HOLDS}


SAFETY = [name for name, mutant in MUTANTS.items() if mutant.breaks in publication.properties]
"""What the others break says what can be reached, which no induction is about."""


@pytest.mark.parametrize("name", SAFETY)
def test_a_wrong_protocol_breaks_an_obligation(name: str) -> None:
    """One of an action that was changed, in a small world, as the definition confirms."""
    wrong = MUTANTS[name].build()
    changed = [n for n, action in wrong.actions.items() if publication.actions.get(n) != action]
    changed += [INITIALLY] if wrong.initial != publication.initial else []
    whole = Theory.of(wrong, LEMMAS)
    prover, finder = Prover(whole, LIMITS), Finder(whole, LIMITS)
    answers = {
        discharge(prover, finder, claim, action).answer
        for claim in whole.claims
        for action in whole.obligations(claim)
        if action in changed
    }
    assert Answer.VIOLATED in answers
