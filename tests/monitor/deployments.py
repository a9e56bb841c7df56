"""What a deployment tells: real traces of the coordinator on simulated engines, and lines as ranks write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reef_ref import rank_events
from reef_ref.engines.simulated.clock import VirtualTimeLoop
from reef_ref.engines.simulated.faults import Fault
from reef_ref.events import Line
from reef_ref.rank_events import Beat, RankEvent, encode
from tests.conformance.explore import Scenario, run
from tests.conformance.world import Checkpoints, Layout


def trace(
    folder: Path, layout: Layout, wishes: Sequence[bool], faults: Mapping[int, Fault] | None = None
) -> list[Line]:
    """Everything that is told of a whole life: it starts, trains and publishes each job, and settles."""
    loop = VirtualTimeLoop()
    try:
        outcome = loop.run_until_complete(
            run(Checkpoints(folder), Scenario(layout, tuple(wishes)), dict(faults or {}), resting=False)
        )
    finally:
        loop.close()
    assert outcome.end == "settled"
    return list(outcome.lines)


STARTED = {"able_to_share": True, "problems": (), "verdicts": (), "idle": "retract"}


class Rank:
    """One rank's process, telling as the plugin does."""

    def __init__(self, pid: int = 7, rank: int = 0, engine: int | None = None) -> None:
        self._source = {"pid": pid, "rank": rank, "engine": engine}
        self.number = 0

    def __call__(self, kind: type[RankEvent], **fields: Any) -> RankEvent:
        """The next event."""
        self.number += 1
        return kind(**self._source, time=0.0, number=self.number, **fields)

    def beat(self, **counters: int) -> RankEvent:
        return Beat(**self._source, time=0.0, number=self.number, dropped=0, counters=counters)

    def start(self, load_id: str = "a:1", *, sharing: bool = True, watched: bool = True) -> RankEvent:
        provenance = {"mode": "report", "load_id": load_id} if watched else None
        return self(rank_events.Start, **STARTED, sharing=sharing, provenance=provenance)

    def load(self, load_id: str | None, *, mixed: bool = False, paused: str | None = "retract") -> RankEvent:
        return self(rank_events.Load, epoch=1, load_id=load_id, reason="disk", mixed=mixed, paused=paused)

    def publication(self, load_id: str) -> Iterator[RankEvent]:
        """What a rank tells of a publication that keeps the protocol."""
        yield self(rank_events.Pause, mode="retract")
        yield self(rank_events.Flush, load_id=load_id)
        yield self.load(load_id)
        yield self(rank_events.Continue, load_id=load_id)

    def stale(
        self,
        action: str = "reported",
        kind: type[RankEvent] = rank_events.StalePrefix,
        *,
        stale: int = 4,
        foreign: int = 0,
        request: str = "r",
    ) -> RankEvent:
        return self(
            kind,
            action=action,
            request=request,
            reused=8,
            stale=stale,
            foreign_adapter=foreign,
            slots=({"position": 0, "slot": 5},),
            written_by=("a:1",),
            serving="a:2",
            retractions=0,
        )


def as_lines(events: Sequence[RankEvent]) -> bytes:
    """As a rank's file has them."""
    return b"".join(encode(event) + b"\n" for event in events)
