"""Lemmas are found that close a proof, proved for worlds of every size, and none of them could be left out."""

from __future__ import annotations

import pytest

from model_check.evaluate import Space
from model_check.prove.features import Seen
from model_check.prove.prover import Limits
from model_check.prove.suggest import suggest
from model_check.prove.theory import Theory
from tests.prove import leases

SCOPE = leases.SCOPES["small"]
LIMITS = Limits()
TEXTS = {
    "one_holder": "every Engine e: (holds[e] => granted == e)",
    "granted_once": "every Engine e: (since[e] or else 0 <= term)",
}


@pytest.mark.parametrize("claim", TEXTS)
def test_a_missing_lemma_is_found(claim: str) -> None:
    found = suggest(Theory.of(leases.build()), claim, SCOPE, limits=LIMITS)
    assert found.closed
    assert [lemma.text for lemma in found.lemmas] == [TEXTS[claim]]
    assert found.lemmas[0].claim == claim


def test_a_proof_that_is_closed_needs_none() -> None:
    found = suggest(Theory.of(leases.build(), leases.LEMMAS), "one_holder", SCOPE, limits=LIMITS)
    assert (found.closed, found.lemmas, found.rests_on) == (True, (), ("holders_were_granted",))


def test_what_is_false_is_never_closed() -> None:
    """The step that is left over is one that the protocol really takes."""
    found = suggest(Theory.of(leases.build(careful=False)), "one_holder", SCOPE, limits=LIMITS)
    assert not found.closed
    assert found.open is not None
    assert found.open[:2] == ("one_holder", "take")


def test_every_candidate_holds_in_every_explored_state() -> None:
    """And excludes the state that it was made for."""
    protocol = leases.build()
    seen, space = Seen(protocol, SCOPE), Space(protocol, SCOPE)
    strange = (0, 0, 1, 1, 0, 0)
    states, open_ = set(space.initial_states()), space.initial_states()
    while open_:
        for _, after in space.successors(open_.pop()):
            if after not in states:
                states.add(after)
                open_.append(after)
    assert strange not in states
    candidates = [c for n in range(3) for c in seen.excluding(space, strange, n, protocol.fields)]
    assert len(candidates) > 10
    for candidate in candidates:
        assert not space.holds(candidate.node, strange)
        assert all(space.holds(candidate.node, state) for state in states)
