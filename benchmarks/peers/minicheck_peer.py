"""The common model in minicheck (PyPI); prints one line of JSON.

Usage: ``python -m benchmarks.peers.minicheck_peer N R V``
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from minicheck import Protocol, check_safety

from benchmarks.peers.memory import resident
from benchmarks.peers.reference import RUN, State, initial, successors

FIELDS = ("target", "phase", "done", "weights", "cache", "paused", "requests")


def cache_fresh(s: dict[str, Any]) -> bool:
    """A running engine's cache was made by its weights."""
    return all(p or c in (0, w) for w, c, p in zip(s["weights"], s["cache"], s["paused"], strict=True))


def kv_fresh(s: dict[str, Any]) -> bool:
    """A running request's KV was made by the weights it runs on."""
    return all(
        status != RUN or s["paused"][at - 1] or kv == 1 << s["weights"][at - 1] - 1 for status, at, kv in s["requests"]
    )


def search(engines: int, requests: int, loads: int) -> dict[str, object]:
    """Explore all."""

    def steps(state: State) -> list[tuple[str, State]]:
        return list(successors(state, loads))

    model = Protocol(
        name="pubmodel",
        candidate=True,
        fields=FIELDS,
        initial=initial(engines, requests),
        transitions=steps,
        invariants={"cache_fresh": cache_fresh, "kv_fresh": kv_fresh},
    )
    before, start = resident(), time.perf_counter()
    result = check_safety(model, max_states=10**8)
    seconds = time.perf_counter() - start
    assert result["exhaustive"], "minicheck did not see every state"
    assert all(p["holds"] for p in result["properties"].values()), "minicheck finds a violation"
    return {"states": result["reachable_states"], "transitions": None, "seconds": seconds, "before": before}


if __name__ == "__main__":
    print(json.dumps(search(*map(int, sys.argv[1:4]))))
