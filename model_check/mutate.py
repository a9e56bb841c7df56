"""How strong are the properties? Every condition of every guard and every update is dropped in turn, and explored.

All the changed protocols are one compiled search with a switch for each part, so that hundreds of them cost seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from model_check.evaluate import Space
from model_check.explore import DEAD_END
from model_check.graph import Graph
from model_check.record import Claims, switch_numbers
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Protocol, Scope
from spec.lang.nodes import Write
from spec.lang.text import show, show_write


class Fate(enum.Enum):
    """What became of a changed protocol."""

    KILLED = "killed"
    EQUAL = "equal"
    SURVIVED = "survived"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Change:
    """One part dropped: what it was, what noticed, after how many steps (of a story; none for goals and recoveries).

    `EQUAL` is a survivor with exactly the states of the original and as many steps: in this scope the part says
    nothing.
    """

    action: str
    what: str
    number: int
    text: str
    fate: Fate
    by: str
    steps: int | None

    @property
    def name(self) -> str:
        """A stable name: ``flush: guard 2``."""
        return f"{self.action}: {self.what} {self.number + 1}"


def mutate(
    protocol: Protocol,
    scope: Scope,
    *,
    workers: int = 2,
    max_states: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Change]:
    """Drop every part in turn, in order of declaration.

    Args:
        protocol: what to change; it must hold as it is.
        scope: how large a world; a small one will do.
        workers: threads.
        max_states: past this many states a change is undetermined; none: ten times the original's.
        progress: called with how many changes are done, and of how many.

    Raises:
        ValueError: the unchanged protocol already violates a property.
    """
    space = Space(protocol, scope)
    stepwise = [p for p in space.protocol.properties.values() if p.stepwise]
    invariants = [p for p in space.protocol.properties.values() if not p.stepwise]
    recoveries = list(space.protocol.recoveries.values())
    claims = Claims(
        invariants=tuple(p.node for p in invariants),
        steps=tuple(p.node for p in stepwise),
        goals=tuple(g.node for g in space.protocol.goals.values()),
        rest=tuple(g.node for g in space.protocol.rest.values()),
        recoveries=tuple((r.source, r.target) for r in recoveries),
    )
    search = Search(space, claims, symmetric_sorts(space), workers, switches=True, effort=1)
    names = ([p.name for p in invariants], [p.name for p in stepwise], [DEAD_END])

    def judge(limit: int | None) -> tuple[str, int | None] | None:
        """What notices, after how many steps; an empty name past the limit."""
        while True:
            if found := search.found():
                first = min(found, key=lambda f: ((2, 0, 1).index(f.kind), f.prop))
                return names[first.kind][first.prop], len(search.counts) - 1 - (first.kind == 2)
            if not search.counts[-1]:
                break
            if limit is not None and search.states > limit:
                return "", None
            search.level()
        graph = Graph(search, recoveries)
        lost = (r.name for n, r in enumerate(recoveries) if graph.lost(n, past_cuts=True) is not None)
        return next(((name, None) for name in lost), None)

    if already := judge(None):
        raise ValueError(f"{protocol.name} violates {already[0]} as it is")
    goals, states, steps, original = search.goals, search.states, search.steps, search.sorted_states()
    actions = _taken(search, space)
    limit = max_states or max(10 * states, 100_000)
    numbers = switch_numbers(space)
    for done, ((action, what, part), switch) in enumerate(numbers.items()):
        if progress is not None:
            progress(done, len(numbers))
        search.begin()
        search.switch = switch
        noticed = judge(limit)
        fate, by, length = Fate.KILLED, "", None
        if noticed is not None:
            by, length = noticed
            fate = Fate.KILLED if by else Fate.UNDETERMINED
        elif gone := [g for g, a, b in zip(space.protocol.goals, goals, search.goals, strict=True) if a and not b]:
            by = gone[0]
        elif idle := [a for a, taken in _taken(search, space).items() if not taken and actions[a]]:
            by = f"{idle[0]} is never taken"
        else:
            same = search.steps == steps and np.array_equal(search.sorted_states(), original)
            fate = Fate.EQUAL if same else Fate.SURVIVED
        step = space.protocol.actions[action]
        parts = step.guard if what == "guard" else step.writes
        node = parts[part]
        text = show_write(node) if isinstance(node, Write) else show(node)
        yield Change(action, what, part, text, fate, by, length)
    search.close()


def _taken(search: Search, space: Space) -> dict[str, int]:
    taken = dict.fromkeys(space.protocol.actions, 0)
    for instance, count in zip(space.instances, search.coverage, strict=True):
        taken[instance.action.name] += count
    return taken
