"""A protocol in a scope as formulas without quantifiers, over one bit-vector or truth value per cell of the state.

Cells lie and count as in `model_check.evaluate.Space`, so a model is a state of the definition and the other way round.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import z3

from model_check.evaluate import Instance, Space, State
from model_check.prove.connectives import FALSE, TRUE, Expr, Optional, Value, both, choose, either, equal
from model_check.prove.translate import Env, Translator, View
from model_check.prove.views import After, Nothing
from model_check.prove.worlds import Finite
from spec.lang import Protocol, Scope
from spec.lang.nodes import BoolSort, CountSort, Field, MaybeSort, Node, Var
from spec.lang.protocol import Action, Property


class Cells:
    """A state whose every cell is a constant, in the order of `Space`."""

    def __init__(self, space: Space, world: Finite, name: str) -> None:
        self._space = space
        self._world = world
        self.constants: list[Expr] = []
        for field in space.protocol.fields.values():
            assert not isinstance(field.sort, CountSort)
            sort = z3.BoolSort() if isinstance(field.sort, BoolSort) else z3.BitVecSort(world.width)
            self.constants += [
                z3.Const(f"{name}{len(self.constants) + n}", sort) for n in range(_cells(space.shapes[field.name]))
            ]

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """One cell, or a choice between those that the keys may name."""
        shape = self._space.shapes[field.name]
        return self._read(field, keys, shape, self._space.offsets[field.name])

    def _read(self, field: Field, keys: Sequence[Expr], shape: tuple[int, ...], start: int) -> Value:
        if not keys:
            return self._cell(field, start)
        key, *rest = keys
        size = _cells(shape[1:])
        values = self._world.elements(field.keys[len(field.keys) - len(shape)])
        if (z3.is_bv_value(key) or key is TRUE or key is FALSE) and (
            known := [n for n, value in enumerate(values) if value.eq(key)]
        ):
            return self._read(field, rest, shape[1:], start + known[0] * size)
        *others, last = (self._read(field, rest, shape[1:], start + n * size) for n in range(shape[0]))
        for number, value in reversed(list(enumerate(others))):
            last = choose(equal(key, values[number]), value, last)
        return last

    def _cell(self, field: Field, position: int) -> Value:
        cell = self.constants[position]
        match field.sort:
            case MaybeSort(of=BoolSort()):
                return Optional(cell != 0, cell == 2)
            case MaybeSort():
                return Optional(cell != 0, cell - 1)
            case _:
                return cell

    def domain(self) -> Expr:
        """Every cell holds a value of its sort."""
        parts = []
        for field in self._space.protocol.fields.values():
            if isinstance(field.sort, BoolSort):
                continue
            bound = self._space.scope.cardinality(field.sort)
            start = self._space.offsets[field.name]
            cells = self.constants[start : start + _cells(self._space.shapes[field.name])]
            parts += [z3.ULT(cell, bound) for cell in cells]
        return both(parts)

    def equals(self, view: View) -> Expr:
        """The cells hold what another view of the same fields says."""
        return both(
            [
                equal(self.read(field, keys), view.read(field, keys))
                for field in self._space.protocol.fields.values()
                for keys in itertools.product(*(self._world.elements(key) for key in field.keys))
            ]
        )

    def state(self, model: Expr) -> State:
        """The state that a model of z3 gives these cells."""
        values = (model.eval(cell, model_completion=True) for cell in self.constants)
        return tuple(int(z3.is_true(v)) if z3.is_bool(v) else v.as_long() for v in values)

    def given(self, state: State) -> Expr:
        """The cells hold this state."""
        return both(
            [
                (cell if value else z3.Not(cell)) if z3.is_bool(cell) else cell == value
                for cell, value in zip(self.constants, state, strict=True)
            ]
        )


class Ground:
    """Formulas of a protocol in a scope: `before` and `after` are the states that they speak of.

    Raises:
        Misuse: the scope does not bound a sort of the protocol.
        Untranslatable: an action writes in a way that the language does not offer.
    """

    def __init__(self, protocol: Protocol, scope: Scope) -> None:
        self.space = Space(protocol, scope)
        protocol = self.space.protocol
        self.world = Finite(scope, protocol.sorts, tuple(_roots(protocol)))
        self.translator = Translator(self.world)
        self.before = Cells(self.space, self.world, "before")
        self.after = Cells(self.space, self.world, "after")

    def initial(self) -> Expr:
        """`before` is a first state."""
        action = self.space.protocol.initial
        assert action is not None
        ranges = (self.world.elements(param.sort) for param in action.params)
        nothing = Nothing(self.world)
        return either(
            [
                self._step(action, dict(zip(action.params, values, strict=True)), nothing, self.before)
                for values in itertools.product(*ranges)
            ]
        )

    def step(self, instance: Instance) -> Expr:
        """`after` follows `before` by this action with these values."""
        return self._step(instance.action, self.env(instance.action, instance.args), self.before, self.after)

    def _step(self, action: Action, env: Env, before: View, after: Cells) -> Expr:
        guard, fits = self.possible(action, env, before)
        return both([guard, fits, after.equals(After(self.translator, before, action, env))])

    def possible(self, action: Action, env: Env, before: View | None = None) -> tuple[Expr, Expr]:
        """The guard holds; and no value passes the scope's bound."""
        view = before or self.before
        return self.translator.guard(action, view, env), self.translator.fits(action, view, env)

    def env(self, action: Action, args: Sequence[int]) -> Mapping[Var, Expr]:
        """Values for the parameters."""
        return {p: self.world.constant(p.sort, v) for p, v in zip(action.params, args, strict=True)}

    def transition(self) -> Expr:
        """`after` follows `before` by some action."""
        return either([self.step(instance) for instance in self.space.instances])

    def holds(self, node: Node) -> Expr:
        """A condition on `before`, or on both states of a step."""
        return self.translator.condition(node, self.before, self.after, {})

    def properties(self) -> dict[str, Expr]:
        """Every property by its name: of `before`, or of both where it is stepwise."""
        return {name: self.holds(claim.node) for name, claim in self.space.protocol.properties.items()}


def ground(protocol: Protocol, scope: Scope) -> Ground:
    """The formulas of a protocol in a scope."""
    return Ground(protocol, scope)


def _cells(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _roots(protocol: Protocol) -> Iterator[Node]:
    for action in (*protocol.actions.values(), *((protocol.initial,) if protocol.initial else ())):
        yield from action.guard
        for write in action.writes:
            yield from (*write.keys, write.value)
    claims: tuple[Property, ...] = tuple(protocol.properties.values())
    yield from (claim.node for claim in claims)
    yield from (goal.node for goal in (*protocol.goals.values(), *protocol.rest.values()))
    for recovery in protocol.recoveries.values():
        yield from (recovery.source, recovery.target)
