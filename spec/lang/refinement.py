"""Refinements: every step of a detailed protocol is a step of an abstract one, or changes nothing that it knows.

A refinement gives every field of the abstract state as an expression over the detailed one. That the detailed protocol
refines the abstract one is then an ordinary step property of it, and an ordinary property of its first states: the
abstract guards and updates, read through these expressions, with the abstract parameters chosen freely. Any reader of
protocols can judge it. Sorts of the same name are the same sort.

For a proof that needs no scope, a refinement also names the abstract steps that a step of each detailed action may be,
with their parameters as expressions over the detailed state and the action's own. What is then owed for each action has
no parameter left to choose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_type_hints

from spec.lang.nodes import (
    And,
    Count,
    Eq,
    Exists,
    Field,
    Forall,
    Ite,
    MaybeSort,
    Node,
    Not,
    Or,
    Read,
    Some,
    Var,
    Write,
    sort_of,
    walk,
)
from spec.lang.protocol import Action, Property, Protocol
from spec.lang.terms import Bool, Fields, Misuse, fresh, key_sort, lift, term_of

REFINES = "every_step_is_one_of_the_ideal"
"""The step property of a detailed protocol that refines another."""
BEGINS = "it_begins_as_the_ideal"
"""The property of its first states."""

Image = Callable[..., object]


@dataclass(frozen=True)
class Taken:
    """A step of the ideal: one of its actions, and what each of its parameters stands for."""

    action: str
    values: Mapping[str, object]


def takes(action: str, **values: object) -> Taken:
    """The step of the ideal by an action, with an expression over the detailed state for each of its parameters."""
    return Taken(action, values)


Named = Callable[..., Taken | tuple[Taken, ...]]


class Refinement:
    """A detailed protocol, an abstract one, and every abstract field as seen in the detailed state.

    `where` says in which detailed states it is meant; none: in all. A detailed action for which no abstract step is
    named changes nothing that the ideal knows.
    """

    def __init__(
        self, detailed: Protocol, abstract: Protocol, doc: str, where: Callable[[Any], Bool] | None = None
    ) -> None:
        self.name = f"{detailed.name} refines {abstract.name}"
        self.doc = " ".join(doc.split())
        self.detailed = detailed
        self.abstract = abstract
        self.where = where
        self.images: dict[str, Image] = {}
        self.named: dict[str, Named] = {}
        self._began: Named | None = None

    def field(self, fn: Image) -> Image:
        """Declare the abstract field of this name: ``(s, *keys) -> value``, with the keys' sorts annotated."""
        name = fn.__name__
        known = self.abstract.fields.get(name)
        if known is None:
            raise Misuse(f"{self.name}: the ideal has no field {name!r}; it has {', '.join(self.abstract.fields)}")
        hints = get_type_hints(fn)
        keys = [key_sort(hint) for key, hint in list(hints.items())[1:] if key != "return"]
        if tuple(keys) != known.keys:
            wanted, found = (", ".join(sort.name for sort in sorts) or "no key" for sorts in (known.keys, keys))
            raise Misuse(f"{self.name}: {name} is over {wanted}, not over {found}")
        self.images[name] = fn
        return fn

    def step(self, fn: Named) -> Named:
        """Name the ideal's steps that the detailed action of this name may be: ``(s, *params) -> takes(...)``, or more.

        What the function takes after the state are parameters of the action, by name.
        """
        name = fn.__name__
        known = self.detailed.actions.get(name)
        if known is None:
            raise Misuse(f"{self.name}: {self.detailed.name} has no action {name!r}")
        if self._called(fn, known) is None:
            raise Misuse(f"{self.name}: {name} takes {', '.join(p.name for p in known.params) or 'no parameter'}")
        self.named[name] = fn
        return fn

    def beginning(self, fn: Named) -> Named:
        """Name the first state of the ideal that a detailed one looks like: ``(s) -> takes(...)``."""
        self._began = fn
        return fn

    # What readers judge

    def refines(self, detailed: Protocol | None = None) -> Property:
        """The claim that every step is one of the ideal's."""
        claimed = _bare(detailed or self.detailed)
        self._claim_refines(claimed)
        return claimed.properties[REFINES]

    def begins(self, detailed: Protocol | None = None) -> Property:
        """The claim about first states."""
        return self.first(detailed).properties[BEGINS]

    def owed(self, action: Action) -> Node:
        """A step by this action is one of those that are named for it, or changes nothing that the ideal knows.

        The action's parameters are free in it. An action of another protocol than the detailed one, which does not have
        the parameters, has no named step.
        """
        s, t = (self.detailed.symbols(after=after) for after in (False, True))
        fn = self.named.get(action.name)
        called = None if fn is None else self._called(fn, action)
        taken = () if fn is None or called is None else fn(s, *(term_of(param) for param in called))
        parts = [self._given(one, s, t) for one in (taken if isinstance(taken, tuple) else (taken,))]
        return self._meant(s, Or((self._stutters(s, t), *parts)))

    def owed_at_first(self) -> Node:
        """A first state is the one of the ideal that is named for it."""
        initial, s = self.abstract.initial, self.detailed.symbols(after=False)
        assert initial is not None
        if self._began is None:
            raise Misuse(f"{self.name}: nothing says which first state of the ideal a first state is")
        (taken,) = [self._began(s)]
        assert isinstance(taken, Taken), "there is one first state"
        return self._meant(s, self._first(initial, s, self._values(taken, initial)))

    @property
    def knows(self) -> frozenset[str]:
        """The names of the detailed fields in which something of the ideal's state is seen."""
        nodes = [self.seen(name)[1] for name in self.abstract.fields]
        return frozenset(part.field.name for node in nodes for part in walk(node) if isinstance(part, Read))

    def steps(self, detailed: Protocol | None = None) -> Protocol:
        """A detailed protocol (none: the right one) with the claim that its steps are the ideal's, and no other claim.

        Beside it stands, for every abstract action, the claim that it is *never* taken (`never`): its violation is a
        run in which it is.
        """
        claimed = _bare(detailed or self.detailed)
        self._claim_refines(claimed)
        for action in self.abstract.actions.values():
            doc = f"No step is this one of the ideal: {action.doc}"
            self._claim(claimed, never_name(action.name), doc, partial(self._never, action))
        return claimed

    def first(self, detailed: Protocol | None = None) -> Protocol:
        """A detailed protocol without its steps, with the claim that its first states are the ideal's."""
        claimed = _bare(detailed or self.detailed)
        claimed.actions = {}

        def begins(s: Fields) -> Bool:
            initial = self.abstract.initial
            assert initial is not None
            return Bool(self._meant(s, self._some(initial, lambda names: self._first(initial, s, names))))

        begins.__name__, begins.__doc__ = BEGINS, "Every first state is one of the ideal's."
        claimed.property(begins)
        return claimed

    def seen(self, name: str) -> tuple[tuple[Var, ...], Node]:
        """An abstract field over the detailed state, and the variables in it that stand for its keys."""
        field = self.abstract.fields[name]
        keys = _keys(field)
        return keys, self._image(field, self.detailed.symbols(after=False), keys)

    def _claim_refines(self, claimed: Protocol) -> None:
        doc = "Every step is a step of the ideal, or changes nothing that the ideal knows."
        self._claim(claimed, REFINES, doc, self._refines)

    def _claim(self, claimed: Protocol, name: str, doc: str, node: Callable[[Any, Any], Node]) -> None:
        def claim(s: Fields, t: Fields) -> Bool:
            return Bool(node(s, t))

        claim.__name__, claim.__doc__ = name, doc
        claimed.step_property(claim)

    # Formulas

    def _meant(self, s: Any, claim: Node) -> Node:
        return claim if self.where is None else Or((Not(self.where(s).node), claim))

    def _refines(self, s: Any, t: Any) -> Node:
        taken = (self._taken(action, s, t) for action in self.abstract.actions.values())
        return self._meant(s, Or((self._stutters(s, t), *taken)))

    def _never(self, action: Action, s: Any, t: Any) -> Node:
        return self._meant(s, Not(And((self._taken(action, s, t), Not(self._stutters(s, t))))))

    def _stutters(self, s: Any, t: Any) -> Node:
        def same(field: Field, keys: tuple[Var, ...]) -> Node:
            return Eq(self._image(field, t, keys), self._image(field, s, keys))

        return And(tuple(_for_all(field, same) for field in self.abstract.fields.values()))

    def _taken(self, action: Action, s: Any, t: Any) -> Node:
        """The abstract action leads from what `s` looks like to what `t` looks like."""

        return self._some(action, partial(self._does, action, s, t))

    def _does(self, action: Action, s: Any, t: Any, names: Mapping[Var, Node]) -> Node:
        guard = (self._seen(part, s, names) for part in action.guard)
        return And((*guard, *self._effects(action, s, t, names)))

    def _given(self, taken: Taken, s: Any, t: Any) -> Node:
        """The named step leads from what `s` looks like to what `t` looks like."""
        action = self.abstract.actions.get(taken.action)
        if action is None:
            known = ", ".join(self.abstract.actions)
            raise Misuse(f"{self.name}: the ideal has no action {taken.action!r}; it has {known}")
        return self._does(action, s, t, self._values(taken, action))

    def _values(self, taken: Taken, action: Action) -> Mapping[Var, Node]:
        if set(taken.values) != {param.name for param in action.params}:
            raise Misuse(f"{self.name}: {action.name} takes {', '.join(p.name for p in action.params) or 'nothing'}")
        return {param: lift(taken.values[param.name], param.sort) for param in action.params}

    @staticmethod
    def _called(fn: Named, action: Action) -> tuple[Var, ...] | None:
        """The action's parameters that the function takes, or none where the action lacks one."""
        hints = get_type_hints(fn)
        wanted = [(name, key_sort(hint)) for name, hint in list(hints.items())[1:] if name != "return"]
        known = {(param.name, param.sort): param for param in action.params}
        return tuple(known[one] for one in wanted) if all(one in known for one in wanted) else None

    def _first(self, initial: Action, s: Any, names: Mapping[Var, Node]) -> Node:
        guard = (self._seen(part, s, names) for part in initial.guard)
        return And((*guard, *self._effects(initial, None, s, names)))

    def _effects(self, action: Action, s: Any, t: Any, names: Mapping[Var, Node]) -> Sequence[Node]:
        def effect(field: Field, keys: tuple[Var, ...]) -> Node:
            value = None if s is None else self._image(field, s, keys)
            for write in action.writes:
                if write.field == field:
                    value = self._written(write, keys, value, s, names)
            assert value is not None, "an initial state sets every field"
            return Eq(self._image(field, t, keys), value)

        return [_for_all(field, effect) for field in self.abstract.fields.values()]

    def _written(
        self, write: Write, keys: tuple[Var, ...], before: Node | None, s: Any, names: Mapping[Var, Node]
    ) -> Node:
        """The value of one cell after a write that may or may not meet it."""
        pairs = list(zip(write.keys, keys, strict=True))
        inner = {**names, **{key: wanted for key, wanted in pairs if isinstance(key, Var) and key in write.binders}}
        meets = tuple(
            Eq(self._seen(key, s, inner), Some(wanted) if isinstance(sort_of(key), MaybeSort) else wanted)
            for key, wanted in pairs
            if not (isinstance(key, Var) and key in write.binders)
        )
        value = self._seen(write.value, s, inner)
        if not meets:
            return value
        assert before is not None, "an initial state sets whole fields"
        return Ite(And(meets), value, before)

    def _some(self, action: Action, body: Callable[[Mapping[Var, Node]], Node]) -> Node:
        names = {param: fresh(param.sort, param.name) for param in action.params}
        node = body(names)
        for var in reversed(names.values()):
            node = Exists(var, node)
        return node

    # Expressions

    def _image(self, field: Field, s: Any, keys: Sequence[Node]) -> Node:
        image = self.images.get(field.name)
        if image is None:
            raise Misuse(f"{self.name}: nothing says what {field.name} is")
        return lift(image(s, *(term_of(key) for key in keys)), field.sort)

    def _seen(self, node: Node, s: Any, names: Mapping[Var, Node]) -> Node:
        """An abstract expression over the detailed state."""
        match node:
            case Var():
                return names[node]
            case Read(field=field, keys=keys, default=None):
                return self._image(field, s, [self._seen(key, s, names) for key in keys])
            case Read(field=field):
                raise Misuse(f"{self.name}: the ideal reads {field.name} at a key that may be none")
            case Forall(var=var, body=body) | Exists(var=var, body=body) | Count(var=var, body=body):
                called = fresh(var.sort, var.name)
                return type(node)(called, self._seen(body, s, {**names, var: called}))
            case _:
                changes: dict[str, Any] = {}
                for part in fields(node):
                    value = getattr(node, part.name)
                    if isinstance(value, Node):
                        changes[part.name] = self._seen(value, s, names)
                    elif isinstance(value, tuple):
                        changes[part.name] = tuple(self._seen(item, s, names) for item in value)
                return replace(node, **changes)


def never_name(action: str) -> str:
    """The claim that the ideal's action is never taken."""
    return f"never_{action}"


def _bare(detailed: Protocol) -> Protocol:
    """A copy without claims."""
    claimed = detailed.variant(detailed.name, detailed.doc)
    claimed.properties, claimed.recoveries, claimed.goals = {}, {}, {}
    claimed.assumptions, claimed.eventualities = {}, {}
    return claimed


def _keys(field: Field) -> tuple[Var, ...]:
    return tuple(fresh(sort, sort.name[0].lower()) for sort in field.keys)


def _for_all(field: Field, body: Callable[[Field, tuple[Var, ...]], Node]) -> Node:
    """A condition on every cell of a field."""
    keys = _keys(field)
    node = body(field, keys)
    for key in reversed(keys):
        node = Forall(key, node)
    return node


__all__ = ["BEGINS", "REFINES", "Refinement", "Taken", "never_name", "takes"]
