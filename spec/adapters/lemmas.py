"""What else is true of every reachable state of the adapter protocol, for the sake of its proof.

First what the coordinator is about to do, then what its books say of engines, then what requests run on. Each lemma
names an obligation that fails without it, and tells in a sentence how.
"""

from __future__ import annotations

from spec.adapters.coordinator import takes_calls
from spec.adapters.state import (
    Adapter,
    Bytes,
    Engine,
    Scenario,
    Slot,
    Stage,
    State,
    adapters,
    free,
    held,
    scenario_of,
    serves,
)
from spec.lang import Bool, Maybe, all_of, any_of, exists, forall
from spec.lang.lemmas import Lemmas

LEMMAS = Lemmas(adapters)
"""Every lemma by its name, and what each claim rests on."""

lemma = LEMMAS.register


# What the coordinator is about to do

LOADING = (Stage.LOAD, Stage.CLEAN_UP)
"""Stages in which engines may have parts of the target."""
TAKING = (Stage.MAKE_ROOM, Stage.EVICT, *LOADING)
"""Stages in which a target is on its way into a slot."""


def booked(s: State, n: Adapter | Maybe[Adapter]) -> Bool:
    """The adapter has a slot, leaked or not."""
    return exists(Slot, lambda i: s.holds[i] == n)


@lemma(
    breaks=("one_slot_each", "register"),
    without="The target has a slot already, and takes another.",
)
def stages_have_what_they_need(s: State) -> Bool:
    """What `stages_have_their_adapters` leaves to say: of the target, the victim and their slots."""
    return all_of(
        (s.stage == Stage.RETIRE).implies(~held(s, s.victim)),
        (s.stage == Stage.CLEAN_UP).implies(s.victim == s.target),
        (s.stage == Stage.COMMIT).implies(held(s, s.job)),
        s.stage.is_in(*LOADING).implies(
            all_of(
                ~booked(s, s.target),
                forall(Slot, lambda i: ~s.leaked[i]),
                exists(Slot, lambda i: free(s, i)),
            )
        ),
    )


@lemma(
    breaks=("stages_have_their_adapters", "point_at"),
    without="The target is no job's and has its slot, and is committed.",
)
def targets_are_wanted(s: State) -> Bool:
    """What is on its way into a slot is the job's, or what a scenario has lost and is not about to replace."""
    lost = exists(Scenario, lambda x: (s.current[x] == s.target) & (scenario_of(s, s.job) != x))
    return s.stage.is_in(*TAKING).implies((s.target == s.job) | (lost & ~held(s, s.target)))


@lemma(
    breaks=("jobs_end_as_current", "commit"),
    without="A job is committed whose adapter is no scenario's.",
)
def jobs_have_a_scenario(s: State) -> Bool:
    """A job's adapter is a revision of some scenario, and is not what that is served with."""
    return forall(Adapter, lambda n: (s.job == n).implies(~s.scenario[n].is_none & ~serves(s, n)))


@lemma(
    breaks=("served_adapters_are_loaded", "rebuild"),
    without="A scenario's requests are admitted while an engine is rebuilt, which has no adapter.",
)
def open_gates_are_booked(s: State) -> Bool:
    """What is admitted has its slot, or nobody knows the books; nothing is admitted during a repair."""
    return forall(
        Scenario,
        lambda x: s.gate[x].implies(
            all_of(
                ~s.stage.is_in(Stage.REBUILD, Stage.RECONCILE),
                ~s.current[x].is_none,
                (s.stage == Stage.DOWN) | held(s, s.current[x]),
            )
        ),
    )


# What the books say


@lemma(
    breaks=("books_within_engines", "all_reconciled"),
    without="A repair ends with an adapter in the books that an engine lacks.",
)
def held_adapters_are_whole(s: State) -> Bool:
    """Of what is in the books an engine has all or nothing, and after a reconciliation every engine has it."""
    return forall(
        Adapter,
        lambda n: held(s, n).implies(
            forall(
                Engine,
                lambda e: (
                    s.bytes[e, n].is_in(Bytes.NONE, Bytes.OWN)
                    & ((s.stage == Stage.RECONCILE) & s.alive[e]).implies(s.bytes[e, n] == Bytes.OWN)
                ),
            )
        ),
    )


@lemma(
    breaks=("engines_within_books", "choose_lost"),
    without="An engine has what is in no slot, for it was the target, and another target is chosen.",
)
def loaded_adapters_are_booked(s: State) -> Bool:
    """But for a repair, and for the target while it is loaded, whatever an engine has is in a slot."""
    return s.stage.is_in(Stage.DOWN, Stage.REBUILD, Stage.RECONCILE, Stage.RETIRE) | forall(
        Engine,
        lambda e: forall(
            Adapter,
            lambda n: any_of(
                s.bytes[e, n] == Bytes.NONE,
                s.stage.is_in(*LOADING) & (s.target == n),
                booked(s, n),
            ),
        ),
    )


@lemma(
    breaks=("protected_adapters_stay", "evict_leaked"),
    without="A scenario gets its own adapter back, which has leaked, and so it is evicted.",
)
def leaked_adapters_serve_nobody(s: State) -> Bool:
    """No request names what has leaked, and while a target is taken care of no scenario is served with it."""
    repaired = s.stage.is_in(Stage.CHOOSE, Stage.COMMIT, *TAKING) | takes_calls(s)
    return forall(
        Slot,
        lambda i: s.leaked[i].implies(
            all_of(
                ~s.stage.is_in(Stage.DOWN, Stage.RECONCILE),
                forall(Engine, lambda e: s.uses[e].is_none | (s.uses[e] != s.holds[i])),
                repaired.implies(forall(Scenario, lambda x: s.current[x].is_none | (s.current[x] != s.holds[i]))),
            )
        ),
    )


# What requests run on


@lemma(
    breaks=("no_stale_hit", "start_on_hit"),
    without="A request names what its engine has other bytes for, and starts on an entry that the right ones made.",
)
def requests_have_their_bytes(s: State) -> Bool:
    """What a request names, its engine has, right and whole, and is not loading."""
    return forall(
        Engine,
        lambda e: forall(
            Adapter,
            lambda n: (s.uses[e] == n).implies(
                (s.bytes[e, n] == Bytes.OWN) & ~(s.stage.is_in(*LOADING) & (s.target == n))
            ),
        ),
    )


@lemma(
    breaks=("no_stale_hit", "start_on_hit"),
    without="An entry under the name in a request was made by other bytes.",
)
def trees_are_pure(s: State) -> Bool:
    """Entries under a name were made by the bytes that it stands for."""
    return forall(Engine, lambda e: forall(Adapter, lambda n: s.made_by[e, n].is_in(Bytes.NONE, Bytes.OWN)))


LEMMAS.rest(
    {
        "no_stale_hit": ("requests_have_their_bytes", "trees_are_pure"),
        "kv_of_one_adapter": ("requests_have_their_bytes", "trees_are_pure"),
        "one_content_per_name": (),
        "names_are_kept": (),
        "requests_run_on_their_adapter": ("requests_have_their_bytes",),
        "requests_find_their_adapter": ("served_adapters_are_loaded",),
        "provenance_is_complete": ("requests_have_their_bytes",),
        "starts_between_pauses": (),
        "nobody_is_lost": (),
        "refusal_is_harmless": (),
        "refused_only_for_want_of_room": (),
        "protected_adapters_stay": (
            "one_slot_each",
            "scenarios_are_served_with_their_own",
            "leaked_adapters_serve_nobody",
        ),
        "needless_ones_go_first": (),
        "resident_targets_move_no_bytes": (),
        "books_within_engines": ("stages_have_their_adapters", "stages_have_what_they_need", "held_adapters_are_whole"),
        "engines_within_books": (
            "lost_engines_have_nothing",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
            "loaded_adapters_are_booked",
        ),
        "one_slot_each": (
            "stages_have_their_adapters",
            "stages_have_what_they_need",
        ),
        "stages_have_their_adapters": ("stages_have_what_they_need", "targets_are_wanted"),
        "lost_engines_have_nothing": (),
        "served_adapters_are_loaded": (
            "protected_adapters_stay",
            "books_within_engines",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
            "open_gates_are_booked",
        ),
        "scenarios_are_served_with_their_own": (),
        "jobs_end_as_current": ("jobs_have_a_scenario",),
        "nothing_is_passed_over": (),
        "admission_closes_for_cause": (),
        "retired_only_for_cause": (
            "stages_have_their_adapters",
            "stages_have_what_they_need",
        ),
        "pauses_are_short": (),
        "stages_have_what_they_need": ("stages_have_their_adapters", "targets_are_wanted"),
        "targets_are_wanted": (
            "stages_have_their_adapters",
            "stages_have_what_they_need",
        ),
        "jobs_have_a_scenario": ("scenarios_are_served_with_their_own",),
        "open_gates_are_booked": (
            "protected_adapters_stay",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
        ),
        "held_adapters_are_whole": (
            "stages_have_their_adapters",
            "stages_have_what_they_need",
        ),
        "loaded_adapters_are_booked": (
            "lost_engines_have_nothing",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
        ),
        "leaked_adapters_serve_nobody": (
            "protected_adapters_stay",
            "one_slot_each",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
            "targets_are_wanted",
            "jobs_have_a_scenario",
            "open_gates_are_booked",
            "requests_have_their_bytes",
        ),
        "requests_have_their_bytes": (
            "served_adapters_are_loaded",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
            "open_gates_are_booked",
            "loaded_adapters_are_booked",
        ),
        "trees_are_pure": ("requests_have_their_bytes",),
        "no_dead_end": (
            "provenance_is_complete",
            "one_slot_each",
            "lost_engines_have_nothing",
            "pauses_are_short",
            "stages_have_their_adapters",
            "stages_have_what_they_need",
            "requests_have_their_bytes",
        ),
    }
)
