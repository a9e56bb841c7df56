"""What else is true of every reachable state of the serving protocol, for the sake of its proof.

First what a publication leaves behind it on its way, then what requests have. Each lemma names an obligation that fails
without it, and tells in a sentence how.
"""

from __future__ import annotations

from spec.lang import Bool, all_of, any_of, forall
from spec.lang.lemmas import Lemmas
from spec.lang.refinement import BEGINS, REFINES
from spec.serving.state import (
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
    serving,
)

LEMMAS = Lemmas(serving)
"""Every lemma by its name, and what each claim rests on."""

lemma = LEMMAS.register


# What a publication leaves behind it


@lemma(
    breaks=("tree_is_fresh", "take_prompt"),
    without="Paused in place, a tree is shared, and KV of two loads enters it.",
)
def configuration_may_run(s: State) -> Bool:
    """The configuration is one of those in which the engine starts: it does not change."""
    return all_of(
        s.sharing.implies(s.mode != Mode.IN_PLACE),
        s.offloads.implies(s.mode == Mode.RETRACT),
        s.limited.implies(s.mode != Mode.RETRACT),
    )


@lemma(
    breaks=("provenance_is_complete", "take_prompt"),
    without="A prompt is processed where nothing is shared, and the tree loses an entry but not what made it.",
)
def cached_only_shared(s: State) -> Bool:
    """A tree holds an entry only where it is shared."""
    return forall(Adapter, lambda a: s.cached[a].implies(s.sharing))


@lemma(
    breaks=("no_kv_pulled_away", "start"),
    without="The engine serves, half a load is there, and a request starts on it.",
)
def loads_are_whole_but_in_a_pause(s: State) -> Bool:
    """Only in a pause, and after the flush if one belongs to it, a load may be in parts or memory be released."""
    return all_of(
        s.label > NO_LOAD,
        s.complete.implies(~s.weights_out),
        any_of(s.complete, s.stage == Stage.FLUSHED, (s.stage == Stage.PAUSED) & (s.mode == Mode.IN_PLACE)),
        memory_is_there(s) | (s.stage == Stage.FLUSHED),
    )


@lemma(
    breaks=("flush_point", "take_prompt"),
    without="The engine is flushed while a prompt is on the device, and the prompt enters the tree.",
)
def nothing_is_left_to_compute(s: State) -> Bool:
    """After a flush, and after a pause that retracts, no request holds KV; after a flush and an abort, none is left."""
    quiet = (s.stage == Stage.FLUSHED) | ((s.stage == Stage.PAUSED) & (s.mode == Mode.RETRACT))
    return all_of(
        quiet.implies(s.ahead.is_none & forall(Request, lambda r: ~on_device(s, r))),
        ((s.stage == Stage.FLUSHED) & (s.mode == Mode.ABORT)).implies(
            forall(Request, lambda r: s.phase[r] == Phase.DONE)
        ),
    )


# What requests have


@lemma(
    breaks=("queues_keep_work", "abort"),
    without="Where a pause retracts, a client has left, and its request is ended in its queue.",
)
def answered_ones_name_nothing(s: State) -> Bool:
    """A request names an adapter until it is answered, and only where a pause aborts is it known that clients left."""
    return forall(
        Request,
        lambda r: all_of(
            (s.phase[r] == Phase.DONE) == s.adapter[r].is_none,
            s.gone[r].implies((s.mode == Mode.ABORT) & (s.phase[r] != Phase.DONE)),
        ),
    )


@lemma(
    breaks=("adapters_are_apart", "start_on_hit"),
    without="A request starts on an entry under its adapter's key that another adapter made.",
)
def entries_are_apart(s: State) -> Bool:
    """An entry was made by the adapter in its key."""
    return forall(Adapter, lambda a: forall(Adapter, lambda b: s.made_with[a, b].implies(a == b)))


@lemma(
    breaks=("stamp_tells_who_sampled", "take_prompt"),
    without="A result was launched under another label than that of the weights that computed it.",
)
def results_keep_their_label(s: State) -> Bool:
    """What ran ahead has the label of its weights, and where a pause would not leave it there, they are still there."""
    return all_of(
        s.ahead_label == s.ahead_weights,
        s.ahead_label <= s.label,
        forall(
            Request,
            lambda r: all_of(s.mode != Mode.IN_PLACE, s.ahead == r, on_device(s, r)).implies(s.ahead_label == s.label),
        ),
    )


@lemma(
    breaks=("stamps_grow", "take_prompt"),
    without="A request already has a stamp that is newer than its result.",
)
def stamps_are_past(s: State) -> Bool:
    """No stamp is newer than the label, nor than the result that ran ahead for its request."""
    return forall(
        Request,
        lambda r: forall(
            Load,
            lambda v: (s.stamp[r] == v).implies(
                (v <= s.label) & (((s.ahead == r) & on_device(s, r)).implies(v <= s.ahead_label))
            ),
        ),
    )


@lemma(
    breaks=("reuse_is_counted", "start"),
    without="A request that was never started has counted reused tokens.",
)
def reports_begin_empty(s: State) -> Bool:
    """Until a request is first started it reports nothing; until it is retracted it counts what it reused."""
    return forall(
        Request,
        lambda r: all_of(
            (s.phase[r] == Phase.GRAMMAR).implies(~s.retracted[r]),
            (s.phase[r].is_in(Phase.GRAMMAR, Phase.WAITING) & ~s.retracted[r]).implies(
                ~s.counted[r] & s.stamp[r].is_none
            ),
            (on_device(s, r) & ~s.retracted[r]).implies(s.counted[r] == s.reused[r]),
        ),
    )


LEMMAS.rest(
    {
        "no_stale_hit": ("tree_is_fresh",),
        "tree_is_fresh": (
            "flush_point",
            "kept_kv_is_pure",
            "in_place_keeps_kv_private",
            "provenance_is_complete",
            "configuration_may_run",
        ),
        "flush_point": ("nothing_is_left_to_compute",),
        "no_kv_pulled_away": (
            "tree_is_fresh",
            "label_tells_the_truth",
            "loads_are_whole_but_in_a_pause",
            "nothing_is_left_to_compute",
        ),
        "kept_kv_is_pure": ("tree_is_fresh", "provenance_is_complete", "nothing_is_left_to_compute"),
        "adapters_are_apart": ("entries_are_apart",),
        "name_is_content": (),
        "in_place_keeps_kv_private": ("configuration_may_run",),
        "provenance_is_complete": ("requests_name_what_is_loaded", "cached_only_shared", "nothing_is_left_to_compute"),
        "flush_meets_nobody": ("cached_only_shared",),
        "queues_keep_work": ("answered_ones_name_nothing",),
        "idle_means_idle": (),
        "pauses_mean_what_they_say": ("answered_ones_name_nothing",),
        "batches_change_by_launch": (),
        "retraction_is_orderly": (),
        "quiet_after_a_pause": (),
        "publication_is_in_order": (),
        "bytes_arrive_in_a_pause": (),
        "one_request_between_chunks": (),
        "stamp_tells_who_sampled": ("results_keep_their_label",),
        "stamps_grow": ("stamps_are_past",),
        "retract_leaves_nothing_to_sample": ("results_keep_their_label",),
        "label_follows_success": (),
        "label_tells_the_truth": ("loads_are_whole_but_in_a_pause",),
        "reuse_is_counted": ("provenance_is_complete", "reports_begin_empty"),
        "reports_are_of_one_request": ("provenance_is_complete", "answered_ones_name_nothing", "reports_begin_empty"),
        "answers_claim_no_more_than_is_true": ("provenance_is_complete", "reports_begin_empty"),
        "retraction_freezes_the_count": (),
        "memory_paired": (),
        "only_whole_loads_compute": (
            "label_tells_the_truth",
            "loads_are_whole_but_in_a_pause",
            "nothing_is_left_to_compute",
        ),
        "no_use_of_released_memory": ("flush_point", "loads_are_whole_but_in_a_pause", "nothing_is_left_to_compute"),
        "kv_returns_after_the_bytes": (),
        "requests_name_what_is_loaded": ("answered_ones_name_nothing",),
        "queue_is_limited": (),
        "nobody_is_lost": ("configuration_may_run", "answered_ones_name_nothing"),
        "configuration_may_run": (),
        "cached_only_shared": (),
        "loads_are_whole_but_in_a_pause": (),
        "nothing_is_left_to_compute": (),
        "answered_ones_name_nothing": (),
        "entries_are_apart": ("adapters_are_apart",),
        "results_keep_their_label": (
            "label_tells_the_truth",
            "loads_are_whole_but_in_a_pause",
            "nothing_is_left_to_compute",
        ),
        "stamps_are_past": ("results_keep_their_label",),
        "reports_begin_empty": ("provenance_is_complete",),
        "no_dead_end": ("nothing_is_left_to_compute",),
        BEGINS: (),
        REFINES: (
            "tree_is_fresh",
            "flush_point",
            "kept_kv_is_pure",
            "provenance_is_complete",
            "configuration_may_run",
            "cached_only_shared",
            "nothing_is_left_to_compute",
            "answered_ones_name_nothing",
        ),
    }
)
