"""What a proof found, for people and for programs: text, Markdown, JSON.

The JSON is `ProofJson`. `format` names the shape and `version` its revision: a field may be added within a version, and
none is removed or given another meaning.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from model_check.explore import Counterexample
from model_check.prove.induction import Discharge, Outcome, Proof
from model_check.prove.prover import Answer
from model_check.prove.tell import tell_step
from model_check.report import StoryJson, story_json
from model_check.story import Story, as_text, lines, tell
from spec.lang.nodes import IndexSort, NaturalSort

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
"""Columns of text that goes to no terminal."""
PLURALS = {
    "property": "properties",
    "step property": "step properties",
    "lemma": "lemmas",
    "dead end": "dead ends",
    "refinement": "refinement",
}
STYLES = {Answer.HOLDS: "green", Answer.VIOLATED: "bold red", Answer.UNKNOWN: "yellow"}


@dataclass(frozen=True)
class Report:
    """A proof, and the shortest run in which exploration shows the same mistake, where there is one to show.

    `each`: tell every obligation, and not only every claim.
    """

    proof: Proof
    explored: Counterexample | None = None
    each: bool = False


# In a sentence


def conclusion(proof: Proof) -> str:
    """Verdict, counts and time, in one line."""
    name = proof.theory.protocol.name
    tried = [d for d in proof.discharges if not d.frame]
    amount = f"{len(proof.discharges):,} obligations, {len(proof.discharges) - len(tried):,} of them by frame alone"
    counts = Counter(o.answer for o in proof.outcomes if o.claim not in proof.theory.bounded_only)
    match proof.answer:
        case Answer.HOLDS:
            verdict = f"{counts[Answer.HOLDS]} claims hold for any number of {_sorts(proof)}"
        case Answer.VIOLATED:
            verdict = f"violated: {', '.join(o.claim for o in proof.outcomes if o.answer is Answer.VIOLATED)}"
        case _:
            verdict = f"unknown: {counts[Answer.UNKNOWN]} of {len(proof.outcomes)} claims are not proved"
    return f"{name}: {verdict}; {amount}; {proof.seconds:.1f} s{'; interrupted' if proof.interrupted else ''}"


def _sorts(proof: Proof) -> str:
    names = [s.name for s in proof.theory.protocol.sorts if isinstance(s, IndexSort | NaturalSort)]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names or ["elements"])


def broken(proof: Proof) -> Iterator[tuple[Discharge, Story]]:
    """Of every claim that is violated, the first obligation that is broken, with its story."""
    seen = set()
    for discharge in proof.discharges:
        if discharge.answer is Answer.VIOLATED and discharge.claim not in seen:
            seen.add(discharge.claim)
            yield discharge, tell_step(proof.theory, discharge)


# JSON


class ObligationJson(TypedDict):
    """One obligation. `frame`: the action writes nothing that the claim reads. `effort` is in z3's units of work."""

    claim: str
    action: str
    verdict: str
    assumed: list[str]
    frame: bool
    effort: int
    seconds: float
    reason: str
    story: StoryText | None


class StoryText(TypedDict):
    """The step that breaks an obligation: the state before it, by field, and the whole in words."""

    sizes: dict[str, int]
    before: dict[str, str]
    text: str


class ClaimJson(TypedDict):
    """One claim. `kind` is as in `Theory.kind`. `verdict`: holds, violated or unknown."""

    name: str
    kind: str
    doc: str
    verdict: str
    rests_on: list[str]
    bounded_only: bool
    seconds: float
    reason: str


class ProofJson(TypedDict):
    """A proof; `explored` is the same mistake as a run from a first state, where it was looked for and found."""

    format: str
    version: int
    protocol: str
    verdict: str
    complete: bool
    seconds: float
    claims: list[ClaimJson]
    obligations: list[ObligationJson]
    explored: StoryJson | None


def proof_json(report: Report) -> ProofJson:
    """The report as one JSON document."""
    proof = report.proof
    return ProofJson(
        format="reef-ref.proof",
        version=1,
        protocol=proof.theory.protocol.name,
        verdict=proof.answer.value,
        complete=not proof.interrupted,
        seconds=round(proof.seconds, 3),
        claims=[_claim_json(proof, o) for o in proof.outcomes],
        obligations=[_obligation_json(proof, d) for d in proof.discharges],
        explored=story_json(report.explored) if report.explored else None,
    )


def _claim_json(proof: Proof, outcome: Outcome) -> ClaimJson:
    return ClaimJson(
        name=outcome.claim,
        kind=outcome.kind,
        doc=outcome.doc,
        verdict=outcome.answer.value,
        rests_on=list(outcome.rests_on),
        bounded_only=outcome.claim in proof.theory.bounded_only,
        seconds=round(outcome.seconds, 3),
        reason=outcome.reason,
    )


def _obligation_json(proof: Proof, discharge: Discharge) -> ObligationJson:
    story = None
    if discharge.step is not None:
        told = tell_step(proof.theory, discharge)
        story = StoryText(sizes=dict(discharge.step.sizes), before=dict(told.setting), text=as_text(told, WIDTH))
    return ObligationJson(
        claim=discharge.claim,
        action=discharge.action,
        verdict=discharge.answer.value,
        assumed=list(discharge.assumed),
        frame=discharge.frame,
        effort=discharge.effort,
        seconds=round(discharge.seconds, 3),
        reason=discharge.reason,
        story=story,
    )


def as_json(reports: Sequence[Report]) -> str:
    """One document, or a list of them where several protocols were asked for."""
    documents: list[Any] = [proof_json(report) for report in reports]
    return json.dumps(documents[0] if len(documents) == 1 else documents, indent=2, ensure_ascii=False) + "\n"


# Tables

HEAD = ("verdict", "claim", "obligations", "rests on")
HEAD_EACH = ("verdict", "claim", "action", "effort", "rests on")


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    proof = report.proof
    if report.each:
        for d in proof.discharges:
            yield d.answer.value, d.claim, d.action, "frame" if d.frame else f"{d.effort:,}", _names(d.assumed, d.claim)
        return
    count = Counter(d.claim for d in proof.discharges)
    for o in proof.outcomes:
        yield o.answer.value, o.claim, str(count[o.claim]), o.reason or _names(o.rests_on, o.claim) or "itself alone"


def _names(names: Sequence[str], claim: str) -> str:
    return ", ".join(name for name in names if name != claim)


def _explored_only(proof: Proof) -> Iterator[tuple[str, str]]:
    """What is not proved here, and why."""
    yield from proof.theory.bounded_only.items()
    for name in proof.theory.protocol.recoveries:
        yield name, "says what can be reached, and not what is always true"
    for name in proof.theory.protocol.eventualities:
        yield name, "says what happens in the end, and not what is always true"


# Text


def as_text_report(reports: Sequence[Report]) -> str:
    """The reports as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False)
    show(reports, console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def show(reports: Sequence[Report], console: Console) -> None:
    """Print the reports."""
    for number, report in enumerate(reports):
        if number:
            console.print()
        _show(report, console)


def _show(report: Report, console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    head = HEAD_EACH if report.each else HEAD
    table = Table(*head, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for column in table.columns[:-1]:
        column.no_wrap = True
    styles = {answer.value: style for answer, style in STYLES.items()}
    rows = list(_rows(report))
    for kind, plural in PLURALS.items():
        own = [row for row in rows if report.proof.theory.kind(row[1]) == kind]
        if own:
            table.add_row("", Text(plural, style="dim"))
        for verdict, *rest in own:
            table.add_row(Text(verdict, style=styles[verdict]), *map(Text, rest))
    console.print(table)
    left = list(_explored_only(report.proof))
    if left:
        console.print("\nOnly explored, in worlds of a scope\n", markup=False)
        for name, why in left:
            console.print(f"  {name}: {why}", markup=False)
    for story in _stories(report):
        console.print()
        for line in lines(story, min(console.width, 120)):
            console.print(Text.assemble(*line), soft_wrap=True)
    console.print()
    console.print(conclusion(report.proof), markup=False)


def _stories(report: Report) -> Iterator[Story]:
    yield from (story for _, story in broken(report.proof))
    if report.explored is not None:
        yield tell(report.explored)


# Markdown


def as_markdown(reports: Sequence[Report]) -> str:
    """The reports for a summary of CI."""
    return "\n".join(_markdown(report) for report in reports)


def _markdown(report: Report) -> str:
    head = HEAD_EACH if report.each else HEAD
    rows = [head, tuple("---" for _ in head), *_rows(report)]
    out = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    if left := list(_explored_only(report.proof)):
        out += ["", "Only explored, in worlds of a scope:", "", *(f"- `{name}`: {why}" for name, why in left)]
    for story in _stories(report):
        out += ["", "```text", as_text(story, WIDTH).rstrip(), "```"]
    return "\n".join([*out, "", f"{conclusion(report.proof)}."]) + "\n"


WRITERS = {"text": as_text_report, "json": as_json, "markdown": as_markdown}
"""How reports are written, by the name of the format."""
