"""Why a condition has the value it has: the parts that decide, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from model_check.evaluate import Env, Space, State
from spec.lang.nodes import (
    And,
    BoolSort,
    Const,
    Count,
    Eq,
    Exists,
    Field,
    Forall,
    Ite,
    Node,
    Not,
    Or,
    Read,
    Var,
    children,
    renamed,
    sort_of,
)
from spec.lang.text import show


@dataclass(frozen=True)
class Reason:
    """One deciding part of a condition: its text, whether it is true, and the values that it was judged on."""

    text: str
    holds: bool
    facts: tuple[str, ...]


def field_values(space: Space, field: Field, state: State) -> str:
    """A whole field in one line; a relation as the set of partners of each element."""
    if not field.keys:
        return space.value_name(field.sort, state[space.offsets[field.name]])
    rows = [(name, value) for name, value in field_rows(space, field, state) if name]
    if len({value for _, value in rows}) == 1 and len(rows) > 1:
        return f"{rows[0][1]} for every {field.keys[0].name.lower()}"
    return ", ".join(f"{name}: {value}" for name, value in rows)


def field_rows(space: Space, field: Field, state: State) -> list[tuple[str, str]]:
    """The keys and the value of each part of a field that is told as one; a relation has one part per first key."""
    start, shape = space.offsets[field.name], space.shapes[field.name]
    if len(shape) == 2 and isinstance(field.sort, BoolSort):
        rows = []
        for first in range(shape[0]):
            cells = state[start + first * shape[1] : start + (first + 1) * shape[1]]
            partners = [space.value_name(field.keys[1], second) for second, held in enumerate(cells) if held]
            rows.append((space.value_name(field.keys[0], first), "{" + ", ".join(partners) + "}"))
        return rows
    size = 1
    for part in shape:
        size *= part
    rows = []
    for cell in range(start, start + size):
        name = space.cell_name(cell)[1].removeprefix(field.name)
        rows.append((name.removeprefix("[").removesuffix("]"), space.value_name(field.sort, state[cell])))
    return rows


def reasons(space: Space, node: Node, state: State, after: State | None = None, env: Env | None = None) -> list[Reason]:
    """The parts that decide a condition, in order, elements named where a quantifier is decided by one.

    Args:
        space: the protocol in its scope.
        node: the condition.
        state: the state to judge it in.
        after: the second state, for a condition on a step.
        env: values of variables bound outside.
    """
    found: dict[Reason, None] = {}
    for reason in _Judge(space, state, after).decide(node, env or {}):
        found.setdefault(reason)
    return list(found)


@dataclass(frozen=True)
class _Judge:
    space: Space
    state: State
    after: State | None

    def value(self, node: Node, env: Env) -> int:
        return self.space.value(node, self.state, env, self.after)

    def decide(self, node: Node, env: Env) -> Iterator[Reason]:
        holds = bool(self.value(node, env))
        match node:
            case Forall(var=var, body=body) if not holds:
                yield from self.decide(body, self._witness(var, body, env, wanted=False))
            case Exists(var=var, body=body) if holds:
                yield from self.decide(body, self._witness(var, body, env, wanted=True))
            case And(args=args) if args:
                for arg in args:
                    if holds or not self.value(arg, env):
                        yield from self.decide(arg, env)
            case Or(args=(Not(arg=given), then)) if not holds:
                yield from self.decide(given, env)
                yield from self.decide(then, env)
            case Or(args=args) if args:
                deciding = [arg for arg in args if self.value(arg, env)][:1] if holds else args
                for arg in deciding:
                    yield from self.decide(arg, env)
            case Not(arg=Not() | And() | Or() | Forall() | Exists() | Ite() | Read() as arg):
                yield from self.decide(arg, env)
            case Ite(cond=cond, then=then, other=other):
                yield from self.decide(cond, env)
                yield from self.decide(then if self.value(cond, env) else other, env)
            case _:
                # That something equals what the text says already names its value.
                plain = holds and isinstance(node, Eq) and isinstance(node.right, Const)
                yield Reason(self.text(node, env), holds, () if plain else tuple(self.facts(node, env)))

    def _witness(self, var: Var, body: Node, env: Env, *, wanted: bool) -> Env:
        """The first element that decides a quantifier."""
        choices = ({**env, var: value} for value in range(self.space.scope.cardinality(var.sort)))
        return next(inner for inner in choices if bool(self.value(body, inner)) is wanted)

    def text(self, node: Node, env: Env) -> str:
        return show(renamed(node, self._names(env)))

    def _names(self, env: Env) -> Mapping[Var, Var]:
        return {var: Var(var.sort, self.space.value_name(var.sort, value)) for var, value in env.items()}

    def facts(self, node: Node, env: Env) -> Iterator[str]:
        """The values of what a condition reads; of a field that a bound variable ranges over, all of it."""
        seen: set[str] = set()
        alone = node.arg if isinstance(node, Not) else node
        measured = list(self._measured(alone))
        for part in measured[1:] if isinstance(alone, Read) else measured:
            bound = _free(part) - env.keys()
            if isinstance(part, Read) and bound:
                source = self.after if part.after else self.state
                assert source is not None
                mark = " after" if part.after else ""
                fact = f"{part.field.name}{mark} is {field_values(self.space, part.field, source)}"
            elif bound:
                continue
            else:
                fact = f"{self.text(part, env)} is {self.space.value_name(sort_of(part), self.value(part, env))}"
            if fact not in seen:
                seen.add(fact)
                yield fact

    def _measured(self, node: Node) -> Iterator[Node]:
        """The parts whose values are worth naming: reads, counts, and compound sides of a comparison of truths."""
        if isinstance(node, Read | Count):
            yield node
            if isinstance(node, Read):
                for key in node.keys:
                    yield from self._measured(key)
                return
        if isinstance(node, Eq):
            for side in (node.left, node.right):
                if isinstance(side, And | Or | Exists | Forall):
                    yield side
        if not isinstance(node, Const | Var):
            for child in children(node):
                yield from self._measured(child)


def _free(node: Node) -> set[Var]:
    """The variables that something around a node binds."""
    if isinstance(node, Var):
        return {node}
    inner = {var for child in children(node) for var in _free(child)}
    return inner - {node.var} if isinstance(node, Forall | Exists | Count) else inner


__all__ = ["Reason", "field_rows", "field_values", "reasons"]
