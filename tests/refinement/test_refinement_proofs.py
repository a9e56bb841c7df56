"""Refinements are proved for any number; wrong protocols, and a step that is named wrongly or not, break an obligation.

That every obligation of the right protocols holds is among the proofs in `tests/prove`.
"""

from __future__ import annotations

import random

import pytest

from model_check.evaluate import Space
from model_check.prove.finder import Finder
from model_check.prove.induction import Discharge, discharge
from model_check.prove.prover import Answer, Limits, Prover
from model_check.prove.tell import tell_step
from model_check.prove.theory import INITIALLY, Theory
from reef_ref.cli.catalogue import find_protocol, known_lemmas, known_mutants, known_scopes
from spec.lang import Misuse
from spec.lang.refinement import BEGINS, REFINES, Refinement, Taken, takes
from spec.publication.state import Engine
from spec.publication.state import State as Detailed
from spec.refinement import REFINEMENTS
from tests.refinement.test_publication_refines import SEEN as WRONG_PUBLICATIONS
from tests.refinement.test_serving_refines import SEEN as WRONG_ENGINES

LIMITS = Limits()
WRONG = [
    *(("publication", name) for name in (*WRONG_PUBLICATIONS, "in-place-shares")),
    *(("serving", name) for name in (*WRONG_ENGINES, "sharing-in-place")),
]
"""The wrong protocols that do not refine their ideals, as exploration finds."""


def copied(name: str) -> Refinement:
    """A refinement that may be changed."""
    right = REFINEMENTS[name]
    other = Refinement(right.detailed, right.abstract, right.doc, right.where)
    other.images |= right.images
    other.named |= right.named
    return other


def tried(theory: Theory, claim: str, action: str) -> Discharge:
    return discharge(Prover(theory, LIMITS), Finder(theory, LIMITS), claim, action)


@pytest.mark.parametrize(("name", "mutant"), WRONG)
def test_wrong_protocols_break_an_obligation(name: str, mutant: str) -> None:
    """Of the refinement itself, or of what its proof rests on; and where something was changed."""
    right, wrong = find_protocol(name), known_mutants(name)[mutant].build()
    theory = Theory.of(wrong, known_lemmas(name), REFINEMENTS[name])
    changed = {n for n, action in wrong.actions.items() if right.actions.get(n) != action}
    changed |= {INITIALLY} if wrong.initial != right.initial else set()
    prover, finder = Prover(theory, LIMITS), Finder(theory, LIMITS)
    assert any(
        discharge(prover, finder, claim, action).answer is Answer.VIOLATED
        for claim in theory.needed([BEGINS, REFINES])
        for action in theory.obligations(claim)
        if action in changed
    )


@pytest.mark.parametrize("name", REFINEMENTS)
def test_no_named_step_is_idle(name: str) -> None:
    """Without what is named for an action, some step breaks its obligation, though all that it rests on holds."""
    for action in REFINEMENTS[name].named:
        lacking = copied(name)
        del lacking.named[action]
        theory = Theory.of(find_protocol(name), known_lemmas(name), lacking)
        step = Finder(theory, LIMITS).find(REFINES, action, theory.assumed(REFINES))
        assert step is not None, action
        story = tell_step(theory, Discharge(REFINES, action, Answer.VIOLATED, step=step))
        assert "which is not named for it" in story.formula, action


def test_a_step_that_is_named_wrongly_is_told() -> None:
    """With the state before it, and the step that it is."""
    wrong = copied("publication")

    @wrong.step
    def retract(s: Detailed, e: Engine) -> Taken:
        return takes("lose", e=e)

    theory = Theory.of(find_protocol("publication"), known_lemmas("publication"), wrong)
    story = tell_step(theory, tried(theory, REFINES, "retract"))
    assert story.title == f"retract breaks {REFINES} of publication"
    assert "That is send_back(engine 0), which is not named for it." in story.formula


def test_a_field_that_is_seen_wrongly_is_told() -> None:
    """As by no step of the ideal: here what engines report is taken for the released load."""
    wrong = copied("publication")
    wrong.images["load"] = lambda s: s.memory_target.or_else(0)
    theory = Theory.of(find_protocol("publication"), known_lemmas("publication"), wrong)
    found = tried(theory, REFINES, "record_target")
    assert found.answer is Answer.VIOLATED
    assert "no step of it does just that" in tell_step(theory, found).formula


def test_first_states_that_are_others_are_told() -> None:
    wrong = known_mutants("publication")["in-place-shares"].build()
    theory = Theory.of(wrong, known_lemmas("publication"), REFINEMENTS["publication"])
    found = tried(theory, BEGINS, INITIALLY)
    assert found.answer is Answer.VIOLATED
    assert tell_step(theory, found).formula == "Seen as a state of atomic, it is none of its first states."


@pytest.mark.parametrize("name", REFINEMENTS)
def test_what_is_named_is_a_step_of_the_ideal(name: str) -> None:
    """On random runs, what is owed holds, and where it does the ideal has such a step, or none is needed."""
    refinement, scope = REFINEMENTS[name], known_scopes(name)["smoke"]
    space = Space(refinement.detailed, scope)
    owed = {action: refinement.owed(found) for action, found in space.protocol.actions.items()}
    refines = refinement.refines().node
    rng = random.Random(0)
    for state in space.initial_states():
        assert space.value(refinement.owed_at_first(), state, {})
        assert space.value(refinement.begins().node, state, {})
    for _ in range(20):
        state = rng.choice(space.initial_states())
        for _ in range(60):
            instance, after = rng.choice(list(space.successors(state)))
            assert space.value(owed[instance.action.name], state, instance.env, after)
            assert space.value(refines, state, {}, after)
            state = after


def undeclared(s: Detailed) -> Taken:
    return takes("lose_all")


def flush(s: Detailed, f: Engine) -> Taken:
    return takes("forget", e=f)


@pytest.mark.parametrize(
    ("fn", "message"),
    [(undeclared, "publication has no action 'undeclared'"), (flush, "flush takes e")],
)
def test_names_that_nothing_has_are_refused(fn: object, message: str) -> None:
    with pytest.raises(Misuse, match=message):
        copied("publication").step(fn)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("taken", "message"),
    [
        (takes("vanish"), "the ideal has no action 'vanish'; it has admit"),
        (takes("start", e=0), "start takes e, kept"),
        (takes("lose_all", e=0), "lose_all takes nothing"),
    ],
)
def test_steps_that_the_ideal_has_not_are_refused(taken: Taken, message: str) -> None:
    wrong = copied("publication")
    wrong.named["crash"] = lambda s: taken
    with pytest.raises(Misuse, match=message):
        wrong.owed(wrong.detailed.actions["crash"])


def test_a_first_state_must_be_named() -> None:
    with pytest.raises(Misuse, match="nothing says which first state"):
        copied("publication").owed_at_first()
