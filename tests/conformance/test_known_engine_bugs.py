"""Known bugs of engines, of their drivers and of what runs inside SGLang, built in one at a time and noticed.

As in `test_known_bugs`, which has those of the coordinator and says how a bug is written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reef_ref.control import Control
from reef_ref.engines.interface import Engine, LoadReport, MemoryChange, Region
from reef_ref.engines.sglang_engine import NO_ANSWER, SGLangEngine
from reef_ref.engines.simulated.scheduler import Scheduler
from reef_ref.engines.wire import Route
from reef_ref.load_id import LoadId
from reef_ref.lora_schema import AdapterKeys
from reef_ref.residency import Adapter, Residency
from reef_ref.sglang.idle import RETRACT, IdleHooks
from reef_ref.sglang.loads import Load, LoadHooks
from tests.config import test_lora_schema
from tests.conformance import test_known_bugs, test_sharing_mutants
from tests.conformance.test_known_bugs import Mutant, Mutants, notice, on_adapters
from tests.coordinator import test_adapters, test_control, test_residency
from tests.engine.parts import test_idle, test_loads
from tests.engines import test_http, test_simulated

MUTANTS = Mutants()
mutant = MUTANTS.register


def plain(test: Callable[[], None]) -> Callable[[Path], None]:
    """A test that wants no folder."""
    return lambda _: test()


# Grammars and the idle check


@mutant("M19, reef#206", "flush", test=plain(test_simulated.test_a_flush_names_what_is_in_its_way))
def compiling_grammars_block_the_flush(patch: pytest.MonkeyPatch) -> None:
    really = Scheduler.busy_with

    def busy_with(self: Scheduler) -> str | None:
        return really(self) or (f"{len(self.grammar)} compiling" if self.grammar else None)

    patch.setattr(Scheduler, "busy_with", busy_with)


@mutant("M19, reef#206", "idle", test=plain(test_idle.test_paused_in_retract_mode_requests_without_kv_are_ignored))
def the_idle_check_sees_compiling_grammars(patch: pytest.MonkeyPatch) -> None:
    def is_fully_idle(self: Any, original: Any, scheduler: Any, **asked: bool) -> Any:
        return original(scheduler, **asked)

    patch.setattr(IdleHooks, "is_fully_idle", is_fully_idle)


@mutant("M20", "flush", test=plain(test_simulated.test_a_flush_names_what_is_in_its_way))
def a_flush_beside_running_requests(patch: pytest.MonkeyPatch) -> None:
    really = Scheduler.busy_with

    def busy_with(self: Scheduler) -> str | None:
        running, self.running = self.running, []
        try:
            return really(self)
        finally:
            self.running = running

    patch.setattr(Scheduler, "busy_with", busy_with)


@mutant("M20", "idle", test=plain(test_idle.test_paused_in_retract_mode_requests_without_kv_are_ignored))
def a_paused_engine_counts_as_idle_whatever_it_holds(patch: pytest.MonkeyPatch) -> None:
    really = IdleHooks.is_fully_idle

    def is_fully_idle(self: Any, original: Any, scheduler: Any, **asked: bool) -> Any:
        return self._pauses.mode == RETRACT or really(self, original, scheduler, **asked)

    patch.setattr(IdleHooks, "is_fully_idle", is_fully_idle)


@mutant("M21", "idle", test=plain(test_idle.test_the_queue_comes_back_when_the_check_fails))
def the_grammar_queue_is_lost_when_the_check_fails(patch: pytest.MonkeyPatch) -> None:
    def is_fully_idle(self: Any, original: Any, scheduler: Any, **asked: bool) -> Any:
        del asked
        grammars = scheduler.grammar_manager
        queued, grammars.grammar_queue = grammars.grammar_queue, []
        answer = original(scheduler, for_health_check=False, ignore_waiting=True)
        grammars.grammar_queue = queued
        return answer

    patch.setattr(IdleHooks, "is_fully_idle", is_fully_idle)


# Stamps


@mutant("M27", "load", test=plain(test_loads.test_a_failed_update_is_no_load_and_not_the_old_one_either))
def an_update_is_a_load_before_it_has_succeeded(patch: pytest.MonkeyPatch) -> None:
    def whole(self: Any, kind: str) -> Any:
        def update(original: Any, manager: Any, request: Any) -> Any:
            self._opened(Load(self._load_id(), f"update from {kind}"))
            return self._run(kind, original, manager, request)

        return update

    patch.setattr(LoadHooks, "_whole", whole)


@mutant("M27", "load", test=lambda _: test_loads.test_a_session_is_a_load_only_as_a_whole("tensor"))
def the_first_part_of_a_session_is_a_load(patch: pytest.MonkeyPatch) -> None:
    really = LoadHooks.record_weight_version_change

    def record(self: Any, original: Any, scheduler: Any, new_version: str | None) -> Any:
        kind, self._updating = self._updating, "disk" if self._updating else None
        try:
            return really(self, original, scheduler, new_version)
        finally:
            self._updating = kind

    patch.setattr(LoadHooks, "record_weight_version_change", record)


@mutant("M28, slime#2279", "S1|T1", test_known_bugs.ONE)
def stamps_are_filled_in_afterwards(patch: pytest.MonkeyPatch) -> None:
    really = Scheduler._process

    def process(self: Any, result: Any) -> None:
        really(self, result)
        for work, _ in result.tokens:
            work.loads[:] = [result.load_id] * len(work.loads)

    patch.setattr(Scheduler, "_process", process)


@mutant("dynamo#6094", "verify", test=test_control.test_both_labels_are_those_of_the_load)
def verification_asks_the_front_end(patch: pytest.MonkeyPatch) -> None:
    really = Control.verify

    async def verify(self: Any, load_id: LoadId, checksum: str | None) -> str | None:
        for engine in self._slots:
            report = await engine.report()
            patch.setattr(engine, "report", lambda label=report.front_end_load_id: _reported(label))
        return await really(self, load_id, checksum)

    async def _reported(label: str) -> LoadReport:
        return LoadReport(label, label)

    patch.setattr(Control, "verify", verify)


# Drivers of SGLang


@mutant("M34, reef#203", "order", test=test_http.test_out_of_order_calls_are_never_sent)
def what_was_not_released_is_resumed(patch: pytest.MonkeyPatch) -> None:
    async def resume(self: Any, regions: frozenset[Region]) -> MemoryChange:
        await self._move(Route.RESUME, regions)
        self._released -= regions
        return MemoryChange(regions, self._released)

    patch.setattr(SGLangEngine, "resume", resume)


@mutant("sglang#32153", "order", test=test_http.test_out_of_order_calls_are_never_sent)
def memory_is_released_without_a_flush(patch: pytest.MonkeyPatch) -> None:
    really = SGLangEngine.release

    async def release(self: Any, regions: frozenset[Region]) -> MemoryChange:
        self._flushed = True
        return await really(self, regions)

    patch.setattr(SGLangEngine, "release", release)


@mutant("sglang#32238, miles#2780", "order", test=test_http.test_out_of_order_calls_are_never_sent)
def an_adapter_is_unloaded_under_a_pause(patch: pytest.MonkeyPatch) -> None:
    async def unload_adapter(self: Any, name: str) -> Any:
        return await self._ask(Route.UNLOAD_ADAPTER, {"lora_name": name}, self._limits.control_s)

    patch.setattr(SGLangEngine, "unload_adapter", unload_adapter)


@mutant("slime#1953, miles#1750", "back-off", test=test_http.test_flush_gives_up_with_the_last_refusal)
def refusals_are_repeated_at_once(patch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        # Not 0: the clock of these tests stands still until somebody waits.
        await really(1e-3)

    really = asyncio.sleep
    patch.setattr("reef_ref.engines.sglang_engine.asyncio.sleep", at_once)


@mutant("SGLang's timed flush", "flush", test=test_http.test_a_flush_never_asks_sglang_to_wait)
def a_flush_with_a_time_out(patch: pytest.MonkeyPatch) -> None:
    async def try_flush(self: Any) -> tuple[int, str]:
        try:
            answer = await self._wire.call(Route.FLUSH, {"timeout": 30}, self._limits.flush_try_s)
        except TimeoutError as error:
            return NO_ANSWER, str(error)
        return answer.status, answer.message

    patch.setattr(SGLangEngine, "_try_flush", try_flush)


@mutant(
    "SGLang's rollback",
    "poison",
    test=test_control.test_engines_of_somebody_else_are_never_started_or_ended,
)
def a_failed_update_is_taken_for_undone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("reef_ref.control._may_be_mixed", lambda _: False)


# Adapters


@mutant("M25", "keys", test=lambda _: test_lora_schema.test_any_failure_at_any_key_is_a_no(TypeError("lora_id"), 0))
def a_question_about_keys_that_fails_is_a_yes(patch: pytest.MonkeyPatch) -> None:
    really = test_lora_schema.ask_adapter_keys

    def ask(*args: Any, **more: Any) -> AdapterKeys:
        answer = really(*args, **more)
        return AdapterKeys(True, answer.because) if "could not be asked" in answer.because else answer

    patch.setattr(test_lora_schema, "ask_adapter_keys", ask)


@mutant("reef#37", "residency", test=on_adapters(test_residency.test_a_resident_rollback_target_moves_no_bytes))
def an_adapter_keeps_its_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Adapter, "name", property(lambda self: self.scenario))


@mutant("P20, reef#61", "residency", test=test_adapters.test_a_new_engine_is_given_what_the_others_hold)
def a_new_engine_lacks_the_adapters(patch: pytest.MonkeyPatch) -> None:
    async def restore(self: Residency, engine: Engine) -> None:
        del self, engine

    patch.setattr(Residency, "restore", restore)


@mutant("SkyRL#1657, sglang#32238", "residency", test=test_adapters.test_nothing_is_activated_behind_the_latch)
def an_adapter_is_activated_behind_the_latch(patch: pytest.MonkeyPatch) -> None:
    async def activate(self: Any, adapter: Adapter, path: Path) -> bool:
        engines = [self._slots[slot] for slot in self._slots.live]
        answer: bool = await self._adapters.activate(engines, adapter, path)
        return answer

    patch.setattr(Control, "activate", activate)


@mutant("reef#37", "residency", test=test_adapters.test_a_new_life_finds_what_engines_hold)
def a_new_life_forgets_what_engines_hold(patch: pytest.MonkeyPatch) -> None:
    async def reconcile(self: Residency, engines: Any, loaded: Any) -> None:
        del self, engines, loaded

    patch.setattr(Residency, "reconcile", reconcile)


@pytest.mark.parametrize("one", MUTANTS, ids=lambda one: one.name)
def test_a_known_bug_of_an_engine_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: Mutant) -> None:
    notice(tmp_path, monkeypatch, one)


NO_SUCH_CODE = {
    8: "a retry with a delta: there are no deltas, every transfer is complete (`Control.send`)",
}
"""Mutations of the prose that have nothing here that they could be built into."""


def test_the_table_of_known_bugs(capsys: pytest.CaptureFixture[str]) -> None:
    """Each name once; the table is shown, for it says what notices which bug."""
    table = [*test_known_bugs.MUTANTS.table(), *MUTANTS.table()]
    assert len({line.split(" | ")[0] for line in table}) == len(table)
    with capsys.disabled():
        print("", *table, f"{len(table)} known bugs of the implementation, each noticed", sep="\n")


def test_every_mutation_of_the_prose_has_its_place() -> None:
    """M1 to M35: built into the coordinator, an engine or the sharing decision, or there is no such code."""
    taught = " ".join(one.taught_by for one in (*MUTANTS, *test_known_bugs.MUTANTS))
    named = {word.rstrip(",") for word in (taught + " " + " ".join(test_sharing_mutants.MUTANTS)).split()}
    assert {number for number in range(1, 36) if f"M{number}" not in named} == set(NO_SUCH_CODE)
