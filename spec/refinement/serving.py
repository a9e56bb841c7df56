"""How an engine from inside looks to a publication: what `spec.publication` assumes of one."""

from __future__ import annotations

from spec.engine import Work, engine
from spec.lang import Bool, Value, all_of, exists, ite
from spec.lang.refinement import Refinement
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
