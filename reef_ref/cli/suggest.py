"""`reef-ref prove --suggest`: lemmas that would close a proof."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from model_check.prove.induction import prove
from model_check.prove.prover import Answer, Limits
from model_check.prove.suggest import Suggestion, suggest
from model_check.prove.theory import Theory
from reef_ref.cli.catalogue import find_scope
from reef_ref.cli.output import check_writable, status
from reef_ref.cli.prove import check_claims, theory_of
from reef_ref.cli.table import Report, deliver
from reef_ref.cli.trouble import Status, Trouble, unknown


def run_suggest(
    protocol: str,
    scope: str,
    *,
    mutant: str | None,
    only: Collection[str] | None,
    without: Collection[str],
    max_seconds: float,
    report_format: str,
    output: Path | None,
) -> Status:
    """Look for lemmas, report them, and answer 0 where every proof is closed."""
    check_writable(output)
    check_claims(protocol, mutant, only)
    whole = theory_of(protocol, mutant)
    for name in without:
        if name not in whole.lemmas:
            raise unknown("lemma", name, sorted(whole.lemmas), protocol)
    theory, world, limits = (
        whole.without(without),
        find_scope(protocol, scope, whole.protocol),
        Limits(seconds=max_seconds),
    )
    found: list[Suggestion] = []
    try:
        with status(f"proving {protocol}") as update:
            for claim in only or _open(theory, limits):
                tell = None if update is None else partial(_tell, update, claim)
                found.append(suggest(theory, claim, world, limits=limits, progress=tell))
    except KeyboardInterrupt:
        raise Trouble(f"undetermined: interrupted after {len(found)} suggestions", Status.UNDETERMINED) from None
    closed = [s.claim for s in found if s.closed]
    deliver(
        Report(
            head=("claim", "lemma", "demanded by"),
            rows=tuple(row for s in found for row in _rows(s)),
            summary=_summary(protocol, scope, found),
            shown=3,
            document={
                "format": "reef-ref.suggestions",
                "version": 1,
                "protocol": protocol,
                "scope": scope,
                "without": list(without),
                "suggestions": [_document(s) for s in found],
            },
        ),
        report_format,
        output,
    )
    return Status.HOLDS if len(closed) == len(found) else Status.UNDETERMINED


def _tell(update: Callable[[str], None], claim: str, text: str) -> None:
    update(f"{claim}: {text}")


def _open(theory: Theory, limits: Limits) -> list[str]:
    """The claims whose own obligations are not all proved."""
    proof = prove(lambda: theory, limits=limits)
    return [c for c in theory.claims if any(d.claim == c and d.answer is not Answer.HOLDS for d in proof.discharges)]


def _rows(found: Suggestion) -> Iterator[tuple[str, str, str]]:
    if not found.closed:
        claim, action = (found.open or (found.claim, ""))[:2]
        yield found.claim, "none that was tried closes the proof", f"{action or 'a larger world'}, which breaks {claim}"
        return
    for lemma in found.lemmas:
        yield found.claim, f"{lemma.name}: {lemma.text}", f"{lemma.action}, which breaks {lemma.claim}"
    if not found.lemmas:
        yield found.claim, "none is missing", ""


def _summary(protocol: str, scope: str, found: Sequence[Suggestion]) -> str:
    if not found:
        return f"{protocol}: every claim is proved, and nothing is missing"
    closed = [s for s in found if s.closed]
    rests = dict.fromkeys(name for s in closed for name in s.rests_on)
    also = f"; they rest also on {', '.join(rests)}" if rests else ""
    states = f"{found[0].states:,} states of {scope}"
    return f"{protocol}: {len(closed)} of {len(found)} proofs closed by what {states} have in common{also}"


def _document(found: Suggestion) -> dict[str, object]:
    return {
        "claim": found.claim,
        "closed": found.closed,
        "lemmas": [asdict(lemma) for lemma in found.lemmas],
        "rests_on": list(found.rests_on),
        "states": found.states,
        "open": list(found.open[:2]) if found.open else None,
    }


__all__ = ["run_suggest"]
