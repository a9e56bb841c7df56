"""Every protocol is proved for worlds of every size; wrong ones are not."""

from __future__ import annotations

from functools import cache, partial

import pytest

from benchmarks.readme import proof_row
from model_check.explore import Verdict, explore
from model_check.prove.finder import Finder
from model_check.prove.induction import Proof, discharge, prove
from model_check.prove.prover import Answer, Limits, Prover
from model_check.prove.theory import EVERYWHERE, INITIALLY, Theory
from spec.adapters import adapters
from spec.adapters.lemmas import LEMMAS as ADAPTERS
from spec.adapters.mutants import MUTANTS as ADAPTERS_MUTANTS
from spec.adapters.scopes import SMOKE as ADAPTERS_SMOKE
from spec.lang import Protocol, Scope
from spec.lang.lemmas import Lemmas
from spec.lang.mutants import Mutants
from spec.publication import publication
from spec.publication.lemmas import LEMMAS as PUBLICATION
from spec.publication.mutants import MUTANTS as PUBLICATION_MUTANTS
from spec.publication.scopes import SMOKE as PUBLICATION_SMOKE
from spec.refinement import REFINEMENTS
from spec.serving import serving
from spec.serving.lemmas import LEMMAS as SERVING
from spec.serving.mutants import MUTANTS as SERVING_MUTANTS
from spec.serving.scopes import SMOKE as SERVING_SMOKE
from tests.figures import FIGURES

LIMITS = Limits()
PROTOCOLS: dict[str, tuple[Protocol, Lemmas, Mutants, Scope]] = {
    "publication": (publication, PUBLICATION, PUBLICATION_MUTANTS, PUBLICATION_SMOKE),
    "serving": (serving, SERVING, SERVING_MUTANTS, SERVING_SMOKE),
    "adapters": (adapters, ADAPTERS, ADAPTERS_MUTANTS, ADAPTERS_SMOKE),
}


def theory(name: str) -> Theory:
    protocol, lemmas, _, _ = PROTOCOLS[name]
    return Theory.of(protocol, lemmas, REFINEMENTS.get(name))


@cache
def proof(name: str) -> Proof:
    return prove(partial(theory, name), workers=2)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_claim_is_proved_but_those_listed(name: str) -> None:
    """A listed one that could be proved belongs off the list, and one that is neither proved nor listed is a gap."""
    protocol, lemmas, _, _ = PROTOCOLS[name]
    unproved = {o.claim: o.reason for o in proof(name).outcomes if o.answer is not Answer.HOLDS}
    assert unproved.keys() == lemmas.bounded_only.keys(), unproved
    assert set(protocol.properties) <= {o.claim for o in proof(name).outcomes}
    assert proof_row(name, proof(name)) in FIGURES
    if lemmas.bounded_only:
        tried = prove(partial(theory, name), claims=list(lemmas.bounded_only), workers=2)
        assert not [o.claim for o in tried.outcomes if o.claim in lemmas.bounded_only and o.answer is Answer.HOLDS]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_each_proof_rests_on_what_is_declared_and_is_far_from_its_limit(name: str) -> None:
    """So it is the same proof on every machine, and one that takes a little more is no failure."""
    found = proof(name)
    assert set(PROTOCOLS[name][1].uses) == set(found.theory.claims)
    for discharged in found.discharges:
        assert set(discharged.assumed) <= set(found.theory.assumed(discharged.claim)), discharged
        assert discharged.effort < LIMITS.effort / 10, discharged


DEMANDED = [(name, lemma) for name, (_, lemmas, _, _) in PROTOCOLS.items() for lemma in lemmas]


@pytest.mark.parametrize(("name", "lemma"), DEMANDED)
def test_each_lemma_is_demanded_by_a_step(name: str, lemma: str) -> None:
    """Without it, that step breaks that claim though every other claim holds before."""
    whole = theory(name)
    claim, action, how = PROTOCOLS[name][1].demanded_by[lemma]
    assert lemma in whole.assumed(claim)
    assert how.endswith(".")
    assert Finder(whole, LIMITS).find(claim, action, [n for n in whole.invariants if n != lemma]) is not None


@pytest.mark.parametrize("name", PROTOCOLS)
def test_lemmas_hold_in_every_state_of_the_small_world(name: str) -> None:
    """The exploration knows nothing of the proof."""
    _, lemmas, _, smoke = PROTOCOLS[name]
    found = explore(theory(name).protocol, smoke, only=list(lemmas), workers=2)
    assert {found.outcome(lemma).verdict for lemma in lemmas} == {Verdict.HOLDS}


SAFETY = [
    (name, mutant.name)
    for name, (protocol, _, mutants, _) in PROTOCOLS.items()
    for mutant in mutants.values()
    if mutant.breaks in protocol.properties
]
"""What the others break says what can be reached or happens in the end, which no induction is about."""


@pytest.mark.parametrize(("name", "mutant"), SAFETY)
def test_a_wrong_protocol_breaks_an_obligation(name: str, mutant: str) -> None:
    """One of an action that was changed, in a small world, as the definition confirms."""
    right, lemmas, mutants, _ = PROTOCOLS[name]
    wrong = mutants[mutant].build()
    changed = {n for n, action in wrong.actions.items() if right.actions.get(n) != action}
    changed |= {INITIALLY} if wrong.initial != right.initial else set()
    changed |= {EVERYWHERE} if set(right.actions) - set(wrong.actions) else set()
    whole = Theory.of(wrong, lemmas)
    prover, finder = Prover(whole, LIMITS), Finder(whole, LIMITS)
    assert any(
        discharge(prover, finder, claim, action).answer is Answer.VIOLATED
        for claim in whole.claims
        for action in whole.obligations(claim)
        if action in changed
    )
