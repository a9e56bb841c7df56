"""Runs in the Informal Trace Format (ITF) of Apalache, which other tools' viewers read, and back.

Index elements are strings (``"engine 0"``), members of enumerations strings, naturals ``{"#bigint": "1"}``, optional
values the variants ``Some`` and ``None``, maps ``{"#map": [[key, value], ...]}``, keys of maps with two keys
``{"#tup": [first, second]}``. The ``#meta`` of a state names the action before it. Of a run that never ends, ``loop``
is the index of the state that the last one is again.
Source: https://apalache-mc.org/docs/adr/015adr-trace.html
"""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

from model_check.evaluate import Instance, Refused, Space, State
from model_check.explore import Counterexample, Run
from spec.lang import Misuse, Protocol, Scope
from spec.lang.nodes import BoolSort, CountSort, EnumSort, Field, IndexSort, MaybeSort, NaturalSort, Sort

LARGEST = 100_000
"""Cells of a state, values of a sort, and choices of a step, in a world whose runs are replayed."""
SHOWN = 60
"""Letters of a wrong value that a message repeats."""
NONE = {"tag": "None", "value": {"#tup": []}}


class BadTrace(ValueError):  # noqa: N818 - read as words
    """A trace is not one of this protocol; the message is one line that says where."""


def as_itf(counterexample: Counterexample) -> dict[str, Any]:
    """The run of a counterexample, ready for `json.dump`."""
    space = counterexample.space
    fields = space.protocol.fields.values()
    return {
        "#meta": {
            "format": "ITF",
            "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
            "description": f"{space.protocol.name}: {counterexample.claim} is violated",
            "protocol": space.protocol.name,
            "claim": counterexample.claim,
            "scope": {
                "name": space.scope.name,
                "sizes": dict(space.scope.sizes),
                "faults": space.scope.faults,
                "reason": space.scope.reason,
            },
            "varTypes": {field.name: _field_type(field) for field in fields},
        },
        "params": [],
        "vars": [field.name for field in fields],
        "states": [_state(space, n, instance, state) for n, (instance, state) in enumerate(counterexample.run)],
        **({"loop": counterexample.loop.begins} if counterexample.loop else {}),
    }


def _state(space: Space, number: int, instance: Instance | None, state: State) -> dict[str, Any]:
    meta: dict[str, Any] = {"index": number}
    if instance is not None:
        meta["action"] = instance.action.name
        meta["arguments"] = [_value(p.sort, v) for p, v in zip(instance.action.params, instance.args, strict=True)]
    values = {field.name: _field(space, field, state) for field in space.protocol.fields.values()}
    return {"#meta": meta, **values}


def _field(space: Space, field: Field, state: State) -> object:
    if not field.keys:
        return _value(field.sort, state[space.cell(field, ())])
    return {
        "#map": [
            [_key(field, keys), _value(field.sort, state[space.cell(field, keys)])]
            for keys in itertools.product(*map(range, space.shapes[field.name]))
        ]
    }


def _key(field: Field, keys: tuple[int, ...]) -> object:
    values = [_value(sort, key) for sort, key in zip(field.keys, keys, strict=True)]
    return values[0] if len(values) == 1 else {"#tup": values}


def _value(sort: Sort, value: int) -> object:
    match sort:
        case BoolSort():
            return bool(value)
        case EnumSort(members=members):
            return members[value]
        case IndexSort(name=name):
            return f"{name.lower()} {value}"
        case NaturalSort() | CountSort():
            return {"#bigint": str(value)}
        case MaybeSort(of=of):
            return {"tag": "Some", "value": _value(of, value - 1)} if value else NONE


def _field_type(field: Field) -> str:
    kind = _type(field.sort)
    if not field.keys:
        return kind
    keys = [_type(key) for key in field.keys]
    key = keys[0] if len(keys) == 1 else f"<<{', '.join(keys)}>>"
    return f"({key} -> {kind})"


def _type(sort: Sort) -> str:
    match sort:
        case BoolSort():
            return "Bool"
        case NaturalSort() | CountSort():
            return "Int"
        case EnumSort() | IndexSort():
            return "Str"
        case MaybeSort(of=of):
            return f"Some({_type(of)}) | None(UNIT)"


# Back


def read_itf(text: str, protocol: Protocol, scope: Scope | None = None) -> tuple[Space, Run]:
    """The run that a trace tells, each step replayed by `evaluate`.

    Where a state does not name the action before it, as in traces of other tools, the first step that leads to it is
    taken.

    Args:
        text: the trace, in JSON.
        protocol: the protocol that it is a run of.
        scope: the world that it is in; none: the one that the trace names.

    Raises:
        BadTrace: it is not ITF, or not a run of this protocol.
    """
    try:
        trace = json.loads(text)
    except ValueError as error:
        raise BadTrace(f"not JSON: {error}") from None
    except RecursionError:
        raise BadTrace("not ITF: lists in lists without an end") from None
    states = trace.get("states") if isinstance(trace, dict) else None
    if not isinstance(states, list) or not states:
        raise BadTrace("not an ITF trace: an object with a list of states is needed")
    try:
        space = Space(protocol, scope or _scope(trace))
    except Misuse as error:
        raise BadTrace(f"#meta.scope: {error}") from None
    _check_size(space)
    first = _read_state(space, states[0], "states[0]")
    if first not in space.initial_states():
        raise BadTrace(f"states[0]: not an initial state of {protocol.name}")
    run: list[tuple[Instance | None, State]] = [(None, first)]
    for number, value in enumerate(states[1:], 1):
        where = f"states[{number}]"
        after = _read_state(space, value, where)
        run.append((_step(space, run[-1][1], value, after, where), after))
    _check_loop(trace.get("loop"), run)
    return space, tuple(run)


def _check_loop(loop: object, run: list[tuple[Instance | None, State]]) -> None:
    if loop is None:
        return
    if type(loop) is not int or not 0 <= loop < len(run):
        raise BadTrace(f"loop: {json.dumps(loop)} is not the index of a state, 0 to {len(run) - 1}")
    if run[loop][1] != run[-1][1]:
        raise BadTrace(f"loop: the last state is not states[{loop}] again")


def _scope(trace: dict[str, Any]) -> Scope:
    try:
        given = trace["#meta"]["scope"]
        name, sizes, faults = str(given["name"]), dict(given["sizes"]), given.get("faults")
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadTrace("#meta.scope: names no scope, and none was given") from None
    if not all(type(size) is int for size in sizes.values()) or type(faults) not in (int, type(None)):
        raise BadTrace("#meta.scope: sizes and faults are whole numbers")
    return Scope(name, sizes, str(given.get("reason", "")), faults)


def _check_size(space: Space) -> None:
    """A world that somebody else names is not to be waited for without an end."""
    actions = (space.protocol.initial, *space.protocol.actions.values())
    choices = sum(math.prod(space.scope.cardinality(p.sort) for p in a.params) for a in actions if a is not None)
    values = max((space.scope.cardinality(sort) for sort in space.protocol.sorts), default=0)
    if max(space.cells, choices, values) > LARGEST:
        raise BadTrace(f"#meta.scope: a world with more than {LARGEST:,} cells or choices of a step is not replayed")


def _step(space: Space, before: State, value: dict[str, Any], after: State, where: str) -> Instance:
    meta = value.get("#meta")
    if not isinstance(meta, dict) or "action" not in meta:
        for possible, reached in space.successors(before):
            if reached == after:
                return possible
        raise BadTrace(f"{where}: no action of {space.protocol.name} leads here")
    action = space.protocol.actions.get(str(meta["action"]))
    if action is None:
        raise BadTrace(f"{where}: {space.protocol.name} has no action {str(meta['action'])[:SHOWN]!r}")
    given = meta.get("arguments", [])
    if not isinstance(given, list) or len(given) != len(action.params):
        raise BadTrace(f"{where}: {action.name} takes {len(action.params)} arguments")
    args = tuple(_read(space, p.sort, v, f"{where}.{p.name}") for p, v in zip(action.params, given, strict=True))
    instance = Instance(action, args)
    result = space.step(before, instance)
    if isinstance(result, Refused):
        raise BadTrace(f"{where}: {space.instance_name(instance)} is not possible: {result.value}")
    if result != after:
        cell = next(n for n, (a, b) in enumerate(zip(result, after, strict=True)) if a != b)
        field, name = space.cell_name(cell)
        right, wrong = (space.value_name(field.sort, state[cell]) for state in (result, after))
        raise BadTrace(f"{where}.{name}: {space.instance_name(instance)} makes it {right}, not {wrong}")
    return instance


def _read_state(space: Space, value: object, where: str) -> State:
    if not isinstance(value, dict):
        raise BadTrace(f"{where}: an object is needed")
    state = [0] * space.cells
    for field in space.protocol.fields.values():
        if field.name not in value:
            raise BadTrace(f"{where}: has no {field.name}")
        place = f"{where}.{field.name}"
        for keys, cell in _cells(space, field, value[field.name], place).items():
            state[space.cell(field, keys)] = _read(space, field.sort, cell, place)
    return tuple(state)


def _cells(space: Space, field: Field, value: object, where: str) -> dict[tuple[int, ...], object]:
    if not field.keys:
        return {(): value}
    pairs = value.get("#map") if isinstance(value, dict) else None
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise BadTrace(f"{where}: a #map is needed")
    found: dict[tuple[int, ...], object] = {}
    for key, cell in pairs:
        parts = [key] if len(field.keys) == 1 else key.get("#tup") if isinstance(key, dict) else None
        if not isinstance(parts, list) or len(parts) != len(field.keys):
            raise BadTrace(f"{where}: a key is a #tup of {len(field.keys)}")
        place = tuple(_read(space, s, p, where) for s, p in zip(field.keys, parts, strict=True))
        if place in found:
            raise BadTrace(f"{where}: has {space.cell_name(space.cell(field, place))[1]} twice")
        found[place] = cell
    missing = set(itertools.product(*map(range, space.shapes[field.name]))) - found.keys()
    if missing:
        name = space.cell_name(space.cell(field, min(missing)))[1]
        raise BadTrace(f"{where}: has no {name}")
    return found


def _read(space: Space, sort: Sort, value: object, where: str) -> int:
    if isinstance(sort, NaturalSort) and type(value) is int and 0 <= value < space.scope.cardinality(sort):
        return value
    written = json.dumps(value, sort_keys=True)
    for candidate in range(space.scope.cardinality(sort)):
        if json.dumps(_value(sort, candidate), sort_keys=True) == written:
            return candidate
    shown = written if len(written) <= SHOWN else f"{written[:SHOWN]}..."
    raise BadTrace(f"{where}: {shown} is not a {sort.name} of scope {space.scope.name}")


def violations(space: Space, run: Run) -> dict[str, int]:
    """The properties that a run violates, each with the number of the first step after which it does; 0 is at first."""
    found: dict[str, int] = {}
    for number, (_, state) in enumerate(run):
        for claim in space.protocol.properties.values():
            judged = claim.name not in found and (number > 0 or not claim.stepwise)
            before, after = (run[number - 1][1], state) if claim.stepwise else (state, None)
            if judged and not space.holds(claim.node, before, after):
                found[claim.name] = number
    return found


__all__ = ["BadTrace", "as_itf", "read_itf", "violations"]
