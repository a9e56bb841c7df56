"""The common benchmark model in the language of this project: N engines, R requests, V loads.

Two deliberate bugs: 1, a failed flush may be ignored; 2, a pause keeps in-flight requests.
"""

from __future__ import annotations

import enum

from spec.lang import (
    Bool,
    Fields,
    Index,
    Map,
    Maybe,
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


class Engine(Index):
    """An engine."""


class Request(Index):
    """A request."""


class Load(Natural):
    """A load, counted from 0."""


class Phase(enum.Enum):
    """What the publisher is doing."""

    IDLE = enum.auto()
    PAUSE = enum.auto()
    FLUSH = enum.auto()
    UPDATE = enum.auto()
    RESUME = enum.auto()
    REBUILD = enum.auto()


class Status(enum.Enum):
    """Where a request stands."""

    WAIT = enum.auto()
    RUN = enum.auto()
    DONE = enum.auto()


class State(Fields):
    """The whole state."""

    target: Load = field("the load being published, or published last")
    phase: Value[Phase] = field("what the publisher is doing")
    done: Map[Engine, Bool] = field("has finished the current phase")
    weights: Map[Engine, Load] = field("the load of its weights")
    cache: Map[Engine, Maybe[Load]] = field("the load that made its cache entry")
    paused: Map[Engine, Bool] = field("is paused")
    status: Map[Request, Value[Status]] = field("where it stands")
    at: Map[Request, Maybe[Engine]] = field("the engine it was routed to")
    kv: Relation[Request, Load] = field("the loads that made its KV")


def build(bug: int = 0) -> Protocol:
    """The protocol, right or with one of the two bugs."""
    model = Protocol(f"pubmodel-bug{bug}" if bug else "pubmodel", State, __doc__)

    def through(s: State, e: Engine, phase: Phase, following: Phase) -> tuple[Bool, dict[str, object]]:
        last = forall(Engine, lambda f: (f == e) | s.done[f])
        return all_of(s.phase == phase, ~s.done[e]), {
            "phase": ite(last, following, s.phase),
            "done": each(Engine, lambda f: ~last & (s.done[f] | (f == e))),
        }

    @model.initially
    def start() -> Step:
        """Everything serves load 0."""
        return when().then(
            target=0,
            phase=Phase.IDLE,
            done=each(Engine, lambda e: False),
            weights=each(Engine, lambda e: 0),
            cache=each(Engine, lambda e: None),
            paused=each(Engine, lambda e: False),
            status=each(Request, lambda r: Status.WAIT),
            at=each(Request, lambda r: None),
            kv=each(Request, Load, lambda r, v: False),
        )

    @model.action(by="router", on="e")
    def route(s: State, r: Request, e: Engine) -> Step:
        """A waiting request is given to an engine."""
        return when(s.status[r] == Status.WAIT, s.at[r].is_none).then(at={r: e})

    @model.action(by="e", on="e")
    def admit(s: State, r: Request, e: Engine) -> Step:
        """An engine starts a request, on its cache entry if it has one."""
        return when(s.status[r] == Status.WAIT, s.at[r] == e, ~s.paused[e]).then(
            status={r: Status.RUN}, kv={r: each(Load, lambda v: (s.weights[e] == v) | (s.cache[e] == v))}
        )

    @model.action(by="e", on="e")
    def insert(s: State, r: Request, e: Engine, v: Load) -> Step:
        """A running request's KV enters the empty cache, under the least load that made it."""
        return when(
            s.status[r] == Status.RUN,
            s.at[r] == e,
            ~s.paused[e],
            s.cache[e].is_none,
            s.kv[r, v],
            forall(Load, lambda w: (w < v).implies(~s.kv[r, w])),
        ).then(cache={e: v})

    @model.action(by="e", on="e")
    def finish(s: State, r: Request, e: Engine) -> Step:
        """A request is done."""
        return when(s.status[r] == Status.RUN, s.at[r] == e, ~s.paused[e]).then(
            status={r: Status.DONE}, at={r: None}, kv={r: each(Load, lambda v: False)}
        )

    @model.action(by="e", on="e")
    def evict(s: State, e: Engine) -> Step:
        """The cache entry goes."""
        return when(~s.cache[e].is_none, ~s.paused[e]).then(cache={e: None})

    @model.action(by="publisher")
    def begin(s: State) -> Step:
        """A publication starts."""
        return when(s.phase == Phase.IDLE).then(
            target=s.target + 1, phase=Phase.PAUSE, done=each(Engine, lambda f: False)
        )

    @model.action(by="publisher", on="e")
    def pause(s: State, e: Engine) -> Step:
        """An engine is paused; its running requests wait again and lose their KV."""
        guard, updates = through(s, e, Phase.PAUSE, Phase.FLUSH)
        if bug == 2:
            return when(guard).then(paused={e: True}, **updates)
        return when(guard).then(
            paused={e: True},
            status=each(
                Request,
                lambda r: ite((s.status[r] == Status.RUN) & (s.at[r] == e), Status.WAIT, s.status[r]),
            ),
            kv=each(Request, Load, lambda r, v: s.kv[r, v] & ~((s.status[r] == Status.RUN) & (s.at[r] == e))),
            **updates,
        )

    @model.action(by="publisher", on="e")
    def flush(s: State, e: Engine) -> Step:
        """An engine's cache is emptied."""
        guard, updates = through(s, e, Phase.FLUSH, Phase.UPDATE)
        return when(guard).then(cache={e: None}, **updates)

    if bug == 1:

        @model.action(by="publisher", on="e")
        def flush_lost(s: State, e: Engine) -> Step:
            """A refused flush is taken for a done one."""
            guard, updates = through(s, e, Phase.FLUSH, Phase.UPDATE)
            return when(guard).then(**updates)

    @model.action(by="publisher", on="e")
    def update(s: State, e: Engine) -> Step:
        """An engine receives the weights."""
        guard, updates = through(s, e, Phase.UPDATE, Phase.RESUME)
        return when(guard).then(weights={e: s.target}, **updates)

    @model.action(by="publisher", on="e")
    def resume(s: State, e: Engine) -> Step:
        """An engine goes on."""
        guard, updates = through(s, e, Phase.RESUME, Phase.IDLE)
        return when(guard).then(paused={e: False}, **updates)

    @model.action(by="publisher", on="e")
    def rebuild(s: State, e: Engine) -> Step:
        """A retired engine comes back on the target."""
        guard, updates = through(s, e, Phase.REBUILD, Phase.RESUME)
        return when(guard).then(weights={e: s.target}, **updates)

    @model.action(by="environment")
    def fail(s: State) -> Step:
        """Anything breaks; every engine is retired, every unfinished request waits again."""
        return when(s.phase != Phase.IDLE, s.phase != Phase.REBUILD).then(
            phase=Phase.REBUILD,
            done=each(Engine, lambda e: False),
            paused=each(Engine, lambda e: True),
            cache=each(Engine, lambda e: None),
            status=each(Request, lambda r: ite(s.status[r] == Status.DONE, s.status[r], Status.WAIT)),
            at=each(Request, lambda r: None),
            kv=each(Request, Load, lambda r, v: False),
        )

    @model.property
    def cache_fresh(s: State) -> Bool:
        """A running engine's cache was made by its weights."""
        return forall(Engine, lambda e: s.paused[e] | s.cache[e].is_none | (s.cache[e] == s.weights[e]))

    @model.property
    def kv_fresh(s: State) -> Bool:
        """A running request's KV was made by the weights it runs on."""
        return forall(
            Request,
            lambda r: (s.status[r] == Status.RUN).implies(
                s.paused.get(s.at[r], True)
                | forall(
                    Load, lambda v: s.kv[r, v].implies(exists(Engine, lambda e: (s.at[r] == e) & (s.weights[e] == v)))
                )
            ),
        )

    @model.may_rest
    def anywhere(s: State) -> Bool:
        """The model has no deadlock to look for."""
        return all_of()

    return model


def scope(engines: int, requests: int, loads: int) -> Scope:
    """The world of the tables: loads 0 to V - 1."""
    return Scope(
        f"{engines},{requests},{loads}",
        {"Engine": engines, "Request": requests, "Load": loads - 1},
        "as the published counts",
    )


__all__ = ["build", "scope"]
