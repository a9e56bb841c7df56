"""Does a protocol refine an ideal? In every state of a scope, and told in the ideal's own words where it does not.

The claim is an ordinary step property (`spec.lang.refinement`), and explored like any other. What the ideal sees of a
state is evaluated here once more, by other means: the states of the ideal that two detailed ones look like, and the
ideal's own steps between them, as `evaluate` takes them. A violation that this does not confirm is an internal error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from model_check.evaluate import Instance, Space, State
from model_check.explore import Counterexample, Exploration, Progress, Verdict, explore
from model_check.reasons import Reason, field_values
from model_check.story import Change, Story, arguments, called, changes, tell
from spec.lang import Protocol, Scope
from spec.lang.refinement import BEGINS, REFINES, Refinement, never_name

UNNAMED = "refinement"
"""The kind of a claim that is broken also where the ideal has such a step, and the refinement does not name it."""
NEAREST = 3
"""How many of the ideal's steps a story tells that come closest."""


@dataclass(frozen=True)
class Refined:
    """What was found.

    `explored` is the exploration that decided, or that saw every step. `taken` says of every action of the ideal after
    how many steps of the detailed protocol it is first taken; none: never. Where the refinement is violated, `story`
    tells how, and `taken` is empty.
    """

    detailed: str
    ideal: str
    verdict: Verdict
    reason: str
    explored: Exploration
    taken: Mapping[str, int | None]
    story: Story | None

    @property
    def name(self) -> str:
        """``publication refines atomic``."""
        return f"{self.detailed} refines {self.ideal}"


class View:
    """What the ideal sees of the states of a detailed protocol."""

    def __init__(self, refinement: Refinement, space: Space) -> None:
        self.space = space
        self.ideal = Space(refinement.abstract, replace(space.scope, faults=None))
        self._images = {name: refinement.seen(name) for name in refinement.abstract.fields}

    def of(self, state: State) -> State:
        """The state of the ideal that a detailed state looks like."""
        cells = [0] * self.ideal.cells
        for field in self.ideal.protocol.fields.values():
            keys, node = self._images[field.name]
            for values in itertools.product(*map(range, self.ideal.shapes[field.name])):
                env = dict(zip(keys, values, strict=True))
                cells[self.ideal.cell(field, values)] = self.space.value(node, state, env)
        return tuple(cells)

    def steps(self, before: State, after: State) -> list[Instance]:
        """The ideal's steps between what two detailed states look like."""
        seen = self.of(after)
        return [instance for instance, found in self.ideal.successors(self.of(before)) if found == seen]


def refine(
    refinement: Refinement,
    scope: Scope,
    *,
    detailed: Protocol | None = None,
    workers: int = 2,
    max_seconds: float | None = None,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Refined:
    """Judge a refinement in a scope.

    Args:
        refinement: which protocol, which ideal, and how one looks to the other.
        scope: how large a world.
        detailed: a variant of the detailed protocol to judge in its place.
        workers: threads.
        max_seconds: give up (undetermined) after this time, for each exploration.
        memory: bytes a search may grow by; none: most of what is free.
        progress: called while states are explored; may raise `model_check.explore.Interrupted`.

    Raises:
        Misuse: the scope does not fit, or the refinement lacks a field of the ideal.
        MemoryShort: the world does not fit in memory.
    """

    def judge(protocol: Protocol, claim: str) -> Exploration:
        return explore(
            protocol,
            scope,
            only=[claim],
            workers=workers,
            max_seconds=max_seconds,
            memory=memory,
            progress=progress,
        )

    claimed = refinement.steps(detailed)
    result = partial(Refined, claimed.name, refinement.abstract.name)
    for protocol, claim in ((refinement.first(detailed), BEGINS), (claimed, REFINES)):
        found = judge(protocol, claim)
        if found.verdict is not Verdict.HOLDS:
            story = None if found.counterexample is None else told(refinement, found.counterexample)
            return result(found.verdict, found.reason, found, {}, story)
    taken: dict[str, int | None] = {}
    for action in refinement.abstract.actions:
        met = judge(claimed, never_name(action))
        if met.verdict is Verdict.UNDETERMINED:
            return result(met.verdict, f"is {action} ever taken? {met.reason}", found, taken, None)
        taken[action] = None if met.counterexample is None else met.counterexample.steps
    if idle := [name for name, steps in taken.items() if steps is None]:
        return result(Verdict.UNDETERMINED, f"the ideal's {', '.join(idle)} never happens here", found, taken, None)
    return result(Verdict.HOLDS, found.reason, found, taken, None)


# The story


def told(refinement: Refinement, counterexample: Counterexample) -> Story:
    """A violation, with what the ideal sees of the last step in place of the formula."""
    view = View(refinement, counterexample.space)
    story, run = tell(counterexample), counterexample.run
    after, ideal = view.of(run[-1][1]), refinement.abstract.name
    fields = view.ideal.protocol.fields.values()
    ending = tuple((field.name, field_values(view.ideal, field, after)) for field in fields)
    if counterexample.claim == BEGINS:
        assert after not in view.ideal.initial_states(), "evaluate finds the first state to be one of the ideal's"
        return replace(
            story, formula=f"Seen as a state of {ideal}, it is none of its first states.", why=(), ending=ending
        )
    before = view.of(run[-2][1])
    assert before != after, "evaluate finds that the ideal sees no change"
    changed = (
        f"To {ideal} this step changes {', '.join(_change(change) for change in changes(view.ideal, before, after))}"
    )
    if found := view.steps(run[-2][1], run[-1][1]):
        assert counterexample.kind == UNNAMED, "evaluate finds a step of the ideal"
        names = " or ".join(called(one.action.name, arguments(view.ideal, one)) for one in found)
        words = f"{changed}. That is {names}, which is not named for it."
        return replace(story, formula=words, why=(), ending=ending)
    words = f"{changed}; no step of it does just that."
    return replace(story, formula=words, why=tuple(_nearest(view.ideal, before, after)), ending=ending)


def _change(change: Change) -> str:
    return f"{change.what} from {change.before} to {change.after}"


def _nearest(ideal: Space, before: State, after: State) -> list[Reason]:
    """The ideal's steps that come closest, and how the state after them would differ."""
    found = []
    for instance, other in ideal.successors(before):
        differences = list(changes(ideal, after, other))
        facts = tuple(f"{change.what} would be {change.after}" for change in differences)
        found.append((len(facts), Reason(called(instance.action.name, arguments(ideal, instance)), False, facts)))
    found.sort(key=lambda pair: pair[0])
    return [reason for _, reason in found[:NEAREST]]


__all__ = ["UNNAMED", "Refined", "View", "refine", "told"]
