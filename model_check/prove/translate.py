"""From the tree of `spec.lang.nodes` to z3's formulas: one translator, for worlds of any size and for finite ones.

A *world* says what sorts become. In `Unbounded`, an index sort is an uninterpreted sort, a natural an integer that is
not negative, and a quantifier a quantifier; in `Finite`, everything is a bit-vector and quantifiers are written out.
Members of an enumeration are bit-vectors in both, and an optional value is a pair (`Optional`).

A *view* says what a field holds: `Functions` leave it open, `Nothing` is the state before the first, and `After` is the
state after a step, with every write put in place of what was read. So a step needs no second copy of the state and no
axiom about what it leaves alone.

The meaning is that of `model_check.evaluate`, with one exception that is the point of it: where there is no scope,
nothing is cut. A bound is no part of a protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import z3

from spec.lang.nodes import (
    And,
    BoolSort,
    Const,
    Count,
    CountSort,
    EnumSort,
    Eq,
    Exists,
    Field,
    Forall,
    IndexSort,
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
    Sort,
    Var,
    Write,
    sort_of,
    walk,
)
from spec.lang.protocol import Action
from spec.lang.scope import Scope

Expr = Any
"""A term of z3, which ships no types."""


@dataclass(frozen=True)
class Optional:
    """An optional value: whether there is one, and what it is then."""

    some: Expr
    value: Expr


Value = Expr | Optional
Env = Mapping[Var, Value]


class Untranslatable(Exception):  # noqa: N818 - read as a word
    """What the protocol says here has no translation; the message is the reason."""


class World(Protocol):
    """What sorts become."""

    def sort(self, sort: KeySort) -> Expr:
        """The sort of z3."""

    def constant(self, sort: Sort, value: int) -> Expr:
        """A value that the specification writes."""

    def elements(self, sort: KeySort) -> Sequence[Expr] | None:
        """Every value, or none where there is no knowing how many."""

    def within(self, sort: KeySort, term: Expr) -> Expr:
        """The term is a value of the sort."""

    def less(self, left: Expr, right: Expr) -> Expr:
        """Strict order."""


class View(Protocol):
    """What the fields of one state hold."""

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """One cell; no key is optional."""


# Worlds


def _members(sort: EnumSort) -> int:
    return max(1, (len(sort.members) - 1).bit_length())


class Unbounded:
    """Any number of elements, numbers of any size."""

    def __init__(self) -> None:
        self._index: dict[str, Expr] = {}
        self._named: dict[str, dict[int, Expr]] = {}

    def sort(self, sort: KeySort) -> Expr:
        """The sort of z3."""
        match sort:
            case BoolSort():
                return z3.BoolSort()
            case EnumSort():
                return z3.BitVecSort(_members(sort))
            case NaturalSort():
                return z3.IntSort()
            case IndexSort(name=name):
                return self._index.setdefault(name, z3.DeclareSort(name))

    def constant(self, sort: Sort, value: int) -> Expr:
        """A value that the specification writes."""
        match sort:
            case BoolSort():
                return z3.BoolVal(bool(value))
            case EnumSort():
                return z3.BitVecVal(value, _members(sort))
            case IndexSort(name=name):
                named = self._named.setdefault(name, {})
                return named.setdefault(value, z3.Const(f"{name}:{value}", self.sort(sort)))
            case _:
                return z3.IntVal(value)

    def elements(self, sort: KeySort) -> Sequence[Expr] | None:
        """Truth values and members of an enumeration; of the others there may be any number."""
        match sort:
            case BoolSort():
                return [self.constant(sort, value) for value in range(2)]
            case EnumSort(members=members):
                return [self.constant(sort, value) for value in range(len(members))]
            case _:
                return None

    def within(self, sort: KeySort, term: Expr) -> Expr:
        """A natural is not negative; a member is one of those that there are."""
        match sort:
            case NaturalSort():
                return term >= 0
            case EnumSort(members=members) if len(members) != 1 << _members(sort):
                return z3.ULT(term, len(members))
            case _:
                return z3.BoolVal(True)

    def less(self, left: Expr, right: Expr) -> Expr:
        """Order of integers."""
        return left < right

    def distinct(self) -> list[Expr]:
        """The elements that the protocol names are different ones."""
        return [z3.Distinct(*named.values()) for named in self._named.values() if len(named) > 1]


class Finite:
    """The world of a scope, in bit-vectors wide enough for every number and every sum that the nodes can come to."""

    def __init__(self, scope: Scope, sorts: Sequence[Sort], nodes: Sequence[Node]) -> None:
        self.scope = scope
        self._bounds = {sort: scope.cardinality(sort) for sort in sorts}
        sums = max((sum(n.amount for n in walk(node) if isinstance(n, Plus)) for node in nodes), default=0)
        written = max((n.value for node in nodes for n in walk(node) if isinstance(n, Const)), default=0)
        largest = max([2, written, *self._bounds.values()]) + sums
        self.width = (largest + 1).bit_length()

    def sort(self, sort: KeySort) -> Expr:
        """Truth values are such, everything else a bit-vector of one width."""
        return z3.BoolSort() if isinstance(sort, BoolSort) else z3.BitVecSort(self.width)

    def constant(self, sort: Sort, value: int) -> Expr:
        """A value that the specification writes."""
        return z3.BoolVal(bool(value)) if isinstance(sort, BoolSort) else z3.BitVecVal(value, self.width)

    def elements(self, sort: KeySort) -> Sequence[Expr]:
        """Every value in the scope."""
        return [self.constant(sort, value) for value in range(self._bounds[sort])]

    def within(self, sort: KeySort, term: Expr) -> Expr:
        """The term does not pass the scope's bound."""
        return z3.BoolVal(True) if isinstance(sort, BoolSort) else z3.ULT(term, self._bounds[sort])

    def less(self, left: Expr, right: Expr) -> Expr:
        """Order of numbers without sign."""
        return z3.ULT(left, right)


# Expressions


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
                return go(arg) + amount
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
    from spec.lang.nodes import renamed

    free = {v: v for v in walk(node) if isinstance(v, Var)}
    return renamed(node, {**free, var: by})


# Views


class Functions:
    """A state of which nothing is known: every field is a function of its keys."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.used: dict[str, Field] = {}

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """The function's value."""
        self.used.setdefault(field.name, field)
        match field.sort:
            case MaybeSort(of=of):
                some = self._apply(f"{field.name}?", field, z3.BoolSort(), keys)
                return Optional(some, self._apply(field.name, field, self._world.sort(of), keys))
            case CountSort():
                raise AssertionError("a count is compared, never stored")
            case sort:
                return self._apply(field.name, field, self._world.sort(sort), keys)

    def _apply(self, name: str, field: Field, sort: Expr, keys: tuple[Expr, ...]) -> Expr:
        if not keys:
            return z3.Const(name, sort)
        return z3.Function(name, *(self._world.sort(key) for key in field.keys), sort)(*keys)

    def ranges(self, translator: Translator) -> list[Expr]:
        """Every field that was read holds values of its sort."""
        found = []
        for field in self.used.values():
            sort = field.sort.of if isinstance(field.sort, MaybeSort) else field.sort
            keys = tuple(translator.fresh(Var(key, "k")) for key in field.keys)
            value = self.read(field, keys)
            assert not isinstance(sort, CountSort)
            inside = self._world.within(sort, value.value if isinstance(value, Optional) else value)
            if not z3.is_true(inside):
                found.append(z3.ForAll(list(keys), inside) if keys else inside)
        return found


class Nothing:
    """The state from which the initial action makes the first ones: everything is 0."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """The value 0, or none."""
        match field.sort:
            case MaybeSort(of=of):
                return Optional(FALSE, self._world.constant(of, 0))
            case sort:
                return self._world.constant(sort, 0)


class After:
    """The state after a step whose guard holds and whose values fit."""

    def __init__(self, translator: Translator, before: View, action: Action, env: Env) -> None:
        self._translator = translator
        self._before = before
        self._env = env
        self._writes: dict[str, list[Write]] = {}
        self._known: dict[tuple[str, tuple[int, ...]], tuple[tuple[Expr, ...], Value]] = {}
        for write in action.writes:
            fixed = len(write.keys) - len(write.binders)
            if write.keys[fixed:] != write.binders:
                raise Untranslatable(f"{action.name} writes {write.field.name} under keys that are no plain binders")
            self._writes.setdefault(write.field.name, []).append(write)

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """What the last write to the cell left there, or what was there before."""
        if field.name not in self._writes:
            return self._before.read(field, keys)
        place = (field.name, tuple(key.get_id() for key in keys))
        if place not in self._known:
            # The keys are kept with the value: z3 gives an identifier to another term once a term is gone.
            self._known[place] = keys, self._read(field, keys)
        return self._known[place][1]

    def _read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        value: Value | None = None
        go = self._translator.value
        layers: list[tuple[Expr, Value]] = []
        for write in reversed(self._writes[field.name]):
            fixed = len(write.keys) - len(write.binders)
            hits = []
            for node, key in zip(write.keys[:fixed], keys, strict=False):
                written = go(node, self._before, None, self._env)
                if isinstance(written, Optional):
                    hits.append(written.some)
                    written = written.value
                hits.append(equal(written, key))
            hit = both(hits)
            if z3.is_false(hit):
                continue
            inner = {**self._env, **dict(zip(write.binders, keys[fixed:], strict=True))}
            layers.append((hit, go(write.value, self._before, None, inner)))
            if z3.is_true(hit):
                break
        for hit, written in reversed(layers):
            value = written if value is None and z3.is_true(hit) else choose(hit, written, self._old(value, field, keys))
        return self._old(value, field, keys)

    def _old(self, value: Value | None, field: Field, keys: tuple[Expr, ...]) -> Value:
        return self._before.read(field, keys) if value is None else value


# Connectives that keep formulas small

TRUE = z3.BoolVal(True)
FALSE = z3.BoolVal(False)


def negation(arg: Expr) -> Expr:
    """Not."""
    if z3.is_true(arg):
        return FALSE
    if z3.is_false(arg):
        return TRUE
    return arg.arg(0) if z3.is_not(arg) else z3.Not(arg)


def both(args: Sequence[Expr]) -> Expr:
    """All of them."""
    kept = [arg for arg in args if not z3.is_true(arg)]
    if any(z3.is_false(arg) for arg in kept):
        return FALSE
    return TRUE if not kept else kept[0] if len(kept) == 1 else z3.And(*kept)


def either(args: Sequence[Expr]) -> Expr:
    """Some of them."""
    kept = [arg for arg in args if not z3.is_false(arg)]
    if any(z3.is_true(arg) for arg in kept):
        return TRUE
    return FALSE if not kept else kept[0] if len(kept) == 1 else z3.Or(*kept)


def implication(left: Expr, right: Expr) -> Expr:
    """If the left, then the right."""
    return either([negation(left), right])


def equal(left: Value, right: Value) -> Expr:
    """The same value."""
    if isinstance(left, Optional):
        assert isinstance(right, Optional)
        same = implication(left.some, equal(left.value, right.value))
        return both([equal(left.some, right.some), same])
    if left.eq(right):
        return TRUE
    for one, other in ((left, right), (right, left)):
        if z3.is_true(one):
            return other
        if z3.is_false(one):
            return negation(other)
    if all(z3.is_bv_value(x) or z3.is_int_value(x) for x in (left, right)):
        return FALSE
    return left == right


def choose(cond: Expr, then: Value, other: Value) -> Value:
    """One of two values, by a condition."""
    if isinstance(then, Optional):
        assert isinstance(other, Optional)
        return Optional(choose(cond, then.some, other.some), choose(cond, then.value, other.value))
    if z3.is_true(cond):
        return then
    if z3.is_false(cond):
        return other
    return then if then.eq(other) else z3.If(cond, then, other)
