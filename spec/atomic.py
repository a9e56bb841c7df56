"""The ideal: a publication changes what every engine serves, and empties every cache, in one step.

There is one released load, and every engine serves it. Engines do not lag, nothing is paused, there is no record and
no failure but that work may be lost. `spec.refinement` says that what `spec.publication` does looks like this from
outside.

What reuse means here: a prefix can be reused exactly while its entry is there, every entry was made by the weights that
are served, and so a request that reuses one has the KV that it would have had without.
"""

from __future__ import annotations

import enum
from types import MappingProxyType

from spec.lang import (
    Bool,
    Fields,
    Index,
    Map,
    Natural,
    Protocol,
    Relation,
    Scope,
    Step,
    Value,
    all_of,
    each,
    exists,
    field,
    forall,
    ite,
    when,
)
from spec.lang.mutants import Mutants, not_writing


class Engine(Index):
    """A place where requests run."""


class Load(Natural):
    """A load id; 0 is the initial load."""


class Content(Natural):
    """Bytes that weights can have."""


class Request(enum.Enum):
    """The one request that stands for an engine's work."""

    NONE = enum.auto()
    WAITING = enum.auto()
    RUNNING = enum.auto()


class State(Fields):
    """The whole state."""

    sharing: Bool = field("engines keep a prefix cache that requests share")
    restarting: Bool = field("a publication sends what runs back to the queue; else it goes on with the KV it has")
    load: Load = field("the released load")
    served: Content = field("its bytes, which every engine serves")
    request: Map[Engine, Value[Request]] = field("the engine's work")
    kv: Relation[Engine, Content] = field("the weights that made the running request's KV")
    cached: Map[Engine, Bool] = field("an entry can be reused; it was made by the weights that are served")


atomic = Protocol("atomic", State, __doc__)


@atomic.initially
def serving_the_initial_load(sharing: Bool, restarting: Bool, c: Content) -> Step:
    """Every engine serves the initial load; prefixes are shared only where a publication starts requests anew."""
    return when(sharing.implies(restarting)).then(
        sharing=sharing,
        restarting=restarting,
        load=0,
        served=c,
        request=each(Engine, lambda e: Request.NONE),
        kv=each(Engine, Content, lambda e, c: False),
        cached=each(Engine, lambda e: False),
    )


# Requests


@atomic.action(by="client", on="e")
def admit(s: State, e: Engine) -> Step:
    """A request is admitted."""
    return when(s.request[e] == Request.NONE).then(request={e: Request.WAITING})


@atomic.action(by="e", on="e")
def start(s: State, e: Engine, kept: Bool) -> Step:
    """A request starts, on a reused prefix or not: the weights that are served made all of its KV.

    What it adds to the cache is kept, or else what was there is forgotten with it.
    """
    return when(s.request[e] == Request.WAITING).then(
        request={e: Request.RUNNING}, kv={e: each(Content, lambda c: s.served == c)}, cached={e: s.sharing & kept}
    )


@atomic.action(by="e", on="e")
def go_on(s: State, e: Engine) -> Step:
    """A request that was not sent back goes on after a publication, with KV of both loads, and keeps that to itself."""
    return when(s.request[e] == Request.RUNNING, ~s.restarting).then(
        kv={e: each(Content, lambda c: s.kv[e, c] | (s.served == c))}
    )


@atomic.action(by="e", on="e")
def answer(s: State, e: Engine, kept: Bool) -> Step:
    """A request is answered, and its KV can be reused, if it is kept."""
    return when(s.request[e] == Request.RUNNING).then(
        request={e: Request.NONE}, kv={e: each(Content, lambda c: False)}, cached={e: s.sharing & kept}
    )


@atomic.action(by="e", on="f")
def hand_over(s: State, e: Engine, f: Engine) -> Step:
    """What an engine made with the weights that are served can be reused on another."""
    return when(s.sharing, s.request[e] == Request.RUNNING).then(cached={f: True})


# What may always happen


@atomic.action(by="e", on="e")
def forget(s: State, e: Engine) -> Step:
    """An engine forgets its cache."""
    return when().then(cached={e: False})


@atomic.action(by="e", on="e")
def send_back(s: State, e: Engine) -> Step:
    """A request goes back to the queue without its KV."""
    return when(s.request[e] == Request.RUNNING).then(
        request={e: Request.WAITING}, kv={e: each(Content, lambda c: False)}
    )


@atomic.action(by="e", on="e")
def lose(s: State, e: Engine) -> Step:
    """An engine is lost, and its cache: its request is answered with an error."""
    return when().then(request={e: Request.NONE}, kv={e: each(Content, lambda c: False)}, cached={e: False})


@atomic.action(by="operator")
def lose_all(s: State) -> Step:
    """Every engine is lost."""
    return when().then(
        request=each(Engine, lambda e: Request.NONE),
        kv=each(Engine, Content, lambda e, c: False),
        cached=each(Engine, lambda e: False),
    )


# The one step


@atomic.action(by="service")
def publish(s: State, c: Content) -> Step:
    """Every engine serves other bytes, under the next id, and every cache is empty."""
    back = s.restarting
    return when().then(
        load=s.load + 1,
        served=c,
        request=each(Engine, lambda e: ite(back & (s.request[e] == Request.RUNNING), Request.WAITING, s.request[e])),
        kv=each(Engine, Content, lambda e, d: s.kv[e, d] & ~back),
        cached=each(Engine, lambda e: False),
    )


# What is true of it


@atomic.step_property
def reuse_changes_nothing(s: State, t: State) -> Bool:
    """A request starts with KV that the served weights made, and no other, whatever it reuses."""
    return forall(
        Engine,
        lambda e: ((s.request[e] == Request.WAITING) & (t.request[e] == Request.RUNNING)).implies(
            forall(Content, lambda c: t.kv[e, c] == (t.served == c))
        ),
    )


@atomic.property
def requests_are_of_one_load(s: State) -> Bool:
    """Where requests start anew after a publication, none holds KV of two loads."""
    return s.restarting.implies(forall(Engine, lambda e: forall(Content, lambda c: s.kv[e, c].implies(s.served == c))))


@atomic.step_property
def a_publication_empties_caches(s: State, t: State) -> Bool:
    """No entry outlives the load that it was made under."""
    return (t.load != s.load).implies(forall(Engine, lambda e: ~t.cached[e]))


@atomic.goal
def reusable_after_a_publication(s: State) -> Bool:
    """A request waits where it can reuse what the new load made."""
    return (s.load > 0) & exists(Engine, lambda e: s.cached[e] & (s.request[e] == Request.WAITING))


@atomic.goal
def of_two_loads(s: State) -> Bool:
    """A request runs on KV of two loads."""
    return exists(
        Engine,
        lambda e: all_of(s.kv[e, s.served], exists(Content, lambda c: s.kv[e, c] & (s.served != c))),
    )


SHOWN_BY = {
    "reuse_changes_nothing": "reusable_after_a_publication",
    "requests_are_of_one_load": "of_two_loads",
    "a_publication_empties_caches": "reusable_after_a_publication",
}
"""The goal that shows, for each property, that what it speaks of happens."""


SMOKE = Scope(
    "smoke",
    {"Engine": 2, "Load": 2, "Content": 2},
    "two engines and two publications: what the load before last left would be seen",
)
SCOPES = MappingProxyType({scope.name: scope for scope in (SMOKE,)})
"""Every scope by its name."""

MUTANTS = Mutants(atomic)
"""Wrong ideals, each of which a property must notice."""


@MUTANTS.register("a_publication_empties_caches", "M1")
def caches_outlive_publications(p: Protocol) -> None:
    """A publication changes the weights and leaves caches as they are."""
    not_writing(p, "publish", "cached")


@MUTANTS.register("requests_are_of_one_load", "C49")
def requests_outlive_publications(p: Protocol) -> None:
    """A publication changes the weights under requests that run on."""
    not_writing(p, "publish", "request", "kv")


@MUTANTS.register("reuse_changes_nothing", "M1")
def starts_with_what_is_left(p: Protocol) -> None:
    """A request starts with KV of its predecessor."""
    not_writing(p, "start", "kv")
