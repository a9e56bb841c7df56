"""Publications as a coordinator's events show them: what each was for, how far it came, how long each part took.

A publication begins where the coordinator says so (`begin_publish`, `begin_retry`, `begin_republish`), or with the
first call of a life to its engines, and ends where all engines generate, or where a call has failed. A try that fails
is one publication, and the retry another. Times are those of the coordinator's own events, by its own clock: an event
is told after its transition, so that a part begins with the event before its first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from reef_ref import events
from reef_ref.events import Event, Line

__all__ = ["Barrier", "Errand", "Outcome", "Part", "PartName", "Publication", "Publications"]


class Errand(StrEnum):
    """What a publication is for."""

    PUBLISH = "publish"
    """A job's candidate."""
    RETRY = "retry"
    """The same, after a failure."""
    REPUBLISH = "republish"
    """The load that is served, or ready, once more."""
    RECOVER = "recover"
    """What the record says, at the beginning of a coordinator's life."""
    COMMIT = "commit"
    """Engines that wait already: only the end of a publication whose first end failed, or that nobody saw begin."""


class Outcome(StrEnum):
    """How a publication ended."""

    SERVED = "served"
    """Every engine generates on the load."""
    BARRIER_FAILED = "barrier_failed"
    """An engine did not pause or flush, or no engine could be put into an empty slot."""
    TRANSFER_FAILED = "transfer_failed"
    """Memory could not be moved, or bytes not be loaded, or an engine did not report."""
    MISMATCH = "mismatch"
    """An engine holds something else than what was sent."""
    CONTINUE_FAILED = "continue_failed"
    """An engine does not generate again."""
    WRITE_FAILED = "write_failed"
    """The record could not be written."""
    ENGINE_DEAD = "engine_dead"
    """Nothing answers at an engine's address."""
    INTERRUPTED = "interrupted"
    """The coordinator ended, or gave up, or began something else."""
    UNSEEN = "unseen"
    """Events are missing."""


class PartName(StrEnum):
    """The parts of a publication, in their order; those before `transfer` may come twice."""

    BARRIER = "barrier"
    REBUILD = "rebuild"
    TRANSFER = "transfer"
    VERIFICATION = "verification"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Part:
    """From `start` to `end`, in seconds of the coordinator's clock."""

    name: PartName
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Barrier:
    """All engines are paused and, if pausing retracts, flushed: of a publication, or before training."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Publication:
    """One that has ended. Times as in `Part`; `job` and `load_id` are empty where they were not told.

    `broken` is whether it ended within its last part, for `reason`.
    """

    source: str
    errand: Errand
    outcome: Outcome
    start: float
    end: float
    parts: tuple[Part, ...]
    broken: bool
    job: str
    load_id: str
    reason: str


_PART_OF: dict[type[Event], PartName] = {
    **dict.fromkeys((events.Pause, events.AllPaused, events.Flush, events.AllFlushed), PartName.BARRIER),
    **dict.fromkeys((events.Rebuild, events.AllRebuilt), PartName.REBUILD),
    **dict.fromkeys(
        (
            events.Release,
            events.AllReleased,
            events.ResumeWeights,
            events.AllWeightsBack,
            events.Send,
            events.AllSent,
            events.ResumeKv,
            events.AllKvBack,
        ),
        PartName.TRANSFER,
    ),
    **dict.fromkeys((events.Verify, events.FindMismatch), PartName.VERIFICATION),
    **dict.fromkeys(
        (events.Acknowledge, events.RecordHead, events.ContinueGeneration, events.AllContinued), PartName.COMMIT
    ),
}
_PART_OF_CALL = {
    "pause": PartName.BARRIER,
    "flush": PartName.BARRIER,
    "rebuild": PartName.REBUILD,
    "report": PartName.VERIFICATION,
    "checksum": PartName.VERIFICATION,
    "continue": PartName.COMMIT,
}
"""Of the calls that can fail; all others are of the transfer."""
_BEGINNINGS = {
    events.BeginPublish: Errand.PUBLISH,
    events.BeginRetry: Errand.RETRY,
    events.BeginRepublish: Errand.REPUBLISH,
}
_FAILURES = {
    events.BarrierFails: Outcome.BARRIER_FAILED,
    events.TransferFails: Outcome.TRANSFER_FAILED,
    events.FindMismatch: Outcome.MISMATCH,
    events.ContinueFails: Outcome.CONTINUE_FAILED,
    events.WriteFails: Outcome.WRITE_FAILED,
    events.FindDead: Outcome.ENGINE_DEAD,
}
_OTHERS = (events.OfRequest, events.EmptySlot, events.CommitHead, events.OpenGate, events.Die)
"""Told by somebody else than a coordinator, and no part of what it does."""


@dataclass(slots=True)
class _Open:
    source: str
    errand: Errand
    start: float
    job: str = ""
    load_id: str = ""
    parts: list[Part] = field(default_factory=list)


class Publications:
    """Follows one coordinator; feed it every line, each once and in order.

    Attributes:
        pending: a publication was begun, and engines have not generated since: also between a failure and the retry.
    """

    def __init__(self) -> None:
        self.pending = False
        self._open: _Open | None = None
        self._source = ""
        self._number = 0
        self._at = 0.0
        self._barrier: float | None = None
        self._mode = ""
        self._fresh_life = False
        self._training = False

    def feed(self, line: Line) -> Iterator[Barrier | Publication]:
        """Take the next line; what has passed or ended with it comes out."""
        event = line.event
        if isinstance(event, events.Crash | events.TearDown):
            yield from self._end(Outcome.INTERRUPTED, self._at, event.name())
            self._source = ""
            return
        if isinstance(event, _OTHERS):
            return
        if line.source != self._source:
            yield from self._end(Outcome.INTERRUPTED, self._at, f"{line.source} took over")
            self._begin_life(line)
        elif line.number != self._number + 1:
            yield from self._end(Outcome.UNSEEN, self._at, f"event {self._number + 1} was not seen")
            self.pending = self._fresh_life = False
            self._barrier = None
        yield from self._take(line)
        self._number, self._at = line.number, line.at

    def _begin_life(self, line: Line) -> None:
        self._source, self._at = line.source, line.at
        self._barrier = None
        self._fresh_life = self._training = False

    def _take(self, line: Line) -> Iterator[Barrier | Publication]:
        event, at = line.event, line.at
        match event:
            case events.Restart():
                yield from self._end(Outcome.INTERRUPTED, self._at, "the coordinator began another life")
                self._fresh_life = True
            case events.BeginTraining():
                self._training, self._barrier = True, None
            case events.RecordCheckpoint() | events.TrainFails() | events.DeclineJob():
                self._training = False
            case events.BeginPublish() | events.BeginRetry() | events.BeginRepublish():
                yield from self._end(Outcome.INTERRUPTED, self._at, f"{event.name()} came before its end")
                job = "" if isinstance(event, events.BeginRepublish) else event.job
                load_id = event.load_id if isinstance(event, events.BeginRepublish) else ""
                self._begin(_Open(line.source, _BEGINNINGS[type(event)], at, job, load_id))
            case events.Pause() | events.AllPaused() | events.BarrierFails() | events.FindDead() if self._recovers:
                self._begin(_Open(line.source, Errand.RECOVER, self._at))
            case events.Acknowledge(job=job) if self._open is None:
                self._begin(_Open(line.source, Errand.COMMIT, at, job))
        if self._open is not None:
            match event:
                case events.Send(load_id=load_id) | events.Verify(load_id=load_id):
                    self._open.load_id = load_id
                case events.RecordReady(job=job) | events.RecordComplete(job=job):
                    self._open.job = job
        if (barrier := self._passed(line)) is not None:
            yield barrier
        self._note(event, at)
        if isinstance(event, events.AllContinued):
            self.pending = False
            yield from self._end(Outcome.SERVED, at, "")
        elif type(event) in _FAILURES:
            reason = event.call if isinstance(event, events.FindDead) else getattr(event, "reason", "")
            self._barrier = None
            yield from self._end(_FAILURES[type(event)], at, reason)

    @property
    def _recovers(self) -> bool:
        """Whether a call to an engine, now, is the first of a coordinator's life."""
        return self._open is None and self._fresh_life and not self._training

    def _begin(self, publication: _Open) -> None:
        self._open = publication
        self._fresh_life, self._barrier = False, None
        self.pending = True

    def _passed(self, line: Line) -> Barrier | None:
        """The barrier that has passed with this event."""
        event = line.event
        if isinstance(event, events.Pause):
            self._mode = event.mode
            if self._barrier is None:
                self._barrier = self._at
        last = events.AllPaused if self._mode == "in_place" else events.AllFlushed
        if not isinstance(event, last) or self._barrier is None:
            return None
        passed = Barrier(max(0.0, line.at - self._barrier))
        self._barrier = None
        return passed

    def _note(self, event: Event, at: float) -> None:
        """Put an event into the part that it belongs to."""
        if self._open is None:
            return
        if isinstance(event, events.CallsFail | events.FindDead):
            parts = self._open.parts
            name = _PART_OF_CALL.get(event.call, PartName.TRANSFER)
            if event.call == "any":  # The coordinator was cancelled.
                name = parts[-1].name if parts else PartName.BARRIER
        elif type(event) in _PART_OF:
            name = _PART_OF[type(event)]
        else:
            return
        known = self._open.parts[-1] if self._open.parts else None
        if known is not None and known.name is name:
            self._open.parts[-1] = Part(name, known.start, at)
        else:
            self._open.parts.append(Part(name, self._at, at))

    def _end(self, outcome: Outcome, at: float, reason: str) -> Iterator[Publication]:
        if (ended := self._open) is not None:
            self._open = None
            yield Publication(
                ended.source,
                ended.errand,
                outcome,
                ended.start,
                at,
                tuple(ended.parts),
                bool(ended.parts) and outcome not in (Outcome.SERVED, Outcome.WRITE_FAILED),
                ended.job,
                ended.load_id,
                reason,
            )
