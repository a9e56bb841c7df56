"""What there is: requests on their way, one result that ran ahead, one prefix tree, weights, and who calls."""

from __future__ import annotations

import enum
from typing import Any

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
    when,
)


class Request(Index):
    """A place for a request. When its request is answered, the next one may have it."""


class Adapter(Index):
    """What a request is answered with: an adapter's name, or the base model alone, which counts as one.

    All prompts are the same: another prompt shares nothing, so that an adapter alone says which entry may match.
    """


class Load(Natural):
    """A complete act of making bytes the serving weights; 1 is the initial one.

    0 is what no load made: bytes between two parts of an update or after a failed one, and memory that came back.
    """


NO_LOAD = 0
INITIAL = 1


class Mode(enum.Enum):
    """How a pause treats requests: they freeze where they are, wait again without their KV, or are ended."""

    IN_PLACE = enum.auto()
    RETRACT = enum.auto()
    ABORT = enum.auto()


class Phase(enum.Enum):
    """Where a request is.

    DONE: answered, or nobody was here yet. GRAMMAR: its constraint compiles. WAITING: in the waiting queue. PREFILLING:
    the chunked request, some of its prompt is computed. PREFILLED: in the last batch, all of its prompt is computed.
    RUNNING: in the running batch.
    """

    DONE = enum.auto()
    GRAMMAR = enum.auto()
    WAITING = enum.auto()
    PREFILLING = enum.auto()
    PREFILLED = enum.auto()
    RUNNING = enum.auto()


ON_DEVICE = (Phase.PREFILLING, Phase.PREFILLED, Phase.RUNNING)
"""The request holds KV in these."""


class Stage(enum.Enum):
    """How far a publication is, as its driver knows from the answers.

    SERVING: nothing is under way. PAUSING: a pause that has to drain, retract or abort. PAUSED: it has returned.
    FLUSHED: so has a flush after it.
    """

    SERVING = enum.auto()
    PAUSING = enum.auto()
    PAUSED = enum.auto()
    FLUSHED = enum.auto()


class State(Fields):
    """The whole state."""

    # Configuration
    mode: Value[Mode] = field("how a publication pauses the engine")
    sharing: Bool = field("the engine keeps a prefix tree that requests share")
    offloads: Bool = field("a publication releases the engine's memory while the trainer works")
    limited: Bool = field("the waiting queue takes one request, as the smallest queue limit has it")

    # The driver of a publication
    stage: Value[Stage] = field("how far the publication is")
    complete: Bool = field("the last that was sent of a load was all of it, and it is still there")

    # Requests
    phase: Map[Request, Value[Phase]] = field("where the request is")
    adapter: Map[Request, Maybe[Adapter]] = field("what it is to be answered with; none once it is answered")
    gone: Map[Request, Bool] = field("its client has left, and the front end waits for it no more")

    # What answers report, kept until the place is taken again
    stamp: Map[Request, Maybe[Load]] = field("the load that the newest token is labelled with")
    counted: Map[Request, Bool] = field("reused tokens were counted; on the wire: cached_tokens")
    retracted: Map[Request, Bool] = field("it was retracted, at least once; on the wire: num_retractions")

    # The scheduler
    ahead: Maybe[Request] = field("whose result is computed and not processed: the batch that ran ahead")
    ahead_label: Load = field("the label when that batch was launched")
    told_idle: Bool = field("since the last request came, a health check was told that the engine is idle")

    # The prefix tree, one entry per adapter
    cached: Map[Adapter, Bool] = field("the tree holds an entry under this adapter's key")

    # Weights and memory
    weights: Load = field("the bytes that are the serving weights, as their checksum tells")
    label: Load = field("the load that the engine reports; on the wire: weight_version")
    loaded: Map[Adapter, Bool] = field("bytes are loaded under the adapter's name")
    weights_out: Bool = field("the memory of the weights is released")
    kv_out: Bool = field("the memory of the KV is released")

    # What no component knows
    kv: Relation[Request, Load] = ghost("the weights that made the request's KV")
    kv_with: Relation[Request, Adapter] = ghost("the adapters that made it")
    reused: Map[Request, Bool] = ghost("its KV begins, or began when it was answered, with a prefix from the tree")
    made_by: Relation[Adapter, Load] = ghost("the weights that made the entry")
    made_with: Relation[Adapter, Adapter] = ghost("the adapters that made it")
    ahead_weights: Load = ghost("the weights that computed the result that is not processed")
    overwritten: Map[Adapter, Bool] = ghost("other bytes were put under the adapter's name")
    unpaired: Bool = ghost("the engine was told to take back memory that it had not released")


serving = Protocol("serving", State, __doc__)


# What the scheduler can tell


def paused(s: State) -> Bool:
    """The scheduler schedules nothing. A pause that aborts never reaches it."""
    return (s.stage != Stage.SERVING) & (s.mode != Mode.ABORT)


def on_device(s: State, r: Request) -> Bool:
    """The request holds KV, as the scheduler's batches say."""
    return s.phase[r].is_in(*ON_DEVICE)


def answered(s: State, r: Request) -> Bool:
    """Nobody waits for an answer here, and no batch still computes for one who did."""
    return (s.phase[r] == Phase.DONE) & (s.ahead != r)


def memory_is_there(s: State) -> Bool:
    """No region is released."""
    return ~s.weights_out & ~s.kv_out


# First states


def first_state(mode: Value[Mode], sharing: Bool, offloads: Bool, limited: Bool) -> dict[str, Any]:
    """The engine serves the initial load, and nobody has come yet."""
    return {
        "mode": mode,
        "sharing": sharing,
        "offloads": offloads,
        "limited": limited,
        "stage": Stage.SERVING,
        "complete": True,
        "phase": each(Request, lambda r: Phase.DONE),
        "adapter": each(Request, lambda r: None),
        "gone": each(Request, lambda r: False),
        "stamp": each(Request, lambda r: None),
        "counted": each(Request, lambda r: False),
        "retracted": each(Request, lambda r: False),
        "ahead": None,
        "ahead_label": NO_LOAD,
        "told_idle": False,
        "cached": each(Adapter, lambda a: False),
        "weights": INITIAL,
        "label": INITIAL,
        "loaded": each(Adapter, lambda a: False),
        "weights_out": False,
        "kv_out": False,
        "kv": each(Request, Load, lambda r, v: False),
        "kv_with": each(Request, Adapter, lambda r, a: False),
        "reused": each(Request, lambda r: False),
        "made_by": each(Adapter, Load, lambda a, v: False),
        "made_with": each(Adapter, Adapter, lambda a, b: False),
        "ahead_weights": NO_LOAD,
        "overwritten": each(Adapter, lambda a: False),
        "unpaired": False,
    }


@serving.initially
def serving_the_initial_load(mode: Value[Mode], sharing: Bool, offloads: Bool, limited: Bool) -> Step:
    """The engine serves the initial load, in any configuration that may run, and nobody has come yet.

    A tree that is shared needs the flush, which a pause in place does not allow for. Released memory needs it too, and
    a queue that may refuse what is retracted loses requests.
    """
    return when(
        sharing.implies(mode != Mode.IN_PLACE),
        offloads.implies(mode == Mode.RETRACT),
        limited.implies(mode != Mode.RETRACT),
    ).then(**first_state(mode, sharing, offloads, limited))
