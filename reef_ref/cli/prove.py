"""`reef-ref prove`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from model_check.explore import Counterexample, MemoryShort, explore
from model_check.prove.induction import Proof, prove
from model_check.prove.prover import Answer, Limits
from model_check.prove.report import WRITERS, Report, conclusion, show
from model_check.prove.theory import Theory
from reef_ref.cli.catalogue import (
    PROTOCOLS,
    build_mutant,
    find_mutant,
    find_protocol,
    known_lemmas,
    known_scopes,
)
from reef_ref.cli.check import processors
from reef_ref.cli.output import check_writable, display, status, write
from reef_ref.cli.trouble import Status, Trouble, unknown
from spec.lang import Protocol
from spec.refinement import REFINEMENTS

STATUS = {Answer.HOLDS: Status.HOLDS, Answer.VIOLATED: Status.VIOLATED, Answer.UNKNOWN: Status.UNDETERMINED}
PROCESSES = 2


def run_prove(
    protocol: str,
    *,
    everything: bool,
    mutant: str | None,
    only: Collection[str] | None,
    each: bool,
    workers: int | None,
    max_seconds: float,
    report_format: str,
    output: Path | None,
) -> Status:
    """Prove, report, and answer the status of the worst verdict."""
    check_writable(output)
    names = list(PROTOCOLS) if everything else [protocol]
    if everything and (mutant or only):
        raise Trouble("--all takes neither --mutant nor --property, which belong to one protocol")
    for name in names:
        check_claims(name, mutant, only)
    reports: list[Report] = []
    for name in names:
        proof = _prove(name, mutant, only, Limits(seconds=max_seconds), workers or min(PROCESSES, processors()))
        explored = _explored(name, mutant) if mutant and proof.answer is not Answer.HOLDS else None
        reports.append(Report(proof, explored, each))
        if proof.interrupted:
            break
    _deliver(reports, report_format, output)
    answers = [report.proof.answer for report in reports]
    return max((STATUS[a] for a in answers), key=[Status.HOLDS, Status.UNDETERMINED, Status.VIOLATED].index)


def check_claims(protocol: str, mutant: str | None, only: Collection[str] | None) -> None:
    """Refuse names that nothing has.

    Raises:
        Trouble: what is wrong with them.
    """
    theory = theory_of(protocol, mutant)
    for name in only or ():
        if name in theory.protocol.recoveries:
            raise Trouble(f"{name} says what can be reached: it is explored, with 'check', and not proved by induction")
        if name in theory.protocol.eventualities:
            raise Trouble(
                f"{name} says what happens in the end: that is explored, with 'liveness', and not proved here"
            )
        if name not in theory.claims:
            raise unknown("property", name, theory.claims, theory.protocol.name)


def theory_of(protocol: str, mutant: str | None) -> Theory:
    """A protocol by its name, or a mutant of it, with the lemmas of the protocol and the ideal that it refines."""
    found = find_protocol(protocol) if mutant is None else build_mutant(find_mutant(protocol, mutant))
    return Theory.of(found, known_lemmas(protocol), REFINEMENTS.get(protocol))


def _prove(name: str, mutant: str | None, only: Collection[str] | None, limits: Limits, workers: int) -> Proof:
    told = f"{name}:{mutant}" if mutant else name
    with status(f"proving {told}") as update:

        def tick(done: int, total: int, last: str) -> None:
            if update is not None:
                update(f"{done} of {total} claims of {told}; last: {last}")

        try:
            return prove(partial(theory_of, name, mutant), claims=only, limits=limits, workers=workers, progress=tick)
        except KeyboardInterrupt:
            raise Trouble(f"undetermined: interrupted before {told} was ready", Status.UNDETERMINED) from None
        except BrokenProcessPool:
            raise Trouble(
                f"undetermined: a process that proved {told} was killed, perhaps for memory; try --workers 1",
                Status.UNDETERMINED,
            ) from None


def _explored(name: str, mutant: str) -> Counterexample | None:
    """The shortest run in which the mutant breaks what it says that it breaks, in the first of its named worlds."""
    scope = next(iter(known_scopes(name).values()), None)
    if scope is None:
        return None
    wrong = find_mutant(name, mutant)
    built: Protocol = build_mutant(wrong)
    try:
        return explore(built, scope, only=[wrong.breaks], workers=processors()).counterexample
    except MemoryShort:
        return None


def _deliver(reports: Sequence[Report], report_format: str, output: Path | None) -> None:
    if output is not None:
        write(output, WRITERS[report_format](reports))
        told = "; ".join(conclusion(report.proof) for report in reports)
        print(f"reef-ref: {told}; the report is in {output}", file=sys.stderr)
    elif report_format == "text":
        display(partial(show, reports))
    else:
        sys.stdout.write(WRITERS[report_format](reports))


__all__ = ["run_prove", "theory_of"]
