"""The whole proof: every obligation of every claim, and what then is known of each claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property

from model_check.pool import pooled
from model_check.prove.finder import Finder, Step
from model_check.prove.prover import Answer, Limits, Prover
from model_check.prove.theory import Theory

DEFAULT = Limits()


@dataclass(frozen=True)
class Discharge:
    """What became of one obligation.

    `assumed` are the claims that its proof, or the search for a step that breaks it, took for granted. `frame`: there
    was nothing to prove, since the action writes nothing that the claim reads. `effort` is in z3's units of work.
    """

    claim: str
    action: str
    answer: Answer
    assumed: tuple[str, ...] = ()
    frame: bool = False
    effort: int = 0
    seconds: float = 0.0
    reason: str = ""
    step: Step | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Outcome:
    """What is known of one claim, and which others its proof rests on."""

    claim: str
    kind: str
    doc: str
    answer: Answer
    rests_on: tuple[str, ...]
    seconds: float
    reason: str


@dataclass(frozen=True)
class Proof:
    """Everything that was found out about a theory. Where it was interrupted, obligations are missing: unknown."""

    theory: Theory
    asked: tuple[str, ...]
    discharges: tuple[Discharge, ...]
    interrupted: bool
    seconds: float

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of each claim: it is proved where all its obligations hold, and all that it rests on is proved."""
        by_claim: dict[str, list[Discharge]] = {claim: [] for claim in self.asked}
        for discharge in self.discharges:
            by_claim[discharge.claim].append(discharge)
        own = {claim: self._own(claim, found) for claim, found in by_claim.items()}
        rests = {
            claim: tuple(n for n in self.theory.claims if n != claim and any(n in d.assumed for d in found))
            for claim, found in by_claim.items()
        }
        unproved = {claim for claim, (answer, _) in own.items() if answer is not Answer.HOLDS}
        unproved |= set(self.theory.claims) - set(self.asked)
        while more := {c for c, names in rests.items() if c not in unproved and not unproved.isdisjoint(names)}:
            unproved |= more
        found = []
        for claim, judged in own.items():
            answer, reason = judged
            if answer is Answer.HOLDS and claim in unproved:
                first = next(name for name in rests[claim] if name in unproved)
                answer, reason = Answer.UNKNOWN, f"rests on {first}, which is not proved"
            seconds = sum(d.seconds for d in by_claim[claim])
            doc = self.theory.claims[claim].doc
            found.append(Outcome(claim, self.theory.kind(claim), doc, answer, rests[claim], seconds, reason))
        return tuple(found)

    def _own(self, claim: str, found: list[Discharge]) -> tuple[Answer, str]:
        """What a claim's own obligations say."""
        if claim in self.theory.bounded_only and not found:
            return Answer.UNKNOWN, f"only bounded: {self.theory.bounded_only[claim]}"
        for answer in (Answer.VIOLATED, Answer.UNKNOWN):
            for discharge in found:
                if discharge.answer is answer:
                    return answer, f"{discharge.action}: {discharge.reason}"
        if {d.action for d in found} != set(self.theory.obligations(claim)):
            return Answer.UNKNOWN, "interrupted before every obligation was tried"
        return Answer.HOLDS, ""

    @cached_property
    def answer(self) -> Answer:
        """Violated where a claim is; else unknown where one is that is not listed as bounded only; else it holds."""
        answers = {o.answer for o in self.outcomes if o.claim not in self.theory.bounded_only}
        return next((a for a in (Answer.VIOLATED, Answer.UNKNOWN) if a in answers), Answer.HOLDS)


def prove(
    build: Callable[[], Theory],
    *,
    claims: Collection[str] | None = None,
    limits: Limits = DEFAULT,
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Proof:
    """Prove claims and whatever they rest on, or find steps that break them.

    Claims that the theory lists as bounded only are tried only where `claims` names them.

    Args:
        build: makes the theory; each process makes its own, so with workers this is a function that pickles.
        claims: their names; none: all.
        limits: how hard to try each obligation.
        workers: processes; none: this one.
        progress: called after each claim with how many are done, how many there are, and which was last.

    Raises:
        Misuse: a claim is unknown.
        BrokenProcessPool: a process was killed.
    """
    began = time.perf_counter()
    theory = build()
    asked = theory.needed(claims)
    tried = [name for name in asked if name not in theory.bounded_only or (claims is not None and name in claims)]
    done: dict[str, tuple[Discharge, ...]] = {}
    interrupted = False
    try:
        for number, found in pooled(_Prover(build, limits), [(name,) for name in tried], workers):
            done[tried[number]] = found
            if progress is not None:
                progress(len(done), len(tried), tried[number])
    except KeyboardInterrupt:
        interrupted = True
    discharges = tuple(d for name in tried for d in done.get(name, ()))
    return Proof(theory, asked, discharges, interrupted, time.perf_counter() - began)


class _Prover:
    """Discharges the obligations of one claim after the other; in another process, each with a theory of its own."""

    def __init__(self, build: Callable[[], Theory], limits: Limits) -> None:
        self._build = build
        self._limits = limits
        self._made: tuple[Prover, Finder] | None = None

    def __call__(self, claim: str) -> tuple[Discharge, ...]:
        if self._made is None:
            theory = self._build()
            self._made = Prover(theory, self._limits), Finder(theory, self._limits)
        return discharge_all(*self._made, claim)


def discharge_all(prover: Prover, finder: Finder, claim: str) -> tuple[Discharge, ...]:
    """Every obligation of a claim."""
    return tuple(discharge(prover, finder, claim, action) for action in prover.theory.obligations(claim))


def discharge(prover: Prover, finder: Finder, claim: str, action: str) -> Discharge:
    """Prove one obligation from what the theory says that the claim rests on; failing that, from every claim.

    Where neither succeeds, a step is looked for that breaks the claim though every claim holds before it.
    """
    theory = prover.theory
    if theory.unmoved(claim, action):
        return Discharge(claim, action, Answer.HOLDS, frame=True)
    began = time.perf_counter()
    assumed = theory.assumed(claim)
    found = prover.prove(claim, action, assumed)
    effort = found.effort
    everything = tuple(dict.fromkeys((*assumed, *(n for n in theory.invariants if n not in theory.bounded_only))))
    if found.answer is not Answer.HOLDS and len(everything) > len(assumed):
        assumed = everything
        found = prover.prove(claim, action, assumed)
        effort += found.effort
    step = None if found.answer is Answer.HOLDS else finder.find(claim, action, assumed)
    answer, reason = (Answer.VIOLATED, "broken by a step") if step else (found.answer, found.reason)
    return Discharge(
        claim, action, answer, assumed, effort=effort, seconds=time.perf_counter() - began, reason=reason, step=step
    )
