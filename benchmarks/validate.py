"""How many events a second are validated: ``python -m benchmarks.validate [--engines N ...] [--rounds N]``.

The trace is one deployment that publishes again and again, with a request on every engine in between. In each round the
same lines are read, validated as `reef-ref validate` does it, and parsed by Python's own `json` for comparison; ratios
are of the same round. Seconds are the processor's, so that what else the machine does counts less. The first
publications are slower, for what the protocol can do is learned then: that is given apart, as *cold*.

Ends 1 where fewer than `GOAL` events a second are validated from lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.spread import Spread
from model_check.explain import Verdict
from reef_ref import events
from reef_ref.monitor.validate import Validator, read

GOAL = 100_000
"""Events a second, from lines."""


def publication(job: int, engines: int) -> Iterator[events.Event]:
    """The events of one publication."""
    name, old, new, path = f"job-{job}", f"a:{job}", f"a:{job + 1}", f"/checkpoints/{job}"
    yield from (events.BeginTraining(name), events.RecordRunning(name, old), events.Train(name))
    yield from (events.RecordCheckpoint(name, path), events.BeginPublish(name))
    yield from (events.Pause(engine, "retract") for engine in range(engines))
    yield events.AllPaused()
    yield from (events.Flush(engine) for engine in range(engines))
    yield from (events.AllFlushed(), events.Declare(name), events.RecordTarget(name, new))
    yield from (events.Send(engine, new, path) for engine in range(engines))
    yield from (events.AllSent(), events.Verify(new, None), events.RecordReady(name, new), events.CommitHead(new))
    yield from (events.Acknowledge(name), events.RecordHead(name))
    yield from (events.ContinueGeneration(engine) for engine in range(engines))
    yield from (events.AllContinued(), events.RecordComplete(name), events.OpenGate())
    for engine in range(engines):
        request = f"request-{job}-{engine}"
        yield events.Admit(engine, request)
        yield events.StartOnHit(engine, request, new, 16, (new,))
        yield events.Finish(engine, request, (new,))


def trace(engines: int, count: int) -> Iterator[bytes]:
    """So many lines, or a few more."""
    number = job = 0
    while number < count:
        job += 1
        for event in publication(job, engines):
            number += 1
            yield (events.Line("run", number, number / 1000, event).to_json() + "\n").encode()


def seconds(call: Callable[[], object]) -> float:
    """Of the processor, for one call."""
    began = time.process_time()
    call()
    return time.process_time() - began


def validated(validator: Validator, lines: list[bytes]) -> None:
    """Read and validate lines from the beginning of a trace."""
    validator.begin()
    for one in read(lines):
        if validator.feed(one.event, one.line) is not Verdict.EXPLAINED:
            raise SystemExit(f"line {one.line} should be explained: {validator.report()}")


def measure(engines: int, count: int, rounds: int) -> float:
    """Measure and print; events a second, from lines to the verdict."""
    lines = list(trace(engines, count))
    first = lines[: 3 * len(list(publication(1, engines)))]
    validators: list[Validator] = []
    ready = seconds(lambda: validators.append(Validator(engines)))
    cold = seconds(lambda: validated(validators[0], first))
    whole, ratio, reading = [], [], []
    for _ in range(rounds):
        parsing = seconds(lambda: [json.loads(line) for line in lines])
        reading.append(len(lines) / seconds(lambda: list(read(lines))))
        took = seconds(lambda: validated(validators[0], lines))
        whole.append(len(lines) / took)
        ratio.append(took / parsing)
    rate = Spread.of(whole)
    print(f"{engines} engines, {len(lines):,} events, {rounds} rounds; median (quartiles)")
    print(f"  lines read, a second           {Spread.of(reading).text()}")
    print(f"  lines read and validated       {rate.text()}")
    print(f"  the same, json.loads being 1   {Spread.of(ratio).text(2)}")
    print(f"  cold: ready in {ready:.2f} s, then {len(first)} events in {cold:.2f} s")
    return rate.median


def main() -> int:
    """Measure every number of engines."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validate", description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    slow = [n for n in options.engines if measure(n, options.events, max(2, options.rounds)) < GOAL]
    for engines in slow:
        print(f"failed: {engines} engines: fewer than {GOAL:,} events a second")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
