"""A counterexample to induction as a story: the state before, the step, what it changes, and what is wrong then."""

from __future__ import annotations

from dataclasses import replace

from model_check.evaluate import Instance, Space
from model_check.explore import Counterexample, Run
from model_check.prove.finder import Step
from model_check.prove.induction import Discharge
from model_check.prove.theory import INITIALLY, Theory
from model_check.reasons import field_values
from model_check.refine import told
from model_check.story import Story, tell
from spec.lang.refinement import BEGINS, REFINES


def tell_step(theory: Theory, discharge: Discharge) -> Story:
    """The story of the step that breaks an obligation; `discharge` must have one."""
    step, claim = discharge.step, discharge.claim
    assert step is not None, f"{claim} is not broken by {discharge.action}"
    refinement = theory.refinement if claim in (BEGINS, REFINES) else None
    protocol = theory.protocol
    if refinement is not None:
        protocol = (refinement.first if claim == BEGINS else refinement.steps)(protocol)
    space = Space(protocol, step.scope)
    run = _run(theory, space, discharge, step)
    counterexample = Counterexample(claim, theory.kind(claim), theory.claims[claim].doc, space, run)
    story = tell(counterexample) if refinement is None else told(refinement, counterexample)
    if step.before is None:
        return replace(story, title=f"How {story.protocol} violates {claim} at first")
    setting = tuple((f.name, field_values(space, f, step.before)) for f in space.protocol.fields.values())
    by = f"{discharge.action} breaks" if step.args is not None else "A state breaks"
    kept = "every claim that was assumed holds; whether a run leads here is another question"
    return replace(
        story,
        title=f"{by} {claim} of {story.protocol}",
        outset="somewhere",
        opening=f"In this state {kept}.",
        setting=setting,
    )


def _run(theory: Theory, space: Space, discharge: Discharge, step: Step) -> Run:
    action = theory.action(discharge.action)
    if step.after is None or action is None:
        assert step.before is not None
        return ((None, step.before),)
    if discharge.action == INITIALLY:
        return ((None, step.after),)
    assert step.before is not None
    assert step.args is not None
    return ((None, step.before), (Instance(action, step.args), step.after))
