"""Publication: from durable bytes to engines that serve them, and back to the parent if the candidate is refused.

The order is the whole point (P2, P6): pause all, flush all, *declare* on disk that engines may hold anything, record
the load id, send, verify, record READY_TO_COMMIT. Engines stay paused. Only when the service has moved its head is
HEAD_COMMITTED recorded, and only then does any engine generate.

Whatever fails, cancellation included, ends in engines that are retired or fenced and in a record that says so; a retry
starts engines in empty slots, fences all of them again and sends everything again, under the same id.

Source: reef-semantics sections 1.2 to 1.5 and 1.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from reef_ref import events
from reef_ref.control import Control, Mismatch, telling
from reef_ref.journal import Journal
from reef_ref.load_id import LoadId
from reef_ref.markers import Load, MarkerError, Record, Status

__all__ = ["Identity", "Phase", "Publication", "Refused"]


class Refused(Exception):  # noqa: N818  The name says what became of the call.
    """The call is not possible now; nothing was changed and no engine was asked."""


class Phase(StrEnum):
    """What the living coordinator is doing; lost when it dies."""

    RECOVERING = "recovering"
    SERVING = "serving"
    TRAINING = "training"
    PUBLISHING = "publishing"
    AWAITING_COMMIT = "awaiting_commit"
    TRAINING_FAILED = "training_failed"
    CHECKPOINT_FAILED = "checkpoint_failed"
    WEIGHT_SYNC_FAILED = "weight_sync_failed"
    STOPPED = "stopped"

    @property
    def failed(self) -> bool:
        """Whether something has to be done before work can go on."""
        return self in {Phase.TRAINING_FAILED, Phase.CHECKPOINT_FAILED, Phase.WEIGHT_SYNC_FAILED, Phase.STOPPED}


@dataclass(slots=True)
class Identity:
    """Where the next load id comes from, and which load is served.

    A life starts with a fresh incarnation at sequence 0, and adopts the id of what it finds published. An engine's own
    report never selects an id.
    """

    current: LoadId
    served: Load

    def adopt(self, load: Load) -> None:
        """This load is served now; the next id follows it."""
        self.current = load.load_id
        self.served = load


class Publication:
    """The transitions from CHECKPOINT on, one at a time: the caller holds the operation lock.

    Every method raises `Refused` or `MarkerError` before anything has changed, and `CallsFailed`, `Mismatch` or
    `RecordNotWritten` after a failure on the way.
    """

    def __init__(self, control: Control, journal: Journal, identity: Identity, *, tell: events.Teller) -> None:
        self._control = control
        self._journal = journal
        self._identity = identity
        self._tell = tell
        self.phase = Phase.RECOVERING

    @property
    def identity(self) -> Identity:
        """The load that is served, and the last id that was used."""
        return self._identity

    async def publish(self, job: str) -> LoadId:
        """Make the job's candidate the content of every engine, verified, with engines paused; answer its load id.

        A second call for a published job answers the same and does nothing. From UPDATING_WEIGHTS it is the retry.
        `Refused` from CHECKPOINT after a failure: engines may be retired though the record could not be told so, and
        then only a restart knows that it has to rebuild.
        """
        record = await self._require(job)
        match record.status:
            case Status.READY_TO_COMMIT | Status.HEAD_COMMITTED | Status.COMPLETE:
                assert record.load_id is not None
                return record.load_id
            case Status.CHECKPOINT if self.phase.failed:
                message = f"job {job} is {record.status}, but its engines are not as training left them ({self.phase})"
                raise Refused(message)
            case Status.CHECKPOINT:
                self._tell(events.BeginPublish, job)
            case Status.UPDATING_WEIGHTS:
                self._tell(events.BeginRetry, job)
            case _:
                message = f"job {job} is {record.status}: only a checkpoint can be published; an operator has to decide"
                raise Refused(message)
        recovering = record.status is Status.UPDATING_WEIGHTS
        self.phase = Phase.PUBLISHING
        async with self.retiring_on_failure():
            if recovering:
                await self.fence_and_rebuild()
            else:
                await self._fence()
                await self.declare()
            return await self.transfer_candidate()

    async def transfer_candidate(self) -> LoadId:
        """From UPDATING_WEIGHTS and a passed barrier: record the target, send, verify, record READY_TO_COMMIT."""
        record = self._journal.record
        assert record is not None
        job = record.job
        if record.target is None:
            # Before the first byte: an id that a crash could forget might name other bytes in the next life.
            target = self._identity.current.next()
            record = await self._journal.write(
                record.becoming(record.status, target=target),
                lambda: self._tell(events.RecordTarget, job, str(target)),
            )
        assert record.checkpoint is not None
        assert record.target is not None
        load = Load(load_id=record.target, checkpoint=record.checkpoint, checksum=record.checksum)
        load = await self.transfer(load)
        await self._journal.write(
            record.becoming(Status.READY_TO_COMMIT, load_id=load.load_id, checksum=load.checksum),
            lambda: self._tell(events.RecordReady, job, str(load.load_id)),
        )
        self._identity.adopt(load)
        self.phase = Phase.AWAITING_COMMIT
        return load.load_id

    async def acknowledge(self, job: str) -> None:
        """The service's head names this job's load: record that, let engines generate, record COMPLETE.

        A failure leaves HEAD_COMMITTED, and a second call only continues and records. `Refused` if engines were touched
        since they were verified: then `republish` comes first.
        """
        record = await self._require(job)
        if (
            record.status is not Status.COMPLETE
            and record.status.published
            and self._control.verified != record.load_id
        ):
            message = f"job {job} is {record.status}, but its engines are not as they were verified; republish first"
            raise Refused(message)
        match record.status:
            case Status.COMPLETE:
                return
            case Status.READY_TO_COMMIT:
                self._tell(events.Acknowledge, job)
                record = await self._journal.write(
                    record.becoming(Status.HEAD_COMMITTED, acknowledged=True),
                    lambda: self._tell(events.RecordHead, job),
                )
            case Status.HEAD_COMMITTED:
                self._tell(events.Acknowledge, job)
            case _:
                message = f"job {job} is {record.status}: nothing of it was published that could be acknowledged"
                raise Refused(message)
        await self.finish_acknowledged()

    async def finish_acknowledged(self) -> None:
        """From HEAD_COMMITTED and verified engines: let them generate, record COMPLETE."""
        await self.continue_serving()
        await self.record_complete()

    async def continue_serving(self) -> None:
        """Let engines generate the load that is served."""
        with telling(self._tell, events.ContinueFails):
            await self._control.continue_all(self._identity.current)
        self.phase = Phase.SERVING

    async def record_complete(self) -> None:
        """From HEAD_COMMITTED with serving engines: record COMPLETE."""
        record = self._journal.record
        assert record is not None
        await self._journal.write(
            record.becoming(Status.COMPLETE), lambda: self._tell(events.RecordComplete, record.job)
        )

    async def reject(self, job: str) -> None:
        """Refuse the candidate, of which no engine has seen a byte, and serve its parent again.

        Where training had engines give memory back, they take it back, and what it holds is verified before they
        generate. Elsewhere they never stopped. A second call after a failed write does all of it again: a write that
        failed leaves no witness of what was done before it, and nothing that is already so is changed.

        `Refused` where engines were lost on the way: then `republish` restores the parent, and finishes the rejection.
        """
        record = await self._require(job)
        match record.status:
            case Status.REJECTED:
                return
            case Status.CHECKPOINT | Status.REJECTING if self.phase.failed:
                message = f"job {job} is {record.status}, but its engines do not serve the parent ({self.phase})"
                raise Refused(message)
            case Status.CHECKPOINT:
                self._tell(events.BeginReject, job)
                record = await self._journal.write(
                    record.becoming(Status.REJECTING), lambda: self._tell(events.RecordRejecting, job)
                )
            case Status.REJECTING:
                self._tell(events.BeginReject, job)
            case _:
                message = f"job {job} is {record.status}: engines may hold its bytes, so it cannot be rejected"
                raise Refused(message)
        if self._control.settings.colocated:
            await self._restore_parent(record.parent)
        await self.record_rejected()

    async def _restore_parent(self, parent: Load) -> None:
        """Give engines their memory back, and let them generate if they hold what they held before training."""
        async with self.retiring_on_failure():
            with telling(self._tell, events.TransferFails):
                await self._control.resume_weights()
                await self._control.resume_kv()
        with telling(self._tell, events.ContinueFails):
            try:
                await self._control.verify(parent.load_id, parent.checksum)
            except Mismatch as error:
                # To ask again would find the same; only other bytes help.
                self.phase = Phase.WEIGHT_SYNC_FAILED
                self._tell(events.ContinueFails, "report", (), (), str(error))
                raise
        self._identity.adopt(parent)
        await self.continue_serving()

    async def record_rejected(self) -> None:
        """From REJECTING with engines that serve the parent: record REJECTED."""
        record = self._journal.record
        assert record is not None
        await self._journal.write(
            record.becoming(Status.REJECTED), lambda: self._tell(events.RecordRejected, record.job)
        )
        self.phase = Phase.SERVING

    async def republish(self, load_id: LoadId) -> None:
        """Establish a load again that is served or ready: in new engines, and in those that live, under the same id.

        Without a record this is the initial load; after a rejection, or in one that could not be finished, the parent.
        """
        record = await self._journal.settle()
        load = self.established(record)
        if load is None:
            assert record is not None
            message = f"job {record.job} is {record.status}: no load is established that could be sent again"
            raise Refused(message)
        if load.load_id != load_id:
            message = f"{load_id} is not the established load {load.load_id}"
            raise Refused(message)
        self._tell(events.BeginRepublish, str(load_id))
        async with self.retiring_on_failure():
            await self.fence_and_rebuild()
            await self.establish(load)
            if record is not None and record.status is Status.READY_TO_COMMIT:
                self.phase = Phase.AWAITING_COMMIT
                return
            await self.continue_serving()
        match None if record is None else record.status:
            case Status.HEAD_COMMITTED:
                await self.record_complete()
            case Status.REJECTING:
                await self.record_rejected()

    def established(self, record: Record | None) -> Load | None:
        """The load that may be sent again as it is; none while a job is under way."""
        if record is None:
            return self._identity.served
        if record.status.published or record.status in {Status.REJECTING, Status.REJECTED}:
            return record.served_after_settling
        return None

    async def establish(self, load: Load) -> None:
        """From a passed barrier: send a load that has its id already, verify it, and count on from that id."""
        self._identity.adopt(await self.transfer(load))

    async def fence_and_rebuild(self, *, declare: bool = False) -> None:
        """Barrier, declare if asked to, fill empty slots, and a barrier over survivors and replacements.

        The first barrier fences survivors before anything else is done; the second is what makes a replacement, which
        boots generating, safe to write to.
        """
        await self._fence()
        if declare:
            await self.declare()
        with telling(self._tell, events.BarrierFails):
            await self._control.rebuild()
        await self._fence()

    async def _fence(self) -> None:
        with telling(self._tell, events.BarrierFails):
            await self._control.barrier()

    async def declare(self) -> None:
        """Record UPDATING_WEIGHTS: from here on engines may hold anything."""
        record = self._journal.record
        assert record is not None
        await self._journal.write(
            record.becoming(Status.UPDATING_WEIGHTS), lambda: self._tell(events.Declare, record.job)
        )

    async def transfer(self, load: Load) -> Load:
        """From a passed barrier: send a whole load and verify it; answer it with the checksum that was found.

        Where memory is shared with training, weights have memory before bytes arrive, and KV only afterwards: until
        then nothing can be put into the cache, even if a pause leaked.
        """
        with telling(self._tell, events.BarrierFails):
            await self._control.release()
        with telling(self._tell, events.TransferFails):
            await self._control.resume_weights()
            await self._control.send(Path(load.checkpoint), load.load_id)
            await self._control.resume_kv()
            try:
                checksum = await self._control.verify(load.load_id, load.checksum)
            except Mismatch as error:
                self._tell(events.FindMismatch, str(load.load_id), str(error))
                raise
        self._tell(events.Verify, str(load.load_id), checksum)
        return Load(load_id=load.load_id, checkpoint=load.checkpoint, checksum=checksum or load.checksum)

    @contextlib.asynccontextmanager
    async def retiring_on_failure(self) -> AsyncIterator[None]:
        """Retire engines if the block fails in any way, and record that they must be rebuilt; the failure goes on."""
        try:
            yield
        except BaseException:
            self.phase = Phase.WEIGHT_SYNC_FAILED
            abort = asyncio.ensure_future(self._abort())
            while not abort.done():
                # Whoever cancels again wants an end, which is near: every step of an abort is bounded. Half an abort
                # would leave engines of which the record says nothing.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.shield(abort)
            abort.result()
            raise

    async def _abort(self) -> None:
        await self._control.retire_all()
        # A broken disk must not hide what went wrong first; the health answer says that a restart is needed then.
        with contextlib.suppress(MarkerError):
            await self._declare_retired()

    async def _declare_retired(self) -> None:
        record = await self._journal.settle()
        if record is not None and record.status is Status.CHECKPOINT:
            await self._journal.write(
                record.becoming(Status.UPDATING_WEIGHTS), lambda: self._tell(events.DeclareRetired, record.job)
            )

    async def _require(self, job: str) -> Record:
        record = await self._journal.settle()
        if record is None:
            message = f"there is no job, so also no job {job}"
            raise Refused(message)
        if record.job != job:
            message = f"the newest job is {record.job}, not {job}"
            raise Refused(message)
        return record
