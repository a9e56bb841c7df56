"""What the scheduler does with requests: queue, prefill, decode, take in the result that ran ahead, cache, retract.

A launch computes; its result is processed later, and a control call may come between the two. At most one result is
not processed yet: SGLang launches one batch ahead of the one whose result it takes in. A batch is one request here; a
batch of several takes the same steps one after the other.
"""

from __future__ import annotations

from typing import Any

from spec.lang import Bool, Step, each, exists, ite, when
from spec.serving.state import (
    NO_LOAD,
    ON_DEVICE,
    Adapter,
    Load,
    Mode,
    Phase,
    Request,
    Stage,
    State,
    answered,
    on_device,
    paused,
    serving,
)

# What the scheduler can tell


def none_is(s: State, phase: Phase) -> Bool:
    """No request is in the phase."""
    return ~exists(Request, lambda r: s.phase[r] == phase)


def full(s: State) -> Bool:
    """The waiting queue takes no more (``_abort_on_queued_limit``)."""
    return s.limited & ~none_is(s, Phase.WAITING)


def idle(s: State, *, ignore_waiting: Bool | bool, ignore_grammars: Bool | bool) -> tuple[Bool, ...]:
    """Each term of the idle test (``is_fully_idle``).

    SGLang has more: for the queues of disaggregated engines, where a waiting request may hold KV, and for tiers of the
    cache. None of them is here.
    """
    return (
        *(none_is(s, phase) for phase in ON_DEVICE),
        s.ahead.is_none,
        ignore_waiting | none_is(s, Phase.WAITING),
        ignore_grammars | none_is(s, Phase.GRAMMAR),
    )


# Queues


@serving.action(by="client", on="r")
def admit(s: State, r: Request, a: Adapter, constrained: Bool) -> Step:
    """A request comes and is queued, after its grammar is compiled if it has one.

    While the engine is paused, calls that were past the front end's gate still come, and are queued. A pause that
    aborts waits for those, so that here they have all come before.
    """
    return when(
        answered(s, r),
        s.loaded[a],
        (s.mode != Mode.ABORT) | (s.stage == Stage.SERVING),
        ~full(s),
    ).then(
        phase={r: ite(constrained, Phase.GRAMMAR, Phase.WAITING)},
        adapter={r: a},
        stamp={r: None},
        counted={r: False},
        retracted={r: False},
        reused={r: False},
        told_idle=False,
    )


@serving.action(by="client", on="r")
def disconnect(s: State, r: Request) -> Step:
    """A client leaves, and the front end forgets the call before the scheduler does.

    Only a pause that aborts asks whether calls are under way, so that it makes no difference to the others.
    """
    return when(s.mode == Mode.ABORT, s.phase[r] != Phase.DONE).then(gone={r: True})


def queued(s: State, r: Request) -> dict[str, Any]:
    """The request joins the waiting queue; where that is full, it is answered with an error."""
    return {
        "phase": {r: ite(full(s), Phase.DONE, Phase.WAITING)},
        "adapter": {r: ite(~full(s), s.adapter[r], None)},
        "gone": {r: s.gone[r] & ~full(s)},
    }


@serving.action(by="engine", on="r")
def compile_grammar(s: State, r: Request) -> Step:
    """A grammar is compiled, and its request joins the waiting queue. A paused scheduler does not look."""
    return when(~paused(s), s.phase[r] == Phase.GRAMMAR).then(**queued(s, r))


# The tree


def inserted(s: State, r: Request) -> dict[str, Any]:
    """The request's KV enters the tree, under its adapter's key. Nothing in a key says which weights made the KV."""
    return {
        "cached": {s.adapter[r]: s.sharing},
        "made_by": {
            s.adapter[r]: each(Load, lambda v: s.made_by.get((s.adapter[r], v), False) | (s.sharing & s.kv[r, v]))
        },
        "made_with": {
            s.adapter[r]: each(
                Adapter, lambda a: s.made_with.get((s.adapter[r], a), False) | (s.sharing & s.kv_with[r, a])
            )
        },
    }


# Launches


def launch(s: State, r: Request) -> dict[str, Any]:
    """A batch of this request computes, with the weights that are there; the label that is there is kept with it."""
    return {"ahead": r, "ahead_label": s.label, "ahead_weights": s.weights}


def can_launch(s: State, r: Request) -> Bool:
    """The scheduler runs, and nothing has run ahead. It does not ask whether its memory is there."""
    return ~paused(s) & s.ahead.is_none


def can_start(s: State, r: Request, chunked: Bool) -> Bool:
    """The request's turn has come; between its chunks there is one request at most."""
    return can_launch(s, r) & (s.phase[r] == Phase.WAITING) & (~chunked | none_is(s, Phase.PREFILLING))


@serving.action(by="engine", on="r")
def start(s: State, r: Request, chunked: Bool) -> Step:
    """A request starts without a hit: all of its prompt is computed, or the first chunk of it."""
    return when(can_start(s, r, chunked)).then(
        phase={r: ite(chunked, Phase.PREFILLING, Phase.PREFILLED)},
        kv={r: each(Load, lambda v: s.weights == v)},
        kv_with={r: each(Adapter, lambda a: s.adapter[r] == a)},
        **launch(s, r),
    )


@serving.action(by="engine", on="r")
def start_on_hit(s: State, r: Request, chunked: Bool) -> Step:
    """A request starts on an entry of the tree; the rest of its prompt, at least one token, is computed.

    What it reuses is counted, unless it was ever retracted (``prepare_for_extend``).
    """
    return when(can_start(s, r, chunked), s.cached.get(s.adapter[r], False)).then(
        phase={r: ite(chunked, Phase.PREFILLING, Phase.PREFILLED)},
        counted={r: s.counted[r] | ~s.retracted[r]},
        kv={r: each(Load, lambda v: s.made_by.get((s.adapter[r], v), False) | (s.weights == v))},
        kv_with={r: each(Adapter, lambda a: s.made_with.get((s.adapter[r], a), False) | (s.adapter[r] == a))},
        reused={r: True},
        **launch(s, r),
    )


def computed(s: State, r: Request) -> dict[str, Any]:
    """What the request's KV is made of, after the weights that are there have computed some more."""
    return {"kv": {r: each(Load, lambda v: s.kv[r, v] | (s.weights == v))}}


@serving.action(by="engine", on="r")
def prefill_rest(s: State, r: Request) -> Step:
    """The chunk that is there enters the tree (``stash_chunked_request``), and the last one is computed."""
    return when(can_launch(s, r), s.phase[r] == Phase.PREFILLING).then(
        phase={r: Phase.PREFILLED}, **inserted(s, r), **computed(s, r), **launch(s, r)
    )


@serving.action(by="engine", on="r")
def decode(s: State, r: Request) -> Step:
    """A request joins the running batch, if it is not in it, and its next token is computed."""
    return when(can_launch(s, r), s.phase[r].is_in(Phase.PREFILLED, Phase.RUNNING)).then(
        phase={r: Phase.RUNNING}, **computed(s, r), **launch(s, r)
    )


# Results


def can_process(s: State, r: Request) -> Bool:
    """The request's result ran ahead, and the scheduler runs, or drains before it retracts."""
    drains = (s.stage == Stage.PAUSING) & (s.mode == Mode.RETRACT)
    return (s.ahead == r) & (~paused(s) | drains)


NOTHING_AHEAD: dict[str, Any] = {"ahead": None, "ahead_label": NO_LOAD, "ahead_weights": NO_LOAD}
"""The result is processed."""


@serving.action(by="engine", on="r")
def take_chunk(s: State, r: Request) -> Step:
    """The result of a chunk is processed: there is no token in it."""
    return when(can_process(s, r), s.phase[r] == Phase.PREFILLING).then(**NOTHING_AHEAD)


@serving.action(by="engine", on="r")
def take_prompt(s: State, r: Request) -> Step:
    """The result of a prefill is processed: the prompt enters the tree, and the first token is stamped."""
    return when(can_process(s, r), s.phase[r] == Phase.PREFILLED).then(
        **inserted(s, r), stamp={r: s.ahead_label}, **NOTHING_AHEAD
    )


@serving.action(by="engine", on="r")
def take_token(s: State, r: Request) -> Step:
    """The result of a decode is processed: one more token is stamped."""
    return when(can_process(s, r), s.phase[r] == Phase.RUNNING).then(stamp={r: s.ahead_label}, **NOTHING_AHEAD)


@serving.action(by="engine", on="r")
def finish(s: State, r: Request, once_more: Bool) -> Step:
    """The last token is processed: all of the request's KV enters the tree, and the answer goes out.

    Where the next batch was launched with it before anybody knew, that batch still computes for it `once_more`.
    """
    return when(can_process(s, r), s.phase[r].is_in(Phase.PREFILLED, Phase.RUNNING)).then(
        **inserted(s, r),
        phase={r: Phase.DONE},
        adapter={r: None},
        gone={r: False},
        stamp={r: s.ahead_label},
        ahead=ite(once_more, s.ahead, None),
        ahead_label=NO_LOAD,
        kv={r: each(Load, lambda v: once_more & (s.weights == v))},
        kv_with={r: each(Adapter, lambda a: once_more & (s.adapter[r] == a))},
        ahead_weights=NO_LOAD,
    )


@serving.action(by="engine", on="r")
def drop_result(s: State, r: Request) -> Step:
    """A result for a request that has left its batch meanwhile is thrown away, and its KV with it."""
    return when(can_process(s, r), ~on_device(s, r)).then(
        kv={r: each(Load, lambda v: False)}, kv_with={r: each(Adapter, lambda a: False)}, **NOTHING_AHEAD
    )


# Taking requests back


def left_to_the_result(s: State, r: Request) -> dict[str, Any]:
    """The request's KV is freed, but for what a result that ran ahead still belongs to."""
    return {
        "kv": {r: each(Load, lambda v: (s.ahead == r) & s.kv[r, v])},
        "kv_with": {r: each(Adapter, lambda a: (s.ahead == r) & s.kv_with[r, a])},
    }


def given_back(s: State, r: Request) -> dict[str, Any]:
    """A request waits again, without its KV. What the tree has of it stays there, and stays matchable."""
    return {
        **queued(s, r),
        "stamp": {r: ite(~full(s), s.stamp[r], None)},
        "counted": {r: s.counted[r] & ~full(s)},
        "retracted": {r: ~full(s)},
        "reused": {r: False},
        **left_to_the_result(s, r),
    }


@serving.action(by="engine", on="r")
def retract(s: State, r: Request) -> Step:
    """A pause takes a request back, after the result that ran ahead was processed."""
    return when(s.stage == Stage.PAUSING, s.mode == Mode.RETRACT, s.ahead.is_none, on_device(s, r)).then(
        **given_back(s, r)
    )


@serving.action(by="engine", on="r")
def preempt(s: State, r: Request) -> Step:
    """Memory is short, and the scheduler takes a running request back; a result that ran ahead will be dropped."""
    return when(~paused(s), s.phase[r] == Phase.RUNNING).then(**given_back(s, r))


@serving.action(by="engine", on="r")
def abort(s: State, r: Request) -> Step:
    """A request that has no token coming is ended with an error, one between its chunks without its KV.

    One that has ends when that token is processed, as any other does.
    """
    return when(
        s.gone[r] | ((s.stage == Stage.PAUSING) & (s.mode == Mode.ABORT)),
        s.phase[r].is_in(Phase.GRAMMAR, Phase.WAITING, Phase.PREFILLING),
    ).then(
        phase={r: Phase.DONE},
        adapter={r: None},
        gone={r: False},
        stamp={r: None},
        counted={r: False},
        retracted={r: False},
        reused={r: False},
        **left_to_the_result(s, r),
    )


# Health


@serving.action(by="monitor")
def tell_idle(s: State) -> Step:
    """A health check is told that the engine has nothing to do: every term of the idle test, paused or not."""
    return when(*idle(s, ignore_waiting=False, ignore_grammars=False), ~s.told_idle).then(told_idle=True)
