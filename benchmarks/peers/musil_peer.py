"""The common model in musil (PyPI, Python 3.12 and later); prints one line of JSON.

Written as musil's users write: one action per step with its parameters fixed, over the states of `reference`.
Usage: ``PYTHON -m benchmarks.peers.musil_peer N R V``
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from musil import Action, Model, check

from benchmarks.peers.memory import resident


@dataclass(frozen=True, slots=True)
class State:
    """The state, with words for phases and statuses."""

    target: int
    phase: str
    done: frozenset[int]
    weights: tuple[int, ...]
    cache: tuple[int, ...]
    paused: tuple[bool, ...]
    status: tuple[str, ...]
    at: tuple[int | None, ...]
    kv: tuple[frozenset[int], ...]


def put(values: tuple[Any, ...], at: int, value: object) -> tuple[Any, ...]:
    """A tuple with one member changed."""
    return (*values[:at], value, *values[at + 1 :])


def runs(s: State, r: int) -> bool:
    """A request runs on an engine that is not paused."""
    at = s.at[r]
    return s.status[r] == "run" and at is not None and not s.paused[at]


def through(s: State, e: int, following: str) -> dict[str, Any]:
    """What changes when an engine has finished a phase."""
    done = s.done | {e}
    return {"phase": following, "done": frozenset()} if len(done) == len(s.weights) else {"done": done}


def request_actions(r: int, engines: int) -> list[Any]:
    """What may happen to one request."""

    def admit(s: State) -> State:
        e = s.at[r]
        assert e is not None
        made = frozenset({s.weights[e], s.cache[e]} - {0})
        return replace(s, status=put(s.status, r, "run"), kv=put(s.kv, r, made))

    def finish(s: State) -> State:
        return replace(s, status=put(s.status, r, "done"), at=put(s.at, r, None), kv=put(s.kv, r, frozenset()))

    def waits(s: State) -> bool:
        return s.status[r] == "wait" and s.at[r] is None

    def route(e: int) -> Callable[[State], State]:
        return lambda s: replace(s, at=put(s.at, r, e))

    def admissible(s: State) -> bool:
        at = s.at[r]
        return s.status[r] == "wait" and at is not None and not s.paused[at]

    def insert(s: State) -> State:
        at = s.at[r]
        assert at is not None
        return replace(s, cache=put(s.cache, at, min(s.kv[r])))

    def insertable(s: State) -> bool:
        at = s.at[r]
        return runs(s, r) and at is not None and s.cache[at] == 0

    return [
        *(Action(f"route({r},{e})", waits, route(e)) for e in range(engines)),
        Action(f"admit({r})", admissible, admit),
        Action(f"insert({r})", insertable, insert),
        Action(f"finish({r})", lambda s: runs(s, r), finish),
    ]


def engine_actions(e: int) -> list[Any]:
    """What may happen to one engine."""

    def during(phase: str) -> Callable[[State], bool]:
        return lambda s: s.phase == phase and e not in s.done

    def pause(s: State) -> State:
        hit = [status == "run" and at == e for status, at in zip(s.status, s.at, strict=True)]
        return replace(
            s,
            paused=put(s.paused, e, True),
            status=tuple("wait" if h else x for h, x in zip(hit, s.status, strict=True)),
            kv=tuple(frozenset() if h else x for h, x in zip(hit, s.kv, strict=True)),
            **through(s, e, "flush"),
        )

    def emptied(s: State) -> tuple[int, ...]:
        return put(s.cache, e, 0)

    def loaded(s: State) -> tuple[int, ...]:
        return put(s.weights, e, s.target)

    return [
        Action(f"evict({e})", lambda s: not s.paused[e] and s.cache[e] != 0, lambda s: replace(s, cache=emptied(s))),
        Action(f"pause({e})", during("pause"), pause),
        Action(f"flush({e})", during("flush"), lambda s: replace(s, cache=emptied(s), **through(s, e, "update"))),
        Action(f"update({e})", during("update"), lambda s: replace(s, weights=loaded(s), **through(s, e, "resume"))),
        Action(
            f"resume({e})",
            during("resume"),
            lambda s: replace(s, paused=put(s.paused, e, False), **through(s, e, "idle")),
        ),
        Action(f"rebuild({e})", during("rebuild"), lambda s: replace(s, weights=loaded(s), **through(s, e, "resume"))),
    ]


def build(engines: int, requests: int, loads: int) -> Any:
    """The model."""

    def begin(s: State) -> State:
        return replace(s, target=s.target + 1, phase="pause", done=frozenset())

    def fail(s: State) -> State:
        return replace(
            s,
            phase="rebuild",
            done=frozenset(),
            paused=(True,) * engines,
            cache=(0,) * engines,
            status=tuple("done" if x == "done" else "wait" for x in s.status),
            at=(None,) * requests,
            kv=(frozenset(),) * requests,
        )

    def cache_fresh(s: State) -> bool:
        return all(s.paused[e] or s.cache[e] in (0, s.weights[e]) for e in range(engines))

    def kv_fresh(s: State) -> bool:
        return all(not runs(s, r) or s.kv[r] <= {s.weights[s.at[r] or 0]} for r in range(requests))

    first = State(
        target=1,
        phase="idle",
        done=frozenset(),
        weights=(1,) * engines,
        cache=(0,) * engines,
        paused=(False,) * engines,
        status=("wait",) * requests,
        at=(None,) * requests,
        kv=(frozenset(),) * requests,
    )
    actions = [
        *(action for r in range(requests) for action in request_actions(r, engines)),
        *(action for e in range(engines) for action in engine_actions(e)),
        Action("begin", lambda s: s.phase == "idle" and s.target < loads, begin),
        Action("fail", lambda s: s.phase not in ("idle", "rebuild"), fail),
    ]
    return Model(
        init=first,
        actions=actions,
        terminal=lambda s: True,
        invariants={"cache_fresh": cache_fresh, "kv_fresh": kv_fresh},
    )


def search(engines: int, requests: int, loads: int) -> dict[str, object]:
    """Explore all."""
    model = build(engines, requests, loads)
    before, start = resident(), time.perf_counter()
    result = check(model, max_states=10**8)
    seconds = time.perf_counter() - start
    assert result.ok, "musil finds a violation"
    return {"states": result.states_explored, "transitions": None, "seconds": seconds, "before": before}


if __name__ == "__main__":
    print(json.dumps(search(*map(int, sys.argv[1:4]))))
