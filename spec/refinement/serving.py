"""How an engine from inside looks to a publication: what `spec.publication` assumes of one."""

from __future__ import annotations

from spec.engine import Work, engine
from spec.lang import Bool, Value, all_of, exists, ite
from spec.lang.refinement import Refinement, Taken, takes
from spec.serving import serving
from spec.serving.state import Adapter, Load, Mode, Phase, Request, State, on_device
from spec.serving.state import paused as is_paused

serving_is_an_engine = Refinement(
    serving,
    engine,
    """An engine from inside does what the publication protocol assumes of one, where a pause retracts or freezes.""",
    where=lambda s: s.mode != Mode.ABORT,
)


@serving_is_an_engine.field
def retracting(s: State) -> Bool:
    """Configured."""
    return s.mode == Mode.RETRACT


@serving_is_an_engine.field
def sharing(s: State) -> Bool:
    """Configured."""
    return s.sharing


@serving_is_an_engine.field
def backup(s: State) -> Bool:
    """There is none: memory that comes back holds nothing."""
    return all_of() & False


@serving_is_an_engine.field
def paused(s: State) -> Bool:
    """From when the pause is asked for."""
    return is_paused(s)


@serving_is_an_engine.field
def weights(s: State) -> Load:
    """As they are."""
    return s.weights


@serving_is_an_engine.field
def label(s: State) -> Load:
    """As it is."""
    return s.label


@serving_is_an_engine.field
def weights_out(s: State) -> Bool:
    """As it is."""
    return s.weights_out


@serving_is_an_engine.field
def kv_out(s: State) -> Bool:
    """As it is."""
    return s.kv_out


@serving_is_an_engine.field
def work(s: State, r: Request) -> Value[Work]:
    """Running is what holds KV on the device, waiting what is queued or has its grammar compiled."""
    return ite(on_device(s, r), Work.RUNNING, ite(s.phase[r] == Phase.DONE, Work.NONE, Work.WAITING))


@serving_is_an_engine.field
def cached(s: State) -> Bool:
    """Under any key."""
    return exists(Adapter, lambda a: s.cached[a])


@serving_is_an_engine.field
def kv(s: State, r: Request, v: Load) -> Bool:
    """Of requests on the device. What a batch that ran ahead still computes for one that has left, nobody gets."""
    return on_device(s, r) & s.kv[r, v]


@serving_is_an_engine.field
def made_by(s: State, v: Load) -> Bool:
    """Under any key."""
    return exists(Adapter, lambda a: s.made_by[a, v])


# Which step of the engine each action takes, where it does anything that a publication knows

step = serving_is_an_engine.step


@serving_is_an_engine.beginning
def serving_the_initial_load(s: State) -> Taken:
    """In the same configuration."""
    return takes("serving_the_initial_load", retracting=s.mode == Mode.RETRACT, sharing=s.sharing, backup=False)


@step
def admit(s: State, r: Request) -> Taken:
    """A request comes."""
    return takes("admit", r=r)


@step
def compile_grammar(s: State, r: Request) -> Taken:
    """Where the queue is full, it is answered with an error; else it waits as before."""
    return takes("give_up", r=r)


@step
def start(s: State, r: Request) -> Taken:
    """All of its prompt, or a chunk."""
    return takes("start", r=r)


@step
def start_on_hit(s: State, r: Request) -> Taken:
    """What made the entry under its key is what made any."""
    return takes("start_on_hit", r=r)


@step
def prefill_rest(s: State, r: Request) -> tuple[Taken, ...]:
    """Where a tree is shared, KV is pure, and enters it; elsewhere, it may have been made by more weights now."""
    return takes("insert", r=r), takes("run_on", r=r)


@step
def decode(s: State, r: Request) -> Taken:
    """One more token."""
    return takes("run_on", r=r)


@step
def take_prompt(s: State, r: Request) -> Taken:
    """The prompt enters the tree."""
    return takes("insert", r=r)


@step
def finish(s: State, r: Request) -> Taken:
    """A request is answered."""
    return takes("finish", r=r)


@step
def retract(s: State, r: Request) -> Taken:
    """A pause sends it back."""
    return takes("retract", r=r)


@step
def preempt(s: State, r: Request) -> tuple[Taken, ...]:
    """It waits again; where the queue is full, it is answered with an error, and nothing is shared there."""
    return takes("preempt", r=r), takes("finish", r=r)


@step
def pause(s: State) -> Taken:
    """From when it is asked for."""
    return takes("pause")


@step
def flush(s: State) -> Taken:
    """The tree is emptied."""
    return takes("flush")


@step
def release(s: State, weights_too: Bool) -> Taken:
    """Memory goes, and what was in it."""
    return takes("release", weights_too=weights_too)


@step
def resume_weights(s: State) -> Taken:
    """It is there again."""
    return takes("resume_weights")


@step
def resume_kv(s: State) -> Taken:
    """It is there again."""
    return takes("resume_kv")


@step
def update(s: State, again: Bool) -> Taken:
    """A load, and its label."""
    return takes("receive", v=ite(again, s.label, s.label + 1))


@step
def update_part(s: State) -> Taken:
    """Some of a load."""
    return takes("tear")


@step
def continue_generation(s: State) -> Taken:
    """It schedules again."""
    return takes("continue_generation")
