"""What must be true: of the tree, of flush and pause, of stamps, labels and reports, of memory, of every request.

The letters in brackets number the invariants of the reference text. No action reads anything here.
"""

from __future__ import annotations

from spec.lang import Bool, CanReach, all_of, any_of, exists, forall, wherever
from spec.serving.state import (
    INITIAL,
    NO_LOAD,
    Adapter,
    Load,
    Mode,
    Phase,
    Request,
    Stage,
    State,
    memory_is_there,
    on_device,
    paused,
    serving,
)

# Words


def holds_kv(s: State, r: Request) -> Bool:
    """The request's KV is in use: by its batch, or by one that ran ahead and left it behind."""
    return on_device(s, r) | (s.ahead == r)


def starts(s: State, t: State, r: Request) -> Bool:
    """In this step, the request goes from the queue to the device."""
    return (s.phase[r] == Phase.WAITING) & on_device(t, r)


def launches(s: State, t: State, r: Request) -> Bool:
    """In this step, the engine computes for the request."""
    return s.ahead.is_none & (t.ahead == r)


def delivers(s: State, t: State, r: Request) -> Bool:
    """In this step, a token is appended to what the request's client gets."""
    processed = (s.ahead == r) & ((t.ahead != r) | (t.phase[r] == Phase.DONE))
    return s.phase[r].is_in(Phase.PREFILLED, Phase.RUNNING) & processed & ~t.stamp[r].is_none


def unanswered(s: State, r: Request) -> Bool:
    """Somebody waits for an answer."""
    return s.phase[r] != Phase.DONE


def reports_nothing(s: State, r: Request) -> Bool:
    """No stamp, no count, no retraction; and nobody has left."""
    return all_of(s.stamp[r].is_none, ~s.counted[r], ~s.retracted[r], ~s.gone[r])


# The prefix tree


@serving.step_property
def no_stale_hit(s: State, t: State) -> Bool:
    """A request starts on KV that the engine's own weights made, whatever prefix it reuses (S1)."""
    return forall(
        Request, lambda r: starts(s, t, r).implies(forall(Load, lambda v: t.kv[r, v].implies(t.weights == v)))
    )


@serving.property
def tree_is_fresh(s: State) -> Bool:
    """Whatever is in the tree was made by the weights that are there (S1)."""
    return forall(Adapter, lambda a: forall(Load, lambda v: s.made_by[a, v].implies(s.weights == v)))


@serving.property
def flush_point(s: State) -> Bool:
    """From the flush until the engine continues, the tree is empty (S3)."""
    return (s.stage == Stage.FLUSHED).implies(forall(Adapter, lambda a: ~s.cached[a]))


@serving.property
def no_kv_pulled_away(s: State) -> Bool:
    """No request holds KV that no load made: nothing empties the pools under it, or computes on half a load (S4)."""
    return forall(Request, lambda r: forall(Load, lambda v: s.kv[r, v].implies(v != NO_LOAD)))


@serving.property
def kept_kv_is_pure(s: State) -> Bool:
    """Where a pause retracts or aborts, no request holds KV that other weights made than those there (S4)."""
    return (s.mode != Mode.IN_PLACE).implies(
        forall(Request, lambda r: forall(Load, lambda v: s.kv[r, v].implies(s.weights == v)))
    )


@serving.property
def adapters_are_apart(s: State) -> Bool:
    """A request runs on KV that its own adapter made (S5)."""
    return forall(
        Request,
        lambda r: on_device(s, r).implies(forall(Adapter, lambda a: s.kv_with[r, a].implies(s.adapter[r] == a))),
    )


@serving.property
def name_is_content(s: State) -> Bool:
    """No name of an adapter has ever stood for other bytes (S6)."""
    return forall(Adapter, lambda a: ~s.overwritten[a])


@serving.property
def in_place_keeps_kv_private(s: State) -> Bool:
    """Paused in place, KV of several loads stays with the request that made it: no tree holds any (S11)."""
    return (s.mode == Mode.IN_PLACE).implies(forall(Adapter, lambda a: ~s.cached[a]))


@serving.property
def provenance_is_complete(s: State) -> Bool:
    """Entries and requests on the device have KV that some weights and some adapter made, and nothing else has.

    What ran ahead left its mark, and what waits has reused nothing.
    """
    return all_of(
        forall(
            Adapter,
            lambda a: all_of(
                s.cached[a] == exists(Load, lambda v: s.made_by[a, v]),
                s.cached[a] == exists(Adapter, lambda b: s.made_with[a, b]),
            ),
        ),
        forall(
            Request,
            lambda r: all_of(
                holds_kv(s, r) == exists(Load, lambda v: s.kv[r, v]),
                holds_kv(s, r) == exists(Adapter, lambda a: s.kv_with[r, a]),
                (on_device(s, r) & (s.ahead == r)).implies(s.kv[r, s.ahead_weights]),
                s.reused[r].implies(on_device(s, r) | ~unanswered(s, r)),
            ),
        ),
    )


# Flush, pause and the idle test


@serving.step_property
def flush_meets_nobody(s: State, t: State) -> Bool:
    """A tree is emptied only where no request holds KV and, but for a pause that lets them be, none waits (S4, S13)."""
    emptied = exists(Adapter, lambda a: s.cached[a] & ~t.cached[a]) | (
        (s.stage != Stage.FLUSHED) & (t.stage == Stage.FLUSHED)
    )
    return emptied.implies(
        forall(
            Request,
            lambda r: all_of(
                ~holds_kv(s, r),
                (s.phase[r] == Phase.WAITING).implies(paused(s)),
                (s.phase[r] == Phase.GRAMMAR).implies(paused(s) & (s.mode == Mode.RETRACT)),
            ),
        )
    )


@serving.step_property
def queues_keep_work(s: State, t: State) -> Bool:
    """A request leaves its queue to be started or compiled, while the engine schedules, or with an answer (S12)."""
    ends = s.limited | (s.mode == Mode.ABORT)
    return forall(
        Request,
        lambda r: all_of(
            (s.phase[r] == Phase.GRAMMAR).implies(
                t.phase[r].is_in(Phase.GRAMMAR)
                | ((t.phase[r] == Phase.WAITING) & ~paused(s))
                | ((t.phase[r] == Phase.DONE) & ends)
            ),
            (s.phase[r] == Phase.WAITING).implies(
                (t.phase[r] == Phase.WAITING)
                | (launches(s, t, r) & on_device(t, r) & ~paused(s))
                | ((t.phase[r] == Phase.DONE) & (s.mode == Mode.ABORT))
            ),
        ),
    )


@serving.property
def idle_means_idle(s: State) -> Bool:
    """A health check is told that the engine is idle only where nobody waits for an answer, paused or not (S13)."""
    return s.told_idle.implies(s.ahead.is_none & forall(Request, lambda r: ~unanswered(s, r)))


@serving.step_property
def pauses_mean_what_they_say(s: State, t: State) -> Bool:
    """On a paused engine nothing is computed, and a pause in place touches no request."""
    in_place = s.mode == Mode.IN_PLACE
    return (paused(s) | paused(t)).implies(
        forall(
            Request,
            lambda r: all_of(
                ~launches(s, t, r),
                (in_place & on_device(s, r)).implies(on_device(t, r)),
                (in_place & (s.ahead == r)).implies((t.ahead == r) & (t.ahead_label == s.ahead_label)),
            ),
        )
    )


@serving.step_property
def batches_change_by_launch(s: State, t: State) -> Bool:
    """A request comes to the device, and from one batch to another, only where it is computed for."""
    return forall(Request, lambda r: (on_device(t, r) & (t.phase[r] != s.phase[r])).implies(launches(s, t, r)))


@serving.step_property
def retraction_is_orderly(s: State, t: State) -> Bool:
    """A pause that retracts takes requests back after the result that ran ahead; or memory is short, and one runs."""
    return forall(
        Request,
        lambda r: (on_device(s, r) & (t.phase[r] == Phase.WAITING)).implies(
            all_of(s.stage == Stage.PAUSING, s.mode == Mode.RETRACT, s.ahead.is_none)
            | (~paused(s) & (s.phase[r] == Phase.RUNNING))
        ),
    )


@serving.step_property
def quiet_after_a_pause(s: State, t: State) -> Bool:
    """A pause that retracts leaves no KV in use; one that aborts, nobody who waits for an answer."""
    returns = (s.stage == Stage.PAUSING) & (t.stage == Stage.PAUSED)
    return returns.implies(
        forall(
            Request,
            lambda r: all_of(
                (s.mode == Mode.RETRACT).implies(~holds_kv(t, r)),
                (s.mode == Mode.ABORT).implies(~unanswered(t, r) | t.gone[r]),
            ),
        )
    )


@serving.step_property
def publication_is_in_order(s: State, t: State) -> Bool:
    """A pause returns before a flush or a continue; where it does not pause in place, the flush comes between."""
    begins = Stage.SERVING
    return any_of(
        s.stage == t.stage,
        (s.stage == begins) & (t.stage == Stage.PAUSING) & (s.mode != Mode.IN_PLACE),
        (s.stage == begins) & (t.stage == Stage.PAUSED) & (s.mode == Mode.IN_PLACE),
        (s.stage == Stage.PAUSING) & (t.stage == Stage.PAUSED),
        (s.stage == Stage.PAUSED) & (t.stage == Stage.FLUSHED),
        (s.stage == Stage.PAUSED) & (t.stage == begins) & (s.mode == Mode.IN_PLACE),
        (s.stage == Stage.FLUSHED) & (t.stage == begins),
    )


@serving.step_property
def bytes_arrive_in_a_pause(s: State, t: State) -> Bool:
    """The bytes of the weights change only between a pause and the continue (P22)."""
    return (t.weights != s.weights).implies(s.stage.is_in(Stage.PAUSED, Stage.FLUSHED))


@serving.property
def one_request_between_chunks(s: State) -> Bool:
    """One request at most is between the chunks of its prompt."""
    between = Phase.PREFILLING
    return forall(
        Request,
        lambda r: forall(Request, lambda q: ((s.phase[r] == between) & (s.phase[q] == between)).implies(r == q)),
    )


# Stamps, labels and reports


@serving.step_property
def stamp_tells_who_sampled(s: State, t: State) -> Bool:
    """A token is stamped with the load whose weights sampled it (T1)."""
    return forall(Request, lambda r: delivers(s, t, r).implies(t.stamp[r] == s.ahead_weights))


@serving.step_property
def stamps_grow(s: State, t: State) -> Bool:
    """Stamps within one answer never decrease, and one that was delivered never changes (T2)."""
    return forall(
        Request,
        lambda r: all_of(
            (unanswered(s, r) & ~t.stamp[r].is_none).implies(s.stamp[r].or_else(0) <= t.stamp[r].or_else(0)),
            ((t.stamp[r] != s.stamp[r]) & ~t.stamp[r].is_none).implies(s.ahead == r),
        ),
    )


@serving.step_property
def retract_leaves_nothing_to_sample(s: State, t: State) -> Bool:
    """After a publication that retracts, every token is of the new load (T3)."""
    return ((s.mode == Mode.RETRACT) & (s.stage == Stage.SERVING)).implies(
        forall(Request, lambda r: delivers(s, t, r).implies(t.stamp[r] == s.label))
    )


@serving.step_property
def label_follows_success(s: State, t: State) -> Bool:
    """The label changes only with the last byte of a complete load, and to that load (T4)."""
    return (t.label != s.label).implies(t.complete & (t.weights == t.label))


@serving.property
def label_tells_the_truth(s: State) -> Bool:
    """Where the driver takes a load to be complete, the weights are that load, under its label (T4)."""
    return s.complete.implies((s.weights == s.label) & (s.weights != NO_LOAD))


@serving.step_property
def reuse_is_counted(s: State, t: State) -> Bool:
    """What a request reuses is under its own key, and is counted unless it was retracted (S5)."""
    return forall(
        Request,
        lambda r: starts(s, t, r).implies(
            t.reused[r].implies(s.cached.get(s.adapter[r], False)) & (t.retracted[r] | (t.counted[r] == t.reused[r]))
        ),
    )


@serving.step_property
def reports_are_of_one_request(s: State, t: State) -> Bool:
    """A request comes to an empty report and no KV, and one that ends with an error reports nothing."""
    return forall(
        Request,
        lambda r: all_of(
            (~unanswered(s, r) & unanswered(t, r)).implies(reports_nothing(t, r) & ~exists(Load, lambda v: t.kv[r, v])),
            all_of(unanswered(s, r), ~unanswered(t, r), ~delivers(s, t, r)).implies(reports_nothing(t, r)),
        ),
    )


@serving.property
def answers_claim_no_more_than_is_true(s: State) -> Bool:
    """An answer that counts no reused token, of a request that was not retracted, reused none."""
    return forall(
        Request,
        lambda r: all_of(s.phase[r] == Phase.DONE, ~s.counted[r], ~s.retracted[r]).implies(~s.reused[r]),
    )


@serving.step_property
def retraction_freezes_the_count(s: State, t: State) -> Bool:
    """Once a request was retracted, its cached_tokens never changes: it is evidence of nothing."""
    return forall(
        Request,
        lambda r: (unanswered(s, r) & s.retracted[r] & t.retracted[r]).implies(t.counted[r] == s.counted[r]),
    )


# Memory


@serving.property
def memory_paired(s: State) -> Bool:
    """The engine was not told to take back memory that it had not released (P21)."""
    return ~s.unpaired


@serving.step_property
def only_whole_loads_compute(s: State, t: State) -> Bool:
    """The engine computes only on a complete load, under its label, and only where its memory is (P7, P21)."""
    return exists(Request, lambda r: launches(s, t, r)).implies(
        all_of(s.weights != NO_LOAD, s.weights == s.label, memory_is_there(s))
    )


@serving.property
def no_use_of_released_memory(s: State) -> Bool:
    """Memory is released where that is asked for; nothing is in it then, and no tree outlives its KV (P21)."""
    return all_of(
        s.kv_out.implies(s.offloads),
        s.weights_out.implies(s.kv_out & (s.weights == NO_LOAD)),
        s.kv_out.implies(forall(Adapter, lambda a: ~s.cached[a])),
    )


@serving.step_property
def kv_returns_after_the_bytes(s: State, t: State) -> Bool:
    """The KV's memory does not come back before the weights are complete, so that no tree can fill (P21)."""
    return (s.kv_out & ~t.kv_out).implies(s.complete)


# Requests


@serving.property
def requests_name_what_is_loaded(s: State) -> Bool:
    """A request that is not answered names one adapter, whose bytes are loaded."""
    return forall(Request, lambda r: unanswered(s, r) == exists(Adapter, lambda a: (s.adapter[r] == a) & s.loaded[a]))


@serving.property
def queue_is_limited(s: State) -> Bool:
    """A queue with a limit keeps to it."""
    waits = Phase.WAITING
    return s.limited.implies(
        forall(
            Request,
            lambda r: forall(Request, lambda q: ((s.phase[r] == waits) & (s.phase[q] == waits)).implies(r == q)),
        )
    )


@serving.step_property
def nobody_is_lost(s: State, t: State) -> Bool:
    """A request that was started ends with its last token, under retract whatever happens (L1).

    Otherwise it may also be aborted between its chunks, or refused by a queue that it was to come back to.
    """
    return forall(
        Request,
        lambda r: (on_device(s, r) & ~unanswered(t, r)).implies(
            any_of(
                delivers(s, t, r),
                (s.mode == Mode.ABORT) & (s.phase[r] == Phase.PREFILLING),
                s.limited & (s.mode != Mode.RETRACT),
            )
        ),
    )


# What can always be reached, though no client leaves


@serving.recovery(avoiding=["continue_generation", "disconnect"])
def flush_succeeds(s: State) -> CanReach:
    """A pause that a flush belongs to is followed by one that succeeds, whatever requests there are (L2)."""
    return wherever(s.stage.is_in(Stage.PAUSING, Stage.PAUSED) & (s.mode != Mode.IN_PLACE)).can_reach(
        s.stage == Stage.FLUSHED
    )


@serving.recovery(avoiding=["disconnect", "update", "update_part"])
def engine_continues(s: State) -> CanReach:
    """Where a load is complete, the engine can continue, and no other load is needed for it."""
    return wherever((s.stage != Stage.SERVING) & s.complete).can_reach(s.stage == Stage.SERVING)


@serving.recovery(avoiding=["disconnect"])
def engine_is_repaired(s: State) -> CanReach:
    """Where half a load is there, or none, a whole one can be sent, and the engine continue."""
    return wherever(~s.complete).can_reach(s.complete & (s.stage == Stage.SERVING))


@serving.recovery(avoiding=["disconnect", "pause"])
def requests_end(s: State) -> CanReach:
    """While the engine serves, every request can be answered, and no publication is needed for it (L1)."""
    return wherever((s.stage == Stage.SERVING) & exists(Request, lambda r: unanswered(s, r))).can_reach(
        forall(Request, lambda r: ~unanswered(s, r))
    )


# What must happen at all


def published(s: State) -> Bool:
    """A later load than the initial one is served."""
    return (s.stage == Stage.SERVING) & (s.label > INITIAL)


@serving.goal
def reusable(s: State) -> Bool:
    """After a publication, a request waits whose adapter has an entry, made since."""
    return published(s) & exists(Request, lambda r: (s.phase[r] == Phase.WAITING) & s.cached.get(s.adapter[r], False))


@serving.goal
def retracted(s: State) -> Bool:
    """A retracted request waits, and the tree of the paused engine still has its prefix."""
    return (s.stage == Stage.PAUSED) & exists(
        Request, lambda r: (s.phase[r] == Phase.WAITING) & s.retracted[r] & s.cached.get(s.adapter[r], False)
    )


@serving.goal
def flushed_with_work(s: State) -> Bool:
    """The engine is flushed while a retracted request waits and the grammar of another compiles."""
    return all_of(
        s.stage == Stage.FLUSHED,
        exists(Request, lambda r: (s.phase[r] == Phase.WAITING) & s.retracted[r]),
        exists(Request, lambda r: s.phase[r] == Phase.GRAMMAR),
    )


def older(s: State, r: Request) -> Bool:
    """Some of the request's KV was made by other weights than those that are there."""
    return exists(Load, lambda v: s.kv[r, v] & (s.weights != v))


@serving.goal
def mixed(s: State) -> Bool:
    """A request that was paused in place goes on with KV of two loads."""
    return published(s) & exists(Request, lambda r: on_device(s, r) & s.kv[r, s.weights] & older(s, r))


@serving.goal
def side_by_side(s: State) -> Bool:
    """Two adapters have an entry each, and a request of the one runs on a hit."""
    return exists(
        Request,
        lambda r: exists(Adapter, lambda a: all_of(on_device(s, r), s.reused[r], s.adapter[r] != a, s.cached[a])),
    )


@serving.goal
def ahead_of_an_update(s: State) -> Bool:
    """New weights are there, and the result of the old ones is not processed yet."""
    return ~s.ahead.is_none & (s.ahead_label != s.label)


@serving.goal
def ahead_of_a_retraction(s: State) -> Bool:
    """A pause that retracts finds a result that ran ahead, and another request on the device."""
    return all_of(s.stage == Stage.PAUSING, s.mode == Mode.RETRACT, ~s.ahead.is_none) & exists(
        Request, lambda r: on_device(s, r) & (s.ahead != r)
    )


@serving.goal
def left_behind(s: State) -> Bool:
    """A pause that aborts has returned, and the request of a client that left is still on the device."""
    return all_of(s.stage == Stage.PAUSED, s.mode == Mode.ABORT) & exists(Request, lambda r: on_device(s, r))


@serving.goal
def computed_in_vain(s: State) -> Bool:
    """A batch computes once more for a request that is answered."""
    return exists(Request, lambda r: (s.ahead == r) & (s.phase[r] == Phase.DONE))


@serving.goal
def frozen(s: State) -> Bool:
    """Paused in place, one request is between its chunks, and another in the last batch."""
    return all_of(
        paused(s),
        s.mode == Mode.IN_PLACE,
        exists(Request, lambda r: s.phase[r] == Phase.PREFILLING),
        exists(Request, lambda r: s.phase[r] == Phase.PREFILLED),
    )


@serving.goal
def told_while_paused(s: State) -> Bool:
    """A health check was told of an idle engine, which is flushed and takes bytes."""
    return s.told_idle & (s.stage == Stage.FLUSHED)


@serving.goal
def half_updated(s: State) -> Bool:
    """Half a load has arrived, and a request waits."""
    return all_of(~s.complete, s.weights == NO_LOAD, ~s.weights_out, ~s.offloads) & exists(
        Request, lambda r: s.phase[r] == Phase.WAITING
    )


@serving.goal
def stamped_anew(s: State) -> Bool:
    """A retracted request has got a token of the new load."""
    return all_of(s.mode == Mode.RETRACT, published(s)) & exists(
        Request, lambda r: s.retracted[r] & (s.stamp[r] == s.label)
    )


@serving.goal
def reused_unseen(s: State) -> Bool:
    """An answer counts no reused token, and its request reused some after it was retracted."""
    return exists(Request, lambda r: all_of(s.phase[r] == Phase.DONE, s.reused[r], ~s.counted[r], s.retracted[r]))


@serving.goal
def reused_openly(s: State) -> Bool:
    """An answer counts the tokens that its request reused."""
    return exists(Request, lambda r: all_of(s.phase[r] == Phase.DONE, s.reused[r], s.counted[r], ~s.retracted[r]))


@serving.goal
def released(s: State) -> Bool:
    """All memory is released while a request waits."""
    return s.weights_out & s.kv_out & exists(Request, lambda r: s.phase[r] == Phase.WAITING)


@serving.goal
def kept_resident(s: State) -> Bool:
    """The KV's memory is released and the weights stay."""
    return s.kv_out & s.complete & (s.label == INITIAL)


@serving.goal
def sent_before_kv(s: State) -> Bool:
    """New weights are complete, and the KV's memory is not back."""
    return s.kv_out & s.complete & (s.label > INITIAL)


@serving.goal
def loaded_beside(s: State) -> Bool:
    """A request of one adapter runs, and another adapter is loaded."""
    return exists(
        Request,
        lambda r: exists(Adapter, lambda a: (s.phase[r] == Phase.RUNNING) & (s.adapter[r] != a) & s.loaded[a]),
    )


@serving.goal
def at_the_limit(s: State) -> Bool:
    """A queue is full while another request's grammar compiles."""
    return all_of(
        s.limited,
        exists(Request, lambda r: s.phase[r] == Phase.WAITING),
        exists(Request, lambda r: s.phase[r] == Phase.GRAMMAR),
    )


SHOWN_BY = {
    "no_stale_hit": "reusable",
    "tree_is_fresh": "retracted",
    "flush_point": "flushed_with_work",
    "no_kv_pulled_away": "frozen",
    "kept_kv_is_pure": "stamped_anew",
    "adapters_are_apart": "side_by_side",
    "name_is_content": "loaded_beside",
    "in_place_keeps_kv_private": "mixed",
    "provenance_is_complete": "computed_in_vain",
    "flush_meets_nobody": "left_behind",
    "queues_keep_work": "flushed_with_work",
    "idle_means_idle": "told_while_paused",
    "pauses_mean_what_they_say": "frozen",
    "batches_change_by_launch": "frozen",
    "retraction_is_orderly": "ahead_of_a_retraction",
    "quiet_after_a_pause": "left_behind",
    "publication_is_in_order": "flushed_with_work",
    "bytes_arrive_in_a_pause": "half_updated",
    "one_request_between_chunks": "frozen",
    "stamp_tells_who_sampled": "ahead_of_an_update",
    "stamps_grow": "stamped_anew",
    "retract_leaves_nothing_to_sample": "stamped_anew",
    "label_follows_success": "half_updated",
    "label_tells_the_truth": "sent_before_kv",
    "reuse_is_counted": "reused_openly",
    "reports_are_of_one_request": "reused_openly",
    "answers_claim_no_more_than_is_true": "reused_unseen",
    "retraction_freezes_the_count": "reused_unseen",
    "memory_paired": "kept_resident",
    "only_whole_loads_compute": "half_updated",
    "no_use_of_released_memory": "released",
    "kv_returns_after_the_bytes": "sent_before_kv",
    "requests_name_what_is_loaded": "loaded_beside",
    "queue_is_limited": "at_the_limit",
    "nobody_is_lost": "stamped_anew",
    "flush_succeeds": "flushed_with_work",
    "engine_continues": "kept_resident",
    "engine_is_repaired": "half_updated",
    "requests_end": "stamped_anew",
    "every_request_is_answered": "stamped_anew",
    "every_pause_ends": "flushed_with_work",
}
"""The goal that shows, for each claim, that what it speaks of happens."""
