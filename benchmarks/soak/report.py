"""What a soak says at its end."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from benchmarks.soak.memory import Growth
from benchmarks.soak.run import Soaked
from benchmarks.spread import Spread

__all__ = ["LEAST_S", "MOST_PER_HOUR", "as_markdown", "as_table", "judged"]

MOST_PER_HOUR = 32.0
"""MiB that a process may gain in an hour, by the lower quartile of its slopes."""
LEAST_S = 1200.0
"""Seconds below which a slope says nothing: a process is still getting going."""


def judged(found: Soaked) -> list[str]:
    """What is not as it must be."""
    wrong = list(found.wrong)
    if found.requests.answered == 0:
        wrong.append("no request was answered")
    if found.publications == 0:
        wrong.append("nothing was published")
    if found.seconds >= LEAST_S:
        for name, growth in found.memory.items():
            if growth is None or growth.per_hour is None:
                wrong.append(f"the memory of {name} was never measured")
            elif growth.per_hour.lower > MOST_PER_HOUR:
                wrong.append(f"{name} grows by {growth.per_hour.text(1)} MiB an hour")
    return wrong


def as_table(found: Soaked) -> Table:
    """All of it."""
    how = ", interrupted" if found.interrupted else ""
    table = Table("what", "figure", title=f"{found.seconds:.0f} s{how}")
    for what, figure in _rows(found):
        table.add_row(what, figure)
    return table


def _rows(found: Soaked) -> Iterator[tuple[str, str]]:
    tally = found.requests
    yield "requests answered", f"{tally.answered:,}"
    yield "  and right, token for token", f"{tally.right:,}"
    yield "  by several loads, or while something was injected", f"{tally.aside:,}"
    yield "  wrong", f"{tally.wrong:,}"
    yield "prompt tokens that were reused", f"{tally.reused:,} of {tally.prompt:,}"
    failed = ", ".join(f"{count} {name}" for name, count in tally.failed.most_common())
    yield "requests that failed with an error", failed or "0"
    yield "requests lost", f"{tally.lost:,}"
    yield "publications", f"{found.publications:,}"
    yield "tries that one needed at most", f"{found.attempts + 1}"
    for name, count in sorted(found.survived.items()):
        yield f"survived: {name}", str(count)
    told = ", ".join(f"{count} {name}" for name, count in found.failures.items())
    yield "coordinator's operations that failed", told or "0"
    yield "false alarms", str(len(found.false_alarms))
    yield "violations injected", str(len(found.injected))
    yield "  missed", str(sum(one.property is None for one in found.injected))
    seconds = [one.seconds for one in found.injected if one.property is not None]
    if len(seconds) > 1:
        yield "  seconds to the monitor's line", Spread.of(seconds).text(2)
    for name, growth in found.memory.items():
        yield f"memory of {name}", _growth(growth)


def _growth(growth: Growth | None) -> str:
    if growth is None:
        return "not measured for long enough"
    here = f"{growth.first:.1f} to {growth.last:.1f} MiB"
    if growth.per_hour is None:
        return here
    return f"{here}; {growth.per_hour.text(1)} MiB an hour"


def as_markdown(found: Soaked, minutes: float, seed: int) -> str:
    """The README's section."""
    head = f"`python -m benchmarks.soak --minutes {minutes:g} --seed {seed}`: {len(judged(found))} things amiss."
    rows = "\n".join(f"| {what.strip()} | {figure} |" for what, figure in _rows(found))
    return f"{head}\n\n| | |\n|---|---|\n{rows}"
