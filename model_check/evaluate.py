"""What a protocol means: the definition that every other reader is held to.

A state is a flat tuple of small integers, one per cell; `Space` says which cell is which. Everything here is plain and
slow on purpose.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from spec.lang import Protocol, Scope, count_faults
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
from spec.lang.protocol import Action

State = tuple[int, ...]
Env = dict[Var, int]


class Refused(enum.Enum):
    """Why there is no next state."""

    DISABLED = "a condition of the guard is false"
    CUT = "a value would pass the scope's bound"


@dataclass(frozen=True)
class Instance:
    """An action with values for its parameters."""

    action: Action
    args: tuple[int, ...]

    @property
    def env(self) -> Env:
        """The parameters' values."""
        return dict(zip(self.action.params, self.args, strict=True))


class Space:
    """A protocol in a scope: where each cell of the state lies, and what its values are called.

    Raises:
        Misuse: the scope does not bound a sort of the protocol.
    """

    def __init__(self, protocol: Protocol, scope: Scope) -> None:
        self.protocol = count_faults(protocol, scope)
        self.scope = scope
        self.offsets: dict[str, int] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        total = 0
        for field in self.protocol.fields.values():
            shape = tuple(scope.cardinality(key) for key in field.keys)
            scope.cardinality(field.sort)
            self.offsets[field.name] = total
            self.shapes[field.name] = shape
            total += math.prod(shape)
        self.cells = total

    def cell(self, field: Field, keys: tuple[int, ...]) -> int:
        """The position of one cell."""
        position = 0
        for key, size in zip(keys, self.shapes[field.name], strict=True):
            position = position * size + key
        return self.offsets[field.name] + position

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """Every action with every choice of its parameters, in order of declaration."""
        return tuple(i for action in self.protocol.actions.values() for i in self._instances(action))

    def _instances(self, action: Action) -> Iterator[Instance]:
        ranges = (range(self.scope.cardinality(param.sort)) for param in action.params)
        return (Instance(action, args) for args in itertools.product(*ranges))

    def first_steps(self) -> Iterator[tuple[Instance, State]]:
        """Every choice that makes a first state, with that state."""
        initial = self.protocol.initial
        assert initial is not None, "a protocol needs its first states"
        nothing = (0,) * self.cells
        for instance in self._instances(initial):
            state = self.step(nothing, instance)
            if not isinstance(state, Refused):
                yield instance, state

    def initial_states(self) -> list[State]:
        """Every first state, in order of the choices that make it."""
        return list(dict.fromkeys(state for _, state in self.first_steps()))

    def step(self, state: State, instance: Instance) -> State | Refused:
        """The state after one step, or why there is none."""
        env = instance.env
        if not all(self.value(part, state, env) for part in instance.action.guard):
            return Refused.DISABLED
        after = list(state)
        for write in instance.action.writes:
            if not self._write(write, state, env, after):
                return Refused.CUT
        return tuple(after)

    def _write(self, write: Write, state: State, env: Env, after: list[int]) -> bool:
        bound = self.scope.cardinality(write.field.sort)
        for values in itertools.product(*(range(self.scope.cardinality(b.sort)) for b in write.binders)):
            inner = {**env, **dict(zip(write.binders, values, strict=True))}
            keys = [self._key(key, state, inner, None) for key in write.keys]
            if None in keys:
                continue
            value = self.value(write.value, state, inner)
            if value >= bound:
                return False
            after[self.cell(write.field, tuple(k for k in keys if k is not None))] = value
        return True

    def value(self, node: Node, state: State, env: Env, after: State | None = None) -> int:
        """The value of an expression; `after` is the second state of a step property."""

        def go(part: Node) -> int:
            return self.value(part, state, env, after)

        match node:
            case Const(value=value):
                return value
            case Var():
                return env[node]
            case Read(field=field, keys=keys, default=default, after=second):
                found = [self._key(key, state, env, after) for key in keys]
                if None in found:
                    assert default is not None
                    return go(default)
                source = after if second else state
                assert source is not None, "a step property needs both states"
                return source[self.cell(field, tuple(k for k in found if k is not None))]
            case Not(arg=arg):
                return 1 - go(arg)
            case And(args=args):
                return int(all(go(arg) for arg in args))
            case Or(args=args):
                return int(any(go(arg) for arg in args))
            case Eq(left=left, right=right):
                return int(go(left) == go(right))
            case Less(left=left, right=right):
                return int(go(left) < go(right))
            case Plus(arg=arg, amount=amount):
                return go(arg) + amount
            case Ite(cond=cond, then=then, other=other):
                return go(then) if go(cond) else go(other)
            case Forall(var=var, body=body):
                return int(all(self._bodies(var, body, state, env, after)))
            case Exists(var=var, body=body):
                return int(any(self._bodies(var, body, state, env, after)))
            case Count(var=var, body=body):
                return sum(self._bodies(var, body, state, env, after))
            case Some(arg=arg):
                return go(arg) + 1
            case OrElse(arg=arg, default=default):
                value = go(arg)
                return value - 1 if value else go(default)

    def _key(self, node: Node, state: State, env: Env, after: State | None) -> int | None:
        value = self.value(node, state, env, after)
        if isinstance(sort_of(node), MaybeSort):
            return value - 1 if value else None
        return value

    def _bodies(self, var: Var, body: Node, state: State, env: Env, after: State | None) -> Iterator[int]:
        for value in range(self.scope.cardinality(var.sort)):
            yield self.value(body, state, {**env, var: value}, after)

    def successors(self, state: State) -> Iterator[tuple[Instance, State]]:
        """Every step that is possible, with the state after it."""
        for instance in self.instances:
            after = self.step(state, instance)
            if not isinstance(after, Refused):
                yield instance, after

    def holds(self, node: Node, state: State, after: State | None = None) -> bool:
        """A condition on one state, or on the two of a step."""
        return bool(self.value(node, state, {}, after))

    def blocking(self, state: State, instance: Instance) -> list[Node]:
        """The conditions of the guard that are false."""
        return [part for part in instance.action.guard if not self.value(part, state, instance.env)]

    # Names

    def value_name(self, sort: Sort, value: int) -> str:
        """What people call a value."""
        match sort:
            case BoolSort():
                return "yes" if value else "no"
            case EnumSort(members=members):
                return members[value]
            case IndexSort(name=name):
                return f"{name.lower()} {value}"
            case NaturalSort() | CountSort():
                return str(value)
            case MaybeSort(of=of):
                return "none" if value == 0 else self.value_name(of, value - 1)

    def cell_name(self, position: int) -> tuple[Field, str]:
        """The field of a cell, and its name with the keys: ``paused[engine 1]``."""
        for field in reversed(self.protocol.fields.values()):
            start = self.offsets[field.name]
            if position >= start:
                rest, keys = position - start, []
                for size in reversed(self.shapes[field.name]):
                    rest, key = divmod(rest, size)
                    keys.append(key)
                names = [self.value_name(s, k) for s, k in zip(field.keys, reversed(keys), strict=True)]
                return field, field.name + (f"[{', '.join(names)}]" if names else "")
        raise IndexError(position)

    def instance_name(self, instance: Instance) -> str:
        """``flush(engine 1)``."""
        names = [self.value_name(p.sort, v) for p, v in zip(instance.action.params, instance.args, strict=True)]
        return instance.action.name + (f"({', '.join(names)})" if names else "")
