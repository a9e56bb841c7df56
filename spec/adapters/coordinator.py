"""The coordinator: makes room, loads under a name that nothing had, makes it current; repairs what was lost.

Room is made while engines generate: an unload waits for requests that name its adapter, and none ends under a pause.
"""

from __future__ import annotations

from spec.adapters.state import (
    Adapter,
    Bytes,
    Engine,
    Scenario,
    Slot,
    Stage,
    State,
    adapters,
    close_gates,
    free,
    has,
    held,
    in_flight,
    leaks,
    needs_repair,
    on_every_engine,
    rest,
    scenario_of,
    serves,
    to_restore,
    vacate_all,
)
from spec.lang import Bool, Maybe, Step, all_of, each, exists, forall, ite, when

# Calls


def takes_calls(s: State) -> Bool:
    """The coordinator has nothing to do, and nothing has to be repaired first."""
    return (s.stage == Stage.IDLE) & ~needs_repair(s)


@adapters.action(by="service")
def begin_publish(s: State, x: Scenario, n: Adapter) -> Step:
    """A scenario has a new revision, under a name that nothing ever had."""
    return when(takes_calls(s), s.job.is_none, s.scenario[n].is_none).then(scenario={n: x}, job=n, stage=Stage.CHOOSE)


@adapters.action(by="service")
def begin_rollback(s: State, n: Adapter) -> Step:
    """A scenario goes back to a revision that it was served with before."""
    return when(takes_calls(s), s.job.is_none, ~s.scenario[n].is_none, ~serves(s, n)).then(job=n, stage=Stage.CHOOSE)


@adapters.action(by="service")
def begin_retry(s: State) -> Step:
    """A publication that was refused or failed is tried again; where no engine was lost, the books are still right."""
    return when(takes_calls(s), ~s.job.is_none).then(stage=Stage.CHOOSE)


@adapters.action(by="service")
def begin_repair(s: State) -> Step:
    """Engines were lost, or adapters: admission closes until everything is back."""
    return when(s.stage == Stage.IDLE, needs_repair(s)).then(stage=Stage.REBUILD, **close_gates())


@adapters.action(by="supervisor")
def restart(s: State) -> Step:
    """A new coordinator knows the record and no more. Engines continue, so that no request waits for the books."""
    return when(s.stage == Stage.DOWN).then(stage=Stage.REBUILD, paused=False, **close_gates())


# Repair


@adapters.action(by="coordinator", on="e")
def rebuild(s: State, e: Engine) -> Step:
    """A new process takes the place of a lost one. It has no adapter."""
    return when(s.stage == Stage.REBUILD, ~s.alive[e]).then(alive={e: True})


def everywhere(s: State, n: Maybe[Adapter]) -> Bool:
    """Every engine says that it has the name."""
    return forall(Engine, lambda e: has(s, e, n) != Bytes.NONE)


@adapters.action(by="coordinator")
def reconcile(s: State) -> Step:
    """Every engine says what it has: what some engine lacks, or what leaked, leaves the books."""
    return when(s.stage == Stage.REBUILD, forall(Engine, lambda e: s.alive[e])).then(
        holds=each(Slot, lambda i: ite(~s.leaked[i] & everywhere(s, s.holds[i]), s.holds[i], None)),
        leaked=each(Slot, lambda i: False),
        stage=Stage.RECONCILE,
    )


def stray(s: State, e: Engine, n: Adapter) -> Bool:
    """An engine has an adapter that the books do not know."""
    return (s.bytes[e, n] != Bytes.NONE) & ~held(s, n)


@adapters.action(by="coordinator", on="e")
def unload_stray(s: State, e: Engine, n: Adapter) -> Step:
    """An engine unloads what the books do not know, once no request names it."""
    return when(s.stage == Stage.RECONCILE, s.alive[e], stray(s, e, n), s.uses[e] != n).then(bytes={(e, n): Bytes.NONE})


@adapters.action(by="coordinator")
def all_reconciled(s: State) -> Step:
    """No engine has anything that the books do not know."""
    return when(
        s.stage == Stage.RECONCILE,
        forall(Engine, lambda e: forall(Adapter, lambda n: ~stray(s, e, n))),
    ).then(stage=Stage.CHOOSE)


# What to load


@adapters.action(by="coordinator")
def choose_lost(s: State, x: Scenario) -> Step:
    """A scenario that lost its adapter gets it back, before the job is looked at."""
    return when(s.stage == Stage.CHOOSE, to_restore(s, x)).then(target=s.current[x], stage=Stage.MAKE_ROOM)


def nothing_lost(s: State) -> Bool:
    """Every scenario has its adapter, or will have another."""
    return forall(Scenario, lambda x: ~to_restore(s, x))


@adapters.action(by="coordinator")
def choose_job(s: State) -> Step:
    """The job's adapter is next."""
    return when(s.stage == Stage.CHOOSE, nothing_lost(s), ~s.job.is_none).then(target=s.job, stage=Stage.MAKE_ROOM)


@adapters.action(by="coordinator")
def choose_nothing(s: State) -> Step:
    """Nothing is lost, and there is no job."""
    return when(s.stage == Stage.CHOOSE, nothing_lost(s), s.job.is_none).then(**rest(s))


# Room


def wants_room(s: State) -> Bool:
    """The target needs a slot: it has none, or has leaked."""
    return (s.stage == Stage.MAKE_ROOM) & ~held(s, s.target)


def is_full(s: State) -> Bool:
    """No slot is free."""
    return forall(Slot, lambda i: ~free(s, i))


def spared(s: State, n: Adapter) -> Bool:
    """Somebody uses the adapter, or may go back to it."""
    return in_flight(s, n) | (s.pinned == n)


def idle_in_slot(s: State, n: Adapter) -> Bool:
    """The adapter has a slot, and nothing and nobody needs it."""
    return all_of(held(s, n), ~serves(s, n), ~spared(s, n))


def about_to_be_superseded(s: State, n: Adapter) -> Bool:
    """The adapter serves the scenario of the job that is being loaded, and no request names it."""
    return all_of(
        held(s, n),
        ~spared(s, n),
        s.target == s.job,
        exists(Scenario, lambda x: (s.current[x] == n) & (scenario_of(s, s.target) == x)),
    )


@adapters.action(by="coordinator")
def point_at(s: State) -> Step:
    """The target still has its slot: no byte moves."""
    return when(s.stage == Stage.MAKE_ROOM, held(s, s.target)).then(stage=Stage.COMMIT)


@adapters.action(by="coordinator")
def evict_leaked(s: State, n: Adapter) -> Step:
    """What has leaked goes first."""
    return when(wants_room(s), exists(Slot, lambda i: (s.holds[i] == n) & s.leaked[i])).then(
        victim=n, stage=Stage.EVICT
    )


@adapters.action(by="coordinator")
def evict(s: State, n: Adapter) -> Step:
    """Then some adapter that nobody needs; the oldest one upstream, any one here."""
    return when(wants_room(s), ~leaks(s), is_full(s), idle_in_slot(s, n)).then(victim=n, stage=Stage.EVICT)


@adapters.action(by="coordinator")
def evict_own(s: State, x: Scenario, n: Adapter) -> Step:
    """Last, the adapter that is to be superseded: its scenario is not served until the new one is there."""
    return when(
        wants_room(s),
        ~leaks(s),
        is_full(s),
        forall(Adapter, lambda m: ~idle_in_slot(s, m)),
        s.current[x] == n,
        about_to_be_superseded(s, n),
    ).then(victim=n, stage=Stage.EVICT, gate={x: False})


@adapters.action(by="coordinator")
def refuse(s: State) -> Step:
    """Every slot is in legitimate use: nothing changes, and the job waits to be tried again."""
    return when(
        wants_room(s),
        ~leaks(s),
        is_full(s),
        forall(Adapter, lambda m: ~idle_in_slot(s, m) & ~about_to_be_superseded(s, m)),
    ).then(**rest(s))


def unloaded_everywhere(s: State) -> Bool:
    """No engine that runs has the victim."""
    return forall(Engine, lambda e: ~s.alive[e] | (has(s, e, s.victim) == Bytes.NONE))


def without_victim(s: State) -> dict[str, object]:
    """The victim's slot is free."""
    return {
        "holds": each(Slot, lambda i: ite(s.holds[i] != s.victim, s.holds[i], None)),
        "leaked": each(Slot, lambda i: s.leaked[i] & (s.holds[i] != s.victim)),
        "victim": None,
    }


@adapters.action(by="coordinator")
def all_evicted(s: State) -> Step:
    """Every engine has unloaded the victim: its slot is free."""
    return when(s.stage == Stage.EVICT, unloaded_everywhere(s)).then(**without_victim(s), stage=Stage.MAKE_ROOM)


@adapters.action(by="coordinator")
def retire(s: State) -> Step:
    """An engine that did not unload must be replaced: every process is shut down."""
    return when(s.stage == Stage.RETIRE).then(**vacate_all(), **rest(s))


# Bytes


@adapters.action(by="coordinator")
def begin_load(s: State) -> Step:
    """There is a slot: engines pause, to receive the bytes."""
    return when(wants_room(s), ~leaks(s), ~is_full(s)).then(stage=Stage.LOAD, paused=True)


@adapters.action(by="coordinator", on="e")
def load(s: State, e: Engine) -> Step:
    """An engine receives the adapter, under its name."""
    return when(s.stage == Stage.LOAD, s.alive[e], has(s, e, s.target) == Bytes.NONE).then(
        bytes={(e, s.target): Bytes.OWN}
    )


@adapters.action(by="coordinator")
def register(s: State, i: Slot) -> Step:
    """Every engine has the adapter, and its checksum is right: it takes a slot."""
    return when(s.stage == Stage.LOAD, on_every_engine(s, s.target, Bytes.OWN), free(s, i)).then(
        holds={i: s.target},
        stage=ite(s.target == s.job, Stage.COMMIT, Stage.CHOOSE),
        paused=s.target == s.job,
    )


def clean_up(s: State) -> dict[str, object]:
    """The load has failed: what engines have of it is unloaded again."""
    return {"stage": Stage.CLEAN_UP, "victim": s.target}


@adapters.action(by="coordinator")
def find_dead(s: State) -> Step:
    """An engine was lost during the load."""
    return when(s.stage == Stage.LOAD, exists(Engine, lambda e: ~s.alive[e])).then(**clean_up(s))


@adapters.action(by="coordinator")
def find_mismatch(s: State) -> Step:
    """Every engine has answered, and some checksum is wrong."""
    return when(s.stage == Stage.LOAD, everywhere(s, s.target), ~on_every_engine(s, s.target, Bytes.OWN)).then(
        **clean_up(s)
    )


@adapters.action(by="coordinator")
def all_cleaned(s: State) -> Step:
    """No engine has anything of the load: no slot was taken, and the job waits to be tried again."""
    return when(s.stage == Stage.CLEAN_UP, unloaded_everywhere(s)).then(**rest(s))


@adapters.action(by="coordinator", on="record")
def commit(s: State) -> Step:
    """Durable: the job's adapter is its scenario's current one. Engines continue."""
    return when(s.stage == Stage.COMMIT).then(
        current=each(Scenario, lambda x: ite(scenario_of(s, s.job) == x, s.job, s.current[x])), job=None, **rest(s)
    )


# The service


@adapters.action(by="service")
def open_gate(s: State, x: Scenario) -> Step:
    """The service admits a scenario's requests when its adapter is in the books, and stays there."""
    return when(
        ~s.gate[x],
        ~s.current[x].is_none,
        held(s, s.current[x]),
        s.stage == Stage.IDLE,
    ).then(gate={x: True})


@adapters.action(by="service")
def pin(s: State, n: Adapter) -> Step:
    """Somebody may go back to an adapter that is still there, and wants it kept."""
    return when(s.pinned.is_none, held(s, n), ~serves(s, n), s.victim != n).then(pinned=n)


@adapters.action(by="service")
def unpin(s: State) -> Step:
    """Nobody wants the adapter kept any more."""
    return when(~s.pinned.is_none).then(pinned=None)
