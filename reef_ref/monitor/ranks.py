"""One rank of an engine, from what it tells: which properties hold there, exactly and without any other source.

A rank tells its events in its scheduler's own order, so that each property below is decided by its own events alone.
The names are those of `spec.serving`, and where the engine is part of a deployment those of `spec.publication`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from reef_ref import rank_events
from reef_ref.monitor.notice import Freshness, Violation
from reef_ref.rank_events import RankEvent

__all__ = ["DECIDED", "STORY", "RankWatch", "told"]

STORY = 16
"""Events that a story goes back."""
DECIDED = (
    "no_stale_hit",
    "adapters_are_apart",
    "flush_point",
    "sharing_only_with_retract",
    "bytes_arrive_in_a_pause",
    "label_follows_success",
    "only_whole_loads_compute",
    "provenance_is_watched",
)
"""Properties that one rank's events decide. The last is none of the protocol's: that there is somebody who looks."""


class RankWatch:
    """What one rank's events say; feed them in order.

    Args:
        engine: the slot of its engine.
        source: the rank's name in what is found.
    """

    def __init__(self, engine: int, source: str) -> None:
        self.engine = engine
        self.source = source
        self.load_id: str | None = None
        self.paused: str | None = None
        self.sharing: bool | None = None
        """Whether its tree shares prefixes; none where that was not heard."""
        self._watched = False
        self._lost = True
        self._told: deque[RankEvent] = deque(maxlen=STORY)
        self._known = (Freshness.UNKNOWN, "nothing was heard yet")
        self._silent = ""

    @property
    def freshness(self) -> Freshness:
        """What may be said of what its requests reuse."""
        return Freshness.UNKNOWN if self._silent and self._known[0] is Freshness.FRESH else self._known[0]

    @property
    def why(self) -> str:
        """Why it is not fresh; empty where it is."""
        return self._silent if self._silent and self._known[0] is Freshness.FRESH else self._known[1]

    def silent(self, reason: str) -> None:
        """Nothing was heard for too long. If nothing turns out to be missing, all is as it was."""
        self._silent = reason

    def heard(self) -> None:
        """It tells again that it is there."""
        self._silent = ""

    def lose(self, reason: str) -> None:
        """Something of this rank was not seen. It is known again after the next start or flush."""
        self._lost = True
        self._set(Freshness.UNKNOWN, reason)

    def feed(self, event: RankEvent) -> Iterator[Violation]:
        """Take the next event."""
        self._told.append(event)
        match event:
            case rank_events.Start():
                yield from self._start(event)
            case rank_events.Pause(mode=mode):
                self.paused = mode
            case rank_events.Flush():
                self._flushed()
            case rank_events.Load():
                yield from self._load(event)
            case rank_events.Label(load_id=load_id):
                yield self._violation(
                    "label_follows_success", event, f"the weights are called {load_id}, and no byte has changed"
                )
                self.load_id = load_id
            case rank_events.Continue(load_id=load_id):
                self.paused, self.load_id = None, load_id
                if load_id is None and self._watched:
                    reason = "the engine generates, and what it generates with is no complete load"
                    yield self._violation("only_whole_loads_compute", event, reason)
            case rank_events.StaleFinding():
                yield from self._found(event)

    def _start(self, event: rank_events.Start) -> Iterator[Violation]:
        self._lost = False
        self.sharing = event.sharing
        self.paused = None
        self._watched = event.provenance is not None
        self.load_id = None if event.provenance is None else event.provenance.get("load_id")
        if self._watched or not event.sharing:
            self._set(Freshness.FRESH)
        else:
            self._set(Freshness.UNKNOWN, "nobody looks at reused prefixes: provenance is off")
            reason = "prefixes are shared with provenance off: start the engine with REEF_REF_PROVENANCE=report"
            yield self._violation("provenance_is_watched", event, reason)

    def _flushed(self) -> None:
        if self._watched or not self._lost:
            # Nothing that was there before can be reused any more; what comes is seen again.
            self._lost = False
            self._set(Freshness.FRESH)

    def _load(self, event: rank_events.Load) -> Iterator[Violation]:
        self._watched, self.load_id = True, event.load_id
        if event.paused is None:
            yield self._violation("bytes_arrive_in_a_pause", event, f"{_load(event)} while the engine generates")
        if not event.mixed or self.sharing is False:
            return
        if self.sharing is None:
            # Whether there is a tree that keeps anything was said at the start, and not heard.
            self.lose("weights changed while KV was kept, and whether it is shared was not heard")
            return
        if event.paused == "in_place":
            reason = f"{_load(event)} in a pause that leaves KV where it is, and the tree is shared"
            yield self._violation("sharing_only_with_retract", event, reason)
        else:
            reason = f"{_load(event)} over a tree that was not emptied: the next request may reuse what it holds"
            yield self._violation("flush_point", event, reason)
        self._set(Freshness.STALE, "the tree holds entries of older weights")

    def _found(self, event: rank_events.StaleFinding) -> Iterator[Violation]:
        self._watched = True
        if event.foreign_adapter:
            reason = (
                f"request {event.request} was given {event.foreign_adapter} of {event.reused} slots that another "
                f"adapter computed"
            )
            yield self._violation("adapters_are_apart", event, reason, stopped=not event.used)
        if event.stale > event.foreign_adapter or not event.foreign_adapter:
            makers = ", ".join(event.written_by) or "nobody knows whom"
            reason = (
                f"request {event.request} was given {event.stale} of {event.reused} slots computed by {makers}; "
                f"the engine serves {event.serving}"
            )
            yield self._violation("no_stale_hit", event, reason, stopped=not event.used)
        if event.used:
            self._set(Freshness.STALE, f"request {event.request} ran on a stale prefix")

    def _set(self, freshness: Freshness, why: str = "") -> None:
        if self._lost and freshness is Freshness.FRESH:
            return
        self._known = (freshness, why)

    def _violation(self, name: str, event: RankEvent, reason: str, *, stopped: bool = False) -> Violation:
        return Violation(name, self.engine, self.source, event.number, reason, tuple(map(told, self._told)), stopped)


def _load(event: rank_events.Load) -> str:
    return f"bytes of {event.load_id or 'no complete load'} arrive ({event.reason})"


def told(event: RankEvent) -> str:
    """An event as people read it, without its source."""
    head = {"schema", "pid", "rank", "time", "number", "verdicts", "provenance", "counters"}
    fields = (n for n in event.__struct_fields__ if n not in head)
    name = type(event).__name__
    return f"{event.number}. {name}({', '.join(f'{n}={getattr(event, n)!r}' for n in fields)})"
