"""The coordinator: one program order, the calls it makes to engines, the records it writes, and giving up.

A call to every engine is one step per engine, in any order, and then a step of its own (`all_paused`, ...) once every
process has answered. An engine that dies keeps its handle in the slot, and a call to a dead handle fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from spec.lang import Bool, Step, Value, all_of, each, exists, forall, ite, when
from spec.lang.nodes import Const, Ite, Node
from spec.publication.state import (
    INCUMBENT,
    UNLOADED,
    Content,
    Engine,
    Errand,
    Load,
    Marker,
    Mode,
    Phase,
    Request,
    Slot,
    Stage,
    State,
    content_to_establish,
    live,
    load_to_establish,
    present,
    publication,
    vacate,
)

# The program order


def following(s: State, stage: Stage) -> Value[Stage] | Stage:
    """What comes after a stage that succeeded."""
    match stage:
        case Stage.RECORD_RUNNING:
            return ite(s.colocated, Stage.PAUSE, Stage.TRAIN)
        case Stage.PAUSE:
            return ite(s.mode == Mode.RETRACT, Stage.FLUSH, following(s, Stage.FLUSH))
        case Stage.FLUSH:
            return ite(
                s.errand == Errand.TRAIN,
                Stage.RELEASE,
                ite(s.memory_status == Marker.CHECKPOINT, Stage.DECLARE, following(s, Stage.DECLARE)),
            )
        case Stage.TRAIN:
            return Stage.RECORD_CHECKPOINT
        case Stage.DECLARE:
            return ite((s.errand == Errand.PUBLISH) | s.rebuilt, transfer(s), Stage.REBUILD)
        case Stage.REBUILD:
            return Stage.PAUSE
        case Stage.RECORD_TARGET:
            return ite(s.colocated, Stage.RELEASE, Stage.SEND)
        case Stage.RELEASE:
            return ite(s.errand == Errand.TRAIN, Stage.TRAIN, Stage.RESUME_WEIGHTS)
        case Stage.RESUME_WEIGHTS:
            return ite(s.errand == Errand.REJECT, Stage.RESUME_KV, Stage.SEND)
        case Stage.SEND:
            return ite(s.colocated, Stage.RESUME_KV, Stage.VERIFY)
        case Stage.RESUME_KV:
            return ite(s.errand == Errand.REJECT, Stage.CONTINUE, Stage.VERIFY)
        case Stage.VERIFY:
            return ite(
                s.memory_status == Marker.UPDATING_WEIGHTS,
                Stage.RECORD_READY,
                ite(s.memory_status == Marker.READY_TO_COMMIT, Stage.IDLE, Stage.CONTINUE),
            )
        case Stage.RECORD_HEAD:
            return Stage.CONTINUE
        case Stage.CONTINUE:
            return ite(
                s.memory_status == Marker.HEAD_COMMITTED,
                Stage.RECORD_COMPLETE,
                ite(s.memory_status == Marker.REJECTING, Stage.RECORD_REJECTED, Stage.IDLE),
            )
        case Stage.RECORD_REJECTING:
            return ite(s.colocated, Stage.RESUME_WEIGHTS, Stage.RECORD_REJECTED)
        case Stage.RETIRE:
            return ite(s.memory_status == Marker.CHECKPOINT, Stage.DECLARE_RETIRED, Stage.IDLE)
        case _:
            return Stage.IDLE


def transfer(s: State) -> Value[Stage]:
    """The first stage of moving bytes. A job's load has an id from its first try on; a parent has one."""
    unnamed = s.memory_target.is_none & ~s.memory_status.is_in(*INCUMBENT)
    return ite(unnamed, Stage.RECORD_TARGET, following(s, Stage.RECORD_TARGET))


def enter(s: State, stage: Value[Stage] | Stage) -> dict[str, object]:
    """Go on with a stage. The latch is set before a pause or shutdown can fail; the last stage ends the errand."""
    changes: dict[str, object] = {"stage": stage}
    if isinstance(stage, Stage):
        if stage is Stage.IDLE:
            changes |= {"errand": Errand.NOTHING, "full": False, "rebuilt": False}
        if stage in (Stage.PAUSE, Stage.RETIRE):
            changes |= {"latch": True}
        return changes
    options = leaves(stage)
    if Stage.IDLE in options:
        ends = stage == Stage.IDLE
        changes |= {"errand": ite(ends, Errand.NOTHING, s.errand), "full": s.full & ~ends, "rebuilt": s.rebuilt & ~ends}
    if Stage.PAUSE in options:
        changes |= {"latch": s.latch | (stage == Stage.PAUSE)}
    return changes


def leaves(stage: Value[Stage] | Stage) -> set[Stage]:
    """Every stage that an expression can come to."""
    if isinstance(stage, Stage):
        return {stage}

    def walk(node: Node) -> Iterator[Stage]:
        match node:
            case Ite(then=then, other=other):
                yield from walk(then)
                yield from walk(other)
            case Const(value=value):
                yield tuple(Stage)[value]

    return set(walk(stage.node))


CALLS = (Stage.PAUSE, Stage.FLUSH, Stage.SEND, Stage.CONTINUE)
"""The stages whose answers are counted. For memory, engines know themselves what is released."""


def unanswered() -> dict[str, object]:
    """Nobody has answered a call."""
    return {"done": each(Engine, lambda e: False)}


def proceed(s: State, stage: Stage) -> dict[str, object]:
    """The stage is done: go on with the one that follows."""
    return {**enter(s, following(s, stage)), **(unanswered() if stage in CALLS else {})}


def begin(s: State, errand: Errand, stage: Value[Stage] | Stage) -> dict[str, object]:
    """A call to the coordinator starts an errand."""
    return {**enter(s, stage), "errand": errand}


def give_up(s: State) -> dict[str, object]:
    """A call failed where nobody can say what engines hold: retire them all."""
    return {**enter(s, Stage.RETIRE), **unanswered()}


def leave_fenced(s: State) -> dict[str, object]:
    """Engines could not be continued. The record says how to go on, so a retry can; a repair that fails retires."""
    repairing = s.errand.is_in(Errand.REPUBLISH, Errand.RECOVER)
    return {
        **enter(s, ite(repairing, Stage.RETIRE, Stage.IDLE)),
        **unanswered(),
    }


# Calls to every engine


def asks(s: State, e: Engine, stage: Stage) -> Bool:
    """The call of this stage is made to this engine, and has not been answered."""
    return all_of(s.stage == stage, live(s, e), ~s.done[e])


def all_answered(s: State, stage: Stage) -> Bool:
    """Every handle has answered the call of this stage."""
    return all_of(s.stage == stage, forall(Engine, lambda e: ~present(s, e) | s.done[e]))


def drop(s: State, e: Engine) -> dict[str, object]:
    """The engine's tree is emptied."""
    return {"cached": {e: False}, "made_by": {e: each(Content, lambda c: False)}}


@publication.action(by="coordinator", on="e")
def pause(s: State, e: Engine) -> Step:
    """An engine stops scheduling. What runs on it is settled by the engine: `retract` and `finish`."""
    return when(asks(s, e, Stage.PAUSE)).then(paused={e: True}, done={e: True})


@publication.action(by="coordinator")
def all_paused(s: State) -> Step:
    """Every engine has answered the pause."""
    return when(all_answered(s, Stage.PAUSE)).then(**proceed(s, Stage.PAUSE))


@publication.action(by="coordinator", on="e")
def flush(s: State, e: Engine) -> Step:
    """An engine empties its tree; it refuses while a request holds KV, and is asked again."""
    return when(asks(s, e, Stage.FLUSH), s.request[e] != Request.RUNNING).then(done={e: True}, **drop(s, e))


@publication.action(by="coordinator")
def all_flushed(s: State) -> Step:
    """Every engine has flushed: the barrier has passed."""
    return when(all_answered(s, Stage.FLUSH)).then(**proceed(s, Stage.FLUSH))


@publication.action(by="coordinator", on="e")
def release(s: State, e: Engine) -> Step:
    """An engine flushes and gives its memory to the trainer, keeping a copy of its weights; again is no step."""
    return when(
        s.stage == Stage.RELEASE, live(s, e), ~(s.kv_out[e] & s.weights_out[e]), s.request[e] != Request.RUNNING
    ).then(kv_out={e: True}, weights_out={e: True}, **drop(s, e))


@publication.action(by="coordinator")
def all_released(s: State) -> Step:
    """Every engine has released its memory."""
    return when(
        s.stage == Stage.RELEASE,
        forall(Engine, lambda e: ~present(s, e) | (live(s, e) & s.kv_out[e] & s.weights_out[e])),
    ).then(**proceed(s, Stage.RELEASE))


@publication.action(by="coordinator")
def decline_job(s: State) -> Step:
    """The job is stale, or there is no room for its checkpoint: nothing is written, and it may be offered again."""
    return when(s.stage == Stage.RECORD_RUNNING).then(**enter(s, Stage.IDLE))


@publication.action(by="trainer")
def train(s: State) -> Step:
    """The trainer makes the job's checkpoint."""
    return when(s.stage == Stage.TRAIN).then(**proceed(s, Stage.TRAIN))


@publication.action(by="coordinator", on="e")
def rebuild(s: State, e: Engine) -> Step:
    """An empty slot gets a new process: it runs, on the bytes it booted with, and its warm-up request left an entry.

    Whatever memory a colocated one should not have, the release that follows takes from it.
    """
    return when(s.stage == Stage.REBUILD, ~present(s, e)).then(
        slot={e: Slot.LIVE},
        cached={e: s.sharing},
        made_by={e: each(Content, lambda c: s.sharing & (c == UNLOADED))},
    )


@publication.action(by="coordinator")
def all_rebuilt(s: State) -> Step:
    """No slot is empty: fence survivors and replacements alike."""
    return when(s.stage == Stage.REBUILD, forall(Engine, lambda e: present(s, e))).then(
        **proceed(s, Stage.REBUILD), rebuilt=True
    )


@publication.action(by="coordinator", on="e")
def resume_weights(s: State, e: Engine) -> Step:
    """An engine takes the memory of its weights back, if it had released it."""
    return when(s.stage == Stage.RESUME_WEIGHTS, s.weights_out[e]).then(
        weights_out={e: False}, unpaired=s.unpaired | ~s.weights_out[e]
    )


@publication.action(by="coordinator")
def all_weights_back(s: State) -> Step:
    """Every engine has its weights in memory."""
    return when(
        s.stage == Stage.RESUME_WEIGHTS,
        forall(Engine, lambda e: ~present(s, e) | (live(s, e) & ~s.weights_out[e])),
    ).then(**proceed(s, Stage.RESUME_WEIGHTS))


def received(s: State, e: Engine) -> Content:
    """What an engine holds after a transfer: a difference is right only on top of the bytes it was made against."""
    based = s.full | (s.weights[e] == s.memory_parent_content)
    return ite(based, content_to_establish(s), UNLOADED)


def note_sent(s: State) -> dict[str, object]:
    """Bytes have left for some engine under the id to establish."""
    return {
        "sent": each(
            Load,
            Content,
            lambda v, c: s.sent[v, c] | ((v == load_to_establish(s)) & (c == content_to_establish(s))),
        )
    }


@publication.action(by="coordinator", on="e")
def send(s: State, e: Engine) -> Step:
    """An engine receives the bytes, and then the id."""
    return when(asks(s, e, Stage.SEND)).then(
        weights={e: received(s, e)}, reports={e: load_to_establish(s)}, done={e: True}, **note_sent(s)
    )


@publication.action(by="coordinator")
def all_sent(s: State) -> Step:
    """Every engine has answered the transfer."""
    return when(all_answered(s, Stage.SEND)).then(**proceed(s, Stage.SEND))


@publication.action(by="coordinator", on="e")
def resume_kv(s: State, e: Engine) -> Step:
    """An engine takes its KV memory back, if it had released it; the weights are in place by now."""
    return when(s.stage == Stage.RESUME_KV, s.kv_out[e]).then(kv_out={e: False}, unpaired=s.unpaired | ~s.kv_out[e])


@publication.action(by="coordinator")
def all_kv_back(s: State) -> Step:
    """Every engine has its KV memory."""
    return when(
        s.stage == Stage.RESUME_KV,
        forall(Engine, lambda e: ~present(s, e) | (live(s, e) & ~s.kv_out[e])),
    ).then(**proceed(s, Stage.RESUME_KV))


def verified(s: State) -> Bool:
    """There are engines, and every one lives, reports the id and has the checksum of the bytes."""
    return exists(Engine, lambda e: present(s, e)) & forall(
        Engine,
        lambda e: (
            ~present(s, e)
            | (live(s, e) & (s.reports[e] == load_to_establish(s)) & (s.weights[e] == content_to_establish(s)))
        ),
    )


@publication.action(by="coordinator")
def verify(s: State) -> Step:
    """Every engine holds what was sent, under its id."""
    return when(s.stage == Stage.VERIFY, verified(s)).then(**proceed(s, Stage.VERIFY))


@publication.action(by="coordinator")
def find_mismatch(s: State) -> Step:
    """Some engine does not hold what was sent, or there is no engine."""
    return when(s.stage == Stage.VERIFY, ~verified(s)).then(**give_up(s))


@publication.action(by="coordinator", on="e")
def continue_generation(s: State, e: Engine) -> Step:
    """An engine schedules again. A request frozen in place goes on with the KV it has."""
    return when(asks(s, e, Stage.CONTINUE)).then(
        paused={e: False},
        done={e: True},
        kv={e: each(Content, lambda c: s.kv[e, c] | ((s.request[e] == Request.RUNNING) & (s.weights[e] == c)))},
    )


@publication.action(by="coordinator")
def all_continued(s: State) -> Step:
    """Every engine schedules again: the latch is cleared."""
    return when(all_answered(s, Stage.CONTINUE)).then(**{**proceed(s, Stage.CONTINUE), "latch": False})


@publication.action(by="coordinator")
def find_dead(s: State) -> Step:
    """A call reached a dead handle and failed: the barrier or the transfer has failed with it."""
    return when(
        s.stage.is_in(Stage.PAUSE, Stage.FLUSH, Stage.RELEASE, Stage.RESUME_WEIGHTS, Stage.SEND, Stage.RESUME_KV),
        exists(Engine, lambda e: (s.slot[e] == Slot.DEAD) & ~s.done[e]),
    ).then(**give_up(s))


@publication.action(by="coordinator")
def find_dead_at_continue(s: State) -> Step:
    """A dead handle cannot be continued."""
    return when(s.stage == Stage.CONTINUE, exists(Engine, lambda e: (s.slot[e] == Slot.DEAD) & ~s.done[e])).then(
        **leave_fenced(s)
    )


# Giving up


def failure(s: State) -> Value[Phase]:
    """What health reports of an errand that was given up."""
    return ite(s.errand == Errand.TRAIN, Phase.TRAINING_FAILED, Phase.WEIGHT_SYNC_FAILED)


@publication.action(by="coordinator", on="e")
def retire(s: State, e: Engine) -> Step:
    """A process is shut down, or was gone, and its slot is emptied."""
    return when(s.stage == Stage.RETIRE, present(s, e)).then(**vacate(e, Slot.EMPTY))


def end_retiring(s: State) -> dict[str, object]:
    """Giving up ends. That engines may hold anything is then declared, if need be."""
    return {**enter(s, following(s, Stage.RETIRE)), "phase": failure(s)}


@publication.action(by="coordinator")
def all_retired(s: State) -> Step:
    """Every slot is empty."""
    return when(s.stage == Stage.RETIRE, forall(Engine, lambda e: ~present(s, e))).then(**end_retiring(s))


# The record


RECORDS = {
    Stage.RECORD_RUNNING: Marker.RUNNING,
    Stage.RECORD_CHECKPOINT: Marker.CHECKPOINT,
    Stage.DECLARE: Marker.UPDATING_WEIGHTS,
    Stage.RECORD_TARGET: Marker.UPDATING_WEIGHTS,
    Stage.RECORD_READY: Marker.READY_TO_COMMIT,
    Stage.RECORD_HEAD: Marker.HEAD_COMMITTED,
    Stage.RECORD_COMPLETE: Marker.COMPLETE,
    Stage.RECORD_REJECTING: Marker.REJECTING,
    Stage.RECORD_REJECTED: Marker.REJECTED,
    Stage.DECLARE_RETIRED: Marker.UPDATING_WEIGHTS,
}
"""The status that is durable after each stage of writing."""


def record(s: State, stage: Stage) -> dict[str, object]:
    """What the record of a stage says, without the prefix that tells disk from memory.

    RUNNING is a new record: its parent is what was last completed, its checkpoint the next content.
    """
    if stage == Stage.RECORD_TARGET:
        return {"target": s.memory_parent + 1}
    if stage == Stage.RECORD_RUNNING:
        completed = s.memory_status == Marker.COMPLETE
        return {
            "status": Marker.RUNNING,
            "parent": ite(completed, s.memory_target.or_else(0), s.memory_parent),
            "parent_content": ite(completed, s.memory_content, s.memory_parent_content),
            "content": s.memory_content + 1,
            "target": None,
        }
    return {"status": RECORDS[stage]}


def written(s: State, stage: Stage) -> dict[str, object]:
    """The record of a stage is durable, and then known to be."""
    values = record(s, stage)
    return {f"{where}_{name}": value for where in ("disk", "memory") for name, value in values.items()}


def write(s: State, stage: Stage) -> Step:
    """The record of a stage is written, and the errand goes on."""
    return when(s.stage == stage).then(**written(s, stage), **proceed(s, stage))


@publication.action(by="coordinator", on="disk")
def record_running(s: State) -> Step:
    """Durable RUNNING: the optimizer may move from here on."""
    return write(s, Stage.RECORD_RUNNING)


@publication.action(by="coordinator", on="disk")
def record_checkpoint(s: State) -> Step:
    """Durable CHECKPOINT: the job's bytes exist, and no engine has any."""
    return write(s, Stage.RECORD_CHECKPOINT)


@publication.action(by="coordinator", on="disk")
def declare(s: State) -> Step:
    """Durable UPDATING_WEIGHTS: engines may hold anything from here on."""
    return write(s, Stage.DECLARE)


@publication.action(by="coordinator", on="disk")
def record_target(s: State) -> Step:
    """The id is durable before any byte leaves under it, so that every later try uses it."""
    return write(s, Stage.RECORD_TARGET)


@publication.action(by="coordinator", on="disk")
def record_ready(s: State) -> Step:
    """Durable READY_TO_COMMIT: every engine is verified, and stays paused."""
    return write(s, Stage.RECORD_READY)


@publication.action(by="coordinator", on="disk")
def record_head(s: State) -> Step:
    """Durable HEAD_COMMITTED: the service has moved its head, engines may continue."""
    return write(s, Stage.RECORD_HEAD)


@publication.action(by="coordinator", on="disk")
def record_complete(s: State) -> Step:
    """Durable COMPLETE: every engine has continued."""
    return write(s, Stage.RECORD_COMPLETE)


@publication.action(by="coordinator", on="disk")
def record_rejecting(s: State) -> Step:
    """Durable REJECTING: the job's bytes will not be used."""
    return write(s, Stage.RECORD_REJECTING)


@publication.action(by="coordinator", on="disk")
def record_rejected(s: State) -> Step:
    """Durable REJECTED: the parent serves."""
    return write(s, Stage.RECORD_REJECTED)


@publication.action(by="coordinator", on="disk")
def declare_retired(s: State) -> Step:
    """Durable UPDATING_WEIGHTS after giving up from CHECKPOINT, so that the next try rebuilds what was retired."""
    return write(s, Stage.DECLARE_RETIRED)
