"""Cold recovery: what a new coordinator does about the record that it finds.

Every state but RUNNING has one answer, and each is the same errand with another end: barrier, fill empty slots,
barrier, send a whole load, verify. What engines report selects nothing. RUNNING is ambiguous, for the optimizer may
have moved; only proof that it did not lets the record of before be restored.

Source: reef-semantics section 2.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from reef_ref import events
from reef_ref.journal import Journal
from reef_ref.markers import Status
from reef_ref.publication import Phase, Publication

__all__ = ["AmbiguousTraining", "Recovery", "TrainerEvidence"]


class AmbiguousTraining(Exception):  # noqa: N818  The name says what was found.
    """The record says RUNNING: nobody knows whether the optimizer has moved. It is never run again by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEvidence:
    """What the trainer's own files say: the last iteration that it saved, and whether the job left any file."""

    iteration: int
    job_left_files: bool


class Recovery:
    """What happens once, before the first job of a life."""

    def __init__(self, publication: Publication, journal: Journal, *, tell: events.Teller) -> None:
        self._publication = publication
        self._journal = journal
        self._tell = tell

    async def restore_previous_record(self, evidence: TrainerEvidence) -> bool:
        """Put the record of before a RUNNING job back, if that job provably left nothing; whether it was put back."""
        record = await self._journal.settle()
        if record is None or record.status is not Status.RUNNING or record.previous is None:
            return False
        previous = record.previous
        left_nothing = (
            not evidence.job_left_files
            and evidence.iteration == previous.rollout < record.rollout
            and previous.status is Status.COMPLETE
            and previous.load_id == record.parent.load_id
        )
        if not left_nothing:
            return False
        await self._journal.write(previous, lambda: self._tell(events.RestorePreviousRecord, previous.job))
        return True

    async def recover(self) -> None:
        """Bring engines to what the record says.

        They serve afterwards, or stay paused where the service has not committed. Raises `AmbiguousTraining` before any
        engine is asked; any failure on the way retires engines as in a publication.
        """
        publication = self._publication
        publication.phase = Phase.RECOVERING
        record = await self._journal.settle()
        status = None if record is None else record.status
        if record is not None and status is Status.RUNNING:
            publication.phase = Phase.TRAINING_FAILED
            message = f"job {record.job} was training when the coordinator ended; an operator has to decide"
            raise AmbiguousTraining(message)
        async with publication.retiring_on_failure():
            await publication.fence_and_rebuild(declare=status is Status.CHECKPOINT)
            match status:
                case Status.CHECKPOINT | Status.UPDATING_WEIGHTS:
                    await publication.transfer_candidate()
                    return
                case Status.REJECTING:
                    assert record is not None
                    # Bytes and not only the label: fresh engines boot from whatever is newest on disk.
                    await publication.establish(record.parent)
                case _:
                    load = publication.established(record)
                    assert load is not None
                    await publication.establish(load)
            if status is Status.READY_TO_COMMIT:
                publication.phase = Phase.AWAITING_COMMIT
                return
            await publication.continue_serving()
        match status:
            case Status.HEAD_COMMITTED:
                await publication.record_complete()
            case Status.REJECTING:
                await publication.record_rejected()
