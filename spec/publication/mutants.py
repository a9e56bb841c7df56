"""Wrong protocols, each with what it breaks and the reports that taught it.

A mutant is the publication protocol with one mistake built in; `breaks` names the property, recovery or eventuality
that must notice. Reports are numbered as in the reference texts: ``M1`` to ``M35`` are its mutations, ``H1`` to ``H26``
holes found by reading upstream code, ``C01`` to ``C107`` public reports on other systems, in so far as they describe a
protocol that went wrong. ``P14``, ``L9`` and the like are invariants whose breach nobody reported yet, ``section 2.4``
describes upstream code that breaks one. What this protocol cannot express stands in `NOT_HERE`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from spec.lang import (
    Bool,
    Fair,
    Protocol,
    Step,
    Value,
    all_of,
    each,
    exists,
    forall,
    ite,
    strongly_fair,
    weakly_fair,
    when,
)
from spec.lang.mutants import Mutants, also_writing, not_asking, not_writing, only_where
from spec.publication.coordinator import (
    asks,
    begin,
    drop,
    enter,
    following,
    give_up,
    leave_fenced,
    note_sent,
    proceed,
    received,
    transfer,
)
from spec.publication.service import takes_calls
from spec.publication.state import (
    PUBLISHED,
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
    first_state,
    forget,
    live,
    load_to_establish,
    present,
    publication,
    read_record,
)

MUTANTS = Mutants(publication)
"""Every mutant by its name."""

mutant = MUTANTS.register


# Ways to edit


def reroute(p: Protocol, action: str, to: Callable[[State], Value[Stage] | Stage]) -> None:
    """An action without parameters goes on with another stage."""
    also_writing(p, action, lambda s: enter(s, to(s)))


def reroute_barrier(p: Protocol, to: Callable[[State], Value[Stage] | Stage]) -> None:
    """A barrier that has passed is followed by another stage, in either mode."""
    reroute(p, "all_flushed", to)
    reroute(p, "all_paused", lambda s: ite(s.mode == Mode.RETRACT, Stage.FLUSH, to(s)))


# The barrier


@mutant("no_stale_hit", "M1", "C02", "C42", "C50", "C53", "C58", "C60")
def no_flush(p: Protocol) -> None:
    """A flush answers success and empties nothing: retracting requests is taken for invalidating their prefixes."""
    not_writing(p, "flush", "cached", "made_by")


@mutant("no_stale_hit", "M2")
def flush_after_own_pause(p: Protocol) -> None:
    """Each engine is flushed right after its own pause, while others still run and hand prefixes on."""

    def pause(s: State, e: Engine) -> Step:
        retract = s.mode == Mode.RETRACT
        return when(asks(s, e, Stage.PAUSE), ~(retract & s.paused[e])).then(paused={e: True}, done={e: ~retract})

    def flush(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.PAUSE), s.mode == Mode.RETRACT, s.paused[e], s.request[e] != Request.RUNNING).then(
            done={e: True}, **drop(s, e)
        )

    p.replace_action(pause)
    p.replace_action(flush)
    reroute(p, "all_paused", lambda s: following(s, Stage.FLUSH))
    p.remove_action("all_flushed")


@mutant("no_stale_hit", "M3")
def flush_before_pause(p: Protocol) -> None:
    """Every engine is flushed, and then every engine is paused."""

    def stage_of_pausing(s: State) -> Value[Stage]:
        return ite(s.mode == Mode.RETRACT, Stage.FLUSH, Stage.PAUSE)

    def pause(s: State, e: Engine) -> Step:
        return when(s.stage == stage_of_pausing(s), live(s, e), ~s.done[e]).then(paused={e: True}, done={e: True})

    def flush(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.PAUSE), s.mode == Mode.RETRACT, s.request[e] != Request.RUNNING).then(
            done={e: True}, **drop(s, e)
        )

    p.replace_action(pause)
    p.replace_action(flush)


@mutant("flush_point", "M4")
def flush_reaches_one_engine(p: Protocol) -> None:
    """The flush of one engine is taken for the flush of all."""

    def all_flushed(s: State) -> Step:
        answered = exists(Engine, lambda e: s.done[e]) | forall(Engine, lambda e: ~present(s, e))
        return when(s.stage == Stage.FLUSH, answered).then(
            **enter(s, following(s, Stage.FLUSH)), done=each(Engine, lambda e: False)
        )

    p.replace_action(all_flushed)


@mutant("flush_point", "C43")
def flush_only_when_colocated(p: Protocol) -> None:
    """Nobody flushes: releasing memory happens to, so that only disjoint engines keep their trees."""

    def flush(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.FLUSH)).then(
            done={e: True},
            cached={e: s.cached[e] & ~s.colocated},
            made_by={e: each(Content, lambda c: s.made_by[e, c] & ~s.colocated)},
        )

    p.replace_action(flush)


@mutant("retract_keeps_kv_pure", "M20", "C08")
def flush_beside_a_running_request(p: Protocol) -> None:
    """The idle test overlooks the running batch: the tree goes, and a request keeps KV and runs on into new weights."""
    not_asking(p, "flush", "request")


@mutant("no_stale_hit", "C09", "C10", "C36", "C41", "C46", "C49")
def refused_flush_taken_for_done(p: Protocol) -> None:
    """A flush that is refused because a request runs, or that a stub answers, counts as a flush."""

    def flush(s: State, e: Engine) -> Step:
        refused = s.request[e] == Request.RUNNING
        return when(asks(s, e, Stage.FLUSH)).then(
            done={e: True},
            cached={e: s.cached[e] & refused},
            made_by={e: each(Content, lambda c: s.made_by[e, c] & refused)},
        )

    p.replace_action(flush)


@mutant("provenance_is_complete", "H4", "C29", "C30", "C37", "C40")
def flush_forgets_a_tier(p: Protocol) -> None:
    """The flush empties the device's tree and leaves another store of what the old weights made."""
    not_writing(p, "flush", "made_by")


@mutant("no_stale_hit", "C31")
def tier_outlives_the_flush(p: Protocol) -> None:
    """What another store kept under the same key is found again by the first request that looks."""
    not_writing(p, "flush", "made_by")


@mutant("barrier_passes", "M19", "C01", "C12")
def flush_waits_for_the_queue(p: Protocol) -> None:
    """The idle test of a paused engine counts requests that hold no KV: retracted, queued or compiling a grammar."""

    def flush(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.FLUSH), s.request[e] == Request.NONE).then(done={e: True}, **drop(s, e))

    p.replace_action(flush)


@mutant("barrier_passes", "C05", "C07")
def flush_under_in_place(p: Protocol) -> None:
    """A flush is asked for where a pause freezes requests with their KV: it is refused for ever."""
    reroute(p, "all_paused", lambda s: Stage.FLUSH)


@mutant("barrier_passes", "H26")
def colocated_in_place(p: Protocol) -> None:
    """Memory is to be released where a pause freezes requests with their KV: that is refused for ever."""

    def serving_the_initial_load(colocated: Bool, mode: Value[Mode], sharing: Bool) -> Step:
        """Every engine serves the initial load, colocated ones in either mode."""
        return when(sharing.implies(mode == Mode.RETRACT)).then(**first_state(colocated, mode, sharing))

    p.replace_initial(serving_the_initial_load)


@mutant("nobody_schedules_during_transfer", "C21", "C22")
def pause_answered_early(p: Protocol) -> None:
    """A pause is answered when it is sent on, and takes effect later: bytes overtake it."""
    not_writing(p, "pause", "paused")

    @p.action(by="e", on="e")
    def pause_takes_effect(s: State, e: Engine) -> Step:
        """The engine gets to the pause that was answered for it."""
        return when(live(s, e), s.latch, ~s.paused[e]).then(paused={e: True})


@mutant("latch_covers_pause", "M17")
def latch_set_on_success(p: Protocol) -> None:
    """The latch is set when every pause has succeeded, not before the first is tried."""
    for action in ("record_running", "begin_publish", "begin_retry", "begin_republish", "restart", "all_rebuilt"):
        not_writing(p, action, "latch")
    also_writing(p, "all_paused", lambda s: {"latch": True})


@mutant("slots_change_by_their_owner", "M18")
def monitor_ignores_the_latch(p: Protocol) -> None:
    """The health monitor empties slots while a publication works on them."""
    not_asking(p, "empty_slot", "latch")


@mutant("latch_covers_pause", "M35")
def partial_continue_clears_the_latch(p: Protocol) -> None:
    """The first engine that continues clears the latch."""

    def continue_generation(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.CONTINUE)).then(
            paused={e: False},
            done={e: True},
            latch=False,
            kv={e: each(Content, lambda c: s.kv[e, c] | ((s.request[e] == Request.RUNNING) & (s.weights[e] == c)))},
        )

    p.replace_action(continue_generation)


@mutant("only_owner_resumes", "C18")
def somebody_else_continues(p: Protocol) -> None:
    """A client outside of the protocol continues an engine between its pause and the end of the transfer."""

    @p.action(by="client", on="e")
    def continue_from_outside(s: State, e: Engine) -> Step:
        """Another client of the engine continues it."""
        return when(live(s, e), s.paused[e]).then(paused={e: False})


@mutant("only_owner_resumes", "section 1.6")
def sender_owns_generation(p: Protocol) -> None:
    """The sender of the bytes pauses and continues as well: an engine that has its bytes goes on before the others."""

    def send(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.SEND)).then(
            weights={e: received(s, e)},
            reports={e: load_to_establish(s)},
            done={e: True},
            paused={e: False},
            **note_sent(s),
        )

    p.replace_action(send)


@mutant("pauses_mean_what_they_say", "C15")
def in_place_pause_retracts(p: Protocol) -> None:
    """A pause in place, too, takes running requests out of their batch."""
    not_asking(p, "retract", "mode")


# What may be shared


@mutant("sharing_only_with_retract", "M23")
def in_place_shares(p: Protocol) -> None:
    """A prefix cache is on by default, whatever a pause does."""

    def serving_the_initial_load(colocated: Bool, mode: Value[Mode], sharing: Bool) -> Step:
        """Every engine serves the initial load, sharing in either mode."""
        return when(colocated.implies(mode == Mode.RETRACT)).then(**first_state(colocated, mode, sharing))

    p.replace_initial(serving_the_initial_load)


@mutant("no_stale_hit", "C13", "C59", "C64")
def in_place_poisons_the_tree(p: Protocol) -> None:
    """In place, nothing is flushed: the tree of the old weights is there for the first request under the new ones."""
    in_place_shares(p)


@mutant("in_place_keeps_kv_private", "C14")
def mixed_kv_enters_the_tree(p: Protocol) -> None:
    """In place, a request that ran over a publication leaves KV of two loads in the tree."""
    in_place_shares(p)


# Publishing


@mutant("bytes_only_while_updating", "M5")
def declare_after_bytes(p: Protocol) -> None:
    """Bytes are sent first, and UPDATING_WEIGHTS is written when they have arrived."""
    reroute_barrier(p, lambda s: ite(s.memory_status == Marker.CHECKPOINT, Stage.SEND, following(s, Stage.FLUSH)))
    reroute(p, "all_sent", lambda s: ite(s.memory_status == Marker.CHECKPOINT, Stage.DECLARE, following(s, Stage.SEND)))


@mutant("failure_declares", "M6", "C89")
def barrier_failure_leaves_checkpoint(p: Protocol) -> None:
    """A barrier that fails retires every engine and leaves the record at CHECKPOINT, which says they are untouched."""
    for action in ("all_retired", "retire_fails"):
        reroute(p, action, lambda s: Stage.IDLE)


@mutant("failure_is_repaired_in_place", "M7")
def give_up_without_retiring(p: Protocol) -> None:
    """Giving up leaves every engine in its slot, dead ones too, and every later try meets them again."""
    p.remove_action("retire")
    not_asking(p, "all_retired", "slot")


@mutant("uniform_when_serving", "C72", "C91")
def failed_transfer_continues(p: Protocol) -> None:
    """A transfer that reports an error is taken for one that changed nothing: engines go on with what they hold."""
    reroute(p, "transfer_fails", lambda s: Stage.CONTINUE)


@mutant("target_recorded_before_bytes", "M13")
def target_not_persisted(p: Protocol) -> None:
    """The id of a load is kept in memory until it is published."""
    not_writing(p, "record_target", "disk_target")


@mutant("uniform_when_serving", "M16")
def verify_any(p: Protocol) -> None:
    """One engine that holds the load is taken for all."""

    def some(s: State) -> Bool:
        return exists(
            Engine,
            lambda e: all_of(live(s, e), s.reports[e] == load_to_establish(s), s.weights[e] == content_to_establish(s)),
        )

    def verify(s: State) -> Step:
        return when(s.stage == Stage.VERIFY, some(s)).then(**enter(s, following(s, Stage.VERIFY)))

    p.replace_action(verify)
    p.remove_action("find_mismatch")


@mutant("readiness_is_observed", "M16")
def verify_nobody(p: Protocol) -> None:
    """Where there is no engine, every engine holds the load."""

    def verify(s: State) -> Step:
        return when(
            s.stage == Stage.VERIFY,
            forall(
                Engine,
                lambda e: (
                    ~present(s, e)
                    | all_of(live(s, e), s.reports[e] == load_to_establish(s), s.weights[e] == content_to_establish(s))
                ),
            ),
        ).then(**enter(s, following(s, Stage.VERIFY)))

    p.replace_action(verify)


@mutant("readiness_is_observed", "P7")
def verify_ids_only(p: Protocol) -> None:
    """Engines are asked for the id they report, not for the checksum of what they hold."""

    def verify(s: State) -> Step:
        return when(
            s.stage == Stage.VERIFY,
            exists(Engine, lambda e: present(s, e)),
            forall(Engine, lambda e: ~present(s, e) | (live(s, e) & (s.reports[e] == load_to_establish(s)))),
        ).then(**enter(s, following(s, Stage.VERIFY)))

    p.replace_action(verify)


@mutant("id_tells_the_truth", "M27")
def stamp_before_bytes(p: Protocol) -> None:
    """The first part of a transfer stamps the id, and ids alone are verified: bytes may come too late, or never."""
    verify_ids_only(p)
    not_writing(p, "send", "weights")

    @p.action(by="coordinator", on="e")
    def bytes_arrive(s: State, e: Engine) -> Step:
        """The rest of the transfer arrives."""
        return when(live(s, e), s.stage.is_in(Stage.SEND, Stage.VERIFY), s.reports[e] == s.memory_target).then(
            weights={e: s.memory_content}
        )


@mutant("admission_only_when_settled", "C107")
def publish_with_open_gate(p: Protocol) -> None:
    """Admission stays open over a publication: requests arrive behind the pause."""
    not_writing(p, "begin_publish", "gate")


@mutant("no_stale_hit", "C45")
def second_way_to_update(p: Protocol) -> None:
    """Another path applies weights to an engine without the barrier."""

    @p.action(by="trainer", on="e")
    def apply_weights(s: State, e: Engine) -> Step:
        """A receive path that nobody counted applies the job's weights."""
        return when(live(s, e), s.disk_status == Marker.CHECKPOINT).then(weights={e: s.disk_content})


@mutant("bytes_are_accounted_for", "C45")
def bytes_nobody_sent(p: Protocol) -> None:
    """A receive path that nobody counts applies the job's weights to an engine."""
    second_way_to_update(p)


@mutant("requests_end", "C19", "C20")
def update_waits_for_readers(p: Protocol) -> None:
    """The update of an engine waits until its requests have ended, and the pause keeps them from ending."""

    def send(s: State, e: Engine) -> Step:
        return when(asks(s, e, Stage.SEND), s.request[e] != Request.RUNNING).then(
            weights={e: received(s, e)}, reports={e: load_to_establish(s)}, done={e: True}, **note_sent(s)
        )

    p.replace_action(send)


# Retrying, republishing, recovering


@mutant("retry_is_full", "M8")
def retry_by_difference(p: Protocol) -> None:
    """A retry sends the difference to a parent that engines may no longer hold."""
    also_writing(p, "begin_retry", lambda s: {"full": False})


@mutant("failure_is_repaired_in_place", "M9")
def retry_without_rebuilding(p: Protocol) -> None:
    """A retry does not fill the slots that giving up has emptied."""
    reroute_barrier(p, lambda s: ite(s.errand == Errand.RETRY, transfer(s), following(s, Stage.FLUSH)))


@mutant("nobody_schedules_during_transfer", "M10")
def replacements_not_paused(p: Protocol) -> None:
    """The barrier is not repeated for engines that were started after it."""
    reroute(p, "all_rebuilt", transfer)


@mutant("no_stale_hit", "M11")
def replacements_not_flushed(p: Protocol) -> None:
    """Replacements are paused and not flushed: what their warm-up left is made by what they booted with."""
    reroute(
        p,
        "all_paused",
        lambda s: ite((s.mode == Mode.RETRACT) & ~s.rebuilt, Stage.FLUSH, following(s, Stage.FLUSH)),
    )


@mutant("identity_kept", "M12")
def fresh_target_on_retry(p: Protocol) -> None:
    """Every try takes a new id, while engines may still hold bytes under the last one."""
    reroute_barrier(
        p, lambda s: ite((s.errand == Errand.RETRY) & s.rebuilt, Stage.RECORD_TARGET, following(s, Stage.FLUSH))
    )

    def record_target(s: State) -> Step:
        fresh = ite(s.memory_target.is_none, s.memory_parent + 1, s.memory_target.or_else(0) + 1)
        return when(s.stage == Stage.RECORD_TARGET).then(
            disk_target=fresh, memory_target=fresh, **enter(s, following(s, Stage.RECORD_TARGET))
        )

    p.replace_action(record_target)


@mutant("failure_is_repaired_in_place", "C88")
def health_hides_the_retry(p: Protocol) -> None:
    """A health check refuses every call after a failure, the one that would repair it too."""

    def begin_retry(s: State) -> Step:
        return when(takes_calls(s), s.memory_status == Marker.UPDATING_WEIGHTS).then(
            **begin(s, Errand.RETRY, Stage.PAUSE), full=True
        )

    p.replace_action(begin_retry)


@mutant("failure_is_repaired_in_place", "section 2.6")
def failed_republish_is_beyond_repair(p: Protocol) -> None:
    """Health counts only UPDATING_WEIGHTS as repairable: a republication that failed once ends in a tear-down."""
    not_asking(p, "begin_republish", "phase")
    only_where(p, "begin_republish", lambda s: s.phase == Phase.SERVING)


@mutant("lost_engines_are_replaced", "section 1.5")
def republish_refused_after_rejection(p: Protocol) -> None:
    """Republication is refused where the parent should be served after a rejection: nothing fills a slot there."""
    only_where(p, "begin_republish", lambda s: s.memory_status.is_in(*PUBLISHED, Marker.NONE))


@mutant("serves_only_committed", "H25")
def replacement_serves_at_once(p: Protocol) -> None:
    """A lost engine is replaced outside of any errand, and serves what it booted with."""

    @p.action(by="monitor", on="e")
    def replace_engine(s: State, e: Engine) -> Step:
        """The monitor starts a process in an empty slot."""
        return when(~s.latch, s.slot[e] == Slot.EMPTY).then(slot={e: Slot.LIVE})


@mutant("serves_only_committed", "P23")
def restart_behind_open_gate(p: Protocol) -> None:
    """Admission stays open while a new coordinator recovers: a request meets a replacement before its fence."""
    not_writing(p, "restart", "gate")


@mutant("running_never_resumed", "P13")
def restart_resumes_running(p: Protocol) -> None:
    """A restart runs an ambiguous job again."""

    def restart(s: State) -> Step:
        return when(s.stage == Stage.DOWN).then(
            **read_record(s),
            stage=ite(s.disk_status == Marker.RUNNING, Stage.TRAIN, Stage.PAUSE),
            errand=ite(s.disk_status == Marker.RUNNING, Errand.TRAIN, Errand.RECOVER),
            latch=True,
            full=s.disk_status != Marker.RUNNING,
            gate=False,
        )

    p.replace_action(restart)


@mutant("serves_only_committed", "M15")
def restart_serves_what_is_ready(p: Protocol) -> None:
    """A restart continues engines at READY_TO_COMMIT, before the service has released the load."""
    reroute(
        p,
        "verify",
        lambda s: ite(
            (s.errand == Errand.RECOVER) & (s.memory_status == Marker.READY_TO_COMMIT),
            Stage.CONTINUE,
            following(s, Stage.VERIFY),
        ),
    )


@mutant("uniform_when_serving", "H15", "C78")
def recovery_stamps_without_sending(p: Protocol) -> None:
    """After a rejection, a restart tells engines the parent's id and sends no bytes."""

    def send(s: State, e: Engine) -> Step:
        stamped = (s.errand == Errand.RECOVER) & (s.memory_status == Marker.REJECTED)
        return when(asks(s, e, Stage.SEND)).then(
            weights={e: ite(stamped, s.weights[e], received(s, e))},
            reports={e: load_to_establish(s)},
            done={e: True},
            **note_sent(s),
        )

    p.replace_action(send)
    verify_ids_only(p)


@mutant("no_use_of_released_memory", "H18", "C77")
def recovery_leaves_memory_out(p: Protocol) -> None:
    """After a rejection, a restart of a colocated deployment brings no memory back."""
    reroute(
        p,
        "all_released",
        lambda s: ite(
            (s.errand == Errand.RECOVER) & (s.memory_status == Marker.REJECTED),
            Stage.SEND,
            following(s, Stage.RELEASE),
        ),
    )


@mutant("uniform_when_serving", "H19")
def recovery_continues_before_restoring(p: Protocol) -> None:
    """A restart that finishes a rejection continues engines before they have the parent."""
    reroute(
        p,
        "all_rebuilt",
        lambda s: ite(s.memory_status == Marker.REJECTING, Stage.CONTINUE, following(s, Stage.REBUILD)),
    )


@mutant("one_content_per_id", "section 2.4")
def recovery_restores_the_candidate(p: Protocol) -> None:
    """A restart that finishes a rejection loads the newest checkpoint, the rejected one, under the parent's id."""

    def sent_instead(s: State, honest: Content) -> Content:
        return ite(s.memory_status == Marker.REJECTING, s.memory_content, honest)

    def send(s: State, e: Engine) -> Step:
        content = sent_instead(s, content_to_establish(s))
        return when(asks(s, e, Stage.SEND)).then(
            weights={e: sent_instead(s, received(s, e))},
            reports={e: load_to_establish(s)},
            done={e: True},
            sent=each(Load, Content, lambda v, c: s.sent[v, c] | ((v == load_to_establish(s)) & (c == content))),
        )

    p.replace_action(send)


@mutant("restart_recovers", "section 2.4")
def restart_refuses_rejection(p: Protocol) -> None:
    """A restart refuses REJECTING and REJECTED, because its engines would boot with the newest checkpoint."""
    only_where(p, "restart", lambda s: ~s.disk_status.is_in(Marker.REJECTING, Marker.REJECTED))


# The commit


@mutant("ack_order", "M14")
def continue_before_head(p: Protocol) -> None:
    """Engines continue first, and HEAD_COMMITTED is written then."""
    also_writing(p, "acknowledge", lambda s: enter(s, Stage.CONTINUE))
    reroute(
        p,
        "all_continued",
        lambda s: ite(s.memory_status == Marker.READY_TO_COMMIT, Stage.RECORD_HEAD, following(s, Stage.CONTINUE)),
    )
    reroute(p, "record_head", lambda s: Stage.RECORD_COMPLETE)


@mutant("ack_order", "H24")
def commit_skips_the_continue(p: Protocol) -> None:
    """A memo says that nothing is paused, and the engines are not continued."""
    reroute(p, "record_head", lambda s: Stage.RECORD_COMPLETE)


@mutant("acknowledgement_completes", "H13", "C103")
def continue_reaches_empty_slots(p: Protocol) -> None:
    """Empty slots count among the engines to continue, and never answer."""

    def all_continued(s: State) -> Step:
        return when(s.stage == Stage.CONTINUE, forall(Engine, lambda e: s.done[e])).then(
            **{**enter(s, following(s, Stage.CONTINUE)), "latch": False}, done=each(Engine, lambda e: False)
        )

    p.replace_action(all_continued)

    @p.action(by="coordinator")
    def find_empty_at_continue(s: State) -> Step:
        """An empty slot cannot be continued."""
        return when(s.stage == Stage.CONTINUE, exists(Engine, lambda e: s.slot[e] == Slot.EMPTY)).then(
            **leave_fenced(s)
        )


@mutant("calls_fit_the_marker", "P11")
def acknowledge_again(p: Protocol) -> None:
    """An acknowledgement of what is complete continues engines once more."""

    def acknowledge(s: State) -> Step:
        stage = ite(s.memory_status == Marker.READY_TO_COMMIT, Stage.RECORD_HEAD, Stage.CONTINUE)
        return when(takes_calls(s), s.memory_status.is_in(*PUBLISHED), s.memory_target == s.head).then(
            **begin(s, Errand.ACKNOWLEDGE, stage)
        )

    p.replace_action(acknowledge)


@mutant("reject_only_untouched", "M31")
def reject_what_may_have_moved(p: Protocol) -> None:
    """A checkpoint is rejected from UPDATING_WEIGHTS, when bytes of it may be anywhere."""

    def begin_reject(s: State) -> Step:
        return when(
            s.stage == Stage.IDLE,
            s.memory_status.is_in(Marker.CHECKPOINT, Marker.UPDATING_WEIGHTS, Marker.REJECTING),
        ).then(
            stage=ite(
                s.memory_status == Marker.REJECTING, following(s, Stage.RECORD_REJECTING), Stage.RECORD_REJECTING
            ),
            errand=Errand.REJECT,
            phase=Phase.SERVING,
            gate=False,
        )

    p.replace_action(begin_reject)


@mutant("marker_edges", "P12")
def reject_what_is_ready(p: Protocol) -> None:
    """A load is rejected after it was published."""

    def begin_reject(s: State) -> Step:
        return when(
            takes_calls(s), s.memory_status.is_in(Marker.CHECKPOINT, Marker.READY_TO_COMMIT, Marker.REJECTING)
        ).then(
            stage=ite(
                s.memory_status == Marker.REJECTING, following(s, Stage.RECORD_REJECTING), Stage.RECORD_REJECTING
            ),
            errand=Errand.REJECT,
            gate=False,
        )

    p.replace_action(begin_reject)


@mutant("rejection_completes", "section 1.5")
def rejection_not_repeated(p: Protocol) -> None:
    """A rejection that could not write its end is not taken up again."""
    only_where(p, "begin_reject", lambda s: s.memory_status == Marker.CHECKPOINT)


@mutant("admission_opens", "L9")
def gate_opens_after_a_commit_only(p: Protocol) -> None:
    """Admission opens after a commit, and after nothing else."""
    only_where(p, "open_gate", lambda s: s.memory_status == Marker.COMPLETE)


# The record


@mutant("memory_mirrors_disk", "P10")
def memory_leads_disk(p: Protocol) -> None:
    """The coordinator believes READY_TO_COMMIT before it is durable."""
    also_writing(
        p,
        "verify",
        lambda s: {
            "memory_status": ite(s.memory_status == Marker.UPDATING_WEIGHTS, Marker.READY_TO_COMMIT, s.memory_status)
        },
    )


@mutant("memory_mirrors_disk", "section 2.1")
def failed_write_not_read_back(p: Protocol) -> None:
    """A write that raises is taken for one that wrote nothing, though a restart may find more."""
    not_writing(
        p,
        "write_fails",
        "memory_status",
        "memory_parent",
        "memory_parent_content",
        "memory_content",
        "memory_target",
    )


# Memory


@mutant("memory_paired", "M34", "C79")
def resume_what_was_not_released(p: Protocol) -> None:
    """An engine is told to take memory back whether or not it has released it."""
    not_asking(p, "resume_weights", "weights_out")


@mutant("no_use_of_released_memory", "C80", "C82")
def release_beside_a_running_request(p: Protocol) -> None:
    """Memory is released while a request still runs on it."""
    not_asking(p, "release", "request")
    not_asking(p, "flush", "request")


@mutant("no_use_of_released_memory", "C51")
def release_keeps_the_tree(p: Protocol) -> None:
    """Neither the barrier nor the release empties the tree: it points into memory that is gone."""
    not_writing(p, "flush", "cached", "made_by")
    not_writing(p, "release", "cached", "made_by")


@mutant("no_use_of_released_memory", "section 9")
def rejection_leaves_memory_out(p: Protocol) -> None:
    """A rejection continues colocated engines without bringing their memory back."""
    reroute(p, "record_rejecting", lambda s: ite(s.colocated, Stage.CONTINUE, Stage.RECORD_REJECTED))


@mutant("trainer_has_the_memory", "C83")
def memory_back_while_training(p: Protocol) -> None:
    """An engine takes its weights' memory back while the trainer still works in it."""
    not_asking(p, "resume_weights", "stage")


@mutant("trainer_has_the_memory", "C81")
def release_answered_early(p: Protocol) -> None:
    """The release is answered before the memory is free, and the trainer starts."""
    not_asking(p, "all_released", "slot")


@mutant("empty_slots_hold_nothing", "P14")
def retired_in_name_only(p: Protocol) -> None:
    """Slots are emptied, and what was known of their engines is kept for their successors."""
    not_writing(p, "retire", "reports")


@mutant("crash_forgets", "L4")
def latch_outlives_its_coordinator(p: Protocol) -> None:
    """The latch is taken over from a coordinator that crashed."""
    not_writing(p, "crash", "latch")


@mutant("one_errand_at_a_time", "P14")
def calls_overlap(p: Protocol) -> None:
    """A publication is asked for again while one is under way, and both go on."""
    not_asking(p, "begin_publish", "stage")


@mutant("failure_admits_only_repair", "H5")
def publish_over_retired_engines(p: Protocol) -> None:
    """Engines were retired and the disk would not say so: a publication begins as if they were untouched."""
    not_asking(p, "begin_publish", "phase")


@mutant("everybody_answers", "C102")
def transfer_forgets_an_engine(p: Protocol) -> None:
    """The sender is bound to the engines of an earlier cohort: it is done when some have answered."""

    def all_sent(s: State) -> Step:
        return when(s.stage == Stage.SEND, exists(Engine, lambda e: s.done[e])).then(**proceed(s, Stage.SEND))

    p.replace_action(all_sent)


@mutant("errands_end_clean", "P14")
def answers_counted_twice(p: Protocol) -> None:
    """The answers to one call are counted for the next as well."""
    not_writing(p, "all_continued", "done")


@mutant("kv_returns_after_the_bytes", "section 9")
def kv_back_before_the_bytes(p: Protocol) -> None:
    """KV memory comes back first, so that a tree could fill while bytes move."""
    reroute(p, "all_released", lambda s: ite(s.errand == Errand.TRAIN, Stage.TRAIN, Stage.RESUME_KV))
    reroute(
        p,
        "all_kv_back",
        lambda s: ite(s.errand == Errand.REJECT, Stage.CONTINUE, Stage.RESUME_WEIGHTS),
    )
    reroute(p, "all_sent", lambda s: Stage.VERIFY)


# What happens in the end: nothing wrong is ever done, and something is never done


@mutant("every_publication_settles", "L3")
def barriers_time_out(p: Protocol) -> None:
    """A barrier that takes long is given up, and so is the one of every retry."""

    @p.action(by="coordinator")
    def time_out(s: State) -> Step:
        """A barrier that might still pass is given up."""
        return when(s.stage == Stage.FLUSH).then(**give_up(s))


@mutant("every_commit_completes", "L5")
def service_keeps_no_record(p: Protocol) -> None:
    """That a load is published stands in no record of the service: once it has forgotten, nobody commits it."""
    p.remove_assumption("heads_are_committed")


@mutant("every_errand_ends", "L2")
def pause_waits_for_requests(p: Protocol) -> None:
    """Nothing is retracted: a flush waits for what runs on the paused engine, and that is not run any more."""
    p.remove_action("retract")


@mutant("every_request_is_answered", "L1")
def retraction_throws_work_away(p: Protocol) -> None:
    """A request that is sent back begins anew: where engines are paused often enough, it is never answered."""
    p.remove_assumption("engines_run")

    @p.assumption
    def engines_start(s: State, e: Engine) -> Fair:
        """While it schedules, an engine starts its request, however often it is paused in between."""
        return strongly_fair("start", where=~s.paused[e])

    @p.assumption
    def engines_thaw(s: State, e: Engine) -> Fair:
        """What was frozen in place goes on with what it had, however often."""
        return strongly_fair("finish", where=(s.mode == Mode.IN_PLACE) & ~s.paused[e])

    @p.assumption
    def engines_finish_undisturbed(s: State, e: Engine) -> Fair:
        """An engine gets through its request if it is not paused meanwhile."""
        return weakly_fair("finish", where=~s.paused[e])


@mutant("every_lost_engine_is_replaced", "L7")
def lost_engines_are_not_missed(p: Protocol) -> None:
    """The service republishes when a call has failed, and not when an engine is lost while nothing is called."""
    p.remove_assumption("what_is_lost_is_republished")

    @p.assumption
    def what_failed_is_republished(s: State) -> Fair:
        """The service republishes where something has failed."""
        return strongly_fair("begin_republish", where=s.phase != Phase.SERVING)


@mutant("everybody_serves", "L4")
def probe_kills_recovery(p: Protocol) -> None:
    """A probe takes a coordinator that still recovers for one that hangs, and has it restarted, again and again."""

    @p.action(by="supervisor")
    def kill(s: State) -> Step:
        """The supervisor kills the coordinator, and leaves the engines."""
        return when(s.errand == Errand.RECOVER).then(**forget())


ABOUT_ADAPTERS = "is about adapters, and this protocol moves whole weights: `spec.adapters.mutants`"

NOT_HERE = MappingProxyType(
    {
        "happens to requests and tokens inside one engine; seen from outside, a request waits, runs or is answered": (
            *("M21", "M28", "H11", "C26", "C95", "C105", "C106"),
        ),
        ABOUT_ADAPTERS: (
            *("M29", "M30", "H3", "H20", "H23", "C52", "C67", "C68", "C69", "C70", "C71"),
            *("C73", "C74", "C75", "C76", "C86", "C90"),
        ),
        "is decided when a configuration is read, before anything runs": (
            *("M22", "M24", "M25", "M26", "H1", "H2", "H7", "C56"),
        ),
        "is about engines that somebody else owns; every engine here may be retired": ("M32", "H14"),
        "is about the connection that carries the bytes; a transfer here succeeds, fails or lies": ("M33", "H10"),
        "happens between the ranks of one engine, which acts as one here": ("C32", "C100", "C104"),
        "is about prefill and decode engines apart, which may not be published to by retract": ("C23", "C25", "C84"),
        "is about a second model; every engine here belongs to one": ("H8",),
        "is about how long a call takes; here it may take any time": ("H6",),
        "is about a document": ("H16",),
        "is a fault here, which every property survives: `die` and `barrier_fails`": ("C03",),
        "is a fault here, which every property survives: `retire_fails`": ("H21",),
        "is so here on purpose: the published id is the target, in one field that no record drops": ("H9",),
        "is so here on purpose: the second barrier flushes engines whose KV memory is released": ("H12",),
        "is so here on purpose: a request that was paused in place goes on with KV of two loads": ("H17",),
        "is so here on purpose: a restart publishes a checkpoint that was not rejected; the service still holds its "
        "commit": ("H22",),
    }
)
"""Reports that no mutant of this protocol stands for, by the reason."""

UNMISSED = MappingProxyType(
    {
        "doing it again changes nothing": (
            *("pause: guard 3", "flush: guard 3", "release: guard 3", "continue_generation: guard 3"),
            *("retire: guard 2", "migrate: guard 2", "commit_head: guard 2", "open_gate: guard 3"),
        ),
        "a process that has refused to start may as well end: the next one refuses again": ("crash: guard 1",),
        "giving up without need is what `barrier_fails`, `transfer_fails` and `continue_fails` do": (
            *("find_mismatch: guard 2", "find_dead: guard 2", "find_dead_at_continue: guard 2"),
        ),
        "ending with what is left in slots is what the other one does": (
            *("all_retired: guard 2", "retire_fails: guard 2"),
        ),
        "a fault that does less is met all the same, through another fault": (
            *("barrier_fails: write 1", "transfer_fails: write 1"),
            *("send_tears: write 1", "send_tears: write 2", "send_tears: write 3", "send_tears: write 4"),
            *("send_without_stamp: write 1", "send_without_stamp: write 2"),
            *("stamp_without_bytes: write 1", "stamp_without_bytes: write 2"),
        ),
        "the barrier has seen to it before: kept because the engine tests and does it whoever asks": (
            *("release: guard 4", "release: write 3", "release: write 4"),
        ),
        "the prompt has entered the tree when the request started: kept for protocols whose flush goes wrong": (
            *("start_on_hit: write 3", "finish: write 3", "finish: write 4"),
        ),
        "the ghost that notices a wrong resume: no right one does": (
            *("resume_weights: write 2", "resume_kv: write 2"),
        ),
        "set or cleared already where it comes from here, and written alike by every stage": (
            *("decline_job: write 3", "decline_job: write 4", "all_rebuilt: write 2", "begin_retry: write 2"),
            *("find_mismatch: write 2", "find_mismatch: write 3", "barrier_fails: write 2"),
            *("find_dead_at_continue: write 3", "find_dead_at_continue: write 4"),
            *("continue_fails: write 3", "continue_fails: write 4", "train_fails: write 3", "train_fails: write 4"),
            *("record_checkpoint: write 5", "record_checkpoint: write 6", "declare_retired: write 6"),
            *("tear_down: write 5", "tear_down: write 11", "tear_down: write 12"),
        ),
        "no failure leaves a status that republishing refuses, but health says so as well": (
            "begin_republish: guard 2",
        ),
        "makes a difference from the second job on, which scope `pr` has": (
            *("record_running: write 2", "record_running: write 3", "record_running: write 5"),
            *("record_running: write 7", "record_running: write 8", "record_running: write 10"),
            *("write_fails: write 2", "write_fails: write 3", "write_fails: write 7", "write_fails: write 8"),
            *("crash: write 2", "restart: write 2", "tear_down: write 2"),
            *("restore_previous_record: write 2", "restore_previous_record: write 3"),
        ),
    }
)
"""Parts of the right protocol that no claim misses in scope `smoke` when they are dropped, by why they stay."""
