"""Counterexamples to induction: a step, in a small world, that breaks a claim from a state that keeps the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import z3

from model_check.evaluate import Instance, Refused, Space, State
from model_check.prove.connectives import Expr, negation
from model_check.prove.ground import Ground
from model_check.prove.prover import Limits
from model_check.prove.theory import INITIALLY, Theory
from model_check.prove.views import After, Nothing
from spec.lang import Protocol, Scope
from spec.lang.nodes import Const, IndexSort, NaturalSort

Sizes = tuple[tuple[str, int], ...]
"""How large a world is, as in a `Scope`, but to be looked things up by."""


@dataclass(frozen=True)
class Step:
    """A step that breaks a claim, confirmed by `evaluate`.

    `before` is none in the obligation that a claim holds at first; where a claim must follow in every state there is
    no step, so that `args` and `after` are none. `sizes` is the world, as in a `Scope`.
    """

    sizes: Sizes
    before: State | None
    args: tuple[int, ...] | None
    after: State | None

    @property
    def scope(self) -> Scope:
        """The world of the step."""
        return Scope("small", dict(self.sizes), "the smallest in which the step was found")


class Finder:
    """Looks for such steps in worlds of growing size, each translated once.

    Args:
        theory: what is claimed.
        limits: how hard to try in each world.
        sizes: the worlds to look in; none: some small ones.
    """

    def __init__(self, theory: Theory, limits: Limits, sizes: Sequence[Sizes] | None = None) -> None:
        self.theory = theory
        self.limits = limits
        self._given = sizes
        self._worlds: dict[Sizes, _World] = {}

    def having(self, theory: Theory) -> Finder:
        """One that looks in the same worlds, for a theory of the same protocol with more lemmas, or with fewer."""
        other = Finder(theory, self.limits, self._given)
        other._worlds = self._worlds
        return other

    def find(self, claim: str, action: str, assuming: Collection[str]) -> Step | None:
        """The step in the smallest world that has one; none where no world that was tried has one."""
        for sizes in self._sizes():
            world = self._worlds.get(sizes)
            if world is None:
                world = self._worlds[sizes] = _World(self.theory.protocol, sizes)
            if found := world.find(self.theory, claim, action, assuming, self.limits):
                return found
        return None

    def _sizes(self) -> Iterator[Sizes]:
        if self._given is not None:
            yield from self._given
            return
        sorts = self.theory.protocol.sorts
        index = [s.name for s in sorts if isinstance(s, IndexSort)]
        natural = [s.name for s in sorts if isinstance(s, NaturalSort)]
        for elements, largest in ((1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (3, 4)):
            sizes = {name: max(elements, self._named.get(name, 0)) for name in index}
            yield tuple((sizes | dict.fromkeys(natural, largest)).items())

    @cached_property
    def _named(self) -> dict[str, int]:
        """How many elements of each index sort must be there for those that the protocol names."""
        least: dict[str, int] = {}
        for node in self.theory.protocol.nodes():
            if isinstance(node, Const) and isinstance(node.sort, IndexSort):
                least[node.sort.name] = max(least.get(node.sort.name, 0), node.value + 1)
        return least


class _World:
    """One world of a protocol. What a claim says there is translated once, under its name."""

    def __init__(self, protocol: Protocol, sizes: Sizes) -> None:
        self._sizes = sizes
        self._ground = Ground(protocol, Scope("small", dict(sizes), "tried"))
        self._assumed: dict[str, Expr] = {}

    @property
    def _space(self) -> Space:
        return self._ground.space

    def find(self, theory: Theory, claim: str, action: str, assuming: Collection[str], limits: Limits) -> Step | None:
        """A step in this world, or none, or none in time."""
        ground = self._ground
        node, stepwise = theory.owed(claim, action), theory.claims[claim].stepwise
        solver = z3.SolverFor("QF_BV")
        solver.set("random_seed", 0)
        solver.set("ctrl_c", False)
        solver.set("rlimit", limits.effort)
        solver.set("timeout", int(limits.seconds * 1000))
        first, step = action == INITIALLY, theory.action(action)
        if not first:
            solver.add(ground.before.domain(), *(self._assume(theory, name) for name in assuming))
        condition, env = ground.translator.condition, {}
        if step is None:
            solver.add(negation(condition(node, ground.before, None, {})))
        else:
            env = {p: z3.Const(f"{p.name}!", ground.world.sort(p.sort)) for p in step.params}
            before = Nothing(ground.world) if first else ground.before
            after = After(ground.translator, before, step, env)
            kept = condition(node, before, after, env) if stepwise else condition(node, after, None, env)
            solver.add(*ground.possible(step, env, before), negation(kept))
            solver.add(*(ground.world.within(p.sort, env[p]) for p in step.params))
        if solver.check() != z3.sat:
            return None
        model = solver.model()
        state = None if first else ground.before.state(model)
        if step is None:
            assert state is not None
            self._confirm(theory, assuming, state)
            assert not self._space.holds(node, state), f"evaluate does not find {claim} broken"
            return Step(self._sizes, state, None, None)
        values = [model.eval(env[p], model_completion=True) for p in step.params]
        args = tuple(int(z3.is_true(v)) if z3.is_bool(v) else int(v.as_long()) for v in values)
        return self._replayed(theory, claim, Instance(step, args), state, assuming)

    def _assume(self, theory: Theory, name: str) -> Expr:
        if name not in self._assumed:
            self._assumed[name] = self._ground.holds(theory.claims[name].node)
        return self._assumed[name]

    def _confirm(self, theory: Theory, assumed: Collection[str], state: State) -> None:
        false = [name for name in assumed if not self._space.holds(theory.claims[name].node, state)]
        assert not false, f"evaluate finds that {', '.join(false)} does not hold before the step"

    def _replayed(
        self, theory: Theory, claim: str, instance: Instance, before: State | None, assumed: Collection[str]
    ) -> Step:
        """The step as `evaluate` takes it. What it does not confirm is an error of the translation, and no finding."""
        space, owed = self._space, theory.owed(claim, INITIALLY if before is None else instance.action.name)
        start = before if before is not None else (0,) * space.cells
        after = space.step(start, instance)
        assert not isinstance(after, Refused), f"evaluate does not take {space.instance_name(instance)}: {after.value}"
        if before is not None:
            self._confirm(theory, assumed, before)
        states = (start, instance.env, after) if theory.claims[claim].stepwise else (after, instance.env)
        assert not space.value(owed, *states), (
            f"evaluate does not find {claim} broken by {space.instance_name(instance)}"
        )
        return Step(self._sizes, before, instance.args, after)
