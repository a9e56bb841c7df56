"""What is true of every reachable state of the publication protocol for the sake of its proof."""

from __future__ import annotations

from spec.lang import Bool, all_of, any_of, forall, ite
from spec.lang.lemmas import Lemmas
from spec.publication.properties import moves_bytes, repairs, serves_committed
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
    live,
    publication,
    up,
)

LEMMAS = Lemmas(publication)
lemma = LEMMAS.register

BARRIER = (Stage.PAUSE, Stage.FLUSH)
TRANSFER = (Stage.RELEASE, Stage.RESUME_WEIGHTS, Stage.SEND, Stage.RESUME_KV, Stage.VERIFY)
UPDATING = (Marker.UPDATING_WEIGHTS,)
PROGRAM = {
    Errand.TRAIN: (
        *BARRIER,
        Stage.RECORD_RUNNING,
        Stage.RELEASE,
        Stage.TRAIN,
        Stage.RECORD_CHECKPOINT,
        Stage.RETIRE,
    ),
    Errand.PUBLISH: (
        *BARRIER,
        *TRANSFER,
        Stage.DECLARE,
        Stage.DECLARE_RETIRED,
        Stage.RECORD_TARGET,
        Stage.RECORD_READY,
        Stage.RETIRE,
    ),
    Errand.RETRY: (
        *BARRIER,
        *TRANSFER,
        Stage.REBUILD,
        Stage.RECORD_TARGET,
        Stage.RECORD_READY,
        Stage.RETIRE,
    ),
    Errand.REPUBLISH: (
        *BARRIER,
        *TRANSFER,
        Stage.REBUILD,
        Stage.CONTINUE,
        Stage.RECORD_COMPLETE,
        Stage.RECORD_REJECTED,
        Stage.RETIRE,
    ),
    Errand.RECOVER: (
        *BARRIER,
        *TRANSFER,
        Stage.DECLARE,
        Stage.DECLARE_RETIRED,
        Stage.REBUILD,
        Stage.RECORD_TARGET,
        Stage.RECORD_READY,
        Stage.CONTINUE,
        Stage.RECORD_COMPLETE,
        Stage.RECORD_REJECTED,
        Stage.RETIRE,
    ),
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
STATUS = {
    Stage.REFUSED: (Marker.RUNNING,),
    Stage.RECORD_RUNNING: SETTLED,
    Stage.TRAIN: (Marker.RUNNING,),
    Stage.RECORD_CHECKPOINT: (Marker.RUNNING,),
    Stage.DECLARE: (Marker.CHECKPOINT,),
    Stage.DECLARE_RETIRED: (Marker.CHECKPOINT,),
    Stage.RECORD_TARGET: UPDATING,
    Stage.REBUILD: (*UPDATING, *REPUBLISHABLE),
    Stage.RELEASE: (Marker.RUNNING, *UPDATING, *REPUBLISHABLE),
    Stage.RESUME_WEIGHTS: (*UPDATING, *REPUBLISHABLE),
    Stage.SEND: (*UPDATING, *REPUBLISHABLE),
    Stage.RESUME_KV: (*UPDATING, *REPUBLISHABLE),
    Stage.VERIFY: (*UPDATING, *REPUBLISHABLE),
    Stage.RECORD_READY: UPDATING,
    Stage.RECORD_HEAD: (Marker.READY_TO_COMMIT,),
    Stage.CONTINUE: (Marker.NONE, Marker.REJECTING, Marker.REJECTED, Marker.HEAD_COMMITTED, Marker.COMPLETE),
    Stage.RECORD_COMPLETE: (Marker.HEAD_COMMITTED,),
    Stage.RECORD_REJECTING: (Marker.CHECKPOINT,),
    Stage.RECORD_REJECTED: (Marker.REJECTING,),
}


@lemma(without="x")
def errand_has_its_stages(s: State) -> Bool:
    """An errand is only in the stages of its program."""
    return all_of(*((s.errand == errand).implies(s.stage.is_in(*stages)) for errand, stages in PROGRAM.items()))


@lemma(without="x")
def stage_has_its_status(s: State) -> Bool:
    """In each stage, the record has a status that fits."""
    return all_of(*((s.stage == stage).implies(s.disk_status.is_in(*statuses)) for stage, statuses in STATUS.items()))


@lemma(without="x")
def errand_has_its_status(s: State) -> Bool:
    """In each errand, the record has a status that fits."""
    barrier = s.stage.is_in(*BARRIER)
    return all_of(
        (s.errand == Errand.TRAIN).implies((s.stage == Stage.RECORD_RUNNING) | (s.disk_status == Marker.RUNNING)),
        (s.errand == Errand.PUBLISH).implies(
            s.disk_status.is_in(Marker.CHECKPOINT, Marker.UPDATING_WEIGHTS, Marker.READY_TO_COMMIT)
        ),
        ((s.errand == Errand.PUBLISH) & barrier).implies(s.disk_status == Marker.CHECKPOINT),
        ((s.errand == Errand.PUBLISH) & s.stage.is_in(*TRANSFER)).implies(s.disk_status == Marker.UPDATING_WEIGHTS),
        (s.errand == Errand.RETRY).implies(s.disk_status.is_in(Marker.UPDATING_WEIGHTS, Marker.READY_TO_COMMIT)),
        ((s.errand == Errand.RETRY) & (s.stage != Stage.RETIRE)).implies(s.disk_status == Marker.UPDATING_WEIGHTS),
        (s.errand == Errand.REPUBLISH).implies(s.disk_status.is_in(*REPUBLISHABLE)),
        (s.errand == Errand.RECOVER).implies(s.disk_status != Marker.RUNNING),
        ((s.errand == Errand.ACKNOWLEDGE) & (s.stage != Stage.RECORD_HEAD)).implies(
            s.disk_status == Marker.HEAD_COMMITTED
        ),
        ((s.errand == Errand.REJECT) & (s.stage != Stage.RECORD_REJECTING)).implies(s.disk_status == Marker.REJECTING),
        (s.stage == Stage.DECLARE_RETIRED).implies(s.phase == Phase.WEIGHT_SYNC_FAILED),
        ((s.stage == Stage.IDLE) & (s.phase == Phase.SERVING)).implies(
            ~s.disk_status.is_in(Marker.RUNNING, Marker.UPDATING_WEIGHTS)
        ),
    )


@lemma(without="x")
def colocated_stages(s: State) -> Bool:
    """Memory changes hands only where it is shared."""
    return all_of(
        s.colocated.implies(s.mode == Mode.RETRACT),
        (s.stage == Stage.FLUSH).implies(s.mode == Mode.RETRACT),
        s.stage.is_in(Stage.RELEASE, Stage.RESUME_WEIGHTS, Stage.RESUME_KV).implies(s.colocated),
        ((s.errand == Errand.TRAIN) & s.stage.is_in(*BARRIER, Stage.RETIRE)).implies(s.colocated),
        ((s.errand == Errand.REJECT) & s.stage.is_in(Stage.CONTINUE, Stage.RETIRE)).implies(s.colocated),
    )


@lemma(without="x")
def latch_by_stage(s: State) -> Bool:
    """Latch."""
    healthy = (s.stage == Stage.IDLE) & (s.phase == Phase.SERVING)
    return all_of(
        s.stage.is_in(
            Stage.FLUSH,
            Stage.PAUSE,
            Stage.DECLARE,
            Stage.DECLARE_RETIRED,
            Stage.REBUILD,
            Stage.RECORD_TARGET,
            Stage.RELEASE,
            Stage.SEND,
            Stage.VERIFY,
            Stage.RECORD_READY,
            Stage.RECORD_HEAD,
            Stage.RETIRE,
        ).implies(s.latch),
        s.stage.is_in(Stage.RECORD_RUNNING, Stage.RECORD_COMPLETE, Stage.RECORD_REJECTED).implies(~s.latch),
        (repairs(s) & s.stage.is_in(Stage.RESUME_WEIGHTS, Stage.RESUME_KV, Stage.CONTINUE)).implies(s.latch),
        (s.errand == Errand.PUBLISH).implies(s.latch),
        (healthy & s.disk_status.is_in(*SETTLED)).implies(~s.latch),
        (healthy & (s.disk_status == Marker.READY_TO_COMMIT)).implies(s.latch),
        (
            (healthy | (s.stage == Stage.RECORD_REJECTING))
            & ~s.colocated
            & s.disk_status.is_in(Marker.CHECKPOINT, Marker.REJECTING)
        ).implies(~s.latch),
        (s.stage.is_in(Stage.TRAIN, Stage.RECORD_CHECKPOINT) & ~s.colocated).implies(~s.latch),
    )


@lemma(without="x")
def gate_is_settled(s: State) -> Bool:
    """Gate."""
    settled = s.disk_status.is_in(*SETTLED) | (~s.colocated & s.disk_status.is_in(*UNOPENED))
    return s.gate.implies(
        settled
        & ~s.latch
        & s.stage.is_in(Stage.DOWN, Stage.IDLE, Stage.RECORD_RUNNING, Stage.TRAIN, Stage.RECORD_CHECKPOINT)
        & ((s.stage == Stage.RECORD_RUNNING).implies(~s.colocated))
    )


@lemma(without="x")
def repairs_are_full(s: State) -> Bool:
    """Full."""
    return all_of(
        repairs(s).implies(s.full),
        s.rebuilt.implies(repairs(s)),
        (s.rebuilt | (repairs(s) & s.stage.is_in(*TRANSFER, Stage.RECORD_TARGET))).implies(
            s.stage.is_in(Stage.RETIRE, Stage.DECLARE_RETIRED, Stage.RECORD_COMPLETE, Stage.RECORD_REJECTED)
            | forall(Engine, lambda e: s.slot[e] != Slot.EMPTY)
        ),
    )


# Record


@lemma(without="x")
def target_follows_parent(s: State) -> Bool:
    """Target."""
    restored = (
        (s.disk_status == Marker.COMPLETE)
        & (s.disk_target == s.disk_parent)
        & (s.disk_content == s.disk_parent_content)
    )
    return all_of(
        s.disk_status.is_in(*UNOPENED, *INCUMBENT).implies(s.disk_target.is_none),
        s.disk_status.is_in(*PUBLISHED).implies(~s.disk_target.is_none),
        s.disk_target.is_none | restored | (s.disk_target == s.disk_parent + 1),
        (s.stage == Stage.RECORD_TARGET).implies(s.disk_target.is_none),
        (s.stage.is_in(*TRANSFER, Stage.RECORD_READY) & (s.disk_status == Marker.UPDATING_WEIGHTS)).implies(
            ~s.disk_target.is_none
        ),
    )


@lemma(without="x")
def contents_grow(s: State) -> Bool:
    """Content."""
    restored = (s.disk_status == Marker.COMPLETE) & (s.disk_target == s.disk_parent)
    return all_of(
        s.disk_parent_content > UNLOADED,
        ite(
            (s.disk_status == Marker.NONE) | restored,
            s.disk_parent_content == s.disk_content,
            s.disk_parent_content < s.disk_content,
        ),
    )


@lemma(without="x")
def head_is_recorded(s: State) -> Bool:
    """Head."""
    return all_of(
        (s.head == s.disk_parent) | (s.disk_target == s.head),
        (~s.disk_status.is_in(*PUBLISHED)).implies(s.head == s.disk_parent),
        s.disk_status.is_in(Marker.HEAD_COMMITTED, Marker.COMPLETE).implies(s.disk_target == s.head),
        (s.stage == Stage.RECORD_HEAD).implies(s.disk_target == s.head),
    )


@lemma(without="x")
def sent_bytes_are_recorded(s: State) -> Bool:
    """Sent."""
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


@lemma(without="x")
def recorded_bytes_were_sent(s: State) -> Bool:
    """Sent."""
    return s.sent[s.disk_parent, s.disk_parent_content] & (
        (s.stage == Stage.RECORD_READY) | s.disk_status.is_in(*PUBLISHED)
    ).implies(s.sent[s.disk_target.or_else(0), s.disk_content])


# Engines


def healthy(s: State) -> Bool:
    """Healthy."""
    return any_of(
        s.gate,
        up(s) & ~s.latch,
        (s.stage == Stage.IDLE) & (s.phase == Phase.SERVING),
        s.stage.is_in(Stage.RECORD_READY, Stage.RECORD_HEAD, Stage.CONTINUE),
        (s.errand == Errand.REJECT) & (s.stage != Stage.RETIRE),
        s.disk_status.is_in(*UNOPENED),
    )


@lemma(without="x")
def healthy_engines_hold_the_load(s: State) -> Bool:
    """Engines."""
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


@lemma(without="x")
def healthy_trees_are_pure(s: State) -> Bool:
    """Engines."""
    return healthy(s).implies(
        forall(Engine, lambda e: forall(Content, lambda c: (live(s, e) & s.made_by[e, c]).implies(s.weights[e] == c)))
    )


@lemma(without="x")
def work_only_on_committed(s: State) -> Bool:
    """Engines."""
    return forall(
        Engine,
        lambda e: (live(s, e) & ~s.paused[e] & (s.request[e] != Request.NONE)).implies(
            serves_committed(s, e)
            & (s.disk_status != Marker.READY_TO_COMMIT)
            & forall(Content, lambda c: s.made_by[e, c].implies(s.weights[e] == c))
        ),
    )


@lemma(without="x")
def cached_only_shared(s: State) -> Bool:
    """Cached."""
    return forall(Engine, lambda e: s.cached[e].implies(s.sharing))


def fenced(s: State) -> Bool:
    """Fenced."""
    return s.stage.is_in(Stage.DECLARE, Stage.RECORD_TARGET, Stage.RELEASE, Stage.RECORD_READY) | moves_bytes(s)


@lemma(without="x")
def barrier_stands(s: State) -> Bool:
    """Barrier."""
    return forall(
        Engine,
        lambda e: live(s, e).implies(
            all_of(
                (fenced(s) | (s.stage == Stage.FLUSH)).implies(s.paused[e]),
                ((s.stage == Stage.PAUSE) & s.done[e]).implies(s.paused[e]),
                ((s.stage == Stage.CONTINUE) & s.done[e]).implies(~s.paused[e]),
                ((s.mode == Mode.RETRACT) & (fenced(s) | ((s.stage == Stage.FLUSH) & s.done[e]))).implies(
                    ~s.cached[e] & (s.request[e] != Request.RUNNING)
                ),
            )
        ),
    )


@lemma(without="x")
def memory_is_out_behind_the_barrier(s: State) -> Bool:
    """Memory."""
    back = any_of(
        s.gate,
        s.stage.is_in(Stage.VERIFY, Stage.RECORD_READY, Stage.RECORD_HEAD, Stage.CONTINUE),
        (s.stage == Stage.IDLE)
        & (s.phase == Phase.SERVING)
        & s.disk_status.is_in(Marker.READY_TO_COMMIT, Marker.HEAD_COMMITTED),
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


@lemma(without="x")
def nobody_works_while_memory_is_out(s: State) -> Bool:
    """Memory."""
    return forall(
        Engine,
        lambda e: (live(s, e) & (s.kv_out[e] | s.weights_out[e])).implies(
            forall(Engine, lambda f: live(s, f).implies(s.paused[f] | (s.request[f] == Request.NONE)))
        ),
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
        "failure_declares": ("memory_mirrors_disk", "errands_end_clean", "latch_by_stage"),
        "retry_is_full": ("latch_by_stage", "repairs_are_full"),
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
            "latch_by_stage",
            "head_is_recorded",
        ),
        "uniform_when_serving": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "errand_has_its_status",
            "latch_by_stage",
            "target_follows_parent",
            "head_is_recorded",
            "healthy_engines_hold_the_load",
        ),
        "readiness_is_observed": ("memory_mirrors_disk", "latch_by_stage", "target_follows_parent"),
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
            "recorded_bytes_were_sent",
        ),
        "running_never_resumed": ("memory_mirrors_disk",),
        "slots_change_by_their_owner": ("latch_by_stage",),
        "empty_slots_hold_nothing": (),
        "errands_end_clean": (),
        "crash_forgets": (),
        "one_errand_at_a_time": ("errands_end_clean",),
        "failure_admits_only_repair": ("errands_end_clean",),
        "everybody_answers": (),
        "latch_covers_pause": ("errands_end_clean", "errand_has_its_stages", "latch_by_stage", "barrier_stands"),
        "memory_paired": (),
        "no_use_of_released_memory": (
            "empty_slots_hold_nothing",
            "memory_is_out_behind_the_barrier",
            "nobody_works_while_memory_is_out",
        ),
        "trainer_has_the_memory": (),
        "kv_returns_after_the_bytes": ("errands_end_clean", "errand_has_its_stages"),
        "only_owner_resumes": (),
        "admission_only_when_settled": ("gate_is_settled",),
        "id_tells_the_truth": (
            "bytes_are_accounted_for",
            "memory_mirrors_disk",
            "stage_has_its_status",
            "latch_by_stage",
            "contents_grow",
            "sent_bytes_are_recorded",
            "recorded_bytes_were_sent",
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
        "colocated_stages": ("errand_has_its_stages",),
        "latch_by_stage": (
            "memory_mirrors_disk",
            "errands_end_clean",
            "errand_has_its_stages",
            "stage_has_its_status",
            "errand_has_its_status",
            "colocated_stages",
        ),
        "gate_is_settled": ("memory_mirrors_disk", "stage_has_its_status", "errand_has_its_status", "latch_by_stage"),
        "repairs_are_full": ("errands_end_clean", "errand_has_its_stages", "latch_by_stage"),
        "target_follows_parent": ("memory_mirrors_disk", "stage_has_its_status", "errand_has_its_status"),
        "contents_grow": ("memory_mirrors_disk", "stage_has_its_status", "target_follows_parent"),
        "head_is_recorded": ("memory_mirrors_disk", "crash_forgets", "stage_has_its_status", "target_follows_parent"),
        "sent_bytes_are_recorded": (
            "memory_mirrors_disk",
            "stage_has_its_status",
            "target_follows_parent",
            "contents_grow",
        ),
        "recorded_bytes_were_sent": (
            "bytes_are_accounted_for",
            "memory_mirrors_disk",
            "stage_has_its_status",
            "contents_grow",
            "sent_bytes_are_recorded",
        ),
        "healthy_engines_hold_the_load": (
            "memory_mirrors_disk",
            "errand_has_its_stages",
            "stage_has_its_status",
            "errand_has_its_status",
            "latch_by_stage",
            "gate_is_settled",
        ),
        "healthy_trees_are_pure": (
            "sharing_only_with_retract",
            "retract_keeps_kv_pure",
            "provenance_is_complete",
            "memory_mirrors_disk",
            "empty_slots_hold_nothing",
            "errand_has_its_stages",
            "stage_has_its_status",
            "latch_by_stage",
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
            "gate_is_settled",
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
            "colocated_stages",
            "latch_by_stage",
            "gate_is_settled",
            "barrier_stands",
            "nobody_works_while_memory_is_out",
        ),
        "nobody_works_while_memory_is_out": (
            "empty_slots_hold_nothing",
            "barrier_stands",
            "memory_is_out_behind_the_barrier",
        ),
    }
)
