"""How the publication protocol looks from outside: its ideal, in which a publication is one step."""

from __future__ import annotations

from spec.atomic import atomic
from spec.lang import Bool, Value, forall
from spec.lang.refinement import Refinement
from spec.publication import publication
from spec.publication.properties import committed_content
from spec.publication.state import Content, Engine, Load, Mode, Request, State, generates

publication_is_atomic = Refinement(
    publication,
    atomic,
    """From outside, a publication changes the weights of every engine and empties every cache in one step: when the
    service moves its head.""",
)


@publication_is_atomic.field
def sharing(s: State) -> Bool:
    """Configured."""
    return s.sharing


@publication_is_atomic.field
def restarting(s: State) -> Bool:
    """Configured: a pause that retracts."""
    return s.mode == Mode.RETRACT


@publication_is_atomic.field
def load(s: State) -> Load:
    """The service's head, and not what engines report: it moves in one step."""
    return s.head


@publication_is_atomic.field
def served(s: State) -> Content:
    """The bytes of the head's load, by the record."""
    return committed_content(s)


@publication_is_atomic.field
def request(s: State, e: Engine) -> Value[Request]:
    """As it is."""
    return s.request[e]


@publication_is_atomic.field
def kv(s: State, e: Engine, c: Content) -> Bool:
    """What made the KV, and, where the engine generates, what makes more of it now."""
    return s.kv[e, c] | (generates(s, e) & (s.weights[e] == c))


@publication_is_atomic.field
def cached(s: State, e: Engine) -> Bool:
    """There is an entry, and nothing made it but what is served: what anything else made is no entry to the ideal."""
    return s.cached[e] & forall(Content, lambda c: s.made_by[e, c].implies(committed_content(s) == c))
