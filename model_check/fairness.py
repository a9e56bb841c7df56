"""Where in the explored graph a fair run can stay for ever.

A run with finitely many faults ends in a strongly connected component of the steps without faults, or stays in one
state. It can be fair there if every obligation can be kept: a weak one, where it is impossible in some state of the
component or taken inside it; a strong one, where it is impossible in all or taken. A component that fails a strong one
may still hold a smaller one that never makes it possible: those states are left out, and what remains is looked at
again (Emerson and Lei, for Streett's conditions).

A step that changes nothing is staying: it takes no obligation, and makes none possible.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from model_check.evaluate import Instance, Space
from model_check.graph import Steps
from model_check.search import MemoryShort, Search, available_memory
from spec.lang import Assumption, Misuse
from spec.lang.nodes import Const, Node, grounded

Bits = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
BYTES_PER_STEP = 48
"""What the graph takes beside the steps themselves, while it is built and asked."""
SYMMETRY = "liveness is not judged up to symmetry: a loop of representatives need not be one of states"


@dataclass(frozen=True)
class Obligation:
    """What one assumption asks of one action, with one choice of values for the assumption's parameters.

    `where` is the assumption's condition with these values.
    """

    assumption: Assumption
    action: str
    choice: tuple[int, ...]
    where: Node

    @property
    def strong(self) -> bool:
        """Kept only by taking it, where it is possible again and again."""
        return self.assumption.strength == "strong"

    def takes(self, instance: Instance) -> bool:
        """A step by this instance keeps it, if its condition holds."""
        if instance.action.name != self.action:
            return False
        return tuple(instance.env[var] for var in self.assumption.params) == self.choice


def obligations(space: Space) -> tuple[Obligation, ...]:
    """Everything that a fair run in this scope has to keep.

    Raises:
        Misuse: an assumption does not fit the actions that it names.
    """
    found = []
    for assumption in space.protocol.assumptions.values():
        space.protocol.check_assumption(assumption)
        for choice in itertools.product(*(range(space.scope.cardinality(var.sort)) for var in assumption.params)):
            constants = {var: Const(var.sort, value) for var, value in zip(assumption.params, choice, strict=True)}
            where = grounded(assumption.where, constants)
            found += [Obligation(assumption, action, choice, where) for action in assumption.actions]
    return tuple(found)


class FairGraph:
    """Every step of a finished search, and the obligations that are possible in each state, a bit for each.

    States are named by their position in the arena. `steps` has the faults as well; `sources`, `targets` and `via` are
    only the steps that are none and change something, those from state ``s`` from ``starts[s]`` on up to
    ``starts[s + 1]``. `keeps` has the obligations that each of these keeps. Memory: 16 bytes a step and 8 a state, and
    for every 64 obligations 8 bytes a step and 16 a state.

    Args:
        search: finished, and still open.
        asked: what a fair run has to keep.
        conditions: the goals of the search; those of the obligations are among them.

    Raises:
        Misuse: the search was up to symmetry.
        MemoryShort: there are too many steps.
    """

    def __init__(self, search: Search, asked: Sequence[Obligation], conditions: Sequence[Node]) -> None:
        if search.symmetric:
            raise Misuse(SYMMETRY)
        instances = search.space.instances
        self.search = search
        self.steps = Steps(search, np.ones(len(instances), np.uint8))
        self.size = self.steps.size
        self.obligations = tuple(asked)
        needed = BYTES_PER_STEP * self.steps.count
        if needed > available_memory():
            raise MemoryShort(f"the fair graph has {self.steps.count:,} steps to keep, {needed / 2**30:.1f} GiB")
        self.strong = packed(o.strong for o in asked)
        self._place = {node: number for number, node in enumerate(conditions)}
        self._held: Bits = np.zeros(self.size, np.uint64)
        search.machine.held(search.context, self._held.ctypes.data, 0, search.levels[-1][1])
        via, targets = self.steps.via[: self.steps.count], self.steps.targets[: self.steps.count]
        offsets = self.steps.offsets.astype(np.int64)
        sources = np.repeat(np.arange(self.size, dtype=np.uint32), offsets[1:] - offsets[:-1])
        ordinary = np.array([i.action.kind != "fault" for i in instances])
        counted = ordinary[via] & (targets != sources)
        self.sources, self.targets, self.via = sources[counted], targets[counted], via[counted]
        self.starts: Positions = np.zeros(self.size + 1, np.int64)
        np.cumsum(np.bincount(self.sources, minlength=self.size), out=self.starts[1:])
        by_instance = np.stack([packed(o.takes(i) for o in asked) for i in instances])
        self.keeps = by_instance[self.via]
        self.keeps &= self._granted()[self.sources]
        self.possible = together(self.keeps, self.sources, self.size)

    def mask(self, condition: Node) -> Mask:
        """The states where a condition holds."""
        held: Mask = (self._held >> np.uint64(self._place[condition]) & np.uint64(1)).astype(np.bool_)
        return held

    def _granted(self) -> Bits:
        """The obligations whose condition holds in each state."""
        granted: Bits = np.zeros((self.size, len(self.strong)), np.uint64)
        for number, obligation in enumerate(self.obligations):
            held = self.mask(obligation.where).astype(np.uint64)
            granted[:, number // 64] |= held << np.uint64(number % 64)
        return granted

    def leaving(self, states: Positions) -> Positions:
        """The steps that leave some states: their places in `sources`, `targets` and `via`."""
        return spans(self.starts[states], self.starts[states + 1])

    def components(
        self, region: Mask, possible: Bits | None = None, *, counted: Bits | None = None, strong: Bits | None = None
    ) -> Positions:
        """Where in a region a fair run can stay for ever: by state, the number of its component, or -1.

        Args:
            region: the states that the run may visit.
            possible: the obligations that count as possible in each state; none: those that are.
            counted: the obligations that have to be kept; none: all.
            strong: those of them that are strong; none: those that are.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        possible = self.possible if possible is None else possible
        strong = self.strong if strong is None else strong
        weak = ~strong
        if counted is not None:
            strong, weak = strong & counted, weak & counted
        found: Positions = np.full(self.size, -1, np.int64)
        alive, number = region.copy(), np.zeros(self.size, np.int32)
        inside = np.flatnonzero(alive[self.sources] & alive[self.targets])
        known = 0
        while len(nodes := np.flatnonzero(alive)):
            number[nodes] = np.arange(len(nodes), dtype=np.int32)
            sources, targets = number[self.sources[inside]], number[self.targets[inside]]
            starts = np.zeros(len(nodes) + 1, np.int32)
            np.cumsum(np.bincount(sources, minlength=len(nodes)), out=starts[1:])
            steps: Any = csr_array((np.ones(len(targets), np.int8), targets, starts), shape=(len(nodes), len(nodes)))
            count, label = connected_components(steps, directed=True, connection="strong")
            within = label[sources] == label[targets]
            inside = inside[within]
            order = np.argsort(label, kind="stable")
            ever = together(possible[nodes[order]], label[order], count)
            always = together(possible[nodes[order]], label[order], count, np.bitwise_and)
            taken = self._taken(inside, label[sources[within]], count)
            starved: Mask = some(always & ~taken & weak)
            lacking = ever & ~taken & strong
            fair: Mask = ~(starved | some(lacking))
            at_fair = fair[label]
            found[nodes[at_fair]] = known + label[at_fair]
            known += count
            again: Mask = ~(starved | fair)[label]
            again &= ~some(possible[nodes] & lacking[label])
            alive[nodes[~again]] = False
            inside = inside[alive[self.sources[inside]] & alive[self.targets[inside]]]
        return found

    def _taken(self, steps: Positions, label: npt.NDArray[np.int32], count: int) -> Bits:
        order = np.argsort(label, kind="stable")
        return together(self.keeps[steps[order]], label[order], count)


def together(masks: Bits, groups: npt.NDArray[Any], count: int, join: np.ufunc = np.bitwise_or) -> Bits:
    """The masks of each group joined; groups are numbered up to `count`, and come in order."""
    result: Bits = np.zeros((count, masks.shape[1]), np.uint64)
    if len(groups):
        first = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
        result[groups[first]] = join.reduceat(masks, first, axis=0)
    return result


def some(masks: Bits) -> Mask:
    """Whether each mask has any bit."""
    found: Mask = np.asarray(masks.any(axis=1))
    return found


def spans(starts: Positions, ends: Positions) -> Positions:
    """The numbers from each start up to but not with its end, one after the other."""
    lengths = ends - starts
    shift = np.cumsum(lengths) - lengths
    numbers: Positions = np.arange(int(lengths.sum())) + np.repeat(starts - shift, lengths)
    return numbers


def packed(flags: Iterable[bool]) -> Bits:
    """Flags as words of 64 bits, at least one."""
    listed = list(flags)
    number = sum(1 << position for position, flag in enumerate(listed) if flag)
    words = range(max(1, -(-len(listed) // 64)))
    return np.array([number >> 64 * word & (1 << 64) - 1 for word in words], np.uint64)


__all__ = ["SYMMETRY", "FairGraph", "Obligation", "obligations", "packed", "some", "spans", "together"]
