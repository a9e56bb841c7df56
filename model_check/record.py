"""What the compiled search and Python share: the search's record, each worker's record, and what is judged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from model_check.evaluate import Space
from model_check.layout import Layout
from spec.lang.nodes import MaybeSort, Node, Write

BLOCK = 1024
"""States in one block of the arena."""
UNIT = 64
"""States a worker takes at once."""
BATCH = 64
"""Steps looked up together: enough to hide the memory's delay, few enough for the first-level cache."""
TOP = 1 << 63
DEAD_END = "no_dead_end"
"""The claim that a state without a step is one in which the protocol may rest."""
CUT, POSSIBLE = 32, 33
"""Bits of what `generate` answers."""
RECENT = 1 << 16
"""States a worker remembers having seen lately: most steps lead to one of them, and need not go to the table at all."""
LINE = 8
"""Slots in a cache line. A one-word state is looked for in a whole line at once: no branch depends on where it lies."""


class Ctx(IntEnum):
    """Words of the search's shared record."""

    TABLE = 0
    MASK = 1
    ARENA = 2
    FILLS = 3
    FIRST = 4
    LAST = 5
    NEXT_UNIT = 6
    NEXT_BLOCK = 7
    LAST_BLOCK = 8
    STOP = 9
    GROW = 10
    LIMIT = 11
    FULL = 12
    STATS = 13
    STRIDE = 14
    FOUND = 15


class Stat(IntEnum):
    """Words of one worker's record, before goals, cuts, coverage and the three violations."""

    STATES = 0
    STEPS = 1
    BLOCK = 2
    USED = 3
    RECENT = 4
    GOALS = 8


@dataclass(frozen=True)
class Claims:
    """What the kernel judges; a recovery is a pair of source and target."""

    invariants: tuple[Node, ...] = ()
    steps: tuple[Node, ...] = ()
    goals: tuple[Node, ...] = ()
    rest: tuple[Node, ...] = ()
    recoveries: tuple[tuple[Node, Node], ...] = ()


@dataclass(frozen=True)
class Shape:
    """Where a worker's record keeps what."""

    goals: int
    cuts: tuple[str, ...]
    instances: int
    words: int

    @classmethod
    def of(cls, layout: Layout, claims: Claims) -> Shape:
        """The record of a search of a layout."""
        space = layout.space
        sorts = dict.fromkeys(bounded(w) for a in space.protocol.actions.values() for w in a.writes)
        return cls(len(claims.goals), tuple(sorts), len(space.instances), layout.words)

    @property
    def cut(self) -> int:
        """First word of the counts of steps cut, per sort."""
        return Stat.GOALS + self.goals

    @property
    def coverage(self) -> int:
        """First word of the counts of steps taken, per instance."""
        return self.cut + len(self.cuts)

    def violation(self, kind: int) -> int:
        """First word of a violation: present, property, instance, state. Kinds: 0 state, 1 step, 2 dead end."""
        return self.coverage + self.instances + kind * (3 + self.words)

    @property
    def size(self) -> int:
        """Words of a record, to whole cache lines."""
        return (self.violation(3) + 7) // 8 * 8


def switch_numbers(space: Space) -> dict[tuple[str, str, int], int]:
    """The number that switches off each part of each action: (action, "guard" or "write", position), from 1."""
    parts = (
        (action.name, what, n)
        for action in space.protocol.actions.values()
        for what, count in (("guard", len(action.guard)), ("write", len(action.writes)))
        for n in range(count)
    )
    return {part: number for number, part in enumerate(parts, 1)}


def bounded(write: Write) -> str:
    """The sort whose bound a write may pass."""
    sort = write.field.sort
    return sort.of.name if isinstance(sort, MaybeSort) else sort.name
