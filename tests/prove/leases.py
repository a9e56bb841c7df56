"""A tiny protocol: one engine at a time holds a lease, of ever growing terms; with its lemmas, and a wrong guard."""

from __future__ import annotations

from spec.lang import (
    Bool,
    Fields,
    Index,
    Map,
    Maybe,
    Natural,
    Protocol,
    Scope,
    Step,
    count,
    each,
    exists,
    field,
    forall,
    when,
)
from spec.lang.lemmas import Lemmas


class Engine(Index):
    """Who may hold the lease."""


class Term(Natural):
    """How often it was granted."""


class State(Fields):
    """The whole state."""

    term: Term = field("the term of the newest grant")
    granted: Maybe[Engine] = field("who has the lease, as the granter knows")
    holds: Map[Engine, Bool] = field("who believes to have it")
    since: Map[Engine, Maybe[Term]] = field("in which term it was granted")


SCOPES = {"small": Scope("small", {"Engine": 2, "Term": 2}, "two engines show the race")}


def build(*, careful: bool = True) -> Protocol:
    """The protocol; where the granter is not `careful` it grants what somebody still holds."""
    leases = Protocol("leases", State, "One engine at a time holds a lease.")

    @leases.initially
    def unheld() -> Step:
        """Nobody has the lease."""
        return when().then(
            term=0, granted=None, holds=each(Engine, lambda e: False), since=each(Engine, lambda e: None)
        )

    @leases.action(by="granter", on="e")
    def grant(s: State, e: Engine) -> Step:
        """An engine gets the lease for the next term."""
        free = s.granted.is_none if careful else True
        return when(free).then(granted=e, term=s.term + 1, since={e: s.term + 1})

    @leases.action(by="e", on="e")
    def take(s: State, e: Engine) -> Step:
        """An engine learns that it has the lease."""
        return when(s.granted == e).then(holds={e: True})

    @leases.action(by="e", on="e")
    def give_back(s: State, e: Engine) -> Step:
        """An engine gives the lease back."""
        return when(s.granted == e).then(holds={e: False}, granted=None)

    @leases.property
    def one_holder(s: State) -> Bool:
        """Two engines never believe to have the lease."""
        return count(Engine, lambda e: s.holds[e]) < 2

    @leases.property
    def granted_once(s: State) -> Bool:
        """A term is that of one engine only."""
        return forall(
            Engine,
            lambda e: forall(Engine, lambda f: (~s.since[e].is_none & (s.since[e] == s.since[f])).implies(e == f)),
        )

    @leases.step_property
    def terms_grow(s: State, t: State) -> Bool:
        """Terms never go back."""
        return s.term <= t.term

    return leases


def lemmas() -> Lemmas:
    """What the proof needs besides."""
    found = Lemmas(build())

    @found.register(
        breaks=("one_holder", "take"), without="Another engine believes to have a lease that was not granted."
    )
    def holders_were_granted(s: State) -> Bool:
        """Who believes to have the lease has it."""
        return forall(Engine, lambda e: s.holds[e].implies(s.granted == e))

    @found.register(breaks=("granted_once", "grant"), without="An engine has the lease of a term that is to come.")
    def terms_are_past(s: State) -> Bool:
        """Nobody has a lease of a term to come."""
        return forall(Engine, lambda e: s.since[e].is_none | exists(Term, lambda v: (v <= s.term) & (s.since[e] == v)))

    found.rest(
        {
            "one_holder": ("holders_were_granted",),
            "granted_once": ("terms_are_past",),
            "terms_grow": (),
            "holders_were_granted": (),
            "terms_are_past": (),
            "no_dead_end": (),
        }
    )
    return found


LEMMAS = lemmas()
