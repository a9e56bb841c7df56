"""The words of a specification: its functions over the state that stand for an expression, and where one is meant.

A tree no longer knows that a part of it came from ``live(s, e)``. A reader who writes for people finds the word again
by comparing trees, so that a word is never said where something else is meant.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import ModuleType
from typing import Any, get_type_hints

from spec.lang.nodes import (
    Count,
    Exists,
    Forall,
    Node,
    Read,
    Var,
    children,
    conjuncts,
    renamed,
    sort_of,
    walk,
)
from spec.lang.protocol import Protocol
from spec.lang.terms import Misuse, Term, key_sort, term_of


@dataclass(frozen=True)
class Definition:
    """A named expression. One with `across` speaks of the states before and after a step."""

    name: str
    doc: str
    params: tuple[Var, ...]
    node: Node
    across: bool

    @cached_property
    def parts(self) -> tuple[Node, ...]:
        """Its conjuncts, if it is a conjunction, else itself."""
        return conjuncts(self.node)

    @cached_property
    def size(self) -> int:
        """How many nodes it has: a definition only ever contains smaller ones."""
        return sum(1 for _ in walk(self.node))


@dataclass(frozen=True)
class Use:
    """A definition with what stands for its parameters, said of the state after a step if `after`."""

    definition: Definition
    args: tuple[Node, ...]
    after: bool


def definitions(protocol: Protocol) -> tuple[Definition, ...]:
    """The named expressions in the modules of a protocol, the larger ones first.

    Its modules are the one of its state, and those that the package around that exports: what else is imported, such as
    wrong variants, says nothing of it. The expressions are the functions that take its state, perhaps the state after a
    step, and elements of sorts, and answer a symbol.
    """
    found: dict[str, Definition] = {}
    for module in _modules(protocol):
        for name, value in vars(module).items():
            own = inspect.isfunction(value) and value.__module__ == module.__name__ and value.__name__ == name
            if own and name not in found and (traced := _traced(protocol, value)) is not None:
                found[name] = traced
    return tuple(sorted(found.values(), key=lambda d: (-d.size, d.name)))


def _modules(protocol: Protocol) -> Iterator[ModuleType]:
    place = protocol.state.__module__
    yield sys.modules[place]
    package = sys.modules.get(place.rpartition(".")[0])
    for name in getattr(package, "__all__", ()):
        part = getattr(package, name)
        if isinstance(part, ModuleType) and part.__name__ != place:
            yield part


def _traced(protocol: Protocol, fn: Callable[..., Any]) -> Definition | None:
    """What a function means, where it is a named expression of this protocol."""
    tables = (protocol.actions, protocol.properties, protocol.recoveries, protocol.goals, protocol.rest)
    if any(fn.__name__ in table for table in tables) or not fn.__doc__:
        return None
    try:
        hints = get_type_hints(fn)
        names = list(inspect.signature(fn).parameters)
        states = [name for name in names if hints.get(name) is protocol.state]
        if not states or names[: len(states)] != states or len(states) > 2:
            return None
        params = tuple(Var(key_sort(hints[name]), name) for name in names[len(states) :])
        symbols = [protocol.symbols(after=bool(number)) for number in range(len(states))]
        answer = fn(*symbols, *(term_of(param) for param in params))
    except (Misuse, NameError, KeyError, TypeError, ValueError, AttributeError, StopIteration):
        return None
    if not isinstance(answer, Term) or not any(isinstance(part, Read) for part in walk(answer.node)):
        return None
    node = renamed(answer.node, {param: param for param in params})
    if {part for part in walk(node) if isinstance(part, Var)}.issuperset(params):
        return Definition(fn.__name__, " ".join(fn.__doc__.split()), params, node, len(states) == 2)
    return None


class Words:
    """Finds where the definitions of a protocol are meant."""

    def __init__(self, known: Sequence[Definition]) -> None:
        self.known = tuple(known)

    def smaller(self, than: Definition) -> Words:
        """The words that may be used to say what another means."""
        return Words([d for d in self.known if d.size < than.size])

    def use(self, node: Node) -> Use | None:
        """The largest definition that a node is an instance of."""
        return next((use for d in self.known if (use := _instance(d, (d.node,), (node,)))), None)

    def uses(self, parts: Sequence[Node]) -> list[Node | Use]:
        """The parts of a conjunction, with runs of them that a definition says put together."""
        result: list[Node | Use] = []
        position = 0
        while position < len(parts):
            for definition in self.known:
                length = len(definition.parts)
                if 1 < length <= len(parts) - position:
                    run = tuple(parts[position : position + length])
                    if use := _instance(definition, definition.parts, run):
                        result.append(use)
                        position += length
                        break
            else:
                result.append(parts[position])
                position += 1
        return result


def _instance(definition: Definition, wanted: tuple[Node, ...], found: tuple[Node, ...]) -> Use | None:
    """The use of a definition that gives these nodes, if there is one."""
    for after in (False,) if definition.across else (False, True):
        matching = _Matching(definition, after)
        if all(matching.match(a, b, {}) for a, b in zip(wanted, found, strict=True)):
            args = tuple(matching.bound[param] for param in definition.params)
            # Of the state after a step, only what is no part of the state can be said beside the word.
            if not after or not any(isinstance(part, Read) for arg in args for part in walk(arg)):
                return Use(definition, args, after)
    return None


class _Matching:
    def __init__(self, definition: Definition, after: bool) -> None:
        self.params = frozenset(definition.params)
        self.after = after
        self.bound: dict[Var, Node] = {}

    def match(self, wanted: Node, found: Node, inner: Mapping[Var, Var]) -> bool:
        """Whether the second node is the first one with something in place of each parameter."""
        if isinstance(wanted, Var):
            if wanted in inner:
                return found == inner[wanted]
            return self._bind(wanted, found, inner) if wanted in self.params else wanted == found
        if type(wanted) is not type(found):
            return False
        match wanted, found:
            case Read(), Read():
                if wanted.field != found.field or found.after != (wanted.after or self.after):
                    return False
            case ((Forall() | Exists() | Count()), (Forall() | Exists() | Count())):
                if wanted.var.sort != found.var.sort:
                    return False
                return self.match(wanted.body, found.body, {**inner, wanted.var: found.var})
            case _:
                if _label(wanted) != _label(found):
                    return False
        ours, theirs = list(children(wanted)), list(children(found))
        return len(ours) == len(theirs) and all(self.match(a, b, inner) for a, b in zip(ours, theirs, strict=True))

    def _bind(self, param: Var, found: Node, inner: Mapping[Var, Var]) -> bool:
        if sort_of(found) != param.sort or any(part in inner.values() for part in walk(found) if isinstance(part, Var)):
            return False
        return self.bound.setdefault(param, found) == found


def _label(node: Node) -> tuple[object, ...]:
    """What a node says beside the nodes below it, and how many of those each part has."""
    return tuple(
        len(value) if isinstance(value, tuple) else isinstance(value, Node) or value
        for value in (getattr(node, part.name) for part in fields(node))
    )


__all__ = ["Definition", "Use", "Words", "definitions"]
