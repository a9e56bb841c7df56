"""What an exploration or a simulation found, for people, for programs and for CI: text, JSON, JUnit XML, Markdown.

*Undetermined* is never shown as passed: JUnit counts it as an error.

The JSON of an exploration is `ExplorationJson`, that of a simulation `SimulationJson`. `format` names the shape and
`version` its revision: a field may be added within a version, and none is removed or given another meaning.
"""

from __future__ import annotations

import io
import json
import re
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict
from xml.etree import ElementTree

from model_check.diagram import as_mermaid
from model_check.explore import UNSEEN, Counterexample, Exploration, Outcome, Verdict
from model_check.itf import as_itf
from model_check.simulate import Simulation
from model_check.story import Story, bounds, first_sentence, lines, tell
from model_check.story import as_text as story_text
from spec.lang import Assumption, Scope
from spec.lang.nodes import BOOL, Const
from spec.lang.text import show as formula

if TYPE_CHECKING:
    from rich.console import Console

VERSION = 1
WIDTH = 100
"""Columns of text that goes to no terminal."""
WIDEST = 120
"""Columns that text takes at most, however wide the terminal."""
TRUE = Const(BOOL, 1)
FAULTS_END = "Faults happen finitely often: no loop has one"


# JSON


class ScopeJson(TypedDict):
    """The world: elements per index sort, the largest value per natural sort, how many faults (null: any number)."""

    name: str
    sizes: dict[str, int]
    faults: int | None
    reason: str


class ClaimJson(TypedDict):
    """One claim.

    `kind`: property, step property, recovery, eventuality, goal or dead end. `verdict`: holds, violated or
    undetermined.
    """

    name: str
    kind: str
    doc: str
    verdict: str
    note: str


class ChangeJson(TypedDict):
    """What a step changes: a part of the state, and its value before and after."""

    what: str
    before: str
    after: str


class StepJson(TypedDict):
    """One step of a story. `by` acts, `on` is acted on (empty: nothing)."""

    number: int
    by: str
    on: str
    action: str
    arguments: dict[str, str]
    words: str
    fault: bool
    changes: list[ChangeJson]


class ReasonJson(TypedDict):
    """A part of the claim that decides it in the last state, whether it is true, and the values it was judged on."""

    text: str
    holds: bool
    facts: list[str]


class KeptJson(TypedDict):
    """An action that is counted on and possible in a loop, and why the loop does not pass it over."""

    action: str
    how: str


class LoopJson(TypedDict):
    """How a run goes on for ever: the steps after the first `begins` are repeated, none if there are no more.

    After the first `since` steps something was promised that never comes.
    """

    begins: int
    since: int
    kept: list[KeptJson]


class AssumedJson(TypedDict):
    """What is counted on: fairness of some actions, weak or strong; `each` names the parameters told apart."""

    name: str
    doc: str
    strength: str
    actions: list[str]
    each: list[str]
    where: str


class StoryJson(TypedDict):
    """A run that breaks a claim: as steps, as text, as a Mermaid diagram and as an ITF trace.

    `loop` is there where the run never ends.
    """

    claim: str
    kind: str
    doc: str
    formula: str
    opening: str
    setting: dict[str, str]
    steps: list[StepJson]
    ending: dict[str, str]
    why: list[ReasonJson]
    loop: LoopJson | None
    text: str
    mermaid: str
    itf: dict[str, Any]


class ExplorationJson(TypedDict):
    """An exploration.

    `states` counts representatives where `symmetric` names sorts, `orbits` the states that they stand for (0: not
    counted). `per_depth[d]` counts states first met after `d` steps, `coverage` the steps of each action, `never` the
    actions without any, `cuts` the steps that the bound of each sort cut, `goals` the states in which each holds.
    `assumed` is what eventualities were judged under, beside that faults end.
    """

    format: str
    version: int
    protocol: str
    scope: ScopeJson
    verdict: str
    reason: str
    symmetric: list[str]
    states: int
    orbits: int
    transitions: int
    depth: int
    per_depth: list[int]
    coverage: dict[str, int]
    never: list[str]
    cuts: dict[str, int]
    goals: dict[str, int]
    claims: list[ClaimJson]
    assumed: list[AssumedJson]
    counterexample: StoryJson | None
    bits_per_state: int
    workers: int
    seconds_ready: float
    seconds: float
    bytes_grown: int
    bytes_on_disk: int


class SimulationJson(TypedDict):
    """A simulation: `verdict` is violated or undetermined, for walks prove nothing."""

    format: str
    version: int
    protocol: str
    scope: ScopeJson
    verdict: str
    reason: str
    seed: int
    walks: int
    transitions: int
    longest: int
    rested: int
    cut: int
    coverage: dict[str, int]
    never: list[str]
    goals: dict[str, int]
    judged: list[str]
    counterexample: StoryJson | None
    met_after: int
    seconds: float


def exploration_json(found: Exploration) -> ExplorationJson:
    """An exploration, ready for `json.dump`."""
    return ExplorationJson(
        format="reef-ref.exploration",
        version=VERSION,
        protocol=found.protocol,
        scope=_scope_json(found.scope),
        verdict=found.verdict.value,
        reason=found.reason,
        symmetric=list(found.symmetric),
        states=found.states,
        orbits=found.orbits,
        transitions=found.steps,
        depth=found.depth,
        per_depth=list(found.per_depth),
        coverage=dict(found.coverage),
        never=list(found.never),
        cuts=dict(found.cuts),
        goals=dict(found.goals),
        claims=[
            ClaimJson(name=o.name, kind=o.kind, doc=o.doc, verdict=o.verdict.value, note=o.note) for o in found.outcomes
        ],
        assumed=[
            AssumedJson(
                name=a.name,
                doc=a.doc,
                strength=a.strength,
                actions=list(a.actions),
                each=[var.name for var in a.params],
                where=formula(a.where),
            )
            for a in found.assumed
        ],
        counterexample=story_json(found.counterexample) if found.counterexample else None,
        bits_per_state=found.bits,
        workers=found.workers,
        seconds_ready=round(found.seconds_ready, 6),
        seconds=round(found.seconds, 6),
        bytes_grown=found.grown,
        bytes_on_disk=found.disk,
    )


def simulation_json(found: Simulation) -> SimulationJson:
    """A simulation, ready for `json.dump`."""
    return SimulationJson(
        format="reef-ref.simulation",
        version=VERSION,
        protocol=found.protocol,
        scope=_scope_json(found.scope),
        verdict=(Verdict.VIOLATED if found.violation else Verdict.UNDETERMINED).value,
        reason=found.reason or ("" if found.violation else "random walks prove nothing"),
        seed=found.seed,
        walks=found.walks,
        transitions=found.steps,
        longest=found.longest,
        rested=found.rested,
        cut=found.cut,
        coverage=dict(found.coverage),
        never=list(found.never),
        goals=dict(found.goals),
        judged=list(found.judged),
        counterexample=story_json(found.violation) if found.violation else None,
        met_after=found.met,
        seconds=round(found.seconds, 6),
    )


def story_json(counterexample: Counterexample) -> StoryJson:
    """A counterexample, ready for `json.dump`."""
    story = tell(counterexample)
    return StoryJson(
        claim=story.claim,
        kind=story.kind,
        doc=story.doc,
        formula=story.formula,
        opening=story.opening,
        setting=dict(story.setting),
        steps=[
            StepJson(
                number=step.number,
                by=step.by,
                on=step.on,
                action=step.action,
                arguments={a.name: a.value for a in step.arguments},
                words=step.words,
                fault=step.fault,
                changes=[ChangeJson(what=c.what, before=c.before, after=c.after) for c in step.changes],
            )
            for step in story.steps
        ],
        ending=dict(story.ending),
        why=[ReasonJson(text=r.text, holds=r.holds, facts=list(r.facts)) for r in story.why],
        loop=LoopJson(
            begins=story.loop.begins,
            since=story.loop.since,
            kept=[KeptJson(action=action, how=how) for action, how in story.loop.kept],
        )
        if story.loop
        else None,
        text=story_text(story, WIDTH),
        mermaid=as_mermaid(story),
        itf=as_itf(counterexample),
    )


def _scope_json(scope: Scope) -> ScopeJson:
    return ScopeJson(name=scope.name, sizes=dict(scope.sizes), faults=scope.faults, reason=scope.reason)


def as_json(found: Exploration | Simulation) -> str:
    """An exploration or a simulation as a JSON document."""
    document = exploration_json(found) if isinstance(found, Exploration) else simulation_json(found)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


# JUnit


def as_junit(found: Exploration) -> str:
    """An exploration as JUnit XML: one test case a claim; violated is a failure, undetermined an error."""
    verdicts = [outcome.verdict for outcome in found.outcomes]
    counts = {
        "tests": str(len(verdicts)),
        "failures": str(verdicts.count(Verdict.VIOLATED)),
        "errors": str(verdicts.count(Verdict.UNDETERMINED)),
        "skipped": "0",
        "time": f"{found.seconds_ready + found.seconds:.3f}",
    }
    suites = ElementTree.Element("testsuites", {"name": "reef-ref", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": f"{found.protocol} at {found.scope.name}", **counts})
    about = ElementTree.SubElement(suite, "properties")
    for name, value in (("verdict", found.verdict.value), ("reason", found.reason), *_figures(found)):
        ElementTree.SubElement(about, "property", {"name": name, "value": value})
    for outcome in found.outcomes:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": f"{found.protocol}.{outcome.kind.replace(' ', '_')}", "name": outcome.name, "time": "0"},
        )
        match outcome.verdict:
            case Verdict.VIOLATED:
                failure = ElementTree.SubElement(case, "failure", {"type": "violated", "message": outcome.doc})
                if (told := found.counterexample) and told.claim == outcome.name:
                    failure.text = _legal(story_text(tell(told), WIDTH))
            case Verdict.UNDETERMINED:
                message = f"undetermined: {outcome.note or found.reason}"
                ElementTree.SubElement(case, "error", {"type": "undetermined", "message": message})
            case Verdict.HOLDS:
                pass
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _legal(text: str) -> str:
    """Text without the control characters that XML cannot hold."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", text)


# Markdown


def as_markdown(found: Exploration) -> str:
    """An exploration as Markdown for the summary of a CI job, with the diagram of a violation."""
    out = [
        f"## {found.protocol} at {found.scope.name}: {found.verdict.value}",
        "",
        f"{conclusion(found)}.",
        "",
        f"World: {', '.join(bounds(found.scope))}; {found.scope.reason}".rstrip("; ") + ".",
        "",
        *_markdown_table(("", ""), _figures(found)),
        "",
        "### Claims",
        "",
        *_markdown_table(
            ("verdict", "claim", "kind", "meaning", "note"),
            [(_loud(o.verdict), f"`{o.name}`", o.kind, o.doc, o.note) for o in found.outcomes],
        ),
    ]
    if found.assumed:
        out += ["", "### Assumed", "", f"{FAULTS_END}."]
        out += ["", *_markdown_table(("fairness", "assumption", "meaning", "actions"), _assumed_rows(found.assumed))]
    if found.cuts:
        out += ["", "### Cut by the scope's bounds", ""]
        out += _markdown_table(("sort", "steps cut"), [(name, f"{n:,}") for name, n in found.cuts.items()])
    if found.never:
        idle = "never taken" if _complete(found) else "not taken before it ended"
        out += ["", f"**Actions {idle}:** {', '.join(f'`{name}`' for name in found.never)}"]
    out += ["", "<details><summary>Steps per action</summary>", ""]
    out += _markdown_table(("action", "steps"), [(f"`{name}`", f"{n:,}") for name, n in found.coverage.items()])
    out += ["", "</details>"]
    if found.counterexample:
        story = tell(found.counterexample)
        out += ["", f"### How `{story.claim}` is violated", "", "```mermaid", as_mermaid(story).rstrip(), "```"]
        out += ["", "```text", story_text(story, WIDTH).rstrip(), "```"]
    return "\n".join(out) + "\n"


def _markdown_table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    def row(cells: tuple[str, ...]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return [row(head), row(tuple("---" for _ in head)), *map(row, rows)]


def _loud(verdict: Verdict) -> str:
    return verdict.value if verdict is Verdict.HOLDS else f"**{verdict.value}**"


# Text

_STYLES = {Verdict.HOLDS: "green", Verdict.VIOLATED: "bold red", Verdict.UNDETERMINED: "yellow"}


def as_text(found: Exploration | Simulation) -> str:
    """An exploration or a simulation as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False, legacy_windows=False)
    show(found, console)
    written = console.file
    assert isinstance(written, io.StringIO)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"


def show(found: Exploration | Simulation, console: Console) -> None:
    """Print an exploration or a simulation; the verdict comes last, beside the prompt."""
    width = min(console.width, WIDEST)
    _show_world(found.protocol, found.scope, console, width)
    if isinstance(found, Exploration):
        _show_exploration(found, console, width)
    else:
        _show_simulation(found, console, width)


def _show_world(protocol: str, scope: Scope, console: Console, width: int) -> None:
    from rich.text import Text

    title = Text.assemble((protocol, "bold"), " in scope ", (scope.name, "bold"), f": {', '.join(bounds(scope))}")
    console.print(title, width=width)
    if scope.reason:
        console.print(Text(scope.reason, style="dim"), width=width)
    console.print()


def _show_exploration(found: Exploration, console: Console, width: int) -> None:
    from rich.padding import Padding
    from rich.text import Text

    _grid(console, width, [(Text(name, style="dim"), value) for name, value in _figures(found)])
    _show_claims(console, width, found.outcomes)
    if found.assumed:
        _title(console, "Assumed")
        console.print(Padding(Text(FAULTS_END), (0, 0, 0, 2)), width=width)
        _grid(console, width, [(Text(how, style="dim"), doc) for how, _, doc, _ in _assumed_rows(found.assumed)])
    _show_coverage(console, width, found.coverage, "never taken" if _complete(found) else "not taken before it ended")
    if found.cuts:
        _title(console, "Steps cut by the scope's bounds")
        _grid(console, width, [(name, f"{count:,}", _past(found.scope, name)) for name, count in found.cuts.items()])
    console.print()
    if found.counterexample:
        _show_story(tell(found.counterexample), console, width)
    verdict, _, why = conclusion(found).partition(": ")
    console.print(Text.assemble((verdict, _STYLES[found.verdict]), f": {why}"), width=width)


def _show_simulation(found: Simulation, console: Console, width: int) -> None:
    from rich.text import Text

    rows = [
        ("seed", str(found.seed)),
        ("walks", f"{found.walks:,}, the longest of {found.longest:,} steps"),
        ("ended", f"{found.rested:,} at rest, {found.cut:,} at the scope's bounds"),
        ("steps", f"{found.steps:,} in {found.seconds:.2f} s"),
        ("judged", ", ".join(found.judged) or "nothing"),
    ]
    _grid(console, width, [(Text(name, style="dim"), value) for name, value in rows])
    if found.goals:
        _title(console, "Goals")
        met = [f"{name} {count:,}" for name, count in found.goals.items() if count]
        _listed(console, width, "met, with the states in which each held", "green", met)
        if missed := [name for name, count in found.goals.items() if not count]:
            _listed(console, width, "not met", "yellow", missed)
    _show_coverage(console, width, found.coverage, "not taken")
    console.print()
    if found.violation:
        _show_story(tell(found.violation), console, width)
        steps = f"{found.violation.steps} of the {found.met} steps of a walk are enough"
        console.print(Text.assemble(("violated", "bold red"), f": {found.violation.claim}; {steps}"))
    else:
        console.print(f"{found.reason or 'done'}: no violation met. Random walks prove nothing; check does.")


def conclusion(found: Exploration) -> str:
    """The verdict and its reason in one line."""
    told = found.counterexample
    way = f"in {told.steps} steps" if told and not told.loop else "on a run that never ends"
    why = f"{told.claim}, {way}" if told else found.reason
    return f"{found.verdict.value}: {why}"


def _complete(found: Exploration) -> bool:
    """Every state was seen, so that what was never met does not exist in this scope."""
    if found.counterexample:
        return found.counterexample.kind in ("recovery", "eventuality")
    return all(outcome.note != UNSEEN for outcome in found.outcomes)


def _assumed_rows(assumed: Iterable[Assumption]) -> list[tuple[str, str, str, str]]:
    """Strength, name, meaning and actions of each assumption."""
    rows: list[tuple[str, str, str, str]] = []
    for assumption in assumed:
        each = f"for each {', '.join(var.name for var in assumption.params)}: " if assumption.params else ""
        where = "" if assumption.where == TRUE else f", where {formula(assumption.where)}"
        names = ", ".join(assumption.actions)
        rows.append((assumption.strength, assumption.name, first_sentence(assumption.doc), f"{each}{names}{where}"))
    return rows


def _figures(found: Exploration) -> list[tuple[str, str]]:
    states = f"{found.states:,}"
    if found.symmetric:
        states += f" up to symmetry of {', '.join(found.symmetric)}"
    if found.orbits:
        states += f", standing for {found.orbits:,}"
    means = f"{found.workers} worker(s), {found.bits} bits a state, {found.grown / 2**20:.1f} MiB more memory"
    if found.disk:
        means += f", {found.disk / 2**20:.1f} MiB on disk"
    return [
        ("states", states),
        ("transitions", f"{found.steps:,}"),
        ("depth", str(found.depth)),
        ("time", f"{found.seconds:.2f} s, after {found.seconds_ready:.2f} s to get ready"),
        ("means", means),
    ]


_KINDS = {
    "property": "properties",
    "step property": "step properties",
    "recovery": "recoveries",
    "eventuality": "eventualities",
    "goal": "goals",
}
FEW = 6
"""How many claims of one undetermined kind are told with their meaning, not only named."""


def _show_claims(console: Console, width: int, outcomes: Iterable[Outcome]) -> None:
    """What is wrong or open, with its meaning; of what holds, the names."""
    outcomes = list(outcomes)
    _title(console, "Claims")
    for verdict in (Verdict.VIOLATED, Verdict.UNDETERMINED):
        notes = dict.fromkeys(o.note for o in outcomes if o.verdict is verdict)
        for note in notes:
            group = [o for o in outcomes if o.verdict is verdict and o.note == note]
            few = len(group) <= FEW
            label = f"{verdict.value}{f', {note}' if note else ''}"
            _listed(console, width, label, _STYLES[verdict], [] if few else [outcome.name for outcome in group])
            if few:
                _grid(console, width, [_claim_row(outcome) for outcome in group], indent=4)
    for kind, plural in _KINDS.items():
        kinds = (kind, "dead end") if kind == "property" else (kind,)
        group = [o for o in outcomes if o.verdict is Verdict.HOLDS and o.kind in kinds]
        names = [o.name + (f" {o.note.removeprefix('in ').removesuffix(' states')}" if o.note else "") for o in group]
        label = f"{len(group)} {kind} holds" if len(group) == 1 else f"{len(group)} {plural} hold"
        if kind == "goal":
            label = f"{len(group)} goals reached, each with its states" if len(group) != 1 else "1 goal reached"
        if names:
            _listed(console, width, label, _STYLES[Verdict.HOLDS], names)


def _claim_row(outcome: Outcome) -> tuple[Any, ...]:
    from rich.text import Text

    return Text(outcome.kind, style="dim"), Text(outcome.name, style="bold"), outcome.doc


def _listed(console: Console, width: int, label: str, style: str, names: Iterable[str]) -> None:
    """A label and the names after it; a label alone where it heads what follows."""
    from rich.padding import Padding
    from rich.text import Text

    stick = "\N{NO-BREAK SPACE}"
    words = ", ".join(name.replace(" ", stick) for name in names)
    wrapped = textwrap.wrap(f"{label}: {words}" if words else label, width - 2, break_on_hyphens=False)
    text = Text("\n".join(wrapped).replace(stick, " "))
    text.stylize(style, 0, len(label) + bool(words))
    console.print(Padding(text, (0, 0, 0, 2)))


def _show_coverage(console: Console, width: int, coverage: dict[str, int], idle: str) -> None:
    from rich.columns import Columns
    from rich.padding import Padding
    from rich.text import Text

    _title(console, "Steps per action")
    taken = {name: f"{count:,}" for name, count in coverage.items() if count}
    if taken:
        names, counts = max(map(len, taken)), max(map(len, taken.values()))
        cells = [Text(f"{name:{names}} {count:>{counts}}", no_wrap=True) for name, count in taken.items()]
        console.print(Padding(Columns(cells, padding=(0, 4), width=names + counts + 1), (0, 0, 0, 2)), width=width)
    if never := [name for name, count in coverage.items() if not count]:
        _listed(console, width, idle, "bold yellow", never)


def _past(scope: Scope, sort: str) -> str:
    most = scope.sizes.get(sort, scope.faults)
    return "" if most is None else f"would have passed {most}"


def _show_story(story: Story, console: Console, width: int) -> None:
    from rich.text import Text

    for line in lines(story, width):
        console.print(Text.assemble(*line), soft_wrap=True)
    console.print()


def _title(console: Console, title: str) -> None:
    from rich.text import Text

    console.print()
    console.print(Text(title, style="bold underline"))


def _grid(console: Console, width: int, rows: Iterable[tuple[Any, ...]], indent: int = 2) -> None:
    from rich.padding import Padding
    from rich.table import Table

    rows = list(rows)
    table = Table.grid(padding=(0, 2))
    for column in range(len(rows[0]) if rows else 0):
        last = column == len(rows[0]) - 1
        table.add_column(no_wrap=not last, overflow="fold", ratio=1 if last else None)
    for row in rows:
        table.add_row(*row)
    console.print(Padding(table, (0, 0, 0, indent)), width=width)


__all__ = [
    "ExplorationJson",
    "SimulationJson",
    "StoryJson",
    "as_json",
    "as_junit",
    "as_markdown",
    "as_text",
    "conclusion",
    "exploration_json",
    "show",
    "simulation_json",
    "story_json",
]
