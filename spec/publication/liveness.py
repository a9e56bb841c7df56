"""What may be counted on, and what then happens in the end, on every run whose faults end.

The letters in brackets number the invariants of the reference text. Each party gets on with what it is asked, and no
more: that a service calls again and again, for one, is assumed only of the calls without which nobody could go on.
"""

from __future__ import annotations

from spec.lang import Bool, Fair, LeadsTo, exists, strongly_fair, weakly_fair, wherever
from spec.publication.properties import serving
from spec.publication.state import (
    SETTLED,
    Engine,
    Errand,
    Marker,
    Phase,
    Request,
    Slot,
    State,
    live,
    publication,
)

# What may be counted on


@publication.assumption
def engines_answer(s: State, e: Engine) -> Fair:
    """A process that is called gives an answer, one that is started comes up, and one that is shut down ends."""
    return weakly_fair(
        "pause", "flush", "release", "rebuild", "resume_weights", "send", "resume_kv", "continue_generation", "retire"
    )


@publication.assumption
def the_coordinator_goes_on(s: State) -> Fair:
    """An errand goes on when all have answered, and is given up where a dead handle does not answer.

    A job that is about to be recorded is recorded or declined. In small worlds only the second is always possible.
    """
    return weakly_fair(
        "all_paused",
        "all_flushed",
        "all_released",
        "all_rebuilt",
        "all_weights_back",
        "all_sent",
        "all_kv_back",
        "all_continued",
        "verify",
        "find_mismatch",
        "find_dead",
        "find_dead_at_continue",
        "all_retired",
        "decline_job",
    )


@publication.assumption
def the_disk_is_written(s: State) -> Fair:
    """A record that is to be written is written."""
    return weakly_fair(
        "record_checkpoint",
        "declare",
        "record_target",
        "record_ready",
        "record_head",
        "record_complete",
        "record_rejecting",
        "record_rejected",
    )


@publication.assumption
def training_ends(s: State) -> Fair:
    """The trainer makes the checkpoint that it works on."""
    return weakly_fair("train")


@publication.assumption
def engines_settle(s: State, e: Engine) -> Fair:
    """A paused engine sends back what it still runs, if it does not deliver it."""
    return weakly_fair("retract")


@publication.assumption
def engines_run(s: State, e: Engine) -> Fair:
    """While it schedules, an engine gets through its request, however often it is paused in between."""
    return strongly_fair("start", "finish", where=~s.paused[e])


@publication.assumption
def jobs_are_decided(s: State) -> Fair:
    """The service publishes a checkpoint, if it does not reject it, and tries again what was left half published."""
    return weakly_fair("begin_publish", "begin_retry")


@publication.assumption
def rejections_are_finished(s: State) -> Fair:
    """What the service has begun to reject it goes on rejecting."""
    return weakly_fair("begin_reject", where=s.memory_status == Marker.REJECTING)


@publication.assumption
def heads_are_committed(s: State) -> Fair:
    """The service holds a record of its own of what is published, and commits it (L5)."""
    return weakly_fair("commit_head")


@publication.assumption
def commits_are_acknowledged(s: State) -> Fair:
    """The service tells that the head has moved, and tells it again until that is done, whatever else it asks for."""
    return strongly_fair("acknowledge")


def amiss(s: State) -> Bool:
    """Something has failed, or an engine is lost."""
    return (s.phase != Phase.SERVING) | exists(Engine, lambda e: ~live(s, e))


@publication.assumption
def what_is_lost_is_republished(s: State) -> Fair:
    """The service republishes where something has failed or an engine is lost; where all is well it need not."""
    return strongly_fair("begin_republish", where=amiss(s))


@publication.assumption
def admission_is_wanted(s: State) -> Fair:
    """The service opens admission, however often something closes it again."""
    return strongly_fair("open_gate")


@publication.assumption
def somebody_watches(s: State) -> Fair:
    """The supervisor restarts what is down, tears down what is beyond repair, and an operator decides what is open."""
    return weakly_fair("restart", "tear_down", "restore_previous_record")


# What happens in the end


@publication.eventuality
def every_publication_settles(s: State) -> LeadsTo:
    """A job that has begun is published and committed, or refused, or given up (L3, L4)."""
    return wherever(~s.disk_status.is_in(*SETTLED)).leads_to(s.disk_status.is_in(*SETTLED))


@publication.eventuality
def every_commit_completes(s: State) -> LeadsTo:
    """What is published does not wait for its commit for ever, and a commit that has begun completes (L5, L6)."""
    return wherever(s.disk_status.is_in(Marker.READY_TO_COMMIT, Marker.HEAD_COMMITTED)).leads_to(
        s.disk_status == Marker.COMPLETE
    )


@publication.eventuality
def every_errand_ends(s: State) -> LeadsTo:
    """No call to the coordinator lasts for ever: every barrier passes, or fails (L2)."""
    return wherever(s.errand != Errand.NOTHING).leads_to(s.errand == Errand.NOTHING)


@publication.eventuality
def every_request_is_answered(s: State, e: Engine) -> LeadsTo:
    """An admitted request is answered, by tokens or, where its engine is gone, by an error (L1)."""
    return wherever(s.request[e] != Request.NONE).leads_to(s.request[e] == Request.NONE)


@publication.eventuality
def every_lost_engine_is_replaced(s: State, e: Engine) -> LeadsTo:
    """Where a process is lost, another one comes (L7)."""
    return wherever(s.slot[e] != Slot.LIVE).leads_to(s.slot[e] == Slot.LIVE)


@publication.eventuality
def everybody_serves(s: State) -> LeadsTo:
    """Whatever has happened, every engine serves with admission open, again and again (L9)."""
    return wherever(True).leads_to(serving(s))
