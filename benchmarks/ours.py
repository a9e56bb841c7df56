"""This project's checker on the common model, in a process of its own; prints one line of JSON.

Usage: ``python -m benchmarks.ours N R V [--symmetry] [--workers W] [--bug 1|2]``. Compiled code is kept in the folder
that ``REEF_REF_CACHE`` names: a first run with an empty folder shows what compiling costs, a second what that saves.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

from benchmarks.peers.memory import resident
from benchmarks.pubmodel import build, scope
from model_check.explore import Verdict, explore
from model_check.story import as_text, tell


def main() -> None:
    """Explore once to have everything loaded, then once for the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("world", type=int, nargs=3)
    parser.add_argument("--symmetry", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bug", type=int, default=0)
    given = parser.parse_args()
    protocol, world = build(given.bug), scope(*given.world)
    ready = explore(protocol, world, symmetry=given.symmetry, workers=given.workers, max_states=1).seconds_ready
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    before, start = resident(), time.perf_counter()
    found = explore(protocol, world, symmetry=given.symmetry, workers=given.workers)
    result: dict[str, object] = {
        "states": found.states,
        "transitions": found.steps,
        "depth": found.depth,
        "seconds": found.seconds,
        "warm_up": ready,
        "before": before,
        "peak_before": peak,
        "verdict": found.verdict.value,
        "story": None,
    }
    if found.counterexample is not None:
        print(as_text(tell(found.counterexample)), file=sys.stderr, flush=True)
        result["told"] = time.perf_counter() - start - found.seconds_ready
        result["story"] = [
            found.counterexample.space.instance_name(instance) for instance, _ in found.counterexample.run if instance
        ]
    else:
        assert found.verdict is Verdict.HOLDS, found.reason
    print(json.dumps(result))


if __name__ == "__main__":
    main()
