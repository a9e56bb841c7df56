"""Small random protocols over the whole language, drawn by Hypothesis."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from spec.lang import (
    Assumption,
    Bool,
    Eventuality,
    Fields,
    Index,
    Map,
    Map2,
    Maybe,
    Natural,
    Protocol,
    Relation,
    Scope,
    Step,
    Value,
    each,
    field,
    ghost,
    when,
)
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
    Write,
    sort_of,
)
from spec.lang.protocol import Action, Goal, Property, Recovery
from spec.lang.terms import key_sort

T = TypeVar("T")


class Engine(Index):
    """Interchangeable, never a value."""


class Request(Index):
    """Interchangeable, also a value and a second key."""


class Load(Natural):
    """Ordered."""


class Phase(enum.Enum):
    """Three members."""

    A = enum.auto()
    B = enum.auto()
    C = enum.auto()


class State(Fields):
    """One field of every shape."""

    flag: Bool = field("a truth value")
    phase: Value[Phase] = field("a member")
    load: Load = field("a number")
    last: Maybe[Load] = field("an optional number")
    chosen: Maybe[Request] = field("an optional element")
    holder: Request = field("an element")
    paused: Map[Engine, Bool] = field("a map")
    weights: Map[Engine, Maybe[Load]] = field("a map to optional numbers")
    owner: Map[Engine, Maybe[Request]] = field("a map to optional elements")
    stage: Map[Request, Value[Phase]] = field("a map to members")
    sent: Relation[Load, Phase] = field("a relation over ordered sorts")  # type: ignore[type-var]
    knows: Relation[Engine, Request] = field("a relation over two index sorts")
    made: Map2[Load, Request, Bool] = field("a relation with the index sort second")
    answer: Maybe[Bool] = field("an optional truth value")
    after: Map[Bool, Maybe[Value[Phase]]] = field("a map from truth values to optional members")
    seen: Map[Engine, Bool] = ghost("a ghost")


SORTS: tuple[KeySort, ...] = tuple(key_sort(kind) for kind in (Bool, Phase, Load, Engine, Request))
SCOPES = st.builds(
    lambda e, r, n, f: Scope("drawn", {"Engine": e, "Request": r, "Load": n}, "drawn", faults=f),
    st.sampled_from([2, 1, 2, 3]),
    st.sampled_from([2, 1, 2, 3]),
    st.sampled_from([1, 0, 2]),
    st.sampled_from([None, 0, 1]),
)


def base() -> Protocol:
    """The state and its first values; steps are drawn."""
    protocol = Protocol("drawn", State, "drawn")

    @protocol.initially
    def start(phase: Value[Phase], flag: Bool) -> Step:
        """Anything simple."""
        return when(flag | (phase == Phase.A)).then(
            flag=flag,
            phase=phase,
            load=0,
            last=None,
            chosen=None,
            holder=Request.number(0),
            paused=each(Engine, lambda e: False),
            weights=each(Engine, lambda e: 0),
            owner=each(Engine, lambda e: None),
            stage=each(Request, lambda r: phase),
            sent=each(Load, Phase, lambda v, p: False),
            knows=each(Engine, Request, lambda e, r: False),
            made=each(Load, Request, lambda v, r: False),
            answer=None,
            after=each(Bool, lambda b: None),
            seen=each(Engine, lambda e: False),
        )

    return protocol


@cache
def _places(number: int) -> st.SearchStrategy[int]:
    return st.integers(0, number - 1)


def one(draw: st.DrawFn, among: Sequence[T]) -> T:
    """One of some. A strategy for every expression would take most of the time that drawing takes, so there is none."""
    return among[draw(_places(len(among)))]


CONSTRUCTS = (
    *("Not", "And", "Or", "Eq", "Less", "Plus", "Ite", "Forall", "Exists", "Count", "Some", "OrElse"),
    *("optional key", "row", "whole map", "second write", "computed key", "empty"),
)
"""What a protocol may be fond of: each is drawn with a few of these, and says them where it can.

Left to chance alone, what needs a certain sort at a certain depth would hardly ever be said.
"""
FOND = 7
"""Of how many constructs each protocol is fond."""
Fondness = frozenset[str]


@st.composite
def protocols(draw: st.DrawFn) -> Protocol:
    """A protocol with a few steps, properties, a goal and a recovery."""
    protocol = base()
    fond = frozenset(draw(st.lists(st.sampled_from(CONSTRUCTS), min_size=FOND, max_size=FOND, unique=True)))
    real = [f for f in protocol.fields.values() if not f.ghost]
    for number in range(draw(st.integers(3, 5))):
        params = tuple(
            Var(sort, f"p{i}") for i, sort in enumerate(draw(st.lists(st.sampled_from(SORTS), min_size=1, max_size=2)))
        )
        guard = tuple(conditions(draw, real, params, fond=fond) for _ in range(draw(st.sampled_from([0, 0, 1]))))
        fields = draw(st.lists(st.sampled_from(list(protocol.fields.values())), min_size=1, max_size=3, unique=True))
        if "second write" in fond and fields[0].keys:
            fields.append(fields[0])
        writes = tuple(
            a_write(draw, f, real if not f.ghost else list(protocol.fields.values()), params, fond=fond) for f in fields
        )
        kind: Any = draw(st.sampled_from(["action", "action", "fault"]))
        name = f"step{number}"
        protocol.actions[name] = Action(name, kind, "drawn", "someone", "", params, guard, writes)
    everything = list(protocol.fields.values())

    def claim(*, after: bool = False) -> Node:
        return conditions(draw, everything, (), after=after, fond=fond)

    for number in range(draw(st.integers(1, 3))):
        stepwise = draw(st.booleans())
        node = Or((claim(after=stepwise), claim(after=stepwise)))
        protocol.properties[f"prop{number}"] = Property(f"prop{number}", "drawn", node, stepwise)
    protocol.goals["goal"] = Goal("goal", "drawn", claim())
    protocol.rest["rest"] = Goal("rest", "drawn", claim())
    protocol.recoveries["back"] = Recovery("back", "drawn", claim(), claim(), frozenset())
    return protocol


@st.composite
def lively_protocols(draw: st.DrawFn) -> Protocol:
    """A protocol with some assumptions and an eventuality as well."""
    protocol = draw(protocols())
    everything = list(protocol.fields.values())
    steps = [action for action in protocol.actions.values() if action.kind == "action"]
    for number, action in enumerate(steps):
        strength: Any = draw(st.sampled_from(["weak", "strong", "none"]))
        if strength == "none":
            continue
        params = tuple(param for param in action.params if draw(st.booleans()))
        where = conditions(draw, everything, params, 1) if draw(st.integers(0, 3)) == 0 else Const(BOOL, 1)
        assumption = Assumption(f"fair{number}", "drawn", strength, (action.name,), params, where)
        protocol.assumptions[assumption.name] = assumption
    params = tuple(Var(sort, "p") for sort in draw(st.lists(st.sampled_from(SORTS[3:]), max_size=1)))
    source = conditions(draw, everything, params) if draw(st.booleans()) else Const(BOOL, 1)
    # Most conditions that are drawn never change: a member that a field has, or has not, is more worth waiting for.
    plain = [f for f in everything if not f.keys and isinstance(f.sort, BoolSort | EnumSort)]
    members = [Eq(Read(f, (), None, False), value) for f in plain for value in constants(f.sort)]
    likely = draw(st.integers(0, 2))
    member = one(draw, members)
    target = (member, Not(member))[likely] if likely < 2 else conditions(draw, everything, params)
    protocol.eventualities["ends"] = Eventuality("ends", "drawn", params, source, target)
    return protocol


def a_write(
    draw: st.DrawFn, target: Field, fields: list[Field], params: tuple[Var, ...], fond: Fondness = frozenset()
) -> Write:
    """An update of a field: one cell, a row, or all of it."""
    cut = one(draw, [*range(len(target.keys) + 1), len(target.keys)])
    if "row" in fond and len(target.keys) == 2:
        cut = 1
    elif "whole map" in fond and target.keys:
        cut = 0
    binders = tuple(Var(sort, f"b{i}") for i, sort in enumerate(target.keys[cut:]))
    scope = (*params, *binders)
    keys = tuple(a_key(draw, sort, fields, params, fond) for sort in target.keys[:cut])
    return Write(target, binders, (*keys, *binders), values(draw, target.sort, fields, scope, sums=True, fond=fond))


def a_key(
    draw: st.DrawFn, sort: KeySort, fields: list[Field], scope: tuple[Var, ...], fond: Fondness = frozenset()
) -> Node:
    """A key: known, read, or optional."""
    if draw(st.integers(0, 1 if "optional key" in fond else 5)) == 0:
        return values(draw, MaybeSort(sort), fields, scope, depth=1, fond=fond)
    return values(draw, sort, fields, scope, depth=int("computed key" in fond), fond=fond)


def conditions(
    draw: st.DrawFn,
    fields: list[Field],
    scope: tuple[Var, ...],
    depth: int = 2,
    *,
    after: bool = False,
    fond: Fondness = frozenset(),
) -> Node:
    """A condition."""
    return values(draw, BOOL, fields, scope, depth, after=after, fond=fond)


def values(
    draw: st.DrawFn,
    sort: Sort,
    fields: list[Field],
    scope: tuple[Var, ...],
    depth: int = 2,
    *,
    after: bool = False,
    sums: bool = False,
    fond: Fondness = frozenset(),
) -> Node:
    """An expression of a sort. `sums` may pass the bound; only updates and comparisons may."""

    def sub(of: Sort, inner: tuple[Var, ...] = (), *, plus: bool = False) -> Node:
        return values(draw, of, fields, (*scope, *inner), depth - 1, after=after, sums=plus, fond=fond)

    def several() -> tuple[Node, ...]:
        if "empty" in fond and draw(st.booleans()):
            return ()
        return (sub(BOOL), sub(BOOL))

    def bound(name: str, sorts: tuple[KeySort, ...]) -> Var:
        return Var(one(draw, sorts), f"{name}{depth}{len(scope)}")

    def quantified(kind: type[Forall | Exists]) -> Node:
        var = bound("q", SORTS)
        return kind(var, sub(BOOL, (var,)))

    def count() -> Node:
        var = bound("c", SORTS[3:])
        return Count(var, sub(BOOL, (var,)))

    def number() -> Node:
        small: list[Node] = [Const(CountSort(), n) for n in range(4)]
        return one(draw, small) if draw(st.booleans()) else Plus(count(), draw(st.integers(0, 2)))

    def compared(kind: type[Eq | Less]) -> Node:
        if "Count" in fond or draw(st.integers(0, 3)) == 0:
            sides = [count(), number()]
            return kind(*(reversed(sides) if draw(st.booleans()) else sides))
        ordered, all_sorts = (
            [SORTS[2]],
            [*SORTS, SORTS[1], MaybeSort(SORTS[1]), MaybeSort(SORTS[2]), MaybeSort(SORTS[4])],
        )
        of = one(draw, ordered if kind is Less else all_sorts)
        return kind(sub(of, plus=True), sub(of, plus=True))

    def read() -> Node:
        chosen = one(draw, readable)
        keys = tuple(a_key(draw, k, fields, scope, fond) if depth > 0 else sub(k) for k in chosen.keys)
        optional = any(isinstance(sort_of(k), MaybeSort) for k in keys)
        default = sub(sort) if optional else None
        return Read(chosen, keys, default, after and draw(st.booleans()))

    options: dict[str, Callable[[], Node]] = {}
    if known := constants(sort):
        options["Const"] = lambda: one(draw, known)
    if mine := [v for v in scope if v.sort == sort]:
        options["Var"] = lambda: one(draw, mine)
    readable = [f for f in fields if f.sort == sort and (depth > 0 or not f.keys)]
    if readable:
        options["Read"] = read
    if depth > 0:
        if not isinstance(sort, CountSort):
            options["Ite"] = lambda: Ite(sub(BOOL), sub(sort, plus=sums), sub(sort, plus=sums))
        match sort:
            case BoolSort():
                options |= {
                    "Not": lambda: Not(sub(BOOL)),
                    "And": lambda: And(several()),
                    "Or": lambda: Or(several()),
                    "Forall": lambda: quantified(Forall),
                    "Exists": lambda: quantified(Exists),
                    "Eq": lambda: compared(Eq),
                    "Less": lambda: compared(Less),
                    "Count": lambda: compared(one(draw, [Eq, Less])),
                    "OrElse": lambda: OrElse(sub(MaybeSort(BOOL)), sub(BOOL)),
                }
            case NaturalSort():
                options["OrElse"] = lambda: OrElse(sub(MaybeSort(sort)), sub(sort, plus=sums))
                if sums:
                    options["Plus"] = lambda: Plus(sub(sort), draw(st.integers(1, 2)))
            case IndexSort() | EnumSort():
                options["OrElse"] = lambda: OrElse(sub(MaybeSort(sort)), sub(sort))
            case MaybeSort(of=of):
                options["Some"] = lambda: Some(sub(of, plus=sums))
    if not options:
        # An element of an index sort, where no variable or field gives one: the first there is.
        return Const(sort, 0)
    # The first are the simplest: what does not come out as it should is told of the simplest protocol.
    liked = [name for name in options if name in fond]
    likely = [name for name in ("Var", "Read", "Eq") if name in options]
    return options[one(draw, 2 * likely + list(options) + 3 * liked)]()


def constants(sort: Sort) -> list[Node]:
    """What can be written without knowing the scope."""
    match sort:
        case BoolSort():
            return [Const(sort, 0), Const(sort, 1)]
        case EnumSort(members=members):
            return [Const(sort, n) for n in range(len(members))]
        case NaturalSort():
            return [Const(sort, 0)]
        case MaybeSort():
            return [Const(sort, 0)]
        case CountSort() | IndexSort():
            return []


def anonymous(protocol: Protocol) -> Protocol:
    """The protocol without its named elements, so that its index sorts are interchangeable where it names none."""
    initial = protocol.initial
    assert initial is not None
    free = Var(key_sort(Request), "anyone")
    writes = tuple(
        replace(w, value=free) if isinstance(w.value, Const) and isinstance(w.value.sort, IndexSort) else w
        for w in initial.writes
    )
    protocol.initial = replace(initial, params=(*initial.params, free), writes=writes)
    return protocol
