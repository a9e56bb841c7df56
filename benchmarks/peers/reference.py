"""What the common benchmark model means: a successor function on tuples, standard library only.

A publisher pauses, flushes, updates and resumes N engines, each phase engine by engine; any failure retires them all
and rebuilds them. R requests are routed, admitted, finished; V loads are published one after another.

A state is ``(target, phase, done, weights, cache, paused, requests)``:

* ``target``: the load being published, or published last, 1 to V.
* ``phase``: one of `IDLE` to `REBUILD`; ``done``: a bit for each engine that has finished it.
* per engine ``weights`` (a load), ``cache`` (the load that made its entry, 0: empty), ``paused`` (0 or 1).
* per request ``(status, engine + 1 or 0, bits of the loads that made its KV)``.

Bug 1: a failed flush may be ignored. Bug 2: a pause keeps running requests and their KV.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import TypeVar

IDLE, PAUSE, FLUSH, UPDATE, RESUME, REBUILD = range(6)
WAIT, RUN, DONE = range(3)

Request = tuple[int, int, int]
State = tuple[int, int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[Request, ...]]
T = TypeVar("T")


def initial(engines: int, requests: int) -> State:
    """Everything serves load 1, every request waits."""
    return (1, IDLE, 0, (1,) * engines, (0,) * engines, (0,) * engines, ((WAIT, 0, 0),) * requests)


def successors(state: State, loads: int, bug: int = 0) -> Iterator[tuple[str, State]]:
    """Every step that is possible, as its name and the state after it."""
    yield from _request_steps(state)
    yield from _publisher_steps(state, loads, bug)


def _request_steps(state: State) -> Iterator[tuple[str, State]]:
    target, phase, done, weights, cache, paused, requests = state
    for r, (status, at, kv) in enumerate(requests):
        e = at - 1
        if status == WAIT and at == 0:
            for other in range(len(weights)):
                routed = _put(requests, r, (WAIT, other + 1, 0))
                yield f"route({r},{other})", (target, phase, done, weights, cache, paused, routed)
        elif status == WAIT and not paused[e]:
            made = 1 << weights[e] - 1 | (1 << cache[e] - 1 if cache[e] else 0)
            admitted = _put(requests, r, (RUN, at, made))
            yield f"admit({r},{e})", (target, phase, done, weights, cache, paused, admitted)
        elif status == RUN and not paused[e]:
            if cache[e] == 0:
                least = (kv & -kv).bit_length()
                yield f"insert({r},{e})", (target, phase, done, weights, _put(cache, e, least), paused, requests)
            finished = _put(requests, r, (DONE, 0, 0))
            yield f"finish({r},{e})", (target, phase, done, weights, cache, paused, finished)
    for e, entry in enumerate(cache):
        if entry and not paused[e]:
            yield f"evict({e})", (target, phase, done, weights, _put(cache, e, 0), paused, requests)


def _publisher_steps(state: State, loads: int, bug: int) -> Iterator[tuple[str, State]]:
    target, phase, done, weights, cache, paused, requests = state
    engines = len(weights)
    if phase == IDLE:
        if target < loads:
            yield "begin", (target + 1, PAUSE, 0, weights, cache, paused, requests)
        return
    for e in range(engines):
        if done >> e & 1:
            continue
        after, finished = phase, done | 1 << e
        if finished == (1 << engines) - 1:
            after, finished = RESUME if phase == REBUILD else (phase + 1) % 5, 0
        head = (target, after, finished)
        if phase == PAUSE:
            kept = requests if bug == 2 else tuple((WAIT, x[1], 0) if x[:2] == (RUN, e + 1) else x for x in requests)
            yield f"pause({e})", (*head, weights, cache, _put(paused, e, 1), kept)
        elif phase == FLUSH:
            yield f"flush({e})", (*head, weights, _put(cache, e, 0), paused, requests)
            if bug == 1:
                yield f"flush_lost({e})", (*head, weights, cache, paused, requests)
        elif phase == RESUME:
            yield f"resume({e})", (*head, weights, cache, _put(paused, e, 0), requests)
        else:
            name = "update" if phase == UPDATE else "rebuild"
            yield f"{name}({e})", (*head, _put(weights, e, target), cache, paused, requests)
    if phase != REBUILD:
        waiting = tuple(x if x[0] == DONE else (WAIT, 0, 0) for x in requests)
        yield "fail", (target, REBUILD, 0, weights, (0,) * engines, (1,) * engines, waiting)


def safe(state: State) -> bool:
    """What runs, runs on the weights that made its cache and its KV."""
    _, _, _, weights, cache, paused, requests = state
    fresh = all(p or c in (0, w) for w, c, p in zip(weights, cache, paused, strict=True))
    return fresh and all(
        status != RUN or paused[at - 1] or kv == 1 << weights[at - 1] - 1 for status, at, kv in requests
    )


def canonical(state: State) -> State:
    """The representative of the states that differ by exchanging engines or requests."""
    target, phase, done, weights, cache, paused, requests = state
    engines = range(len(weights))
    columns = [(weights[e], cache[e], paused[e], done >> e & 1) for e in engines]
    ordered = sorted(columns)
    best = min(
        tuple(sorted((status, at and order.index(at - 1) + 1, kv) for status, at, kv in requests))
        for order in permutations(engines)
        if [columns[e] for e in order] == ordered
    )
    finished = sum(column[3] << e for e, column in enumerate(ordered))
    w, c, p, _ = zip(*ordered, strict=True)
    return (target, phase, finished, w, c, p, best)


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
