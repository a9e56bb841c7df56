"""How calls reach an SGLang engine: a route and a JSON body in, a status and a JSON body out.

Two carriers exist, HTTP and the tokenizer manager of an engine in this process. Keeping them this thin means that the
order of calls, the retries and the meaning of the answers live once, in `reef_ref.engines.sglang_engine`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Answer", "Route", "Wire"]


class Route(StrEnum):
    """The SGLang calls in use; the values are the paths of its HTTP server (0.5.23)."""

    GENERATE = "generate"
    PAUSE = "pause_generation"
    FLUSH = "flush_cache"
    RELEASE = "release_memory_occupation"
    RESUME = "resume_memory_occupation"
    UPDATE_FROM_DISK = "update_weights_from_disk"
    END_UPDATE = "end_weight_update"
    """Ends the session that updates from tensors and over a process group need; refused where none is open."""
    CONTINUE = "continue_generation"
    LOAD_ADAPTER = "load_lora_adapter"
    UNLOAD_ADAPTER = "unload_lora_adapter"
    MODELS = "v1/models"
    """The base model, and the adapters: those have a parent. Answered by the front end."""
    MODEL_INFO = "model_info"
    """Answered by the front end alone."""
    SERVER_INFO = "server_info"
    """Answered with the scheduler's own state, paused or not."""
    CHECK_WEIGHTS = "weights_checker"
    """Answered with a digest of the weights' bytes, over all ranks."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP status and the decoded body: JSON where it is JSON, text otherwise."""

    status: int
    body: Any

    @property
    def ok(self) -> bool:
        """Whether the engine said yes."""
        return self.status == 200

    @property
    def message(self) -> str:
        """The engine's own words, in one line."""
        body = self.body
        if isinstance(body, dict):
            error = body.get("error")
            for holder in (error if isinstance(error, dict) else {}, body):
                for key in ("message", "error_message", "error"):
                    if isinstance(holder.get(key), str) and holder[key]:
                        return " ".join(holder[key].split())
        text = body if isinstance(body, str) else json.dumps(body)
        return " ".join(text.split())


class Wire(Protocol):
    """A carrier of calls to one engine."""

    @property
    def address(self) -> str:
        """Where the engine is, for messages."""

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        """Make one call, bounded by `bound_s` seconds in all.

        Raises `EngineUnreachable` (nothing listens), `EngineLost` (broke on the way) or `EngineTimeout`.
        """

    async def close(self) -> None:
        """Let go of the carrier, and end the engine if it lives by it."""
