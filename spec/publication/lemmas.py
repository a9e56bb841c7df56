"""What else is true of every reachable state of the publication protocol, for the sake of its proof.

Four groups: where the program may be (`errand_has_its_stages` and on), what the record has (`target_follows_parent`
and on), what engines hold (`healthy_engines_hold_the_load` and on), and what the ideal sees (`running_kv_has_its_own`
and on). Each lemma names an obligation that fails without
it, and tells in a sentence how.
"""

from __future__ import annotations

from spec.lang import Bool, all_of, any_of, forall, ite
from spec.lang.lemmas import Lemmas
from spec.lang.refinement import BEGINS, REFINES
from spec.publication.properties import committed_content, moves_bytes, repairs, serves_committed
from spec.publication.state import (
    INCUMBENT,
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
    generates,
    live,
    publication,
    up,
)

LEMMAS = Lemmas(publication)
"""Every lemma by its name, and what each claim rests on."""

lemma = LEMMAS.register


# Where the program may be

BARRIER = (Stage.PAUSE, Stage.FLUSH)
TRANSFER = (Stage.RELEASE, Stage.RESUME_WEIGHTS, Stage.SEND, Stage.RESUME_KV, Stage.VERIFY)
FIRST_TIME = (*BARRIER, *TRANSFER, Stage.RECORD_TARGET, Stage.RECORD_READY, Stage.RETIRE)
"""The stages of establishing a load that was never verified."""
AGAIN = (*BARRIER, *TRANSFER, Stage.CONTINUE, Stage.RECORD_COMPLETE, Stage.RECORD_REJECTED, Stage.RETIRE)
"""The stages of establishing what is known."""
DECLARING = (Stage.DECLARE, Stage.DECLARE_RETIRED)

PROGRAM = {
    Errand.TRAIN: (
        *BARRIER,
        Stage.RECORD_RUNNING,
        Stage.RELEASE,
        Stage.TRAIN,
        Stage.RECORD_CHECKPOINT,
        Stage.RETIRE,
    ),
    Errand.PUBLISH: (*FIRST_TIME, *DECLARING),
    Errand.RETRY: (*FIRST_TIME, Stage.REBUILD),
    Errand.REPUBLISH: (*AGAIN, Stage.REBUILD),
    Errand.RECOVER: (*FIRST_TIME, *AGAIN, *DECLARING, Stage.REBUILD),
    Errand.ACKNOWLEDGE: (Stage.RECORD_HEAD, Stage.CONTINUE, Stage.RECORD_COMPLETE),
    Errand.REJECT: (
        Stage.RECORD_REJECTING,
        Stage.RESUME_WEIGHTS,
        Stage.RESUME_KV,
        Stage.CONTINUE,
        Stage.RECORD_REJECTED,
        Stage.RETIRE,
    ),
}
"""The stages that each errand comes to."""

ESTABLISHABLE = (Marker.UPDATING_WEIGHTS, *REPUBLISHABLE)
STATUSES = {
    Stage.REFUSED: (Marker.RUNNING,),
    Stage.RECORD_RUNNING: SETTLED,
    Stage.TRAIN: (Marker.RUNNING,),
    Stage.RECORD_CHECKPOINT: (Marker.RUNNING,),
    Stage.DECLARE: (Marker.CHECKPOINT,),
    Stage.DECLARE_RETIRED: (Marker.CHECKPOINT,),
    Stage.REBUILD: ESTABLISHABLE,
    Stage.RECORD_TARGET: (Marker.UPDATING_WEIGHTS,),
    Stage.RELEASE: (Marker.RUNNING, *ESTABLISHABLE),
    Stage.RESUME_WEIGHTS: ESTABLISHABLE,
    Stage.SEND: ESTABLISHABLE,
    Stage.RESUME_KV: ESTABLISHABLE,
    Stage.VERIFY: ESTABLISHABLE,
    Stage.RECORD_READY: (Marker.UPDATING_WEIGHTS,),
    Stage.RECORD_HEAD: (Marker.READY_TO_COMMIT,),
    Stage.CONTINUE: (Marker.HEAD_COMMITTED, Marker.COMPLETE, *INCUMBENT),
    Stage.RECORD_COMPLETE: (Marker.HEAD_COMMITTED,),
    Stage.RECORD_REJECTING: (Marker.CHECKPOINT,),
    Stage.RECORD_REJECTED: (Marker.REJECTING,),
}
"""The durable statuses in which the program comes to each stage; to those that are not named here, in any."""


def rests_well(s: State) -> Bool:
    """No errand is going on, and health is good."""
    return (s.stage == Stage.IDLE) & (s.phase == Phase.SERVING)


@lemma(
    breaks=("flush_point", "record_rejecting"),
    without="A publication writes REJECTING, and so begins a transfer that no barrier came before.",
)
def errand_has_its_stages(s: State) -> Bool:
    """An errand is only in stages of its program."""
    return all_of(*((s.errand == errand).implies(s.stage.is_in(*stages)) for errand, stages in PROGRAM.items()))


@lemma(
    breaks=("bytes_only_while_updating", "send"),
    without="A recovery sends while the record still says CHECKPOINT.",
)
def stage_has_its_status(s: State) -> Bool:
    """The program comes to a stage only while the record has a status for it."""
    return all_of(*((s.stage == stage).implies(s.disk_status.is_in(*found)) for stage, found in STATUSES.items()))


@lemma(
    breaks=("no_dead_end", "everywhere"),
    without="A coordinator whose health is good has nothing to do, because its record says RUNNING.",
)
def errand_has_its_status(s: State) -> Bool:
    """An errand goes on only while the record has a status for it, and good health at rest has its statuses too."""
    barrier = s.stage.is_in(*BARRIER)
    return all_of(
        (s.errand == Errand.TRAIN).implies((s.stage == Stage.RECORD_RUNNING) | (s.disk_status == Marker.RUNNING)),
        (s.errand == Errand.PUBLISH).implies(
            ite(
                barrier,
                s.disk_status == Marker.CHECKPOINT,
                s.disk_status.is_in(Marker.CHECKPOINT, Marker.UPDATING_WEIGHTS, Marker.READY_TO_COMMIT),
            )
        ),
        ((s.errand == Errand.PUBLISH) & s.stage.is_in(*TRANSFER)).implies(s.disk_status == Marker.UPDATING_WEIGHTS),
        (s.errand == Errand.RETRY).implies(
            (s.disk_status == Marker.UPDATING_WEIGHTS)
            | ((s.stage == Stage.RETIRE) & (s.disk_status == Marker.READY_TO_COMMIT))
        ),
        (s.errand == Errand.REPUBLISH).implies(s.disk_status.is_in(*REPUBLISHABLE)),
        (s.errand == Errand.RECOVER).implies(s.disk_status != Marker.RUNNING),
        (s.errand == Errand.ACKNOWLEDGE).implies(
            (s.stage == Stage.RECORD_HEAD) | (s.disk_status == Marker.HEAD_COMMITTED)
        ),
        (s.errand == Errand.REJECT).implies((s.stage == Stage.RECORD_REJECTING) | (s.disk_status == Marker.REJECTING)),
        (s.stage == Stage.DECLARE_RETIRED).implies(s.phase == Phase.WEIGHT_SYNC_FAILED),
        rests_well(s).implies(~s.disk_status.is_in(Marker.RUNNING, Marker.UPDATING_WEIGHTS)),
    )


@lemma(
    breaks=("no_dead_end", "everywhere"),
    without="A flush is waited for that a request paused in place refuses for ever.",
)
def stages_fit_the_configuration(s: State) -> Bool:
    """Caches are flushed only under retract, memory changes hands only where it is shared, and that needs retract."""
    return all_of(
        s.colocated.implies(s.mode == Mode.RETRACT),
        (s.stage == Stage.FLUSH).implies(s.mode == Mode.RETRACT),
        s.stage.is_in(Stage.RELEASE, Stage.RESUME_WEIGHTS, Stage.RESUME_KV).implies(s.colocated),
        ((s.errand == Errand.TRAIN) & s.stage.is_in(*BARRIER, Stage.RETIRE)).implies(s.colocated),
        ((s.errand == Errand.REJECT) & s.stage.is_in(Stage.CONTINUE, Stage.RETIRE)).implies(s.colocated),
    )


@lemma(
    breaks=("failure_declares", "retire_fails"),
    without="Engines are retired behind no latch, and what failed rests unfenced.",
)
def latch_has_its_stages(s: State) -> Bool:
    """From which stages, errands and statuses it follows that the latch is set, and from which that it is not."""
    kept = s.stage.is_in(
        *BARRIER,
        *DECLARING,
        Stage.REBUILD,
        Stage.RECORD_TARGET,
        Stage.RELEASE,
        Stage.SEND,
        Stage.VERIFY,
        Stage.RECORD_READY,
        Stage.RECORD_HEAD,
        Stage.RETIRE,
    )
    repairing = repairs(s) & s.stage.is_in(Stage.RESUME_WEIGHTS, Stage.RESUME_KV, Stage.CONTINUE)
    waiting = rests_well(s) & (s.disk_status == Marker.READY_TO_COMMIT)
    rejectable = (rests_well(s) | (s.stage == Stage.RECORD_REJECTING)) & s.disk_status.is_in(
        Marker.CHECKPOINT, Marker.REJECTING
    )
    serving = any_of(
        s.stage.is_in(Stage.RECORD_RUNNING, Stage.RECORD_COMPLETE, Stage.RECORD_REJECTED),
        rests_well(s) & s.disk_status.is_in(*SETTLED),
        ~s.colocated & (rejectable | s.stage.is_in(Stage.TRAIN, Stage.RECORD_CHECKPOINT)),
    )
    return all_of(
        any_of(kept, repairing, waiting, s.errand == Errand.PUBLISH).implies(s.latch),
        serving.implies(~s.latch),
    )


@lemma(
    breaks=("admission_only_when_settled", "pause"),
    without="The gate is open while engines are paused for a republication.",
)
def open_gate_is_settled(s: State) -> Bool:
    """Admission is open only where nothing is in flight, nothing is fenced, and no errand needs it closed."""
    settled = s.disk_status.is_in(*SETTLED) | (~s.colocated & s.disk_status.is_in(*UNOPENED))
    beside = s.stage.is_in(Stage.DOWN, Stage.IDLE, Stage.RECORD_RUNNING, Stage.TRAIN, Stage.RECORD_CHECKPOINT)
    return s.gate.implies(all_of(settled, ~s.latch, beside, (s.stage == Stage.RECORD_RUNNING).implies(~s.colocated)))


@lemma(
    breaks=("retry_is_full", "all_paused"),
    without="A republication that has rebuilt goes on to send while a slot is empty.",
)
def repairs_are_full(s: State) -> Bool:
    """A repair sends every byte, and from when it has rebuilt until it ends or gives up no slot is empty."""
    filled = s.rebuilt | (repairs(s) & s.stage.is_in(*TRANSFER, Stage.RECORD_TARGET))
    over = s.stage.is_in(Stage.RETIRE, Stage.DECLARE_RETIRED, Stage.RECORD_COMPLETE, Stage.RECORD_REJECTED)
    return all_of(
        repairs(s).implies(s.full),
        s.rebuilt.implies(repairs(s)),
        (filled & ~over).implies(forall(Engine, lambda e: s.slot[e] != Slot.EMPTY)),
    )


# What the record has


def restored(s: State) -> Bool:
    """The record is that of the last committed job, which an operator put in place of an ambiguous one."""
    return (s.disk_status == Marker.COMPLETE) & (s.disk_target == s.disk_parent)


@lemma(
    breaks=("target_recorded_before_bytes", "record_running"),
    without="A job begins whose record already has a target, under which bytes were sent, and forgets it.",
)
def target_follows_parent(s: State) -> Bool:
    """The target is the next id after the parent; it is there once a byte may leave, and not before a job may have one.

    Where an operator has restored a record, target and parent are the same load.
    """
    sending = s.stage.is_in(*TRANSFER, Stage.RECORD_READY) & (s.disk_status == Marker.UPDATING_WEIGHTS)
    return all_of(
        s.disk_status.is_in(*UNOPENED, *INCUMBENT).implies(s.disk_target.is_none),
        (sending | s.disk_status.is_in(*PUBLISHED)).implies(~s.disk_target.is_none),
        (s.stage == Stage.RECORD_TARGET).implies(s.disk_target.is_none),
        any_of(
            s.disk_target.is_none,
            s.disk_target == s.disk_parent + 1,
            restored(s) & (s.disk_content == s.disk_parent_content),
        ),
    )


@lemma(
    breaks=("bytes_only_while_updating", "record_running"),
    without="A job begins after one whose bytes are older than its parent's, and gets the parent's for its own.",
)
def contents_grow(s: State) -> Bool:
    """A job's bytes are newer than its parent's, which some load made; without a job they are the parent's."""
    return all_of(
        s.disk_parent_content > UNLOADED,
        ite(
            (s.disk_status == Marker.NONE) | restored(s),
            s.disk_content == s.disk_parent_content,
            s.disk_content > s.disk_parent_content,
        ),
    )


@lemma(
    breaks=("ack_order", "pause"),
    without="The head is a load that the record does not have.",
)
def head_is_recorded(s: State) -> Bool:
    """The head is the parent until the job's load was published, and the target from when that was acknowledged."""
    return all_of(
        (s.head == s.disk_parent) | (s.disk_status.is_in(*PUBLISHED) & (s.disk_target == s.head)),
        s.disk_status.is_in(Marker.HEAD_COMMITTED, Marker.COMPLETE).implies(s.disk_target == s.head),
        (s.stage == Stage.RECORD_HEAD).implies(s.disk_target == s.head),
    )


@lemma(
    breaks=("bytes_only_while_updating", "record_running"),
    without="The next job's bytes have been sent under an old id before there was a job.",
)
def sent_bytes_are_recorded(s: State) -> Bool:
    """Under the target the job's bytes were sent, under the parent its own, under older ids older bytes."""
    return forall(
        Load,
        lambda v: forall(
            Content,
            lambda c: s.sent[v, c].implies(
                any_of(
                    (v < s.disk_parent) & (c < s.disk_parent_content),
                    (v == s.disk_parent) & (c == s.disk_parent_content),
                    (s.disk_target == v) & (c == s.disk_content),
                )
            ),
        ),
    )


# What engines hold


def healthy(s: State) -> Bool:
    """What engines hold is known, without asking them."""
    return any_of(
        s.gate,
        up(s) & ~s.latch,
        rests_well(s),
        s.stage.is_in(Stage.RECORD_READY, Stage.RECORD_HEAD, Stage.CONTINUE),
        (s.errand == Errand.REJECT) & (s.stage != Stage.RETIRE),
        s.disk_status.is_in(*UNOPENED),
    )


@lemma(
    breaks=("uniform_when_serving", "all_kv_back"),
    without="A rejection has its memory back and continues an engine that holds what it booted with.",
)
def healthy_engines_hold_the_load(s: State) -> Bool:
    """Where it is known what engines hold, it is the parent or, once verified, the job's load, and they report it."""
    parent = s.disk_status.is_in(*UNOPENED, *INCUMBENT)
    return healthy(s).implies(
        forall(
            Engine,
            lambda e: live(s, e).implies(
                (s.reports[e] == ite(parent, s.disk_parent, s.disk_target.or_else(0)))
                & (s.weights[e] == ite(parent, s.disk_parent_content, s.disk_content))
            ),
        )
    )


@lemma(
    breaks=("work_only_on_committed", "continue_generation"),
    without="An engine is continued whose tree holds an entry of other weights, and a request waits.",
)
def healthy_trees_are_pure(s: State) -> Bool:
    """Where it is known what engines hold, every tree holds what its engine's own weights made."""
    return healthy(s).implies(
        forall(Engine, lambda e: forall(Content, lambda c: (live(s, e) & s.made_by[e, c]).implies(s.weights[e] == c)))
    )


@lemma(
    breaks=("no_stale_hit", "start_on_hit"),
    without="A request waits on a replacement that is not paused yet, whose tree another engine's prefix has reached.",
)
def work_only_on_committed(s: State) -> Bool:
    """An engine that schedules and has work serves the released load on a pure tree, and no commit is due."""
    return forall(
        Engine,
        lambda e: (live(s, e) & ~s.paused[e] & (s.request[e] != Request.NONE)).implies(
            serves_committed(s, e)
            & (s.disk_status != Marker.READY_TO_COMMIT)
            & forall(Content, lambda c: s.made_by[e, c].implies(s.weights[e] == c))
        ),
    )


@lemma(
    breaks=("provenance_is_complete", "start"),
    without="A request starts where caches are not shared, and the tree loses an entry but not what made it.",
)
def cached_only_shared(s: State) -> Bool:
    """A tree holds an entry only where caches are shared."""
    return forall(Engine, lambda e: s.cached[e].implies(s.sharing))


def fenced(s: State) -> Bool:
    """The barrier has passed, and engines have not continued since."""
    return s.stage.is_in(Stage.DECLARE, Stage.RECORD_TARGET, Stage.RELEASE, Stage.RECORD_READY) | moves_bytes(s)


@lemma(
    breaks=("flush_point", "all_flushed"),
    without="An engine has answered the flush, and its tree holds an entry.",
)
def barrier_stands(s: State) -> Bool:
    """An engine that has answered a pause, flush or continue has done it; after the barrier every one has."""
    flushed = (s.mode == Mode.RETRACT) & fenced(s)
    return forall(
        Engine,
        lambda e: live(s, e).implies(
            all_of(
                any_of(fenced(s), s.stage == Stage.FLUSH, (s.stage == Stage.PAUSE) & s.done[e]).implies(s.paused[e]),
                ((s.stage == Stage.CONTINUE) & s.done[e]).implies(~s.paused[e]),
                (flushed | ((s.stage == Stage.FLUSH) & s.done[e])).implies(
                    ~s.cached[e] & (s.request[e] != Request.RUNNING)
                ),
            )
        ),
    )


@lemma(
    breaks=("no_use_of_released_memory", "all_paused"),
    without="Engines and trainer do not share memory, an engine has released its own all the same, and bytes are sent.",
)
def memory_is_out_behind_the_barrier(s: State) -> Bool:
    """Memory is released only on a paused and flushed engine; it is back before anything is verified or continued."""
    back = any_of(
        s.gate,
        s.stage.is_in(Stage.VERIFY, Stage.RECORD_READY, Stage.RECORD_HEAD, Stage.CONTINUE),
        rests_well(s) & s.disk_status.is_in(Marker.READY_TO_COMMIT, Marker.HEAD_COMMITTED),
    )
    return forall(
        Engine,
        lambda e: live(s, e).implies(
            all_of(
                (s.kv_out[e] | s.weights_out[e]).implies(
                    all_of(s.colocated, s.paused[e], ~s.cached[e], s.request[e] != Request.RUNNING)
                ),
                back.implies(~s.kv_out[e] & ~s.weights_out[e]),
                s.stage.is_in(Stage.SEND, Stage.RESUME_KV).implies(~s.weights_out[e]),
            )
        ),
    )


@lemma(
    breaks=("no_use_of_released_memory", "migrate"),
    without="A prefix reaches the tree of an engine whose KV memory is released.",
)
def nobody_works_while_memory_is_out(s: State) -> Bool:
    """While an engine's memory is released, no engine that schedules has work, and so none sends a prefix."""
    return forall(
        Engine,
        lambda e: (live(s, e) & (s.kv_out[e] | s.weights_out[e])).implies(
            forall(Engine, lambda f: live(s, f).implies(s.paused[f] | (s.request[f] == Request.NONE)))
        ),
    )


# What the ideal sees


@lemma(
    breaks=(REFINES, "pause"),
    without="An engine generates, and none of its request's KV is its own weights': a pause takes away what they add.",
)
def running_kv_has_its_own(s: State) -> Bool:
    """Where an engine generates, its own weights made some of the request's KV."""
    return forall(Engine, lambda e: generates(s, e).implies(s.kv[e, s.weights[e]]))


@lemma(
    breaks=(REFINES, "commit_head"),
    without="A tree holds an entry of bytes that are not released yet: the head moves, and it can be reused.",
)
def nothing_is_ahead_of_the_head(s: State) -> Bool:
    """No KV, and no entry of a tree, was made by newer bytes than those that are released."""
    return forall(
        Engine,
        lambda e: forall(Content, lambda c: (s.kv[e, c] | s.made_by[e, c]).implies(c <= committed_content(s))),
    )


@lemma(
    breaks=(REFINES, "commit_head"),
    without="Under retract, a request runs on a paused engine while the head moves, and keeps its KV.",
)
def commits_meet_nobody(s: State) -> Bool:
    """Under retract, no request runs while a load that is published waits for its commit."""
    return ((s.disk_status == Marker.READY_TO_COMMIT) & (s.mode == Mode.RETRACT)).implies(
        forall(Engine, lambda e: s.request[e] != Request.RUNNING)
    )


LEMMAS.rest(
    {
        "no_stale_hit": ("empty_slots_hold_nothing", "work_only_on_committed"),
        "sharing_only_with_retract": (),
        "flush_point": ("empty_slots_hold_nothing", "errands_end_clean", "errand_has_its_stages", "barrier_stands"),
        "retract_keeps_kv_pure": (
            "provenance_is_complete",
            "empty_slots_hold_nothing",
            "errand_has_its_stages",
            "work_only_on_committed",
            "barrier_stands",
        ),
        "in_place_keeps_kv_private": ("sharing_only_with_retract",),
        "provenance_is_complete": ("cached_only_shared",),
        "pauses_mean_what_they_say": (),
        "bytes_only_while_updating": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "contents_grow",
            "sent_bytes_are_recorded",
        ),
        "bytes_are_accounted_for": (),
        "target_recorded_before_bytes": ("memory_mirrors_disk", "stage_has_its_status", "target_follows_parent"),
        "failure_declares": ("memory_mirrors_disk", "errands_end_clean", "latch_has_its_stages"),
        "retry_is_full": ("latch_has_its_stages", "repairs_are_full"),
        "nobody_schedules_during_transfer": ("errands_end_clean", "errand_has_its_stages", "barrier_stands"),
        "serves_only_committed": (
            "nobody_schedules_during_transfer",
            "uniform_when_serving",
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "crash_forgets",
            "errand_has_its_stages",
            "stage_has_its_status",
            "target_follows_parent",
            "head_is_recorded",
            "work_only_on_committed",
        ),
        "ack_order": (
            "memory_mirrors_disk",
            "crash_forgets",
            "stage_has_its_status",
            "latch_has_its_stages",
            "head_is_recorded",
        ),
        "uniform_when_serving": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "errand_has_its_status",
            "latch_has_its_stages",
            "target_follows_parent",
            "head_is_recorded",
            "healthy_engines_hold_the_load",
        ),
        "readiness_is_observed": ("memory_mirrors_disk", "latch_has_its_stages", "target_follows_parent"),
        "one_content_per_id": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "target_follows_parent",
            "sent_bytes_are_recorded",
        ),
        "identity_kept": ("memory_mirrors_disk", "stage_has_its_status", "target_follows_parent"),
        "marker_edges": ("memory_mirrors_disk", "stage_has_its_status"),
        "memory_mirrors_disk": (),
        "calls_fit_the_marker": ("memory_mirrors_disk", "errand_has_its_stages"),
        "reject_only_untouched": (
            "bytes_only_while_updating",
            "memory_mirrors_disk",
            "stage_has_its_status",
            "contents_grow",
        ),
        "running_never_resumed": ("memory_mirrors_disk",),
        "slots_change_by_their_owner": ("latch_has_its_stages",),
        "empty_slots_hold_nothing": (),
        "errands_end_clean": (),
        "crash_forgets": (),
        "one_errand_at_a_time": ("errands_end_clean",),
        "failure_admits_only_repair": ("errands_end_clean",),
        "everybody_answers": (),
        "latch_covers_pause": ("errands_end_clean", "errand_has_its_stages", "latch_has_its_stages", "barrier_stands"),
        "memory_paired": (),
        "no_use_of_released_memory": (
            "empty_slots_hold_nothing",
            "memory_is_out_behind_the_barrier",
            "nobody_works_while_memory_is_out",
        ),
        "trainer_has_the_memory": (),
        "kv_returns_after_the_bytes": ("errands_end_clean", "errand_has_its_stages"),
        "only_owner_resumes": (),
        "admission_only_when_settled": ("open_gate_is_settled",),
        "id_tells_the_truth": (
            "bytes_are_accounted_for",
            "memory_mirrors_disk",
            "stage_has_its_status",
            "latch_has_its_stages",
            "target_follows_parent",
            "contents_grow",
            "sent_bytes_are_recorded",
            "healthy_engines_hold_the_load",
        ),
        "errand_has_its_stages": ("memory_mirrors_disk", "errand_has_its_status", "target_follows_parent"),
        "stage_has_its_status": (
            "memory_mirrors_disk",
            "errands_end_clean",
            "errand_has_its_status",
            "target_follows_parent",
        ),
        "errand_has_its_status": ("memory_mirrors_disk", "errand_has_its_stages", "stage_has_its_status"),
        "stages_fit_the_configuration": ("errand_has_its_stages",),
        "latch_has_its_stages": (
            "memory_mirrors_disk",
            "errands_end_clean",
            "errand_has_its_stages",
            "stage_has_its_status",
            "errand_has_its_status",
            "stages_fit_the_configuration",
        ),
        "open_gate_is_settled": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "errand_has_its_status",
            "latch_has_its_stages",
        ),
        "repairs_are_full": ("errands_end_clean", "errand_has_its_stages", "latch_has_its_stages"),
        "target_follows_parent": ("memory_mirrors_disk", "stage_has_its_status", "errand_has_its_status"),
        "contents_grow": ("memory_mirrors_disk", "stage_has_its_status", "target_follows_parent"),
        "head_is_recorded": ("memory_mirrors_disk", "crash_forgets", "stage_has_its_status", "target_follows_parent"),
        "sent_bytes_are_recorded": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "target_follows_parent",
            "contents_grow",
        ),
        "healthy_engines_hold_the_load": (
            "memory_mirrors_disk",
            "errand_has_its_stages",
            "stage_has_its_status",
            "errand_has_its_status",
            "latch_has_its_stages",
            "open_gate_is_settled",
        ),
        "healthy_trees_are_pure": (
            "sharing_only_with_retract",
            "retract_keeps_kv_pure",
            "provenance_is_complete",
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "errand_has_its_stages",
            "stage_has_its_status",
            "latch_has_its_stages",
            "healthy_engines_hold_the_load",
            "cached_only_shared",
            "barrier_stands",
        ),
        "work_only_on_committed": (
            "sharing_only_with_retract",
            "retract_keeps_kv_pure",
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "crash_forgets",
            "errand_has_its_stages",
            "stage_has_its_status",
            "open_gate_is_settled",
            "target_follows_parent",
            "head_is_recorded",
            "healthy_engines_hold_the_load",
            "healthy_trees_are_pure",
            "barrier_stands",
        ),
        "cached_only_shared": (),
        "barrier_stands": ("empty_slots_hold_nothing", "errands_end_clean", "errand_has_its_stages"),
        "memory_is_out_behind_the_barrier": (
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "latch_covers_pause",
            "stage_has_its_status",
            "stages_fit_the_configuration",
            "latch_has_its_stages",
            "open_gate_is_settled",
            "barrier_stands",
            "nobody_works_while_memory_is_out",
        ),
        "nobody_works_while_memory_is_out": (
            "empty_slots_hold_nothing",
            "barrier_stands",
            "memory_is_out_behind_the_barrier",
        ),
        "running_kv_has_its_own": ("nobody_schedules_during_transfer", "errand_has_its_stages"),
        "nothing_is_ahead_of_the_head": (
            "uniform_when_serving",
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "crash_forgets",
            "stage_has_its_status",
            "contents_grow",
            "head_is_recorded",
            "work_only_on_committed",
        ),
        "commits_meet_nobody": ("empty_slots_hold_nothing", "work_only_on_committed", "barrier_stands"),
        "no_dead_end": (
            "memory_mirrors_disk",
            "errands_end_clean",
            "errand_has_its_status",
            "stages_fit_the_configuration",
        ),
        BEGINS: (),
        REFINES: (
            "sharing_only_with_retract",
            "retract_keeps_kv_pure",
            "provenance_is_complete",
            "nobody_schedules_during_transfer",
            "uniform_when_serving",
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "crash_forgets",
            "errand_has_its_stages",
            "stage_has_its_status",
            "target_follows_parent",
            "contents_grow",
            "head_is_recorded",
            "work_only_on_committed",
            "cached_only_shared",
            "running_kv_has_its_own",
            "nothing_is_ahead_of_the_head",
            "commits_meet_nobody",
        ),
    }
)
