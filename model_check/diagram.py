"""A story as a Mermaid sequence diagram: one lane an actor, one an engine, and what each step changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from model_check.story import Story, Told, called

MOST_CHANGES = 6
"""How many changes a note shows before it says how many more there are."""


def as_mermaid(story: Story) -> str:
    """The diagram's source. A cross at an arrow's end is a fault; the last note says what is violated."""
    return "\n".join(_lines(story)) + "\n"


def _lines(story: Story) -> Iterator[str]:
    names = {lane: f"lane{number}" for number, lane in enumerate(story.lanes)}
    yield "sequenceDiagram"
    for lane, name in names.items():
        yield f"    participant {name} as {_plain(lane)}"
    begins = story.loop.begins if story.loop else len(story.steps)
    for step in story.steps:
        if step.number == begins + 1:
            yield "    loop again and again"
        on = step.on or step.by
        arrow = "-x" if step.fault else "->>"
        yield f"    {names[step.by]}{arrow}{names[on]}: {step.number}. {_plain(_call(step))}"
        if step.changes:
            over = names[step.by] if on == step.by else f"{names[step.by]},{names[on]}"
            yield f"    Note over {over}: {_note(step)}"
    if begins < len(story.steps):
        yield "    end"
    ends = [names[lane] for lane in story.lanes]
    if ends:
        over = ends[0] if len(ends) == 1 else f"{ends[0]},{ends[-1]}"
        yield f"    Note over {over}: {_plain(f'violated: {story.claim}')}<br/>{_plain(story.doc)}"


def _call(step: Told) -> str:
    """The action and its arguments, without the lanes that the arrow already shows."""
    return called(step.action, (a for a in step.arguments if a.value not in (step.by, step.on)))


def _note(step: Told) -> str:
    shown = [f"{change.what}: {change.before} → {change.after}" for change in step.changes[:MOST_CHANGES]]
    if more := len(step.changes) - len(shown):
        shown.append(f"and {more} more")
    return "<br/>".join(map(_plain, shown))


def _plain(text: str) -> str:
    """Text without what Mermaid would read as syntax: its own escapes are numbers of characters."""
    return re.sub(r"[#;<>%]", lambda found: f"#{ord(found[0])};", text)


__all__ = ["as_mermaid"]
