"""Protocols, scopes and mutants by name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reef_ref.cli.trouble import Trouble, unknown
from spec.lang import Misuse, Protocol, Scope
from spec.lang.lemmas import Lemmas


class Mutant(typing.Protocol):
    """A wrong variant of a protocol: the claim that it `breaks`, and each `report` that taught it."""

    @property
    def name(self) -> str:
        """What `--mutant` calls it."""

    @property
    def breaks(self) -> str:
        """The property, recovery or eventuality that must notice."""

    @property
    def report(self) -> tuple[str, ...]:
        """Where it was seen or foretold."""

    @property
    def doc(self) -> str:
        """What is wrong with it."""

    def build(self) -> Protocol:
        """The wrong protocol."""


@dataclass(frozen=True)
class Entry:
    """Where a protocol, its named scopes, its mutants and its lemmas lie, each as ``module:attribute``."""

    protocol: str
    scopes: str
    mutants: str
    lemmas: str


def _in_spec(name: str) -> Entry:
    package = f"spec.{name}"
    return Entry(
        f"{package}:{name}", f"{package}.scopes:SCOPES", f"{package}.mutants:MUTANTS", f"{package}.lemmas:LEMMAS"
    )


PROTOCOLS = {name: _in_spec(name) for name in ("publication", "serving", "adapters")}


@dataclass(frozen=True)
class Asked:
    """What a command line names: a protocol or a mutant of it, in a scope, and the claims to judge (none: all)."""

    protocol: Protocol
    scope: Scope
    only: tuple[str, ...] | None


def judged(protocol: Protocol) -> list[str]:
    """The names that `--property` takes where states and steps are judged."""
    from model_check.explore import DEAD_END

    return [*protocol.properties, *protocol.recoveries, DEAD_END]


def awaited(protocol: Protocol) -> list[str]:
    """The names that `--property` takes where whole runs are judged."""
    return list(protocol.eventualities)


def asked(
    protocol: str,
    scope: str,
    mutant: str | None,
    only: Collection[str] | None,
    *,
    told: bool = False,
    claims: Callable[[Protocol], list[str]] = judged,
) -> Asked:
    """Look everything up.

    Args:
        protocol: its name, or ``module:attribute``.
        scope: its name, or sizes.
        mutant: the name of a wrong variant; none: the protocol itself.
        only: the claims to judge; none: all.
        told: of a mutant, judge the claim that it names where `only` names none, so that its story is told.
        claims: the names of the claims that can be judged.

    Raises:
        Trouble: one of the names is unknown, a protocol cannot be imported, or a mutant breaks what another command
            judges.
    """
    found = find_protocol(protocol)
    world = find_scope(protocol, scope, found)
    if mutant is not None:
        wrong = find_mutant(protocol, mutant)
        found = build_mutant(wrong)
        if told and not only and wrong.breaks in (known := claims(found)):
            only = [wrong.breaks]
        elif told and not only and wrong.breaks in awaited(found):
            raise Trouble(f"mutant {mutant} breaks {wrong.breaks}, which reef-ref liveness judges")
    for name in only or ():
        if name not in (known := claims(found)):
            raise unknown("property", name, known, found.name)
    return Asked(found, world, tuple(only) if only else None)


def find_protocol(name: str) -> Protocol:
    """A protocol by its name or by ``module:attribute``, where the attribute may also be a function that builds it."""
    if name not in PROTOCOLS and ":" not in name:
        raise unknown("protocol", name, PROTOCOLS)
    value = _import(_entry(name).protocol)
    if callable(value) and not isinstance(value, Protocol):
        value = _guarded(f"protocol {name}", value)
    if not isinstance(value, Protocol):
        kind = type(value).__name__
        raise Trouble(f"{name} is a {kind}: a spec.lang.Protocol is needed, or a function that builds one")
    if value.initial is None:
        raise Trouble(f"protocol {name} declares no initial state: decorate one with @{value.name}.initially")
    return value


def _entry(name: str) -> Entry:
    """Where things lie. A module of one's own may have SCOPES and MUTANTS beside the protocol."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    module, _, attribute = name.partition(":")
    if not module or not attribute.isidentifier():
        raise Trouble(f"{name!r} names no protocol: module:attribute is needed")
    # Protocols of one's own lie beside where the command is called, as for `python -m`.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    return Entry(name, f"{module}:SCOPES", f"{module}:MUTANTS", f"{module}:LEMMAS")


def _module(name: str) -> Any:
    return _guarded(f"module {name}", lambda: importlib.import_module(name))


def _import(place: str) -> Any:
    module, _, attribute = place.partition(":")
    value = _module(module)
    if not hasattr(value, attribute):
        raise unknown("attribute", attribute, [n for n in vars(value) if not n.startswith("_")], f"module {module}")
    return getattr(value, attribute)


def _named(place: str) -> dict[str, Any]:
    """Scopes or mutants by name; one's own protocol need have none."""
    module, _, attribute = place.partition(":")
    found = getattr(_module(module), attribute, ())
    things: Iterable[Any] = found.values() if isinstance(found, Mapping) else found
    return {thing.name: thing for thing in things}


def _guarded(what: str, act: Any) -> Any:
    """What somebody else's code answers; whatever it raises is told in one line."""
    try:
        return act()
    except Misuse as error:
        raise Trouble(f"{what}: {error}") from error
    except Exception as error:
        raise Trouble(f"{what}: {type(error).__name__}: {error}") from error


def find_scope(protocol: str, name: str, found: Protocol) -> Scope:
    """A scope by its name, or from sizes: ``Engine=2,Load=1,faults=1``."""
    if "=" in name:
        scope = _sizes(name)
    else:
        scopes = known_scopes(protocol)
        if name not in scopes:
            if not scopes:
                sorts = ",".join(f"{s}=2" for s in _bounded(found))
                raise Trouble(f"{protocol} has no named scopes: give sizes, as in --scope {sorts or 'faults=1'}")
            raise unknown("scope", name, scopes, protocol)
        scope = scopes[name]
    for sort in _bounded(found):
        if sort not in scope.sizes:
            raise Trouble(f"scope {name}: says nothing about {sort}; add {sort}=2")
    return scope


def _bounded(protocol: Protocol) -> list[str]:
    from spec.lang.nodes import IndexSort, NaturalSort

    return [sort.name for sort in protocol.sorts if isinstance(sort, IndexSort | NaturalSort)]


def _sizes(text: str) -> Scope:
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = part.partition("=")
        if not size.strip().isdecimal():
            raise Trouble(f"scope {text!r}: {part!r} is not a size; Engine=2 is")
        sizes[name.strip()] = int(size)
    faults = sizes.pop("faults", None)
    return Scope("custom", sizes, "given on the command line", faults)


def known_scopes(protocol: str) -> Mapping[str, Scope]:
    """The named scopes of a protocol."""
    return _named(_entry(protocol).scopes)


def known_mutants(protocol: str) -> Mapping[str, Mutant]:
    """The named wrong variants of a protocol."""
    return _named(_entry(protocol).mutants)


def known_lemmas(protocol: str) -> Lemmas | None:
    """The lemmas of a protocol, and what its proofs rest on; none where it has none."""
    module, _, attribute = _entry(protocol).lemmas.partition(":")
    if protocol in PROTOCOLS and importlib.util.find_spec(module) is None:
        return None
    found = getattr(_module(module), attribute, None)
    if found is not None and not isinstance(found, Lemmas):
        raise Trouble(f"{module}:{attribute} is a {type(found).__name__}: spec.lang.lemmas.Lemmas is needed")
    return found


def find_mutant(protocol: str, name: str) -> Mutant:
    """A mutant by its name."""
    mutants = known_mutants(protocol)
    if name not in mutants:
        raise unknown("mutant", name, mutants, protocol)
    return mutants[name]


def build_mutant(mutant: Mutant) -> Protocol:
    """The wrong protocol of a mutant.

    Raises:
        Trouble: it cannot be built.
    """
    built = _guarded(f"mutant {mutant.name}", mutant.build)
    assert isinstance(built, Protocol)
    return built


__all__ = [
    "PROTOCOLS",
    "Asked",
    "Mutant",
    "asked",
    "awaited",
    "build_mutant",
    "find_mutant",
    "find_protocol",
    "find_scope",
    "judged",
    "known_lemmas",
    "known_mutants",
    "known_scopes",
]
