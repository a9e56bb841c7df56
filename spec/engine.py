"""The engine that the publication protocol assumes: what its actions say about one engine, and nothing else.

`spec.publication` tells an engine to pause, flush, release, receive, resume and continue, and has one request stand for
its work. This is that engine alone, with as many requests as one likes, and with a driver that may send anything:
`spec.refinement` holds the engine from inside, `spec.serving`, to it.

Three steps are more than `spec.publication` has, where one request stands for all: KV enters the tree late, an engine
short of memory sends a request back, a request that waits is ended. A test adds them there, and no claim notices but
the one that says they are not taken. `spec.publication` assumes a `backup`: a rejection brings memory back and sends
nothing.
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
    ghost,
    ite,
    when,
)
from spec.lang.mutants import Mutants, not_asking, not_writing


class Request(Index):
    """A request, or a place for one."""


class Load(Natural):
    """A load and its bytes; 0 is what no load made: what a torn transfer leaves, and memory that came back."""


UNLOADED = 0
INITIAL = 1


class Work(enum.Enum):
    """Where a request is."""

    NONE = enum.auto()
    WAITING = enum.auto()
    RUNNING = enum.auto()


class State(Fields):
    """The whole state."""

    retracting: Bool = field("a pause sends requests back to the queue; else it freezes them where they are")
    sharing: Bool = field("there is a prefix tree that requests share")
    backup: Bool = field("a copy of the weights is kept while their memory is released")

    paused: Bool = field("does not schedule")
    weights: Load = field("the bytes of its weights")
    label: Load = field("the load that it reports")
    weights_out: Bool = field("the memory of its weights is released")
    kv_out: Bool = field("the memory of its KV is released")
    work: Map[Request, Value[Work]] = field("where the request is")
    cached: Bool = field("the tree holds an entry")

    kv: Relation[Request, Load] = ghost("the weights that made the running request's KV")
    made_by: Map[Load, Bool] = ghost("the weights that made the entries of the tree")


engine = Protocol("engine", State, __doc__)


@engine.initially
def serving_the_initial_load(retracting: Bool, sharing: Bool, backup: Bool) -> Step:
    """The engine serves the initial load; a tree is shared only where a pause retracts."""
    return when(sharing.implies(retracting)).then(
        retracting=retracting,
        sharing=sharing,
        backup=backup,
        paused=False,
        weights=INITIAL,
        label=INITIAL,
        weights_out=False,
        kv_out=False,
        work=each(Request, lambda r: Work.NONE),
        cached=False,
        kv=each(Request, Load, lambda r, v: False),
        made_by=each(Load, lambda v: False),
    )


# Requests


@engine.action(by="client", on="r")
def admit(s: State, r: Request) -> Step:
    """A request comes."""
    return when(s.work[r] == Work.NONE).then(work={r: Work.WAITING})


@engine.action(by="engine", on="r")
def start(s: State, r: Request) -> Step:
    """A request starts without a hit."""
    return when(s.work[r] == Work.WAITING, ~s.paused).then(
        work={r: Work.RUNNING}, kv={r: each(Load, lambda v: s.weights == v)}
    )


@engine.action(by="engine", on="r")
def start_on_hit(s: State, r: Request) -> Step:
    """A request starts on a cached prefix: what made the prefix is in its KV."""
    return when(s.work[r] == Work.WAITING, ~s.paused, s.cached).then(
        work={r: Work.RUNNING}, kv={r: each(Load, lambda v: s.made_by[v] | (s.weights == v))}
    )


@engine.action(by="engine", on="r")
def run_on(s: State, r: Request) -> Step:
    """A request goes on: the weights that are there make more of its KV."""
    return when(s.work[r] == Work.RUNNING, ~s.paused).then(kv={r: each(Load, lambda v: s.kv[r, v] | (s.weights == v))})


def runs_or_drains(s: State, r: Request) -> Bool:
    """The request runs; or the pause retracts, and takes in what ran ahead first."""
    return (s.work[r] == Work.RUNNING) & (~s.paused | s.retracting)


def inserted(s: State, r: Request) -> dict[str, object]:
    """The request's KV is in the tree."""
    return {
        "cached": s.cached | s.sharing,
        "made_by": each(Load, lambda v: s.made_by[v] | (s.sharing & s.kv[r, v])),
    }


@engine.action(by="engine", on="r")
def finish(s: State, r: Request) -> Step:
    """A request is answered, and all of its KV enters the tree."""
    return when(runs_or_drains(s, r)).then(work={r: Work.NONE}, kv={r: each(Load, lambda v: False)}, **inserted(s, r))


@engine.action(by="engine", on="r")
def retract(s: State, r: Request) -> Step:
    """A pause sends a request back to the queue without its KV. What the tree owns stays in the tree."""
    return when(s.work[r] == Work.RUNNING, s.paused, s.retracting).then(
        work={r: Work.WAITING}, kv={r: each(Load, lambda v: False)}
    )


# More than the publication protocol has


@engine.action(by="engine", on="r")
def insert(s: State, r: Request) -> Step:
    """KV enters the tree while its request runs, or is drained. There, it does so when the request starts."""
    return when(runs_or_drains(s, r)).then(**inserted(s, r))


@engine.action(by="engine", on="r")
def preempt(s: State, r: Request) -> Step:
    """Memory is short, and a request goes back to the queue without its KV. There, only a pause sends one back."""
    return when(s.work[r] == Work.RUNNING, ~s.paused).then(work={r: Work.WAITING}, kv={r: each(Load, lambda v: False)})


@engine.action(by="engine", on="r")
def give_up(s: State, r: Request) -> Step:
    """A request that waits is ended with an error. There, one waits until it starts or its engine is gone."""
    return when(s.work[r] == Work.WAITING).then(work={r: Work.NONE})


# What a publication asks for


@engine.action(by="driver")
def pause(s: State) -> Step:
    """The engine stops scheduling."""
    return when(~s.paused).then(paused=True)


def nobody_runs(s: State) -> Bool:
    """No request holds KV."""
    return forall(Request, lambda r: s.work[r] != Work.RUNNING)


def empty_tree() -> dict[str, object]:
    """The tree holds nothing."""
    return {"cached": False, "made_by": each(Load, lambda v: False)}


@engine.action(by="driver")
def flush(s: State) -> Step:
    """The tree is emptied, if no request holds KV. A publication asks for it behind a pause; here anybody may."""
    return when(nobody_runs(s)).then(**empty_tree())


@engine.action(by="driver")
def release(s: State, weights_too: Bool) -> Step:
    """The memory of the KV goes, perhaps that of the weights, and what was in it: weights are lost without a copy."""
    return when(s.paused, nobody_runs(s)).then(
        kv_out=True,
        weights_out=s.weights_out | weights_too,
        weights=ite(~weights_too | s.backup, s.weights, UNLOADED),
        **empty_tree(),
    )


@engine.action(by="driver")
def resume_weights(s: State) -> Step:
    """The memory of the weights is there again."""
    return when(s.weights_out).then(weights_out=False)


@engine.action(by="driver")
def resume_kv(s: State) -> Step:
    """The memory of the KV is there again."""
    return when(s.kv_out).then(kv_out=False)


def can_receive(s: State) -> Bool:
    """The engine is paused and has memory for weights; where a pause retracts, the flush is done and holds."""
    return all_of(s.paused, ~s.weights_out, ~s.retracting | (nobody_runs(s) & ~s.cached))


@engine.action(by="driver")
def receive(s: State, v: Load) -> Step:
    """The engine receives a load, and then its label."""
    return when(can_receive(s)).then(weights=v, label=v)


@engine.action(by="driver")
def tear(s: State) -> Step:
    """Some of a load has arrived, and no label."""
    return when(can_receive(s)).then(weights=UNLOADED)


@engine.action(by="driver")
def continue_generation(s: State) -> Step:
    """The engine schedules again."""
    return when(s.paused).then(paused=False)


# What follows from it


@engine.property
def retracting_keeps_kv_pure(s: State) -> Bool:
    """Where a pause retracts, no request and no entry outlives the weights that made it (S1, S4)."""
    mixed = exists(Load, lambda v: (s.weights != v) & (s.made_by[v] | exists(Request, lambda r: s.kv[r, v])))
    return s.retracting.implies(~mixed)


@engine.goal
def reusable_after_a_publication(s: State) -> Bool:
    """A request waits where another load's entry can be reused."""
    return all_of(s.weights != INITIAL, s.cached, ~s.paused, exists(Request, lambda r: s.work[r] == Work.WAITING))


SMOKE = Scope("smoke", {"Request": 2, "Load": 3}, "two requests share a tree, and one more load than the first comes")
SCOPES = MappingProxyType({scope.name: scope for scope in (SMOKE,)})
"""Every scope by its name."""

MUTANTS = Mutants(engine)
"""Wrong engines, which the property must notice."""


@MUTANTS.register("retracting_keeps_kv_pure", "M1")
def flush_empties_nothing(p: Protocol) -> None:
    """A flush answers success, and the tree stays; nobody asks it when bytes arrive."""
    not_writing(p, "flush", "cached", "made_by")
    for action in ("receive", "tear"):
        not_asking(p, action, "cached")
