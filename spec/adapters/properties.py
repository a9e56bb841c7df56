"""What must be true: of caches and names, of slots and books, of what is served; what can always be reached.

The letters in brackets number the invariants of the reference text. No action reads anything here. There is no state in
which the protocol may rest: somebody can always act.
"""

from __future__ import annotations

from spec.adapters.coordinator import about_to_be_superseded, idle_in_slot
from spec.adapters.state import (
    STANDING,
    Adapter,
    Bytes,
    Engine,
    Request,
    Scenario,
    Slot,
    Stage,
    State,
    adapters,
    free,
    has,
    held,
    leaks,
    needs_repair,
    on_every_engine,
    scenario_of,
    serves,
    to_restore,
)
from spec.lang import Bool, CanReach, all_of, any_of, count, exists, forall, ite, wherever

# Caches and names


@adapters.step_property
def no_stale_hit(s: State, t: State) -> Bool:
    """A request starts on KV that nothing made but what its engine has under the name in it (S1)."""
    return forall(
        Engine,
        lambda e: ((s.request[e] == Request.WAITING) & (t.request[e] == Request.RUNNING)).implies(
            t.kv[e] == t.bytes.get((e, s.uses[e]), Bytes.NONE)
        ),
    )


@adapters.property
def kv_of_one_adapter(s: State) -> Bool:
    """No running request holds KV that another adapter made, though all adapters share one tree (S5)."""
    return forall(Engine, lambda e: s.kv[e].is_in(Bytes.NONE, Bytes.OWN))


@adapters.step_property
def one_content_per_name(s: State, t: State) -> Bool:
    """What an engine has under a name does not become other bytes: a name is never used for two contents (S6)."""
    return forall(
        Engine,
        lambda e: forall(
            Adapter,
            lambda n: (s.bytes[e, n] == Bytes.NONE) | (t.bytes[e, n] == Bytes.NONE) | (t.bytes[e, n] == s.bytes[e, n]),
        ),
    )


@adapters.step_property
def names_are_kept(s: State, t: State) -> Bool:
    """A name is given to the job that publishes it, and stands for that revision of one scenario for ever (S6)."""
    return forall(
        Adapter, lambda n: (t.scenario[n] == s.scenario[n]) | (s.scenario[n].is_none & (t.job == n) & s.job.is_none)
    )


@adapters.property
def requests_run_on_their_adapter(s: State) -> Bool:
    """A request runs on the bytes that the name in it stands for, whole."""
    return forall(Engine, lambda e: (s.request[e] == Request.RUNNING).implies(has(s, e, s.uses[e]) == Bytes.OWN))


@adapters.property
def requests_find_their_adapter(s: State) -> Bool:
    """Whatever an admitted request names, its engine has for as long as the request is there."""
    return forall(Engine, lambda e: (s.request[e] != Request.NONE).implies(has(s, e, s.uses[e]) != Bytes.NONE))


@adapters.property
def provenance_is_complete(s: State) -> Bool:
    """A running request has KV, an entry of the tree has KV, a request names an adapter, and nothing else does."""
    return forall(
        Engine,
        lambda e: all_of(
            (s.request[e] == Request.NONE) == s.uses[e].is_none,
            (s.request[e] == Request.RUNNING) == (s.kv[e] != Bytes.NONE),
            forall(Adapter, lambda n: s.cached[e, n] == (s.made_by[e, n] != Bytes.NONE)),
        ),
    )


# Requests and pauses


@adapters.step_property
def starts_between_pauses(s: State, t: State) -> Bool:
    """No request starts on a paused engine."""
    return s.paused.implies(
        forall(Engine, lambda e: (s.request[e] == Request.RUNNING) | (t.request[e] != Request.RUNNING))
    )


@adapters.step_property
def nobody_is_lost(s: State, t: State) -> Bool:
    """A request that was admitted ends only where it runs and no pause holds it, or with its engine's process (L1)."""
    return forall(
        Engine,
        lambda e: ((s.request[e] != Request.NONE) & (t.request[e] == Request.NONE)).implies(
            ~t.alive[e] | ((s.request[e] == Request.RUNNING) & ~s.paused)
        ),
    )


# Room


def refuses(s: State, t: State) -> Bool:
    """The step finds no room and gives up."""
    return (s.stage == Stage.MAKE_ROOM) & ~t.stage.is_in(
        Stage.MAKE_ROOM, Stage.EVICT, Stage.LOAD, Stage.COMMIT, Stage.DOWN
    )


def nothing_may_go(s: State) -> Bool:
    """No slot is free, and nothing in one may be evicted."""
    return all_of(
        forall(Slot, lambda i: ~free(s, i)),
        ~leaks(s),
        forall(Adapter, lambda n: ~idle_in_slot(s, n) & ~about_to_be_superseded(s, n)),
    )


@adapters.step_property
def refusal_is_harmless(s: State, t: State) -> Bool:
    """Where there is no room, no byte moves, no adapter goes, no engine is retired, and engines generate (P18)."""
    return refuses(s, t).implies(
        all_of(
            t.stage == Stage.IDLE,
            ~t.paused,
            t.job == s.job,
            forall(Slot, lambda i: t.holds[i] == s.holds[i]),
            forall(Scenario, lambda x: t.gate[x] == s.gate[x]),
            forall(
                Engine,
                lambda e: (t.alive[e] == s.alive[e]) & forall(Adapter, lambda n: t.bytes[e, n] == s.bytes[e, n]),
            ),
        )
    )


@adapters.step_property
def refused_only_for_want_of_room(s: State, t: State) -> Bool:
    """A job is refused only where no slot is free or has leaked, and somebody needs whatever is in them (P18)."""
    return refuses(s, t).implies(nothing_may_go(s))


@adapters.property
def protected_adapters_stay(s: State) -> Bool:
    """What another scenario is served with, what is pinned and what a request names is not evicted (P19).

    What has leaked is not there to be pinned. A scenario's own adapter is evicted only for its successor, and while
    none of its requests is admitted.
    """
    return (s.stage == Stage.EVICT).implies(
        all_of(
            s.pinned.is_none | (s.pinned != s.victim) | ~held(s, s.victim),
            forall(Engine, lambda e: s.uses[e].is_none | (s.uses[e] != s.victim)),
            forall(
                Scenario,
                lambda x: (~s.victim.is_none & (s.current[x] == s.victim)).implies(
                    ~s.gate[x] & (s.target == s.job) & (scenario_of(s, s.target) == x)
                ),
            ),
        )
    )


@adapters.step_property
def needless_ones_go_first(s: State, t: State) -> Bool:
    """What has leaked goes before anything else, and what a scenario is served with after everything else."""
    goes = (s.stage == Stage.MAKE_ROOM) & (t.stage == Stage.EVICT)
    gone_is_leaked = exists(Slot, lambda i: s.leaked[i] & (s.holds[i] == t.victim))
    return goes.implies(
        all_of(
            leaks(s) == gone_is_leaked,
            exists(Scenario, lambda x: s.current[x] == t.victim).implies(
                gone_is_leaked | forall(Adapter, lambda n: ~idle_in_slot(s, n))
            ),
            gone_is_leaked | forall(Slot, lambda i: ~free(s, i)),
        )
    )


@adapters.step_property
def resident_targets_move_no_bytes(s: State, t: State) -> Bool:
    """An adapter that still has its slot is only pointed at."""
    return ((s.stage == Stage.MAKE_ROOM) & held(s, s.target)).implies(
        t.stage.is_in(Stage.MAKE_ROOM, Stage.COMMIT, Stage.DOWN)
    )


# Books


@adapters.property
def books_within_engines(s: State) -> Bool:
    """What has a slot, every engine that runs has, right and whole; what leaked or is being evicted aside (P20)."""
    return s.stage.is_in(*STANDING) | forall(
        Adapter,
        lambda n: (held(s, n) & (s.victim != n)).implies(
            forall(Engine, lambda e: ~s.alive[e] | (s.bytes[e, n] == Bytes.OWN))
        ),
    )


@adapters.property
def engines_within_books(s: State) -> Bool:
    """Whatever an engine has, has a slot or is being loaded: the books know how full engines are (P20)."""
    return s.stage.is_in(*STANDING) | forall(
        Engine,
        lambda e: forall(
            Adapter,
            lambda n: (s.bytes[e, n] == Bytes.NONE) | (s.target == n) | exists(Slot, lambda i: s.holds[i] == n),
        ),
    )


@adapters.property
def one_slot_each(s: State) -> Bool:
    """No adapter has two slots, none has one that is taken for good, and only a taken slot leaks."""
    return forall(
        Slot,
        lambda i: all_of(
            s.holds[i].is_none | ~s.reserved[i],
            s.leaked[i].implies(~s.holds[i].is_none),
            forall(Slot, lambda j: (i == j) | s.holds[i].is_none | (s.holds[i] != s.holds[j])),
        ),
    )


@adapters.property
def stages_have_their_adapters(s: State) -> Bool:
    """What is loaded is there while room is made for it, and what is unloaded while it goes; otherwise neither is.

    What is evicted has a slot, what is committed is the job, and a coordinator that rests or repairs has no target.
    """
    return all_of(
        s.stage.is_in(Stage.DOWN, Stage.IDLE, Stage.REBUILD, Stage.RECONCILE).implies(s.target.is_none),
        s.stage.is_in(Stage.MAKE_ROOM, Stage.EVICT, Stage.RETIRE, Stage.LOAD, Stage.CLEAN_UP, Stage.COMMIT).implies(
            ~s.target.is_none
        ),
        s.stage.is_in(Stage.EVICT, Stage.RETIRE, Stage.CLEAN_UP) == ~s.victim.is_none,
        s.stage.is_in(Stage.EVICT, Stage.RETIRE).implies(exists(Slot, lambda i: s.holds[i] == s.victim)),
        (s.stage == Stage.COMMIT).implies(s.target == s.job),
    )


@adapters.property
def lost_engines_have_nothing(s: State) -> Bool:
    """Where there is no process, there is no adapter, no request and no tree."""
    return forall(
        Engine,
        lambda e: (
            s.alive[e]
            | (
                (s.request[e] == Request.NONE)
                & forall(Adapter, lambda n: (s.bytes[e, n] == Bytes.NONE) & ~s.cached[e, n])
            )
        ),
    )


# What is served


@adapters.property
def served_adapters_are_loaded(s: State) -> Bool:
    """Where a scenario's requests are admitted, every engine that runs has its adapter, right and whole (P7)."""
    return forall(
        Scenario,
        lambda x: s.gate[x].implies(
            ~s.current[x].is_none & forall(Engine, lambda e: ~s.alive[e] | (has(s, e, s.current[x]) == Bytes.OWN))
        ),
    )


@adapters.property
def scenarios_are_served_with_their_own(s: State) -> Bool:
    """The current adapter of a scenario is a revision of this scenario."""
    return forall(Scenario, lambda x: s.current[x].is_none | (scenario_of(s, s.current[x]) == x))


@adapters.step_property
def jobs_end_as_current(s: State, t: State) -> Bool:
    """A job ends only as its scenario's current adapter, and an adapter becomes current only as a job."""
    return all_of(
        s.job.is_none | (t.job == s.job) | (t.job.is_none & exists(Scenario, lambda x: t.current[x] == s.job)),
        forall(Scenario, lambda x: (t.current[x] == s.current[x]) | (t.current[x] == s.job)),
    )


@adapters.step_property
def nothing_is_passed_over(s: State, t: State) -> Bool:
    """What a scenario has lost is turned to before the job, and the coordinator rests only where there is neither."""
    lost = exists(Scenario, lambda x: to_restore(s, x))
    turns = (s.stage == Stage.CHOOSE) & ~t.stage.is_in(Stage.CHOOSE, Stage.DOWN)
    return turns.implies(
        ite(lost, exists(Scenario, lambda x: to_restore(s, x) & (t.target == s.current[x])), t.target == s.job)
    )


@adapters.step_property
def admission_closes_for_cause(s: State, t: State) -> Bool:
    """A scenario's admission closes only for a repair, a restart, or an eviction of its own adapter (P18)."""
    return forall(
        Scenario,
        lambda x: any_of(
            ~s.gate[x],
            t.gate[x],
            s.stage == Stage.DOWN,
            needs_repair(s),
            (t.stage == Stage.EVICT) & (t.victim == s.current[x]),
        ),
    )


@adapters.step_property
def retired_only_for_cause(s: State, t: State) -> Bool:
    """Engines are retired only where one of them did not unload what it was told to, and then always (P18)."""
    leaked = exists(Slot, lambda i: t.leaked[i] & (t.holds[i] == t.victim))
    return all_of(
        ((s.stage != Stage.RETIRE) & (t.stage == Stage.RETIRE)).implies((s.stage == Stage.EVICT) & leaked),
        ((s.stage == Stage.EVICT) & (t.stage == Stage.MAKE_ROOM)).implies(
            forall(Engine, lambda e: ~t.alive[e] | (t.bytes.get((e, s.victim), Bytes.NONE) == Bytes.NONE))
        ),
    )


@adapters.property
def pauses_are_short(s: State) -> Bool:
    """Engines are paused only while a load or its end is under way, or where a coordinator died in that."""
    return s.paused.implies(s.stage.is_in(Stage.LOAD, Stage.CLEAN_UP, Stage.COMMIT, Stage.DOWN))


# What can always be reached, without a further fault

LAST_RESORTS = ("restart",)


def wants_a_slot(s: State, x: Scenario) -> Bool:
    """The scenario is served with an adapter, or is about to be."""
    return ~s.current[x].is_none | (scenario_of(s, s.job) == x)


def a_slot_each(s: State) -> Bool:
    """There is a slot for every scenario that wants one."""
    return count(Slot, lambda i: ~s.reserved[i]) >= count(Scenario, lambda x: wants_a_slot(s, x))


def a_slot_to_spare(s: State) -> Bool:
    """There is one more, so that no scenario has to do without while its next adapter is loaded."""
    return count(Slot, lambda i: ~s.reserved[i]) > count(Scenario, lambda x: wants_a_slot(s, x))


def is_served(s: State, x: Scenario) -> Bool:
    """The scenario's requests are admitted, or it never had an adapter."""
    return s.gate[x] | s.current[x].is_none


@adapters.recovery(avoiding=LAST_RESORTS)
def unloads_return(s: State) -> CanReach:
    """An unload that was asked for is answered: no request that it waits for waits for it."""
    return wherever(s.stage.is_in(Stage.EVICT, Stage.CLEAN_UP, Stage.RECONCILE)).can_reach(
        ~s.stage.is_in(Stage.EVICT, Stage.CLEAN_UP, Stage.RECONCILE)
    )


@adapters.recovery()
def publications_complete(s: State) -> CanReach:
    """With a slot for each scenario, a job can become current, once requests have ended and pins are gone (L8)."""
    return wherever(~s.job.is_none & a_slot_each(s)).can_reach(s.job.is_none)


@adapters.recovery(avoiding=["evict_own", *LAST_RESORTS])
def a_spare_slot_avoids_outage(s: State) -> CanReach:
    """With a slot to spare, a job can become current while every scenario is served all the time (L8)."""
    return wherever(
        all_of(
            (s.stage == Stage.IDLE) & ~needs_repair(s),
            ~s.job.is_none,
            a_slot_to_spare(s),
            forall(Scenario, lambda x: is_served(s, x)),
        )
    ).can_reach(s.job.is_none & forall(Scenario, lambda x: is_served(s, x) | (s.current[x] == s.job)))


@adapters.recovery()
def everything_is_repaired(s: State) -> CanReach:
    """With a slot for each: every engine can run, every scenario with an adapter be served, and no job be left."""
    return wherever(a_slot_each(s)).can_reach(
        all_of(
            s.stage == Stage.IDLE,
            s.job.is_none,
            forall(Engine, lambda e: s.alive[e]),
            forall(Scenario, lambda x: is_served(s, x)),
        )
    )


@adapters.recovery(avoiding=["retire"])
def requests_end(s: State) -> CanReach:
    """Every admitted request can be answered, and no engine need be retired for it (L1)."""
    return wherever(exists(Engine, lambda e: s.request[e] != Request.NONE) & (s.stage != Stage.RETIRE)).can_reach(
        forall(Engine, lambda e: s.request[e] == Request.NONE)
    )


# What must happen at all


@adapters.goal
def two_served(s: State) -> Bool:
    """Two engines run requests of different scenarios."""
    return exists(
        Engine,
        lambda e: exists(
            Engine,
            lambda f: all_of(
                s.request[e] == Request.RUNNING,
                s.request[f] == Request.RUNNING,
                ~s.uses[e].is_none,
                scenario_of(s, s.uses[e]) != scenario_of(s, s.uses[f]),
            ),
        ),
    )


@adapters.goal
def reloaded(s: State) -> Bool:
    """An adapter was unloaded and came back, a request for it waits, and entries from before are there to be hit."""
    return exists(
        Engine,
        lambda e: exists(
            Adapter,
            lambda n: all_of(
                s.request[e] == Request.WAITING,
                s.uses[e] == n,
                s.cached[e, n],
                s.bytes[e, n] == Bytes.OWN,
                exists(Adapter, lambda m: s.cached[e, m] & (s.bytes[e, m] == Bytes.NONE)),
            ),
        ),
    )


@adapters.goal
def outlived(s: State) -> Bool:
    """A request still names an adapter that its scenario is no longer served with."""
    return exists(Engine, lambda e: exists(Adapter, lambda n: (s.uses[e] == n) & ~serves(s, n)))


@adapters.goal
def refused(s: State) -> Bool:
    """There is no room: every slot is in use, one of them by a request for what was superseded."""
    return all_of(
        s.stage == Stage.MAKE_ROOM,
        ~held(s, s.target),
        nothing_may_go(s),
    )


@adapters.goal
def out_of_service(s: State) -> Bool:
    """A scenario's own adapter is being evicted, while another scenario is served."""
    return all_of(
        s.stage == Stage.EVICT,
        exists(Scenario, lambda x: ~s.victim.is_none & (s.current[x] == s.victim)),
        exists(Scenario, lambda x: s.gate[x]),
    )


@adapters.goal
def rolled_back(s: State) -> Bool:
    """A scenario goes back to an adapter that still has its slot."""
    return all_of(s.stage == Stage.COMMIT, ~s.paused)


@adapters.goal
def leaked(s: State) -> Bool:
    """Something has leaked, and has to go before a job gets on."""
    return (s.stage == Stage.MAKE_ROOM) & leaks(s)


@adapters.goal
def torn(s: State) -> Bool:
    """A load answered success, and the bytes are nobody's."""
    return (s.stage == Stage.LOAD) & exists(Engine, lambda e: has(s, e, s.target) == Bytes.MIXED)


@adapters.goal
def arrived(s: State) -> Bool:
    """A load has failed, and every engine has the adapter all the same, right and whole."""
    return (s.stage == Stage.CLEAN_UP) & on_every_engine(s, s.victim, Bytes.OWN)


@adapters.goal
def half_replaced(s: State) -> Bool:
    """One engine was replaced, and the other still runs a request for what the new one lacks."""
    return (s.stage == Stage.RECONCILE) & exists(
        Engine, lambda e: (s.request[e] == Request.RUNNING) & exists(Adapter, lambda n: (s.uses[e] == n) & ~held(s, n))
    )


@adapters.goal
def retracted(s: State) -> Bool:
    """A retracted request names an adapter on a paused engine."""
    return s.paused & exists(
        Engine,
        lambda e: (s.request[e] == Request.WAITING) & exists(Adapter, lambda n: (s.uses[e] == n) & s.cached[e, n]),
    )


@adapters.goal
def condemned(s: State) -> Bool:
    """An engine did not unload, and engines are to be retired."""
    return s.stage == Stage.RETIRE


@adapters.goal
def kept(s: State) -> Bool:
    """An adapter is pinned, and another is evicted."""
    return (s.stage == Stage.EVICT) & exists(Adapter, lambda n: (s.pinned == n) & held(s, n))


SHOWN_BY = {
    "no_stale_hit": "reloaded",
    "kv_of_one_adapter": "two_served",
    "one_content_per_name": "reloaded",
    "names_are_kept": "outlived",
    "requests_run_on_their_adapter": "torn",
    "requests_find_their_adapter": "outlived",
    "provenance_is_complete": "retracted",
    "starts_between_pauses": "retracted",
    "nobody_is_lost": "retracted",
    "refusal_is_harmless": "refused",
    "refused_only_for_want_of_room": "refused",
    "protected_adapters_stay": "kept",
    "needless_ones_go_first": "leaked",
    "resident_targets_move_no_bytes": "rolled_back",
    "books_within_engines": "half_replaced",
    "engines_within_books": "arrived",
    "one_slot_each": "two_served",
    "stages_have_their_adapters": "arrived",
    "lost_engines_have_nothing": "half_replaced",
    "served_adapters_are_loaded": "two_served",
    "scenarios_are_served_with_their_own": "two_served",
    "jobs_end_as_current": "rolled_back",
    "nothing_is_passed_over": "half_replaced",
    "admission_closes_for_cause": "out_of_service",
    "retired_only_for_cause": "condemned",
    "pauses_are_short": "retracted",
    "unloads_return": "half_replaced",
    "publications_complete": "refused",
    "a_spare_slot_avoids_outage": "out_of_service",
    "everything_is_repaired": "condemned",
    "requests_end": "retracted",
}
"""The goal that shows, for each property and recovery, that what it speaks of happens."""
