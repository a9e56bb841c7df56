"""What the monitor finds, and what is known of an engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["CONFORMS", "Freshness", "Violation"]

CONFORMS = "follows_the_protocol"
"""Stands for a property where an event has no place in the protocol, and no one property says why."""


class Freshness(enum.Enum):
    """What may be said of the prefixes that an engine's requests reuse, up to the last event or beat of its ranks.

    That a rank's newest event is lost shows at its next beat (`reef_ref.sglang.events.BEAT_S`), not before.
    """

    FRESH = "fresh"
    """Everything was seen, and each reused slot was of the weights of then."""
    STALE = "stale"
    """Tokens were computed from a stale prefix, or will be: the tree holds such entries, and was not emptied since."""
    UNKNOWN = "unknown"
    """Something was not seen, or there is nobody who looks. Never a guess."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A property does not hold.

    Attributes:
        property: its name in the specification, or `CONFORMS`.
        engine: the slot of the engine; none where it is the deployment's.
        source: who told the event that shows it.
        number: the event's number there.
        reason: why, in one line.
        story: the last events of that source, this one included, oldest first.
        stopped: the engine has kept it from having an effect (provenance mode enforce).
    """

    property: str
    engine: int | None
    source: str
    number: int
    reason: str
    story: tuple[str, ...]
    stopped: bool = False

    def __str__(self) -> str:
        where = "deployment" if self.engine is None else f"engine {self.engine}"
        stopped = " (stopped)" if self.stopped else ""
        return f"{self.property} violated at {where}{stopped}: {self.reason} [event {self.number} of {self.source}]"
