"""What goes wrong: any load, any unload, any process, at any time."""

from __future__ import annotations

from spec.adapters.coordinator import clean_up
from spec.adapters.state import (
    Bytes,
    Engine,
    Slot,
    Stage,
    State,
    adapters,
    free,
    has,
    rest,
    vacate,
)
from spec.lang import Bool, Step, each, ite, when


@adapters.fault(by="e", on="e")
def load_fails(s: State, e: Engine, arrived: Bool) -> Step:
    """A load is refused or times out; the adapter may be there all the same."""
    return when(s.stage == Stage.LOAD, s.alive[e], has(s, e, s.target) == Bytes.NONE).then(
        bytes={(e, s.target): ite(arrived, Bytes.OWN, Bytes.NONE)}, **clean_up(s)
    )


@adapters.fault(by="e", on="e")
def load_tears(s: State, e: Engine) -> Step:
    """A load answers success and leaves bytes that nobody sent."""
    return when(s.stage == Stage.LOAD, s.alive[e], has(s, e, s.target) == Bytes.NONE).then(
        bytes={(e, s.target): Bytes.MIXED}
    )


@adapters.fault(by="e", on="e")
def eviction_fails(s: State, e: Engine) -> Step:
    """An engine does not answer an unload: the slot has leaked. It may still do what it was told (`unload`)."""
    return when(s.stage == Stage.EVICT, s.alive[e], has(s, e, s.victim) != Bytes.NONE).then(
        leaked=each(Slot, lambda i: s.leaked[i] | (s.holds[i] == s.victim)),
        stage=Stage.RETIRE,
    )


@adapters.fault(by="e", on="e")
def cleaning_fails(s: State, e: Engine, i: Slot) -> Step:
    """An engine does not unload what a failed load left: that takes a slot, and the slot has leaked."""
    return when(s.stage == Stage.CLEAN_UP, s.alive[e], has(s, e, s.victim) != Bytes.NONE, free(s, i)).then(
        holds={i: s.victim}, leaked={i: True}, **rest(s)
    )


@adapters.fault(by="e", on="e")
def die(s: State, e: Engine) -> Step:
    """An engine's process is gone."""
    return when(s.alive[e]).then(**vacate(e))


@adapters.fault(by="coordinator")
def crash(s: State) -> Step:
    """The coordinator's process is gone, its books and what was pinned in them; engines stay as they are."""
    return when(s.stage != Stage.DOWN).then(
        stage=Stage.DOWN,
        pinned=None,
        target=None,
        victim=None,
        holds=each(Slot, lambda i: None),
        leaked=each(Slot, lambda i: False),
    )
