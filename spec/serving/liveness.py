"""What may be counted on inside an engine and of its driver, and what then happens in the end.

The letters in brackets number the invariants of the reference text. There are no faults here: what may go wrong does so
by choice of the driver, the clients or the scheduler, again and again if they like.
"""

from __future__ import annotations

from spec.lang import Bool, Fair, LeadsTo, strongly_fair, weakly_fair, wherever
from spec.serving.control import must_flush
from spec.serving.properties import unanswered
from spec.serving.state import Mode, Request, Stage, State, serving

# What may be counted on


@serving.assumption
def every_request_has_its_turn(s: State, r: Request) -> Fair:
    """While the engine schedules, each request gets on, however often others do or a publication comes between."""
    return strongly_fair("compile_grammar", "prefill_rest", "decode")


@serving.assumption
def pauses_leave_time(s: State, r: Request, chunked: Bool) -> Fair:
    """Requests are started in chunks or whole: now and then, there is time for a whole prompt between two pauses.

    Without it a prompt that is sent back after every first chunk never gets anywhere.
    """
    return strongly_fair("start")


@serving.assumption
def results_are_processed(s: State, r: Request) -> Fair:
    """What ran ahead is taken in, and no request has tokens without end."""
    return strongly_fair("take_chunk", "finish", "drop_result")


@serving.assumption
def pauses_are_settled(s: State, r: Request) -> Fair:
    """The scheduler takes requests back one after the other."""
    return weakly_fair("retract")


@serving.assumption
def pauses_return(s: State) -> Fair:
    """A pause that the scheduler is through with returns."""
    return weakly_fair("pause_returns")


def may_send(s: State) -> Bool:
    """The driver has what it waits for before it sends or continues."""
    return (s.stage == Stage.FLUSHED) | ~must_flush(s)


@serving.assumption
def the_driver_flushes(s: State) -> Fair:
    """After a pause that a flush belongs to, the driver flushes, and asks again where that is refused."""
    return weakly_fair("flush", where=s.stage == Stage.PAUSED)


@serving.assumption
def the_driver_restores(s: State) -> Fair:
    """The driver sends a whole load where half of one is, and brings the KV's memory back, at last."""
    return strongly_fair("update", "resume_kv", where=may_send(s))


@serving.assumption
def the_driver_resumes(s: State) -> Fair:
    """The driver brings the memory of the weights back before it sends."""
    return weakly_fair("resume_weights", where=may_send(s))


@serving.assumption
def the_driver_continues(s: State) -> Fair:
    """The driver continues the engine when nothing is missing, and not before the flush."""
    return strongly_fair("continue_generation", where=may_send(s))


# What happens in the end


@serving.eventuality
def every_request_is_answered(s: State, r: Request) -> LeadsTo:
    """A request that waits, compiles, was retracted or frozen is answered, by tokens or by an error (L1)."""
    return wherever(unanswered(s, r)).leads_to(~unanswered(s, r))


@serving.eventuality
def every_pause_ends(s: State) -> LeadsTo:
    """A pause drains, its flush succeeds, and the engine goes on (L2).

    Not a pause that aborts: it returns when no call is under way, and clients may call for ever.
    """
    return wherever((s.stage != Stage.SERVING) & (s.mode != Mode.ABORT)).leads_to(s.stage == Stage.SERVING)
