"""From a submitted job to a durable checkpoint.

Source: reef-semantics sections 1.1 and 2.5.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from reef_ref import events
from reef_ref.control import CallsFailed, Control, tell_failure
from reef_ref.journal import Journal
from reef_ref.markers import Record, Status, check_checkpoint_folder
from reef_ref.publication import Phase, Publication, Refused

__all__ = ["Disposition", "Job", "Trained", "Trainer", "Training", "disposition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job: its id (a digest of its payload), and where it belongs."""

    job: str
    rollout: int
    scenario: str = "default"
    scenario_step: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """What training left: a checkpoint folder and, if the trainer knows it, its content's checksum."""

    checkpoint: Path
    checksum: str | None = None


class Trainer(Protocol):
    """Whoever turns a job into a checkpoint."""

    async def prepare(self, job: Job) -> str | None:
        """Look whether the job can begin: none, or why not (stale data, no room on disk). Moves nothing."""

    async def train(self, job: Job) -> Trained:
        """Train, and save a checkpoint that is on disk when this returns."""


class Disposition(StrEnum):
    """What a submitted job is, seen from the record."""

    FRESH = "fresh"
    RESUME = "resume"
    """It is trained, and waits for its publication."""
    REPLAY = "replay"
    """It is published."""
    CONFLICT = "conflict"
    """Another job is under way, or this one in a state that submitting it again does not drive."""


def disposition(job: str, record: Record | None) -> Disposition:
    """What to do with a submitted job."""
    if record is None:
        return Disposition.FRESH
    if record.job == job:
        if record.status.published:
            return Disposition.REPLAY
        if record.status is Status.CHECKPOINT:
            return Disposition.RESUME
    elif record.status is Status.COMPLETE:
        return Disposition.FRESH
    return Disposition.FRESH if record.status is Status.REJECTED else Disposition.CONFLICT


class Training:
    """Runs jobs up to CHECKPOINT, one at a time: the caller holds the operation lock."""

    def __init__(
        self,
        trainer: Trainer,
        control: Control,
        journal: Journal,
        publication: Publication,
        *,
        tell: events.Teller,
        bound_s: float,
    ) -> None:
        self._trainer = trainer
        self._control = control
        self._journal = journal
        self._publication = publication
        self._tell = tell
        self._bound_s = bound_s

    async def execute(self, job: Job) -> Disposition | str:
        """Run a job to CHECKPOINT; a job that is already there or further is answered with its disposition.

        A text is the reason why the job was declined; it may be offered again. `Refused` on conflict. A failure on the
        way leaves RUNNING, which is never run again by itself.
        """
        record = await self._journal.settle()
        answer = disposition(job.job, record)
        if answer is Disposition.CONFLICT:
            assert record is not None
            message = f"job {job.job}: the record says {record.status} of job {record.job}; an operator has to decide"
            raise Refused(message)
        if answer is not Disposition.FRESH:
            return answer
        if self._publication.phase.failed:
            message = f"job {job.job}: engines are not serving ({self._publication.phase}); republish first"
            raise Refused(message)
        self._tell(events.BeginTraining, job.job)
        async with asyncio.timeout(self._bound_s):
            reason = await self._trainer.prepare(job)
        if reason is not None:
            self._tell(events.DeclineJob, job.job, reason)
            return reason
        parent = self._publication.identity.served
        record = await self._journal.write(
            Record(
                status=Status.RUNNING,
                job=job.job,
                rollout=job.rollout,
                scenario=job.scenario,
                scenario_step=job.scenario_step,
                parent=parent,
                previous=None if record is None else record.becoming(record.status, previous=None),
            ),
            lambda: self._tell(events.RecordRunning, job.job, str(parent.load_id)),
        )
        self._publication.phase = Phase.TRAINING
        try:
            await self._make_room()
            trained = await self._train(job)
        except BaseException:
            self._publication.phase = Phase.TRAINING_FAILED
            raise
        try:
            check_checkpoint_folder(trained.checkpoint)
            await self._journal.write(
                record.becoming(
                    Status.CHECKPOINT, checkpoint=str(trained.checkpoint), checksum=trained.checksum, previous=None
                ),
                lambda: self._tell(events.RecordCheckpoint, job.job, str(trained.checkpoint)),
            )
        except BaseException:
            self._publication.phase = Phase.CHECKPOINT_FAILED
            raise
        if not self._control.latched:
            self._publication.phase = Phase.SERVING
        return answer

    async def _make_room(self) -> None:
        if not self._control.settings.colocated:
            return
        try:
            await self._control.barrier()
            await self._control.release()
        except CallsFailed as error:
            tell_failure(self._tell, events.BarrierFails, error)
            raise

    async def _train(self, job: Job) -> Trained:
        try:
            async with asyncio.timeout(self._bound_s):
                trained = await self._trainer.train(job)
        except Exception as error:
            self._tell(events.TrainFails, job.job, str(error) or type(error).__name__)
            raise
        self._tell(events.Train, job.job)
        return trained
