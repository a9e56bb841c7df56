"""Who else acts: the service that calls the coordinator, the health monitor, the supervisor and the operator."""

from __future__ import annotations

from spec.lang import Bool, Step, all_of, ite, when
from spec.publication.coordinator import begin, following
from spec.publication.state import (
    REPUBLISHABLE,
    SETTLED,
    UNOPENED,
    Engine,
    Errand,
    Marker,
    Phase,
    Slot,
    Stage,
    State,
    beyond_repair,
    forget,
    publication,
    read_record,
    replayable,
    up,
    vacate_all,
)


def takes_calls(s: State) -> Bool:
    """The coordinator holds no errand and is healthy."""
    return all_of(s.stage == Stage.IDLE, s.phase == Phase.SERVING)


@publication.action(by="service")
def begin_training(s: State) -> Step:
    """A new job begins; a colocated one closes admission for the whole step."""
    return when(takes_calls(s), s.memory_status.is_in(*SETTLED)).then(
        **begin(s, Errand.TRAIN, Stage.RECORD_RUNNING), gate=s.gate & ~s.colocated
    )


@publication.action(by="service")
def begin_publish(s: State, full: Bool) -> Step:
    """The service closes admission and publishes the checkpoint: every byte, or the difference to the parent."""
    return when(takes_calls(s), s.memory_status == Marker.CHECKPOINT).then(
        **begin(s, Errand.PUBLISH, Stage.PAUSE), full=full, gate=False
    )


@publication.action(by="service")
def begin_retry(s: State) -> Step:
    """A publication that was left in UPDATING_WEIGHTS is tried again, from nothing that engines may hold."""
    return when(s.stage == Stage.IDLE, s.memory_status == Marker.UPDATING_WEIGHTS).then(
        **begin(s, Errand.RETRY, Stage.PAUSE), full=True, phase=Phase.SERVING
    )


@publication.action(by="service")
def begin_republish(s: State) -> Step:
    """What should be served is established again under its own id: after an engine was lost, or after a failed try.

    Upstream refuses this where the parent should be served, so that only a restart fills a slot there.
    """
    return when(
        s.stage == Stage.IDLE, (s.phase == Phase.SERVING) | replayable(s), s.memory_status.is_in(*REPUBLISHABLE)
    ).then(**begin(s, Errand.REPUBLISH, Stage.PAUSE), full=True, phase=Phase.SERVING, gate=False)


@publication.action(by="service")
def begin_reject(s: State) -> Step:
    """The service refuses the checkpoint, or goes on refusing it."""
    return when(takes_calls(s), s.memory_status.is_in(Marker.CHECKPOINT, Marker.REJECTING)).then(
        **begin(
            s,
            Errand.REJECT,
            ite(s.memory_status == Marker.CHECKPOINT, Stage.RECORD_REJECTING, following(s, Stage.RECORD_REJECTING)),
        ),
        gate=False,
    )


@publication.action(by="service")
def commit_head(s: State) -> Step:
    """The service makes the published load its head, durably, and only then acknowledges."""
    return when(s.memory_status == Marker.READY_TO_COMMIT, s.memory_target != s.head).then(
        head=s.memory_target.or_else(0)
    )


@publication.action(by="service")
def acknowledge(s: State) -> Step:
    """The service tells the coordinator that the head has moved; again, if the last time ended in HEAD_COMMITTED."""
    return when(
        takes_calls(s),
        s.memory_status.is_in(Marker.READY_TO_COMMIT, Marker.HEAD_COMMITTED),
        s.memory_target == s.head,
    ).then(
        **begin(
            s,
            Errand.ACKNOWLEDGE,
            ite(s.memory_status == Marker.READY_TO_COMMIT, Stage.RECORD_HEAD, following(s, Stage.RECORD_HEAD)),
        )
    )


@publication.action(by="service")
def open_gate(s: State) -> Step:
    """The service admits requests when the marker it is told is settled, or engines were not touched yet."""
    return when(
        takes_calls(s),
        ~s.gate,
        s.memory_status.is_in(*SETTLED) | (~s.colocated & s.memory_status.is_in(*UNOPENED)),
    ).then(gate=True)


@publication.action(by="monitor", on="e")
def empty_slot(s: State, e: Engine) -> Step:
    """The health monitor takes a dead handle out of its slot, unless the latch forbids it."""
    return when(up(s), ~s.latch, s.slot[e] == Slot.DEAD).then(slot={e: Slot.EMPTY})


@publication.action(by="supervisor")
def restart(s: State) -> Step:
    """A new coordinator reads the record, fences, and recovers; it refuses RUNNING, which nobody can judge.

    The service closes admission before it lets a new coordinator recover.
    """
    ambiguous = s.disk_status == Marker.RUNNING
    return when(s.stage == Stage.DOWN).then(
        **({name: ite(ambiguous, getattr(s, name), value) for name, value in read_record(s).items()}),
        stage=ite(ambiguous, Stage.REFUSED, Stage.PAUSE),
        errand=ite(ambiguous, Errand.NOTHING, Errand.RECOVER),
        latch=~ambiguous,
        full=~ambiguous,
        gate=False,
    )


@publication.action(by="supervisor")
def tear_down(s: State) -> Step:
    """Health is beyond repair: the coordinator and every engine are killed."""
    return when(beyond_repair(s)).then(**forget(), **vacate_all())


@publication.action(by="operator")
def restore_previous_record(s: State) -> Step:
    """An operator gives the ambiguous job up, and puts the record of the last committed one in its place."""
    initial = s.disk_parent == 0
    return when(s.stage == Stage.REFUSED).then(
        disk_status=ite(initial, Marker.NONE, Marker.COMPLETE),
        disk_target=ite(initial, s.disk_target, s.disk_parent),
        disk_content=s.disk_parent_content,
        stage=Stage.DOWN,
    )
