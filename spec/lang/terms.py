"""What a specification is written with: typed symbols that build the tree of `spec.lang.nodes`.

An action is called once with symbols in place of values. Python's own ``and``, ``or``, ``not`` and ``if`` would ask a
symbol for a truth value that it does not have yet, so they raise `Misuse`; the specification uses ``&``, ``|``, ``~``
and `ite`.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, cast, overload

from spec.lang.nodes import (
    BOOL,
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
    sort_of,
)


class Misuse(TypeError):  # noqa: N818 - it is what it says, and read as "Misuse: action load: ..."
    """A specification says something that the language does not mean; the message is one line."""


class Term:
    """A symbol: one node of the tree."""

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node

    @property
    def sort(self) -> Sort:
        """The sort of the symbol's value."""
        return sort_of(self.node)

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise Misuse("a symbol has no truth value: use &, |, ~ and ite, not and, or, not, if")

    def __iter__(self) -> Iterator[Any]:
        raise Misuse("a symbol cannot be iterated: use forall, exists, count or each")


class Bool(Term):
    """A truth value."""

    __slots__ = ()

    def __and__(self, other: Bool | bool) -> Bool:
        return Bool(And((self.node, lift(other, BOOL))))

    def __or__(self, other: Bool | bool) -> Bool:
        return Bool(Or((self.node, lift(other, BOOL))))

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Bool:
        return Bool(Not(self.node))

    def implies(self, other: Bool | bool) -> Bool:
        """False only where this holds and the other does not."""
        return Bool(Or((Not(self.node), lift(other, BOOL))))

    def __eq__(self, other: Bool | bool) -> Bool:  # type: ignore[override] # builds a node
        return Bool(Eq(self.node, lift(other, BOOL)))

    def __ne__(self, other: Bool | bool) -> Bool:  # type: ignore[override] # builds a node
        return ~(self == other)

    __hash__ = Term.__hash__


E = TypeVar("E", bound=enum.Enum)


class Value(Term, Generic[E]):
    """A member of an enumeration, declared with Python's own `enum.Enum`."""

    __slots__ = ()

    def __eq__(self, other: E | Value[E]) -> Bool:  # type: ignore[override] # builds a node
        return Bool(Eq(self.node, lift(other, self.sort)))

    def __ne__(self, other: E | Value[E]) -> Bool:  # type: ignore[override] # builds a node
        return ~(self == other)

    __hash__ = Term.__hash__

    def is_in(self, *members: E) -> Bool:
        """The value is one of the members."""
        return any_of(*(self == member for member in members))


class Index(Term):
    """An element of a sort of interchangeable things; subclass it to declare a sort."""

    __slots__ = ()

    def __eq__(self, other: object) -> Bool:  # type: ignore[override] # builds a node
        return Bool(Eq(self.node, lift(other, self.sort)))

    def __ne__(self, other: object) -> Bool:  # type: ignore[override] # builds a node
        return ~(self == other)

    __hash__ = Term.__hash__

    @classmethod
    def number(cls: type[IndexT], value: int) -> IndexT:
        """One particular element. A protocol that names one is no longer symmetric in this sort."""
        return cls(Const(key_sort(cls), value))


IndexT = TypeVar("IndexT", bound=Index)


class Natural(Term):
    """A number from 0 up; subclass it to declare a sort. The bound belongs to the scope, never to the specification."""

    __slots__ = ()

    def __eq__(self, other: object) -> Bool:  # type: ignore[override] # builds a node
        return Bool(Eq(self.node, lift(other, self.sort)))

    def __ne__(self, other: object) -> Bool:  # type: ignore[override] # builds a node
        return ~(self == other)

    __hash__ = Term.__hash__

    def __lt__(self, other: Natural | int) -> Bool:
        return Bool(Less(self.node, lift(other, self.sort)))

    def __gt__(self, other: Natural | int) -> Bool:
        return Bool(Less(lift(other, self.sort), self.node))

    def __le__(self, other: Natural | int) -> Bool:
        return ~(self > other)

    def __ge__(self, other: Natural | int) -> Bool:
        return ~(self < other)

    def __add__(self: NaturalT, amount: int) -> NaturalT:
        if type(amount) is not int or amount < 0:
            raise Misuse(f"only a constant from 0 up can be added to a {self.sort.name}, not {amount!r}")
        return type(self)(Plus(self.node, amount))


NaturalT = TypeVar("NaturalT", bound=Natural)


class Number(Natural):
    """The result of `count`."""

    __slots__ = ()


K = TypeVar("K")
L = TypeVar("L")
V = TypeVar("V")


class Maybe(Term, Generic[V]):
    """A value or none. None is written as Python's ``None``."""

    __slots__ = ()

    def __eq__(self, other: V | Maybe[V]) -> Bool:  # type: ignore[override] # builds a node
        return Bool(Eq(self.node, lift(other, self.sort)))

    def __ne__(self, other: V | Maybe[V]) -> Bool:  # type: ignore[override] # builds a node
        return ~(self == other)

    __hash__ = Term.__hash__

    @property
    def is_none(self) -> Bool:
        """There is no value."""
        return Bool(Eq(self.node, Const(self.sort, 0)))

    def or_else(self, default: V | int) -> V:
        """The value, or another one where there is none."""
        sort = self.sort
        assert isinstance(sort, MaybeSort)
        return cast(V, term_of(OrElse(self.node, lift(default, sort.of))))


class Map(Generic[K, V]):
    """A field with one key."""

    __slots__ = ("_after", "_field")

    def __init__(self, field: Field, after: bool) -> None:
        self._field = field
        self._after = after

    def __getitem__(self, key: K) -> V:
        return cast(V, _read(self._field, (key,), None, self._after))

    def get(self, key: Maybe[K], default: V | bool | enum.Enum | int | None) -> V:
        """The value at an optional key, or the default where there is none: ``dict.get``."""
        return cast(V, _read(self._field, (key,), default, self._after, optional=True))

    def __iter__(self) -> Iterator[V]:
        raise Misuse(f"{self._field.name} cannot be iterated: use forall, exists, count or each")


class Map2(Generic[K, L, V]):
    """A field with two keys."""

    __slots__ = ("_after", "_field")

    def __init__(self, field: Field, after: bool) -> None:
        self._field = field
        self._after = after

    def __getitem__(self, keys: tuple[K, L]) -> V:
        return cast(V, _read(self._field, _as_tuple(keys), None, self._after))

    def get(self, keys: tuple[K | Maybe[K], L | Maybe[L]], default: V | bool | enum.Enum | int | None) -> V:
        """The value at keys that may be none, or the default where one is."""
        return cast(V, _read(self._field, _as_tuple(keys), default, self._after, optional=True))

    def __iter__(self) -> Iterator[V]:
        raise Misuse(f"{self._field.name} cannot be iterated: use forall, exists, count or each")


class Relation(Map2[K, L, Bool]):
    """Which pairs of two sorts belong together."""

    __slots__ = ()


def _as_tuple(keys: object) -> tuple[object, ...]:
    return keys if isinstance(keys, tuple) else (keys,)


def _read(field: Field, keys: Sequence[object], default: object, after: bool, *, optional: bool = False) -> Term:
    if len(keys) != len(field.keys):
        raise Misuse(f"{field.name} takes {len(field.keys)} key(s), not {len(keys)}")
    nodes = []
    for key, sort in zip(keys, field.keys, strict=True):
        nodes.append(lift_key(key, sort, field, optional=optional))
    fallback = lift(default, field.sort) if optional else None
    return term_of(Read(field, tuple(nodes), fallback, after))


def lift_key(key: object, sort: KeySort, field: Field, *, optional: bool) -> Node:
    """A key of a field as a node; an optional key only where that is meant."""
    if isinstance(key, Maybe) and key.sort == MaybeSort(sort):
        if not optional:
            raise Misuse(f"{field.name}[...] with a key that may be none: use {field.name}.get(key, default)")
        return key.node
    node = lift(key, sort)
    if any(isinstance(part, Plus) for part in _arithmetic(node)):
        raise Misuse(f"{field.name}[...] with a sum as key: the sum may pass the scope's bound")
    return node


def _arithmetic(node: Node) -> Iterator[Node]:
    yield node
    if isinstance(node, Ite):
        yield from _arithmetic(node.then)
        yield from _arithmetic(node.other)
    elif isinstance(node, OrElse):
        yield from _arithmetic(node.default)


class Fields:
    """The state of a protocol: one annotation per field. `field` and `ghost` say what each one means."""


def field(doc: str) -> Any:
    """A field that a real component holds."""
    return ("real", doc)


def ghost(doc: str) -> Any:
    """A field that no real component holds: written by actions, read by properties and other ghosts only."""
    return ("ghost", doc)


_TERMS: dict[KeySort, type[Term]] = {}
"""Which class stands for a sort: one entry per declared sort, so that a node can be handed back as its typed symbol."""


def key_sort(annotation: object) -> KeySort:
    """The sort that a class stands for."""
    if annotation is Bool:
        return BOOL
    sort: KeySort
    if isinstance(annotation, type):
        if issubclass(annotation, enum.Enum):
            sort = EnumSort(annotation.__name__, tuple(annotation.__members__))
            _TERMS.setdefault(sort, Value)
            return sort
        if issubclass(annotation, Index) and annotation is not Index:
            sort = IndexSort(annotation.__name__)
            _TERMS.setdefault(sort, annotation)
            return sort
        if issubclass(annotation, Natural) and annotation not in (Natural, Number):
            sort = NaturalSort(annotation.__name__)
            _TERMS.setdefault(sort, annotation)
            return sort
    if getattr(annotation, "__origin__", None) is Value:
        return key_sort(cast(Any, annotation).__args__[0])
    raise Misuse(f"{annotation!r} is not a sort: use Bool, an Enum, or a subclass of Index or Natural")


def value_sort(annotation: object) -> Sort:
    """The sort of a field's value."""
    if getattr(annotation, "__origin__", None) is Maybe:
        return MaybeSort(key_sort(cast(Any, annotation).__args__[0]))
    return key_sort(annotation)


def term_of(node: Node) -> Term:
    """A node as the symbol of its sort."""
    match sort_of(node):
        case BoolSort():
            return Bool(node)
        case EnumSort():
            return Value(node)
        case MaybeSort():
            return Maybe(node)
        case CountSort():
            return Number(node)
        case IndexSort() | NaturalSort() as sort:
            return _TERMS[sort](node)


def lift(value: object, sort: Sort) -> Node:
    """A symbol or a Python value as a node of the sort.

    Raises:
        Misuse: the value is of another sort.
    """
    if isinstance(value, Term):
        found = value.sort
        if found == sort:
            return value.node
        if isinstance(sort, MaybeSort) and found == sort.of:
            return Some(value.node)
        raise Misuse(f"{sort.name} is needed here, not {found.name}")
    if isinstance(sort, MaybeSort):
        return Const(sort, 0) if value is None else Some(lift(value, sort.of))
    if isinstance(sort, BoolSort) and isinstance(value, bool):
        return Const(BOOL, int(value))
    if isinstance(sort, EnumSort) and isinstance(value, enum.Enum) and key_sort(type(value)) == sort:
        return Const(sort, sort.members.index(value.name))
    if isinstance(sort, NaturalSort | CountSort) and type(value) is int and value >= 0:
        return Const(sort, value)
    raise Misuse(f"{sort.name} is needed here, not {value!r}")


def any_of(*parts: Bool | bool) -> Bool:
    """At least one part holds."""
    return Bool(Or(tuple(lift(part, BOOL) for part in parts)))


def all_of(*parts: Bool | bool) -> Bool:
    """Every part holds."""
    return Bool(And(tuple(lift(part, BOOL) for part in parts)))


@overload
def ite(cond: Bool, then: Maybe[V], other: Maybe[V] | V | None) -> Maybe[V]: ...
@overload
def ite(cond: Bool, then: Bool, other: Bool | bool) -> Bool: ...
@overload
def ite(cond: Bool, then: Value[E], other: Value[E] | E) -> Value[E]: ...
@overload
def ite(cond: Bool, then: E, other: E | Value[E]) -> Value[E]: ...
@overload
def ite(cond: Bool, then: NaturalT, other: NaturalT | int) -> NaturalT: ...
@overload
def ite(cond: Bool, then: IndexT, other: IndexT) -> IndexT: ...
@overload
def ite(cond: Bool, then: bool, other: Bool | bool) -> Bool: ...
def ite(cond: Bool, then: object, other: object) -> object:
    """The first value where the condition holds, else the second."""
    if isinstance(then, Term):
        sort = then.sort
    elif isinstance(other, Term):
        sort = other.sort
    elif isinstance(then, enum.Enum):
        sort = key_sort(type(then))
    elif isinstance(then, bool):
        sort = BOOL
    else:
        raise Misuse("ite needs at least one symbol, member or truth value to know its sort")
    return term_of(Ite(lift(cond, BOOL), lift(then, sort), lift(other, sort)))


_fresh = itertools.count()


def fresh(sort: KeySort, prefix: str) -> Var:
    """A variable that no other has the name of."""
    return Var(sort, f"{prefix}{next(_fresh)}")


T = TypeVar("T", bound=Term)


def _bound(kind: type[T] | type[E], body: Callable[[Any], Bool | bool]) -> tuple[Var, Node]:
    sort = key_sort(kind)
    var = fresh(sort, sort.name[0].lower())
    return var, lift(body(term_of(var)), BOOL)


@overload
def forall(kind: type[T], body: Callable[[T], Bool | bool]) -> Bool: ...
@overload
def forall(kind: type[E], body: Callable[[Value[E]], Bool | bool]) -> Bool: ...
def forall(kind: Any, body: Any) -> Bool:
    """The body holds for every element of the sort."""
    return Bool(Forall(*_bound(kind, body)))


@overload
def exists(kind: type[T], body: Callable[[T], Bool | bool]) -> Bool: ...
@overload
def exists(kind: type[E], body: Callable[[Value[E]], Bool | bool]) -> Bool: ...
def exists(kind: Any, body: Any) -> Bool:
    """The body holds for some element of the sort."""
    return Bool(Exists(*_bound(kind, body)))


@overload
def count(kind: type[T], body: Callable[[T], Bool | bool]) -> Number: ...
@overload
def count(kind: type[E], body: Callable[[Value[E]], Bool | bool]) -> Number: ...
def count(kind: Any, body: Any) -> Number:
    """For how many elements of the sort the body holds."""
    return Number(Count(*_bound(kind, body)))


class Each:
    """A value for every key, built by `each`."""

    __slots__ = ("binders", "value")

    def __init__(self, binders: tuple[Var, ...], value: object) -> None:
        self.binders = binders
        self.value = value


@overload
def each(kind: type[T], body: Callable[[T], object], /) -> Each: ...
@overload
def each(kind: type[T], other: type[L], body: Callable[[T, L], object], /) -> Each: ...
def each(*args: Any) -> Each:
    """A whole map, given by the value at each key."""
    *kinds, body = args
    binders = tuple(fresh(key_sort(kind), key_sort(kind).name[0].lower()) for kind in kinds)
    return Each(binders, body(*(term_of(var) for var in binders)))
