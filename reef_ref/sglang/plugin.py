"""The SGLang plugin (entry point `sglang.srt.plugins`, name `reef_ref`), read by SGLang in every process it starts.

It does nothing unless the environment asks for it:

`REEF_REF_PROVENANCE`
    `off` (the default): no hook is installed. `report`: every reused prefix is checked, what is stale is counted and
    written to the events. `enforce`: besides, no token is sampled from a stale prefix.
`REEF_REF_ON_STALE`
    What `enforce` does. `recompute` (the default): the prefix counts as a miss and is computed with the weights of
    now. `refuse`: the request is answered with an error (HTTP 409) that names the loads.
`REEF_REF_IDLE`
    `sglang` (the default): SGLang's own idle check. `retract`: while paused in retract mode, it ignores requests that
    hold no KV, those whose grammar compiles among them; see `reef_ref.sglang.idle`.
`REEF_REF_EVENTS`
    A file to which every rank appends its events, one JSON object a line (`reef_ref.rank_events`), or `unix:` and the
    path of a socket that takes them, that of `reef-ref monitor` for one.
`REEF_REF_ENGINE`
    The slot of this engine in its deployment, for whoever reads the events of several.

Before the scheduler serves, every hook is exercised on its real objects (`reef_ref.sglang.exercise`). Where a target
is missing or behaves otherwise, the hooks are withdrawn and the engine shares no prefix: its tree is switched off.
The verdict stands in the engine's internal
state (`/server_info`, `internal_states[].reef_ref`):

`able_to_share`
    Whether every target was verified.
`problems`
    Why not, one line each.
`verdicts`
    Each target with what was expected of it.
`provenance`
    Mode, current load and counters; absent where provenance is off.
`events`
    How many events were dropped or could not be written.
"""

from __future__ import annotations

import logging
import pkgutil
from typing import Any

from reef_ref import rank_events
from reef_ref.sglang.events import EventSink
from reef_ref.sglang.exercise import (
    BATCH,
    COMMON,
    SCHEDULER,
    UPDATER,
    ProvenanceExercise,
    Verdict,
    exercise,
    idle_steps,
    pause_steps,
)
from reef_ref.sglang.hooks import ProvenanceHooks
from reef_ref.sglang.idle import IdleHooks
from reef_ref.sglang.pauses import PauseHooks
from reef_ref.sglang.settings import IdleCheck, OnStale, ProvenanceMode, Settings

logger = logging.getLogger(__name__)

STATE_KEY = "reef_ref"
"""Where the verdict and the counters stand in an engine's internal state."""


def register() -> None:
    """Register the hooks that the environment asks for; SGLang calls this once in each process.

    Raises:
        SystemExit: the environment holds a wrong value, or SGLang lacks what is needed even to switch sharing off.
        SGLang logs any other
            exception of a plugin and goes on without it, which would leave an engine unguarded.
    """
    from reef_ref.sglang import cpu_memory

    cpu_memory.register()
    try:
        settings = Settings.from_environment()
    except ValueError as error:
        raise SystemExit(f"reef-ref: {error}") from error
    if settings.active:
        Plugin(settings).register()


class Plugin:
    """The hooks of one process and, where that process is a scheduler, their verdict."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problems: list[str] = []
        self.verdicts: list[Verdict] = []
        self._sink: EventSink | None = None
        self._pauses = PauseHooks(self._paused, self._continued)
        self._idle = IdleHooks(self._pauses)
        self._provenance = ProvenanceHooks(settings.provenance, settings.on_stale, self._pauses, lambda: self._sink)

    # ---- registration ----

    def targets(self) -> dict[str, Any]:
        """Dotted name of each target to the hook around it."""
        targets = {f"{SCHEDULER}.{name}": hook for name, hook in self._pauses.hooks().items()}
        if self.settings.idle is IdleCheck.RETRACT:
            targets |= {f"{SCHEDULER}.{name}": hook for name, hook in self._idle.hooks().items()}
        if self.settings.provenance is not ProvenanceMode.OFF:
            hooks = self._provenance
            targets |= {f"{UPDATER}.{name}": hook for name, hook in hooks.load_hooks.hooks().items()}
            targets |= {
                f"{SCHEDULER}.record_weight_version_change": hooks.load_hooks.record_weight_version_change,
                f"{SCHEDULER}.flush_cache": hooks.flush_cache,
                f"{BATCH}.prepare_for_extend": hooks.prepare_for_extend,
                f"{BATCH}.prepare_for_decode": hooks.prepare_for_decode,
                f"{COMMON}.checkpoint_kv_cache": hooks.checkpoint_kv_cache,
            }
            modes = _modes(self.settings)
            if any(mode is ProvenanceMode.ENFORCE for mode, _ in modes):
                targets[f"{COMMON}.release_kv_cache"] = hooks.release_kv_cache
            if (ProvenanceMode.ENFORCE, OnStale.RECOMPUTE) in modes:
                targets[f"{COMMON}.match_kv_cache"] = hooks.match_kv_cache
        return targets

    def register(self) -> None:
        """Hand the hooks to SGLang's registry, or, where a target is missing, only what switches sharing off."""
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        wanted = self.targets()
        self.problems = [f"{target}: missing in this SGLang" for target in wanted if not _exists(target)]
        frame = {f"{SCHEDULER}.__init__": self._start, f"{SCHEDULER}.get_internal_state": self._internal_state}
        if absent := [target for target in frame if not _exists(target)]:
            raise SystemExit(
                f"reef-ref: this SGLang lacks {', '.join(absent)}; nothing can be verified, so no engine is started. "
                "Unset REEF_REF_PROVENANCE and REEF_REF_IDLE to start one unguarded."
            )
        for target, hook in (frame if self.problems else wanted | frame).items():
            HookRegistry.register(target, hook, HookType.AROUND)

    # ---- the scheduler's process ----

    def _start(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        original(scheduler, *args, **kwargs)
        if not self.problems:
            try:
                self._verify(scheduler)
            except Exception as error:
                self.problems.append(f"the hooks cannot be verified: {type(error).__name__}: {error}")
        if self.problems:
            self._provenance.detach()
            self._idle.enabled = False
            switch_sharing_off(scheduler)
        self._sink = EventSink(
            self.settings.events, engine=self.settings.engine, **_source(scheduler), counters=self._provenance.counted
        )
        report = self.describe()
        self._sink.emit(
            rank_events.Start,
            able_to_share=not self.problems,
            sharing=bool(scheduler.tree_cache.supports_prefix_sharing()),
            problems=tuple(self.problems),
            verdicts=tuple(report["verdicts"]),
            idle=self.settings.idle.value,
            provenance=report.get("provenance"),
        )
        for problem in self.problems:
            logger.error("reef-ref: %s; this engine shares no prefix", problem)

    def _paused(self, mode: str) -> None:
        if self._sink is not None:
            self._sink.emit(rank_events.Pause, mode=mode)

    def _continued(self) -> None:
        if self._sink is not None:
            self._sink.emit(rank_events.Continue, load_id=self._provenance.serving)

    def _verify(self, scheduler: Any) -> None:
        self.verdicts += exercise(pause_steps(scheduler, self._pauses))
        if self.settings.idle is IdleCheck.RETRACT:
            self.verdicts += exercise(idle_steps(scheduler))
        if self.settings.provenance is not ProvenanceMode.OFF:
            self.problems += unsupported(scheduler)
            if self.problems:
                return
            hooks = self._provenance
            for hooks.mode, hooks.on_stale in _modes(self.settings):
                self._verify_provenance(scheduler)
            # What the exercise counted and stamped is nobody's.
            hooks.attach(scheduler)
        self.problems += [
            f"{verdict.target}: {verdict.problem} (expected: {verdict.expected})"
            for verdict in self.verdicts
            if not verdict.ok
        ]

    def _verify_provenance(self, scheduler: Any) -> None:
        self._provenance.attach(scheduler)
        provenance = ProvenanceExercise(scheduler, self._provenance)
        try:
            self.verdicts += exercise(provenance.steps())
        finally:
            try:
                provenance.give_back()
            except Exception as error:
                self.problems.append(f"the pools could not be given back after the exercise: {error}")

    def _internal_state(self, original: Any, scheduler: Any, request: Any) -> Any:
        answer = original(scheduler, request)
        answer.internal_state[STATE_KEY] = self.describe()
        return answer

    def describe(self) -> dict[str, Any]:
        """Verdict and counters, of built-in types only."""
        report: dict[str, Any] = {
            "able_to_share": not self.problems,
            "problems": list(self.problems),
            "verdicts": [
                {"target": verdict.target, "expected": verdict.expected, "problem": verdict.problem}
                for verdict in self.verdicts
            ],
            "idle": self.settings.idle.value,
        }
        if self.settings.provenance is not ProvenanceMode.OFF:
            report["provenance"] = self._provenance.describe()
        if self._sink is not None:
            report["events"] = {"dropped": self._sink.dropped, "failed": self._sink.failed}
        return report


def _modes(settings: Settings) -> list[tuple[ProvenanceMode, OnStale]]:
    """What is exercised at start, the configuration in force last."""
    asked = (settings.provenance, settings.on_stale)
    if not settings.verify_all:
        return [asked]
    others = [
        (ProvenanceMode.REPORT, OnStale.RECOMPUTE),
        (ProvenanceMode.ENFORCE, OnStale.RECOMPUTE),
        (ProvenanceMode.ENFORCE, OnStale.REFUSE),
    ]
    return [*(mode for mode in others if mode != asked), asked]


def unsupported(scheduler: Any) -> list[str]:
    """Features of this engine under which KV moves in ways that the stamps do not follow; one line each."""
    from sglang.srt.runtime_context import get_parallel, get_serving

    found = []
    try:
        features = {
            "speculative decoding": not scheduler.spec_algorithm.is_none(),
            "prefill/decode disaggregation": scheduler.disaggregation_mode.value != "null",
            "pipeline parallelism": get_parallel().pp_size > 1,
            "data-parallel attention": scheduler.attn_dp_enabled,
            "decode context parallelism": get_parallel().dcp_enabled,
            "hierarchical cache": scheduler.enable_hierarchical_cache,
            "LMCache": scheduler.enable_lmcache,
            "an external cache linker": scheduler.enable_unified_cache_external_linker,
            "HiSparse": scheduler.enable_hisparse,
            "unified memory": scheduler.enable_unified_memory,
            "a diffusion language model": scheduler.dllm_config is not None,
            "sliding-window layers": scheduler.is_hybrid_swa,
            "state-space layers": scheduler.is_hybrid_ssm,
            "prefill/decode multiplexing": scheduler.enable_pdmux,
            "streaming sessions": get_serving().enable_streaming_session,
        }
        kinds = {
            "tree": (type(scheduler.tree_cache).__name__, ("UnifiedRadixCache",)),
            "allocator": (
                type(scheduler.token_to_kv_pool_allocator).__name__,
                ("TokenToKVPoolAllocator", "PagedTokenToKVPoolAllocator"),
            ),
        }
    except AttributeError as error:
        return [f"cannot tell which features are on: {error}"]
    found += [f"{feature} is on: KV provenance does not follow it" for feature, on in features.items() if on]
    found += [
        f"{kind} {name} is not one that KV provenance follows"
        for kind, (name, known) in kinds.items()
        if name not in known
    ]
    return found


def switch_sharing_off(scheduler: Any) -> None:
    """Make the tree of an engine that has not served yet keep and match nothing.

    Raises:
        RuntimeError: this tree cannot be switched off; an engine must not start with it.
    """
    tree = scheduler.tree_cache
    if not tree.supports_prefix_sharing():
        return
    if not scheduler.flush_cache():
        raise RuntimeError("reef-ref: the tree cannot be emptied; start this engine with --disable-radix-cache")
    tree.disable = True
    if tree.supports_prefix_sharing():
        raise RuntimeError(
            f"reef-ref: {type(tree).__name__} cannot be switched off; start this engine with --disable-radix-cache"
        )


def _exists(target: str) -> bool:
    try:
        pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError):
        return False
    return True


def _source(scheduler: Any) -> dict[str, int]:
    import os

    from sglang.srt.runtime_context import get_parallel

    return {"pid": os.getpid(), "rank": get_parallel().tp_rank}
