"""Conditions and steps of a protocol as straight-line machine code over packed states.

Constants are folded while the code is written: an instance of an action has its parameters' values, so most keys are
known and most reads are one shift and one mask. What LLVM can do better (common parts of guards, masks) is left to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from llvmlite import ir

from model_check.building import I1, I32
from model_check.evaluate import Env
from model_check.layout import Layout
from model_check.record import bounded
from spec.lang.nodes import (
    And,
    Const,
    Count,
    Eq,
    Exists,
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
    Var,
    Write,
    may_pass,
    sort_of,
)

Code: TypeAlias = "int | Any"
"""A value known now, or the code that finds it: one bit for a condition, 32 for anything else."""


class Emitter:
    """Writes code for one function, at wherever its builder stands."""

    def __init__(self, builder: ir.IRBuilder, layout: Layout) -> None:
        self.b = builder
        self.layout = layout
        self.scope = layout.space.scope
        self.state_type = ir.IntType(64 * layout.words)

    # Conditions

    def condition(self, node: Node, state: ir.Value, env: Env, after: ir.Value | None = None) -> Code:
        """A condition: 0, 1 or one bit."""
        match node:
            case And(args=args):
                return self.all_of(partial(self.condition, a, state, env, after) for a in args)
            case Or(args=args):
                return self.negated(self.none_of(partial(self.condition, a, state, env, after) for a in args))
            case Not(arg=arg):
                return self.negated(self.condition(arg, state, env, after))
            case Forall(var=var, body=body):
                elements = range(self.scope.cardinality(var.sort))
                return self.all_of(partial(self.condition, body, state, {**env, var: v}, after) for v in elements)
            case Exists(var=var, body=body):
                elements = range(self.scope.cardinality(var.sort))
                return self.negated(
                    self.none_of(partial(self.condition, body, state, {**env, var: v}, after) for v in elements)
                )
            case Eq(left=left, right=right):
                return self.compare("==", self.value(left, state, env, after), self.value(right, state, env, after))
            case Less(left=left, right=right):
                return self.compare("<", self.value(left, state, env, after), self.value(right, state, env, after))
            case _:
                value = self.value(node, state, env, after)
                return value if isinstance(value, int) else self.b.icmp_unsigned("!=", value, ir.Constant(I32, 0))

    def all_of(self, parts: Iterable[Callable[[], Code]]) -> Code:
        """A conjunction; parts after a false one are not even written."""
        result: Code = 1
        for part in parts:
            code = part()
            if isinstance(code, int):
                if not code:
                    return 0
            else:
                result = code if isinstance(result, int) else self.b.and_(result, code)
        return result

    def none_of(self, parts: Iterable[Callable[[], Code]]) -> Code:
        """A conjunction of opposites."""
        return self.all_of(partial(self._opposite, part) for part in parts)

    def _opposite(self, part: Callable[[], Code]) -> Code:
        return self.negated(part())

    def negated(self, code: Code) -> Code:
        """The opposite condition."""
        return 1 - code if isinstance(code, int) else self.b.not_(code)

    def compare(self, how: str, left: Code, right: Code) -> Code:
        """Two values compared."""
        if isinstance(left, int) and isinstance(right, int):
            return int(left == right if how == "==" else left < right)
        return self.b.icmp_unsigned(how, self.word(left), self.word(right))

    def choose(self, cond: Code, then: Code, other: Code) -> Code:
        """One of two values."""
        if isinstance(cond, int):
            return then if cond else other
        if isinstance(then, int) and isinstance(other, int) and then == other:
            return then
        return self.b.select(cond, self.word(then), self.word(other))

    def word(self, code: Code) -> ir.Value:
        """A value in 32 bits."""
        return ir.Constant(I32, code) if isinstance(code, int) else code

    def bit(self, code: Code) -> ir.Value:
        """A condition as one bit."""
        return ir.Constant(I1, code) if isinstance(code, int) else code

    # Values

    def value(self, node: Node, state: ir.Value, env: Env, after: ir.Value | None = None) -> Code:
        """A value: known now, or 32 bits."""
        match node:
            case Const(value=value):
                return value
            case Var():
                return env[node]
            case Plus(arg=arg, amount=amount):
                value = self.value(arg, state, env, after)
                return value + amount if isinstance(value, int) else self.b.add(value, ir.Constant(I32, amount))
            case Some(arg=arg):
                value = self.value(arg, state, env, after)
                return value + 1 if isinstance(value, int) else self.b.add(value, ir.Constant(I32, 1))
            case OrElse(arg=arg, default=default):
                value = self.value(arg, state, env, after)
                if isinstance(value, int):
                    return value - 1 if value else self.value(default, state, env, after)
                inner = self.b.sub(value, ir.Constant(I32, 1))
                return self.choose(self.compare("==", value, 0), self.value(default, state, env, after), inner)
            case Ite(cond=cond, then=then, other=other):
                test = self.condition(cond, state, env, after)
                if isinstance(test, int):
                    return self.value(then if test else other, state, env, after)
                return self.choose(test, self.value(then, state, env, after), self.value(other, state, env, after))
            case Count(var=var, body=body):
                total: Code = 0
                for v in range(self.scope.cardinality(var.sort)):
                    one = self.condition(body, state, {**env, var: v}, after)
                    one = one if isinstance(one, int) else self.b.zext(one, I32)
                    both = isinstance(total, int) and isinstance(one, int)
                    total = total + one if both else self.b.add(self.word(total), self.word(one))
                return total
            case Read(field=field, keys=keys, default=default, after=second):
                source = after if second else state
                assert source is not None, "a step property needs both states"
                place = self.layout.places[field.name]
                found = [(self.value(k, state, env, after), isinstance(sort_of(k), MaybeSort)) for k in keys]
                missing = self.missing(found)
                if isinstance(missing, int) and missing:
                    assert default is not None
                    return self.value(default, state, env, after)
                value = self.cell(source, place.width, self.shift(place.base, place.strides, found))
                if isinstance(missing, int):
                    return value
                assert default is not None
                return self.choose(missing, self.value(default, state, env, after), value)
            case _:
                code = self.condition(node, state, env, after)
                return code if isinstance(code, int) else self.b.zext(code, I32)

    def missing(self, keys: list[tuple[Code, bool]]) -> Code:
        """Whether some optional key is none."""
        return self.negated(self.none_of(partial(self.compare, "==", k, 0) for k, optional in keys if optional))

    def shift(self, base: int, strides: tuple[int, ...], keys: list[tuple[Code, bool]]) -> Code:
        """The lowest bit of a cell. Where a key is none the answer means nothing, and is not used."""
        total: Code = base
        for (key, optional), stride in zip(keys, strides, strict=True):
            if isinstance(key, int):
                amount: Code = (key - optional) * stride
            else:
                inner = self.b.sub(key, ir.Constant(I32, 1)) if optional else key
                amount = self.b.mul(inner, ir.Constant(I32, stride))
            if isinstance(total, int) and isinstance(amount, int):
                total += amount
            else:
                total = self.b.add(self.word(total), self.word(amount))
        return total

    def cell(self, state: ir.Value, width: int, shift: Code) -> Code:
        """The value at a place of a packed state."""
        if width == 0:
            return 0
        amount = ir.Constant(self.state_type, shift) if isinstance(shift, int) else self.b.zext(shift, self.state_type)
        low = self.b.trunc(self.b.lshr(state, amount), I32)
        return self.b.and_(low, ir.Constant(I32, (1 << width) - 1))

    # Steps

    def apply(
        self, writes: tuple[Write, ...], state: ir.Value, env: Env, skipped: Callable[[int], Code] = lambda _: 0
    ) -> tuple[ir.Value, list[tuple[str, Code]]]:
        """The state after the writes, and for every sort the condition under which its bound cuts the step.

        `skipped` says of each write, by number, whether it is left out.
        """
        result = state
        cuts: dict[str, list[Code]] = {}
        pending: dict[int, tuple[int, Code]] = {}
        for number, write in enumerate(writes):
            place = self.layout.places[write.field.name]
            bound = self.scope.cardinality(write.field.sort)
            skip = skipped(number)
            for values in itertools.product(*(range(self.scope.cardinality(v.sort)) for v in write.binders)):
                inner = {**env, **dict(zip(write.binders, values, strict=True))}
                keys = [(self.value(k, state, inner), isinstance(sort_of(k), MaybeSort)) for k in write.keys]
                missing = self.missing(keys)
                if isinstance(missing, int) and missing:
                    continue
                value = self.value(write.value, state, inner)
                if may_pass(write.value):
                    cut = self.compare("<", bound - 1, value)
                    passes = self.all_of(map(self._absent, (self.negated(cut), missing, skip)))
                    cuts.setdefault(bounded(write), []).append(passes)
                if place.width == 0:
                    continue
                shift = self.shift(place.base, place.strides, keys)
                if isinstance(shift, int) and isinstance(missing, int):
                    if not isinstance(skip, int):
                        value = self.choose(skip, self.cell(state, place.width, shift), value)
                    pending[shift] = (place.width, value)
                else:
                    result, pending = self.store(result, pending), {}
                    written = self.put(result, shift, place.width, self.word(value))
                    for out in (missing, skip):
                        if not isinstance(out, int):
                            written = self.b.select(out, result, written)
                    result = written
        # However many of its writes pass a bound, it is one step that is cut.
        return self.store(result, pending), [
            (sort, self.negated(self.all_of(map(self._absent, conditions)))) for sort, conditions in cuts.items()
        ]

    def _absent(self, code: Code) -> Callable[[], Code]:
        return lambda: self.negated(code)

    def store(self, state: ir.Value, pending: dict[int, tuple[int, Code]]) -> ir.Value:
        """Several cells at known places written at once."""
        if not pending:
            return state
        full = (1 << 64 * self.layout.words) - 1
        mask = known = 0
        for shift, (width, value) in pending.items():
            mask |= ((1 << width) - 1) << shift
            if isinstance(value, int):
                known |= (value & (1 << width) - 1) << shift
        result = self.b.and_(state, ir.Constant(self.state_type, full & ~mask))
        if known:
            result = self.b.or_(result, ir.Constant(self.state_type, known))
        for shift, (width, value) in pending.items():
            if not isinstance(value, int):
                low = self.b.and_(value, ir.Constant(I32, (1 << width) - 1))
                wide = self.b.zext(low, self.state_type)
                result = self.b.or_(result, self.b.shl(wide, ir.Constant(self.state_type, shift)))
        return result

    def put(self, state: ir.Value, shift: Code, width: int, value: ir.Value) -> ir.Value:
        """One cell written at a place found at run time."""
        amount = self.b.zext(self.word(shift), self.state_type)
        mask = self.b.shl(ir.Constant(self.state_type, (1 << width) - 1), amount)
        return self.b.or_(
            self.b.and_(state, self.b.not_(mask)), self.b.shl(self.b.zext(value, self.state_type), amount)
        )
