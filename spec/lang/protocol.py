"""Protocols: named actions, faults, claims, goals, rest states and assumptions over one state, traced when declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeVar, cast, get_type_hints

from spec.lang.liveness import Assumption, Eventuality, Fair, LeadsTo
from spec.lang.nodes import (
    BOOL,
    Const,
    Field,
    IndexSort,
    KeySort,
    MaybeSort,
    Node,
    Read,
    Sort,
    Var,
    Write,
    children,
    conjuncts,
    named_after,
    renamed,
    sort_of,
    walk,
)
from spec.lang.terms import (
    Bool,
    Each,
    Fields,
    Map,
    Map2,
    Misuse,
    Relation,
    Term,
    key_sort,
    lift,
    lift_key,
    term_of,
    value_sort,
)

Kind = Literal["action", "fault"]


class Step:
    """A guard and the updates that happen when it holds, all at once. Fields not named keep their values."""

    __slots__ = ("guard", "updates")

    def __init__(self, guard: tuple[Bool | bool, ...], updates: Mapping[str, object]) -> None:
        self.guard = guard
        self.updates = updates


class When:
    """A guard waiting for its updates."""

    __slots__ = ("guard",)

    def __init__(self, guard: tuple[Bool | bool, ...]) -> None:
        self.guard = guard

    def then(self, **updates: object) -> Step:
        """The fields that change, by name.

        A map's update is ``each(...)`` for every key, or a dictionary from keys to values; where the first key of a map
        with two stands alone, its value is ``each(...)`` over the second.
        """
        return Step(self.guard, updates)


def when(*guard: Bool | bool) -> When:
    """The step is possible where every condition holds."""
    return When(guard)


class CanReach:
    """From wherever one condition holds, another can still be reached."""

    __slots__ = ("source", "target")

    def __init__(self, source: Bool | bool, target: Bool | bool) -> None:
        self.source = source
        self.target = target


class From:
    """A condition waiting for what can be, or is always, reached from it."""

    __slots__ = ("source",)

    def __init__(self, source: Bool | bool) -> None:
        self.source = source

    def can_reach(self, target: Bool | bool) -> CanReach:
        """A run without faults leads to a state where the target holds."""
        return CanReach(self.source, target)

    def leads_to(self, target: Bool | bool) -> LeadsTo:
        """Every fair run comes to a state where the target holds, then or later."""
        return LeadsTo(self.source, target)


def wherever(source: Bool | bool) -> From:
    """Start of a recovery or an eventuality."""
    return From(source)


@dataclass(frozen=True)
class Action:
    """One kind of step. `by` acts; `on` names what it acts on: a lane, or a parameter that is one."""

    name: str
    kind: Kind
    doc: str
    by: str
    on: str
    params: tuple[Var, ...]
    guard: tuple[Node, ...]
    writes: tuple[Write, ...]

    @cached_property
    def written(self) -> frozenset[str]:
        """The names of the fields it may change."""
        return frozenset(write.field.name for write in self.writes)


@dataclass(frozen=True)
class Property:
    """What must hold in every reachable state or, if `stepwise`, across every step."""

    name: str
    doc: str
    node: Node
    stepwise: bool


@dataclass(frozen=True)
class Recovery:
    """From every reachable state of `source`, some run without faults and without `avoiding` reaches `target`."""

    name: str
    doc: str
    source: Node
    target: Node
    avoiding: frozenset[str]


@dataclass(frozen=True)
class Goal:
    """A state that must be reachable, so that properties about it are not vacuous."""

    name: str
    doc: str
    node: Node


S = TypeVar("S", bound=Fields)
Declared = TypeVar("Declared", bound=Callable[..., Any])


class Protocol:
    """A state machine. Its attributes are all that a reader needs; filled at import, then only read."""

    def __init__(self, name: str, state: type[Fields], doc: str) -> None:
        self.name = name
        self.doc = doc
        self.state = state
        self.fields = declared_fields(state, name)
        self.initial: Action | None = None
        self.actions: dict[str, Action] = {}
        self.properties: dict[str, Property] = {}
        self.recoveries: dict[str, Recovery] = {}
        self.assumptions: dict[str, Assumption] = {}
        self.eventualities: dict[str, Eventuality] = {}
        self.goals: dict[str, Goal] = {}
        self.rest: dict[str, Goal] = {}

    # Declarations

    def initially(self, fn: Declared) -> Declared:
        """The first states: a step from nothing, that sets every field. Its parameters are the free choices."""
        action = self._trace(fn, "action", by="", on="", initial=True)
        missing = [f.name for f in self.fields.values() if f.name not in action.written]
        if missing:
            raise Misuse(f"{self.name}: initial state {action.name}: does not set {', '.join(missing)}")
        self.initial = action
        return fn

    def action(self, *, by: str, on: str = "") -> Callable[[Declared], Declared]:
        """Declare a step."""
        return self._declare("action", by, on)

    def fault(self, *, by: str, on: str = "") -> Callable[[Declared], Declared]:
        """Declare a step that something breaking takes. Recovery never counts on it, and a scope may bound how many."""
        return self._declare("fault", by, on)

    def _declare(self, kind: Kind, by: str, on: str) -> Callable[[Declared], Declared]:
        def declare(fn: Declared) -> Declared:
            action = self._trace(fn, kind, by=by, on=on)
            self._new(self.actions, action.name, "action")
            self.actions[action.name] = action
            return fn

        return declare

    def property(self, fn: Declared) -> Declared:
        """Declare what holds in every reachable state: ``(s) -> Bool``."""
        node, name, doc = self._predicate(fn, "property", states=1)
        self._new(self.properties, name, "property")
        self.properties[name] = Property(name, doc, node, stepwise=False)
        return fn

    def step_property(self, fn: Declared) -> Declared:
        """Declare what holds across every step: ``(s, t) -> Bool``, the states before and after."""
        node, name, doc = self._predicate(fn, "step property", states=2)
        self._new(self.properties, name, "property")
        self.properties[name] = Property(name, doc, node, stepwise=True)
        return fn

    def recovery(self, *, avoiding: Iterable[str] = ()) -> Callable[[Declared], Declared]:
        """Declare what can still be reached: ``(s) -> wherever(...).can_reach(...)``, without faults."""

        def declare(fn: Declared) -> Declared:
            name, doc = fn.__name__, _doc(fn, self.name, "recovery")
            with _named(f"{self.name}: recovery {name}"):
                claim = fn(self.symbols(after=False))
                if not isinstance(claim, CanReach):
                    raise Misuse("must answer wherever(...).can_reach(...)")
                source, target = _condition(claim.source, ()), _condition(claim.target, ())
            for action in avoiding:
                if action not in self.actions:
                    raise Misuse(f"{self.name}: recovery {name}: no action {action!r} to avoid")
            self._new(self.recoveries, name, "recovery")
            self.recoveries[name] = Recovery(name, doc, source, target, frozenset(avoiding))
            return fn

        return declare

    def assumption(self, fn: Declared) -> Declared:
        """Declare what runs may be counted on for: ``(s, ...) -> weakly_fair(...)`` or ``strongly_fair(...)``."""
        name, doc = fn.__name__, _doc(fn, self.name, "assumption")
        with _named(f"{self.name}: assumption {name}"):
            params = _parameters(fn, states=1)
            fair = fn(self.symbols(after=False), *(term_of(p) for p in params))
            if not (isinstance(fair, Fair) and fair.actions):
                raise Misuse("must answer weakly_fair(...) or strongly_fair(...) of some actions")
            where = _condition(fair.where, params)
        assumption = Assumption(name, doc, fair.strength, fair.actions, params, where)
        self.check_assumption(assumption)
        self._new(self.assumptions, name, "assumption")
        self.assumptions[name] = assumption
        return fn

    def check_assumption(self, assumption: Assumption) -> None:
        """Readers ask again, for a variant may have put other actions in place.

        Raises:
            Misuse: it is of an action that is not there, that is a fault, or that has not its parameters.
        """
        with _named(f"{self.name}: assumption {assumption.name}"):
            for called in assumption.actions:
                action = self.actions.get(called)
                if action is None:
                    raise Misuse(f"no action {called!r} to be fair to")
                if action.kind == "fault":
                    raise Misuse(f"{called} is a fault: nobody counts on it, and it happens finitely often")
                for param in assumption.params:
                    if param not in action.params:
                        named = ", ".join(f"{var.name}: {var.sort.name}" for var in action.params)
                        raise Misuse(f"{called} takes no {param.name}: {param.sort.name}, but {named or 'nothing'}")

    def eventuality(self, fn: Declared) -> Declared:
        """Declare what happens in the end: ``(s, ...) -> wherever(...).leads_to(...)``, for all parameters."""
        name, doc = fn.__name__, _doc(fn, self.name, "eventuality")
        with _named(f"{self.name}: eventuality {name}"):
            params = _parameters(fn, states=1)
            claim = fn(self.symbols(after=False), *(term_of(p) for p in params))
            if not isinstance(claim, LeadsTo):
                raise Misuse("must answer wherever(...).leads_to(...)")
            source, target = _condition(claim.source, params), _condition(claim.target, params)
        self._new(self.eventualities, name, "eventuality")
        self.eventualities[name] = Eventuality(name, doc, params, source, target)
        return fn

    def goal(self, fn: Declared) -> Declared:
        """Declare a state that must be reachable: ``(s) -> Bool``."""
        node, name, doc = self._predicate(fn, "goal", states=1)
        self._new(self.goals, name, "goal")
        self.goals[name] = Goal(name, doc, node)
        return fn

    def may_rest(self, fn: Declared) -> Declared:
        """Declare states in which nothing need be possible: ``(s) -> Bool``. Any other state without a step is dead."""
        node, name, doc = self._predicate(fn, "rest state", states=1)
        self._new(self.rest, name, "rest state")
        self.rest[name] = Goal(name, doc, node)
        return fn

    # What readers ask

    @cached_property
    def sorts(self) -> tuple[KeySort, ...]:
        """Every sort of values, keys and variables, each once, in order of first use."""
        found: dict[KeySort, None] = {}

        def add(sort: Sort) -> None:
            match sort:
                case MaybeSort(of=of):
                    found.setdefault(of)
                case _ if sort.name != "count":
                    found.setdefault(cast(KeySort, sort))

        for field in self.fields.values():
            for key in field.keys:
                add(key)
            add(field.sort)
        for node in self.nodes():
            add(sort_of(node))
        return tuple(found)

    @cached_property
    def asymmetric(self) -> frozenset[str]:
        """The index sorts of which the protocol names a particular element: those are not interchangeable."""
        return frozenset(
            node.sort.name for node in self.nodes() if isinstance(node, Const) and isinstance(node.sort, IndexSort)
        )

    def nodes(self) -> Iterable[Node]:
        """Every node of its actions and claims, and the variables that they bind."""
        actions = [*self.actions.values(), *([self.initial] if self.initial else [])]
        for action in actions:
            yield from action.params
            for guard in action.guard:
                yield from walk(guard)
            for write in action.writes:
                yield from write.binders
                for part in (*write.keys, write.value):
                    yield from walk(part)
        claims: tuple[Property | Goal, ...] = (*self.properties.values(), *self.goals.values(), *self.rest.values())
        for claim in claims:
            yield from walk(claim.node)
        for recovery in self.recoveries.values():
            yield from walk(recovery.source)
            yield from walk(recovery.target)
        for assumption in self.assumptions.values():
            yield from walk(assumption.where)
        for eventuality in self.eventualities.values():
            yield from eventuality.params
            yield from walk(eventuality.source)
            yield from walk(eventuality.target)

    # Variants

    def variant(self, name: str, doc: str) -> Self:
        """A copy under another name, to be changed by `replace_action`, `add` or `remove` before anybody reads it."""
        other = type(self)(name, self.state, doc)
        other.initial = self.initial
        for table in ("actions", "properties", "recoveries", "assumptions", "eventualities", "goals", "rest"):
            setattr(other, table, dict(getattr(self, table)))
        return other

    def replace_action(self, fn: Callable[..., Step]) -> None:
        """Put another body in place of the action of the same name."""
        old = self.actions.get(fn.__name__)
        if old is None:
            raise Misuse(f"{self.name}: no action {fn.__name__!r} to replace")
        self.actions[old.name] = self._trace(fn, old.kind, by=old.by, on=old.on, doc=old.doc)

    def replace_initial(self, fn: Callable[..., Step]) -> None:
        """Put other first states in place."""
        self.initial = None
        self.initially(fn)

    def change_action(self, name: str, **parts: Any) -> None:
        """Put other parts (`guard`, `writes`) of an action in place."""
        self.actions[name] = replace(self.actions[name], **parts)

    def remove_action(self, name: str) -> None:
        """Make a step impossible. Nothing is assumed of it any longer."""
        del self.actions[name]
        for assumption in list(self.assumptions.values()):
            left = tuple(action for action in assumption.actions if action != name)
            if left:
                self.assumptions[assumption.name] = replace(assumption, actions=left)
            else:
                del self.assumptions[assumption.name]

    def remove_assumption(self, name: str) -> None:
        """No longer count on something."""
        del self.assumptions[name]

    # Tracing

    def symbols(self, *, after: bool) -> Any:
        """The state as an expression sees it: every attribute is a symbol, of the state before or after a step."""
        return _Symbols(self, after)

    def _new(self, table: Mapping[str, object], name: str, what: str) -> None:
        if name in table:
            raise Misuse(f"{self.name}: {what} {name} is declared twice")

    def _predicate(self, fn: Callable[..., Bool], what: str, states: int) -> tuple[Node, str, str]:
        doc = _doc(fn, self.name, what)
        with _named(f"{self.name}: {what} {fn.__name__}"):
            if len(inspect.signature(fn).parameters) != states:
                raise Misuse(f"takes {states} state(s)")
            node = lift(fn(*(self.symbols(after=bool(i)) for i in range(states))), BOOL)
            _check_closed(node, ())
        return renamed(node, {}), fn.__name__, doc

    def _trace(
        self, fn: Callable[..., Step], kind: Kind, *, by: str, on: str, initial: bool = False, doc: str | None = None
    ) -> Action:
        name = fn.__name__
        label = "initial state" if initial else kind
        with _named(f"{self.name}: {label} {name}"):
            params = _parameters(fn, states=0 if initial else 1)
            symbols = [] if initial else [self.symbols(after=False)]
            step = fn(*symbols, *(term_of(p) for p in params))
            if not isinstance(step, Step):
                raise Misuse("must answer when(...).then(...)")
            guard = tuple(part for g in step.guard for part in conjuncts(lift(g, BOOL)))
            writes = tuple(w for f, value in step.updates.items() for w in self._writes(f, value))
            self._check(guard, writes, params)
            own = {param: param for param in params}
            guard = tuple(renamed(part, own) for part in guard)
            writes = tuple(_renamed_write(write, own) for write in writes)
        return Action(name, kind, doc or _doc(fn, self.name, label), by, on, params, guard, writes)

    def _writes(self, name: str, value: object) -> Iterable[Write]:
        field = self.fields.get(name)
        if field is None:
            raise Misuse(f"the state has no field {name!r}; it has {', '.join(self.fields)}")
        if not field.keys:
            yield Write(field, (), (), lift(value, field.sort))
        elif isinstance(value, Each):
            yield self._whole(field, (), value)
        elif isinstance(value, Mapping):
            for keys, item in value.items():
                parts = keys if isinstance(keys, tuple) else (keys,)
                nodes = tuple(
                    lift_key(key, sort, field, optional=True) for key, sort in zip(parts, field.keys, strict=False)
                )
                if len(parts) > len(field.keys):
                    raise Misuse(f"{name} takes {len(field.keys)} key(s), not {len(parts)}")
                if isinstance(item, Each):
                    yield self._whole(field, nodes, item)
                elif len(parts) == len(field.keys):
                    yield Write(field, (), nodes, lift(item, field.sort))
                else:
                    raise Misuse(f"{name}: after {len(parts)} of {len(field.keys)} keys an each(...) is needed")
        else:
            raise Misuse(f"{name} is a map: give each(...) or a dictionary, not {value!r}")

    def _whole(self, field: Field, keys: tuple[Node, ...], value: Each) -> Write:
        rest = field.keys[len(keys) :]
        if tuple(var.sort for var in value.binders) != rest:
            found = ", ".join(var.sort.name for var in value.binders)
            raise Misuse(f"{field.name}: each over {', '.join(s.name for s in rest)} is needed, not over {found}")
        return Write(field, value.binders, (*keys, *value.binders), lift(value.value, field.sort))

    def _check(self, guard: tuple[Node, ...], writes: tuple[Write, ...], params: tuple[Var, ...]) -> None:
        for part in guard:
            _check_closed(part, params)
            _no_ghost(part, "the guard")
        for write in writes:
            bound = (*params, *write.binders)
            for part in (*write.keys, write.value):
                _check_closed(part, bound)
            if not write.field.ghost:
                for part in (*write.keys, write.value):
                    _no_ghost(part, f"the real field {write.field.name}")


class _Symbols:
    """The state as an action sees it: every attribute is a symbol."""

    def __init__(self, protocol: Protocol, after: bool) -> None:
        object.__setattr__(self, "_fields", protocol.fields)
        object.__setattr__(self, "_after", after)

    def __getattr__(self, name: str) -> object:
        fields: dict[str, Field] = object.__getattribute__(self, "_fields")
        after: bool = object.__getattribute__(self, "_after")
        field = fields.get(name)
        if field is None:
            raise Misuse(f"the state has no field {name!r}; it has {', '.join(fields)}")
        if not field.keys:
            return term_of(Read(field, (), None, after))
        return (Map if len(field.keys) == 1 else Map2)(field, after)

    def __setattr__(self, name: str, value: object) -> None:
        raise Misuse(f"the state is not assigned to: say when(...).then({name}=...)")


class _named:  # noqa: N801 - read as a word: with _named(...)
    """Put the name of what is being declared before the message of a misuse."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Misuse):
            raise Misuse(f"{self.what}: {error}") from None


def declared_fields(state: type[Fields], protocol: str) -> dict[str, Field]:
    """The fields of a state class, in order of declaration."""
    fields: dict[str, Field] = {}
    for name, annotation in get_type_hints(state).items():
        with _named(f"{protocol}: field {name}"):
            role = getattr(state, name, None)
            if not (isinstance(role, tuple) and len(role) == 2):
                raise Misuse("say what it means: field('...') or ghost('...')")
            kind, doc = role
            origin = getattr(annotation, "__origin__", None)
            args: tuple[object, ...] = getattr(annotation, "__args__", ())
            keys: tuple[KeySort, ...]
            if origin is Map:
                keys, value = (key_sort(args[0]),), value_sort(args[1])
            elif origin is Map2:
                keys, value = (key_sort(args[0]), key_sort(args[1])), value_sort(args[2])
            elif origin is Relation:
                keys, value = (key_sort(args[0]), key_sort(args[1])), BOOL
            else:
                keys, value = (), value_sort(annotation)
            fields[name] = Field(name, keys, value, kind == "ghost", doc)
    return fields


def _renamed_write(write: Write, names: Mapping[Var, Var]) -> Write:
    inner, binders = dict(names), []
    for var in write.binders:
        inner[var] = named_after(var, inner.values())
        binders.append(inner[var])
    keys = tuple(renamed(key, inner) for key in write.keys)
    return Write(write.field, tuple(binders), keys, renamed(write.value, inner))


def _doc(fn: Callable[..., object], protocol: str, what: str) -> str:
    doc = inspect.getdoc(fn)
    if not doc:
        raise Misuse(f"{protocol}: {what} {fn.__name__}: say in a docstring what it means")
    return " ".join(doc.split())


def _parameters(fn: Callable[..., object], states: int) -> tuple[Var, ...]:
    """What a function takes after the state."""
    hints, names = get_type_hints(fn), list(inspect.signature(fn).parameters)
    if len(names) < states:
        raise Misuse("takes the state as its first parameter")
    return tuple(Var(key_sort(hints[p]), p) if p in hints else _untyped(p) for p in names[states:])


def _condition(value: object, params: tuple[Var, ...]) -> Node:
    """A condition over the state and some parameters, variables under their names."""
    node = lift(value, BOOL)
    _check_closed(node, params)
    return renamed(node, {param: param for param in params})


def _untyped(name: str) -> Var:
    raise Misuse(f"parameter {name} has no sort: annotate it")


def _check_closed(node: Node, allowed: tuple[Var, ...]) -> None:
    """No variable of another quantifier or action leaks into the node."""
    match node:
        case Var():
            if node not in allowed:
                raise Misuse(f"variable {node.name} is used outside of where it is bound")
        case _:
            bound = getattr(node, "var", None)
            inner = (*allowed, bound) if isinstance(bound, Var) else allowed
            for part in _parts(node):
                _check_closed(part, inner)


def _parts(node: Node) -> Iterable[Node]:
    bound = getattr(node, "var", None)
    return (child for child in children(node) if child is not bound)


def _no_ghost(node: Node, where: str) -> None:
    for part in walk(node):
        if isinstance(part, Read) and part.field.ghost:
            raise Misuse(f"{where} reads the ghost field {part.field.name}, which no real component knows")


__all__ = [
    "Action",
    "CanReach",
    "Goal",
    "Property",
    "Protocol",
    "Recovery",
    "Step",
    "Term",
    "when",
    "wherever",
]
