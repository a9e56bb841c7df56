"""The implementation with one known bug at a time: each must be noticed, and by what it breaks.

A mutant replaces a method while it runs; the implementation knows nothing of it. `taught_by` names the report, hole or
mutation of the prose that it comes from. `noticed_by` is the invariant that the fault explorer must find broken, or the
test that must fail.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reef_ref import events
from reef_ref.control import CallsFailed, Control
from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import PauseMode
from reef_ref.engines.simulated import write_checkpoint
from reef_ref.health import HealthMonitor
from reef_ref.journal import Journal
from reef_ref.load_id import LoadId
from reef_ref.markers import Load, Record, Status, encode
from reef_ref.publication import Phase, Publication
from reef_ref.recovery import Recovery
from reef_ref.residency import AdapterCapacityExhausted, Residency
from tests.conformance.explore import Scenario, explore
from tests.conformance.world import Broken, Layout
from tests.coordinator import test_control, test_residency

ONE = Scenario(Layout(engines=1), (True, True))
TWO = Scenario(Layout(engines=2), (True, True))
COLOCATED = Scenario(Layout(engines=1, colocated=True), (True, False, True))
REJECTS = Scenario(Layout(engines=1), (True, False))


@dataclass(frozen=True)
class Mutant:
    """A wrong implementation: `patch` applies it."""

    name: str
    taught_by: str
    noticed_by: str
    patch: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario = ONE
    test: Callable[..., None] | None = None


Patch = Callable[[pytest.MonkeyPatch], None]


class Mutants(list[Mutant]):
    """Wrong implementations, in the order in which they are registered."""

    def register(
        self, taught_by: str, noticed_by: str, scenario: Scenario = ONE, test: Callable[..., None] | None = None
    ) -> Callable[[Patch], None]:
        """Register a mutant under its function's name."""

        def register(patch: Patch) -> None:
            self.append(Mutant(patch.__name__, taught_by, noticed_by, patch, scenario, test))

        return register

    def table(self) -> Iterator[str]:
        """Which bug, where it comes from, and what notices it: an invariant that a run breaks, or a test."""
        for one in self:
            by = one.noticed_by if one.test is None else "a test"
            yield f"{one.name.replace('_', ' ')} | {one.taught_by} | {by}"


MUTANTS = Mutants()
mutant = MUTANTS.register


def on_adapters(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """A test that wants an adapter's folder."""
    return lambda folder: test(write_checkpoint(folder, 3))


async def _pause(control: Any, slots: tuple[int, ...]) -> None:
    for slot in slots:
        await control._slots[slot].pause(control.settings.pause_mode)


async def _flush(control: Any, slots: tuple[int, ...]) -> None:
    for slot in slots:
        await control._slots[slot].flush()


def _barrier(patch: pytest.MonkeyPatch, steps: Callable[[Any, tuple[int, ...]], Any]) -> None:
    async def barrier(self: Any) -> None:
        self._latched, self._verified = True, None
        await self.exclude_monitor()
        try:
            async with asyncio.timeout(5):
                await steps(self, self._slots.live)
        except Exception as error:
            raise CallsFailed("barrier", [], str(error)) from error

    patch.setattr(Control, "barrier", barrier)


@mutant("M1, sglang#33783, vllm#9744", "S3")
def no_flush(patch: pytest.MonkeyPatch) -> None:
    _barrier(patch, _pause)


@mutant("M2", "order", test=test_control.test_no_flush_before_every_pause)
def a_flush_after_each_pause(patch: pytest.MonkeyPatch) -> None:
    async def barrier(self: Any) -> None:
        self._latched = True
        for slot in self._slots.live:
            await self._slots[slot].pause(PauseMode.RETRACT)
            self._tell(events.Pause, slot, "retract")
            await self._slots[slot].flush()
            self._tell(events.Flush, slot)
        self._tell(events.AllPaused)

    patch.setattr(Control, "barrier", barrier)


@mutant("M3", "order", test=test_control.test_no_flush_before_every_pause)
def a_flush_before_the_pause(patch: pytest.MonkeyPatch) -> None:
    async def barrier(self: Any) -> None:
        self._latched = True
        for slot in self._slots.live:
            await self._slots[slot].flush()
            self._tell(events.Flush, slot)
        for slot in self._slots.live:
            await self._slots[slot].pause(PauseMode.RETRACT)
            self._tell(events.Pause, slot, "retract")
        self._tell(events.AllPaused)

    patch.setattr(Control, "barrier", barrier)


@mutant("M4, verl#2455", "S3", TWO)
def only_one_engine_is_flushed(patch: pytest.MonkeyPatch) -> None:
    async def steps(control: Any, slots: tuple[int, ...]) -> None:
        await _pause(control, slots)
        await _flush(control, slots[:1])

    _barrier(patch, steps)


@mutant("M5", "P1")
def bytes_before_the_declaration(patch: pytest.MonkeyPatch) -> None:
    really = Publication.declare

    async def declare(self: Any) -> None:
        record = self._journal.record
        await self._control.send(Path(record.checkpoint), self._identity.current.next())
        await really(self)

    patch.setattr(Publication, "declare", declare)


@mutant("M6, the pull request that this is about", "P3")
def a_failed_barrier_leaves_checkpoint(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any) -> None:
        del self

    patch.setattr(Publication, "_declare_retired", nothing)


@mutant("M7, reef#61", "L3")
def an_abort_retires_nothing(patch: pytest.MonkeyPatch) -> None:
    async def latch_only(self: Any) -> None:
        self._latched, self._verified = True, None

    patch.setattr(Control, "retire_all", latch_only)


@mutant("M9", "L3")
def a_retry_rebuilds_nothing(patch: pytest.MonkeyPatch) -> None:
    async def rebuild(self: Any) -> None:
        self._tell(events.AllRebuilt)

    patch.setattr(Control, "rebuild", rebuild)


@mutant("M10, hole H25", "L3|S3")
def replacements_are_not_paused(patch: pytest.MonkeyPatch) -> None:
    async def fence_and_rebuild(self: Any, *, declare: bool = False) -> None:
        await self._fence()
        if declare:
            await self.declare()
        await self._control.rebuild()

    patch.setattr(Publication, "fence_and_rebuild", fence_and_rebuild)


@mutant("M11", "S3")
def replacements_are_not_flushed(patch: pytest.MonkeyPatch) -> None:
    async def fence_and_rebuild(self: Any, *, declare: bool = False) -> None:
        await self._fence()
        if declare:
            await self.declare()
        await self._control.rebuild()
        await _pause(self._control, self._control._slots.live)

    patch.setattr(Publication, "fence_and_rebuild", fence_and_rebuild)


@mutant("M12", "P1")
def a_fresh_target_on_every_try(patch: pytest.MonkeyPatch) -> None:
    really = Publication.transfer

    async def transfer(self: Any, load: Load) -> Load:
        if self._journal.status is Status.UPDATING_WEIGHTS and load.load_id in tried:
            load = load.model_copy(update={"load_id": load.load_id.next()})
        tried.add(load.load_id)
        return await really(self, load)

    tried: set[LoadId] = set()
    patch.setattr(Publication, "transfer", transfer)


@mutant("M13", "P1")
def the_target_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    really = Journal.write

    async def write(self: Any, record: Record, told: Callable[[], None]) -> Record:
        if record.status is Status.UPDATING_WEIGHTS and record.target is not None:
            self._record = record
            return record
        return await really(self, record, told)

    patch.setattr(Journal, "write", write)


@mutant("M14", "P5")
def engines_continue_before_the_head_is_durable(patch: pytest.MonkeyPatch) -> None:
    really = Publication.acknowledge

    async def acknowledge(self: Any, job: str) -> None:
        await self.continue_serving()
        await really(self, job)

    patch.setattr(Publication, "acknowledge", acknowledge)


@mutant("M15", "P5")
def a_restart_serves_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    really = Recovery.recover

    async def recover(self: Any) -> None:
        await really(self)
        if self._journal.status is Status.READY_TO_COMMIT:
            await self._publication.continue_serving()

    patch.setattr(Recovery, "recover", recover)


@mutant("M16", "P7")
def verification_believes_everything(patch: pytest.MonkeyPatch) -> None:
    async def verify(self: Any, load_id: LoadId, checksum: str | None) -> str | None:
        self._verified = load_id
        return checksum

    patch.setattr(Control, "verify", verify)


@mutant("the external hole of P7", "P7")
def verification_believes_labels(patch: pytest.MonkeyPatch) -> None:
    really = Control.verify

    async def verify(self: Any, load_id: LoadId, checksum: str | None) -> str | None:
        with contextlib.suppress(Exception):
            return await really(self, load_id, None)
        raise CallsFailed("verify", [], "mismatch")

    patch.setattr(Control, "verify", verify)


@mutant("M17", "latch", test=test_control.test_the_latch_is_set_before_anything_can_fail)
def the_latch_is_set_on_success_only(patch: pytest.MonkeyPatch) -> None:
    really = Control.barrier

    async def barrier(self: Any) -> None:
        try:
            await really(self)
        except BaseException:
            self._latched = False
            raise

    patch.setattr(Control, "barrier", barrier)


@mutant("M18", "monitor", test=test_control.test_the_monitor_rests_while_the_latch_is_set)
def the_monitor_is_not_excluded(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any) -> bool:
        del self
        return True

    patch.setattr(Control, "exclude_monitor", nothing)


@mutant("M18", "old probe", test=test_control.test_a_probe_from_before_a_pause_has_no_power_after_it)
def an_old_probe_keeps_its_power(patch: pytest.MonkeyPatch) -> None:
    async def exclude(self: Any) -> None:
        self._excluded = True

    patch.setattr(HealthMonitor, "exclude", exclude)


@mutant(
    "M29, reef#65",
    "capacity",
    test=on_adapters(test_residency.test_a_capacity_refusal_asks_no_engine_and_changes_nothing),
)
def capacity_is_made_from_others(patch: pytest.MonkeyPatch) -> None:
    really = Residency.victim

    def victim(self: Any, scenario: str) -> str | None:
        try:
            return really(self, scenario)
        except AdapterCapacityExhausted:
            return next(iter(self._held))

    patch.setattr(Residency, "victim", victim)


@mutant("M30, reef#61", "eviction", test=on_adapters(test_residency.test_a_failed_eviction_names_its_cause_and_leaks))
def a_failed_eviction_is_ignored(patch: pytest.MonkeyPatch) -> None:
    async def evict(self: Any, engines: Any, name: str) -> None:
        await self._each(engines, lambda engine: engine.unload_adapter(name))
        del self._held[name]
        self._current = {s: n for s, n in self._current.items() if n != name}

    patch.setattr(Residency, "_evict", evict)


@mutant("M31", "P10", Scenario(Layout(engines=1), (False,)))
def a_job_whose_bytes_moved_is_rejected(patch: pytest.MonkeyPatch) -> None:
    async def reject(self: Any, job: str) -> None:
        with contextlib.suppress(Exception):
            await self.publish(job)
        record = self._journal.record
        body = record.becoming(Status.CHECKPOINT, load_id=None, target=None).becoming(Status.REJECTING)
        await self._journal._file.replace(encode(body))
        self._journal._record = body
        await self.record_rejected()

    patch.setattr(Publication, "reject", reject)


@mutant("M32", "ownership", test=test_control.test_engines_of_somebody_else_are_never_started_or_ended)
def engines_of_somebody_else_are_ended(patch: pytest.MonkeyPatch) -> None:
    async def retire_all(self: Any) -> None:
        self._latched = True
        for slot in self._slots.live:
            await self._slots[slot].shut_down()

    patch.setattr(Control, "retire_all", retire_all)


@mutant("M33", "poison", test=test_control.test_engines_of_somebody_else_are_never_started_or_ended)
def an_uncertain_transfer_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    really = Control.rebuild

    async def rebuild(self: Any) -> None:
        self._poison.clear()
        await really(self)

    patch.setattr(Control, "rebuild", rebuild)


@mutant("M35", "latch", test=test_control.test_a_partial_continue_leaves_the_latch)
def a_partial_continue_clears_the_latch(patch: pytest.MonkeyPatch) -> None:
    really = Control.continue_all

    async def continue_all(self: Any, load_id: LoadId) -> None:
        try:
            await really(self, load_id)
        finally:
            self._latched = False

    patch.setattr(Control, "continue_all", continue_all)


@mutant("hole H19", "P5|P7", Scenario(Layout(engines=1, colocated=True, survive=False), (True, False)))
def a_restart_serves_before_it_sends_the_parent(patch: pytest.MonkeyPatch) -> None:
    really = Publication.establish

    async def establish(self: Any, load: Load) -> None:
        if self._journal.status is Status.REJECTING:
            self._control._verified = self._identity.current
            await self.continue_serving()
            await self._fence()
        await really(self, load)

    patch.setattr(Publication, "establish", establish)


@mutant("hole H15", "P7", Scenario(Layout(engines=1, survive=False), (True, False, True)))
def a_restart_after_a_rejection_only_labels(patch: pytest.MonkeyPatch) -> None:
    really = Publication.establish

    async def establish(self: Any, load: Load) -> None:
        if self._journal.status is Status.REJECTED:
            for slot in self._control._slots.live:
                engine = self._control._slots[slot]
                engine.scheduler.weights = type(engine.scheduler.weights)(77, str(load.load_id))
            self._control._verified = load.load_id
            self._identity.adopt(load)
            return
        await really(self, load)

    patch.setattr(Publication, "establish", establish)


@mutant("hole H13, acknowledging after a failed republish", "L4|L3")
def whoever_is_left_continues(patch: pytest.MonkeyPatch) -> None:
    really = Control.continue_all

    async def continue_all(self: Any, load_id: LoadId) -> None:
        self._verified = load_id
        await really(self, load_id)

    async def republish(self: Any, load_id: LoadId) -> None:
        await self.continue_serving()

    patch.setattr(Control, "continue_all", continue_all)
    patch.setattr(Publication, "republish", republish)


@mutant("P10, memory ahead of the disk", "P1|P5|P10|P7|L3")
def a_failed_write_is_believed(patch: pytest.MonkeyPatch) -> None:
    really = Journal.write

    async def write(self: Any, record: Record, told: Callable[[], None]) -> Record:
        with contextlib.suppress(Exception):
            await really(self, record, told)
        self._record, self._known = record, True
        return record

    patch.setattr(Journal, "write", write)


@mutant("a failed write that happened all the same", "L3|P10|P1")
def a_failed_write_is_never_read_again(patch: pytest.MonkeyPatch) -> None:
    really = Journal.write

    async def write(self: Any, record: Record, told: Callable[[], None]) -> Record:
        before = self._record
        try:
            return await really(self, record, told)
        except Exception:
            self._record, self._known = before, True
            raise

    patch.setattr(Journal, "write", write)


@mutant("P13", "P13|P10|P8|P1")
def an_ambiguous_job_is_run_again(patch: pytest.MonkeyPatch) -> None:
    really = Recovery.recover

    async def recover(self: Any) -> None:
        record = await self._journal.settle()
        if record is not None and record.status is Status.RUNNING:
            restored = record.previous
            self._journal._record = restored
            await self._journal._file.replace(encode(restored)) if restored else None
        await really(self)

    patch.setattr(Recovery, "recover", recover)


@mutant("P21, vllm#57854", "L3|L4", COLOCATED)
def memory_for_kv_never_comes_back(patch: pytest.MonkeyPatch) -> None:
    async def resume_kv(self: Any) -> None:
        del self

    patch.setattr(Control, "resume_kv", resume_kv)


@mutant("P21, vllm#57854, sglang#24123", "L3|L4", COLOCATED)
def bytes_are_sent_without_memory(patch: pytest.MonkeyPatch) -> None:
    async def resume_weights(self: Any) -> None:
        del self

    patch.setattr(Control, "resume_weights", resume_weights)


@mutant("cancellation takes another way than a failure", "P3", TWO)
def a_cancelled_publication_is_not_aborted(patch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def retiring_on_failure(self: Any) -> Any:
        try:
            yield
        except Exception:
            self.phase = Phase.WEIGHT_SYNC_FAILED
            await self._control.retire_all()
            with contextlib.suppress(Exception):
                await self._declare_retired()
            raise
        except asyncio.CancelledError:
            self._control._latched = False
            self._control._monitor.admit()
            raise

    patch.setattr(Publication, "retiring_on_failure", retiring_on_failure)


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_a_known_bug_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: Mutant) -> None:
    """By the invariant that it breaks, or by the test that stands for it."""
    notice(tmp_path, monkeypatch, one)


def notice(folder: Path, monkeypatch: pytest.MonkeyPatch, one: Mutant) -> None:
    """Build a bug in and see that it is noticed."""
    one.patch(monkeypatch)
    if one.test is not None:
        with pytest.raises((AssertionError, pytest.fail.Exception, EngineError)):
            one.test(folder)
        return
    with pytest.raises(Broken, match=rf": ({one.noticed_by}): ") as caught:
        explore(folder, one.scenario)
    print(str(caught.value).splitlines()[0])
