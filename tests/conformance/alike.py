"""When two deployments at rest are the same but for their past: whatever follows in one follows in the other.

What a deployment is, is read from its objects, all that can be reached from it, so that nothing can be forgotten. Left
out is what is past (what was told, which points were reached, when), and who listens. Times are told from now.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Hashable, Iterator
from enum import Enum
from pathlib import Path
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from reef_ref import events
from reef_ref.engines.simulated import Plan, SimulatedDisk
from reef_ref.monitor.validate import Validator
from tests.conformance.world import Checkpoints, World

PAST = frozenset(
    (
        *("lines", "clients", "made", "history", "_names", "_clock", "_start", "_epoch", "_answers"),
        *("rests", "judged", "attempts"),
    )
)
"""Attributes that only what is past has a use for, or that nobody has a use for while nothing is under way.

`made` has the engines of before beside those in slots; `_names` gives requests names. `_epoch` is compared with what it
was when the health monitor began to look, which it does not do at rest. `_answers` are whom to tell; see `at_rest`.
"""
PLAIN = (int, str, bytes, float, bool, type(None), Enum, Path)
LISTENERS = (events.Teller, Plan, Checkpoints, asyncio.AbstractEventLoop, type(itertools.count()))


def at_rest(world: World) -> Hashable:
    """What a deployment is between two calls of its service; nothing, while a request is under way."""
    if any(not task.done() for _, task in world.clients):
        return None
    loop = asyncio.get_running_loop()
    timers = sorted(round(timer.when() - loop.time(), 9) for timer in loop._scheduled if not timer.cancelled())  # type: ignore[attr-defined]
    return tuple(timers), described(world, loop.time())


def explained(validator: Validator) -> Hashable:
    """What the protocol holds possible after what was told, and what names mean to it."""
    explainer, reader = validator.explainer, validator.reader
    boxes = frozenset(explainer.boxes.explicit(explainer.possible))
    names = (tuple(sorted(reader.names.loads.items())), tuple(sorted(reader.names.contents.items())))
    return validator.explainer.verdict, boxes, names, reader._fresh, reader._going_on


def described(root: object, now: float) -> Hashable:
    """An object and all that can be reached from it, each told once and referred to by number from then on."""
    numbers: dict[int, int] = {}
    kept: list[object] = []

    def tell(thing: Any) -> Hashable:
        if isinstance(thing, PLAIN):
            return thing
        if isinstance(thing, LISTENERS):
            return type(thing).__name__
        if isinstance(thing, FunctionType | BuiltinMethodType | type):
            return thing.__qualname__
        if isinstance(thing, MethodType):
            return thing.__func__.__qualname__, tell(thing.__self__)
        if isinstance(thing, asyncio.Future):
            return "done" if thing.done() else "under way"
        if isinstance(thing, asyncio.Lock):
            assert not thing.locked(), thing
            return "free"
        if isinstance(thing, frozenset | set):
            return frozenset(map(tell, thing))
        if isinstance(thing, tuple):
            return tuple(map(tell, thing))
        number = numbers.get(id(thing))
        if number is not None:
            return "again", number
        numbers[id(thing)] = len(numbers)
        kept.append(thing)
        if isinstance(thing, dict):
            return "dict", tuple((tell(key), tell(value)) for key, value in thing.items())
        if isinstance(thing, list | deque):
            return "list", tuple(map(tell, thing))
        if isinstance(thing, SimulatedDisk):
            return "disk", thing.data, max(0.0, round(thing._free_at - now, 9))
        return type(thing).__name__, tuple((name, tell(value)) for name, value in attributes(thing))

    return tell(root)


def attributes(thing: object) -> Iterator[tuple[str, object]]:
    """The attributes of an object that are not past."""
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in sorted({*getattr(thing, "__dict__", {}), *slots} - PAST):
        if hasattr(thing, name) and not name.startswith("__"):
            yield name, getattr(thing, name)


__all__ = ["at_rest", "described", "explained"]
