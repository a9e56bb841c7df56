"""A counterexample as a story: who acts, in words, what changes from what to what, and what is wrong at the end."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from model_check.evaluate import Instance, Space, State
from model_check.explore import DEAD_END, Counterexample
from model_check.reasons import Reason, field_rows, field_values, reasons
from spec.lang import Eventuality
from spec.lang.nodes import BoolSort, Const, Field, IndexSort, Node, Read, walk
from spec.lang.scope import FAULTS, Scope
from spec.lang.text import show

Span = tuple[str, str]
Line = tuple[Span, ...]


@dataclass(frozen=True)
class Change:
    """A part of the state that a step changes."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Argument:
    """What a parameter of an action stands for; an element of an index sort needs no name before it."""

    name: str
    value: str
    element: bool

    @property
    def text(self) -> str:
        """``engine 1``, or ``renamed: yes``."""
        return self.value if self.element else f"{self.name}: {self.value}"


@dataclass(frozen=True)
class Told:
    """One step. `by` and `on` are lanes; `on` is empty where nothing is acted on."""

    number: int
    by: str
    on: str
    action: str
    arguments: tuple[Argument, ...]
    words: str
    fault: bool
    changes: tuple[Change, ...]

    @property
    def call(self) -> str:
        """``flush(engine 1)``."""
        return called(self.action, self.arguments)

    @property
    def who(self) -> str:
        """``coordinator → engine 1``, or the one lane."""
        return f"{self.by} → {self.on}" if self.on and self.on != self.by else self.by


@dataclass(frozen=True)
class Story:
    """A run that breaks a claim, told.

    `title` stands above it where it does not tell how the protocol comes to violate the claim. `outset` says what the
    first state is: one of those at first, or any that a proof by induction has to consider. `setting` holds what that
    state was free to choose, `ending` the fields that the claim speaks of in the last state, `why` the parts of
    `formula` that decide it there. `lanes` are the actors that occur, then every element of the sorts whose elements
    act or are acted on. `loop` is there where the run never ends.
    """

    protocol: str
    scope: str
    claim: str
    kind: str
    doc: str
    lanes: tuple[str, ...]
    title: str
    outset: str
    opening: str
    setting: tuple[tuple[str, str], ...]
    steps: tuple[Told, ...]
    ending: tuple[tuple[str, str], ...]
    formula: str
    why: tuple[Reason, ...]
    loop: Endless | None


@dataclass(frozen=True)
class Endless:
    """How a run goes on for ever: the steps after the first `begins` are repeated, or none where there are no more.

    After the first `since` steps something was promised that never comes. `kept` tells how this is fair: an action that
    is possible on the way, and why it is not passed over.
    """

    begins: int
    since: int
    kept: tuple[tuple[str, str], ...]


def called(action: str, arguments: Iterable[Argument]) -> str:
    """An action with its arguments: ``flush(engine 1)``, or alone where there is none."""
    texts = [argument.text for argument in arguments]
    return f"{action}({', '.join(texts)})" if texts else action


def tell(counterexample: Counterexample) -> Story:
    """The story of a counterexample."""
    space, run = counterexample.space, counterexample.run
    initial = space.protocol.initial
    assert initial is not None
    formula, why, read = _verdict(counterexample)
    last = run[-1][1]
    return Story(
        protocol=space.protocol.name,
        scope=world(space.scope),
        claim=counterexample.claim,
        kind=counterexample.kind,
        doc=first_sentence(counterexample.doc),
        lanes=_lanes(counterexample),
        title="",
        outset="at first",
        opening=first_sentence(initial.doc),
        setting=tuple((f.name, field_values(space, f, run[0][1])) for f in _free(space)),
        steps=tuple(_steps(counterexample)),
        ending=tuple((f.name, field_values(space, f, last)) for f in read),
        formula=formula,
        why=why,
        loop=Endless(loop.begins, loop.since, loop.kept) if (loop := counterexample.loop) else None,
    )


def world(scope: Scope) -> str:
    """A scope in one line: ``pr: Engine 2, Load 0..3, at most 2 faults``."""
    return f"{scope.name}: {', '.join(bounds(scope))}"


def bounds(scope: Scope) -> list[str]:
    """The bounds of a scope, each in words."""
    sizes = [f"{name} {size}" for name, size in scope.sizes.items()]
    if scope.faults is None:
        return sizes
    return [*sizes, f"at most {scope.faults} fault{'' if scope.faults == 1 else 's'}"]


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring."""
    paragraph = " ".join(doc.split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", paragraph, maxsplit=1)[0]


def _free(space: Space) -> list[Field]:
    """The fields in which the first states differ."""
    states = space.initial_states()
    return [
        space.protocol.fields[name]
        for name in space.protocol.fields
        if len({tuple(v for _, v in field_rows(space, space.protocol.fields[name], s)) for s in states}) > 1
    ]


def _steps(counterexample: Counterexample) -> Iterator[Told]:
    space, run = counterexample.space, counterexample.run
    for number, ((_, before), (instance, after)) in enumerate(itertools.pairwise(run), 1):
        assert instance is not None, "only the first state has no action before it"
        action = instance.action
        yield Told(
            number=number,
            by=_lane(space, instance, action.by),
            on=_lane(space, instance, action.on),
            action=action.name,
            arguments=arguments(space, instance),
            words=first_sentence(action.doc),
            fault=action.kind == "fault",
            changes=tuple(changes(space, before, after)),
        )


def arguments(space: Space, instance: Instance) -> tuple[Argument, ...]:
    """What the parameters of an action stand for."""
    return tuple(
        Argument(p.name, space.value_name(p.sort, v), isinstance(p.sort, IndexSort))
        for p, v in zip(instance.action.params, instance.args, strict=True)
    )


def changes(space: Space, before: State, after: State) -> Iterator[Change]:
    """What differs between two states, in order of declaration; the scope's own counter of faults is left out."""
    for field in space.protocol.fields.values():
        if field.sort == FAULTS:
            continue
        old, new = field_rows(space, field, before), field_rows(space, field, after)
        moved = [(key, a, b) for (key, a), (_, b) in zip(old, new, strict=True) if a != b]
        if len(moved) == len(old) > 1 and len({(a, b) for _, a, b in moved}) == 1 and _one_key(field):
            yield Change(f"{field.name}[every {field.keys[0].name.lower()}]", *moved[0][1:])
            continue
        for key, a, b in moved:
            yield Change(f"{field.name}[{key}]" if key else field.name, a, b)


def _one_key(field: Field) -> bool:
    """Each part of the field is told under one key."""
    return len(field.keys) == 1 or isinstance(field.sort, BoolSort)


def _lane(space: Space, instance: Instance, name: str) -> str:
    """The lane that an action's `by` or `on` names: a parameter's value, or the name itself."""
    for param, value in zip(instance.action.params, instance.args, strict=True):
        if param.name == name:
            return space.value_name(param.sort, value)
    return name


def _lanes(counterexample: Counterexample) -> tuple[str, ...]:
    space = counterexample.space
    elements: dict[str, None] = {}
    for action in space.protocol.actions.values():
        for param in action.params:
            if param.name in (action.by, action.on) and isinstance(param.sort, IndexSort):
                for value in range(space.scope.cardinality(param.sort)):
                    elements.setdefault(space.value_name(param.sort, value))
    occurring = {
        _lane(space, instance, name)
        for instance, _ in counterexample.run
        if instance is not None
        for name in (instance.action.by, instance.action.on)
    }
    actors: dict[str, None] = {}
    for action in space.protocol.actions.values():
        for name in (action.by, action.on):
            if name and name in occurring and name not in elements:
                actors.setdefault(name)
    return (*actors, *elements)


def _verdict(counterexample: Counterexample) -> tuple[str, tuple[Reason, ...], list[Field]]:
    """The claim as a formula, the parts that decide it in the last state, and the fields that it reads."""
    space, run, name = counterexample.space, counterexample.run, counterexample.claim
    protocol, last = space.protocol, run[-1][1]
    if name in protocol.properties:
        claim = protocol.properties[name]
        state, after = (run[-2][1], last) if claim.stepwise else (last, None)
        return show(claim.node), tuple(reasons(space, claim.node, state, after)), _read(space, claim.node)
    if name in protocol.recoveries:
        recovery = protocol.recoveries[name]
        without = "".join(f" or {action}" for action in sorted(recovery.avoiding))
        formula = f"from {show(recovery.source)}, without faults{without}, can be reached: {show(recovery.target)}"
        why = (*reasons(space, recovery.source, last), *reasons(space, recovery.target, last))
        return formula, why, _read(space, recovery.source, recovery.target)
    if name in protocol.eventualities:
        return _promise(counterexample, protocol.eventualities[name])
    assert name == DEAD_END, f"{protocol.name} has no claim {name}"
    rest = [goal.node for goal in protocol.rest.values()]
    formula = "some action is possible, or one of these holds: " + (
        ", ".join(protocol.rest) if rest else "(no state may rest)"
    )
    why = tuple(r for node in rest for r in reasons(space, node, last))
    return formula, why, list(space.protocol.fields.values())


def _promise(counterexample: Counterexample, claim: Eventuality) -> tuple[str, tuple[Reason, ...], list[Field]]:
    """The same of an eventuality: why it begins where it does, and why its target does not hold at the end."""
    space, run, loop = counterexample.space, counterexample.run, counterexample.loop
    assert loop is not None, "an eventuality is broken by a run that never ends"
    values = ", ".join(f"{var.name} is {space.value_name(var.sort, value)}" for var, value in loop.values.items())
    anywhere = isinstance(claim.source, Const)
    formula = f"{'always' if anywhere else f'wherever {show(claim.source)}'}, in the end: {show(claim.target)}"
    begun = [] if anywhere else reasons(space, claim.source, run[loop.since][1], env=loop.values)
    missed = reasons(space, claim.target, run[-1][1], env=loop.values)
    why = tuple(dict.fromkeys((*begun, *missed)))
    return formula + (f"; here {values}" if values else ""), why, _read(space, claim.source, claim.target)


def _read(space: Space, *nodes: Node) -> list[Field]:
    named = {part.field.name for node in nodes for part in walk(node) if isinstance(part, Read)}
    return [field for name, field in space.protocol.fields.items() if name in named]


# As text


def lines(story: Story, width: int = 100) -> Iterator[Line]:
    """The story as lines of styled spans, styles by rich's names."""
    title = story.title or f"How {story.protocol} comes to violate {story.claim}, {_length(story)}"
    yield from _wrapped(title, width, 0, "bold")
    yield ()
    yield (("  0. ", "bold"), (story.outset, "green"))
    yield from _wrapped(story.opening, width, 5)
    yield from _table(story.setting, width, 7)
    for step in story.steps:
        if story.loop and step.number == story.loop.begins + 1:
            yield (("Again and again", "bold"),)
        yield from _step_lines(step, width)
    if story.loop:
        yield from _endless_lines(story, story.loop, width)
    yield ()
    yield (("Violated: ", "bold red"), (story.claim, "bold"), (f"  ({story.kind})", "dim"))
    yield from _wrapped(story.doc, width, 4)
    yield from _wrapped(story.formula, width, 4, "cyan")
    yield from _why_lines(story, width)
    if story.ending:
        yield ()
        yield (("In the last state", "bold"),)
        yield from _table(story.ending, width, 4)


def _length(story: Story) -> str:
    if story.loop is None:
        return f"in {_steps_in_words(len(story.steps))}"
    repeated = len(story.steps) - story.loop.begins
    way = f"in {_steps_in_words(story.loop.begins)}"
    return f"{way} and then {repeated} again and again" if repeated else f"{way}, and nothing more"


def _steps_in_words(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _endless_lines(story: Story, loop: Endless, width: int) -> Iterator[Line]:
    """That nothing more happens, or how it goes on; and why this is fair."""
    if loop.begins == len(story.steps):
        yield (("For ever", "bold"),)
        yield from _wrapped("Nothing more happens, and nothing that is counted on is possible.", width, 5)
        return
    yield from _wrapped(f"and all is as after step {loop.begins}.", width, 5)
    hows = dict.fromkeys(how for _, how in loop.kept)
    yield from _wrapped("This is fair. What is counted on and possible here", width, 5)
    for how in hows:
        names = ", ".join(action for action, why in loop.kept if why == how)
        yield from _wrapped(f"{how}: {names}", width, 7, "dim")


def as_text(story: Story, width: int = 100) -> str:
    """The story as plain text, lines of at most `width` characters where the words allow."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines(story, width)) + "\n"


def _step_lines(step: Told, width: int) -> Iterator[Line]:
    mark: Line = (("  fault", "bold yellow"),) if step.fault else ()
    yield ((f"{step.number:3}. ", "bold"), (step.who, "green"), (f"  {step.call}", "bold"), *mark)
    yield from _wrapped(step.words, width, 5)
    if not step.changes:
        yield ((" " * 7 + "nothing changes", "dim"),)
    across = max((len(c.what) for c in step.changes), default=0)
    for change in step.changes:
        yield (
            (f"{'':7}{change.what:{across}}  ", ""),
            (change.before, "red"),
            (" → ", "dim"),
            (change.after, "green"),
        )


def _why_lines(story: Story, width: int) -> Iterator[Line]:
    across = min(max((len(reason.text) for reason in story.why), default=0), width - 50)
    for reason in story.why:
        verdict: Span = ("true ", "green") if reason.holds else ("false", "red")
        facts = ", ".join(reason.facts)
        if len(reason.text) > across or across + 15 + len(facts) > width:
            yield ((" " * 6, ""), verdict, ("  ", ""), *_wrapped(reason.text, width, 0)[0])
            for extra in _wrapped(reason.text, width - 13, 0)[1:]:
                yield ((" " * 13, ""), *extra)
            yield from _wrapped(facts, width, 15, "dim") if facts else ()
        else:
            yield ((" " * 6, ""), verdict, (f"  {reason.text:{across}}", ""), (f"  {facts}" if facts else "", "dim"))


def _table(rows: Iterable[tuple[str, str]], width: int, indent: int) -> Iterator[Line]:
    rows = list(rows)
    across = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        first, *rest = textwrap.wrap(value, width - indent - across - 2, break_long_words=False) or [""]
        yield ((f"{'':{indent}}{name:{across}}  ", "dim"), (first, ""))
        for more in rest:
            yield ((f"{'':{indent + across + 2}}{more}", ""),)


def _wrapped(text: str, width: int, indent: int, style: str = "") -> list[Line]:
    wrapped = textwrap.wrap(text, width - indent, break_long_words=False, break_on_hyphens=False)
    return [((" " * indent + line, style),) for line in wrapped]


__all__ = [
    "Argument",
    "Change",
    "Endless",
    "Line",
    "Story",
    "Told",
    "arguments",
    "as_text",
    "bounds",
    "called",
    "changes",
    "first_sentence",
    "lines",
    "tell",
    "world",
]
