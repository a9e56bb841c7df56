"""What a publication asks of the engine: pause, flush, release, update, resume, continue; and adapters beside it.

The driver knows what it was answered and nothing else. A call is one step, but for the pause, which returns when the
scheduler is through with it.
"""

from __future__ import annotations

from typing import Any

from spec.lang import Bool, Step, each, forall, ite, when
from spec.serving.scheduler import idle
from spec.serving.state import (
    NO_LOAD,
    Adapter,
    Load,
    Mode,
    Phase,
    Request,
    Stage,
    State,
    on_device,
    paused,
    serving,
)


@serving.action(by="driver")
def pause(s: State) -> Step:
    """The driver pauses the engine. In place, that is all."""
    return when(s.stage == Stage.SERVING).then(stage=ite(s.mode == Mode.IN_PLACE, Stage.PAUSED, Stage.PAUSING))


@serving.action(by="engine")
def pause_returns(s: State) -> Step:
    """Everything is drained and retracted; or, aborting, the front end has no call under way."""
    return when(
        s.stage == Stage.PAUSING,
        (s.mode != Mode.RETRACT) | (s.ahead.is_none & forall(Request, lambda r: ~on_device(s, r))),
        (s.mode != Mode.ABORT) | forall(Request, lambda r: (s.phase[r] == Phase.DONE) | s.gone[r]),
    ).then(stage=Stage.PAUSED)


def wiped(s: State) -> dict[str, Any]:
    """The pools of KV are taken from under whatever still points there."""
    return {
        "kv": each(Request, Load, lambda r, v: (on_device(s, r) | (s.ahead == r)) & (v == NO_LOAD)),
        "kv_with": each(Request, Adapter, lambda r, a: False),
    }


@serving.action(by="driver")
def flush(s: State) -> Step:
    """The tree and the pools of KV are emptied, if nobody holds any: a publication asks for it, and anybody may.

    Paused, requests that wait are in nobody's way; paused to retract, nor are those whose grammar compiles, for nobody
    looks at it until the engine continues.
    """
    retracting = paused(s) & (s.mode == Mode.RETRACT)
    return when(*idle(s, ignore_waiting=paused(s), ignore_grammars=retracting)).then(
        stage=ite(s.stage == Stage.PAUSED, Stage.FLUSHED, s.stage),
        cached=each(Adapter, lambda a: False),
        made_by=each(Adapter, Load, lambda a, v: False),
        made_with=each(Adapter, Adapter, lambda a, b: False),
        **wiped(s),
    )


# Memory


@serving.action(by="driver")
def release(s: State, weights_too: Bool) -> Step:
    """After a flush, the KV's memory is given to the trainer, perhaps the weights' too, and what was in it is gone."""
    return when(s.offloads, s.stage == Stage.FLUSHED).then(
        weights_out=s.weights_out | weights_too,
        kv_out=True,
        weights=ite(~weights_too, s.weights, NO_LOAD),
        complete=s.complete & ~weights_too,
        made_by=each(Adapter, Load, lambda a, v: s.cached[a] & (v == NO_LOAD)),
        **wiped(s),
    )


@serving.action(by="driver")
def resume_weights(s: State) -> Step:
    """The memory of the weights comes back, with nothing in it."""
    return when(s.weights_out).then(weights_out=False, unpaired=s.unpaired | ~s.weights_out)


@serving.action(by="driver")
def resume_kv(s: State) -> Step:
    """The memory of the KV comes back, with nothing in it; the driver has sent the weights before."""
    return when(s.kv_out, s.complete).then(kv_out=False, unpaired=s.unpaired | ~s.kv_out)


# Weights


def must_flush(s: State) -> Bool:
    """The publication's pause is one that a flush belongs to."""
    return s.mode != Mode.IN_PLACE


def barrier_passed(s: State) -> Bool:
    """The engine is paused and flushed; or paused in place, where no flush belongs to the pause."""
    return (s.stage == Stage.FLUSHED) | ((s.stage == Stage.PAUSED) & (s.mode == Mode.IN_PLACE))


@serving.action(by="driver")
def update(s: State, again: Bool) -> Step:
    """All of a load has arrived, in one part or with the last of several: only now does the label advance.

    It is the next load, or the same one `again`.
    """
    sent = ite(again, s.label, s.label + 1)
    return when(barrier_passed(s), ~s.weights_out).then(weights=sent, label=sent, complete=True)


@serving.action(by="driver")
def update_part(s: State) -> Step:
    """Some of a load arrives. Where nothing follows, the update has failed, and another one has to be complete."""
    return when(barrier_passed(s), ~s.weights_out).then(weights=NO_LOAD, complete=False)


@serving.action(by="driver")
def continue_generation(s: State) -> Step:
    """The engine schedules again: a load is complete, and all memory is back."""
    return when(barrier_passed(s), s.complete, ~s.kv_out).then(stage=Stage.SERVING)


# Adapters


@serving.action(by="driver")
def load_adapter(s: State, a: Adapter) -> Step:
    """An adapter is loaded, under a name that no other bytes ever had: this needs no pause, and no flush."""
    return when(~s.loaded[a]).then(loaded={a: True}, overwritten={a: s.overwritten[a] | s.loaded[a]})
