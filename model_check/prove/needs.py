"""On which other claims a proof rests: a set of which none can be left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from model_check.prove.prover import Answer, Prover


def needs(prover: Prover, claim: str, among: Collection[str]) -> tuple[str, ...] | None:
    """The claims that the proof of one rests on, in order of declaration; none where `among` does not suffice.

    Obligations are taken in order, and what earlier ones need is tried first for the later. Of what z3's unsatisfiable
    cores name, claims are dropped one by one while every obligation still holds.

    Args:
        prover: of the theory.
        claim: the one to prove.
        among: claims about one state that may be assumed.
    """
    theory = prover.theory
    own = () if theory.claims[claim].stepwise or claim not in theory.invariants else (claim,)
    actions = [action for action in theory.obligations(claim) if not theory.unmoved(claim, action)]
    others = [name for name in among if name != claim]

    def holds(action: str, names: Sequence[str]) -> bool:
        return prover.prove(claim, action, (*own, *names)).answer is Answer.HOLDS

    found: list[str] = []
    for action in actions:
        if holds(action, found):
            continue
        proving = prover.prove(claim, action, (*own, *others), track=True)
        if proving.answer is not Answer.HOLDS:
            return None
        core = [name for name in proving.used if name != claim and name not in found]
        for name in list(core):
            if holds(action, [*found, *(n for n in core if n != name)]):
                core.remove(name)
        found += core
    for name in list(found):
        fewer = [n for n in found if n != name]
        if all(holds(action, fewer) for action in actions):
            found = fewer
    return tuple(name for name in theory.claims if name in found)
