"""Wrong engines and wrong drivers, each with what it breaks and the reports that taught it.

A mutant is the serving protocol with one mistake built in; `breaks` names the property, recovery or eventuality that
must notice. Reports are numbered as in the reference texts: ``C`` rows are public reports on other systems and on
upstream, ``X`` rows what reading SGLang's code foretells, ``M`` and ``H`` the mutations and holes of the reference
text. ``S13``, ``L1`` and the like are invariants whose breach nobody reported yet, ``section 6`` a section of the text
on SGLang.
"""

from __future__ import annotations

from types import MappingProxyType

from spec.lang import Bool, Fair, Protocol, Step, Value, all_of, each, exists, forall, ite, strongly_fair, when
from spec.lang.mutants import Mutants, amend, not_asking, not_writing, only_where
from spec.lang.nodes import walk
from spec.lang.terms import key_sort, lift
from spec.serving.scheduler import can_start, idle, launch, none_is
from spec.serving.state import (
    NO_LOAD,
    Adapter,
    Load,
    Mode,
    Phase,
    Request,
    Stage,
    State,
    first_state,
    on_device,
    paused,
    serving,
)

MUTANTS = Mutants(serving)
"""Every mutant by its name."""

mutant = MUTANTS.register


# Ways to edit


def without(p: Protocol, action: str, phase: Phase) -> None:
    """The action is possible whatever requests there are in the phase: conditions that name it are dropped."""
    old = p.actions[action]
    member = lift(phase, key_sort(Phase))
    p.change_action(action, guard=tuple(part for part in old.guard if member not in walk(part)))


# The flush


def whenever_paused(p: Protocol) -> None:
    """Bytes are sent and the engine continues once it is paused, flushed or not."""

    def update(s: State, again: Bool) -> Step:
        sent = ite(again, s.label, s.label + 1)
        return when(is_paused(s), ~s.weights_out).then(weights=sent, label=sent, complete=True)

    def continue_generation(s: State) -> Step:
        return when(is_paused(s), s.complete, ~s.kv_out).then(stage=Stage.SERVING)

    p.replace_action(update)
    p.replace_action(continue_generation)


def is_paused(s: State) -> Bool:
    """The pause has returned."""
    return s.stage.is_in(Stage.PAUSED, Stage.FLUSHED)


@mutant("no_stale_hit", "M1", "C02", "C42", "C43", "C50", "C53")
def retract_without_flush(p: Protocol) -> None:
    """Retracting requests is taken for invalidating their prefixes: bytes are sent without a flush."""
    whenever_paused(p)


@mutant("no_stale_hit", "C36", "C41")
def flush_is_a_stub(p: Protocol) -> None:
    """A flush answers success and empties nothing."""
    not_writing(p, "flush", "cached", "made_by", "made_with")


@mutant("flush_point", "C09", "C46", "C48", "C49")
def refused_flush_taken_for_done(p: Protocol) -> None:
    """A flush that is refused, because somebody holds KV or waits, counts as a flush."""

    def flush(s: State) -> Step:
        done = all_of(*idle(s, ignore_waiting=paused(s), ignore_grammars=paused(s)))
        return when(s.stage == Stage.PAUSED).then(
            stage=Stage.FLUSHED,
            cached=each(Adapter, lambda a: s.cached[a] & ~done),
            made_by=each(Adapter, Load, lambda a, v: s.made_by[a, v] & ~done),
            made_with=each(Adapter, Adapter, lambda a, b: s.made_with[a, b] & ~done),
        )

    p.replace_action(flush)


@mutant("kept_kv_is_pure", "C08", "C91", "X8")
def update_flushes_afterwards(p: Protocol) -> None:
    """The update is asked to flush when its bytes are there; it is refused, and the load counts as published."""

    whenever_paused(p)

    def update(s: State, again: Bool) -> Step:
        done = all_of(*idle(s, ignore_waiting=paused(s), ignore_grammars=paused(s)))
        return when().then(
            cached=each(Adapter, lambda a: s.cached[a] & ~done),
            made_by=each(Adapter, Load, lambda a, v: s.made_by[a, v] & ~done),
            made_with=each(Adapter, Adapter, lambda a, b: s.made_with[a, b] & ~done),
        )

    amend(p, update)


@mutant("provenance_is_complete", "H4", "C37", "C38", "C39", "C40")
def flush_forgets_a_tier(p: Protocol) -> None:
    """The flush empties the device's tree and leaves another store of what the old weights made."""
    not_writing(p, "flush", "made_by", "made_with")


@mutant("no_stale_hit", "C29", "C30", "C31")
def tier_outlives_the_flush(p: Protocol) -> None:
    """As before, and told by a hit: what another store kept is found under the key of a new entry."""
    flush_forgets_a_tier(p)


@mutant("no_stale_hit", "section 11")
def late_insertion(p: Protocol) -> None:
    """The flush empties the tree and asks for nobody: what still runs enters it afterwards."""

    def flush(s: State) -> Step:
        return when(s.stage == Stage.PAUSED).then(
            stage=Stage.FLUSHED,
            cached=each(Adapter, lambda a: False),
            made_by=each(Adapter, Load, lambda a, v: False),
            made_with=each(Adapter, Adapter, lambda a, b: False),
        )

    p.replace_action(flush)


@mutant("retract_leaves_nothing_to_sample", "C10", "C22")
def pause_leaves_the_result(p: Protocol) -> None:
    """A pause that retracts returns without taking in the result that ran ahead, and the flush does not ask for it."""

    def retract(s: State, r: Request) -> Step:
        return when(s.stage == Stage.PAUSING, s.mode == Mode.RETRACT, s.ahead != r, on_device(s, r)).then(
            phase={r: Phase.WAITING},
            retracted={r: True},
            kv={r: each(Load, lambda v: False)},
            kv_with={r: each(Adapter, lambda a: False)},
            reused={r: False},
        )

    def pause_returns(s: State) -> Step:
        taken = forall(Request, lambda r: ~on_device(s, r) | (s.ahead == r))
        gone = forall(Request, lambda r: (s.phase[r] == Phase.DONE) | s.gone[r])
        return when(s.stage == Stage.PAUSING, (s.mode != Mode.RETRACT) | taken, (s.mode != Mode.ABORT) | gone).then(
            stage=Stage.PAUSED
        )

    p.replace_action(retract)
    p.replace_action(pause_returns)
    late_insertion(p)


@mutant("no_stale_hit", "X5")
def result_enters_the_flushed_tree(p: Protocol) -> None:
    """As before, and told by the tree: the prompt of the result that ran ahead enters it after the flush."""
    pause_leaves_the_result(p)


# The idle test


@mutant("no_kv_pulled_away", "M20", "C08")
def flush_overlooks_the_running_batch(p: Protocol) -> None:
    """The idle test does not ask for the running batch."""
    without(p, "flush", Phase.RUNNING)


@mutant("no_kv_pulled_away", "S4")
def flush_overlooks_the_chunked_request(p: Protocol) -> None:
    """The idle test does not ask for the request between its chunks."""
    without(p, "flush", Phase.PREFILLING)


@mutant("no_kv_pulled_away", "S4")
def flush_overlooks_the_last_batch(p: Protocol) -> None:
    """The idle test does not ask for the last batch, which has not joined the running one."""
    without(p, "flush", Phase.PREFILLED)


@mutant("no_kv_pulled_away", "C10")
def flush_overlooks_the_result(p: Protocol) -> None:
    """The idle test does not ask for the result that ran ahead: its batch still computes."""
    not_asking(p, "flush", "ahead")


@mutant("flush_meets_nobody", "S13")
def flush_overlooks_the_queue(p: Protocol) -> None:
    """The idle test of an engine that is not paused does not ask for the waiting queue."""
    without(p, "flush", Phase.WAITING)


@mutant("flush_meets_nobody", "S13")
def grammars_hidden_in_place(p: Protocol) -> None:
    """The relaxed idle test hides the grammar queue whatever the pause."""
    without(p, "flush", Phase.GRAMMAR)


@mutant("idle_means_idle", "S13")
def health_check_weakened(p: Protocol) -> None:
    """The relaxed idle test answers health checks as well."""

    def tell_idle(s: State) -> Step:
        retracting = paused(s) & (s.mode == Mode.RETRACT)
        return when(*idle(s, ignore_waiting=retracting, ignore_grammars=retracting)).then(told_idle=True)

    p.replace_action(tell_idle)


@mutant("flush_succeeds", "C01")
def flush_waits_for_the_queue(p: Protocol) -> None:
    """The idle test of a paused engine counts requests in the waiting queue, and nobody takes them out of it."""

    def flush(s: State) -> Step:
        return when(none_is(s, Phase.WAITING)).then()

    amend(p, flush)


@mutant("flush_succeeds", "M19", "C12")
def flush_waits_for_grammars(p: Protocol) -> None:
    """The idle test of a paused engine counts requests whose grammar compiles, and nobody looks at them."""

    def flush(s: State) -> Step:
        return when(none_is(s, Phase.GRAMMAR)).then()

    amend(p, flush)


@mutant("flush_succeeds", "X2")
def timed_flush(p: Protocol) -> None:
    """A flush with a time limit first waits until the engine is idle as if it were not paused."""

    def flush(s: State) -> Step:
        return when(*idle(s, ignore_waiting=False, ignore_grammars=False)).then()

    amend(p, flush)


# Pauses


@mutant("in_place_keeps_kv_private", "M23", "C13", "C59", "C64")
def sharing_in_place(p: Protocol) -> None:
    """A tree is shared where a pause freezes requests with their KV."""

    def serving_the_initial_load(mode: Value[Mode], sharing: Bool, offloads: Bool, limited: Bool) -> Step:
        """The engine serves the initial load, and shares its tree under any pause."""
        return when(offloads.implies(mode == Mode.RETRACT), limited.implies(mode != Mode.RETRACT)).then(
            **first_state(mode, sharing, offloads, limited)
        )

    p.replace_initial(serving_the_initial_load)


@mutant("no_stale_hit", "C14", "C56")
def mixed_entries_compound(p: Protocol) -> None:
    """As before, and told by a hit: what two loads made enters the tree, is found, and grows."""
    sharing_in_place(p)


@mutant("retraction_is_orderly", "section 2")
def retract_before_the_drain(p: Protocol) -> None:
    """Requests are taken back while their result runs ahead, and it is thrown away."""
    not_asking(p, "retract", "ahead")


@mutant("pauses_mean_what_they_say", "X4", "C23")
def pause_is_not_looked_at(p: Protocol) -> None:
    """The scheduler's loop never looks whether the engine is paused."""
    not_asking(p, "decode", "stage")


@mutant("batches_change_by_launch", "C15")
def in_place_merges_batches(p: Protocol) -> None:
    """A pause in place merges the last batch into the running one, though the loop will do so again."""

    def pause(s: State) -> Step:
        merges = s.mode == Mode.IN_PLACE
        return when().then(
            phase=each(
                Request,
                lambda r: ite(merges & (s.phase[r] == Phase.PREFILLED), Phase.RUNNING, s.phase[r]),
            )
        )

    amend(p, pause)


@mutant("flush_succeeds", "section 0")
def chunked_request_left_behind(p: Protocol) -> None:
    """A retraction forgets the request between its chunks, which keeps its KV and nobody's attention."""

    def retract(s: State, r: Request) -> Step:
        return when(s.phase[r] != Phase.PREFILLING).then()

    def pause_returns(s: State) -> Step:
        gone = forall(Request, lambda r: (s.phase[r] == Phase.DONE) | s.gone[r])
        drained = s.ahead.is_none & none_is(s, Phase.PREFILLED) & none_is(s, Phase.RUNNING)
        return when(s.stage == Stage.PAUSING, (s.mode != Mode.RETRACT) | drained, (s.mode != Mode.ABORT) | gone).then(
            stage=Stage.PAUSED
        )

    amend(p, retract)
    p.replace_action(pause_returns)


@mutant("no_stale_hit", "X10")
def session_keeps_its_kv(p: Protocol) -> None:
    """A retracted request of a session keeps its KV in the session's slot, which only a flush would empty."""
    not_writing(p, "retract", "kv", "kv_with")
    whenever_paused(p)

    def start(s: State, r: Request, chunked: Bool) -> Step:
        return when().then(kv={r: each(Load, lambda v: s.kv[r, v] | (s.weights == v))})

    amend(p, start)


@mutant("flush_point", "C107")
def late_call_passes_the_gate(p: Protocol) -> None:
    """A call that was on its way in when everything was aborted is admitted after the flush, and runs."""
    not_asking(p, "admit", "stage")


@mutant("publication_is_in_order", "section 2")
def continued_before_it_is_paused(p: Protocol) -> None:
    """A continue overtakes the pause, which was answered when it was sent on."""
    not_asking(p, "continue_generation", "stage")


@mutant("quiet_after_a_pause", "C09", "S4")
def abort_not_awaited(p: Protocol) -> None:
    """A pause that aborts returns when the aborts are sent, and not when their requests are answered."""
    not_asking(p, "pause_returns", "gone")


@mutant("engine_continues", "X6")
def abort_of_a_frozen_engine(p: Protocol) -> None:
    """A pause that aborts finds an engine that is frozen: it waits for requests to end, and nobody computes."""
    for action in ("decode", "prefill_rest", "finish", "take_token", "take_prompt", "take_chunk"):
        only_where(p, action, lambda s: (s.mode != Mode.ABORT) | (s.stage == Stage.SERVING))


@mutant("provenance_is_complete", "C26")
def aborted_chunk_leaks(p: Protocol) -> None:
    """A request that is aborted between its chunks keeps its KV, which is nobody's then."""
    not_writing(p, "abort", "kv", "kv_with")


@mutant("engine_continues", "C105")
def aborted_requests_unanswered(p: Protocol) -> None:
    """A pause that aborts stops the queues, and answers nobody in them."""
    p.remove_action("abort")
    for action in ("compile_grammar", "start", "start_on_hit"):
        only_where(p, action, lambda s: (s.mode != Mode.ABORT) | (s.stage == Stage.SERVING))


@mutant("engine_continues", "C05", "C07")
def flush_demanded_in_place(p: Protocol) -> None:
    """Nothing is sent or continued but after a flush, which requests that were frozen with their KV refuse for ever."""
    for action in ("update", "update_part", "continue_generation"):
        only_where(p, action, lambda s: s.stage == Stage.FLUSHED)


# Stamps and labels


@mutant("stamp_tells_who_sampled", "X5")
def stamped_at_delivery(p: Protocol) -> None:
    """A token is stamped with the label of the moment in which its result is processed."""

    def take_token(s: State, r: Request) -> Step:
        return when().then(stamp={r: s.label})

    amend(p, take_token)


@mutant("stamp_tells_who_sampled", "C93")
def stamped_at_admission(p: Protocol) -> None:
    """All tokens of an answer have the stamp of its first."""

    def take_token(s: State, r: Request) -> Step:
        return when().then(stamp={r: ite(s.stamp[r].is_none, s.ahead_label, s.stamp[r].or_else(NO_LOAD))})

    amend(p, take_token)


@mutant("stamps_grow", "M28", "C95")
def answers_relabelled(p: Protocol) -> None:
    """An update relabels the tokens that were delivered before it."""

    def update(s: State, again: Bool) -> Step:
        sent = ite(again, s.label, s.label + 1)
        return when().then(stamp=each(Request, lambda r: ite(s.stamp[r].is_none, s.stamp[r], sent)))

    amend(p, update)


@mutant("label_follows_success", "M27")
def label_with_the_first_part(p: Protocol) -> None:
    """The label advances with the first part of a load."""

    def update_part(s: State) -> Step:
        return when().then(label=s.label + 1)

    amend(p, update_part)


@mutant("label_tells_the_truth", "C97", "C98", "C99")
def label_is_never_told(p: Protocol) -> None:
    """Bytes are replaced, and nobody tells the label."""
    not_writing(p, "update", "label")


@mutant("label_tells_the_truth", "C101", "H15")
def label_without_bytes(p: Protocol) -> None:
    """The label advances, and no bytes arrive."""
    not_writing(p, "update", "weights")


# Updates


@mutant("only_whole_loads_compute", "X11")
def failed_update_taken_for_done(p: Protocol) -> None:
    """An update fails half way, is rolled back to what failed, and counts as if nothing had happened."""
    not_writing(p, "update_part", "complete")


@mutant("only_whole_loads_compute", "C18", "C78")
def continued_too_soon(p: Protocol) -> None:
    """The engine continues on half a load, or on memory that came back empty."""
    not_asking(p, "continue_generation", "complete")


@mutant("bytes_arrive_in_a_pause", "X12")
def parts_between_requests(p: Protocol) -> None:
    """The parts of a load arrive without a pause, and requests are prefilled between them."""
    not_asking(p, "update_part", "stage")


@mutant("tree_is_fresh", "C21", "C45", "C58", "C60")
def update_without_pause(p: Protocol) -> None:
    """Another way to update has neither pause nor flush."""
    not_asking(p, "update", "stage")


@mutant("engine_is_repaired", "C19", "C20")
def update_waits_for_readers(p: Protocol) -> None:
    """An update of a paused engine takes the lock that every request under way holds."""
    only_where(p, "update", lambda s: forall(Request, lambda r: s.phase[r] == Phase.DONE))


# Reports


@mutant("answers_claim_no_more_than_is_true", "X1")
def count_taken_for_truth(p: Protocol) -> None:
    """An answer does not say that its request was retracted, so that a count of none looks like no reuse."""

    def finish(s: State, r: Request, once_more: Bool) -> Step:
        return when().then(retracted={r: False})

    amend(p, finish)


@mutant("retraction_freezes_the_count", "section 6")
def retraction_thaws_the_count(p: Protocol) -> None:
    """A retracted request counts what it reuses when it starts again, on top of what it counted."""

    def start_on_hit(s: State, r: Request, chunked: Bool) -> Step:
        return when().then(counted={r: True})

    amend(p, start_on_hit)


@mutant("reuse_is_counted", "section 6")
def hits_not_counted(p: Protocol) -> None:
    """A reused prefix is not counted."""
    not_writing(p, "start_on_hit", "counted")


@mutant("reports_are_of_one_request", "section 9")
def report_of_a_predecessor(p: Protocol) -> None:
    """A new request goes on with the stamp of the one before."""
    not_writing(p, "admit", "stamp")


# Memory


@mutant("no_use_of_released_memory", "C51")
def release_before_flush(p: Protocol) -> None:
    """Memory is released without a flush before: the tree points into what is gone."""
    release_when_paused(p)


@mutant("no_stale_hit", "X9")
def tree_over_returned_memory(p: Protocol) -> None:
    """As before, and told by a hit: the memory comes back empty under an entry that is still there."""
    release_when_paused(p)


def release_when_paused(p: Protocol) -> None:
    """A release does not ask for the flush, and neither does what follows."""
    whenever_paused(p)

    def release(s: State, weights_too: Bool) -> Step:
        return when(s.offloads, s.stage == Stage.PAUSED).then(
            weights_out=s.weights_out | weights_too,
            kv_out=True,
            weights=ite(~weights_too, s.weights, NO_LOAD),
            complete=s.complete & ~weights_too,
            made_by=each(Adapter, Load, lambda a, v: s.cached[a] & (v == NO_LOAD)),
        )

    p.replace_action(release)


@mutant("no_kv_pulled_away", "C79", "C80", "C82")
def release_beside_requests(p: Protocol) -> None:
    """Memory is released while requests run on it."""
    not_asking(p, "release", "stage")


@mutant("memory_paired", "M34", "C79")
def resume_what_was_not_released(p: Protocol) -> None:
    """The engine is told to take memory back whether or not it has released it."""
    not_asking(p, "resume_weights", "weights_out")


@mutant("kv_returns_after_the_bytes", "section 8")
def kv_back_before_the_bytes(p: Protocol) -> None:
    """The KV's memory comes back first."""
    not_asking(p, "resume_kv", "complete")


@mutant("engine_is_repaired", "C79", "H26")
def weights_stay_away(p: Protocol) -> None:
    """The weights' memory does not come back: to resume it is taken for an error."""
    p.remove_action("resume_weights")


@mutant("no_use_of_released_memory", "C77")
def update_while_asleep(p: Protocol) -> None:
    """Bytes are written where the weights' memory is released."""
    not_asking(p, "update", "weights_out")


@mutant("only_whole_loads_compute", "C80", "H18")
def continued_on_released_memory(p: Protocol) -> None:
    """The engine continues without its memory."""
    not_asking(p, "continue_generation", "kv_out")


# Adapters


@mutant("adapters_are_apart", "M24", "C69", "C70", "C71")
def key_without_adapter(p: Protocol) -> None:
    """A request finds what any adapter has left under the same prompt."""

    def start_on_hit(s: State, r: Request, chunked: Bool) -> Step:
        return when(can_start(s, r, chunked), exists(Adapter, lambda a: s.cached[a])).then(
            phase={r: ite(chunked, Phase.PREFILLING, Phase.PREFILLED)},
            counted={r: s.counted[r] | ~s.retracted[r]},
            kv={r: each(Load, lambda v: exists(Adapter, lambda a: s.made_by[a, v]) | (s.weights == v))},
            kv_with={r: each(Adapter, lambda a: exists(Adapter, lambda b: s.made_with[b, a]) | (s.adapter[r] == a))},
            reused={r: True},
            **launch(s, r),
        )

    p.replace_action(start_on_hit)


@mutant("name_is_content", "C67", "C72", "C90")
def upsert_under_one_name(p: Protocol) -> None:
    """An adapter's bytes are replaced under the name that it has."""
    not_asking(p, "load_adapter", "loaded")


@mutant("requests_name_what_is_loaded", "C75")
def slot_serves_before_its_bytes(p: Protocol) -> None:
    """A request is admitted for an adapter whose bytes have not arrived."""
    not_asking(p, "admit", "loaded")


# Requests


@mutant("nobody_is_lost", "H11", "X7")
def queue_limit_under_retract(p: Protocol) -> None:
    """Under a pause that retracts, the queue has a limit, and refuses what is retracted."""

    def serving_the_initial_load(mode: Value[Mode], sharing: Bool, offloads: Bool, limited: Bool) -> Step:
        """The engine serves the initial load, with a limited queue under any pause."""
        return when(sharing.implies(mode != Mode.IN_PLACE), offloads.implies(mode == Mode.RETRACT)).then(
            **first_state(mode, sharing, offloads, limited)
        )

    p.replace_initial(serving_the_initial_load)


@mutant("nobody_is_lost", "L1")
def retracted_request_dropped(p: Protocol) -> None:
    """A pause takes requests back and puts them nowhere."""

    def retract(s: State, r: Request) -> Step:
        return when().then(phase={r: Phase.DONE}, adapter={r: None})

    amend(p, retract)


@mutant("queues_keep_work", "M21")
def grammars_lost_in_the_flush(p: Protocol) -> None:
    """The grammar queue is put out of sight for the idle test, and not put back."""

    def flush(s: State) -> Step:
        return when().then(
            phase=each(Request, lambda r: ite(s.phase[r] == Phase.GRAMMAR, Phase.DONE, s.phase[r])),
            adapter=each(Request, lambda r: ite(s.phase[r] != Phase.GRAMMAR, s.adapter[r], None)),
        )

    amend(p, flush)


@mutant("requests_end", "L1")
def grammars_never_polled(p: Protocol) -> None:
    """Nobody looks whether a grammar is compiled."""
    p.remove_action("compile_grammar")


@mutant("one_request_between_chunks", "section 2")
def second_chunked_request(p: Protocol) -> None:
    """A second prompt is cut while another is between its chunks."""
    without(p, "start", Phase.PREFILLING)


@mutant("queue_is_limited", "section 2")
def limit_not_asked(p: Protocol) -> None:
    """A new request is queued however full the queue is."""
    not_asking(p, "admit", "limited")


# What happens in the end: nothing wrong is ever done, and something is never done


@mutant("every_request_is_answered", "L1")
def requests_get_no_whole_turn(p: Protocol) -> None:
    """Pauses come so often that a prompt is sent back after its first chunk, each time."""
    p.remove_assumption("pauses_leave_time")

    @p.assumption
    def prompts_are_begun(s: State, r: Request) -> Fair:
        """Requests are started, and mostly in chunks."""
        return strongly_fair("start")


@mutant("every_pause_ends", "L2")
def driver_leaves_the_engine_paused(p: Protocol) -> None:
    """A driver that is gone after the pause leaves an engine that nobody else may continue."""
    p.remove_assumption("the_driver_continues")


NOT_HERE = MappingProxyType(
    {
        "is about adapters that are unloaded, evicted or kept in slots; here they are loaded, and stay": (
            *("C52", "C68", "C73", "C74", "C76", "C86"),
        ),
        "is about several engines, or about the coordinator's record of them": (
            *("C88", "C89", "C100", "C102", "C103"),
        ),
        "happens between the ranks of one engine, which acts as one here": ("C32", "C104", "X3"),
        "is about prefill and decode engines apart": ("C25", "C84", "C106", "X13"),
        "is about the trainer's side of the memory; here it is released in one step": ("C81", "C83"),
        "is about a process that ends; a refusal here refuses": ("C03",),
        "is about how news of the cache leaves the engine": ("X16",),
        "is right, and a run of this protocol": ("X14", "X15"),
    }
)
"""Reports on protocols that went wrong, and foretold ones, that no mutant here stands for, by the reason."""

UNMISSED = MappingProxyType(
    {
        "nothing ran ahead, or nobody asks what it was: cleared so that states that mean the same are one": (
            *("take_chunk: write 2", "take_chunk: write 3", "take_prompt: write 6", "take_prompt: write 7"),
            *("take_token: write 3", "take_token: write 4", "finish: write 9", "finish: write 12"),
            *("drop_result: write 4", "drop_result: write 5"),
        ),
        "no queue that retracted requests come back to has a limit: kept because the engine asks whoever comes": (
            *("retract: write 2", "retract: write 3", "retract: write 4", "retract: write 5"),
        ),
        "doing it again changes nothing": ("tell_idle: guard 7",),
        "half a load is nothing, and so is what memory holds that is released": ("update_part: guard 2",),
        "the ghost that notices a wrong step: no right one takes KV from under anybody": (
            *("flush: write 5", "flush: write 6", "release: write 5", "release: write 6", "release: write 7"),
        ),
        "the ghost that notices a wrong step: no right one resumes in vain, or gives a name twice": (
            *("resume_weights: write 2", "resume_kv: write 2", "load_adapter: write 2"),
        ),
    }
)
"""Parts of the right protocol that no claim misses in scope `smoke` when they are dropped, by why they stay."""
