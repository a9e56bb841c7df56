"""What happens in a soak, and in which order: drawn from a seed, every kind as often as every other."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.soak.acts import ACTS, Act

__all__ = ["DEATHS", "Fault", "Round", "rounds"]


class Fault(StrEnum):
    """What goes wrong without anybody doing wrong."""

    ENGINE_KILLED = "an engine is killed, and rebuilt"
    CALL_HANGS = "a call hangs"
    CALL_FAILS = "a call fails after it had its effect"
    COORDINATOR_DIES = "the coordinator dies, and lives again"
    MONITOR_KILLED = "the monitor is killed, and started again"
    FLUSH_REFUSED = "flushes are refused for a while"


DEATHS = (
    *("begin_publish", "pause", "all_paused", "flush", "all_flushed", "declare", "record_target", "send", "all_sent"),
    *("verify", "record_ready", "acknowledge", "record_head", "continue_generation", "all_continued"),
)
"""Events of a publication after which an engine or the coordinator may die."""
HANGING = ("pause_generation", "continue_generation")
FAILING = ("update_weights_from_disk", "pause_generation", "continue_generation")


@dataclass(frozen=True)
class Round:
    """One publication, or one violation.

    Attributes:
        what: a fault that comes to the publication, or a violation instead of it; none: nothing is the matter.
        at: the event after which it comes, or the call that it comes to.
        slot: the engine that it comes to.
    """

    what: Fault | Act | None
    at: str = ""
    slot: int = 0


def rounds(seed: int, engines: int) -> Iterator[Round]:
    """Rounds without end: all faults and all violations shuffled, and again, with plain publications in between."""
    draw = random.Random(seed)
    while True:
        deck: list[Fault | Act] = [*Fault, *ACTS]
        draw.shuffle(deck)
        for what in deck:
            yield Round(None)
            match what:
                case Fault.CALL_HANGS:
                    at = draw.choice(HANGING)
                case Fault.CALL_FAILS:
                    at = draw.choice(FAILING)
                case _:
                    at = draw.choice(DEATHS)
            yield Round(what, at, draw.randrange(engines))
