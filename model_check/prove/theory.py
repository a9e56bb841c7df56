"""What there is to prove: the claims of a protocol with its lemmas, and what a proof by induction owes for each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from model_check.explore import DEAD_END
from model_check.refine import UNNAMED
from spec.lang import Misuse, Protocol
from spec.lang.lemmas import Lemmas
from spec.lang.nodes import And, Exists, Node, Or, Read, walk
from spec.lang.protocol import Action, Property
from spec.lang.refinement import BEGINS, REFINES, Refinement

INITIALLY: Final = "initially"
"""Stands for the action where a claim must hold in the first states."""
EVERYWHERE: Final = "everywhere"
"""Stands for the action where a claim must follow from others in every state."""


@dataclass(frozen=True)
class Theory:
    """A protocol whose properties include its lemmas, and what their proofs rest on.

    `uses` names, for a claim, the others that are assumed; a claim that it does not name assumes every one. Where there
    is a `refinement`, it is claimed as well: of first states (`BEGINS`) and of steps (`REFINES`).
    """

    protocol: Protocol
    lemmas: frozenset[str]
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bounded_only: Mapping[str, str] = field(default_factory=dict)
    refinement: Refinement | None = None

    @classmethod
    def of(cls, protocol: Protocol, lemmas: Lemmas | None = None, refinement: Refinement | None = None) -> Theory:
        """The theory of a protocol, or of a variant of the protocol that the lemmas were declared for."""
        if lemmas is None:
            return cls(protocol, frozenset(), refinement=refinement)
        full = protocol.variant(protocol.name, protocol.doc)
        full.properties |= dict(lemmas)
        return cls(full, frozenset(lemmas), lemmas.uses, lemmas.bounded_only, refinement)

    def without(self, lemmas: Collection[str]) -> Theory:
        """The theory without some of its lemmas."""
        protocol = self.protocol.variant(self.protocol.name, self.protocol.doc)
        for name in lemmas:
            del protocol.properties[name]
        uses = {claim: tuple(n for n in names if n not in lemmas) for claim, names in self.uses.items()}
        return Theory(protocol, self.lemmas - set(lemmas), uses, self.bounded_only, self.refinement)

    @cached_property
    def claims(self) -> dict[str, Property]:
        """Every claim: properties, lemmas, that no state is a dead end, and that the protocol refines its ideal."""
        claims = {**self.protocol.properties, DEAD_END: _no_dead_end(self.protocol)}
        if self.refinement is not None:
            claims[BEGINS] = self.refinement.begins(self.protocol)
            claims[REFINES] = self.refinement.refines(self.protocol)
        return claims

    def owed(self, claim: str, action: str) -> Node:
        """What must hold after the action, or between the states before and after it, its parameters free.

        It is the claim, but where the claim leaves open which step of the ideal is taken: what is named is owed then.
        """
        if self.refinement is not None and claim == BEGINS:
            return self.refinement.owed_at_first()
        if self.refinement is not None and claim == REFINES:
            return self.refinement.owed(self.protocol.actions[action])
        return self.claims[claim].node

    def kind(self, claim: str) -> str:
        """What reports call a claim: property, step property, lemma, dead end or refinement."""
        if claim == DEAD_END:
            return "dead end"
        if claim in (BEGINS, REFINES):
            return UNNAMED
        if claim in self.lemmas:
            return "lemma"
        return "step property" if self.claims[claim].stepwise else "property"

    def assumed(self, claim: str) -> tuple[str, ...]:
        """The claims that hold before a step, for the sake of this one; of one state, it is assumed itself."""
        own = (claim,) if claim in self.invariants else ()
        if claim == BEGINS:
            return ()
        return tuple(dict.fromkeys((*own, *self.uses.get(claim, self.invariants))))

    @cached_property
    def invariants(self) -> tuple[str, ...]:
        """The claims that can be assumed: those about one state."""
        return tuple(name for name, claim in self.protocol.properties.items() if not claim.stepwise)

    def needed(self, claims: Collection[str] | None) -> tuple[str, ...]:
        """The claims, and all that they rest on, in order of declaration; none: every one.

        Raises:
            Misuse: a claim is unknown.
        """
        if claims is None:
            return tuple(self.claims)
        for name in claims:
            if name not in self.claims:
                raise Misuse(f"{self.protocol.name} has no claim {name!r} that could be proved by induction")
        found, open_ = set(claims), list(claims)
        while open_:
            new = set(self.assumed(open_.pop())) - found
            found |= new
            open_ += new
        return tuple(name for name in self.claims if name in found)

    def obligations(self, claim: str) -> Iterator[str]:
        """The actions that must keep a claim, with `INITIALLY` before those, or `EVERYWHERE` instead of them."""
        if claim == DEAD_END:
            yield EVERYWHERE
            return
        if not self.claims[claim].stepwise:
            yield INITIALLY
        if claim != BEGINS:
            yield from self.protocol.actions

    def action(self, name: str) -> Action | None:
        """The action of an obligation; none where there is no step."""
        return (
            None if name == EVERYWHERE else self.protocol.initial if name == INITIALLY else self.protocol.actions[name]
        )

    def unmoved(self, claim: str, action: str) -> bool:
        """The action writes nothing that the claim, if about one state, reads, or that an ideal knows."""
        if action in (INITIALLY, EVERYWHERE):
            return False
        if claim == REFINES and self.refinement is not None:
            return not self.refinement.knows & self.protocol.actions[action].written
        if self.claims[claim].stepwise:
            return False
        return not self._read(claim) & self.protocol.actions[action].written

    def _read(self, claim: str) -> frozenset[str]:
        return frozenset(part.field.name for part in walk(self.claims[claim].node) if isinstance(part, Read))


def _no_dead_end(protocol: Protocol) -> Property:
    """Some action that is no fault is possible, or the state is one of rest."""
    possible: list[Node] = [goal.node for goal in protocol.rest.values()]
    for action in protocol.actions.values():
        if action.kind == "fault":
            continue
        node: Node = And(action.guard)
        for param in reversed(action.params):
            node = Exists(param, node)
        possible.append(node)
    doc = "Where nothing but a fault can happen any more, the protocol says that it may rest."
    return Property(DEAD_END, doc, Or(tuple(possible)), stepwise=False)
