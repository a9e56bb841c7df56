"""What must be true: of caches, of the record, of ids, of engines; what can always be reached; what must happen at all.

The letters in brackets number the invariants of the reference text. No action reads anything here. There is no state in
which the protocol may rest: somebody can always act.
"""

from __future__ import annotations

from spec.lang import Bool, CanReach, all_of, exists, forall, ite, wherever
from spec.publication.coordinator import CALLS
from spec.publication.service import takes_calls
from spec.publication.state import (
    PUBLISHED,
    REPUBLISHABLE,
    SETTLED,
    UNLOADED,
    UNOPENED,
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
    beyond_repair,
    generates,
    live,
    publication,
    replayable,
    up,
)

# Words


def committed_content(s: State) -> Content:
    """The bytes of the released load."""
    return ite(s.head == s.disk_parent, s.disk_parent_content, s.disk_content)


def serves_committed(s: State, e: Engine) -> Bool:
    """The engine reports the released load and holds its bytes."""
    return (s.reports[e] == s.head) & (s.weights[e] == committed_content(s))


def untouched(s: State) -> Bool:
    """No byte of the job's checkpoint has ever left for an engine."""
    return forall(Load, lambda v: ~s.sent[v, s.disk_content])


def repairs(s: State) -> Bool:
    """The errand starts from nothing that engines may hold."""
    return s.errand.is_in(Errand.RETRY, Errand.REPUBLISH, Errand.RECOVER)


def moves_bytes(s: State) -> Bool:
    """A transfer is under way."""
    return (s.errand != Errand.REJECT) & s.stage.is_in(Stage.RESUME_WEIGHTS, Stage.SEND, Stage.RESUME_KV, Stage.VERIFY)


def wakes(s: State, t: State, e: Engine) -> Bool:
    """In this step, an engine that did not schedule begins to."""
    return all_of(live(s, e), live(t, e), s.paused[e], ~t.paused[e])


# Caches


@publication.step_property
def no_stale_hit(s: State, t: State) -> Bool:
    """A request starts on KV that the engine's own weights made, whatever prefix it reuses (S1)."""
    return forall(
        Engine,
        lambda e: ((s.request[e] == Request.WAITING) & (t.request[e] == Request.RUNNING)).implies(
            forall(Content, lambda c: t.kv[e, c].implies(t.weights[e] == c))
        ),
    )


@publication.property
def sharing_only_with_retract(s: State) -> Bool:
    """A prefix cache is shared only where a pause retracts (S2)."""
    return s.sharing.implies(s.mode == Mode.RETRACT)


@publication.property
def flush_point(s: State) -> Bool:
    """While bytes move under retract, every engine's tree is empty, and stays so (S3)."""
    return (moves_bytes(s) & (s.mode == Mode.RETRACT)).implies(
        forall(Engine, lambda e: live(s, e).implies(~s.cached[e]))
    )


@publication.property
def retract_keeps_kv_pure(s: State) -> Bool:
    """Under retract, no request holds KV that other weights made than its engine has: none outlives a flush (S4)."""
    return (s.mode == Mode.RETRACT).implies(
        forall(Engine, lambda e: forall(Content, lambda c: s.kv[e, c].implies(s.weights[e] == c)))
    )


@publication.property
def in_place_keeps_kv_private(s: State) -> Bool:
    """Paused in place, KV of several loads stays with the request that made it: no tree holds any (S11)."""
    return (s.mode == Mode.IN_PLACE).implies(forall(Engine, lambda e: ~s.cached[e]))


@publication.property
def provenance_is_complete(s: State) -> Bool:
    """A tree with entries and a running request have KV that some weights made, and nothing else has."""
    return forall(
        Engine,
        lambda e: (
            (s.cached[e] == exists(Content, lambda c: s.made_by[e, c]))
            & ((s.request[e] == Request.RUNNING) == exists(Content, lambda c: s.kv[e, c]))
        ),
    )


@publication.step_property
def pauses_mean_what_they_say(s: State, t: State) -> Bool:
    """On a paused engine nothing starts; in place nothing ends either, and only under retract is anything sent back."""
    retracting = s.mode == Mode.RETRACT
    return forall(
        Engine,
        lambda e: all_of(
            ((s.request[e] != Request.RUNNING) & (t.request[e] == Request.RUNNING)).implies(~s.paused[e]),
            ((s.request[e] == Request.RUNNING) & (t.request[e] != Request.RUNNING) & s.paused[e] & live(t, e)).implies(
                retracting
            ),
            ((s.request[e] == Request.RUNNING) & (t.request[e] == Request.WAITING)).implies(retracting & s.paused[e]),
        ),
    )


# The record


@publication.property
def bytes_only_while_updating(s: State) -> Bool:
    """Before any byte of a checkpoint leaves for an engine, UPDATING_WEIGHTS is durable (P1)."""
    return s.disk_status.is_in(*UNOPENED).implies(untouched(s))


@publication.property
def bytes_are_accounted_for(s: State) -> Bool:
    """What an engine holds, unless it booted with it or a transfer tore it, was sent under some id (P1)."""
    return forall(Engine, lambda e: (s.weights[e] == UNLOADED) | exists(Load, lambda v: s.sent[v, s.weights[e]]))


@publication.property
def target_recorded_before_bytes(s: State) -> Bool:
    """Bytes were only ever sent under ids that the record has: its target, its parent and what came before (P2)."""
    return forall(
        Load,
        lambda v: exists(Content, lambda c: s.sent[v, c]).implies((v <= s.disk_parent) | (s.disk_target == v)),
    )


@publication.property
def failure_declares(s: State) -> Bool:
    """A publication that failed has fenced the engines and says so durably, or the disk would not take it (P3)."""
    return all_of(s.stage == Stage.IDLE, s.phase == Phase.WEIGHT_SYNC_FAILED).implies(
        s.latch & ((s.disk_status != Marker.CHECKPOINT) | s.undeclared)
    )


@publication.property
def retry_is_full(s: State) -> Bool:
    """A retry, a republication and a recovery fill every slot and send every byte (P4)."""
    return (repairs(s) & (s.stage == Stage.SEND)).implies(s.full & forall(Engine, lambda e: s.slot[e] != Slot.EMPTY))


@publication.property
def nobody_schedules_during_transfer(s: State) -> Bool:
    """While bytes move, every engine is paused, those that appeared in the meantime too (P4, P15)."""
    return moves_bytes(s).implies(forall(Engine, lambda e: live(s, e).implies(s.paused[e])))


@publication.property
def serves_only_committed(s: State) -> Bool:
    """What an engine runs on is the load that the service has released (P5)."""
    return forall(Engine, lambda e: generates(s, e).implies(serves_committed(s, e)))


@publication.step_property
def ack_order(s: State, t: State) -> Bool:
    """First the head, then durable HEAD_COMMITTED, then engines continue, then durable COMPLETE (P6)."""
    return all_of(
        t.disk_status.is_in(Marker.HEAD_COMMITTED, Marker.COMPLETE).implies(t.disk_target == t.head),
        exists(Engine, lambda e: wakes(s, t, e)).implies(
            s.disk_status.is_in(Marker.HEAD_COMMITTED, Marker.COMPLETE, Marker.REJECTING, Marker.REJECTED, Marker.NONE)
        ),
        ((s.disk_status == Marker.HEAD_COMMITTED) & (t.disk_status == Marker.COMPLETE)).implies(~s.latch),
    )


@publication.property
def uniform_when_serving(s: State) -> Bool:
    """Once the first engine may continue, every live engine reports the released load and holds its bytes (P7)."""
    return ((s.stage == Stage.CONTINUE) | (up(s) & ~s.latch)).implies(
        forall(Engine, lambda e: live(s, e).implies(serves_committed(s, e)))
    )


@publication.property
def readiness_is_observed(s: State) -> Bool:
    """READY_TO_COMMIT is written only when there is an engine, and every live one has the load (P7)."""
    return (s.stage == Stage.RECORD_READY).implies(
        exists(Engine, lambda e: s.slot[e] != Slot.EMPTY)
        & forall(
            Engine,
            lambda e: live(s, e).implies((s.reports[e] == s.disk_target) & (s.weights[e] == s.disk_content)),
        )
    )


@publication.property
def one_content_per_id(s: State) -> Bool:
    """No two different bytes were ever sent under one id, over retries, crashes and restarts (P8)."""
    return forall(
        Load,
        lambda v: forall(Content, lambda c: forall(Content, lambda d: (s.sent[v, c] & s.sent[v, d]).implies(c == d))),
    )


@publication.step_property
def identity_kept(s: State, t: State) -> Bool:
    """A recorded id is used again by every later try, and never changes once it is published (P9)."""
    return (~s.disk_target.is_none & (t.disk_status != Marker.RUNNING)).implies(
        (t.disk_target == s.disk_target) & (t.disk_content == s.disk_content)
    )


EDGES = {
    Marker.NONE: (Marker.RUNNING,),
    Marker.RUNNING: SETTLED,
    Marker.CHECKPOINT: (Marker.RUNNING,),
    Marker.UPDATING_WEIGHTS: (Marker.CHECKPOINT,),
    Marker.READY_TO_COMMIT: (Marker.UPDATING_WEIGHTS,),
    Marker.HEAD_COMMITTED: (Marker.READY_TO_COMMIT,),
    Marker.COMPLETE: (Marker.HEAD_COMMITTED, Marker.RUNNING),
    Marker.REJECTING: (Marker.CHECKPOINT,),
    Marker.REJECTED: (Marker.REJECTING,),
}
"""From which statuses each one is written; NONE and COMPLETE from RUNNING is the operator's restoring of a record."""


@publication.step_property
def marker_edges(s: State, t: State) -> Bool:
    """The durable status takes only the edges of the marker and its few raw writes (P10)."""
    return all_of(
        *((t.disk_status == after).implies(s.disk_status.is_in(after, *before)) for after, before in EDGES.items())
    )


@publication.property
def memory_mirrors_disk(s: State) -> Bool:
    """What a running coordinator believes of its record is what a restart would read (P10)."""
    return up(s).implies(
        all_of(
            s.memory_status == s.disk_status,
            s.memory_parent == s.disk_parent,
            s.memory_parent_content == s.disk_parent_content,
            s.memory_content == s.disk_content,
            s.memory_target == s.disk_target,
        )
    )


@publication.property
def calls_fit_the_marker(s: State) -> Bool:
    """No call makes a step where the record says that there is nothing to do, or nothing that may be done (P11)."""
    fits = {
        Errand.TRAIN: (*SETTLED, Marker.RUNNING),
        Errand.PUBLISH: (Marker.CHECKPOINT, Marker.UPDATING_WEIGHTS),
        Errand.RETRY: (Marker.UPDATING_WEIGHTS,),
        Errand.REPUBLISH: REPUBLISHABLE,
        Errand.ACKNOWLEDGE: (Marker.READY_TO_COMMIT, Marker.HEAD_COMMITTED),
        Errand.REJECT: (Marker.CHECKPOINT, Marker.REJECTING),
    }
    failing = s.stage.is_in(Stage.RETIRE, Stage.DECLARE_RETIRED)
    return all_of(
        *((s.errand == errand).implies(failing | s.disk_status.is_in(*marker)) for errand, marker in fits.items())
    )


@publication.property
def reject_only_untouched(s: State) -> Bool:
    """A checkpoint is rejected only where no byte of it ever left for an engine (P12)."""
    return s.disk_status.is_in(Marker.REJECTING, Marker.REJECTED).implies(untouched(s))


@publication.step_property
def running_never_resumed(s: State, t: State) -> Bool:
    """Where RUNNING was left behind, no errand starts: nobody can tell whether the optimizer moved (P13)."""
    return ((s.disk_status == Marker.RUNNING) & (s.errand == Errand.NOTHING)).implies(t.errand == Errand.NOTHING)


# Engines


@publication.step_property
def slots_change_by_their_owner(s: State, t: State) -> Bool:
    """Only a rebuild fills a slot; only retiring, a tear-down or, latch clear, the monitor empties one (P14)."""
    return forall(
        Engine,
        lambda e: all_of(
            ((s.slot[e] == Slot.EMPTY) & (t.slot[e] != Slot.EMPTY)).implies((s.stage == Stage.REBUILD) & s.latch),
            ((s.slot[e] != Slot.EMPTY) & (t.slot[e] == Slot.EMPTY)).implies(
                (s.stage == Stage.RETIRE)
                | ((t.stage == Stage.DOWN) & beyond_repair(s))
                | (up(s) & ~s.latch & (s.slot[e] == Slot.DEAD))
            ),
            ((s.slot[e] == Slot.DEAD) & (t.slot[e] != Slot.DEAD)).implies(t.slot[e] == Slot.EMPTY),
        ),
    )


@publication.property
def empty_slots_hold_nothing(s: State) -> Bool:
    """Where there is no process, there is no pause, no weights, no id, no memory, no request and no tree."""
    return forall(
        Engine,
        lambda e: (
            live(s, e)
            | all_of(
                ~s.paused[e],
                s.weights[e] == UNLOADED,
                s.reports[e].is_none,
                ~s.kv_out[e],
                ~s.weights_out[e],
                s.request[e] == Request.NONE,
                ~s.cached[e],
            )
        ),
    )


@publication.property
def errands_end_clean(s: State) -> Bool:
    """Nothing of an errand outlives it, and no answer the call that it was given to (P14)."""
    resting = s.stage.is_in(Stage.DOWN, Stage.REFUSED, Stage.IDLE)
    return all_of(
        resting == (s.errand == Errand.NOTHING),
        resting.implies(~s.full & ~s.rebuilt),
        s.stage.is_in(*CALLS) | forall(Engine, lambda e: ~s.done[e]),
        (s.phase == Phase.SERVING) | s.stage.is_in(Stage.IDLE, Stage.DECLARE_RETIRED),
    )


@publication.property
def crash_forgets(s: State) -> Bool:
    """A coordinator that is not up knows nothing: whatever a restart goes by is in the record (L4)."""
    return up(s) | all_of(
        s.memory_status == Marker.NONE,
        s.memory_parent == 0,
        s.memory_parent_content == UNLOADED,
        s.memory_content == UNLOADED,
        s.memory_target.is_none,
        s.phase == Phase.SERVING,
        ~s.latch,
        ~s.undeclared,
    )


@publication.step_property
def one_errand_at_a_time(s: State, t: State) -> Bool:
    """No call is taken up before the last has ended, and no errand returns to its barrier but to rebuild (P14)."""
    return all_of(
        ((s.errand != Errand.NOTHING) & (t.errand != Errand.NOTHING)).implies(
            (t.errand == s.errand) & (t.full == s.full)
        ),
        ((s.stage != Stage.PAUSE) & (t.stage == Stage.PAUSE)).implies(
            s.stage.is_in(Stage.IDLE, Stage.DOWN, Stage.RECORD_RUNNING, Stage.REBUILD)
        ),
    )


@publication.step_property
def failure_admits_only_repair(s: State, t: State) -> Bool:
    """After a failure, a coordinator takes up nothing but what repairs it."""
    return (s.phase != Phase.SERVING).implies(
        (t.errand == s.errand) | t.errand.is_in(Errand.NOTHING, Errand.RETRY, Errand.REPUBLISH)
    )


@publication.step_property
def everybody_answers(s: State, t: State) -> Bool:
    """Only a process answers a call, once, and a call has succeeded only when every handle has answered."""
    fails = t.stage.is_in(Stage.DOWN, Stage.RETIRE, Stage.IDLE)
    return all_of(
        forall(Engine, lambda e: (~s.done[e] & t.done[e]).implies(live(s, e))),
        forall(
            Engine,
            lambda e: (s.done[e] & t.done[e] & (s.stage == Stage.SEND) & live(t, e)).implies(
                (t.weights[e] == s.weights[e]) & (t.reports[e] == s.reports[e])
            ),
        ),
        (s.stage.is_in(*CALLS) & (t.stage != s.stage)).implies(
            fails | forall(Engine, lambda e: (s.slot[e] == Slot.EMPTY) | s.done[e])
        ),
    )


@publication.property
def latch_covers_pause(s: State) -> Bool:
    """From before the first pause until every engine has continued, the latch is set (P15).

    Continuing an acknowledgement or a rejection whose last write failed finds engines that have continued already.
    """
    fencing = ~s.errand.is_in(Errand.ACKNOWLEDGE, Errand.REJECT) & s.stage.is_in(
        Stage.PAUSE,
        Stage.FLUSH,
        Stage.REBUILD,
        Stage.RELEASE,
        Stage.RESUME_WEIGHTS,
        Stage.SEND,
        Stage.RESUME_KV,
        Stage.VERIFY,
        Stage.CONTINUE,
    )
    return up(s).implies(s.latch | (~fencing & forall(Engine, lambda e: ~(live(s, e) & s.paused[e]))))


@publication.property
def memory_paired(s: State) -> Bool:
    """No engine was told to take back memory that it had not released (P21)."""
    return ~s.unpaired


@publication.property
def no_use_of_released_memory(s: State) -> Bool:
    """Bytes are written and requests run only where the memory is; no tree outlives its KV (P21)."""
    return forall(
        Engine,
        lambda e: all_of(
            generates(s, e).implies(~s.kv_out[e] & ~s.weights_out[e]),
            s.cached[e].implies(~s.kv_out[e]),
            (live(s, e) & (s.stage == Stage.SEND)).implies(~s.weights_out[e]),
        ),
    )


@publication.property
def trainer_has_the_memory(s: State) -> Bool:
    """Colocated, no engine holds memory while the trainer works (P21)."""
    return (s.colocated & (s.stage == Stage.TRAIN)).implies(
        forall(Engine, lambda e: live(s, e).implies(s.kv_out[e] & s.weights_out[e]))
    )


@publication.property
def kv_returns_after_the_bytes(s: State) -> Bool:
    """Colocated, no engine has KV memory before every byte has arrived, so no tree can fill during a transfer (P21)."""
    return (s.colocated & moves_bytes(s) & s.stage.is_in(Stage.RESUME_WEIGHTS, Stage.SEND)).implies(
        forall(Engine, lambda e: live(s, e).implies(s.kv_out[e]))
    )


@publication.step_property
def only_owner_resumes(s: State, t: State) -> Bool:
    """Nobody but the coordinator, when it continues engines, makes one schedule again (P22)."""
    return exists(Engine, lambda e: wakes(s, t, e)).implies(s.stage == Stage.CONTINUE)


# The service


@publication.step_property
def admission_only_when_settled(s: State, t: State) -> Bool:
    """A request is admitted only through the open gate, which is open only where nothing is in flight (P23)."""
    admitted = exists(Engine, lambda e: (s.request[e] == Request.NONE) & (t.request[e] == Request.WAITING))
    settled = s.disk_status.is_in(*SETTLED) | (~s.colocated & s.disk_status.is_in(*UNOPENED))
    return admitted.implies(s.gate) & s.gate.implies(settled & ~s.latch)


@publication.property
def id_tells_the_truth(s: State) -> Bool:
    """Where nothing has failed or moves, an engine that reports an id holds bytes that were sent under it (T4)."""
    quiet = s.stage.is_in(
        Stage.IDLE,
        Stage.RECORD_READY,
        Stage.RECORD_HEAD,
        Stage.CONTINUE,
        Stage.RECORD_COMPLETE,
        Stage.RECORD_REJECTED,
    )
    return (quiet & (s.phase == Phase.SERVING)).implies(
        forall(
            Engine,
            lambda e: forall(
                Load,
                lambda v: (live(s, e) & (s.reports[e] == v)).implies(
                    exists(Content, lambda c: s.sent[v, c] & (s.weights[e] == c))
                ),
            ),
        )
    )


# What can always be reached, without a further fault

LAST_RESORTS = ("tear_down", "restart")


def serving(s: State) -> Bool:
    """Admission is open, and every engine serves."""
    return s.gate & forall(Engine, lambda e: live(s, e) & ~s.paused[e])


@publication.recovery(avoiding=LAST_RESORTS)
def failure_is_repaired_in_place(s: State) -> CanReach:
    """A failure that health calls replayable is repaired by this coordinator: published, or serving again (L3)."""
    return wherever(replayable(s)).can_reach(all_of(takes_calls(s), s.disk_status.is_in(*PUBLISHED, *SETTLED)))


@publication.recovery(avoiding=["tear_down"])
def restart_recovers(s: State) -> CanReach:
    """From every record but RUNNING, a new coordinator gets to serving, or to waiting for the commit (L4)."""
    return wherever((s.stage == Stage.DOWN) & (s.disk_status != Marker.RUNNING)).can_reach(
        all_of(
            takes_calls(s),
            ~s.latch | (s.disk_status == Marker.READY_TO_COMMIT),
            forall(Engine, lambda e: live(s, e)),
        )
    )


@publication.recovery(avoiding=[*LAST_RESORTS, "begin_republish"])
def acknowledgement_completes(s: State) -> CanReach:
    """Once HEAD_COMMITTED is durable, repeating the acknowledgement completes it if no engine has died (L6)."""
    return wherever(
        all_of(
            takes_calls(s),
            s.disk_status == Marker.HEAD_COMMITTED,
            forall(Engine, lambda e: s.slot[e] != Slot.DEAD),
        )
    ).can_reach(s.disk_status == Marker.COMPLETE)


@publication.recovery(avoiding=[*LAST_RESORTS, "begin_republish"])
def rejection_completes(s: State) -> CanReach:
    """Once REJECTING is durable, repeating the rejection completes it if no engine has died."""
    return wherever(
        all_of(
            takes_calls(s),
            s.disk_status == Marker.REJECTING,
            forall(Engine, lambda e: s.slot[e] != Slot.DEAD),
        )
    ).can_reach(all_of(s.disk_status == Marker.REJECTED, s.stage == Stage.IDLE, s.phase == Phase.SERVING))


@publication.recovery(avoiding=[*LAST_RESORTS, "find_dead"])
def barrier_passes(s: State) -> CanReach:
    """A barrier in which no engine dies gets past its flush, whatever requests there are (L2)."""
    return wherever(
        s.stage.is_in(Stage.PAUSE, Stage.FLUSH, Stage.RELEASE) & forall(Engine, lambda e: s.slot[e] != Slot.DEAD)
    ).can_reach(~s.stage.is_in(Stage.PAUSE, Stage.FLUSH, Stage.RELEASE))


@publication.recovery(avoiding=[*LAST_RESORTS, "begin_training"])
def lost_engines_are_replaced(s: State) -> CanReach:
    """Where the record is settled and health is good, a lost engine can be replaced without restart or new job (L7)."""
    return wherever(all_of(takes_calls(s), s.disk_status.is_in(*SETTLED))).can_reach(serving(s))


@publication.recovery()
def requests_end(s: State) -> CanReach:
    """Every admitted request can be answered, by tokens or, where its engine is gone, by an error (L1)."""
    return wherever(exists(Engine, lambda e: s.request[e] != Request.NONE)).can_reach(
        forall(Engine, lambda e: s.request[e] == Request.NONE)
    )


@publication.recovery(avoiding=["begin_training"])
def admission_opens(s: State) -> CanReach:
    """From everywhere, every engine can serve again with admission open, and no other job is needed for it (L9)."""
    return wherever(all_of()).can_reach(serving(s))


# What must happen at all


@publication.goal
def reusable(s: State) -> Bool:
    """After a publication, a request waits where a prefix is cached and the engine schedules."""
    return (s.head > 0) & exists(Engine, lambda e: s.cached[e] & (s.request[e] == Request.WAITING) & ~s.paused[e])


@publication.goal
def retracted(s: State) -> Bool:
    """A retracted request waits on a paused engine whose tree still holds its prefix."""
    return (s.mode == Mode.RETRACT) & exists(
        Engine, lambda e: s.paused[e] & s.cached[e] & (s.request[e] == Request.WAITING)
    )


@publication.goal
def running_ahead(s: State) -> Bool:
    """A request still runs on a paused engine under retract, when the flush is asked for."""
    return all_of(s.mode == Mode.RETRACT, s.stage == Stage.FLUSH) & exists(
        Engine, lambda e: s.paused[e] & (s.request[e] == Request.RUNNING)
    )


def older(s: State, e: Engine) -> Bool:
    """The request's KV was made by more than the engine's weights."""
    return exists(Content, lambda c: s.kv[e, c] & (s.weights[e] != c))


@publication.goal
def mixed(s: State) -> Bool:
    """A request paused in place goes on with KV of two loads."""
    return exists(Engine, lambda e: generates(s, e) & s.kv[e, committed_content(s)] & older(s, e))


@publication.goal
def moving(s: State) -> Bool:
    """One engine holds the new bytes and another the old ones."""
    return (s.stage == Stage.SEND) & exists(
        Engine,
        lambda e: exists(Engine, lambda f: (s.weights[e] == s.disk_content) & (s.weights[f] == s.disk_parent_content)),
    )


@publication.goal
def sent_by_difference(s: State) -> Bool:
    """A transfer by difference has been verified."""
    return ~s.full & (s.errand == Errand.PUBLISH) & (s.stage == Stage.RECORD_READY)


@publication.goal
def sent_in_full(s: State) -> Bool:
    """A first transfer of every byte has been verified."""
    return s.full & (s.errand == Errand.PUBLISH) & (s.stage == Stage.RECORD_READY)


@publication.goal
def torn(s: State) -> Bool:
    """A transfer has answered success and left bytes that nobody sent, under the new id."""
    return (s.stage == Stage.VERIFY) & exists(
        Engine, lambda e: live(s, e) & (s.weights[e] == UNLOADED) & (s.reports[e] == s.memory_target)
    )


@publication.goal
def unstamped(s: State) -> Bool:
    """A transfer has answered success and left the old id."""
    return (s.stage == Stage.VERIFY) & exists(
        Engine, lambda e: (s.weights[e] == s.memory_content) & (s.reports[e] == s.memory_parent)
    )


@publication.goal
def stamped_in_vain(s: State) -> Bool:
    """A transfer has answered success, stamped the new id and left the old bytes."""
    return (s.stage == Stage.VERIFY) & exists(
        Engine, lambda e: (s.weights[e] == s.memory_parent_content) & (s.reports[e] == s.memory_target)
    )


@publication.goal
def published(s: State) -> Bool:
    """A load is published and waits for the commit."""
    return (s.stage == Stage.IDLE) & (s.disk_status == Marker.READY_TO_COMMIT)


@publication.goal
def committed(s: State) -> Bool:
    """A new load is served by every engine, with admission open."""
    return (s.head > 0) & serving(s) & forall(Engine, lambda e: generates(s, e))


@publication.goal
def interrupted(s: State) -> Bool:
    """The head has moved, and some engine could not be continued."""
    return all_of(s.stage == Stage.IDLE, s.latch, s.disk_status == Marker.HEAD_COMMITTED, s.phase == Phase.SERVING)


@publication.goal
def rejected(s: State) -> Bool:
    """A colocated checkpoint was rejected and the parent is served again, with admission open."""
    return all_of(s.disk_status == Marker.REJECTED, s.colocated, serving(s))


@publication.goal
def retried(s: State) -> Bool:
    """A retry has filled the slots and its transfer is verified."""
    return all_of(s.errand == Errand.RETRY, s.rebuilt, s.stage == Stage.RECORD_READY)


@publication.goal
def republished(s: State) -> Bool:
    """A published load is about to be served again under its own id."""
    return all_of(s.errand == Errand.REPUBLISH, s.disk_status == Marker.COMPLETE, s.stage == Stage.CONTINUE)


@publication.goal
def recovered(s: State) -> Bool:
    """A restart has verified what an interrupted publication had left, and will publish it."""
    return all_of(s.errand == Errand.RECOVER, s.stage == Stage.RECORD_READY)


@publication.goal
def warmed_up(s: State) -> Bool:
    """A replacement is up, with an entry in its tree that no load's weights made."""
    return exists(Engine, lambda e: live(s, e) & exists(Content, lambda c: s.made_by[e, c] & (c == UNLOADED)))


@publication.goal
def survived(s: State) -> Bool:
    """Retiring failed: a publication has failed, and live engines hold what nobody sent."""
    return (s.phase == Phase.WEIGHT_SYNC_FAILED) & exists(Engine, lambda e: live(s, e) & (s.weights[e] == UNLOADED))


@publication.goal
def partly_retired(s: State) -> Bool:
    """Every slot was filled, the transfer has failed, and one engine is retired while another still lives."""
    return all_of(s.stage == Stage.RETIRE, s.rebuilt) & exists(
        Engine, lambda e: (s.slot[e] == Slot.EMPTY) & exists(Engine, lambda f: live(s, f))
    )


@publication.goal
def undeclared(s: State) -> Bool:
    """Engines were retired from CHECKPOINT, and the disk would not take the declaration."""
    return (s.stage == Stage.IDLE) & s.undeclared


@publication.goal
def refused(s: State) -> Bool:
    """A restart has refused RUNNING."""
    return s.stage == Stage.REFUSED


@publication.goal
def condemned(s: State) -> Bool:
    """Health is beyond repair."""
    return beyond_repair(s)


@publication.goal
def released(s: State) -> Bool:
    """Engines have given their memory to the trainer."""
    return (s.stage == Stage.TRAIN) & forall(Engine, lambda e: s.weights_out[e] & s.kv_out[e])


@publication.goal
def lost_while_serving(s: State) -> Bool:
    """Training runs beside open admission, and an engine has been lost."""
    return all_of(s.stage == Stage.TRAIN, s.gate) & exists(Engine, lambda e: s.slot[e] == Slot.EMPTY)


@publication.goal
def lost_while_latched(s: State) -> Bool:
    """An engine has died under the latch, and its handle must stay."""
    return s.latch & exists(Engine, lambda e: s.slot[e] == Slot.DEAD)


SHOWN_BY = {
    "no_stale_hit": "reusable",
    "sharing_only_with_retract": "reusable",
    "flush_point": "retracted",
    "retract_keeps_kv_pure": "running_ahead",
    "in_place_keeps_kv_private": "mixed",
    "provenance_is_complete": "warmed_up",
    "pauses_mean_what_they_say": "mixed",
    "bytes_only_while_updating": "moving",
    "bytes_are_accounted_for": "torn",
    "target_recorded_before_bytes": "moving",
    "failure_declares": "undeclared",
    "retry_is_full": "retried",
    "nobody_schedules_during_transfer": "warmed_up",
    "serves_only_committed": "committed",
    "ack_order": "interrupted",
    "uniform_when_serving": "committed",
    "readiness_is_observed": "retried",
    "one_content_per_id": "recovered",
    "identity_kept": "republished",
    "marker_edges": "rejected",
    "memory_mirrors_disk": "undeclared",
    "calls_fit_the_marker": "published",
    "reject_only_untouched": "rejected",
    "running_never_resumed": "refused",
    "slots_change_by_their_owner": "lost_while_latched",
    "empty_slots_hold_nothing": "partly_retired",
    "errands_end_clean": "published",
    "crash_forgets": "refused",
    "one_errand_at_a_time": "retried",
    "failure_admits_only_repair": "undeclared",
    "everybody_answers": "lost_while_latched",
    "latch_covers_pause": "interrupted",
    "memory_paired": "released",
    "no_use_of_released_memory": "released",
    "trainer_has_the_memory": "released",
    "kv_returns_after_the_bytes": "released",
    "only_owner_resumes": "retracted",
    "admission_only_when_settled": "lost_while_serving",
    "id_tells_the_truth": "stamped_in_vain",
    "failure_is_repaired_in_place": "survived",
    "restart_recovers": "recovered",
    "acknowledgement_completes": "interrupted",
    "rejection_completes": "rejected",
    "barrier_passes": "running_ahead",
    "lost_engines_are_replaced": "lost_while_serving",
    "requests_end": "retracted",
    "admission_opens": "condemned",
    "every_publication_settles": "rejected",
    "every_commit_completes": "interrupted",
    "every_errand_ends": "retried",
    "every_request_is_answered": "retracted",
    "every_lost_engine_is_replaced": "lost_while_serving",
    "everybody_serves": "condemned",
}
"""The goal that shows, for each claim, that what it speaks of happens."""
