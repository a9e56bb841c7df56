"""What keeps an engine from emptying its cache, by a small fixed set of names."""

from __future__ import annotations

import re
from enum import StrEnum

__all__ = ["Blocker", "blocker_of"]


class Blocker(StrEnum):
    """Why a flush was refused, as far as the refusal says."""

    RUNNING = "running"
    """Requests are in a batch."""
    WAITING = "waiting"
    """Requests wait in the queue."""
    GRAMMAR = "grammar"
    """A request's grammar is compiling."""
    ANOTHER_FLUSH = "another_flush"
    """A flush with a time-out is under way, or its time has run out."""
    NO_ANSWER = "no_answer"
    """There was no answer in time."""
    UNNAMED = "unnamed"
    """The refusal does not say."""


_COUNTS = re.compile(r"#queue-req: (\d+), #running-req: (\d+)")


def blocker_of(refusal: str) -> Blocker:
    """What a refusal's text names.

    SGLang 0.5.23 answers only that the flush failed (`http_server.py`, `flush_cache`): what was in the way stands in
    its log, by the counts of `scheduler.py`, `flush_cache`, and where both are zero not even there.
    """
    text = refusal.lower()
    if counts := _COUNTS.search(text):
        waiting, running = (int(count) > 0 for count in counts.groups())
        return Blocker.RUNNING if running else Blocker.WAITING if waiting else Blocker.UNNAMED
    # `flush_wrapper.py`, `handle` and `check_pending`.
    if "already in progress" in text or "waiting for idle state" in text:
        return Blocker.ANOTHER_FLUSH
    if "no answer within" in text:
        return Blocker.NO_ANSWER
    if "grammar" in text or "compiling" in text:
        return Blocker.GRAMMAR
    if "running" in text:
        return Blocker.RUNNING
    return Blocker.WAITING if "waiting" in text else Blocker.UNNAMED
