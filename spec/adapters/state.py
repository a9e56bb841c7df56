"""What there is: engines with slots for adapters, the coordinator's books over them, and a durable record."""

from __future__ import annotations

import enum

from spec.lang import (
    Bool,
    Fields,
    Index,
    Map,
    Map2,
    Maybe,
    Protocol,
    Relation,
    Step,
    Value,
    each,
    exists,
    field,
    forall,
    ghost,
    ite,
    when,
)


class Engine(Index):
    """An engine."""


class Scenario(Index):
    """A task that is trained by itself, and has an adapter of its own."""


class Adapter(Index):
    """A name for an adapter, made of a scenario and a revision: one name for each content, one content for each name.

    It stands for the name and for the bytes of that revision, which are kept outside of engines.
    """


class Slot(Index):
    """A place for an adapter. The books have one list of slots, for every engine holds the same adapters."""


class Bytes(enum.Enum):
    """What an engine has under a name, or what made some KV, seen from that name.

    Nothing, the bytes that the name stands for, other bytes, or parts of several.
    """

    NONE = enum.auto()
    OWN = enum.auto()
    OTHER = enum.auto()
    MIXED = enum.auto()


class Request(enum.Enum):
    """The one request that stands for an engine's work."""

    NONE = enum.auto()
    WAITING = enum.auto()
    RUNNING = enum.auto()


class Stage(enum.Enum):
    """What the coordinator does next."""

    DOWN = enum.auto()
    IDLE = enum.auto()
    REBUILD = enum.auto()
    RECONCILE = enum.auto()
    CHOOSE = enum.auto()
    MAKE_ROOM = enum.auto()
    EVICT = enum.auto()
    LOAD = enum.auto()
    CLEAN_UP = enum.auto()
    COMMIT = enum.auto()
    RETIRE = enum.auto()


class State(Fields):
    """The whole state."""

    # Configuration
    reserved: Map[Slot, Bool] = field("taken for good, by an adapter that engines were started with")

    # Durable
    scenario: Map[Adapter, Maybe[Scenario]] = field("whose revision the name stands for; none: no such revision yet")
    current: Map[Scenario, Maybe[Adapter]] = field("the adapter that the scenario is served with")
    job: Maybe[Adapter] = field("the adapter that is to become its scenario's current one")

    # The service
    gate: Map[Scenario, Bool] = field("requests of the scenario are admitted")
    pinned: Maybe[Adapter] = field("kept while somebody may still go back to it")

    # The coordinator's memory
    stage: Value[Stage] = field("what it does next")
    target: Maybe[Adapter] = field("the adapter that is being loaded")
    victim: Maybe[Adapter] = field("the adapter that is being unloaded")
    holds: Map[Slot, Maybe[Adapter]] = field("the adapter in the slot, by the books")
    leaked: Map[Slot, Bool] = field("an unload failed, so that engines may or may not hold what the slot says")

    # Engines
    alive: Map[Engine, Bool] = field("its process runs")
    paused: Bool = field("engines do not schedule")
    bytes: Map2[Engine, Adapter, Value[Bytes]] = field("what it has loaded under the name")
    request: Map[Engine, Value[Request]] = field("its work")
    uses: Map[Engine, Maybe[Adapter]] = field("the name in its request")
    cached: Relation[Engine, Adapter] = field("its prefix tree holds an entry whose key says this name")

    # What no component knows
    kv: Map[Engine, Value[Bytes]] = ghost("what made the running request's KV, seen from the name in the request")
    made_by: Map2[Engine, Adapter, Value[Bytes]] = ghost("what made the entries under the key, seen from its name")


adapters = Protocol("adapters", State, __doc__)

STANDING = (Stage.DOWN, Stage.REBUILD, Stage.RECONCILE, Stage.RETIRE)
"""Stages in which the books are not to be relied on: engines were replaced, or will be."""


# What the books say


def held(s: State, n: Adapter | Maybe[Adapter]) -> Bool:
    """By the books, every engine has the adapter."""
    return exists(Slot, lambda i: (s.holds[i] == n) & ~s.leaked[i])


def free(s: State, i: Slot) -> Bool:
    """The slot can take an adapter."""
    return s.holds[i].is_none & ~s.reserved[i]


def leaks(s: State) -> Bool:
    """Some slot has leaked."""
    return exists(Slot, lambda i: s.leaked[i])


def in_flight(s: State, n: Adapter | Maybe[Adapter]) -> Bool:
    """Some request names the adapter, whether it runs or waits."""
    return exists(Engine, lambda e: s.uses[e] == n)


def serves(s: State, n: Adapter) -> Bool:
    """The adapter is the current one of some scenario."""
    return exists(Scenario, lambda x: s.current[x] == n)


def scenario_of(s: State, n: Maybe[Adapter]) -> Maybe[Scenario]:
    """The scenario of an adapter, if there is one."""
    return s.scenario.get(n, None)


def has(s: State, e: Engine, n: Maybe[Adapter]) -> Value[Bytes]:
    """What an engine has loaded under a name that may be none."""
    return s.bytes.get((e, n), Bytes.NONE)


def to_restore(s: State, x: Scenario) -> Bool:
    """The scenario has lost its adapter, and no other is about to take its place."""
    return ~s.current[x].is_none & ~held(s, s.current[x]) & (scenario_of(s, s.job) != x)


def needs_repair(s: State) -> Bool:
    """An engine is gone, or a scenario has lost its adapter."""
    return exists(Engine, lambda e: ~s.alive[e]) | exists(Scenario, lambda x: to_restore(s, x))


# Bytes


def joined(one: Value[Bytes], other: Value[Bytes]) -> Value[Bytes]:
    """What made a whole that has these two parts."""
    return ite(
        one == Bytes.NONE,
        other,
        ite((one == other) | (other == Bytes.NONE), one, Bytes.MIXED),
    )


# Updates that several actions make


def vacate(e: Engine) -> dict[str, object]:
    """The engine's process is gone, and everything in it; its request is answered with an error."""
    return {
        "alive": {e: False},
        "bytes": {e: each(Adapter, lambda n: Bytes.NONE)},
        "request": {e: Request.NONE},
        "uses": {e: None},
        "cached": {e: each(Adapter, lambda n: False)},
        "kv": {e: Bytes.NONE},
        "made_by": {e: each(Adapter, lambda n: Bytes.NONE)},
    }


def vacate_all() -> dict[str, object]:
    """Every engine's process is gone."""
    return {
        "alive": each(Engine, lambda e: False),
        "bytes": each(Engine, Adapter, lambda e, n: Bytes.NONE),
        "request": each(Engine, lambda e: Request.NONE),
        "uses": each(Engine, lambda e: None),
        "cached": each(Engine, Adapter, lambda e, n: False),
        "kv": each(Engine, lambda e: Bytes.NONE),
        "made_by": each(Engine, Adapter, lambda e, n: Bytes.NONE),
    }


def close_gates() -> dict[str, object]:
    """Nothing is admitted."""
    return {"gate": each(Scenario, lambda x: False)}


def rest(s: State) -> dict[str, object]:
    """The coordinator has nothing to do, and engines generate."""
    return {"stage": Stage.IDLE, "target": None, "victim": None, "paused": False}


@adapters.initially
def serving_no_scenario(tight: Bool, i: Slot) -> Step:
    """Engines run, and no scenario has an adapter yet; one slot may be taken for good."""
    return when().then(
        reserved=each(Slot, lambda j: tight & (j == i)),
        scenario=each(Adapter, lambda n: None),
        current=each(Scenario, lambda x: None),
        job=None,
        gate=each(Scenario, lambda x: False),
        pinned=None,
        stage=Stage.IDLE,
        target=None,
        victim=None,
        holds=each(Slot, lambda j: None),
        leaked=each(Slot, lambda j: False),
        alive=each(Engine, lambda e: True),
        paused=False,
        bytes=each(Engine, Adapter, lambda e, n: Bytes.NONE),
        request=each(Engine, lambda e: Request.NONE),
        uses=each(Engine, lambda e: None),
        cached=each(Engine, Adapter, lambda e, n: False),
        kv=each(Engine, lambda e: Bytes.NONE),
        made_by=each(Engine, Adapter, lambda e, n: Bytes.NONE),
    )


def on_every_engine(s: State, n: Maybe[Adapter], *bytes_: Bytes) -> Bool:
    """Every engine runs and has one of these under the name."""
    return forall(Engine, lambda e: s.alive[e] & has(s, e, n).is_in(*bytes_))
