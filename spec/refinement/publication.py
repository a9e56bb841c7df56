"""How the publication protocol looks from outside: its ideal, in which a publication is one step."""

from __future__ import annotations

from spec.atomic import atomic
from spec.lang import Bool, Value, forall
from spec.lang.refinement import Refinement, Taken, takes
from spec.publication import publication
from spec.publication.properties import committed_content
from spec.publication.state import Content, Engine, Load, Mode, Request, State, generates

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


# Which step of the ideal each action takes, where it does anything that the ideal knows

step = publication_is_atomic.step


@publication_is_atomic.beginning
def serving_the_initial_load(s: State) -> Taken:
    """The initial weights are served."""
    return takes(
        "serving_the_initial_load", sharing=s.sharing, restarting=s.mode == Mode.RETRACT, c=committed_content(s)
    )


@step
def admit(s: State, e: Engine) -> Taken:
    """A request is admitted."""
    return takes("admit", e=e)


@step
def start(s: State, e: Engine) -> Taken:
    """What it adds to a tree is kept, where trees are shared."""
    return takes("start", e=e, kept=True)


@step
def start_on_hit(s: State, e: Engine) -> Taken:
    """The entry stays."""
    return takes("start", e=e, kept=True)


@step
def finish(s: State, e: Engine) -> Taken:
    """Its KV can be reused, if what is served now made all of it and of what was there."""
    served = forall(Content, lambda c: (s.made_by[e, c] | s.kv[e, c]).implies(committed_content(s) == c))
    return takes("answer", e=e, kept=served)


@step
def retract(s: State, e: Engine) -> Taken:
    """A request waits again."""
    return takes("send_back", e=e)


@step
def migrate(s: State, e: Engine, f: Engine) -> Taken:
    """It arrives, unless what is there is no entry to the ideal."""
    return takes("hand_over", e=e, f=f)


@step
def continue_generation(s: State, e: Engine) -> Taken:
    """A request that was paused in place goes on."""
    return takes("go_on", e=e)


@step
def flush(s: State, e: Engine) -> Taken:
    """What was cached is gone."""
    return takes("forget", e=e)


@step
def release(s: State, e: Engine) -> Taken:
    """So it is with what was in released memory."""
    return takes("forget", e=e)


@step
def retire(s: State, e: Engine) -> Taken:
    """A process ends."""
    return takes("lose", e=e)


@step
def die(s: State, e: Engine) -> Taken:
    """A process is gone."""
    return takes("lose", e=e)


@step
def tear_down(s: State) -> Taken:
    """Every process is."""
    return takes("lose_all")


@step
def commit_head(s: State) -> Taken:
    """The head moves: this is the publication."""
    return takes("publish", c=s.disk_content)
