"""One SGLang engine: the order of its calls, its retries, and what its answers mean.

What SGLang 0.5.23 does when asked out of order is the reason for every guard here: a release while a request runs and
a resume of what was not released end its scheduler, an unload under a pause never returns, a timed flush under a
retract pause always expires. Such a call is `CallRefused` and never sent.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reef_ref.engines.checkpoint import CheckpointLayout, check_adapter, check_same_layout, read_layout
from reef_ref.engines.errors import (
    CallRefused,
    CheckpointRejected,
    EngineError,
    EngineLost,
    EngineNotSupported,
    EngineRefused,
    EngineTimeout,
    FlushAttempts,
    FlushRefused,
    GenerationFailed,
    UpdateFailed,
)
from reef_ref.engines.interface import (
    AdapterChange,
    CacheState,
    Continued,
    Flush,
    Generation,
    Health,
    Limits,
    LoadReport,
    MemoryChange,
    Pause,
    PauseMode,
    PluginReport,
    Region,
    Request,
    Span,
    Update,
    WeightState,
)
from reef_ref.engines.wire import Answer, Route, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SGLangEngine"]

ONLY_ONE = ("dp_size", "pp_size", "tokenizer_worker_num")
NO_SESSION = "no weight-update session is open"
"""How `managers/scheduler_components/weight_updater.py` refuses to end a session (0.5.23)."""
NO_ANSWER = 0
"""Status of a flush try that was not answered in time."""


class SGLangEngine:
    """An SGLang engine behind a wire; see `reef_ref.engines.interface.Engine` for the methods' meaning.

    Made by `attach`, which is what `http.connect` and `in_process.start` call.
    """

    def __init__(self, wire: Wire, *, limits: Limits, layout: CheckpointLayout) -> None:
        self._wire = wire
        self._limits = limits
        self._layout = layout
        self._paused: PauseMode | None = None
        self._flushed = False
        self._released: frozenset[Region] = frozenset()
        self._uncertain: str | None = None
        self._unloaded: set[str] = set()

    @classmethod
    async def attach(cls, wire: Wire, *, limits: Limits, layout: CheckpointLayout | None = None) -> SGLangEngine:
        """Ask the server what it is, refuse it if its answers would not speak for a whole engine, and take its layout.

        Raises `EngineNotSupported`, `EngineUnreachable`, `EngineTimeout`, `CheckpointRejected`.
        """
        answer = await wire.call(Route.SERVER_INFO, None, limits.control_s)
        info = answer.body
        if not answer.ok or not isinstance(info, dict) or "model_path" not in info:
            message = f"{wire.address}: no SGLang server (server_info answered {answer.status}: {answer.message[:200]})"
            raise EngineNotSupported(message)
        if rank := info.get("node_rank", 0):
            message = f"{wire.address}: this is node rank {rank}; node rank 0 speaks for the whole engine, address that"
            raise EngineNotSupported(message)
        for name in ONLY_ONE:
            if (count := info.get(name, 1)) != 1:
                message = f"{wire.address}: {name} is {count}; only one is supported, an answer would be that of a part"
                raise EngineNotSupported(message)
        if layout is None:
            try:
                layout = await asyncio.to_thread(read_layout, Path(info["model_path"]))
            except CheckpointRejected as error:
                message = f"{wire.address}: the served checkpoint cannot be read here, pass its layout ({error})"
                raise EngineNotSupported(message) from error
        return cls(wire, limits=limits, layout=layout)

    @property
    def address(self) -> str:
        """Where the engine is, for messages."""
        return self._wire.address

    @property
    def layout(self) -> CheckpointLayout:
        """Names, shapes and types of the tensors that the engine serves."""
        return self._layout

    @property
    def wire(self) -> Wire:
        """The carrier, for calls that are not part of a publication."""
        return self._wire

    async def generate(self, request: Request) -> Generation:
        """Run one request to its end. `CallRefused` for an adapter that was unloaded here."""
        if request.adapter in self._unloaded:
            # SGLang 0.5.23 loads an adapter that it ever held again when a request names it (tokenizer_manager).
            self._refuse("generate", f"adapter {request.adapter} was unloaded; SGLang would load it again by itself")
        sampling: dict[str, Any] = {
            "temperature": 0.0,
            "max_new_tokens": request.max_new_tokens,
            "ignore_eos": request.ignore_eos,
            **request.sampling,
        }
        if request.json_schema is not None:
            sampling["json_schema"] = request.json_schema
        body: dict[str, Any] = {"input_ids": list(request.input_ids), "sampling_params": sampling}
        if request.adapter is not None:
            body["lora_path"] = request.adapter
        if request.request_id is not None:
            body["rid"] = request.request_id
        answer = await self._wire.call(Route.GENERATE, body, self._limits.generate_s)
        if not answer.ok:
            raise GenerationFailed("generate", self.address, answer.status, answer.message)
        return self._generation(answer)

    def _generation(self, answer: Answer) -> Generation:
        try:
            meta = answer.body["meta_info"]
            finish = meta["finish_reason"] or {}
            if finish.get("type") == "abort":
                status = int(finish.get("status_code") or answer.status)
                raise GenerationFailed("generate", self.address, status, str(finish.get("message") or "aborted"))
            return Generation(
                request_id=meta["id"],
                output_ids=tuple(answer.body["output_ids"]),
                text=answer.body.get("text", ""),
                finish=str(finish.get("type")),
                prompt_tokens=meta["prompt_tokens"],
                cached_tokens=meta["cached_tokens"],
                retractions=meta.get("num_retractions", 0),
                spans=tuple(
                    Span(str(span["version"]), span["start"], span["end"]) for span in meta.get("weight_versions") or ()
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            message = f"generate at {self.address}: the answer is not understood ({error!r})"
            raise EngineNotSupported(message) from error

    async def pause(self, mode: PauseMode) -> Pause:
        """Stop generating, and make sure that the scheduler has heard it.

        SGLang answers when the pause is *sent*. Its messages are handled in order, so one question that the scheduler
        itself answers, asked afterwards, shows that the pause has been executed.
        """
        await self._ask(Route.PAUSE, {"mode": mode.value}, self._limits.control_s)
        await self._ask(Route.SERVER_INFO, None, self._limits.control_s)
        self._paused = mode
        self._flushed = False
        return Pause(mode)

    async def flush(self) -> Flush:
        """Clear the prefix cache, with bounded retries; a server that is gone fails at once."""
        clock = asyncio.get_running_loop().time
        started = clock()
        wait = self._limits.flush_first_wait_s
        refusals = 0
        last: str | None = None
        while True:
            status, text = await self._try_flush()
            elapsed = clock() - started
            if status == 200:
                self._flushed = self._paused is not None
                return Flush(CacheState.CLEARED, refusals, elapsed, last)
            refusals += 1
            last = text
            if elapsed + wait > self._limits.flush_total_s:
                raise FlushRefused(self.address, status, text, FlushAttempts(refusals, elapsed))
            await asyncio.sleep(wait)
            wait = min(2 * wait, self._limits.flush_longest_wait_s)

    async def _try_flush(self) -> tuple[int, str]:
        try:
            # No time-out of SGLang's own: a timed flush counts waiting requests even under a retract pause.
            answer = await self._wire.call(Route.FLUSH, None, self._limits.flush_try_s)
        except EngineTimeout as error:
            return NO_ANSWER, str(error)
        return answer.status, answer.message

    async def release(self, regions: frozenset[Region]) -> MemoryChange:
        """Give regions of memory back."""
        self._refuse_if_uncertain("release")
        if self._paused is None or not self._flushed:
            self._refuse("release", "pause and flush first; SGLang's scheduler dies if anything still runs")
        changed = regions - self._released
        if changed:
            await self._move(Route.RELEASE, changed)
            self._released |= changed
        return MemoryChange(changed, self._released)

    async def resume(self, regions: frozenset[Region]) -> MemoryChange:
        """Take regions back."""
        self._refuse_if_uncertain("resume")
        changed = regions & self._released
        if changed:
            await self._move(Route.RESUME, changed)
            self._released -= changed
        return MemoryChange(changed, self._released)

    async def _move(self, route: Route, regions: frozenset[Region]) -> None:
        try:
            await self._ask(route, {"tags": sorted(regions)}, self._limits.memory_s)
        except EngineError as error:
            self._uncertain = str(error)
            raise

    async def update(self, checkpoint: Path, load_id: str) -> Update:
        """Load a checkpoint's weights under a new load id, leaving the cache alone."""
        if self._paused is None:
            self._refuse("update", "pause first; requests would mix two loads")
        if Region.WEIGHTS in self._released:
            self._refuse("update", "the weights' memory is released; resume it first")
        candidate = await asyncio.to_thread(read_layout, checkpoint)
        check_same_layout(candidate, self._layout)
        body = {
            "model_path": str(checkpoint),
            "weight_version": load_id,
            "flush_cache": False,  # The implicit flush would come after the new weights, and its refusal after both.
            "abort_all_requests": False,
        }
        unknown = Update(weights=WeightState.UNKNOWN, cache=CacheState.KEPT, load_id=None)
        try:
            answer = await self._wire.call(Route.UPDATE_FROM_DISK, body, self._limits.update_s)
        except (EngineTimeout, EngineLost) as error:
            raise UpdateFailed(self.address, NO_ANSWER, str(error), unknown) from error
        if not answer.ok:
            raise UpdateFailed(self.address, answer.status, answer.message, unknown)
        return Update(weights=WeightState.CHANGED, cache=CacheState.KEPT, load_id=load_id, message=answer.message)

    async def continue_generation(self) -> Continued:
        """Generate again."""
        self._refuse_if_uncertain("continue")
        if self._released:
            self._refuse("continue", f"{', '.join(sorted(self._released))} released; resume first")
        await self._ask(Route.CONTINUE, {}, self._limits.control_s)
        self._paused = None
        self._flushed = False
        return Continued()

    async def report(self) -> LoadReport:
        """The load ids that the scheduler and the front end report."""
        server = await self._ask(Route.SERVER_INFO, None, self._limits.control_s)
        model = await self._ask(Route.MODEL_INFO, None, self._limits.control_s)
        try:
            return LoadReport(str(server["internal_states"][0]["weight_version"]), str(model["weight_version"]))
        except (KeyError, IndexError, TypeError) as error:
            message = f"report at {self.address}: no weight_version in the answer ({error!r})"
            raise EngineNotSupported(message) from error

    async def end_update_session(self) -> bool:
        """End the weight-update session that is open; whether one was.

        SGLang 0.5.23 wants one around updates from tensors and over a process group, and continues with one open. A
        release that knows none has none open.
        """
        answer = await self._wire.call(Route.END_UPDATE, {}, self._limits.control_s)
        if answer.status == 404 or (answer.status == 400 and NO_SESSION in answer.message):
            return False
        if not answer.ok:
            raise EngineRefused(Route.END_UPDATE.value, self.address, answer.status, answer.message)
        return True

    async def plugin(self) -> PluginReport | None:
        """What the plugin says; none where the engine runs without it."""
        server = await self._ask(Route.SERVER_INFO, None, self._limits.control_s)
        try:
            return _plugin_report([state["reef_ref"] for state in server["internal_states"] if "reef_ref" in state])
        except (KeyError, TypeError, AttributeError) as error:
            message = f"server_info at {self.address}: the plugin's part is not understood ({error!r})"
            raise EngineNotSupported(message) from error

    async def checksum(self) -> str:
        """A digest of the weights' content, over all ranks: equal for equal weights, whatever they are called.

        `CallRefused` while the weights' memory is released. SGLang hashes tensors as they lie in memory, so only
        engines of one layout (ranks, quantization, device) can be compared.
        """
        if Region.WEIGHTS in self._released:
            self._refuse("checksum", "the weights' memory is released; resume it first")
        body = {"action": "checksum", "selector": "target"}
        answer = await self._ask(Route.CHECK_WEIGHTS, body, self._limits.checksum_s)
        digest = answer.get("per_engine_checksum") if isinstance(answer, dict) else None
        if not isinstance(digest, str) or not digest:
            message = f"checksum at {self.address}: no per_engine_checksum in the answer ({str(answer)[:200]})"
            raise EngineNotSupported(message)
        return digest

    async def load_adapter(self, name: str, path: Path) -> AdapterChange:
        """Load a LoRA adapter."""
        await asyncio.to_thread(check_adapter, path)
        body = {"lora_name": name, "lora_path": str(path)}
        change = _adapter_change(name, await self._ask(Route.LOAD_ADAPTER, body, self._limits.control_s))
        self._unloaded.discard(name)
        return change

    async def unload_adapter(self, name: str) -> AdapterChange:
        """Unload a LoRA adapter."""
        if self._paused is not None:
            self._refuse("unload adapter", "continue first; SGLang waits for paused requests that use it")
        self._unloaded.add(name)  # Whatever comes of the call: nobody is to use it any more.
        return _adapter_change(name, await self._ask(Route.UNLOAD_ADAPTER, {"lora_name": name}, self._limits.control_s))

    async def adapters(self) -> Mapping[str, Path]:
        """The LoRA adapters that the engine holds."""
        answer = await self._ask(Route.MODELS, None, self._limits.control_s)
        try:
            cards = [card for card in answer["data"] if card.get("parent") is not None]
            return {str(card["id"]): Path(card["root"]) for card in cards}
        except (KeyError, TypeError, AttributeError) as error:
            message = f"adapters at {self.address}: no list of models in the answer ({error!r})"
            raise EngineNotSupported(message) from error

    async def health(self) -> Health:
        """Whether the scheduler answers a question that needs no generation, paused or not."""
        try:
            answer = await self._wire.call(Route.SERVER_INFO, None, self._limits.health_s)
        except EngineError as error:
            return Health(alive=False, detail=str(error))
        if not answer.ok:
            return Health(alive=False, detail=f"server_info answered {answer.status}: {answer.message}")
        return Health(alive=True, detail="the scheduler answers" + (f", paused {self._paused}" if self._paused else ""))

    async def shut_down(self) -> None:
        """Let go of the wire, and of the engine if it lives by it."""
        await self._wire.close()

    async def _ask(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Any:
        answer = await self._wire.call(route, body, bound_s)
        if not answer.ok:
            raise EngineRefused(route.value, self.address, answer.status, answer.message)
        return answer.body

    def _refuse(self, call: str, reason: str) -> None:
        message = f"{call} at {self.address}: not sent: {reason}"
        raise CallRefused(message)

    def _refuse_if_uncertain(self, call: str) -> None:
        if self._uncertain is not None:
            self._refuse(call, f"its memory is in an unknown state, replace the engine (after: {self._uncertain})")


def _adapter_change(name: str, answer: Any) -> AdapterChange:
    return AdapterChange(name, frozenset(answer.get("loaded_adapters") or ()))


def _plugin_report(states: list[dict[str, Any]]) -> PluginReport | None:
    if not states:
        return None
    stamped = [state["provenance"] for state in states if "provenance" in state]
    counters = [provenance["counters"] for provenance in stamped if "counters" in provenance]
    able = all(state["able_to_share"] is True for state in states)
    return PluginReport(
        able_to_share=able,
        problems=tuple(str(problem) for state in states for problem in state["problems"]),
        provenance=bool(counters),
        complete=all(provenance.get("load_id") is not None for provenance in stamped if "counters" in provenance),
        mixed=any(provenance.get("mixed", False) for provenance in stamped),
        stale=sum(int(c["stale_prefixes"]) + int(c["stale_adoptions"]) for c in counters),
    )
