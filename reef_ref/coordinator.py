"""The coordinator: one operation at a time over training, publication and recovery, and what it says of its health.

Source: reef-semantics sections 0, 2.6 and 2.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from reef_ref import events
from reef_ref.control import Control, ControlSettings, Launcher, NotServing
from reef_ref.health import HealthMonitor, Slots
from reef_ref.journal import Journal
from reef_ref.load_id import LoadId, new_incarnation
from reef_ref.markers import Load, Record, RecordFile, Status
from reef_ref.publication import Identity, Phase, Publication, Refused
from reef_ref.recovery import Recovery, TrainerEvidence
from reef_ref.residency import Adapter, Residency
from reef_ref.training import Disposition, Job, Trained, Trainer, Training

__all__ = ["Coordinator", "CoordinatorHealth", "gate_may_open"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorHealth:
    """What the coordinator says of itself; reading it needs no lock."""

    phase: Phase
    status: Status | None
    job: str | None
    load_id: str
    empty_slots: tuple[int, ...]
    ok: bool
    recoverable: bool
    """Not ok, but a further `publish` or `republish` of this living coordinator can succeed."""


def gate_may_open(record: Record | None, *, colocated: bool) -> bool:
    """Whether the service may admit requests, by the record alone (section 2.7)."""
    match None if record is None else record.status:
        case None | Status.COMPLETE | Status.REJECTED:
            return True
        case Status.RUNNING | Status.CHECKPOINT:
            return not colocated
        case _:
            return False


class Coordinator:
    """Trains, publishes and recovers over the engines in `slots`. `initial` is what they serve before the first job.

    `adapter_slots` is how many LoRA adapters every engine can hold; 0 where none are served. `watched` says whether the
    monitor of the deployment is there (`EventOutlet.attached`); it is given where no engine may get other weights
    unseen. Without it, a lost monitor stops nobody.

    At most one operation runs at a time; the others wait, so a caller that cannot wait passes a time-out of its own.
    Cancelling an operation leaves what a crash at that point leaves, or more: engines retired and the record saying so.
    """

    def __init__(
        self,
        *,
        slots: Slots,
        settings: ControlSettings,
        marker: RecordFile,
        trainer: Trainer,
        initial: Trained,
        launcher: Launcher | None = None,
        monitor: HealthMonitor | None = None,
        incarnation: str | None = None,
        listener: events.Listener | None = None,
        clock: Callable[[], float] | None = None,
        train_s: float = 14_400.0,
        adapter_slots: int = 0,
        watched: Callable[[], bool] | None = None,
    ) -> None:
        incarnation = incarnation or new_incarnation()
        self._tell = events.Teller(
            f"coordinator:{incarnation}", listener, clock=clock or asyncio.get_running_loop().time
        )
        self._slots = slots
        self._watched = watched
        self._lock = asyncio.Lock()
        self._adapters = Residency(adapter_slots, bound_s=settings.bounds.adapter_s) if adapter_slots else None
        self._control = Control(
            slots, settings, launcher=launcher, monitor=monitor, tell=self._tell, adapters=self._adapters
        )
        self._journal = Journal(marker, tell=self._tell, bound_s=settings.bounds.write_s)
        start = LoadId(incarnation, 0)
        boot = Load(load_id=start.next(), checkpoint=str(initial.checkpoint), checksum=initial.checksum)
        self._publication = Publication(self._control, self._journal, Identity(start, boot), tell=self._tell)
        self._recovery = Recovery(self._publication, self._journal, tell=self._tell)
        self._training = Training(
            trainer, self._control, self._journal, self._publication, tell=self._tell, bound_s=train_s
        )

    async def start(self, evidence: TrainerEvidence | None = None) -> Self:
        """Begin this life: recover from the record. `evidence` may show that a RUNNING job left nothing behind.

        Raises `AmbiguousTraining`, `MarkerError`, or what a publication raises.
        """
        async with self._lock:
            try:
                # Until it is known what to do about the record, nobody else changes which engines there are. A monitor
                # that does not end in time fails the barrier.
                await self._control.exclude_monitor()
                self._tell(events.Restart, self._slots.live)
                if evidence is not None:
                    await self._recovery.restore_previous_record(evidence)
                await self._recovery.recover()
            except BaseException:
                if self._publication.phase is Phase.RECOVERING:
                    self._publication.phase = Phase.STOPPED  # The record could not be read: nothing can be decided.
                raise
        return self

    async def train(self, job: Job) -> Disposition | str:
        """Run a job to CHECKPOINT; see `Training.execute`."""
        return await self._operate(lambda: self._training.execute(job), seen=True)

    async def publish(self, job: str) -> LoadId:
        """Publish, or retry; see `Publication.publish`."""
        return await self._operate(lambda: self._publication.publish(job), seen=True)

    async def acknowledge(self, job: str) -> None:
        """The service's head has moved; see `Publication.acknowledge`."""
        await self._operate(lambda: self._publication.acknowledge(job))

    async def reject(self, job: str) -> None:
        """Refuse the candidate; see `Publication.reject`."""
        await self._operate(lambda: self._publication.reject(job))

    async def republish(self, load_id: LoadId) -> None:
        """Establish the load again; see `Publication.republish`."""
        await self._operate(lambda: self._publication.republish(load_id), seen=True)

    async def activate_adapter(self, adapter: Adapter, path: Path) -> bool:
        """Make an adapter its scenario's current one, on every engine; whether bytes were sent.

        One that is resident still, as the target of a rollback may be, is only pointed at. What served the scenario
        before stays until its slot is needed and nobody uses it (`adapter_in_use`). Nothing of this is recorded: which
        adapter a scenario's head names is the service's to remember, and it activates it again in a new life, which is
        harmless on engines that hold it. Raises `Refused` while engines are fenced or missing, and what
        `Residency.activate` raises.
        """

        async def activate() -> bool:
            try:
                return await self._control.activate(adapter, path)
            except NotServing as error:
                raise Refused(str(error)) from error

        return await self._operate(activate, seen=True)

    @contextlib.contextmanager
    def adapter_in_use(self, adapter: Adapter) -> Iterator[None]:
        """Keep an adapter on engines while requests use it. `KeyError` if it is not there."""
        if self._adapters is None:
            raise KeyError(adapter.name)
        with self._adapters.pinned(adapter):
            yield

    def adapter(self, scenario: str) -> Adapter | None:
        """The adapter that serves a scenario, if engines hold one."""
        return None if self._adapters is None else self._adapters.current(scenario)

    async def stop(self) -> None:
        """Do nothing more. Engines and the record stay as they are."""
        async with self._lock:
            self._publication.phase = Phase.STOPPED

    async def _operate(self, operation: Callable[[], Awaitable[T]], *, seen: bool = False) -> T:
        """Do one thing after the other. `seen`: not where a monitor is required and gone."""
        async with self._lock:
            if seen and self._watched is not None and not self._watched():
                message = "the monitor is required here and does not listen; start it again"
                raise Refused(message)
            if self._publication.phase in {Phase.RECOVERING, Phase.STOPPED}:
                message = f"the coordinator does not work: {self._publication.phase}"
                raise Refused(message)
            return await operation()

    @property
    def record(self) -> Record | None:
        """The record, as last read or written."""
        return self._journal.record

    @property
    def knows_record(self) -> bool:
        """Whether `record` is what the disk holds; false after a failed write, until the next operation reads it."""
        return self._journal.known

    @property
    def served(self) -> Load:
        """The load that engines serve or wait with, or served before the job under way."""
        return self._publication.established(self._journal.record) or self._publication.identity.served

    @property
    def latched(self) -> bool:
        """Whether engines are fenced."""
        return self._control.latched

    def health(self) -> CoordinatorHealth:
        """The state of things, now."""
        phase, status = self._publication.phase, self._journal.status
        incumbent = status in {None, Status.REJECTING, Status.REJECTED}
        replayable = incumbent or status is Status.UPDATING_WEIGHTS or (status is not None and status.published)
        return CoordinatorHealth(
            phase=phase,
            status=status,
            job=None if self._journal.record is None else self._journal.record.job,
            load_id=str(self.served.load_id),
            empty_slots=self._control.empty,
            ok=not phase.failed,
            recoverable=phase is Phase.WEIGHT_SYNC_FAILED and replayable,
        )
