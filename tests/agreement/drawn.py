"""Small random protocols over the whole language, drawn by Hypothesis."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Any

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
)
from spec.lang.protocol import Action, Goal, Property, Recovery
from spec.lang.terms import key_sort


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
    seen: Map[Engine, Bool] = ghost("a ghost")


SORTS: tuple[KeySort, ...] = tuple(key_sort(kind) for kind in (Bool, Phase, Load, Engine, Request))
SCOPES = st.builds(
    lambda e, r, n, f: Scope("drawn", {"Engine": e, "Request": r, "Load": n}, "drawn", faults=f),
    st.sampled_from([2, 1, 3]),
    st.sampled_from([2, 1, 3]),
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
            seen=each(Engine, lambda e: False),
        )

    return protocol


@st.composite
def protocols(draw: st.DrawFn) -> Protocol:
    """A protocol with a few steps, properties, a goal and a recovery."""
    protocol = base()
    real = [f for f in protocol.fields.values() if not f.ghost]
    for number in range(draw(st.integers(3, 6))):
        params = tuple(
            Var(sort, f"p{i}") for i, sort in enumerate(draw(st.lists(st.sampled_from(SORTS), min_size=1, max_size=2)))
        )
        guard = tuple(draw(conditions(real, params)) for _ in range(draw(st.integers(0, 1))))
        fields = draw(st.lists(st.sampled_from(list(protocol.fields.values())), min_size=1, max_size=3, unique=True))
        writes = tuple(
            draw(a_write(f, real if not f.ghost else list(protocol.fields.values()), params)) for f in fields
        )
        kind: Any = draw(st.sampled_from(["action", "action", "fault"]))
        name = f"step{number}"
        protocol.actions[name] = Action(name, kind, "drawn", "someone", "", params, guard, writes)
    everything = list(protocol.fields.values())
    for number in range(draw(st.integers(0, 2))):
        stepwise = draw(st.booleans())
        node = Or((draw(conditions(everything, (), after=stepwise)), draw(conditions(everything, (), after=stepwise))))
        protocol.properties[f"prop{number}"] = Property(f"prop{number}", "drawn", node, stepwise)
    protocol.goals["goal"] = Goal("goal", "drawn", draw(conditions(everything, ())))
    protocol.rest["rest"] = Goal("rest", "drawn", draw(conditions(everything, ())))
    protocol.recoveries["back"] = Recovery(
        "back", "drawn", draw(conditions(everything, ())), draw(conditions(everything, ())), frozenset()
    )
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
        where = draw(conditions(everything, params, 1)) if draw(st.integers(0, 3)) == 0 else Const(BOOL, 1)
        assumption = Assumption(f"fair{number}", "drawn", strength, (action.name,), params, where)
        protocol.assumptions[assumption.name] = assumption
    params = tuple(Var(sort, "p") for sort in draw(st.lists(st.sampled_from(SORTS[3:]), max_size=1)))
    source = draw(st.one_of(st.just(Const(BOOL, 1)), conditions(everything, params)))
    # Most conditions that are drawn never change: a member that a field has, or has not, is more worth waiting for.
    plain = [f for f in everything if not f.keys and isinstance(f.sort, BoolSort | EnumSort)]
    members = [Eq(Read(f, (), None, False), value) for f in plain for value in constants(f.sort)]
    target = draw(
        st.one_of(st.sampled_from(members), st.sampled_from(members).map(Not), conditions(everything, params))
    )
    protocol.eventualities["ends"] = Eventuality("ends", "drawn", params, source, target)
    return protocol


@st.composite
def a_write(draw: st.DrawFn, target: Field, fields: list[Field], params: tuple[Var, ...]) -> Write:
    """An update of a field: one cell, a row, or all of it."""
    cut = draw(st.integers(0, len(target.keys)))
    binders = tuple(Var(sort, f"b{i}") for i, sort in enumerate(target.keys[cut:]))
    scope = (*params, *binders)
    keys = tuple(draw(a_key(sort, fields, params)) for sort in target.keys[:cut])
    return Write(target, binders, (*keys, *binders), draw(values(target.sort, fields, scope, sums=True)))


@st.composite
def a_key(draw: st.DrawFn, sort: KeySort, fields: list[Field], scope: tuple[Var, ...]) -> Node:
    """A key: known, read, or optional."""
    if draw(st.integers(0, 3)) == 0:
        return draw(values(MaybeSort(sort), fields, scope, depth=1))
    return draw(values(sort, fields, scope, depth=1))


def conditions(
    fields: list[Field], scope: tuple[Var, ...], depth: int = 2, *, after: bool = False
) -> st.SearchStrategy[Node]:
    """A condition."""
    return values(BOOL, fields, scope, depth, after=after)


@st.composite
def values(
    draw: st.DrawFn,
    sort: Sort,
    fields: list[Field],
    scope: tuple[Var, ...],
    depth: int = 2,
    *,
    after: bool = False,
    sums: bool = False,
) -> Node:
    """An expression of a sort. `sums` may pass the bound; only updates and comparisons may."""

    def sub(of: Sort, inner: tuple[Var, ...] = (), *, plus: bool = False) -> Node:
        return draw(values(of, fields, (*scope, *inner), depth - 1, after=after, sums=plus))

    options: list[Callable[[], Node]] = []
    if known := constants(sort):
        options.append(lambda: draw(st.sampled_from(known)))
    if mine := [v for v in scope if v.sort == sort]:
        options += 2 * [lambda: draw(st.sampled_from(mine))]
    readable = [f for f in fields if f.sort == sort and (depth > 0 or not f.keys)]
    if readable:

        def read() -> Node:
            chosen = draw(st.sampled_from(readable))
            keys = tuple(draw(a_key(k, fields, scope)) if depth > 0 else sub(k) for k in chosen.keys)
            optional = any(isinstance(_sort(k), MaybeSort) for k in keys)
            default = sub(sort) if optional else None
            return Read(chosen, keys, default, after and draw(st.booleans()))

        options += 3 * [read]
    if depth > 0:
        if not isinstance(sort, CountSort):
            options.append(lambda: Ite(sub(BOOL), sub(sort, plus=sums), sub(sort, plus=sums)))
        match sort:
            case BoolSort():

                def quantified() -> Node:
                    over = draw(st.sampled_from(SORTS))
                    var = Var(over, f"q{depth}{len(scope)}")
                    return draw(st.sampled_from([Forall, Exists]))(var, sub(BOOL, (var,)))

                def equal() -> Node:
                    of = draw(st.sampled_from([*SORTS, MaybeSort(SORTS[2]), MaybeSort(SORTS[4])]))
                    return Eq(sub(of, plus=True), sub(of, plus=True))

                def less() -> Node:
                    return Less(sub(SORTS[2], plus=True), sub(SORTS[2], plus=True))

                def counted() -> Node:
                    var = Var(draw(st.sampled_from(SORTS[3:])), f"c{depth}{len(scope)}")
                    return Less(Count(var, sub(BOOL, (var,))), Const(CountSort(), draw(st.integers(0, 3))))

                options += [
                    lambda: Not(sub(BOOL)),
                    lambda: And((sub(BOOL), sub(BOOL))),
                    lambda: Or((sub(BOOL), sub(BOOL))),
                    quantified,
                    equal,
                    less,
                    counted,
                ]
            case NaturalSort():
                options.append(lambda: OrElse(sub(MaybeSort(sort)), sub(sort, plus=sums)))
                if sums:
                    options.append(lambda: Plus(sub(sort), 1))
            case IndexSort():
                options.append(lambda: OrElse(sub(MaybeSort(sort)), sub(sort)))
            case MaybeSort(of=of):
                options += 2 * [lambda: Some(sub(of, plus=sums))]
    if not options:
        # An element of an index sort, where no variable or field gives one: the first there is.
        return Const(sort, 0)
    return draw(st.sampled_from(options))()


def _sort(node: Node) -> Sort:
    from spec.lang.nodes import sort_of

    return sort_of(node)


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
        case _:
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
