"""What an event costs: where nobody listens, where somebody keeps it, and as a line in a file.

``python -m benchmarks.events`` prints nanoseconds an event. In each round every way is measured beside a call that does
nothing; what is given is the median, with quartiles, and the median ratio to that call in the same round.
"""

from __future__ import annotations

import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

from benchmarks.spread import Spread
from reef_ref import events
from reef_ref.events import NdjsonFile, Teller

CALLS = 10_000
ROUNDS = 15


def nanoseconds(call: Callable[[], object]) -> float:
    """The processor's time for one call, in nanoseconds."""
    return timeit.timeit(call, timer=time.process_time, number=CALLS) / CALLS * 1e9


def nothing(*_: object) -> None:
    """A call that does nothing: the least that any call costs."""


def main() -> None:
    """Measure and print."""
    deaf = Teller("deaf", clock=lambda: 0.0)
    heard = Teller("heard", lambda line: None, clock=lambda: 0.0)
    with tempfile.TemporaryDirectory() as folder:
        file = NdjsonFile(Path(folder) / "trace.ndjson")
        written = Teller("written", file, clock=lambda: 0.0)
        ways: dict[str, Callable[[], object]] = {
            "a call that does nothing": lambda: nothing(events.Flush, 3),
            "an event, nobody listens": lambda: deaf(events.Flush, 3),
            "an event, heard": lambda: heard(events.Flush, 3),
            "an event, written": lambda: written(events.Flush, 3),
        }
        rounds = [{name: nanoseconds(call) for name, call in ways.items()} for _ in range(ROUNDS)]
        file.close()
    base = next(iter(ways))
    print(f"nanoseconds, {ROUNDS} rounds; median (quartiles)")
    for name in ways:
        cost = Spread.of([found[name] for found in rounds])
        ratio = Spread.of([found[name] / found[base] for found in rounds])
        print(f"  {name:<26} {cost.text():<28} {ratio.median:,.1f} times the first")


if __name__ == "__main__":
    main()
