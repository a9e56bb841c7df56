"""Lemmas that would close a proof, found among what explored states have in common, one counterexample at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from model_check.evaluate import Space
from model_check.prove.features import Candidate, Seen
from model_check.prove.finder import Finder, Step
from model_check.prove.needs import needs
from model_check.prove.prover import Limits, Prover
from model_check.prove.theory import EVERYWHERE, INITIALLY, Theory
from spec.lang import Scope
from spec.lang.nodes import Read, walk
from spec.lang.protocol import Property
from spec.lang.text import show


@dataclass(frozen=True)
class Lemma:
    """A suggestion: a condition that holds in every explored state, and the obligation that demanded it."""

    name: str
    text: str
    claim: str
    action: str


@dataclass(frozen=True)
class Suggestion:
    """What would close the proof of a claim: lemmas of which none can be left out, and declared claims besides.

    Where nothing does, `open` is the obligation that no candidate helps, with its step.
    """

    claim: str
    closed: bool
    lemmas: tuple[Lemma, ...]
    rests_on: tuple[str, ...]
    states: int
    open: tuple[str, str, Step | None] | None


def suggest(
    theory: Theory,
    claim: str,
    scope: Scope,
    *,
    premises: int = 2,
    limits: Limits,
    progress: Callable[[str], None] | None = None,
) -> Suggestion:
    """Look for lemmas that close the proof of a claim, given the claims that the theory already has.

    A step that breaks the claim, or a lemma found so far, is ruled out by some condition that every state of the scope
    meets: an implication over the protocol's own fields. The condition becomes a lemma, and has to be kept in turn. One
    that cannot be kept is given up, and never tried again. What is left in the end is proved for worlds of every size.

    Args:
        theory: what is known; its lemmas may be used.
        claim: what to prove.
        scope: the world whose states are explored.
        premises: the most premises of an implication.
        limits: how hard to try each obligation.
        progress: called with what is being done.
    """
    seen = Seen(theory.protocol, scope)
    return _Suggesting(theory, claim, seen=seen, premises=premises, limits=limits, progress=progress).run()


class _Suggesting:
    def __init__(
        self,
        theory: Theory,
        claim: str,
        *,
        seen: Seen,
        premises: int,
        limits: Limits,
        progress: Callable[[str], None] | None,
    ) -> None:
        self._theory, self._claim, self._seen, self._premises = theory, claim, seen, premises
        self._limits, self._progress = limits, progress
        self._lemmas: dict[str, tuple[Candidate, Lemma]] = {}
        self._refused: set[Candidate] = set()
        self._count = 0
        self._sound: set[tuple[str, str]] = set()
        sizes = tuple(seen.space.scope.sizes.items())
        self._finder = Finder(theory, limits, [sizes])

    def run(self) -> Suggestion:
        """Rule out steps until none is left, or no candidate helps."""
        while (found := self._next()) is not None:
            name, action, step = found
            candidate = self._candidate(name, action, step)
            if candidate is None:
                if name == self._claim:
                    return self._suggestion(found)
                self._refused.add(self._lemmas.pop(name)[0])
                self._sound.clear()
                continue
            self._count += 1
            lemma = Lemma(f"lemma_{self._count}", show(candidate.node), name, action)
            self._lemmas[lemma.name] = candidate, lemma
            self._tell(f"{len(self._lemmas)} lemmas; last: {lemma.text}")
        return self._suggestion(None)

    def _tell(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    def _whole(self) -> Theory:
        """The theory with the lemmas found so far."""
        protocol = self._theory.protocol.variant(self._theory.protocol.name, self._theory.protocol.doc)
        for name, (candidate, lemma) in self._lemmas.items():
            protocol.properties[name] = Property(name, lemma.text, candidate.node, stepwise=False)
        kept = {n: u for n, u in self._theory.uses.items() if n not in (self._claim, *self._lemmas)}
        return replace(self._theory, protocol=protocol, lemmas=self._theory.lemmas | set(self._lemmas), uses=kept)

    def _next(self) -> tuple[str, str, Step] | None:
        """An obligation of the claim or of a lemma that a step breaks. More lemmas break none that was sound."""
        whole = self._whole()
        finder = self._finder.having(whole)
        for name in (*reversed(self._lemmas), self._claim):
            for action in whole.obligations(name):
                if (name, action) in self._sound or whole.unmoved(name, action):
                    continue
                if step := finder.find(name, action, whole.assumed(name)):
                    return name, action, step
                self._sound.add((name, action))
        return None

    def _candidate(self, name: str, action: str, step: Step) -> Candidate | None:
        """The best condition that rules a step out: few premises, about what the obligation is about, and strong."""
        if action == INITIALLY or step.before is None:
            return None
        whole = self._whole()
        about = {part.field.name for part in walk(whole.claims[name].node) if isinstance(part, Read)}
        taken = whole.action(action) if action != EVERYWHERE else None
        for part in taken.guard if taken else ():
            about |= {n.field.name for n in walk(part) if isinstance(n, Read)}
        about |= taken.written if taken else frozenset()
        space, everything = Space(whole.protocol, step.scope), set(whole.protocol.fields)
        tries = [(number, about) for number in range(self._premises + 1)]
        tries += [(number, everything) for number in range(self._premises + 1)]
        for number, fields in tries:
            found = [c for c in self._seen.excluding(space, step.before, number, fields) if c not in self._refused]
            if found:
                return min(found, key=lambda c: (len(c.fields - about), c.numbers, c.possible))
        return None

    def _suggestion(self, left: tuple[str, str, Step] | None) -> Suggestion:
        """What of the lemmas is needed, proved for worlds of every size."""
        states = self._seen.states
        if left is not None:
            return Suggestion(self._claim, False, tuple(le for _, le in self._lemmas.values()), (), states, left)
        whole = self._whole()
        prover = Prover(whole, self._limits)
        used: dict[str, tuple[str, ...]] = {}
        open_ = [self._claim]
        while open_:
            name = open_.pop()
            self._tell(f"what {name} rests on")
            rests = needs(prover, name, whole.invariants)
            if rests is None:
                lemmas = tuple(le for _, le in self._lemmas.values())
                return Suggestion(self._claim, False, lemmas, (), states, (name, "", None))
            used[name] = rests
            open_ += [n for n in rests if n in self._lemmas and n not in used and n not in open_]
        lemmas = tuple(lemma for name, (_, lemma) in self._lemmas.items() if name in used)
        declared = {n for rests in used.values() for n in rests} - set(self._lemmas) - {self._claim}
        return Suggestion(self._claim, True, lemmas, tuple(n for n in whole.claims if n in declared), states, None)
