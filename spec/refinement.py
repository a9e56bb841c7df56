"""Which protocol refines which, and how each field of the ideal is seen in the detailed state."""

from __future__ import annotations

from types import MappingProxyType

from spec.atomic import atomic
from spec.engine import Work, engine
from spec.lang import Bool, Value, all_of, exists, forall, ite
from spec.lang.refinement import Refinement
from spec.publication import publication
from spec.publication.properties import committed_content
from spec.publication.state import Content, Engine, Load, Mode, Request, State, generates
from spec.serving import serving
from spec.serving import state as inside

publication_is_atomic = Refinement(
    publication,
    atomic,
    """From outside, a publication changes the weights of every engine and empties every cache in one step: when the
    service moves its head.""",
)


@publication_is_atomic.field
def sharing(s: State) -> Bool:
    """Configured."""
    return s.sharing


@publication_is_atomic.field
def restarting(s: State) -> Bool:
    """Configured: a pause that retracts."""
    return s.mode == Mode.RETRACT


@publication_is_atomic.field
def load(s: State) -> Load:
    """The service's head, and not what engines report: it moves in one step."""
    return s.head


@publication_is_atomic.field
def served(s: State) -> Content:
    """The bytes of the head's load, by the record."""
    return committed_content(s)


@publication_is_atomic.field
def request(s: State, e: Engine) -> Value[Request]:
    """As it is."""
    return s.request[e]


@publication_is_atomic.field
def kv(s: State, e: Engine, c: Content) -> Bool:
    """What made the KV, and, where the engine generates, what makes more of it now."""
    return s.kv[e, c] | (generates(s, e) & (s.weights[e] == c))


@publication_is_atomic.field
def cached(s: State, e: Engine) -> Bool:
    """There is an entry, and nothing made it but what is served: what anything else made is no entry to the ideal."""
    return s.cached[e] & forall(Content, lambda c: s.made_by[e, c].implies(committed_content(s) == c))


serving_is_an_engine = Refinement(
    serving,
    engine,
    """An engine from inside does what the publication protocol assumes of one, where a pause retracts or freezes.""",
    where=lambda s: s.mode != inside.Mode.ABORT,
)


@serving_is_an_engine.field
def retracting(s: inside.State) -> Bool:
    """Configured."""
    return s.mode == inside.Mode.RETRACT


@serving_is_an_engine.field
def sharing(s: inside.State) -> Bool:  # noqa: F811 - the same field of another ideal
    """Configured."""
    return s.sharing


@serving_is_an_engine.field
def backup(s: inside.State) -> Bool:
    """There is none: memory that comes back holds nothing."""
    return all_of() & False


@serving_is_an_engine.field
def paused(s: inside.State) -> Bool:
    """From when the pause is asked for."""
    return inside.paused(s)


@serving_is_an_engine.field
def weights(s: inside.State) -> inside.Load:
    """As they are."""
    return s.weights


@serving_is_an_engine.field
def label(s: inside.State) -> inside.Load:
    """As it is."""
    return s.label


@serving_is_an_engine.field
def weights_out(s: inside.State) -> Bool:
    """As it is."""
    return s.weights_out


@serving_is_an_engine.field
def kv_out(s: inside.State) -> Bool:
    """As it is."""
    return s.kv_out


@serving_is_an_engine.field
def work(s: inside.State, r: inside.Request) -> Value[Work]:
    """Running is what holds KV on the device, waiting what is queued or has its grammar compiled."""
    return ite(inside.on_device(s, r), Work.RUNNING, ite(s.phase[r] == inside.Phase.DONE, Work.NONE, Work.WAITING))


@serving_is_an_engine.field
def cached(s: inside.State) -> Bool:  # noqa: F811 - the same field of another ideal
    """Under any key."""
    return exists(inside.Adapter, lambda a: s.cached[a])


@serving_is_an_engine.field
def kv(s: inside.State, r: inside.Request, v: inside.Load) -> Bool:  # noqa: F811 - the same field of another ideal
    """Of requests on the device. What a batch that ran ahead still computes for one that has left, nobody gets."""
    return inside.on_device(s, r) & s.kv[r, v]


@serving_is_an_engine.field
def made_by(s: inside.State, v: inside.Load) -> Bool:
    """Under any key."""
    return exists(inside.Adapter, lambda a: s.made_by[a, v])


REFINEMENTS = MappingProxyType({"publication": publication_is_atomic, "serving": serving_is_an_engine})
"""Every refinement, by the name of the detailed protocol."""
