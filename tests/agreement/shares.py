"""Which of the drawn protocols each reader is held to: all, or a share in which the whole language is met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

EVERY = {"search": 1, "symmetry": 3, "z3": 12, "SPIN": 40}
"""Of so many protocols that a reader could be given, it is given one, and some more for what it has not met yet."""
LEAST = 2
"""So often each reader meets each construct: the first protocols that have it are given to the reader."""


@dataclass
class Share:
    """What one reader was given: how many protocols, of how many offered, and how many with each construct."""

    every: int
    offered: int = 0
    given: int = 0
    having: Counter[str] = field(default_factory=Counter)

    def takes(self, found: Collection[str]) -> bool:
        """The reader is given a protocol with these constructs."""
        turn = self.offered % self.every == 0
        self.offered += 1
        if not turn and all(self.having[kind] >= LEAST for kind in found):
            return False
        self.given += 1
        self.having.update(set(found))
        return True


class Shares(dict[str, Share]):
    """The share of each reader, by its name."""

    def __init__(self, readers: Iterable[str] = EVERY) -> None:
        super().__init__((reader, Share(EVERY[reader])) for reader in readers)

    def told(self, kinds: Iterable[str]) -> str:
        """How many each reader was given, and how often what it met least."""
        kinds = list(kinds)
        lines = []
        for reader, share in self.items():
            least = min(kinds, key=lambda kind: share.having[kind])
            lines.append(f"{reader}: {share.given} of {share.offered}; least often: {least}, {share.having[least]}")
        return "\n".join(lines)
