"""`reef-ref mutants`: which property kills each wrong protocol, and which parts of the right one nobody misses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_check.pool import pooled
from reef_ref.cli.catalogue import build_mutant, find_mutant, find_protocol, find_scope, known_mutants
from reef_ref.cli.check import processors
from reef_ref.cli.cluster import spread
from reef_ref.cli.output import check_writable, status
from reef_ref.cli.table import Report, deliver
from reef_ref.cli.trouble import Status, Trouble, unknown

if TYPE_CHECKING:
    from model_check.mutate import Change

PROCESSES = 2


@dataclass(frozen=True)
class Kill:
    """What became of one mutant.

    `by` is the first claim that it violates, after `steps` steps; `breaks` is the one that it names, which it violates
    after `named_steps` steps. Empty and none: it does not. Of a run that never ends, its loop is counted once.
    `verdict` is of the whole exploration.
    """

    mutant: str
    report: tuple[str, ...]
    breaks: str
    verdict: str
    by: str
    steps: int | None
    named_steps: int | None
    reason: str

    @property
    def fate(self) -> str:
        """In words: killed as named, killed by another, survived, undetermined."""
        if self.named_steps is not None:
            return "killed"
        if self.by:
            return "killed by another"
        return "survived" if self.verdict == "holds" else "undetermined"


@dataclass(frozen=True)
class Cell:
    """One mutant of one protocol in one scope, all by name."""

    protocol: str
    scope: str
    mutant: str


def run_mutants(
    protocols: Sequence[str],
    scopes: Sequence[str],
    *,
    names: Sequence[str] | None,
    max_seconds: float,
    ray: bool,
    report_format: str,
    output: Path | None,
) -> Status:
    """Explore the mutants of every protocol in every scope, in two processes or wherever Ray has some.

    Answers 0 where each is killed by the claim that it names.
    """
    check_writable(output)
    cells = matrix(protocols, scopes, names)
    title = f"{len(cells)} mutants of {', '.join(protocols)} at {', '.join(scopes)}"
    kills: dict[Cell, Kill] = {}
    with status(f"exploring {title}") as update:
        for cell, kill in _explored(cells, max_seconds, ray=ray):
            kills[cell] = kill
            if update is not None:
                update(f"{len(kills)} of {title}; last: {kill.mutant}, {kill.fate}")
    found = {cell: kills[cell] for cell in cells if cell in kills}
    deliver(_report(found, title, len(cells) - len(found)), report_format, output)
    fates = {kill.fate for kill in found.values()}
    if fates & {"survived", "killed by another"}:
        return Status.VIOLATED
    return Status.HOLDS if len(found) == len(cells) and "undetermined" not in fates else Status.UNDETERMINED


def matrix(protocols: Sequence[str], scopes: Sequence[str], names: Sequence[str] | None) -> list[Cell]:
    """Every mutant, or those of some names, of every protocol in every scope.

    Raises:
        Trouble: one of the names is unknown, or a mutant cannot be built.
    """
    known = {protocol: known_mutants(protocol) for protocol in protocols}
    for protocol in protocols:
        for scope in scopes:
            find_scope(protocol, scope, find_protocol(protocol))
    for name in names or ():
        if not any(name in mutants for mutants in known.values()):
            raise unknown("mutant", name, [n for mutants in known.values() for n in mutants], ", ".join(protocols))
    chosen = {protocol: [n for n in names or mutants if n in mutants] for protocol, mutants in known.items()}
    for protocol, mutants in chosen.items():
        if not known[protocol]:
            raise Trouble(f"{protocol} has no mutants")
        for name in mutants:
            build_mutant(known[protocol][name])
    return [Cell(protocol, scope, name) for protocol in protocols for scope in scopes for name in chosen[protocol]]


def _explored(cells: Sequence[Cell], max_seconds: float, *, ray: bool) -> Iterator[tuple[Cell, Kill]]:
    """The mutants as they are done; fewer than were asked for where it was interrupted."""
    calls = [(cell.protocol, cell.scope, cell.mutant, max_seconds) for cell in cells]
    try:
        for number, kill in spread(kill_mutant, calls) if ray else _in_processes(calls):
            yield cells[number], kill
    except KeyboardInterrupt:
        return


def _in_processes(calls: Sequence[tuple[str, str, str, float]]) -> Iterator[tuple[int, Kill]]:
    try:
        yield from pooled(kill_mutant, calls, None if len(calls) == 1 else min(PROCESSES, processors()))
    except BrokenProcessPool:
        raise Trouble(
            "undetermined: a process that explored mutants was killed, perhaps for memory; try a smaller --scope",
            Status.UNDETERMINED,
        ) from None


def kill_mutant(protocol: str, scope: str, name: str, max_seconds: float) -> Kill:
    """Explore one mutant; where the first claim to notice is not the one it names, look for that one too."""
    from model_check.explore import MemoryShort, Verdict, explore
    from model_check.liveness import judge

    world = find_scope(protocol, scope, find_protocol(protocol))
    mutant = find_mutant(protocol, name)
    wrong = build_mutant(mutant)
    try:
        first = explore(wrong, world, workers=1, max_seconds=max_seconds)
        found = first.counterexample
        named = found if found and found.claim == mutant.breaks else None
        if mutant.breaks in wrong.eventualities:
            last = judge(wrong, world, workers=1, max_seconds=max_seconds, only=[mutant.breaks])
            named = last.counterexample
            first, found = (first, found) if found else (last, named)
        elif found and not named:
            named = explore(wrong, world, workers=1, max_seconds=max_seconds, only=[mutant.breaks]).counterexample
    except MemoryShort as error:
        return Kill(name, mutant.report, mutant.breaks, Verdict.UNDETERMINED.value, "", None, None, str(error))
    return Kill(
        mutant=name,
        report=mutant.report,
        breaks=mutant.breaks,
        verdict=first.verdict.value,
        by=found.claim if found else "",
        steps=found.steps if found else None,
        named_steps=named.steps if named else None,
        reason=first.reason,
    )


# Reports


def _report(kills: Mapping[Cell, Kill], title: str, missing: int) -> Report:
    fates = [kill.fate for kill in kills.values()]
    counts = [f"{fates.count(fate)} {fate}" for fate in dict.fromkeys(fates)]
    if missing:
        counts.append(f"{missing} not explored: interrupted")
    several = len({(cell.protocol, cell.scope) for cell in kills}) > 1
    return Report(
        head=("fate", "mutant", "noticed by the claim it names, in steps", "reports"),
        rows=tuple(
            (kill.fate, _placed(cell) if several else cell.mutant, _noticed(kill), ", ".join(kill.report))
            for cell, kill in kills.items()
        ),
        summary=f"{title}: {', '.join(counts)}",
        shown=3,
        document={
            "format": "reef-ref.mutants",
            "version": 1,
            "title": title,
            "complete": not missing,
            "mutants": [{**asdict(cell), **asdict(kill), "fate": kill.fate} for cell, kill in kills.items()],
        },
    )


def _placed(cell: Cell) -> str:
    return f"{cell.protocol}:{cell.mutant} at {cell.scope}"


def _noticed(kill: Kill) -> str:
    """By which property, in how many steps; where another notices first or instead, that one too."""
    if not kill.by:
        return kill.reason
    other = f"{kill.by}, {kill.steps}"
    if kill.named_steps is None:
        return f"not by {kill.breaks}\nbut by {other}"
    named = f"{kill.breaks}, {kill.named_steps}"
    return named if kill.by == kill.breaks else f"{named}\nfirst by {other}"


# Survivors


def run_survivors(protocol: str, scope: str, *, report_format: str, output: Path | None) -> Status:
    """Drop every part of every action in turn, and answer 0 where each is missed."""
    from model_check.explore import MemoryShort
    from model_check.mutate import Fate, mutate

    check_writable(output)
    found = find_protocol(protocol)
    world = find_scope(protocol, scope, found)
    changes: list[Change] = []
    interrupted = False
    try:
        with status(f"getting {protocol} ready, with a switch for each part") as update:

            def tick(done: int, total: int) -> None:
                if update is not None:
                    update(f"dropped {done} of {total} parts of {protocol}")

            changes.extend(mutate(found, world, workers=processors(), progress=tick))
    except KeyboardInterrupt:
        interrupted = True
    except MemoryShort as error:
        raise Trouble(f"undetermined: does not fit in memory: {error}", Status.UNDETERMINED) from error
    except ValueError as error:
        raise Trouble(str(error)) from error
    fates = [change.fate for change in changes]
    counts = [f"{fates.count(fate)} {fate.value}" for fate in Fate if fate in fates]
    if interrupted:
        counts.append("interrupted before the rest")
    left = [change for change in changes if change.fate is not Fate.KILLED]
    deliver(
        Report(
            head=("fate", "part", "dropped"),
            rows=tuple((c.fate.value, c.name, c.text) for c in left),
            summary=f"{len(changes)} parts of {protocol} dropped in turn at {scope}: {', '.join(counts)}",
            shown=3,
            document={
                "format": "reef-ref.survivors",
                "version": 1,
                "protocol": protocol,
                "scope": scope,
                "complete": not interrupted,
                "changes": [{**asdict(c), "fate": c.fate.value, "name": c.name} for c in changes],
            },
        ),
        report_format,
        output,
    )
    if Fate.SURVIVED in fates:
        return Status.VIOLATED
    return Status.UNDETERMINED if interrupted or Fate.UNDETERMINED in fates else Status.HOLDS


__all__ = ["Kill", "kill_mutant", "run_mutants", "run_survivors"]
