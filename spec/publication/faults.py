"""What goes wrong: any call, any transfer, any write, any process, at any time."""

from __future__ import annotations

from typing import Any

from spec.lang import Bool, Step, exists, ite, when
from spec.publication.coordinator import (
    RECORDS,
    asks,
    end_retiring,
    enter,
    give_up,
    leave_fenced,
    note_sent,
    received,
    record,
)
from spec.publication.state import (
    UNLOADED,
    Engine,
    Phase,
    Slot,
    Stage,
    State,
    forget,
    live,
    load_to_establish,
    present,
    publication,
    up,
    vacate,
)


@publication.fault(by="coordinator")
def barrier_fails(s: State) -> Step:
    """A pause, flush or release is refused for good or times out; some engines may have done it."""
    return when(s.stage.is_in(Stage.PAUSE, Stage.FLUSH, Stage.RELEASE)).then(**give_up(s))


@publication.fault(by="coordinator")
def transfer_fails(s: State) -> Step:
    """An engine does not start, memory does not come back, or bytes do not arrive; some engines may have changed."""
    return when(s.stage.is_in(Stage.REBUILD, Stage.RESUME_WEIGHTS, Stage.SEND, Stage.RESUME_KV, Stage.VERIFY)).then(
        **give_up(s)
    )


@publication.fault(by="coordinator", on="e")
def send_tears(s: State, e: Engine, stamped: Bool) -> Step:
    """A transfer answers success and leaves bytes that nobody sent."""
    return when(asks(s, e, Stage.SEND)).then(
        weights={e: UNLOADED},
        reports={e: ite(~stamped, s.reports[e], load_to_establish(s))},
        done={e: True},
        **note_sent(s),
    )


@publication.fault(by="coordinator", on="e")
def send_without_stamp(s: State, e: Engine) -> Step:
    """A transfer answers success and leaves the old id."""
    return when(asks(s, e, Stage.SEND)).then(weights={e: received(s, e)}, done={e: True}, **note_sent(s))


@publication.fault(by="coordinator", on="e")
def stamp_without_bytes(s: State, e: Engine) -> Step:
    """A transfer answers success and stamps the id; no byte has left."""
    return when(asks(s, e, Stage.SEND)).then(reports={e: load_to_establish(s)}, done={e: True})


@publication.fault(by="coordinator")
def continue_fails(s: State) -> Step:
    """An engine does not continue: the latch stays."""
    return when(s.stage == Stage.CONTINUE).then(**leave_fenced(s))


@publication.fault(by="coordinator")
def retire_fails(s: State) -> Step:
    """Engines that still have their slots keep them, fenced by the latch, with whatever they hold: they do not end.

    They are those whose shutdown failed, whichever these are; all of them, where the monitor does not let go of them.
    """
    return when(s.stage == Stage.RETIRE, exists(Engine, lambda e: present(s, e))).then(**end_retiring(s))


@publication.fault(by="trainer")
def train_fails(s: State) -> Step:
    """Training fails, or its checkpoint is not there: the optimizer may have moved."""
    return when(s.stage == Stage.TRAIN).then(**enter(s, Stage.IDLE), phase=Phase.TRAINING_FAILED)


def attempted(s: State) -> dict[str, Any]:
    """The record that the stage tries to write, field by field."""
    tried: dict[str, Any] = {
        name: getattr(s, f"memory_{name}") for name in ("status", "parent", "parent_content", "content", "target")
    }
    for stage in RECORDS:
        for name, value in record(s, stage).items():
            tried[name] = ite(s.stage != stage, tried[name], value)
    return tried


@publication.fault(by="disk")
def write_fails(s: State, renamed: Bool) -> Step:
    """A write raises: before the rename, and nothing is written, or after it, and the new record is there.

    The coordinator reads the record again, so that it never believes less than what a restart would find. Upstream
    keeps its old copy.
    """
    found = {name: ite(renamed, value, getattr(s, f"disk_{name}")) for name, value in attempted(s).items()}
    retires = s.stage.is_in(Stage.DECLARE, Stage.RECORD_TARGET, Stage.RECORD_READY)
    trained = (s.stage == Stage.RECORD_CHECKPOINT) | ((s.stage == Stage.RECORD_RUNNING) & renamed)
    return when(s.stage.is_in(*RECORDS)).then(
        **{f"{where}_{name}": value for where in ("disk", "memory") for name, value in found.items()},
        **enter(s, ite(retires, Stage.RETIRE, Stage.IDLE)),
        phase=ite(trained, Phase.TRAINING_FAILED, s.phase),
        undeclared=(s.stage == Stage.DECLARE_RETIRED) & ~renamed,
    )


@publication.fault(by="coordinator")
def crash(s: State) -> Step:
    """The coordinator's process is gone; engines stay as they are."""
    return when(up(s)).then(**forget())


@publication.fault(by="e", on="e")
def die(s: State, e: Engine) -> Step:
    """An engine's process is gone; its slot keeps the handle."""
    return when(live(s, e)).then(**vacate(e, Slot.DEAD))
