"""Connectives that keep z3's formulas small, over plain terms and optional values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import z3

Expr = Any
"""A term of z3, which ships no types."""


@dataclass(frozen=True)
class Optional:
    """An optional value: whether there is one, and what it is then."""

    some: Expr
    value: Expr


Value = Expr | Optional

TRUE = z3.BoolVal(True)
"""Compared by identity, as `FALSE` is: asking z3 what a term is costs more than the folding saves."""
FALSE = z3.BoolVal(False)


def negation(arg: Expr) -> Expr:
    """Not."""
    if arg is TRUE:
        return FALSE
    if arg is FALSE:
        return TRUE
    return arg.arg(0) if z3.is_not(arg) else z3.Not(arg)


def both(args: Sequence[Expr]) -> Expr:
    """All of them."""
    kept = [arg for arg in args if arg is not TRUE]
    if any(arg is FALSE for arg in kept):
        return FALSE
    return TRUE if not kept else kept[0] if len(kept) == 1 else z3.And(*kept)


def either(args: Sequence[Expr]) -> Expr:
    """Some of them."""
    kept = [arg for arg in args if arg is not FALSE]
    if any(arg is TRUE for arg in kept):
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
        if one is TRUE:
            return other
        if one is FALSE:
            return negation(other)
    if all(z3.is_bv_value(x) or z3.is_int_value(x) for x in (left, right)):
        return FALSE
    return left == right


def choose(cond: Expr, then: Value, other: Value) -> Value:
    """One of two values, by a condition."""
    if isinstance(then, Optional):
        assert isinstance(other, Optional)
        return Optional(choose(cond, then.some, other.some), choose(cond, then.value, other.value))
    if cond is TRUE:
        return then
    if cond is FALSE:
        return other
    return then if then.eq(other) else z3.If(cond, then, other)
