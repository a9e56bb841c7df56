"""Expressions of a protocol as Promela, with what is known while they are written already worked out."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from model_check.evaluate import Space
from spec.lang.nodes import (
    And,
    Const,
    Count,
    EnumSort,
    Eq,
    Exists,
    Field,
    Forall,
    Ite,
    Less,
    MaybeSort,
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

Code: TypeAlias = "int | str"
"""A value known while the text is written, or the text of an expression that stands alone or in brackets."""

_PROMELA = (
    "D_proctype active assert atomic bit bool break byte c_code c_decl c_expr c_state c_track chan d_step do else",
    "empty enabled eval false fi for full get_priority goto hidden if in init inline int len local ltl mtype nempty",
    "never nfull notrace np_ od of pc_value pid printf printm priority proctype provided run select set_priority short",
    "show skip timeout trace true typedef unless unsigned xr xs",
)
_C = (
    "auto case char const continue default double enum extern float long register return signed sizeof static struct",
    "switch union void volatile while uchar uint ushort now",
)
_OURS = ("claim goal judge judge_step remember protocol told tell",)
RESERVED = frozenset(word for line in (*_PROMELA, *_C, *_OURS) for word in line.split())
"""Words of Promela, of C and the program that SPIN writes in it, and of the text around a protocol."""
WIDTH = 118
"""Columns of a line, where it can be broken."""


@dataclass(frozen=True)
class Reading:
    """How an expression is to be read: what its variables are called, and which fields stand in their copies."""

    env: Mapping[Var, Code]
    before: frozenset[str] = frozenset()


class Formulas:
    """Writes expressions over the fields of a space.

    Everything that needs a name of its own in Promela has one here: a protocol's own where that is possible, else with
    an underscore after it.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        protocol = space.protocol
        self._used = set(RESERVED)
        self.fields = {name: self._new(name) for name in protocol.fields}
        self.copies = {name: self._new(f"was_{name}") for name in protocol.fields}
        assert protocol.initial is not None, "a protocol needs its first states"
        self.start = self._new(protocol.initial.name)
        self.actions = {name: self._new(name) for name in protocol.actions}
        self.members = {
            (sort.name, member): self._new(f"{sort.name}_{member}")
            for sort in protocol.sorts
            if isinstance(sort, EnumSort)
            for member in sort.members
        }

    def _new(self, name: str) -> str:
        found = self.unused(name, self._used)
        self._used.add(found)
        return found

    def unused(self, name: str, more: Iterable[str]) -> str:
        """A name that stands nowhere else, and is not among some more."""
        taken = {*self._used, *more}
        while name in taken:
            name += "_"
        return name

    def cells(self, field: Field) -> int:
        """How many cells a field has."""
        return math.prod(self.space.shapes[field.name])

    def value(self, node: Node, reading: Reading) -> Code:
        """An expression."""
        match node:
            case Const(sort=sort, value=value):
                return self._constant(sort, value)
            case Var():
                return reading.env[node]
            case Read(field=field, keys=keys, default=default, after=after):
                index, missing = self.index(field, keys, reading)
                copied = not after and field.name in reading.before
                cell = (self.copies if copied else self.fields)[field.name] + index
                if missing == 0:
                    return cell
                assert default is not None
                return chosen(missing, self.value(default, reading), cell)
            case Not(arg=Eq(left=left, right=right)):
                return compared("!=", self.value(left, reading), self.value(right, reading))
            case Not(arg=Less(left=left, right=right)):
                return compared(">=", self.value(left, reading), self.value(right, reading))
            case Not(arg=arg):
                return opposite(self.value(arg, reading))
            case And(args=args):
                return all_of(partial(self.value, arg, reading) for arg in args)
            case Or(args=args):
                return any_of(partial(self.value, arg, reading) for arg in args)
            case Eq(left=left, right=right):
                return compared("==", self.value(left, reading), self.value(right, reading))
            case Less(left=left, right=right):
                return compared("<", self.value(left, reading), self.value(right, reading))
            case Plus(arg=arg, amount=amount):
                return plus(self.value(arg, reading), amount)
            case Ite(cond=cond, then=then, other=other):
                return chosen(*(self.value(part, reading) for part in (cond, then, other)))
            case Forall(var=var, body=body):
                return all_of(partial(self.value, body, inner) for inner in self._each(var, reading))
            case Exists(var=var, body=body):
                return any_of(partial(self.value, body, inner) for inner in self._each(var, reading))
            case Count(var=var, body=body):
                return _total([self.value(body, inner) for inner in self._each(var, reading)])
            case Some(arg=arg):
                return plus(self.value(arg, reading), 1)
            case OrElse(arg=arg, default=default):
                found = self.value(arg, reading)
                return chosen(compared("==", found, 0), self.value(default, reading), plus(found, -1))

    def _constant(self, sort: Sort, value: int) -> Code:
        return self.members[sort.name, sort.members[value]] if isinstance(sort, EnumSort) else value

    def _each(self, var: Var, reading: Reading) -> Iterator[Reading]:
        for value in range(self.space.scope.cardinality(var.sort)):
            yield Reading({**reading.env, var: value}, reading.before)

    def index(self, field: Field, keys: tuple[Node, ...], reading: Reading) -> tuple[str, Code]:
        """The index of a cell in its variable, and whether some key is none, so that there is no such cell."""
        position: Code = 0
        absent: list[Code] = []
        for key, size in zip(keys, self.space.shapes[field.name], strict=True):
            value = self.value(key, reading)
            if isinstance(sort_of(key), MaybeSort):
                absent.append(compared("==", value, 0))
                value = plus(value, -1)
            position = _added(_times(position, size), value)
        missing = any_of(partial(_itself, code) for code in absent)
        return (f"[{bare(position)}]" if field.keys else ""), missing


def _itself(code: Code) -> Code:
    return code


def all_of(parts: Iterable[partial[Code]]) -> Code:
    """A conjunction; parts after a false one are not written."""
    return _joined("&&", parts, 0)


def any_of(parts: Iterable[partial[Code]]) -> Code:
    """A disjunction; parts after a true one are not written."""
    return _joined("||", parts, 1)


def _joined(operator: str, parts: Iterable[partial[Code]], decided: int) -> Code:
    texts: dict[str, None] = {}
    for part in parts:
        code = part()
        if code == decided:
            return decided
        if isinstance(code, str):
            texts[code] = None
    if not texts:
        return 1 - decided
    return next(iter(texts)) if len(texts) == 1 else f"({f' {operator} '.join(texts)})"


def opposite(code: Code) -> Code:
    """The opposite condition."""
    if isinstance(code, int):
        return 1 - code
    return code[1:] if code.startswith("!") else f"!{code}"


def compared(operator: str, left: Code, right: Code) -> Code:
    """A comparison."""
    if isinstance(left, int) and isinstance(right, int):
        return int({"==": left == right, "!=": left != right, "<": left < right, ">=": left >= right}[operator])
    return f"({left} {operator} {right})"


def chosen(cond: Code, then: Code, other: Code) -> Code:
    """One of two values."""
    if isinstance(cond, int):
        return then if cond else other
    return then if then == other else f"({cond} -> {then} : {other})"


def plus(code: Code, amount: int) -> Code:
    """A sum with a constant."""
    if isinstance(code, int):
        return code + amount
    return f"({code} {'+' if amount > 0 else '-'} {abs(amount)})" if amount else code


def _added(left: Code, right: Code) -> Code:
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    return right if left == 0 else left if right == 0 else f"({left} + {right})"


def _times(code: Code, factor: int) -> Code:
    return code * factor if isinstance(code, int) else code if factor == 1 else f"({code} * {factor})"


def _total(parts: list[Code]) -> Code:
    known = sum(part for part in parts if isinstance(part, int))
    texts = [part for part in parts if isinstance(part, str)]
    if not texts:
        return known
    if known:
        texts.append(str(known))
    return texts[0] if len(texts) == 1 else f"({' + '.join(texts)})"


def bare(code: Code) -> str:
    """An expression without the brackets around all of it, where it needs none: a choice always does."""
    text = str(code)
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        ends = depth == 0 and position < len(text) - 1
        if ends or (depth == 1 and text.startswith("->", position)):
            return text
    return text[1:-1] if text.startswith("(") else text


_OPERATOR = re.compile(r" (?=(?:->|&&|\|\||[=!<>]=|[=<>:+*-]) )")
_TIED = "\N{NO-BREAK SPACE}"


def broken(text: str, indent: str) -> list[str]:
    """A text in lines that are not too long.

    An operator stays behind its left side: where a line could be the end of a statement, SPIN takes it for one.
    """
    lines = textwrap.wrap(
        _OPERATOR.sub(_TIED, text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_TIED, " ") for line in lines]


def comment(text: str, indent: str = "") -> list[str]:
    """A comment in lines that are not too long."""
    return broken(f"/* {text.replace('*/', '* /')} */", indent)


__all__ = [
    "RESERVED",
    "Code",
    "Formulas",
    "Reading",
    "all_of",
    "any_of",
    "bare",
    "broken",
    "comment",
    "compared",
]
