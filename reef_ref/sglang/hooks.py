"""Provenance in a running scheduler: where KV slots are written, reused and given up, and what a stale prefix meets.

A request gets KV it did not compute at two places in SGLang 0.5.23, and both are watched:

* `ScheduleBatch.prepare_for_extend` (`managers/schedule_batch.py`): a request that holds no row yet takes its matched
  prefix off the tree. A later chunk of the same request keeps its own row; that is legal across an in-place
  publication and is not questioned.
* `checkpoint_kv_cache` (`mem_cache/common.py`): what a prefill computed goes into the tree, and where the tree holds
  those tokens already the request's row is pointed at the tree's slots.

Under `enforce` both are closed while older KV may be about: a stale match counts as a miss (`recompute`) or ends the
request with an error before its prefix is used (`refuse`), and nothing is put into or taken from the tree by a
checkpoint until the next flush.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from reef_ref import rank_events
from reef_ref.rank_events import RankEvent, StaleAdoption, StaleFinding, StalePrefix
from reef_ref.sglang.events import EventSink
from reef_ref.sglang.loads import Load, LoadHooks
from reef_ref.sglang.pauses import PauseHooks
from reef_ref.sglang.provenance import UNWRITTEN, Finding, SlotProvenance
from reef_ref.sglang.settings import OnStale, ProvenanceMode

if TYPE_CHECKING:
    import torch

REMEMBERED_LOADS = 4096
"""Epochs whose load ids are kept for naming; older ones are named by number."""


@dataclass
class Counters:
    """What this rank has seen since it started."""

    prefixes_checked: int = 0
    """Reused prefixes whose slots were compared."""
    slots_checked: int = 0
    """Slots in them."""
    stale_prefixes: int = 0
    """Reused prefixes with a stale slot, found when the batch was built."""
    stale_slots: int = 0
    """Stale slots in them."""
    stale_adoptions: int = 0
    """Requests whose own KV was replaced with stale KV of the tree after a prefill."""
    foreign_adapter_slots: int = 0
    """Reused slots that another adapter computed."""
    recomputed: int = 0
    """Stale matches that counted as a miss instead (`enforce`, `recompute`)."""
    refused: int = 0
    """Requests answered with an error instead (`enforce`, `refuse`)."""
    kept_out_of_tree: int = 0
    """Requests whose KV was kept out of the tree because older KV may be about (`enforce`)."""
    loads: int = 0
    """Complete loads."""
    incomplete_loads: int = 0
    """Changes of the weights that were no complete load."""
    flushes: int = 0
    """Times all KV was given up."""


class ProvenanceHooks:
    """The hooks of one process. Inert until `attach` has given them the scheduler's pools."""

    def __init__(
        self, mode: ProvenanceMode, on_stale: OnStale, pauses: PauseHooks, sink: Callable[[], EventSink | None]
    ) -> None:
        self.mode = mode
        self.on_stale = on_stale
        self.counters = Counters()
        self._pauses = pauses
        self._sink = sink
        self._slots: SlotProvenance | None = None
        self._scheduler: Any = None
        self._loads: dict[int, Load] = {}
        self._adapters: dict[str, int] = {}
        self.load_hooks = LoadHooks(
            opened=self._opened,
            relabelled=self._relabelled,
            released=self._forget,
            load_id=_serving_version,
            keeps_weights=_weights_backed_up,
        )

    # ---- life ----

    def attach(self, scheduler: Any) -> None:
        """Start to follow the slots of `scheduler`, all of them unwritten."""
        allocator = scheduler.token_to_kv_pool_allocator
        pool = scheduler.req_to_token_pool
        self._scheduler = scheduler
        self._adapters = {}
        self.counters = Counters()
        self._loads = {0: Load(_serving_version(), "start")}
        self._slots = SlotProvenance(
            slots=allocator.size + max(1, allocator.page_size) + 1,
            rows=pool.req_to_token.shape[0],
            device=pool.req_to_token.device,
            adapters=bool(scheduler.enable_lora),
        )

    def detach(self) -> None:
        """Follow nothing any more: every hook passes through."""
        self._slots = None

    @property
    def slots(self) -> SlotProvenance:
        """The stamps.

        Raises:
            RuntimeError: not attached.
        """
        if self._slots is None:
            raise RuntimeError("provenance is not attached to a scheduler")
        return self._slots

    @property
    def current(self) -> Load:
        """The weights of now."""
        return self._loads[self.slots.epoch]

    @property
    def serving(self) -> str | None:
        """The load id of the weights of now; none where they are no complete load, or where nothing is followed."""
        return None if self._slots is None else self.current.load_id

    def counted(self) -> dict[str, int]:
        """The counters."""
        return asdict(self.counters)

    def describe(self) -> dict[str, object]:
        """Mode, current load and counters, for the engine's internal state."""
        report: dict[str, object] = {"mode": self.mode.value, "on_stale": self.on_stale.value}
        if self._slots is not None:
            report |= {"epoch": self._slots.epoch, "load_id": self.current.load_id, "mixed": self._slots.mixed}
            report["counters"] = self.counted()
        return report

    # ---- weights ----

    def _opened(self, load: Load) -> None:
        if self._slots is None:
            return
        epoch = self._slots.open_epoch()
        self._loads[epoch] = load
        self._loads.pop(epoch - REMEMBERED_LOADS, None)
        if load.load_id is None:
            self.counters.incomplete_loads += 1
        else:
            self.counters.loads += 1
        self._emit(
            rank_events.Load,
            epoch=epoch,
            load_id=load.load_id,
            reason=load.reason,
            mixed=self._slots.mixed,
            paused=self._pauses.mode,
        )

    def _relabelled(self, load_id: str) -> None:
        if self._slots is None:
            return
        self._loads[self._slots.epoch] = Load(load_id, f"{self.current.reason}, label changed")
        self._emit(rank_events.Label, epoch=self._slots.epoch, load_id=load_id)

    def _forget(self) -> None:
        if self._slots is None:
            return
        self._slots.forget()
        self.counters.flushes += 1
        self._emit(rank_events.Flush, load_id=self.current.load_id)

    def flush_cache(self, original: Any, scheduler: Any, empty_cache: bool = True) -> Any:
        """Around `Scheduler.flush_cache`: a flush that went through gives up every slot."""
        flushed = original(scheduler, empty_cache=empty_cache)
        if flushed:
            self._forget()
        return flushed

    # ---- slots ----

    def prepare_for_extend(self, original: Any, batch: Any) -> Any:
        """Around `ScheduleBatch.prepare_for_extend`: check what is reused, stamp what will be written."""
        slots = self._slots
        if slots is None:
            return original(batch)
        reusing = [request for request in batch.reqs if request.prefix_len > 0 and not request.kv.holds_kv]
        if reusing and self.mode is ProvenanceMode.ENFORCE:
            # Before anything is allocated: a refused request can still be cut short.
            for request in reusing:
                prefix = batch.tree_cache.prefix_device_indices(request)
                if (finding := self._check(request, prefix)) is not None:
                    self._refuse(batch, request, finding)
            reusing = []
        answer = original(batch)
        table = batch.req_to_token_pool.req_to_token
        for request in reusing:
            prefix = table[request.kv.req_pool_idx, : request.prefix_len]
            if (finding := self._check(request, prefix)) is not None:
                self._found(StalePrefix, "reported", request, finding)
        mixed = slots.mixed
        slots.stamp_prefill(
            rows=[request.kv.req_pool_idx for request in batch.reqs] if mixed or slots.keeps_adapters else (),
            prefixes=[table[request.kv.req_pool_idx, : request.prefix_len] for request in batch.reqs] if mixed else (),
            lengths=batch.extend_lens,
            slots=batch.out_cache_loc,
            adapters=[self._adapter(request) for request in batch.reqs] if slots.keeps_adapters else (),
        )
        return answer

    def prepare_for_decode(self, original: Any, batch: Any) -> Any:
        """Around `ScheduleBatch.prepare_for_decode`: stamp the slot each request is about to write."""
        answer = original(batch)
        if self._slots is not None and batch.out_cache_loc is not None:
            if len(batch.req_pool_indices) == len(batch.reqs):
                self._slots.stamp_decode(rows=batch.req_pool_indices, slots=batch.out_cache_loc)
            else:  # rows that belong to no request of the batch: members of a beam
                self._slots.mark_unwritten(batch.out_cache_loc)
        return answer

    def match_kv_cache(self, original: Any, request: Any, tree_cache: Any, *args: Any, **kwargs: Any) -> Any:
        """Around `match_kv_cache` (`enforce`, `recompute`): a stale match counts as a miss."""
        answer = original(request, tree_cache, *args, **kwargs)
        if self._slots is None or not self._slots.mixed or request.prefix_len == 0 or request.kv.holds_kv:
            return answer
        if self.mode is not ProvenanceMode.ENFORCE or self.on_stale is not OnStale.RECOMPUTE:
            return answer
        finding = self._check(request, tree_cache.prefix_device_indices(request), count=False)
        if finding is None:
            return answer
        from sglang.srt.environ import envs

        reused = request.prefix_len
        with envs.SGLANG_RADIX_FORCE_MISS.override(True):
            answer = original(request, tree_cache, *args, **kwargs)
        if not request.skip_radix_cache_insert:
            # SGLang matches a waiting request again each time it considers it; once is enough to report.
            self.counters.recomputed += 1
            self._emit_finding(StalePrefix, "recomputed", request, finding, reused)
        request.skip_radix_cache_insert = True
        return answer

    def checkpoint_kv_cache(self, original: Any, request: Any, tree_cache: Any) -> Any:
        """Around `checkpoint_kv_cache`: the tree may exchange the request's slots for its own."""
        slots = self._slots
        if slots is None or not slots.mixed or request.skip_radix_cache_insert:
            return original(request, tree_cache)
        if self.mode is ProvenanceMode.ENFORCE:
            self._keep_out_of_tree(request)
            return original(request, tree_cache)
        row = tree_cache.req_to_token_pool.req_to_token[request.kv.req_pool_idx, : request.extend_end]
        before = row.clone()
        answer = original(request, tree_cache)
        adopted = row[row != before]
        if adopted.numel():
            if (finding := slots.check(adopted, adapter=self._adapter(request))) is not None:
                self.counters.stale_adoptions += 1
                self._emit_finding(StaleAdoption, "reported", request, finding, int(adopted.numel()))
            slots.adopt(request.kv.req_pool_idx, adopted)
        return answer

    def release_kv_cache(self, original: Any, request: Any, tree_cache: Any, *, checkpoint: bool) -> Any:
        """Around `release_kv_cache` (`enforce`): a finished request leaves nothing in a tree that may hold older KV."""
        mixed = self._slots is not None and self._slots.mixed
        if checkpoint and mixed and self.mode is ProvenanceMode.ENFORCE and not request.skip_radix_cache_insert:
            self._keep_out_of_tree(request)
        return original(request, tree_cache, checkpoint=checkpoint)

    # ---- findings ----

    def _check(self, request: Any, prefix: torch.Tensor, *, count: bool = True) -> Finding | None:
        if count:
            self.counters.prefixes_checked += 1
            self.counters.slots_checked += prefix.numel()
        return self.slots.check(prefix, adapter=self._adapter(request))

    def _found(self, kind: type[StaleFinding], action: str, request: Any, finding: Finding) -> None:
        self.counters.stale_prefixes += 1
        self.counters.stale_slots += finding.count
        self.counters.foreign_adapter_slots += finding.foreign_adapter
        self._emit_finding(kind, action, request, finding, request.prefix_len)

    def _keep_out_of_tree(self, request: Any) -> None:
        request.skip_radix_cache_insert = True
        self.counters.kept_out_of_tree += 1

    def _refuse(self, batch: Any, request: Any, finding: Finding) -> None:
        """Cut the request down to its first token without any prefix, and end it with an error instead of output.

        SGLang has no way to take a request out of a batch that is being built; this is the way it discards the output
        of a request whose KV could not be fetched (`discard_output_reason`).
        """
        from http import HTTPStatus

        from sglang.srt.managers.schedule_batch import FINISH_ABORT

        self._found(StalePrefix, "refused", request, finding)
        self.counters.refused += 1
        loads = ", ".join(self._name(epoch) for epoch in finding.epochs)
        message = (
            f"stale prefix refused: {finding.count} of {request.prefix_len} reused KV slots were computed by {loads}, "
            f"the engine serves {self._name(self.slots.epoch)}; flush the cache after a publication"
        )
        request.prefix_len = 0
        request.host_hit_length = 0
        request.extend_end = 1
        request.kv.cache_protected_len = 0
        request.skip_radix_cache_insert = True
        request.discard_output_reason = FINISH_ABORT(message, HTTPStatus.CONFLICT, "StalePrefixError")
        if batch.chunked_req is request:
            self._scheduler._pending_chunked_abort_req = request

    def _emit_finding(self, kind: type[StaleFinding], action: str, request: Any, finding: Finding, reused: int) -> None:
        self._emit(
            kind,
            action=action,
            request=request.rid,
            reused=reused,
            stale=finding.count,
            foreign_adapter=finding.foreign_adapter,
            slots=tuple({"position": position, "slot": slot} for position, slot in finding.first),
            written_by=tuple(self._name(epoch) for epoch in finding.epochs),
            serving=self._name(self.slots.epoch),
            retractions=request.retraction_count,
            adapter=request.lora_id,
        )

    def _name(self, epoch: int) -> str:
        if epoch == UNWRITTEN:
            return "nothing since the last flush"
        load = self._loads.get(epoch)
        if load is None:
            return f"epoch {epoch}"
        return f"load {load.load_id} (epoch {epoch})" if load.load_id else f"no load (epoch {epoch}: {load.reason})"

    def _adapter(self, request: Any) -> int:
        """Number of the request's adapter in this process; 0 is the base model."""
        if request.lora_id is None:
            return 0
        return self._adapters.setdefault(request.lora_id, len(self._adapters) + 1)

    def _emit(self, kind: type[RankEvent], **fields: object) -> None:
        if (sink := self._sink()) is not None:
            sink.emit(kind, **fields)


def _serving_version() -> str:
    from sglang.srt.runtime_context import get_serving

    return str(get_serving().weight_version)


def _weights_backed_up() -> bool:
    from sglang.srt.runtime_context import get_exec

    return bool(get_exec().features.enable_weights_cpu_backup)
