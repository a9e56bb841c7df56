"""What a proof by induction owes: every claim holds at first, and every action keeps it, given the claims before it."""

from __future__ import annotations

import enum
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import z3

from model_check.evaluate import Instance, Refused, Space, State
from model_check.prove.ground import Ground
from model_check.prove.translate import (
    After,
    Expr,
    Functions,
    Nothing,
    Translator,
    Unbounded,
    Untranslatable,
    negation,
)
from spec.lang import Protocol, Scope
from spec.lang.nodes import Node, Read, walk
from spec.lang.protocol import Action, Property

INITIALLY = "initially"
"""What stands for the action of the obligation that a claim holds in the first states."""


class Answer(enum.Enum):
    """What is known of an obligation."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Limits:
    """How hard to try. `effort` is counted by z3 itself, so that the same question gets the same answer everywhere.

    `seconds` bounds the wait all the same.
    """

    effort: int = 3_000_000
    seconds: float = 20


@dataclass(frozen=True)
class Step:
    """A step in a world of its size, from a state that keeps every claim assumed to one that breaks a claim."""

    space: Space = field(repr=False)
    before: State | None
    instance: Instance
    after: State


@dataclass(frozen=True)
class Discharge:
    """What became of one obligation, in seconds and by which claims; `frame` where the action writes nothing it reads."""

    claim: str
    action: str
    answer: Answer
    used: tuple[str, ...] = ()
    seconds: float = 0.0
    effort: int = 0
    frame: bool = False
    reason: str = ""
    step: Step | None = field(default=None, repr=False)


class Prover:
    """The obligations of a protocol, whose claims are its properties and some lemmas."""

    def __init__(self, protocol: Protocol, lemmas: Mapping[str, Property], limits: Limits = Limits()) -> None:
        self.protocol = protocol
        self.claims: dict[str, Property] = {**protocol.properties, **lemmas}
        self.limits = limits
        self.world = Unbounded()
        self.translator = Translator(self.world)
        self.before = Functions(self.world)
        self._assumed: dict[str, Expr] = {}

    @cached_property
    def invariants(self) -> tuple[str, ...]:
        """The claims about one state: those that can be assumed before a step."""
        return tuple(name for name, claim in self.claims.items() if not claim.stepwise)

    def obligations(self, claims: Collection[str] | None = None) -> Iterator[tuple[str, str]]:
        """Claims and actions, in order of declaration."""
        for name, claim in self.claims.items():
            if claims is None or name in claims:
                if not claim.stepwise:
                    yield name, INITIALLY
                yield from ((name, action) for action in self.protocol.actions)

    def action(self, name: str) -> Action:
        """An action by its name, or the initial one."""
        if name == INITIALLY:
            assert self.protocol.initial is not None
            return self.protocol.initial
        return self.protocol.actions[name]

    def unmoved(self, claim: str, action: str) -> bool:
        """The action writes nothing that the claim about one state reads."""
        found = self.claims[claim]
        return action != INITIALLY and not found.stepwise and not fields_of(found.node) & self.action(action).written

    def discharge(self, claim: str, action: str, assuming: Collection[str], *, track: bool = False) -> Discharge:
        """Answer one obligation by a proof for worlds of every size, or leave it unknown.

        Args:
            claim: what must hold after the step, or across it.
            action: the step.
            assuming: claims that hold before it; a claim about one state is always assumed for itself.
            track: find out which of the claims the proof uses.
        """
        if self.unmoved(claim, action):
            return Discharge(claim, action, Answer.HOLDS, frame=True)
        began = time.perf_counter()
        try:
            parts, goal = self._question(claim, action, assuming)
        except Untranslatable as error:
            return Discharge(claim, action, Answer.UNKNOWN, reason=str(error))
        solver = z3.SimpleSolver()
        solver.set("random_seed", 0)
        solver.set("mbqi", False)
        solver.set("rlimit", self.limits.effort)
        solver.set("timeout", int(self.limits.seconds * 1000))
        solver.add(goal)
        names = {}
        for name, part in parts.items():
            if track and name:
                names[mark := z3.Bool(f"assume {name}")] = name
                solver.add(z3.Implies(mark, part))
            else:
                solver.add(part)
        found = solver.check(*names)
        used = tuple(name for mark, name in names.items() if any(mark.eq(c) for c in solver.unsat_core())) if found == z3.unsat else ()
        effort = next((solver.statistics().get_key_value(k) for k in solver.statistics().keys() if k == "rlimit count"), 0)
        return Discharge(
            claim,
            action,
            Answer.HOLDS if found == z3.unsat else Answer.UNKNOWN,
            used=used,
            seconds=time.perf_counter() - began,
            effort=effort,
            reason="" if found == z3.unsat else f"z3: {solver.reason_unknown() if found == z3.unknown else found}",
        )

    def _question(self, claim: str, action: str, assuming: Collection[str]) -> tuple[dict[str, Expr], Expr]:
        """What may be assumed, by the claim that says it, and what must then be impossible."""
        step, translator = self.action(action), self.translator
        env = {p: z3.Const(f"{p.name}!", self.world.sort(p.sort)) for p in step.params}
        first = action == INITIALLY
        before = Nothing(self.world) if first else self.before
        after = After(translator, before, step, env)
        node = self.claims[claim].node
        stepwise = self.claims[claim].stepwise
        broken = negation(
            translator.condition(node, before, after, {})
            if stepwise
            else translator.condition(node, after, None, {})
        )
        parts: dict[str, Expr] = {}
        if not first:
            own = () if stepwise else (claim,)
            for name in dict.fromkeys((*own, *assuming)):
                parts[name] = self._assume(name)
        guard = translator.guard(step, before, env)
        types = [self.world.within(p.sort, env[p]) for p in step.params]
        types += self.before.ranges(translator)
        types += self.world.distinct()
        return parts, z3.And(guard, *types, broken)

    def _assume(self, name: str) -> Expr:
        if name not in self._assumed:
            self._assumed[name] = self.translator.condition(self.claims[name].node, self.before, None, {})
        return self._assumed[name]


class Finder:
    """Looks for a step, in the world of a scope, that breaks a claim from where every assumed claim holds."""

    def __init__(self, protocol: Protocol, claims: Mapping[str, Property], scope: Scope) -> None:
        self.claims = claims
        self.ground = Ground(protocol, scope)
        self._assumed: dict[str, Expr] = {}

    def find(self, claim: str, action: str, assuming: Collection[str], limits: Limits) -> Step | None:
        """A step, replayed by `evaluate`; none where this world has none, or none was found in time."""
        ground, found = self.ground, self.claims[claim]
        space = ground.space
        first = action == INITIALLY
        step = space.protocol.initial if first else space.protocol.actions[action]
        assert step is not None
        env = {p: z3.Const(f"{p.name}!", ground.world.sort(p.sort)) for p in step.params}
        before = Nothing(ground.world) if first else ground.before
        after = After(ground.translator, before, step, env)
        guard, fits = ground.possible(step, env, before)
        broken = (
            ground.translator.condition(found.node, before, after, {})
            if found.stepwise
            else ground.translator.condition(found.node, after, None, {})
        )
        solver = z3.SolverFor("QF_BV")
        solver.set("random_seed", 0)
        solver.set("timeout", int(limits.seconds * 1000))
        solver.add(guard, fits, negation(broken), *(ground.world.within(p.sort, env[p]) for p in step.params))
        own = () if found.stepwise else (claim,)
        if not first:
            solver.add(ground.before.domain())
            for name in dict.fromkeys((*own, *assuming)):
                if name not in self._assumed:
                    self._assumed[name] = ground.holds(self.claims[name].node)
                solver.add(self._assumed[name])
        if solver.check() != z3.sat:
            return None
        model = solver.model()
        values = [model.eval(env[p], model_completion=True) for p in step.params]
        instance = Instance(step, tuple(int(z3.is_true(v)) if z3.is_bool(v) else v.as_long() for v in values))
        state = None if first else ground.before.state(model)
        return self._replayed(claim, instance, state, (*own, *assuming))

    def _replayed(self, claim: str, instance: Instance, before: State | None, assumed: Collection[str]) -> Step:
        """The step as `evaluate` takes it: what it does not confirm is an error of the translation."""
        space, found = self.ground.space, self.claims[claim]
        start = before if before is not None else (0,) * space.cells
        after = space.step(start, instance)
        assert not isinstance(after, Refused), f"evaluate does not take {space.instance_name(instance)}: {after}"
        if before is not None:
            false = [name for name in assumed if not space.holds(self.claims[name].node, before)]
            assert not false, f"evaluate finds {', '.join(false)} false before {space.instance_name(instance)}"
        holds = space.holds(found.node, start, after) if found.stepwise else space.holds(found.node, after)
        assert not holds, f"evaluate does not find {claim} broken by {space.instance_name(instance)}"
        return Step(space, before, instance, after)


def fields_of(node: Node) -> frozenset[str]:
    """The names of the fields that a node reads."""
    return frozenset(part.field.name for part in walk(node) if isinstance(part, Read))
