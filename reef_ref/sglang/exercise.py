"""Exercise every hook target inside the scheduler that will use it, before it serves, and say which behaves otherwise.

Signatures prove little: a release may keep a name and change what it does or who calls it. So each hook is made to
act on the real objects (pools, tree, allocator, grammar manager) and what it saw is compared with what must have
happened. At this point the engine is empty and no request can arrive; everything is given back, and the flush at the
end leaves the pools as they were.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from reef_ref.sglang.pauses import PauseHooks
from reef_ref.sglang.provenance import UNWRITTEN
from reef_ref.sglang.settings import OnStale, ProvenanceMode

if TYPE_CHECKING:
    from reef_ref.sglang.hooks import ProvenanceHooks


@dataclass(frozen=True)
class Verdict:
    """What exercising one hook target showed."""

    target: str
    """Dotted name of the target."""
    expected: str
    """What it must do."""
    problem: str | None
    """What it did instead, or `None`."""

    @property
    def ok(self) -> bool:
        """Whether it behaves as expected."""
        return self.problem is None


class Deviation(Exception):  # noqa: N818  # not an error of this program: SGLang differs from what the hooks rely on
    """SGLang behaved otherwise than a hook relies on."""


def exercise(steps: list[tuple[str, str, Callable[[], None]]]) -> list[Verdict]:
    """Run (target, expectation, step) in order; whatever a step raises is the problem of its target."""
    verdicts = []
    for target, expected, step in steps:
        try:
            step()
        except Exception as error:
            problem = str(error) if isinstance(error, Deviation) else f"{type(error).__name__}: {error}"
            verdicts.append(Verdict(target, expected, problem or type(error).__name__))
        else:
            verdicts.append(Verdict(target, expected, None))
    return verdicts


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Say nothing of failures that are played."""
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _must(holds: object, otherwise: str) -> None:
    if not holds:
        raise Deviation(otherwise)


# ---- the idle check ----

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"


def pause_steps(scheduler: Any, pauses: PauseHooks) -> list[tuple[str, str, Callable[[], None]]]:
    """Steps for the two targets of `PauseHooks`."""
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    def pause(mode: str) -> None:
        try:
            scheduler.pause_generation(PauseGenerationReqInput(mode=mode))
            _must(scheduler._engine_paused, f"a pause in mode {mode} did not pause the scheduler")
            _must(pauses.mode == mode, f"a pause in mode {mode} was seen as {pauses.mode}")
        finally:
            scheduler.continue_generation(ContinueGenerationReqInput(torch_empty_cache=False))

    def resumed() -> None:
        for mode in ("retract", "in_place"):
            pause(mode)
            _must(not scheduler._engine_paused, "continue did not end the pause")
            _must(pauses.mode is None, "the end of a pause was not seen")

    def paused() -> None:
        for mode in ("retract", "in_place"):
            pause(mode)

    return [
        (f"{SCHEDULER}.pause_generation", "pauses the scheduler in the mode that was asked for", paused),
        (f"{SCHEDULER}.continue_generation", "ends a pause", resumed),
    ]


def idle_steps(scheduler: Any) -> list[tuple[str, str, Callable[[], None]]]:
    """Steps for the target of `IdleHooks`, which reads what `PauseHooks` remembers."""
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    queue = scheduler.grammar_manager.grammar_queue
    waiting = scheduler.waiting_queue
    without_kv = SimpleNamespace(kv=SimpleNamespace(holds_kv=False))
    with_kv = SimpleNamespace(kv=SimpleNamespace(holds_kv=True))

    @contextmanager
    def holding(**fields: Any) -> Iterator[None]:
        before = {name: getattr(scheduler, name) for name in fields}
        for name, value in fields.items():
            setattr(scheduler, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(scheduler, name, value)

    @contextmanager
    def compiling() -> Iterator[None]:
        queue.append(without_kv)
        try:
            yield
        finally:
            queue.remove(without_kv)

    def pause(mode: str) -> None:
        scheduler.pause_generation(PauseGenerationReqInput(mode=mode))
        _must(scheduler._engine_paused, f"a pause in mode {mode} did not pause the scheduler")

    def resume() -> None:
        scheduler.continue_generation(ContinueGenerationReqInput(torch_empty_cache=False))
        _must(not scheduler._engine_paused, "continue did not end the pause")

    def strict() -> None:
        _must(scheduler.is_fully_idle(), "an empty engine does not count as idle")
        with compiling():
            _must(not scheduler.is_fully_idle(ignore_waiting=True), "a compiling grammar does not count as work")
        pause("in_place")
        try:
            with compiling():
                _must(not scheduler.is_fully_idle(ignore_waiting=True), "relaxed while paused in place")
        finally:
            resume()

    def relaxed() -> None:
        pause("retract")
        try:
            with compiling(), holding(waiting_queue=[without_kv]):
                _must(scheduler.is_fully_idle(), "requests without KV still keep a retracted engine busy")
                _must(not scheduler.is_fully_idle(for_health_check=True), "the health check was relaxed")
            _must(scheduler.grammar_manager.grammar_queue is queue, "the grammar queue was exchanged")
        finally:
            resume()
        with compiling():
            _must(not scheduler.is_fully_idle(ignore_waiting=True), "still relaxed after continue")

    def guards() -> None:
        batch = SimpleNamespace(is_empty=lambda: False)
        pause("retract")
        try:
            for name, value in {
                "running_batch": batch,
                "last_batch": batch,
                "chunked_req": with_kv,
                "waiting_queue": [with_kv],
            }.items():
                with holding(**{name: value}):
                    _must(not scheduler.is_fully_idle(), f"KV held through {name} does not count as work")
            if scheduler.enable_overlap:
                scheduler.result_queue.append(object())
                try:
                    _must(not scheduler.is_fully_idle(), "a pending overlap result does not count as work")
                finally:
                    scheduler.result_queue.pop()
        finally:
            resume()

    def restored() -> None:
        _must(scheduler.waiting_queue is waiting and scheduler.grammar_manager.grammar_queue is queue, "queues changed")

    return [
        (f"{SCHEDULER}.is_fully_idle", "is strict unless paused in retract mode", strict),
        (f"{SCHEDULER}.pause_generation", "a retract pause lets requests without KV be ignored", relaxed),
        (f"{SCHEDULER}.is_fully_idle", "counts all KV in use, whatever the pause", guards),
        (f"{SCHEDULER}.continue_generation", "ends the relaxation and leaves the queues alone", restored),
    ]


# ---- provenance ----

BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
COMMON = "sglang.srt.mem_cache.common"
UPDATER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"


class ProvenanceExercise:
    """One request is prefilled, decoded, kept in the tree and matched again, under the same and then other weights."""

    def __init__(self, scheduler: Any, hooks: ProvenanceHooks) -> None:
        self._scheduler = scheduler
        self._hooks = hooks
        self._shares = bool(scheduler.tree_cache.supports_prefix_sharing())
        page = scheduler.tree_cache.page_size
        self._reusable = 4 * page
        self._tokens = array("q", [1 + index % 16 for index in range(self._reusable + 1)])
        self._made: list[Any] = []

    def steps(self) -> list[tuple[str, str, Callable[[], None]]]:
        """The steps, each building on those before."""
        return [
            (f"{BATCH}.prepare_for_extend", "stamps the slots of a prefill", self._prefill),
            (f"{BATCH}.prepare_for_decode", "stamps the slot of a decode step", self._decode),
            (f"{COMMON}.release_kv_cache", "leaves a finished request's KV in the tree", self._keep),
            (f"{BATCH}.prepare_for_extend", "finds a reused prefix of the same weights fresh", self._fresh),
            (f"{SCHEDULER}.record_weight_version_change", "a new label alone opens no epoch", self._label),
            (
                f"{UPDATER}.update_weights_from_disk",
                "a complete update is a load, a refused one is nothing",
                self._disk,
            ),
            (f"{UPDATER}.update_weights_from_ipc", "a complete update is a load, a failed one is none", self._ipc),
            (f"{UPDATER}.update_weights_from_tensor", "a session is a load only as a whole", self._tensor),
            (f"{UPDATER}.update_weights_from_distributed", "a session is a load only as a whole", self._distributed),
            *self._stale_steps(),
            (f"{UPDATER}.release_memory_occupation", "released KV is unwritten", self._release),
            (f"{UPDATER}.resume_memory_occupation", "weights without content belong to no load", self._resume),
            (f"{SCHEDULER}.flush_cache", "a flush leaves nothing behind", self._flush),
        ]

    def _stale_steps(self) -> list[tuple[str, str, Callable[[], None]]]:
        if not self._shares:
            return []
        mode, on_stale = self._hooks.mode, self._hooks.on_stale
        if mode is ProvenanceMode.REPORT:
            return [
                (f"{BATCH}.prepare_for_extend", "finds a reused prefix of other weights stale", self._stale_reported),
                (f"{COMMON}.checkpoint_kv_cache", "sees the tree exchange slots", self._adoption_reported),
            ]
        stale = (
            (f"{COMMON}.match_kv_cache", "a stale match counts as a miss", self._stale_recomputed)
            if on_stale is OnStale.RECOMPUTE
            else (f"{BATCH}.prepare_for_extend", "a stale prefix ends the request", self._stale_refused)
        )
        return [stale, (f"{COMMON}.checkpoint_kv_cache", "keeps KV out of a mixed tree", self._kept_out)]

    # Each step below is one line of the table above.

    def _prefill(self) -> None:
        self._request, batch = self._build()
        self._batch = batch
        written = batch.out_cache_loc
        _must(written.numel() == len(self._tokens), f"{written.numel()} slots for {len(self._tokens)} tokens")
        self._must_be_epoch(written, self._hooks.slots.epoch)

    def _decode(self) -> None:
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        checkpoint_kv_cache(self._request, self._scheduler.tree_cache)
        self._request.output_ids.append(5)
        self._batch.prepare_for_decode()
        _must(self._batch.out_cache_loc.numel() == 1, "a decode step of one request writes more than one slot")
        self._must_be_epoch(self._batch.out_cache_loc, self._hooks.slots.epoch)

    def _keep(self) -> None:
        from sglang.srt.managers.schedule_batch import FINISH_LENGTH
        from sglang.srt.mem_cache.common import release_kv_cache

        self._request.finished_reason = FINISH_LENGTH(1)
        release_kv_cache(self._request, self._scheduler.tree_cache, checkpoint=True)
        _must(not self._request.kv.holds_kv, "a released request still holds KV")

    def _fresh(self) -> None:
        checked = self._hooks.counters.prefixes_checked
        request, _ = self._build()
        self._drop(request)
        reused = self._reusable if self._shares else 0
        _must(self._matched == reused, f"matched {self._matched} tokens where {reused} are kept")
        seen = self._hooks.counters.prefixes_checked - checked
        _must(seen == bool(reused), f"a reused prefix was checked {seen} times")
        _must(not self._hooks.counters.stale_prefixes, "a fresh prefix counts as stale")

    def _label(self) -> None:
        epoch, label = self._hooks.slots.epoch, self._hooks.current.load_id
        try:
            self._scheduler.record_weight_version_change("reef-ref-exercise")
            _must(self._hooks.current.load_id == "reef-ref-exercise", "a new label was not seen")
            _must(self._hooks.slots.epoch == epoch, "a new label opened an epoch")
        finally:
            self._scheduler.record_weight_version_change(label)

    def _disk(self) -> None:
        from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput

        name = "update_weights_from_disk"
        request = UpdateWeightFromDiskReqInput(model_path="", load_format=None, flush_cache=False)
        self._whole(name, request, (False, "Failed to get weights iterator: nothing there"), opens=0)
        self._whole(name, request, (True, ""))
        self._whole(name, request, (False, "broken"))

    def _ipc(self) -> None:
        from sglang.srt.managers.io_struct import UpdateWeightsFromIPCReqInput

        request = UpdateWeightsFromIPCReqInput(zmq_handles={}, flush_cache=False)
        self._whole("update_weights_from_ipc", request, (True, ""))
        self._whole("update_weights_from_ipc", request, (False, "broken"))

    def _whole(self, name: str, request: Any, answer: tuple[bool, str], *, opens: int = 1) -> None:
        """An update in one call: whether it is a load is what it answers; where it opens nothing, the load stays."""
        epoch, load = self._hooks.slots.epoch, self._hooks.current
        self._updater(name, request, answer)
        _must(self._hooks.slots.epoch == epoch + opens, f"an update answering {answer} opened no or several epochs")
        now = self._hooks.current
        _must(bool(now.load_id) == answer[0] if opens else now == load, f"an update answering {answer} is misjudged")

    def _tensor(self) -> None:
        from sglang.srt.managers.io_struct import UpdateWeightsFromTensorReqInput

        part = UpdateWeightsFromTensorReqInput(serialized_named_tensors=[], flush_cache=False)
        self._session("update_weights_from_tensor", part)

    def _distributed(self) -> None:
        from sglang.srt.managers.io_struct import UpdateWeightsFromDistributedReqInput

        part = UpdateWeightsFromDistributedReqInput(names=[], dtypes=[], shapes=[], flush_cache=False)
        self._session("update_weights_from_distributed", part)

    def _session(self, update: str, part: Any) -> None:
        from sglang.srt.managers.io_struct import BeginWeightUpdateReqInput, EndWeightUpdateReqInput

        epoch = self._hooks.slots.epoch
        outside = self._updater(update, part, (True, ""))
        _must(not outside.success and self._hooks.slots.epoch == epoch, "a part outside a session counts")
        for answers, complete in (((True, "ok"), True), ((False, "broken"), False)):
            manager = self._manager(answers)
            for name, request in (("begin_weight_update", BeginWeightUpdateReqInput()), (update, part)):
                epoch = self._hooks.slots.epoch
                self._call(name, manager, request)
                _must(self._hooks.slots.epoch > epoch, f"{name} opened no epoch")
                _must(self._hooks.current.load_id is None, f"{name} alone is mistaken for a load")
            self._call("end_weight_update", manager, EndWeightUpdateReqInput())
            _must(bool(self._hooks.current.load_id) == complete, "a session with a failed part is mistaken for a load")

    def _stale_reported(self) -> None:
        request, _ = self._build()
        self._drop(request)
        _must(self._matched == self._reusable, f"matched {self._matched} tokens, {self._reusable} are kept")
        _must(self._hooks.counters.stale_prefixes == 1, "a stale prefix was not found")
        _must(self._hooks.counters.stale_slots == self._reusable, "not every stale slot was found")

    def _adoption_reported(self) -> None:
        from sglang.srt.environ import envs
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        with envs.SGLANG_RADIX_FORCE_MISS.override(True):
            request, _ = self._build()
        _must(self._matched == 0, "a miss could not be forced")
        checkpoint_kv_cache(request, self._scheduler.tree_cache)
        self._drop(request)
        _must(self._hooks.counters.stale_adoptions == 1, "an exchange of fresh KV for stale KV was not seen")

    def _stale_recomputed(self) -> None:
        request, batch = self._build()
        _must(self._matched == 0 and batch.out_cache_loc.numel() == len(self._tokens), "a stale prefix was reused")
        self._kept = request

    def _stale_refused(self) -> None:
        request, batch = self._build()
        _must(request.discard_output_reason is not None, "a stale prefix was accepted")
        _must(batch.out_cache_loc.numel() == 1 and batch.prefix_lens == [0], "a refused request still uses its prefix")
        self._drop(request)
        self._kept, _ = self._build(self._other_tokens())

    def _kept_out(self) -> None:
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        table = self._scheduler.req_to_token_pool.req_to_token
        before = table[self._kept.kv.req_pool_idx, : len(self._tokens)].clone()
        checkpoint_kv_cache(self._kept, self._scheduler.tree_cache)
        after = table[self._kept.kv.req_pool_idx, : len(self._tokens)]
        _must(bool((before == after).all()), "a checkpoint took KV from a mixed tree")
        _must(self._kept.kv.cache_protected_len == 0, "a checkpoint put KV into a mixed tree")
        self._drop(self._kept)

    def _release(self) -> None:
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqInput

        self._call(
            "release_memory_occupation", self._manager((True, "")), ReleaseMemoryOccupationReqInput(tags=["kv_cache"])
        )
        slots = self._scheduler.req_to_token_pool.req_to_token.new_tensor(range(1, 9))
        self._must_be_epoch(slots.long(), UNWRITTEN)

    def _resume(self) -> None:
        from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqInput

        epoch = self._hooks.slots.epoch
        manager = self._manager((True, ""))
        manager.offload_tags = {"weights"}
        self._call("resume_memory_occupation", manager, ResumeMemoryOccupationReqInput(tags=["weights"]))
        if not self._hooks.load_hooks.keeps_weights():
            _must(self._hooks.slots.epoch == epoch + 1, "resumed weights opened no epoch")
            _must(self._hooks.current.load_id is None, "resumed weights without content are mistaken for a load")

    def _flush(self) -> None:
        flushes = self._hooks.counters.flushes
        _must(self._scheduler.flush_cache(), "an empty engine refuses to flush")
        _must(self._hooks.counters.flushes == flushes + 1, "a flush was not seen")
        request, _ = self._build()
        self._drop(request)
        _must(self._matched == 0, f"{self._matched} tokens survived a flush")
        self._scheduler.flush_cache()

    # Helpers.

    def _build(self, tokens: array[int] | None = None) -> tuple[Any, Any]:
        """A request matched, admitted and built into a prefill batch, as `Scheduler` does it."""
        from sglang.srt.managers.schedule_batch import Req, ScheduleBatch
        from sglang.srt.sampling.sampling_params import SamplingParams

        scheduler = self._scheduler
        parameters = SamplingParams(max_new_tokens=4, temperature=0.0)
        parameters.normalize(None)
        name = f"reef-ref-exercise-{len(self._made)}"
        vocabulary = scheduler.model_config.vocab_size
        request = Req(name, "", array("q", tokens or self._tokens), parameters, vocab_size=vocabulary)
        self._made.append(request)
        request.init_next_round_input(scheduler.tree_cache)
        self._matched = request.prefix_len
        request.extend_end = len(request.full_untruncated_fill_ids)
        request.lock = scheduler.tree_cache.lock(request.last_node)
        batch = ScheduleBatch.init_new(
            [request],
            scheduler.req_to_token_pool,
            scheduler.token_to_kv_pool_allocator,
            scheduler.tree_cache,
            scheduler.model_config,
            scheduler.enable_overlap,
            scheduler.spec_algorithm,
        )
        batch.prepare_for_extend()
        return request, batch

    def _other_tokens(self) -> array[int]:
        return array("q", [17 - token for token in self._tokens])

    def _drop(self, request: Any) -> None:
        from sglang.srt.mem_cache.common import release_kv_cache

        release_kv_cache(request, self._scheduler.tree_cache, checkpoint=False)

    def give_back(self) -> None:
        """Drop what a failed step left behind, and empty the pools."""
        for request in self._made:
            if request.kv.holds_kv:
                self._drop(request)
        self._scheduler.flush_cache()

    def _must_be_epoch(self, slots: Any, epoch: int) -> None:
        found = self._hooks.slots.epochs_of(slots)
        _must(set(found) == {epoch}, f"slots bear epochs {sorted(set(found))} instead of {epoch}")

    def _updater(self, name: str, request: Any, answer: tuple[bool, str]) -> Any:
        return self._call(name, self._manager(answer), request)

    @staticmethod
    def _call(name: str, manager: Any, request: Any) -> Any:
        from sglang.srt.managers.scheduler_components import weight_updater

        with _silent(weight_updater.logger):
            return getattr(weight_updater.SchedulerWeightUpdaterManager, name)(manager, request)

    def _manager(self, answer: tuple[bool, str]) -> Any:
        """Stands in for the update manager, so that its real methods run without touching the weights."""
        import torch
        from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager

        updater = SimpleNamespace(
            update_weights_from_disk=lambda *_, **__: answer,
            update_weights_from_ipc=lambda *_, **__: answer,
            update_weights_from_tensor=lambda **__: answer,
            receive_weights_from_distributed=lambda **__: [],
            load_weights_from_distributed=lambda _: answer,
            begin_weight_update=lambda: None,
            end_weight_update=lambda **__: None,
        )
        runner = SimpleNamespace(weight_updater=updater, model=torch.nn.Module())
        manager = SimpleNamespace(
            scheduler=self._scheduler,
            tp_worker=SimpleNamespace(deserialize_own_rank=lambda _: [], model_runner=runner),
            tp_cpu_group=self._scheduler.weight_updater.tp_cpu_group,
            memory_saver_adapter=SimpleNamespace(pause=lambda _: None, resume=lambda _: None),
            stashed_model_static_state={"buffers": []},
            offload_tags=set(),
            is_fully_idle=lambda **_: True,
            flush_cache=lambda **_: False,
            flush_cache_after_weight_update=lambda _, success, message: (success, message),
            _session=None,
            _observe_weight_load=lambda _: nullcontext(),
            _select_runners=lambda *_: [("target", runner)],
            _assert_weight_cache_inactive=lambda _: None,
        )
        recorded = SchedulerWeightUpdaterManager.record_weight_version_after_update
        manager.record_weight_version_after_update = partial(recorded, manager)
        return manager
