"""A run that breaks a claim, with every step left out that it can do without.

Delta debugging (Zeller and Hildebrandt 2002) of the sequence of actions: pieces of it are left out, larger ones first,
and what is left is replayed by `evaluate`. An action that is no longer possible is left out too, and the run ends where
the claim is broken. In the end no single action can be left out; another way to the same violation may still be
shorter.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from model_check.evaluate import Instance, Refused, Space, State
from model_check.explore import DEAD_END, Counterexample, Run


def minimise(found: Counterexample, tick: Callable[[int], None] = lambda steps: None) -> Counterexample:
    """The same claim broken from the same initial state, by as few of the same actions as delta debugging gets to.

    Args:
        found: a broken property, step property or dead end.
        tick: called before each replay with how many steps are left; may raise to end it.
    """
    best = found.run
    size = max(found.steps // 2, 1)
    while True:
        before, start = len(best), 1
        while start < len(best):
            tick(len(best) - 1)
            rest = (*best[1:start], *best[start + size :])
            shorter = replayed(found, best[0][1], [instance for instance, _ in rest if instance is not None])
            if shorter is None:
                start += size
            else:
                best = shorter
        if len(best) == before:
            if size == 1:
                return dataclasses.replace(found, run=best)
            size = (size + 1) // 2


def replayed(found: Counterexample, first: State, actions: Sequence[Instance]) -> Run | None:
    """The run of those actions that are possible, up to where it breaks the claim; none if it does not."""
    state = first
    run: list[tuple[Instance | None, State]] = [(None, state)]
    if _broken(found, None, state):
        return tuple(run)
    for instance in actions:
        after = found.space.step(state, instance)
        if isinstance(after, Refused):
            continue
        before, state = state, after
        run.append((instance, state))
        if _broken(found, before, state):
            return tuple(run)
    return None


def _broken(found: Counterexample, before: State | None, state: State) -> bool:
    """Whether the last state of a run breaks the claim, or the step that led there."""
    if found.claim == DEAD_END:
        return dead(found.space, state)
    claim = found.space.protocol.properties[found.claim]
    if not claim.stepwise:
        return not found.space.holds(claim.node, state)
    return before is not None and not found.space.holds(claim.node, before, state)


def dead(space: Space, state: State) -> bool:
    """Nothing but a fault is possible in a state, not even past the scope's bound, and it may not rest."""
    ordinary = (i for i in space.instances if i.action.kind != "fault")
    if any(space.step(state, i) is not Refused.DISABLED for i in ordinary):
        return False
    return not any(space.holds(rest.node, state) for rest in space.protocol.rest.values())


__all__ = ["dead", "minimise", "replayed"]
