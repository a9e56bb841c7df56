"""What there is: engines in slots, one coordinator, one durable marker, a service with its commit head and gate."""

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
    Step,
    Value,
    each,
    field,
    ghost,
    ite,
    when,
)


class Engine(Index):
    """A slot for an updatable engine, and the engine in it."""


class Load(Natural):
    """A load id; 0 is the initial load.

    The real id is ``incarnation:sequence``. Here the id after a load is the next number, in the same incarnation or in
    a fresh one, so that a fresh incarnation cannot excuse the reuse of an id: what holds here holds there.
    """


class Content(Natural):
    """Bytes that weights can have.

    0 is what no load made: what a process boots with, or what a torn transfer leaves. 1 is the initial weights, and
    ``1 + k`` the checkpoint of job k. A job that was given up before any byte of it left lends its number to the next.
    """


UNLOADED = 0
INITIAL = 1


class Marker(enum.Enum):
    """The status in the durable record of the newest job, under its upstream names; NONE where there is no record."""

    NONE = enum.auto()
    RUNNING = enum.auto()
    CHECKPOINT = enum.auto()
    UPDATING_WEIGHTS = enum.auto()
    READY_TO_COMMIT = enum.auto()
    HEAD_COMMITTED = enum.auto()
    COMPLETE = enum.auto()
    REJECTING = enum.auto()
    REJECTED = enum.auto()


class Mode(enum.Enum):
    """How an engine is paused: requests freeze where they are, or go back to the queue without their KV."""

    IN_PLACE = enum.auto()
    RETRACT = enum.auto()


class Slot(enum.Enum):
    """What a slot holds: nothing, a process, or the handle of a process that is gone."""

    EMPTY = enum.auto()
    LIVE = enum.auto()
    DEAD = enum.auto()


class Request(enum.Enum):
    """The one request that stands for an engine's work."""

    NONE = enum.auto()
    WAITING = enum.auto()
    RUNNING = enum.auto()


class Errand(enum.Enum):
    """The call that the coordinator is working on. Its operation lock admits one at a time."""

    NOTHING = enum.auto()
    TRAIN = enum.auto()
    PUBLISH = enum.auto()
    RETRY = enum.auto()
    REPUBLISH = enum.auto()
    RECOVER = enum.auto()
    ACKNOWLEDGE = enum.auto()
    REJECT = enum.auto()


class Stage(enum.Enum):
    """What the coordinator does next; `spec.publication.coordinator.following` is the order."""

    DOWN = enum.auto()
    REFUSED = enum.auto()
    IDLE = enum.auto()
    RECORD_RUNNING = enum.auto()
    PAUSE = enum.auto()
    FLUSH = enum.auto()
    TRAIN = enum.auto()
    RECORD_CHECKPOINT = enum.auto()
    DECLARE = enum.auto()
    REBUILD = enum.auto()
    RECORD_TARGET = enum.auto()
    RELEASE = enum.auto()
    RESUME_WEIGHTS = enum.auto()
    SEND = enum.auto()
    RESUME_KV = enum.auto()
    VERIFY = enum.auto()
    RECORD_READY = enum.auto()
    RECORD_HEAD = enum.auto()
    CONTINUE = enum.auto()
    RECORD_COMPLETE = enum.auto()
    RECORD_REJECTING = enum.auto()
    RECORD_REJECTED = enum.auto()
    RETIRE = enum.auto()
    DECLARE_RETIRED = enum.auto()


class Phase(enum.Enum):
    """What health reports. SERVING stands for every phase of progress: the stage tells those apart."""

    SERVING = enum.auto()
    TRAINING_FAILED = enum.auto()
    WEIGHT_SYNC_FAILED = enum.auto()


class State(Fields):
    """The whole state."""

    # Configuration
    colocated: Bool = field("engines and trainer share memory: engines release theirs while the trainer works")
    mode: Value[Mode] = field("how engines are paused")
    sharing: Bool = field("engines keep a prefix cache that requests share")

    # The durable record
    disk_status: Value[Marker] = field("its status")
    disk_parent: Load = field("the load that served when the job began")
    disk_parent_content: Content = field("the bytes of the parent")
    disk_content: Content = field("the bytes of the job's checkpoint")
    disk_target: Maybe[Load] = field("the id persisted for the job's load")

    # The coordinator's copy of it, and what it forgets in a crash
    memory_status: Value[Marker] = field("the status it believes to be durable")
    memory_parent: Load = field("the parent it believes to be durable")
    memory_parent_content: Content = field("the parent's bytes it believes to be durable")
    memory_content: Content = field("the job's bytes it believes to be durable")
    memory_target: Maybe[Load] = field("the target it believes to be durable")
    stage: Value[Stage] = field("what it does next")
    errand: Value[Errand] = field("the call it works on")
    phase: Value[Phase] = field("what health reports")
    latch: Bool = field("set before a pause is tried, cleared when every engine has continued")
    full: Bool = field("this transfer sends every byte, not the difference to the parent")
    rebuilt: Bool = field("this errand has filled the empty slots")
    done: Map[Engine, Bool] = field("has answered the call that is being made to every engine")

    # The service
    head: Load = field("the commit head, durable: the load that is released")
    gate: Bool = field("requests are admitted")

    # Engines
    slot: Map[Engine, Value[Slot]] = field("what the slot holds")
    paused: Map[Engine, Bool] = field("does not schedule")
    weights: Map[Engine, Content] = field("the bytes of its weights, as its checksum tells")
    reports: Map[Engine, Maybe[Load]] = field("the id it reports; on the wire: weight_version")
    kv_out: Map[Engine, Bool] = field("its KV memory is released")
    weights_out: Map[Engine, Bool] = field("its weights memory is released")
    request: Map[Engine, Value[Request]] = field("its work")
    cached: Map[Engine, Bool] = field("its prefix tree holds an entry")

    # What no component knows
    kv: Relation[Engine, Content] = ghost("the weights that made the running request's KV")
    made_by: Relation[Engine, Content] = ghost("the weights that made the entries of the tree")
    sent: Relation[Load, Content] = ghost("the bytes ever sent under an id")
    undeclared: Bool = ghost("engines were retired, and the record could not be told")
    unpaired: Bool = ghost("an engine was told to take back memory it had not released")


publication = Protocol("publication", State, __doc__)


# Sets of statuses

NEVER_MOVED = (Marker.RUNNING, Marker.CHECKPOINT, Marker.REJECTING, Marker.REJECTED)
"""No byte of the job has left in these."""
PUBLISHED = (Marker.READY_TO_COMMIT, Marker.HEAD_COMMITTED, Marker.COMPLETE)
"""Every engine was verified on the job's load when these were written."""
SETTLED = (Marker.NONE, Marker.COMPLETE, Marker.REJECTED)
"""Nothing is in flight."""
INCUMBENT = (Marker.NONE, Marker.REJECTING, Marker.REJECTED)
"""The load to be established in these is the parent, not the job's."""
REPUBLISHABLE = (*PUBLISHED, *INCUMBENT)
"""What engines should hold is known: the job's load once it was verified, the parent where the job is not wanted."""
UNOPENED = (Marker.RUNNING, Marker.CHECKPOINT)
"""The engines still hold the parent; disjoint ones still serve it."""


# What the coordinator can tell


def up(s: State) -> Bool:
    """The coordinator runs and has read the record."""
    return ~s.stage.is_in(Stage.DOWN, Stage.REFUSED)


def load_to_establish(s: State) -> Load:
    """The id that engines must report when this errand is done."""
    return ite(s.memory_status.is_in(*INCUMBENT), s.memory_parent, s.memory_target.or_else(0))


def content_to_establish(s: State) -> Content:
    """The bytes that engines must hold when this errand is done."""
    return ite(s.memory_status.is_in(*INCUMBENT), s.memory_parent_content, s.memory_content)


def replayable(s: State) -> Bool:
    """Health: failed, and the next retry or republish of this coordinator repairs it.

    Upstream counts UPDATING_WEIGHTS only, and calls a failed republish beyond repair though repeating it is sound.
    """
    return (s.phase == Phase.WEIGHT_SYNC_FAILED) & s.memory_status.is_in(Marker.UPDATING_WEIGHTS, *REPUBLISHABLE)


def beyond_repair(s: State) -> Bool:
    """Health: failed, and only tearing the deployment down helps."""
    return (s.phase != Phase.SERVING) & ~replayable(s)


# What engines can tell


def present(s: State, e: Engine) -> Bool:
    """The slot holds a handle, so that a call to every engine is made to this one."""
    return s.slot[e] != Slot.EMPTY


def live(s: State, e: Engine) -> Bool:
    """The slot holds a process."""
    return s.slot[e] == Slot.LIVE


def generates(s: State, e: Engine) -> Bool:
    """The engine may run a forward pass for its request."""
    return (s.request[e] == Request.RUNNING) & ~s.paused[e]


# Updates that several actions make


def vacate(e: Engine, slot: Slot) -> dict[str, object]:
    """One process is gone, and its work with it: its request is answered with an error."""
    return {
        "slot": {e: slot},
        "paused": {e: False},
        "weights": {e: UNLOADED},
        "reports": {e: None},
        "kv_out": {e: False},
        "weights_out": {e: False},
        "request": {e: Request.NONE},
        "cached": {e: False},
        "kv": {e: each(Content, lambda c: False)},
        "made_by": {e: each(Content, lambda c: False)},
    }


def vacate_all() -> dict[str, object]:
    """Every process is gone, and every slot is empty."""
    return {
        "slot": each(Engine, lambda e: Slot.EMPTY),
        "paused": each(Engine, lambda e: False),
        "weights": each(Engine, lambda e: UNLOADED),
        "reports": each(Engine, lambda e: None),
        "kv_out": each(Engine, lambda e: False),
        "weights_out": each(Engine, lambda e: False),
        "request": each(Engine, lambda e: Request.NONE),
        "cached": each(Engine, lambda e: False),
        "kv": each(Engine, Content, lambda e, c: False),
        "made_by": each(Engine, Content, lambda e, c: False),
    }


def forget() -> dict[str, object]:
    """The coordinator's process is gone, and everything it knew."""
    return {
        "memory_status": Marker.NONE,
        "memory_parent": 0,
        "memory_parent_content": UNLOADED,
        "memory_content": UNLOADED,
        "memory_target": None,
        "stage": Stage.DOWN,
        "errand": Errand.NOTHING,
        "phase": Phase.SERVING,
        "latch": False,
        "full": False,
        "rebuilt": False,
        "done": each(Engine, lambda e: False),
        "undeclared": False,
    }


def read_record(s: State) -> dict[str, object]:
    """The copy is what is on disk."""
    return {
        "memory_status": s.disk_status,
        "memory_parent": s.disk_parent,
        "memory_parent_content": s.disk_parent_content,
        "memory_content": s.disk_content,
        "memory_target": s.disk_target,
    }


def first_state(colocated: Bool, mode: Value[Mode], sharing: Bool) -> dict[str, object]:
    """The deployment has started: every engine serves the initial load, and there has been no job."""
    return {
        "colocated": colocated,
        "mode": mode,
        "sharing": sharing,
        "disk_status": Marker.NONE,
        "disk_parent": 0,
        "disk_parent_content": INITIAL,
        "disk_content": INITIAL,
        "disk_target": None,
        "memory_status": Marker.NONE,
        "memory_parent": 0,
        "memory_parent_content": INITIAL,
        "memory_content": INITIAL,
        "memory_target": None,
        "stage": Stage.IDLE,
        "errand": Errand.NOTHING,
        "phase": Phase.SERVING,
        "latch": False,
        "full": False,
        "rebuilt": False,
        "done": each(Engine, lambda e: False),
        "head": 0,
        "gate": True,
        "slot": each(Engine, lambda e: Slot.LIVE),
        "paused": each(Engine, lambda e: False),
        "weights": each(Engine, lambda e: INITIAL),
        "reports": each(Engine, lambda e: 0),
        "kv_out": each(Engine, lambda e: False),
        "weights_out": each(Engine, lambda e: False),
        "request": each(Engine, lambda e: Request.NONE),
        "cached": each(Engine, lambda e: False),
        "kv": each(Engine, Content, lambda e, c: False),
        "made_by": each(Engine, Content, lambda e, c: False),
        "sent": each(Load, Content, lambda v, c: (v == 0) & (c == INITIAL)),
        "undeclared": False,
        "unpaired": False,
    }


@publication.initially
def serving_the_initial_load(colocated: Bool, mode: Value[Mode], sharing: Bool) -> Step:
    """Every engine serves the initial load, in any configuration that may run.

    A shared prefix cache and released memory both need the flush, and the flush needs retract.
    """
    return when(
        sharing.implies(mode == Mode.RETRACT),
        colocated.implies(mode == Mode.RETRACT),
    ).then(**first_state(colocated, mode, sharing))
