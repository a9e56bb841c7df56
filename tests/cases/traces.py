"""Reports as traces: what would be told where somebody made the mistake, and what is right beside it.

Each begins with a good history of two engines and two publications, with a request on every engine in between, and says
otherwise what the report tells. A trace is good, and explained, or bad, and then `at` is the event that nothing
explains and `why` what its objection, or its note, speaks of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.validate import publication
from reef_ref import events
from reef_ref.events import Event

ENGINES = 2
OLD, NEW = "a:2", "a:3"
"""The load before the second publication, and the one after it."""
JOB = "job-2"
RETIRED = (events.Retire(0), events.Retire(1), events.DeclareRetired(JOB))

History = list[Event]


@dataclass(frozen=True)
class Trace:
    """A trace by what it shows; bad where `at` names the event that is not explained."""

    doc: str
    events: tuple[Event, ...]
    at: type[Event] | None = None
    why: str = ""


TRACES: dict[str, Trace] = {}


def trace(
    at: type[Event] | None = None, why: str = "", *, jobs: int = 2
) -> Callable[[Callable[[History], Iterable[Event]]], None]:
    """Register a trace: some publications, of which a function has told the last one anew."""

    def register(tell: Callable[[History], Iterable[Event]]) -> None:
        before = (event for job in range(1, jobs) for event in publication(job, ENGINES))
        told = (*before, *tell(list(publication(jobs, ENGINES))))
        assert tell.__doc__ is not None
        TRACES[tell.__name__] = Trace(tell.__doc__, told, at, why)

    return register


def until(history: History, event: Event) -> History:
    """Everything before an event."""
    return history[: history.index(event)]


def without(history: History, kind: type[Event]) -> History:
    """Everything but events of a kind."""
    return [event for event in history if not isinstance(event, kind)]


def put(history: History, *more: Event, before: Event) -> History:
    """More events, before one."""
    at = history.index(before)
    return [*history[:at], *more, *history[at:]]


def instead(history: History, old: Event, *new: Event) -> History:
    """Other events in the place of one."""
    return put(without_one(history, old), *new, before=history[history.index(old) + 1])


def without_one(history: History, event: Event) -> History:
    """Everything but one event."""
    return [other for other in history if other != event]


@trace()
def nothing_went_wrong(told: History) -> History:
    """Two publications as they should be."""
    return told


@trace(events.AllFlushed, "all_flushed")
def nobody_waits_for_a_refused_flush(told: History) -> History:
    """One engine refuses, and the publication goes on as if both had flushed."""
    return without_one(told, events.Flush(1))


@trace()
def a_refused_flush_ends_the_publication(told: History) -> History:
    """The refusal is told with its own words, whatever they say, and engines are retired."""
    refused = events.BarrierFails("flush", (1,), ("none",), "flush failed: engine 1: #queue 16, #running 0")
    return [*until(told, events.Flush(1)), refused, *RETIRED]


@trace(events.StartOnHit, "no_stale_hit")
def a_flush_that_answers_and_does_nothing(told: History) -> History:
    """The engine answers 200; what it had cached is there after the publication."""
    return instead(
        told, events.StartOnHit(1, "request-2-1", NEW, 16, (NEW,)), events.StartOnHit(1, "request-2-1", NEW, 16, (OLD,))
    )


@trace()
def a_flush_that_works_and_says_it_did_not(told: History) -> History:
    """An answer that was lost: the engine may have flushed, and is retired all the same."""
    lost = events.BarrierFails("flush", (1,), ("unknown",), "flush failed: engine 1: the connection broke")
    return [*until(told, events.Flush(1)), lost, *RETIRED]


@trace(events.AllFlushed, "all_flushed")
def a_failed_flush_that_is_warned_of_and_ignored(told: History) -> History:
    """The flush is said to have failed, and the publication goes on."""
    lost = events.BarrierFails("flush", (1,), ("unknown",), "flush failed: engine 1: not supported")
    return instead(told, events.Flush(1), lost)


@trace(events.Flush, "flush")
def every_rank_asks_for_the_flush(told: History) -> History:
    """One engine is flushed twice in one barrier."""
    return put(told, events.Flush(0), before=events.Flush(1))


@trace(events.AllSent, "all_sent")
def nothing_to_send_and_no_id_sent(told: History) -> History:
    """The update is skipped, and with it the id."""
    return without(told, events.Send)


@trace(events.Start, "reports")
def one_way_forgets_to_record_the_id(told: History) -> History:
    """One engine got the bytes and goes on under the id of before."""
    hit = events.StartOnHit(1, "request-2-1", NEW, 16, (NEW,))
    return instead(told, hit, events.Start(1, "request-2-1", OLD))


@trace(events.Start, "reports")
def a_label_from_the_admission(told: History) -> History:
    """A request that waited over the publication bears the id of when it came."""
    waited = put(told, events.Admit(0, "early"), before=events.Pause(0, "retract"))
    return put(waited, events.Start(0, "early", OLD), before=events.RecordComplete(JOB))


@trace()
def a_label_from_the_start(told: History) -> History:
    """A request that waited over the publication bears the id of the weights that computed it."""
    waited = put(told, events.Admit(0, "early"), before=events.Pause(0, "retract"))
    return put(waited, events.Start(0, "early", NEW), before=events.RecordComplete(JOB))


@trace(events.Start, "paused")
def a_prefill_between_two_parts(told: History) -> History:
    """One engine has its bytes, the other not yet, and a request is started."""
    return put(
        told, events.Admit(0, "early"), events.Start(0, "early", NEW), before=events.Send(1, NEW, "/checkpoints/2")
    )


@trace()
def samples_of_one_request_share_its_prompt(told: History) -> History:
    """The first computes the prompt; the others reuse what it has just made, on the same load."""
    hit = events.StartOnHit(0, "request-2-0", NEW, 16, (NEW,))
    first = [events.Start(0, "request-2-0", NEW), events.Admit(0, "second"), events.Admit(0, "third")]
    return instead(
        told,
        hit,
        *first,
        events.StartOnHit(0, "second", NEW, 16, (NEW,)),
        events.StartOnHit(0, "third", NEW, 16, (NEW,)),
    )


@trace(events.Flush, "flush", jobs=1)
def a_pause_that_keeps_requests_and_a_flush(told: History) -> History:
    """In place nothing is flushed: requests keep the KV that they have."""
    return [events.Pause(event.engine, "in_place") if isinstance(event, events.Pause) else event for event in told]
