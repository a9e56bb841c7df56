"""The expression tree every reader of a protocol walks: sorts, fifteen kinds of node, and writes.

Values are small integers in every reader: a Boolean is 0 or 1, a member of an enumeration its position, an element of
an index sort its number, a natural itself, and an optional value 0 for none and ``1 + v`` for some ``v``. What a node
means is defined by `model_check.evaluate` and nowhere else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class BoolSort:
    """Truth values."""

    name: str = "Bool"


@dataclass(frozen=True, slots=True)
class EnumSort:
    """A fixed, named set of members."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IndexSort:
    """Interchangeable elements; a scope says how many."""

    name: str


@dataclass(frozen=True, slots=True)
class NaturalSort:
    """Ordered numbers from 0; a scope says the largest."""

    name: str


@dataclass(frozen=True, slots=True)
class MaybeSort:
    """One more value than another sort: none."""

    of: BoolSort | EnumSort | IndexSort | NaturalSort

    @property
    def name(self) -> str:
        """How messages call the sort."""
        return f"Maybe[{self.of.name}]"


@dataclass(frozen=True, slots=True)
class CountSort:
    """How many elements satisfy a condition: compared, never stored."""

    name: str = "count"


Sort = BoolSort | EnumSort | IndexSort | NaturalSort | MaybeSort | CountSort
KeySort = BoolSort | EnumSort | IndexSort | NaturalSort
BOOL = BoolSort()


@dataclass(frozen=True, slots=True)
class Field:
    """One component of the state: a value, or a map over one or two sorts of keys."""

    name: str
    keys: tuple[KeySort, ...]
    sort: Sort
    ghost: bool
    doc: str


@dataclass(frozen=True, slots=True)
class Const:
    """A value written in the specification."""

    sort: Sort
    value: int


@dataclass(frozen=True, slots=True)
class Var:
    """A parameter of an action or a bound variable; names are unique within one action."""

    sort: KeySort
    name: str


@dataclass(frozen=True, slots=True)
class Read:
    """A field before the step (or after it, in the second state of a step property).

    Where a key is optional, `default` is the value that none reads.
    """

    field: Field
    keys: tuple[Node, ...]
    default: Node | None
    after: bool


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    arg: Node


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction; of nothing: true."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction; of nothing: false."""

    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Eq:
    """Equality within one sort."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Less:
    """Strict order on naturals and counts."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Plus:
    """A natural and a constant. The sum may pass the scope's bound: a step that would store it is cut, and counted."""

    arg: Node
    amount: int


@dataclass(frozen=True, slots=True)
class Ite:
    """One of two values, by a condition."""

    cond: Node
    then: Node
    other: Node


@dataclass(frozen=True, slots=True)
class Forall:
    """True for every element."""

    var: Var
    body: Node


@dataclass(frozen=True, slots=True)
class Exists:
    """True for some element."""

    var: Var
    body: Node


@dataclass(frozen=True, slots=True)
class Count:
    """For how many elements."""

    var: Var
    body: Node


@dataclass(frozen=True, slots=True)
class Some:
    """A value as an optional one."""

    arg: Node


@dataclass(frozen=True, slots=True)
class OrElse:
    """The value inside an optional one, or another value where there is none."""

    arg: Node
    default: Node


Node = Const | Var | Read | Not | And | Or | Eq | Less | Plus | Ite | Forall | Exists | Count | Some | OrElse


@dataclass(frozen=True, slots=True)
class Write:
    """For every value of the binders: ``field[keys] := value``, values taken before the step.

    A key may be optional: none writes nothing. Where two writes of one step meet in a cell, the later one stands.
    """

    field: Field
    binders: tuple[Var, ...]
    keys: tuple[Node, ...]
    value: Node


def sort_of(node: Node) -> Sort:
    """The sort of a node's value."""
    match node:
        case Const(sort=sort) | Var(sort=sort):
            return sort
        case Read(field=field):
            return field.sort
        case Not() | And() | Or() | Eq() | Less() | Forall() | Exists():
            return BOOL
        case Plus(arg=arg):
            return sort_of(arg)
        case Ite(then=then):
            return sort_of(then)
        case Count():
            return CountSort()
        case Some(arg=arg):
            inner = sort_of(arg)
            assert isinstance(inner, BoolSort | EnumSort | IndexSort | NaturalSort)
            return MaybeSort(inner)
        case OrElse(default=default):
            return sort_of(default)


def may_pass(value: Node) -> bool:
    """Whether a value may pass the bound of its sort, so that a step that would store it is cut."""
    match value:
        case Plus():
            return True
        case Ite(then=then, other=other):
            return may_pass(then) or may_pass(other)
        case Some(arg=arg):
            return may_pass(arg)
        case OrElse(arg=arg, default=default):
            return may_pass(arg) or may_pass(default)
        case _:
            return False


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node."""
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Node))


def walk(node: Node) -> Iterator[Node]:
    """A node and everything below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def renamed(node: Node, names: Mapping[Var, Var]) -> Node:
    """The node with every variable it binds called after its sort, and those bound outside called as `names` says.

    A bound variable gets the first of ``e``, ``e2``, ``e3`` ... that nothing around it has, so that the same text
    always gives the same tree, whatever was traced before it.
    """
    match node:
        case Var():
            return names[node]
        case Forall(var=var, body=body) | Exists(var=var, body=body) | Count(var=var, body=body):
            called = named_after(var, names.values())
            return type(node)(called, renamed(body, {**names, var: called}))
        case Const():
            return node
        case _:
            return _rebuilt(node, lambda part: renamed(part, names))


def grounded(node: Node, values: Mapping[Var, Const]) -> Node:
    """The node with constants in place of variables that are bound outside of it."""
    match node:
        case Var():
            return values.get(node, node)
        case Const():
            return node
        case _:
            return _rebuilt(node, lambda part: grounded(part, values))


def _rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with every node directly below it changed."""
    changes: dict[str, Any] = {}
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, Node):
            changes[part.name] = change(value)
        elif isinstance(value, tuple):
            changes[part.name] = tuple(change(item) for item in value)
    return replace(node, **changes)


def named_after(var: Var, taken: Collection[Var]) -> Var:
    """A variable of the same sort under the first free name of that sort."""
    letter, used = var.sort.name[0].lower(), {other.name for other in taken}
    names = (letter if n == 1 else f"{letter}{n}" for n in itertools.count(1))
    return Var(var.sort, next(name for name in names if name not in used))


def conjuncts(node: Node) -> tuple[Node, ...]:
    """The parts of a conjunction, nested ones flattened; any other node is its only part."""
    if isinstance(node, And):
        return tuple(part for arg in node.args for part in conjuncts(arg))
    return (node,)
