"""Events: one typed value for each transition, as lines of JSON.

What happens is told by several sources: each coordinator's life, each engine, the service. A source numbers its events
from 1 without gaps, so that a reader notices what is missing. An event is told *after* its transition: a call that
failed, or a write whose effect is unknown, says so in its own event.

Telling costs one function call where nobody listens: the event is not even made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal, ParamSpec, Protocol, Union, get_type_hints

import msgspec

from reef_ref.outlet import Outlet

__all__ = ["EVENTS", "Event", "EventOutlet", "Line", "Listener", "MalformedEvent", "NdjsonFile", "Teller", "read_line"]

SCHEMA = 1
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Event:
    """A transition; a subclass's fields are what its source knows of it."""

    @classmethod
    def name(cls) -> str:
        """The transition's name, as in the protocol."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


@dataclass(frozen=True, slots=True)
class OfEngine(Event):
    """A transition at one engine: `engine` is the number of its slot."""

    engine: int


@dataclass(frozen=True, slots=True)
class OfJob(Event):
    """A transition of one job."""

    job: str


@dataclass(frozen=True, slots=True)
class OfRequest(OfEngine):
    """A transition of one request at one engine."""

    request: str


@dataclass(frozen=True, slots=True)
class CallsFail(Event):
    """Calls of one kind failed at `engines`; `effects` says for each whether it may have acted: "none" or "unknown"."""

    call: str
    engines: tuple[int, ...]
    effects: tuple[str, ...]
    reason: str


# The coordinator, at its engines.


@dataclass(frozen=True, slots=True)
class Pause(OfEngine):
    """The engine does not generate; `mode` is retract or in_place."""

    mode: str


@dataclass(frozen=True, slots=True)
class AllPaused(Event):
    """Every pause has returned."""


@dataclass(frozen=True, slots=True)
class Flush(OfEngine):
    """The engine's prefix cache is empty, after `refusals`; `blocker` is what the last of them named (`Blocker`)."""

    refusals: int = 0
    blocker: str = ""


@dataclass(frozen=True, slots=True)
class AllFlushed(Event):
    """Every flush has returned: the barrier is passed."""


@dataclass(frozen=True, slots=True)
class Release(OfEngine):
    """Regions of the engine's memory were given back."""

    regions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllReleased(Event):
    """Every release has returned."""


@dataclass(frozen=True, slots=True)
class Rebuild(OfEngine):
    """An empty slot has a new engine."""


@dataclass(frozen=True, slots=True)
class AllRebuilt(Event):
    """No slot is empty."""


@dataclass(frozen=True, slots=True)
class ResumeWeights(OfEngine):
    """The memory for weights is back."""


@dataclass(frozen=True, slots=True)
class AllWeightsBack(Event):
    """Every engine has memory for weights."""


@dataclass(frozen=True, slots=True)
class Send(OfEngine):
    """The engine has loaded a whole checkpoint under `load_id`."""

    load_id: str
    checkpoint: str


@dataclass(frozen=True, slots=True)
class AllSent(Event):
    """Every engine has loaded."""


@dataclass(frozen=True, slots=True)
class ResumeKv(OfEngine):
    """The memory for KV is back."""


@dataclass(frozen=True, slots=True)
class AllKvBack(Event):
    """Every engine has memory for KV."""


@dataclass(frozen=True, slots=True)
class Verify(Event):
    """Every engine reports `load_id`, and the same content where it can tell: `checksum`."""

    load_id: str
    checksum: str | None


@dataclass(frozen=True, slots=True)
class FindMismatch(Event):
    """Verification failed: `reason` says what was reported."""

    load_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ContinueGeneration(OfEngine):
    """The engine may generate."""


@dataclass(frozen=True, slots=True)
class AllContinued(Event):
    """Every engine may generate; the latch is clear."""


@dataclass(frozen=True, slots=True)
class FindDead(OfEngine):
    """A call found that nothing answers at the engine's address."""

    call: str


@dataclass(frozen=True, slots=True)
class Retire(OfEngine):
    """The engine was shut down and its slot is empty."""


# The coordinator, on disk.


@dataclass(frozen=True, slots=True)
class RecordRunning(OfJob):
    """RUNNING is durable; `parent` is the load that is served."""

    parent: str


@dataclass(frozen=True, slots=True)
class RecordCheckpoint(OfJob):
    """CHECKPOINT is durable."""

    checkpoint: str


@dataclass(frozen=True, slots=True)
class Declare(OfJob):
    """UPDATING_WEIGHTS is durable, after the barrier and before any byte."""


@dataclass(frozen=True, slots=True)
class DeclareRetired(OfJob):
    """UPDATING_WEIGHTS is durable, because engines were retired."""


@dataclass(frozen=True, slots=True)
class RecordTarget(OfJob):
    """The id under which the bytes will be sent is durable."""

    target: str


@dataclass(frozen=True, slots=True)
class RecordReady(OfJob):
    """READY_TO_COMMIT is durable."""

    load_id: str


@dataclass(frozen=True, slots=True)
class RecordHead(OfJob):
    """HEAD_COMMITTED is durable."""


@dataclass(frozen=True, slots=True)
class RecordComplete(OfJob):
    """COMPLETE is durable."""


@dataclass(frozen=True, slots=True)
class RecordRejecting(OfJob):
    """REJECTING is durable."""


@dataclass(frozen=True, slots=True)
class RecordRejected(OfJob):
    """REJECTED is durable."""


@dataclass(frozen=True, slots=True)
class RestorePreviousRecord(OfJob):
    """The record of before a job that left nothing behind is durable again; `job` is the restored one."""


# The coordinator, with the trainer.


@dataclass(frozen=True, slots=True)
class Train(OfJob):
    """Training ended and left a checkpoint."""


@dataclass(frozen=True, slots=True)
class DeclineJob(OfJob):
    """The job was not begun, and may be offered again."""

    reason: str


# Calls by the service.


@dataclass(frozen=True, slots=True)
class BeginTraining(OfJob):
    """A job was accepted."""


@dataclass(frozen=True, slots=True)
class BeginPublish(OfJob):
    """Publication from CHECKPOINT."""


@dataclass(frozen=True, slots=True)
class BeginRetry(OfJob):
    """Publication from UPDATING_WEIGHTS."""


@dataclass(frozen=True, slots=True)
class BeginRepublish(Event):
    """The load that is served, or ready, is established again."""

    load_id: str


@dataclass(frozen=True, slots=True)
class BeginReject(OfJob):
    """The candidate is refused."""


@dataclass(frozen=True, slots=True)
class CommitHead(Event):
    """The service's head names this load."""

    load_id: str


@dataclass(frozen=True, slots=True)
class Acknowledge(OfJob):
    """The service says that its head has moved."""


@dataclass(frozen=True, slots=True)
class OpenGate(Event):
    """The service admits requests."""


# Engines.


@dataclass(frozen=True, slots=True)
class Admit(OfRequest):
    """The request is in the engine's queue."""


@dataclass(frozen=True, slots=True)
class Start(OfRequest):
    """The request's prompt is computed from its first token, with the weights of `load_id`."""

    load_id: str


@dataclass(frozen=True, slots=True)
class StartOnHit(OfRequest):
    """As `Start`, but the first `tokens` come from the prefix cache; `made_by` are the loads that made them."""

    load_id: str
    tokens: int
    made_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish(OfRequest):
    """The request was answered; `loads` are those that sampled its tokens."""

    loads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Retract(OfRequest):
    """The request gave its KV back and waits again."""


@dataclass(frozen=True, slots=True)
class Migrate(OfRequest):
    """The request left this engine's queue for that of `destination`."""

    destination: int


# Others.


@dataclass(frozen=True, slots=True)
class EmptySlot(OfEngine):
    """The health monitor retired an engine that did not answer."""


@dataclass(frozen=True, slots=True)
class Restart(Event):
    """A coordinator begins its life; `survivors` are the slots that hold an engine."""

    survivors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TearDown(Event):
    """Every engine was ended by the deployment."""


# Failures.


@dataclass(frozen=True, slots=True)
class BarrierFails(CallsFail):
    """A pause, flush or release failed, or an empty slot could not be filled."""


@dataclass(frozen=True, slots=True)
class TransferFails(CallsFail):
    """Memory could not be moved, or bytes not be loaded, or an engine did not report."""


@dataclass(frozen=True, slots=True)
class ContinueFails(CallsFail):
    """An engine did not continue; the latch stays set."""


@dataclass(frozen=True, slots=True)
class RetireFails(OfEngine):
    """The engine could not be shut down and keeps its slot, behind the latch."""

    reason: str


@dataclass(frozen=True, slots=True)
class WriteFails(Event):
    """A durable write failed. `found` is what the file holds: a status, "none", or "unknown" if it cannot be read."""

    wanted: str
    found: str
    reason: str


@dataclass(frozen=True, slots=True)
class TrainFails(OfJob):
    """Training failed; the record stays RUNNING."""

    reason: str


@dataclass(frozen=True, slots=True)
class Crash(Event):
    """The coordinator died."""


@dataclass(frozen=True, slots=True)
class Die(OfEngine):
    """The engine died, and with it the requests that it had: `lost`."""

    lost: tuple[str, ...]


EVENTS: Mapping[str, type[Event]] = MappingProxyType(
    {
        kind.name(): kind
        for kind in list(globals().values())
        if isinstance(kind, type)
        and issubclass(kind, Event)
        and kind not in {Event, OfEngine, OfJob, OfRequest, CallsFail}
    }
)
"""Every event by its name."""


class MalformedEvent(ValueError):  # noqa: N818  The name says what is wrong with the line.
    """A line is not an event of this schema."""


@dataclass(frozen=True, slots=True)
class Line:
    """An event with its source, its number there (from 1, without gaps), and the source's clock in seconds."""

    source: str
    number: int
    at: float
    event: Event

    def to_json(self) -> str:
        """One line of JSON, without its end. What is not Unicode, as a file's name may be, becomes a question mark."""
        head = {
            "schema": SCHEMA,
            "source": self.source,
            "number": self.number,
            "at": round(self.at, 6),
            "event": self.event.name(),
        }
        body = json.dumps({**head, **dataclasses.asdict(self.event)}, separators=(",", ":"), ensure_ascii=False)
        return body.encode("utf-8", "replace").decode("utf-8")


_HEAD = [(field.name, get_type_hints(Line)[field.name]) for field in dataclasses.fields(Line) if field.name != "event"]


def _wire(kind: type[Event]) -> type[msgspec.Struct]:
    """An event's line: the line's own fields first, then the schema, then the event's, of which some may be missing."""
    hints = get_type_hints(kind)
    fields = [
        (field.name, hints[field.name], msgspec.NODEFAULT if field.default is dataclasses.MISSING else field.default)
        for field in dataclasses.fields(kind)
    ]
    return msgspec.defstruct(
        kind.__name__,
        [*_HEAD, ("schema", Literal[SCHEMA]), *fields],
        tag_field="event",
        tag=kind.name(),
        forbid_unknown_fields=True,
    )


_KINDS = {_wire(kind): kind for kind in EVENTS.values()}
_DECODE = msgspec.json.Decoder(Union[tuple(_KINDS)]).decode  # noqa: UP007  The union is only known here.


class _AnySchema(msgspec.Struct):
    schema: msgspec.Raw


def read_line(text: str | bytes) -> Line:
    """Read what `Line.to_json` wrote; `MalformedEvent` says what is wrong with anything else."""
    try:
        wire = _DECODE(text)
    except (ValueError, RecursionError) as error:
        raise MalformedEvent(_why(text, error)) from error
    source, number, at, _, *fields = msgspec.structs.astuple(wire)
    return Line(source, number, at, _KINDS[type(wire)](*fields))


def _why(text: str | bytes, error: Exception) -> str:
    """What is wrong with a line: of another schema's, nothing else is worth saying."""
    with contextlib.suppress(ValueError, RecursionError):
        if bytes(msgspec.json.decode(text, type=_AnySchema).schema) != b"%d" % SCHEMA:
            return f"unknown schema; this release reads schema {SCHEMA}"
    return f"not an event: {error}"


class Listener(Protocol):
    """Whoever wants to know."""

    def __call__(self, line: Line, /) -> None:
        """Take one event; it must not raise and must not wait."""


class Teller:
    """One source of events. `tell(events.Flush, 3)` makes the event and hands it on, if anybody listens."""

    __slots__ = ("_clock", "_listener", "_number", "_source")

    def __init__(self, source: str, listener: Listener | None = None, *, clock: Callable[[], float]) -> None:
        self._source = source
        self._listener = listener
        self._clock = clock
        self._number = 0

    def __call__(self, kind: Callable[P, Event], *args: P.args, **fields: P.kwargs) -> None:
        """Tell one event."""
        if self._listener is None:
            return
        self._number += 1
        self._listener(Line(self._source, self._number, self._clock(), kind(*args, **fields)))

    def skip(self) -> None:
        """Leave a number out: something happened of which nobody can tell more, and readers are to know."""
        self._number += 1


class NdjsonFile:
    """Writes each event as one line, at once, so that a reader may follow."""

    def __init__(self, path: Path) -> None:
        self._stream: IO[str] = path.open("a", encoding="utf-8", buffering=1)

    def __call__(self, line: Line) -> None:
        """Write one line."""
        self._stream.write(line.to_json() + "\n")

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class EventOutlet:
    """Sends each event to a file or a monitor's socket (`unix:` and its path), and never waits for either.

    What is lost on the way leaves a gap in the numbers, so that the monitor knows.
    """

    def __init__(self, target: str) -> None:
        self._outlet: Outlet[Line] = Outlet(target, lambda line: line.to_json().encode())

    @property
    def attached(self) -> bool:
        """Whether somebody takes what is sent."""
        return self._outlet.attached

    @property
    def lost(self) -> int:
        """Events that did not get out."""
        return self._outlet.dropped + self._outlet.failed

    def __call__(self, line: Line) -> None:
        """Hand over one line."""
        self._outlet.put(line)

    def close(self) -> None:
        """Send what waits, for a bounded time, and stop."""
        self._outlet.close()
