"""Proofs, for worlds of every size, that single obligations hold."""

from __future__ import annotations

import enum
import time
from collections.abc import Collection
from dataclasses import dataclass

import z3

from model_check.prove.connectives import Expr, both, negation
from model_check.prove.theory import INITIALLY, Theory
from model_check.prove.translate import Translator
from model_check.prove.views import After, Functions, Nothing
from model_check.prove.worlds import Unbounded, Untranslatable


class Answer(enum.Enum):
    """What is known of an obligation, or of a claim."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Limits:
    """How hard to try.

    `effort` is in z3's own units of work, so that the same question gets the same answer on every machine; `seconds`
    bounds the wait for one question all the same.
    """

    effort: int = 5_000_000
    seconds: float = 30


@dataclass(frozen=True)
class Proving:
    """What became of one question: by which claims it was proved, where that was asked, or why it was not."""

    answer: Answer
    used: tuple[str, ...]
    effort: int
    seconds: float
    reason: str


class Prover:
    """Answers the obligations of a theory one by one, each with a solver of its own."""

    def __init__(self, theory: Theory, limits: Limits) -> None:
        self.theory = theory
        self.limits = limits
        self._world = Unbounded()
        self._translator = Translator(self._world)
        self._before = Functions(self._world)
        self._assumed: dict[str, Expr] = {}

    def prove(self, claim: str, action: str, assuming: Collection[str], *, track: bool = False) -> Proving:
        """Holds, or unknown: that there is no proof in worlds without bound refutes nothing.

        Args:
            claim: what must hold after the step, or across it.
            action: the step.
            assuming: claims that hold before it.
            track: find out which of them the proof uses.
        """
        began = time.perf_counter()
        try:
            parts, broken = self._question(claim, action, assuming)
        except Untranslatable as error:
            return Proving(Answer.UNKNOWN, (), 0, time.perf_counter() - began, str(error))
        solver = z3.SimpleSolver()
        solver.set("random_seed", 0)
        solver.set("ctrl_c", False)
        solver.set("rlimit", self.limits.effort)
        solver.set("timeout", int(self.limits.seconds * 1000))
        solver.add(broken)
        marks = {z3.Bool(f"assuming {name}"): name for name in parts} if track else {}
        if track:
            solver.add(*(z3.Implies(mark, parts[name]) for mark, name in marks.items()))
        else:
            solver.add(*parts.values())
        start = _work(solver)
        found = solver.check(*marks)
        effort = _work(solver) - start
        if found == z3.unsat:
            core = solver.unsat_core()
            used = tuple(name for mark, name in marks.items() if any(mark.eq(part) for part in core))
            return Proving(Answer.HOLDS, used, effort, time.perf_counter() - began, "")
        why = solver.reason_unknown() if found == z3.unknown else "what is assumed does not suffice"
        return Proving(Answer.UNKNOWN, (), effort, time.perf_counter() - began, f"no proof: {why.strip('()')}")

    def _question(self, claim: str, action: str, assuming: Collection[str]) -> tuple[dict[str, Expr], Expr]:
        """What is assumed, claim by claim, and the step that must then be impossible."""
        step, node = self.theory.action(action), self.theory.owed(claim, action)
        world, translator = self._world, self._translator
        if step is None:
            parts = {name: self._assume(name) for name in assuming}
            broken = negation(translator.condition(node, self._before, None, {}))
            return parts, both([broken, *self._before.ranges(translator), *world.distinct()])
        env = {p: z3.Const(f"{p.name}!", world.sort(p.sort)) for p in step.params}
        first = action == INITIALLY
        before = Nothing(world) if first else self._before
        after = After(translator, before, step, env)
        if self.theory.claims[claim].stepwise:
            kept = translator.condition(node, before, after, env)
        else:
            kept = translator.condition(node, after, None, env)
        guard = translator.guard(step, before, env)
        parts = {} if first else {name: self._assume(name) for name in assuming}
        sorts = [world.within(p.sort, env[p]) for p in step.params]
        return parts, both([guard, negation(kept), *sorts, *self._before.ranges(translator), *world.distinct()])

    def _assume(self, name: str) -> Expr:
        if name not in self._assumed:
            node = self.theory.claims[name].node
            self._assumed[name] = self._translator.condition(node, self._before, None, {})
        return self._assumed[name]


def _work(solver: Expr) -> int:
    """The units of work that z3 has done so far, in all of its solvers."""
    found = solver.statistics()
    return int(found.get_key_value("rlimit count")) if "rlimit count" in found.keys() else 0  # noqa: SIM118
