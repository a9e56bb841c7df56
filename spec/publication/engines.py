"""What engines do by themselves: admit, run, reuse prefixes, retract, and the paths between them."""

from __future__ import annotations

from spec.lang import Bool, Step, each, when
from spec.publication.state import (
    Content,
    Engine,
    Mode,
    Request,
    State,
    generates,
    live,
    publication,
)


@publication.action(by="service", on="e")
def admit(s: State, e: Engine) -> Step:
    """The service admits a request and routes it to a live engine."""
    return when(s.gate, live(s, e), s.request[e] == Request.NONE).then(request={e: Request.WAITING})


def can_start(s: State, e: Engine) -> Bool:
    """The scheduler runs and has work. It does not ask whether its memory is there."""
    return (s.request[e] == Request.WAITING) & ~s.paused[e]


@publication.action(by="e", on="e")
def start(s: State, e: Engine) -> Step:
    """A request starts without a hit; its prompt enters the tree once it is prefilled."""
    return when(can_start(s, e)).then(
        request={e: Request.RUNNING},
        kv={e: each(Content, lambda c: s.weights[e] == c)},
        cached={e: s.sharing},
        made_by={e: each(Content, lambda c: s.made_by[e, c] | (s.sharing & (s.weights[e] == c)))},
    )


@publication.action(by="e", on="e")
def start_on_hit(s: State, e: Engine) -> Step:
    """A request starts on a cached prefix: what made the prefix is in its KV, and in what it adds to the tree."""
    return when(can_start(s, e), s.cached[e]).then(
        request={e: Request.RUNNING},
        kv={e: each(Content, lambda c: s.made_by[e, c] | (s.weights[e] == c))},
        made_by={e: each(Content, lambda c: s.made_by[e, c] | (s.weights[e] == c))},
    )


@publication.action(by="e", on="e")
def finish(s: State, e: Engine) -> Step:
    """A request is answered, and all of its KV enters the tree.

    Under retract also after the pause: the batch that ran ahead is delivered before the rest is retracted.
    """
    return when(s.request[e] == Request.RUNNING, ~s.paused[e] | (s.mode == Mode.RETRACT)).then(
        request={e: Request.NONE},
        kv={e: each(Content, lambda c: False)},
        cached={e: s.sharing},
        made_by={e: each(Content, lambda c: s.made_by[e, c] | (s.sharing & s.kv[e, c]))},
    )


@publication.action(by="e", on="e")
def retract(s: State, e: Engine) -> Step:
    """A paused engine sends its request back to the queue without its KV. What the tree owns stays in the tree."""
    return when(s.request[e] == Request.RUNNING, s.paused[e], s.mode == Mode.RETRACT).then(
        request={e: Request.WAITING}, kv={e: each(Content, lambda c: False)}
    )


@publication.action(by="e", on="f")
def migrate(s: State, e: Engine, f: Engine) -> Step:
    """The prefix of a request that runs on one engine reaches the tree of another, paused or not.

    A router moving a request, a cache tier or a disaggregated prefill do this without asking the receiving scheduler.
    It is why the barrier pauses every engine before it flushes any.
    """
    return when(s.sharing, e != f, generates(s, e), live(s, f)).then(
        cached={f: True}, made_by={f: each(Content, lambda c: s.made_by[f, c] | s.kv[e, c])}
    )
