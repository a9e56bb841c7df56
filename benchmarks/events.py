"""What an event costs: where nobody listens, where somebody keeps it, and as a line in a file.

`python -m benchmarks.events` prints nanoseconds per event, the least of several repetitions.
"""

from __future__ import annotations

import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

from reef_ref import events
from reef_ref.events import NdjsonFile, Teller

CALLS = 100_000
REPETITIONS = 5


def nanoseconds(call: Callable[[], object], calls: int = CALLS) -> float:
    """The time of one call, in nanoseconds."""
    return min(timeit.repeat(call, number=calls, repeat=REPETITIONS)) / calls * 1e9


def nothing(*_: object) -> None:
    """A call that does nothing: the least that any call costs."""


def main() -> None:
    """Measure and print."""
    deaf = Teller("deaf", clock=lambda: 0.0)
    heard = Teller("heard", lambda line: None, clock=lambda: 0.0)
    print(f"an empty call             {nanoseconds(lambda: nothing(events.Flush, 3)):8.0f} ns")
    print(f"an event, nobody listens  {nanoseconds(lambda: deaf(events.Flush, 3)):8.0f} ns")
    print(f"an event, heard           {nanoseconds(lambda: heard(events.Flush, 3)):8.0f} ns")
    with tempfile.TemporaryDirectory() as folder:
        file = NdjsonFile(Path(folder) / "trace.ndjson")
        written = Teller("written", file, clock=lambda: 0.0)
        print(f"an event, written         {nanoseconds(lambda: written(events.Flush, 3), CALLS // 10):8.0f} ns")
        file.close()


if __name__ == "__main__":
    main()
