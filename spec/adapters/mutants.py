"""Wrong protocols, each with what it breaks and the reports that taught it.

A mutant is the adapter protocol with one mistake built in; `breaks` names the property or recovery that must notice.
Reports are numbered as in `spec.publication.mutants`: ``M1`` to ``M35`` are mutations of the reference text, ``H1`` to
``H26`` holes found by reading upstream code, ``C01`` to ``C107`` public reports on other systems. ``P19``, ``S6`` and
the like are invariants whose breach nobody reported yet, ``section 1.8`` describes upstream code.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from spec.adapters.coordinator import (
    about_to_be_superseded,
    everywhere,
    idle_in_slot,
    is_full,
    takes_calls,
    wants_room,
    without_victim,
)
from spec.adapters.engines import can_start, run_on
from spec.adapters.state import (
    Adapter,
    Bytes,
    Engine,
    Request,
    Scenario,
    Slot,
    Stage,
    State,
    adapters,
    close_gates,
    free,
    has,
    held,
    leaks,
    on_every_engine,
    rest,
    serves,
)
from spec.lang import Bool, Protocol, Step, each, exists, ite, when
from spec.lang.mutants import Mutants, also_writing, not_asking, not_writing

MUTANTS = Mutants(adapters)
"""Every mutant by its name."""

mutant = MUTANTS.register


# Names


def replace_in_place(p: Protocol) -> None:
    """A new revision is sent under the name of the one that is served, over its bytes."""

    @p.action(by="service")
    def begin_upsert(s: State, x: Scenario, n: Adapter) -> Step:
        """A scenario's new revision is to take the name of the old one."""
        return when(takes_calls(s), s.job.is_none, s.current[x] == n, held(s, n)).then(
            job=n, target=n, stage=Stage.LOAD, paused=True
        )

    def load(s: State, e: Engine) -> Step:
        first = has(s, e, s.target) == Bytes.NONE
        return when(
            s.stage == Stage.LOAD, s.alive[e], first | (held(s, s.target) & (has(s, e, s.target) == Bytes.OWN))
        ).then(bytes={(e, s.target): ite(first, Bytes.OWN, Bytes.OTHER)})

    p.replace_action(load)

    @p.action(by="coordinator")
    def all_replaced(s: State) -> Step:
        """Every engine has the new bytes under the old name."""
        return when(s.stage == Stage.LOAD, held(s, s.target), on_every_engine(s, s.target, Bytes.OTHER)).then(
            stage=Stage.COMMIT
        )


@mutant("one_content_per_name", "C90")
def upsert(p: Protocol) -> None:
    """An adapter is replaced under its name: between two engines, or a crash and its repair, the name says nothing."""
    replace_in_place(p)


@mutant("no_stale_hit", "C52", "C67")
def upsert_keeps_prefixes(p: Protocol) -> None:
    """An adapter is replaced under its name, and the prefixes that its old bytes made are there under the same key."""
    replace_in_place(p)


@mutant("requests_run_on_their_adapter", "C72")
def torn_upsert_serves_on(p: Protocol) -> None:
    """A replacement in place fails in the middle, there is no copy to go back to, and the adapter serves on."""

    @p.fault(by="e", on="e")
    def upsert_tears(s: State, e: Engine, x: Scenario, n: Adapter) -> Step:
        """A replacement under the name of what is served has failed half way."""
        return when(takes_calls(s), s.current[x] == n, s.bytes[e, n] == Bytes.OWN).then(bytes={(e, n): Bytes.MIXED})


@mutant("no_stale_hit", "C68")
def reload_reads_the_newest(p: Protocol) -> None:
    """An adapter that comes back is read from a path where newer bytes lie, and what its old bytes made is reused."""

    def load(s: State, e: Engine) -> Step:
        was_there = exists(Engine, lambda f: exists(Adapter, lambda n: (s.target == n) & s.cached[f, n]))
        return when(s.stage == Stage.LOAD, s.alive[e], has(s, e, s.target) == Bytes.NONE).then(
            bytes={(e, s.target): ite(was_there, Bytes.OTHER, Bytes.OWN)}
        )

    p.replace_action(load)
    verify_names_only(p)


@mutant("names_are_kept", "S6")
def names_are_used_again(p: Protocol) -> None:
    """Once an adapter is unloaded, its name is free for another revision."""

    def begin_publish(s: State, x: Scenario, n: Adapter) -> Step:
        return when(takes_calls(s), s.job.is_none, ~serves(s, n), ~held(s, n)).then(
            scenario={n: x}, job=n, stage=Stage.CHOOSE
        )

    p.replace_action(begin_publish)


@mutant("scenarios_are_served_with_their_own", "section 1.8")
def names_without_their_scenario(p: Protocol) -> None:
    """A name is made of the revision alone: two scenarios come to have adapters of one name."""
    not_asking(p, "begin_publish", "scenario")


# Keys


@mutant("kv_of_one_adapter", "C69", "C71")
def key_without_adapter(p: Protocol) -> None:
    """The key of a prefix does not name the adapter: a request finds what another adapter made."""

    def start_on_hit(s: State, e: Engine, n: Adapter, m: Adapter) -> Step:
        found = ite(m == n, s.made_by[e, m], Bytes.OTHER)
        return when(can_start(s, e, n), s.cached[e, m]).then(
            **{**run_on(s, e, n, n), "kv": {e: ite(found == s.bytes[e, n], found, Bytes.MIXED)}}
        )

    p.replace_action(start_on_hit)


@mutant("no_stale_hit", "C70")
def another_store_without_adapter(p: Protocol) -> None:
    """What a request adds to the tree, a store behind it gives back under every adapter's key."""

    def start(s: State, e: Engine, n: Adapter) -> Step:
        return when(can_start(s, e, n)).then(
            **{
                **run_on(s, e, n, n),
                "kv": {e: s.bytes[e, n]},
                "cached": {e: each(Adapter, lambda m: True)},
                "made_by": {
                    e: each(
                        Adapter,
                        lambda m: ite((m == n) & (s.made_by[e, m] == Bytes.NONE), s.bytes[e, n], Bytes.MIXED),
                    )
                },
            }
        )

    p.replace_action(start)


# Requests and pauses


@mutant("starts_between_pauses", "C18")
def pause_overlooked(p: Protocol) -> None:
    """A request starts on an engine that is paused, and runs on while bytes arrive."""
    not_asking(p, "start", "paused")


@mutant("nobody_is_lost", "L1")
def retracted_request_dropped(p: Protocol) -> None:
    """A pause takes a request back and puts it nowhere."""

    def retract(s: State, e: Engine) -> Step:
        return when(s.request[e] == Request.RUNNING, s.paused).then(
            request={e: Request.NONE}, uses={e: None}, kv={e: Bytes.NONE}
        )

    p.replace_action(retract)


# Room


@mutant("refusal_is_harmless", "M29")
def refusal_aborts(p: Protocol) -> None:
    """That there is no room is taken for a failure of engines: they are retired, with everything that others use."""
    also_writing(p, "refuse", lambda s: {"stage": Stage.RETIRE})


@mutant("requests_end", "H3")
def refusal_leaves_engines_paused(p: Protocol) -> None:
    """Engines pause before room is made, and stay paused where there is none: what holds the room never ends."""
    also_writing(p, "choose_job", lambda s: {"paused": True})
    not_writing(p, "refuse", "paused")


@mutant("engines_within_books", "H3")
def retry_forgets_living_engines(p: Protocol) -> None:
    """A retry takes engines for new ones, and forgets adapters that they still have."""
    also_writing(p, "begin_retry", lambda s: {"holds": each(Slot, lambda i: None)})


@mutant("served_adapters_are_loaded", "H23")
def refusal_in_repair_taken_for_harmless(p: Protocol) -> None:
    """There was no room for an adapter that a repair should bring back: health is good, and requests are admitted."""
    not_asking(p, "open_gate", "holds")


@mutant("retired_only_for_cause", "M30")
def failed_eviction_goes_on(p: Protocol) -> None:
    """An engine that did not unload is left as it is, and the slot is taken for free."""

    def eviction_fails(s: State, e: Engine, gone: Bool) -> Step:
        return when(s.stage == Stage.EVICT, s.alive[e], has(s, e, s.victim) != Bytes.NONE).then(
            bytes={(e, s.victim): ite(gone, Bytes.NONE, has(s, e, s.victim))},
            **without_victim(s),
            stage=Stage.MAKE_ROOM,
        )

    p.replace_action(eviction_fails)


@mutant("publications_complete", "C86")
def wedged_engine_looks_full(p: Protocol) -> None:
    """A slot that leaked stays taken, also when its engine was replaced, until everything looks full for ever."""
    p.remove_action("evict_leaked")

    @p.action(by="coordinator")
    def refuse_for_leaks(s: State) -> Step:
        """Slots that leaked count as used: there is no room."""
        return when(wants_room(s), leaks(s)).then(**rest(s))

    not_writing(p, "reconcile", "leaked")
    also_writing(
        p,
        "reconcile",
        lambda s: {"holds": each(Slot, lambda i: ite(s.leaked[i] | everywhere(s, s.holds[i]), s.holds[i], None))},
    )


@mutant("refused_only_for_want_of_room", "C86")
def leaks_taken_for_use(p: Protocol) -> None:
    """A slot that leaked counts as one that somebody needs: the job is refused, and nobody frees the slot."""
    not_asking(p, "refuse", "leaked")


@mutant("unloads_return", "C73", "C74")
def room_made_under_a_pause(p: Protocol) -> None:
    """Engines pause first, and an unload waits for requests that the pause froze, or sent back to the queue."""
    also_writing(p, "choose_job", lambda s: {"paused": True})
    evict_whatever(p, lambda s, n: held(s, n) & ~serves(s, n) & (s.pinned != n))


def evict_whatever(p: Protocol, may_go: Callable[[State, Adapter], Bool]) -> None:
    """Another idea of what may be evicted."""

    def evict(s: State, n: Adapter) -> Step:
        return when(wants_room(s), ~leaks(s), is_full(s), may_go(s, n)).then(victim=n, stage=Stage.EVICT)

    p.replace_action(evict)


@mutant("protected_adapters_stay", "C76")
def waiting_requests_overlooked(p: Protocol) -> None:
    """The pause for one adapter covers the requests that run on it, and not those that wait for it."""

    def running(s: State, n: Adapter) -> Bool:
        return exists(Engine, lambda e: (s.uses[e] == n) & (s.request[e] == Request.RUNNING))

    evict_whatever(p, lambda s, n: held(s, n) & ~serves(s, n) & (s.pinned != n) & ~running(s, n))


@mutant("protected_adapters_stay", "P19")
def pins_overlooked(p: Protocol) -> None:
    """What somebody may go back to is evicted."""
    evict_whatever(p, lambda s, n: held(s, n) & ~serves(s, n) & ~exists(Engine, lambda e: s.uses[e] == n))


@mutant("protected_adapters_stay", "P19")
def others_evicted(p: Protocol) -> None:
    """The oldest adapter is evicted, whomever it serves."""
    evict_whatever(p, lambda s, n: held(s, n) & ~exists(Engine, lambda e: s.uses[e] == n) & (s.pinned != n))


@mutant("protected_adapters_stay", "P19")
def own_evicted_while_admitted(p: Protocol) -> None:
    """A scenario's adapter is evicted for its successor while requests for it are admitted."""
    not_writing(p, "evict_own", "gate")


@mutant("needless_ones_go_first", "section 1.8")
def own_evicted_first(p: Protocol) -> None:
    """A scenario's adapter goes for its successor though another has no use."""

    def evict_own(s: State, x: Scenario, n: Adapter) -> Step:
        return when(wants_room(s), ~leaks(s), is_full(s), s.current[x] == n, about_to_be_superseded(s, n)).then(
            victim=n, stage=Stage.EVICT, gate={x: False}
        )

    p.replace_action(evict_own)


@mutant("needless_ones_go_first", "section 1.8")
def leaks_go_last(p: Protocol) -> None:
    """What has leaked keeps its slot while there is anything else to evict."""

    def evict(s: State, n: Adapter) -> Step:
        return when(wants_room(s), is_full(s), idle_in_slot(s, n)).then(victim=n, stage=Stage.EVICT)

    p.replace_action(evict)


@mutant("a_spare_slot_avoids_outage", "section 1.8")
def superseded_ones_stay(p: Protocol) -> None:
    """What was superseded keeps its slot: there is never a spare one, and every publication is an outage."""
    p.remove_action("evict")


@mutant("requests_find_their_adapter", "P19")
def unload_does_not_wait(p: Protocol) -> None:
    """An engine unloads a stray adapter under a request that still names it."""
    not_asking(p, "unload_stray", "uses")


# Loads


@mutant("requests_run_on_their_adapter", "C75")
def slot_opened_before_its_bytes(p: Protocol) -> None:
    """A name is registered in a slot before its bytes are there: it serves what was in the slot before."""

    def load(s: State, e: Engine) -> Step:
        return when(s.stage == Stage.LOAD, s.alive[e], has(s, e, s.target) == Bytes.NONE).then(
            bytes={(e, s.target): Bytes.OTHER}
        )

    p.replace_action(load)

    @p.action(by="e", on="e")
    def bytes_arrive(s: State, e: Engine, n: Adapter) -> Step:
        """The bytes of a name that was registered before them are there."""
        return when(s.bytes[e, n] == Bytes.OTHER).then(bytes={(e, n): Bytes.OWN})

    verify_names_only(p)


def register_where(p: Protocol, loaded: Callable[[State], Bool], takes: Callable[[State, Slot], Bool] = free) -> None:
    """Another idea of when an adapter gets a slot, and which."""

    def register(s: State, i: Slot) -> Step:
        return when(s.stage == Stage.LOAD, loaded(s), takes(s, i)).then(
            holds={i: s.target},
            stage=ite(s.target == s.job, Stage.COMMIT, Stage.CHOOSE),
            paused=s.target == s.job,
        )

    p.replace_action(register)


def verify_names_only(p: Protocol) -> None:
    """A load is taken for good when every engine says that it has the name."""
    register_where(p, lambda s: everywhere(s, s.target))


@mutant("served_adapters_are_loaded", "P7")
def names_verified_not_bytes(p: Protocol) -> None:
    """A load that answers success is believed: what it tore is served."""
    verify_names_only(p)


@mutant("books_within_engines", "P20")
def some_engine_is_enough(p: Protocol) -> None:
    """An adapter gets its slot when the first engine has it."""
    register_where(p, lambda s: exists(Engine, lambda e: has(s, e, s.target) == Bytes.OWN))


@mutant("engines_within_books", "section 1.8")
def failed_load_left_behind(p: Protocol) -> None:
    """After a load has failed on one engine, the others keep what they have of it, and no slot says so."""
    for action in ("find_dead", "find_mismatch"):
        also_writing(p, action, rest)

    def load_fails(s: State, e: Engine, arrived: Bool) -> Step:
        return when(s.stage == Stage.LOAD, s.alive[e], has(s, e, s.target) == Bytes.NONE).then(
            bytes={(e, s.target): ite(arrived, Bytes.OWN, Bytes.NONE)}, **rest(s)
        )

    p.replace_action(load_fails)


@mutant("resident_targets_move_no_bytes", "section 1.8")
def rollback_sends_again(p: Protocol) -> None:
    """Going back to an adapter that still has its slot makes room for it and loads it once more."""
    p.remove_action("point_at")
    for action in ("evict", "begin_load"):
        not_asking(p, action, "target")


@mutant("one_slot_each", "section 1.8")
def reserved_slot_given_away(p: Protocol) -> None:
    """A slot that engines took when they were started counts as free."""

    def begin_load(s: State) -> Step:
        return when(wants_room(s), ~leaks(s), exists(Slot, lambda i: s.holds[i].is_none)).then(
            stage=Stage.LOAD, paused=True
        )

    p.replace_action(begin_load)
    register_where(p, lambda s: on_every_engine(s, s.target, Bytes.OWN), lambda s, i: s.holds[i].is_none)


# The end of a job


@mutant("stages_have_their_adapters", "C86")
def failed_load_stays_the_target(p: Protocol) -> None:
    """After a load has failed, the books go on saying that its adapter is being loaded."""
    not_writing(p, "all_cleaned", "target")


@mutant("jobs_end_as_current", "H20")
def restart_leaves_the_record(p: Protocol) -> None:
    """A restart finds the job's adapter on every engine: it is published, and nothing records what is current."""

    def restart(s: State) -> Step:
        published = ~s.job.is_none & everywhere(s, s.job)
        return when(s.stage == Stage.DOWN).then(
            stage=Stage.REBUILD, paused=False, job=ite(~published, s.job, None), **close_gates()
        )

    p.replace_action(restart)


# Repair


@mutant("books_within_engines", "C86", "P20")
def not_reconciled(p: Protocol) -> None:
    """After engines were replaced, the books say what the lost ones had."""
    not_writing(p, "reconcile", "holds", "leaked")


@mutant("everything_is_repaired", "section 2.4")
def lost_adapters_not_restored(p: Protocol) -> None:
    """A repair replaces engines, and brings back no adapter but the job's."""
    p.remove_action("choose_lost")
    for action in ("choose_job", "choose_nothing"):
        not_asking(p, action, "holds")


@mutant("nothing_is_passed_over", "section 2.4")
def job_before_the_lost(p: Protocol) -> None:
    """A repair loads the job's adapter first, and what a scenario is served with has to wait, or finds no room."""
    not_asking(p, "choose_job", "holds")


@mutant("admission_closes_for_cause", "H3")
def retry_is_a_repair(p: Protocol) -> None:
    """A retry takes engines for new ones, and every scenario out of service until they are looked at."""
    also_writing(p, "begin_retry", lambda s: {"stage": Stage.REBUILD, **close_gates()})


@mutant("lost_engines_have_nothing", "section 6")
def retired_in_name_only(p: Protocol) -> None:
    """Engines are retired, and what they had is taken for what their successors have."""
    not_writing(p, "retire", "bytes")


@mutant("pauses_are_short", "C74")
def restart_stays_paused(p: Protocol) -> None:
    """A new coordinator leaves engines paused, and unloads what their frozen requests name."""
    not_writing(p, "restart", "paused")


@mutant("provenance_is_complete", "P19")
def lease_outlives_its_request(p: Protocol) -> None:
    """A request is answered, and goes on protecting its adapter."""
    not_writing(p, "finish", "uses")


UNMISSED = MappingProxyType(
    {
        "doing it again changes nothing": (
            *("rebuild: guard 2", "unload_stray: guard 3", "evict_own: guard 1", "open_gate: guard 1"),
            *("unpin: guard 1", "start: guard 1", "start_on_hit: guard 1", "unload: guard 2"),
            *("die: guard 1", "crash: guard 1"),
        ),
        "`begin_retry` takes up all the same what was not begun": ("begin_publish: write 3", "begin_rollback: write 2"),
        "without need, and ends where it began": ("begin_rollback: guard 5", "begin_retry: guard 3"),
        "what one repair has left dead, another replaces": ("reconcile: guard 2",),
        "giving up without need is what `load_fails` does": (
            *("find_dead: guard 2", "find_mismatch: guard 2", "find_mismatch: guard 3"),
        ),
        "an engine that is lost has nothing to unload: kept because nobody can ask it": (
            *("unload_stray: guard 2", "unload: guard 1", "eviction_fails: guard 2", "cleaning_fails: guard 2"),
        ),
        "an unload that was done, and whose answer is lost, is taken for one that failed": (
            *("eviction_fails: guard 3", "cleaning_fails: guard 3"),
        ),
        "nothing is unloaded that a request names: kept because an engine waits whoever asks": ("unload: guard 3",),
        "clear already where it comes from here, and written alike by everything that ends in rest": (
            *("choose_nothing: write 3", "choose_nothing: write 4", "refuse: write 3", "refuse: write 4"),
            *("retire: write 11", "commit: write 5"),
        ),
        "upstream pauses engines, though a name that nothing had is loaded beside requests without harm": (
            "begin_load: write 2",
        ),
        "`unpin` and `pin` do it in two steps": ("pin: guard 1",),
        "what is not there is not kept, and what is served keeps only its successor waiting, until `unpin`": (
            *("pin: guard 2", "pin: guard 3"),
        ),
        "a pin that outlives the coordinator keeps more, until `unpin`": ("crash: write 2",),
        "without an entry it does what `start` does": ("start_on_hit: guard 4",),
        "a hit finds the entry that it would make: kept because a prompt enters the tree however it starts": (
            *("start_on_hit: write 3", "start_on_hit: write 4"),
        ),
        "engines retract for want of memory as well, and no claim minds": ("retract: guard 2",),
        "with gates, books and stages right, the other conditions say so": (
            *("admit: guard 4", "evict_leaked: guard 2", "evict_own: guard 7", "evict_own: guard 9"),
        ),
        "makes a difference with a third slot, which scope `pr` has": ("begin_load: guard 2",),
    }
)
"""Parts of the right protocol that no claim misses in scope `smoke` when they are dropped, by why they stay."""
