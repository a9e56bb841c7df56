"""Which change of the weights is a load: from SGLang's update calls to epochs and load ids.

Every change of bytes opens an epoch. Only a complete, successful update gives its epoch a load id (SGLang's
`weight_version`): bytes of a failed update, of a part of a session or of a region that came back empty belong to no
load, and what they compute is told apart from both neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNTOUCHED = ("Failed to get weights iterator", "Failed to get model loader", "update_weights_from_")
"""How SGLang's messages begin where an update was refused before a byte was written: two of the model runner's
`weight_updater.py` (0.5.23), and the one about a call outside its session."""

WEIGHTS = "weights"
KV_CACHE = "kv_cache"
REGIONS = (KV_CACHE, WEIGHTS, "cuda_graph")


@dataclass(frozen=True)
class Load:
    """What an epoch's weights are."""

    load_id: str | None
    """The load id, or `None` for bytes that are no complete load."""
    reason: str
    """How they came to be."""


class LoadHooks:
    """Follows the weight updates of the one scheduler in this process.

    Args:
        opened: called with the new load whenever the bytes changed; opens the epoch.
        released: called when the memory of all KV slots was given up.
        load_id: the load id that the scheduler reports now.
        keeps_weights: whether released weights come back with their content.
    """

    def __init__(
        self,
        *,
        opened: Callable[[Load], None],
        relabelled: Callable[[str], None],
        released: Callable[[], None],
        load_id: Callable[[], str],
        keeps_weights: Callable[[], bool],
    ) -> None:
        self._opened = opened
        self._relabelled = relabelled
        self._released = released
        self._load_id = load_id
        self.keeps_weights = keeps_weights
        self._updating: str | None = None
        self._loaded = False
        self._session_complete = False

    def hooks(self) -> dict[str, Any]:
        """Method of `SchedulerWeightUpdaterManager` to the hook around it."""
        return {
            "update_weights_from_disk": self._whole("disk"),
            "update_weights_from_ipc": self._whole("ipc"),
            "update_weights_from_tensor": self._part("tensor"),
            "update_weights_from_distributed": self._part("distributed"),
            "begin_weight_update": self.begin,
            "end_weight_update": self.end,
            "release_memory_occupation": self.release,
            "resume_memory_occupation": self.resume,
        }

    def record_weight_version_change(self, original: Any, scheduler: Any, new_version: str | None) -> Any:
        """SGLang calls this in the middle of an update, exactly when the bytes are in place and before any flush.

        Outside an update it is a change of the label alone.
        """
        answer = original(scheduler, new_version=new_version)
        if self._updating is None:
            if new_version is not None:
                self._relabelled(new_version)
            return answer
        self._loaded = True
        if self._updating in ("disk", "ipc"):
            self._opened(Load(self._load_id(), f"update from {self._updating}"))
        else:
            self._opened(Load(None, f"part of an update from {self._updating}"))
        return answer

    def _whole(self, kind: str) -> Any:
        def update(original: Any, manager: Any, request: Any) -> Any:
            answer = self._run(kind, original, manager, request)
            if not self._loaded and not answer.message.startswith(UNTOUCHED):
                self._opened(Load(None, f"failed update from {kind}: {answer.message}"))
            return answer

        return update

    def _part(self, kind: str) -> Any:
        def update(original: Any, manager: Any, request: Any) -> Any:
            answer = self._run(kind, original, manager, request)
            if not self._loaded and not answer.message.startswith(UNTOUCHED):
                self._session_complete = False
                self._opened(Load(None, f"failed part of an update from {kind}: {answer.message}"))
            return answer

        return update

    def _run(self, kind: str, original: Any, manager: Any, request: Any) -> Any:
        self._updating, self._loaded = kind, False
        try:
            return original(manager, request)
        finally:
            self._updating = None

    def begin(self, original: Any, manager: Any, request: Any) -> Any:
        """A session opens: packed weights are undone, so the bytes are those of no load until it ends."""
        answer = original(manager, request)
        if answer.success:
            self._session_complete = True
            self._opened(Load(None, "update session open"))
        return answer

    def end(self, original: Any, manager: Any, request: Any) -> Any:
        """A session ends: if every part of it succeeded, this is the load."""
        answer = original(manager, request)
        if answer.success:
            if self._session_complete:
                self._opened(Load(self._load_id(), "update session complete"))
            else:
                self._opened(Load(None, "update session ended with a failed part"))
            self._session_complete = False
        return answer

    def release(self, original: Any, manager: Any, request: Any) -> Any:
        """Released KV is gone, whether or not SGLang's flush, whose result it ignores, went through."""
        answer = original(manager, request)
        if KV_CACHE in (request.tags or REGIONS):
            self._released()
        return answer

    def resume(self, original: Any, manager: Any, request: Any) -> Any:
        """Weights come back without content unless a copy was kept."""
        answer = original(manager, request)
        if WEIGHTS in (request.tags or REGIONS) and not self.keeps_weights():
            self._opened(Load(None, "weights came back without content"))
        return answer
