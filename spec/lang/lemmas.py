"""Lemmas: what else is true in every reachable state, declared for the sake of a proof by induction.

An induction looks at one step from *any* state that keeps the properties, reachable or not. A lemma rules out the
unreachable states in which a property would not be kept. It is a property like any other, proved like any other, and
explored like any other; only users of the protocol need not know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from spec.lang.protocol import Property, Protocol
from spec.lang.terms import Bool, Misuse

Declared = TypeVar("Declared", bound=Callable[[Any], Bool])


class Lemmas(Mapping[str, Property]):
    """The lemmas of a protocol by name, in the order in which they are declared, and why each is there."""

    def __init__(self, protocol: Protocol) -> None:
        self._beside = protocol.variant(f"{protocol.name} with lemmas", protocol.doc)
        self._found: dict[str, Property] = {}
        self.without: dict[str, str] = {}

    def __getitem__(self, name: str) -> Property:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def register(self, *, without: str) -> Callable[[Declared], Declared]:
        """Declare a lemma: ``(s) -> Bool``. Its name is the function's, its meaning the docstring.

        Args:
            without: the step from an unreachable state that made it needed, in a sentence.
        """
        if not without:
            raise Misuse("a lemma says which counterexample demanded it")

        def register(fn: Declared) -> Declared:
            self._beside.property(fn)
            self._found[fn.__name__] = self._beside.properties[fn.__name__]
            self.without[fn.__name__] = without
            return fn

        return register
