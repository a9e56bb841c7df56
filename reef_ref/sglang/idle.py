"""The idle check that SGLang applies before a flush or a memory release, relaxed where it would wait for ever.

A request whose grammar is still compiling holds no KV, but SGLang 0.5.23 counts it as not idle, and while an engine
is paused nobody looks at the compilation: every flush is refused for the whole pause. The same holds for waiting
requests on the paths that do not ask to ignore them, `release_memory_occupation` of older releases and the flush with
a time-out among them (`scheduler.py`, `is_fully_idle`; `scheduler_components/flush_wrapper.py`).

While paused in retract mode, and not for a health check, both are ignored. Every test for KV in use stays SGLang's:
running batch, chunked request, last batch, overlap result, micro-batches, transfers, and a waiting request that holds
KV.
"""

from __future__ import annotations

from typing import Any

from reef_ref.sglang.pauses import RETRACT, PauseHooks


class IdleHooks:
    """Relaxes the idle check of the one scheduler in this process, as it is paused."""

    def __init__(self, pauses: PauseHooks) -> None:
        self._pauses = pauses
        self.enabled = True

    def hooks(self) -> dict[str, Any]:
        """Method of `Scheduler` to the hook around it."""
        return {"is_fully_idle": self.is_fully_idle}

    def is_fully_idle(
        self, original: Any, scheduler: Any, for_health_check: bool = False, ignore_waiting: bool = False
    ) -> Any:
        """SGLang's answer; paused in retract mode, its answer with the grammar queue out of sight."""
        if self._pauses.mode != RETRACT or for_health_check or not self.enabled:
            return original(scheduler, for_health_check=for_health_check, ignore_waiting=ignore_waiting)
        grammars = scheduler.grammar_manager
        queued = grammars.grammar_queue
        grammars.grammar_queue = type(queued)()
        try:
            return original(scheduler, for_health_check=False, ignore_waiting=True)
        finally:
            # The very object: requests in it keep their compilation.
            grammars.grammar_queue = queued
