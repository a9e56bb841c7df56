"""A run that never gets to where it should: a shortest way to a place where it can stay, and a short fair loop there.

Among ways of one length the least is taken, state by state, so that the same one is found whatever the threads did.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from model_check.evaluate import Instance, Refused, Space, State
from model_check.fairness import Bits, FairGraph, Mask, Obligation, Positions, some, spans
from model_check.record import BLOCK


@dataclass(frozen=True)
class Lasso:
    """States by position: `way` leads from the first state where the claim begins to where the loop does.

    `depth` is how many steps away from a first state ``way[0]`` is. A step of the loop is its instance, and where it
    leads; there is none where the run just stays.
    """

    depth: int
    way: tuple[int, ...]
    loop: tuple[tuple[int, int], ...]

    @property
    def length(self) -> int:
        """Steps of the whole, from a first state on."""
        return self.depth + len(self.way) - 1 + len(self.loop)


def find_lasso(graph: FairGraph, source: Mask, avoided: Mask, component: Positions, possible: Bits) -> Lasso:
    """A short lasso from a source through states that are not avoided into a fair component.

    A loop is short, not shortest: finding a shortest one that keeps every obligation is hard. A state where a run may
    just stay is taken instead where that makes less to tell.
    """
    seeds = source & ~avoided
    depth, way = _way_in(graph, seeds, avoided, component >= 0, None)
    found = Lasso(depth, way, tuple(_loop(graph, way[-1], component == component[way[-1]], possible)))
    resting = (component >= 0) & ~some(possible)
    if found.loop and resting.any():
        depth, way = _way_in(graph, seeds, avoided, resting, found.length)
        if way:
            return Lasso(depth, way, ())
    return found


def _way_in(graph: FairGraph, seeds: Mask, avoided: Mask, goal: Mask, most: int | None) -> tuple[int, tuple[int, ...]]:
    """The least of the shortest ways from a first state over a seed to a goal, from the seed on, and its depth.

    No way where it would take more than `most` steps.
    """
    search, steps = graph.search, graph.steps
    met = np.full(graph.size, -1, np.int32)
    at: Positions = np.zeros(0, np.int64)
    for distance in itertools.count():
        if most is not None and distance > most:
            return 0, ()
        ahead = steps.targets[_leaving_any(graph, at)] if len(at) else np.zeros(0, np.int64)
        begun: Positions = np.zeros(0, np.int64)
        if distance < len(search.levels):
            first, last = search.levels[distance]
            begun = first * BLOCK + np.flatnonzero(seeds[first * BLOCK : last * BLOCK])
        at = np.unique(np.concatenate((ahead.astype(np.int64), begun)))
        at = at[(met[at] < 0) & ~avoided[at]]
        met[at] = distance
        if (reached := at[goal[at]]).size:
            break
        assert len(at) or distance < len(search.levels), "no seed leads to the goal"
    way = [_least(graph, reached)]
    depth = _depth(graph, way[0])
    while not (seeds[way[-1]] and depth == met[way[-1]]):
        before = _before(graph, way[-1])
        way.append(_least(graph, before[met[before] == met[way[-1]] - 1]))
        depth = _depth(graph, way[-1])
    return depth, tuple(reversed(way))


def _leaving_any(graph: FairGraph, states: Positions) -> Positions:
    """The steps that leave some states, faults included, as places in `graph.steps`."""
    offsets = graph.steps.offsets
    return spans(offsets[states].astype(np.int64), offsets[states + 1].astype(np.int64))


def _before(graph: FairGraph, state: int) -> Positions:
    """The states that a step leads from to this one."""
    found = np.flatnonzero(graph.steps.targets[: graph.steps.count] == state)
    return np.unique(np.searchsorted(graph.steps.offsets, found.astype(np.uint64), side="right") - 1)


def _depth(graph: FairGraph, state: int) -> int:
    block = state // BLOCK
    return next(d for d, (first, last) in enumerate(graph.search.levels) if first <= block < last)


def _least(graph: FairGraph, states: Positions) -> int:
    """Of some states, the one that is least when packed."""
    return min(map(int, states), key=graph.search.packed_at)


def _loop(graph: FairGraph, start: int, inside: Mask, possible: Bits) -> Iterator[tuple[int, int]]:
    """Steps from a state of a fair component back to it that keep every obligation; none where it may just stay.

    Each time, the nearest step that keeps something still open: one that takes it, or, if it is weak, one to a state
    where it is impossible. At last the nearest way back, and on, if that makes more of the strong ones possible.
    """
    at, taken = start, np.zeros_like(graph.strong)
    ever, always = possible[start].copy(), possible[start].copy()
    while True:
        strong, weak = ever & ~taken & graph.strong, always & ~taken & ~graph.strong
        if (strong | weak).any():
            way = _nearest(graph, at, inside, _keeping(graph, strong | weak, weak, possible))
        elif at == start:
            return
        else:
            way = _nearest(graph, at, inside, lambda steps: np.equal(graph.targets[steps], start))
        for step in way:
            at = int(graph.targets[step])
            yield int(graph.via[step]), at
            ever |= possible[at]
            always &= possible[at]
            taken |= graph.keeps[step]


def _keeping(graph: FairGraph, by_taking: Bits, by_leaving: Bits, possible: Bits) -> Callable[[Positions], Mask]:
    def keeping(steps: Positions) -> Mask:
        return some(graph.keeps[steps] & by_taking) | some(~possible[graph.targets[steps]] & by_leaving)

    return keeping


def _nearest(graph: FairGraph, start: int, inside: Mask, wanted: Callable[[Positions], Mask]) -> list[int]:
    """The steps of the least of the shortest ways that end with a wanted one, all inside a component."""
    met = np.full(graph.size, -1, np.int32)
    at: Positions = np.array([start])
    met[start] = 0
    for distance in itertools.count(1):
        steps = graph.leaving(at)
        steps = steps[inside[graph.targets[steps]]]
        if (last := steps[wanted(steps)]).size:
            break
        ahead = np.unique(graph.targets[steps]).astype(np.int64)
        at = ahead[met[ahead] < 0]
        assert len(at), "what a component keeps can be got to inside it"
        met[at] = distance
    step = _least_step(graph, last)
    way = [step]
    while int(graph.sources[step]) != start:
        source = int(graph.sources[step])
        before = np.flatnonzero(graph.targets == source)
        before = before[met[graph.sources[before]] == met[source] - 1]
        step = _least_step(graph, before)
        way.append(step)
    return way[::-1]


def _least_step(graph: FairGraph, steps: Positions) -> int:
    def key(step: int) -> tuple[int, int, int]:
        pack = graph.search.packed_at
        return pack(int(graph.sources[step])), int(graph.via[step]), pack(int(graph.targets[step]))

    return min(map(int, steps), key=key)


# The same judged by evaluate alone


def how_kept(
    space: Space, asked: tuple[Obligation, ...], loop: list[tuple[Instance, State]], start: State
) -> list[tuple[Obligation, str]]:
    """How a loop keeps each obligation that is possible in it; an empty text where it does not.

    A step that the scope's bound cuts is possible: it is in the protocol, if not in this world.
    """
    before = [start, *(state for _, state in loop)][: max(len(loop), 1)]
    possible = [_possible(space, state) for state in before]
    after = [*loop, (None, start)][: len(before)]
    taken = [step if state != old else None for old, (step, state) in zip(before, after, strict=True)]
    found = []
    for obligation in asked:
        granted = [space.holds(obligation.where, state) for state in before]
        where = [g and any(map(obligation.takes, there)) for g, there in zip(granted, possible, strict=True)]
        if not any(where):
            continue
        if any(g and obligation.takes(step) for g, step in zip(granted, taken, strict=True) if step is not None):
            how = "is done in the loop"
        elif not obligation.strong and not all(where):
            how = "is possible in the loop, but not all along"
        else:
            how = ""
        found.append((obligation, how))
    return found


def _possible(space: Space, state: State) -> list[Instance]:
    """What would change something, were it not for the scope's bounds."""
    return [
        instance
        for instance in space.instances
        if instance.action.kind != "fault"
        and (after := space.step(state, instance)) is not Refused.DISABLED
        and after != state
    ]


__all__ = ["Lasso", "find_lasso", "how_kept"]
