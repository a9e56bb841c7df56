"""`reef-ref refine`: is what a protocol does, seen from outside, what its ideal does?"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_check.explore import MemoryShort, Verdict
from model_check.refine import Refined, refine
from model_check.story import as_text as story_text
from model_check.story import lines, world
from reef_ref.cli.catalogue import build_mutant, find_mutant, find_protocol, find_scope
from reef_ref.cli.check import STATUS, processors
from reef_ref.cli.output import check_writable, display, plain, progress, write
from reef_ref.cli.trouble import Status, Trouble, unknown
from spec.lang import Misuse
from spec.refinement import REFINEMENTS

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1


def run_refine(
    protocol: str,
    scope: str,
    *,
    everything: bool,
    mutant: str | None,
    workers: int | None,
    max_seconds: float | None,
    report_format: str,
    output: Path | None,
) -> Status:
    """Judge one refinement or all, report, and answer the status of the worst verdict."""
    check_writable(output)
    if everything and mutant:
        raise Trouble("--all takes no --mutant, which belongs to one protocol")
    names = list(REFINEMENTS) if everything else [protocol]
    for name in names:
        if name not in REFINEMENTS:
            raise unknown("refinement", name, REFINEMENTS)
    found: list[Refined] = []
    for name in names:
        try:
            found.append(_refined(name, scope, mutant, workers or processors(), max_seconds))
        except KeyboardInterrupt:
            if not found:
                raise Trouble(f"undetermined: interrupted before {name} was ready", Status.UNDETERMINED) from None
            break  # What was found before is not lost.
        if found[-1].reason == "interrupted":
            break
    _deliver(found, report_format, output)
    statuses = [STATUS[one.verdict] for one in found]
    if len(found) < len(names):
        statuses.append(Status.UNDETERMINED)
        print(f"reef-ref: undetermined: interrupted before {names[len(found)]} was judged", file=sys.stderr)
    return max(statuses, key=[Status.HOLDS, Status.UNDETERMINED, Status.VIOLATED].index)


def _refined(name: str, scope: str, mutant: str | None, workers: int, max_seconds: float | None) -> Refined:
    protocol = find_protocol(name)
    world_ = find_scope(name, scope, protocol)
    wrong = None if mutant is None else build_mutant(find_mutant(name, mutant))
    refinement = REFINEMENTS[name]
    try:
        with progress(f"getting {refinement.name} ready for scope {world_.name}") as update:
            return refine(refinement, world_, detailed=wrong, workers=workers, max_seconds=max_seconds, progress=update)
    except Misuse as error:
        raise Trouble(str(error)) from error
    except MemoryShort as error:
        raise Trouble(
            f"undetermined: {name} in scope {world_.name} does not fit in memory: {error}; a smaller scope may",
            Status.UNDETERMINED,
        ) from error


# Reports


def _deliver(found: Sequence[Refined], report_format: str, output: Path | None) -> None:
    text = _document(found) if report_format == "json" else plain(partial(_show, found))
    if output is not None:
        write(output, text)
        print(f"reef-ref: {_conclusion(found)}; the report is in {output}", file=sys.stderr)
    elif report_format == "json":
        sys.stdout.write(text)
    else:
        display(partial(_show, found))


def _conclusion(found: Sequence[Refined]) -> str:
    return "; ".join(f"{one.name}: {_verdict(one)}" for one in found)


def _verdict(one: Refined) -> str:
    return one.verdict.value if one.verdict is Verdict.HOLDS else f"{one.verdict.value}: {one.reason}"


def _document(found: Sequence[Refined]) -> str:
    document = {"format": "reef-ref.refine", "version": VERSION, "refinements": [_json(one) for one in found]}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _json(one: Refined) -> dict[str, Any]:
    explored, scope = one.explored, one.explored.scope
    return {
        "detailed": one.detailed,
        "ideal": one.ideal,
        "scope": {"name": scope.name, "sizes": dict(scope.sizes), "faults": scope.faults},
        "verdict": one.verdict.value,
        "reason": one.reason,
        "states": explored.states,
        "steps": explored.steps,
        "depth": explored.depth,
        "seconds": round(explored.seconds, 3),
        "taken": dict(one.taken),
        "story": None if one.story is None else {**asdict(one.story), "text": story_text(one.story)},
    }


def _show(found: Sequence[Refined], console: Console) -> None:
    from rich.text import Text

    for one in found:
        for line in _lines(one, min(console.width, 120)):
            console.print(Text.assemble(*line), soft_wrap=True)
        console.print()


def _lines(one: Refined, width: int) -> Iterator[tuple[tuple[str, str], ...]]:
    explored = one.explored
    yield ((one.name, "bold"), (f", in scope {world(explored.scope)}", ""))
    yield ((f"  {explored.states:,} states, {explored.steps:,} steps, depth {explored.depth}", ""),)
    if one.taken:
        yield (("  Every step is one of the ideal's, or changes nothing that it knows.", ""),)
        yield (("  Each of the ideal's is taken first after so many steps:", ""),)
        yield ((f"    {_taken(one)}", ""),)
    if one.story is not None:
        yield ()
        yield from lines(one.story, width)
        yield ()
    yield ((_verdict(one), "green" if one.verdict is Verdict.HOLDS else "bold red"),)


def _taken(one: Refined) -> str:
    return ", ".join(f"{name} {'never' if steps is None else steps}" for name, steps in one.taken.items())


__all__ = ["run_refine"]
