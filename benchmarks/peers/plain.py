"""Breadth-first search of the common model in plain Python, with parents; prints one line of JSON.

Usage: ``python -m benchmarks.peers.plain N R V [--bug 1|2] [--symmetry]``
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.expected import World
from benchmarks.peers.memory import resident
from benchmarks.peers.reference import State, canonical, initial, safe, successors


def search(world: World, bug: int = 0, *, symmetry: bool = False) -> dict[str, object]:
    """Explore all, or as far as the level with the first violation."""
    engines, requests, loads = world
    before, start = resident(), time.perf_counter()
    first = canonical(initial(engines, requests)) if symmetry else initial(engines, requests)
    parent: dict[State, tuple[State, str] | None] = {first: None}
    level, transitions, depth = [first], 0, -1
    story: list[str] | None = None
    while level and story is None:
        deeper = []
        for state in level:
            for name, after in successors(state, loads, bug):
                transitions += 1
                found = canonical(after) if symmetry else after
                if found not in parent:
                    parent[found] = (state, name)
                    deeper.append(found)
                    if story is None and not safe(found):
                        story = path(parent, found)
        level = deeper
        depth += 1
    seconds = time.perf_counter() - start
    return {
        "states": len(parent),
        "transitions": transitions,
        "depth": depth,
        "seconds": seconds,
        "before": before,
        "story": story,
    }


def path(parent: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    """The names of the steps that lead to a state."""
    names = []
    while (step := parent[state]) is not None:
        state, name = step
        names.append(name)
    return names[::-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", type=int, nargs=3)
    parser.add_argument("--bug", type=int, default=0)
    parser.add_argument("--symmetry", action="store_true")
    given = parser.parse_args()
    print(json.dumps(search(tuple(given.world), given.bug, symmetry=given.symmetry)))
