"""How many events a second are validated: ``python -m benchmarks.validate [--engines 2] [--events 200000]``.

The trace is one deployment that publishes again and again, with a request on every engine in between. The first
publications are slower, because what the protocol can do is learned then; both are given.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from model_check.explain import Verdict
from reef_ref import events
from reef_ref.monitor.validate import Numbered, Validator, read


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


def validated(validator: Validator, numbered: list[Numbered]) -> float:
    """Events a second, from events to verdict."""
    began = time.perf_counter()
    for one in numbered:
        if validator.feed(one.event, one.line) is not Verdict.EXPLAINED:
            raise SystemExit(f"line {one.line} should be explained: {validator.report()}")
    return len(numbered) / (time.perf_counter() - began)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=2)
    parser.add_argument("--events", type=int, default=200_000)
    options = parser.parse_args()
    lines = list(trace(options.engines, options.events))
    began = time.perf_counter()
    validator = Validator(options.engines)
    ready = time.perf_counter() - began
    first = 4 * len(list(publication(1, options.engines)))
    began = time.perf_counter()
    numbered = list(read(lines))
    reading = len(lines) / (time.perf_counter() - began)
    cold, warm = validated(validator, numbered[:first]), validated(validator, numbered[first:])
    both = 1 / (1 / reading + 1 / warm)
    print(f"{options.engines} engines, {len(lines):,} events; ready in {ready:.2f} s")
    print(f"first {first:,} events: {cold:,.0f} a second; then {warm:,.0f} a second")
    print(f"reading lines: {reading:,.0f} a second; reading and validating: {both:,.0f}")


if __name__ == "__main__":
    main()
