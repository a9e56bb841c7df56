"""What the fields of a state hold: anything (`Functions`), zero (`Nothing`), or what a step leaves there (`After`).

`After` puts what is written in place of what is read, so that a step needs no second copy of the state and no axiom
about what it leaves alone.
"""

from __future__ import annotations

import z3

from model_check.prove.connectives import FALSE, TRUE, Expr, Optional, Value, both, choose, equal
from model_check.prove.translate import Env, Translator, View
from model_check.prove.worlds import Untranslatable, World
from spec.lang.nodes import CountSort, Field, MaybeSort, Var, Write
from spec.lang.protocol import Action


class Functions:
    """A state of which nothing is known: every field is a function of its keys."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.used: dict[str, Field] = {}

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """The function's value."""
        self.used.setdefault(field.name, field)
        match field.sort:
            case MaybeSort(of=of):
                some = self._apply(f"{field.name}?", field, z3.BoolSort(), keys)
                return Optional(some, self._apply(field.name, field, self._world.sort(of), keys))
            case CountSort():
                raise AssertionError("a count is compared, never stored")
            case sort:
                return self._apply(field.name, field, self._world.sort(sort), keys)

    def _apply(self, name: str, field: Field, sort: Expr, keys: tuple[Expr, ...]) -> Expr:
        if not keys:
            return z3.Const(name, sort)
        return z3.Function(name, *(self._world.sort(key) for key in field.keys), sort)(*keys)

    def ranges(self, translator: Translator) -> list[Expr]:
        """Every field that was read holds values of its sort."""
        found = []
        for field in self.used.values():
            sort = field.sort.of if isinstance(field.sort, MaybeSort) else field.sort
            keys = tuple(translator.fresh(Var(key, "k")) for key in field.keys)
            value = self.read(field, keys)
            assert not isinstance(sort, CountSort)
            inside = self._world.within(sort, value.value if isinstance(value, Optional) else value)
            if inside is not TRUE:
                found.append(z3.ForAll(list(keys), inside) if keys else inside)
        return found


class Nothing:
    """The state from which the initial action makes the first ones: everything is 0."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """The value 0, or none."""
        match field.sort:
            case MaybeSort(of=of):
                return Optional(FALSE, self._world.constant(of, 0))
            case sort:
                return self._world.constant(sort, 0)


class After:
    """The state after a step whose guard holds and whose values fit."""

    def __init__(self, translator: Translator, before: View, action: Action, env: Env) -> None:
        self._translator = translator
        self._before = before
        self._env = env
        self._writes: dict[str, list[Write]] = {}
        self._known: dict[tuple[str, tuple[int, ...]], tuple[tuple[Expr, ...], Value]] = {}
        for write in action.writes:
            fixed = len(write.keys) - len(write.binders)
            if write.keys[fixed:] != write.binders:
                raise Untranslatable(f"{action.name} writes {write.field.name} under keys that are no plain binders")
            self._writes.setdefault(write.field.name, []).append(write)

    def read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        """What the last write to the cell left there, or what was there before."""
        if field.name not in self._writes:
            return self._before.read(field, keys)
        place = (field.name, tuple(key.get_id() for key in keys))
        if place not in self._known:
            # The keys are kept with the value: z3 gives an identifier to another term once a term is gone.
            self._known[place] = keys, self._read(field, keys)
        return self._known[place][1]

    def _read(self, field: Field, keys: tuple[Expr, ...]) -> Value:
        value: Value | None = None
        go = self._translator.value
        layers: list[tuple[Expr, Value]] = []
        for write in reversed(self._writes[field.name]):
            fixed = len(write.keys) - len(write.binders)
            hits = []
            for node, key in zip(write.keys[:fixed], keys, strict=False):
                written = go(node, self._before, None, self._env)
                if isinstance(written, Optional):
                    hits.append(written.some)
                    written = written.value
                hits.append(equal(written, key))
            hit = both(hits)
            if hit is FALSE:
                continue
            inner = {**self._env, **dict(zip(write.binders, keys[fixed:], strict=True))}
            layers.append((hit, go(write.value, self._before, None, inner)))
            if hit is TRUE:
                break
        for hit, written in reversed(layers):
            value = written if value is None and hit is TRUE else choose(hit, written, self._old(value, field, keys))
        return self._old(value, field, keys)

    def _old(self, value: Value | None, field: Field, keys: tuple[Expr, ...]) -> Value:
        return self._before.read(field, keys) if value is None else value
