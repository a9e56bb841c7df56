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
    """The lemmas of a protocol by name, in order of declaration, and what the proof of each claim rests on.

    `demanded_by` says which obligation fails without a lemma, as a claim and an action, and how. `uses` names, for a
    claim, the other claims that are assumed before a step; a claim that is not named there assumes all of them.
    `bounded_only` names the claims that are not proved, with the reason.
    """

    def __init__(self, protocol: Protocol) -> None:
        self._beside = protocol.variant(f"{protocol.name} with lemmas", protocol.doc)
        self._found: dict[str, Property] = {}
        self.demanded_by: dict[str, tuple[str, str, str]] = {}
        self.uses: dict[str, tuple[str, ...]] = {}
        self.bounded_only: dict[str, str] = {}

    def __getitem__(self, name: str) -> Property:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def register(self, *, breaks: tuple[str, str], without: str) -> Callable[[Declared], Declared]:
        """Declare a lemma: ``(s) -> Bool``. Its name is the function's, its meaning the docstring.

        Args:
            breaks: a claim, and an action that would break it.
            without: that step, from a state that is unreachable: the counterexample that demanded the lemma.
        """

        def register(fn: Declared) -> Declared:
            self._beside.property(fn)
            self._found[fn.__name__] = self._beside.properties[fn.__name__]
            self.demanded_by[fn.__name__] = (*breaks, " ".join(without.split()))
            return fn

        return register

    def rest(self, uses: Mapping[str, tuple[str, ...]]) -> None:
        """Say which other claims the proof of each claim assumes.

        Raises:
            Misuse: a name is none of a property or lemma, or names a claim about a step, which cannot be assumed.
        """
        known = self._beside.properties
        for claim, names in uses.items():
            for name in names:
                if name not in known or known[name].stepwise:
                    raise Misuse(f"{self._beside.name}: {claim} rests on {name}, which is no property of one state")
        self.uses.update(uses)

    def only_bounded(self, claims: Mapping[str, str]) -> None:
        """Say which claims are not proved for worlds of every size, and why."""
        self.bounded_only.update(claims)
