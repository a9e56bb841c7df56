"""From the tree of `spec.lang.nodes` to z3's formulas: one translator, for worlds of any size and for finite ones.

A *world* (`worlds`) says what sorts become, a *view* (`views`) what the fields of a state hold. Where the world says
how many elements a sort has, quantifiers are written out; elsewhere they stay quantifiers. An optional value is a pair.

The meaning is that of `model_check.evaluate`, with one exception that is the point of it: where there is no scope,
nothing is cut. A bound is no part of a protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

import z3

from model_check.prove.connectives import (
    FALSE,
    TRUE,
    Expr,
    Optional,
    Value,
    both,
    choose,
    either,
    equal,
    implication,
    negation,
)
from model_check.prove.worlds import Untranslatable, World
from spec.lang.nodes import (
    And,
    Const,
    Count,
    CountSort,
    Eq,
    Exists,
    Field,
    Forall,
    Ite,
    KeySort,
    Less,
    MaybeSort,
    NaturalSort,
    Node,
    Not,
    Or,
    OrElse,
    Plus,
    Read,
    Some,
    Var,
    renamed,
    sort_of,
    walk,
)
from spec.lang.protocol import Action

Env = Mapping[Var, Value]


class View(Protocol):
    """What the fields of one state hold."""

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """One cell; no key is optional."""


class Translator:
    """Translates nodes and steps, in one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._fresh = itertools.count()

    def condition(self, node: Node, before: View, after: View | None, env: Env) -> Expr:
        """A truth value."""
        return self.value(node, before, after, env)

    def value(self, node: Node, before: View, after: View | None, env: Env) -> Value:
        """The value of an expression; `after` is the second state of a step property.

        Raises:
            Untranslatable: the node counts what this world cannot count.
        """

        def go(part: Node) -> Value:
            return self.value(part, before, after, env)

        match node:
            case Const(sort=MaybeSort(of=of), value=value):
                if value:
                    return Optional(TRUE, self.world.constant(of, value - 1))
                return self._none(of)
            case Const(sort=sort, value=value):
                return self.world.constant(sort, value)
            case Var():
                return env[node]
            case Read(field=field, keys=keys, default=default, after=second):
                view = after if second else before
                assert view is not None, "a step property needs both states"
                found = [go(key) for key in keys]
                present = both([key.some for key in found if isinstance(key, Optional)])
                cell = view.read(field, tuple(k.value if isinstance(k, Optional) else k for k in found))
                return cell if default is None else choose(present, cell, go(default))
            case Not(arg=arg):
                return negation(go(arg))
            case And(args=args):
                return both([go(arg) for arg in args])
            case Or(args=args):
                return either([go(arg) for arg in args])
            case Eq(left=left, right=right):
                if isinstance(sort_of(left), CountSort):
                    return self._count_equal(left, right, go)
                return equal(go(left), go(right))
            case Less(left=left, right=right):
                if isinstance(sort_of(left), CountSort):
                    return self._count_less(left, right, go)
                return self.world.less(go(left), go(right))
            case Plus(arg=arg, amount=amount):
                number: Expr = go(arg)
                return number + amount
            case Ite(cond=cond, then=then, other=other):
                return choose(go(cond), go(then), go(other))
            case Forall(var=var, body=body):
                return self.every(var, lambda x: self.value(body, before, after, {**env, var: x}))
            case Exists(var=var, body=body):
                return negation(self.every(var, lambda x: negation(self.value(body, before, after, {**env, var: x}))))
            case Some(arg=arg):
                return Optional(TRUE, go(arg))
            case OrElse(arg=arg, default=default):
                inner = go(arg)
                assert isinstance(inner, Optional)
                return choose(inner.some, inner.value, go(default))
            case Count(var=var, body=body):
                values = self.world.elements(var.sort)
                if values is None:
                    raise Untranslatable(f"a count of any number of {var.sort.name} is compared with another count")
                one, nothing = (self.world.constant(CountSort(), number) for number in (1, 0))
                bodies = [self.value(body, before, after, {**env, var: x}) for x in values]
                return sum((z3.If(b, one, nothing) for b in bodies), nothing)

    def every(self, var: Var, body: Callable[[Expr], Expr]) -> Expr:
        """The body holds for every value of a variable."""
        values = self.world.elements(var.sort)
        if values is not None:
            return both([body(value) for value in values])
        x = self.fresh(var)
        return z3.ForAll([x], either([negation(self.world.within(var.sort, x)), body(x)]))

    def fresh(self, var: Var) -> Expr:
        """A constant that nothing else is called."""
        return z3.Const(f"{var.name}!{next(self._fresh)}", self.world.sort(var.sort))

    def _none(self, of: KeySort) -> Optional:
        values = self.world.elements(of)
        anything = values[0] if values else z3.Const(f"{of.name}:any", self.world.sort(of))
        return Optional(FALSE, anything)

    # Counts, where there is no knowing how many elements there are

    def _count_equal(self, left: Node, right: Node, go: Callable[[Node], Value]) -> Expr:
        counted, number, _ = self._bounded_count(left, right)
        if counted is None:
            return equal(go(left), go(right))
        return both([self._at_least(counted, number, go), negation(self._at_least(counted, number + 1, go))])

    def _count_less(self, left: Node, right: Node, go: Callable[[Node], Value]) -> Expr:
        counted, number, swapped = self._bounded_count(left, right)
        if counted is None:
            return self.world.less(go(left), go(right))
        return self._at_least(counted, number + 1, go) if swapped else negation(self._at_least(counted, number, go))

    def _bounded_count(self, left: Node, right: Node) -> tuple[Count | None, int, bool]:
        """A count without end that is compared with a number, the number, and whether it stands on the left."""
        match left, right:
            case Count(var=var), Const(value=number) if self.world.elements(var.sort) is None:
                return left, number, False
            case Const(value=number), Count(var=var) if self.world.elements(var.sort) is None:
                return right, number, True
        return None, 0, False

    def _at_least(self, counted: Count, number: int, go: Callable[[Node], Value]) -> Expr:
        """There are so many different elements, written with quantifiers of the language."""
        if number == 0:
            return TRUE
        taken = {node.name for node in walk(counted) if isinstance(node, Var)}
        variables = [Var(counted.var.sort, f"{counted.var.name}.{n}") for n in range(number)]
        assert taken.isdisjoint(v.name for v in variables)
        different: list[Node] = [Not(Eq(a, b)) for a, b in itertools.combinations(variables, 2)]
        node: Node = And((*different, *(_replaced(counted.body, counted.var, v) for v in variables)))
        for variable in reversed(variables):
            node = Exists(variable, node)
        return go(node)

    # Steps

    def guard(self, action: Action, before: View, env: Env) -> Expr:
        """The action is possible, as far as its guard goes."""
        return both([self.condition(part, before, None, env) for part in action.guard])

    def fits(self, action: Action, before: View, env: Env) -> Expr:
        """No value that the action writes passes the bound of its sort; without a scope there is none to pass."""
        parts = []
        for write in action.writes:
            sort = write.field.sort.of if isinstance(write.field.sort, MaybeSort) else write.field.sort
            if not isinstance(sort, NaturalSort):
                continue
            values = [self.world.elements(b.sort) for b in write.binders]
            if any(v is None for v in values):
                raise Untranslatable(f"only a scope bounds what {action.name} writes to {write.field.name}")
            for chosen in itertools.product(*(v or () for v in values)):
                inner = {**env, **dict(zip(write.binders, chosen, strict=True))}
                keys = [self.value(key, before, None, inner) for key in write.keys]
                happens = [k.some for k in keys if isinstance(k, Optional)]
                value = self.value(write.value, before, None, inner)
                if isinstance(value, Optional):
                    happens, value = [*happens, value.some], value.value
                parts.append(implication(both(happens), self.world.within(sort, value)))
        return both(parts)


def _replaced(node: Node, var: Var, by: Var) -> Node:
    """The node with one variable in place of another, which nothing in it binds."""
    free = {v: v for v in walk(node) if isinstance(v, Var)}
    return renamed(node, {**free, var: by})
