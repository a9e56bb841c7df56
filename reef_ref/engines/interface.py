"""What a coordinator may ask of one engine, and what it may conclude from the answers.

The interface is small on purpose: it is the vocabulary of a publication (pause, flush, release, resume, update,
continue), plus requests, adapters, the reported load id, health and the end. Results are frozen and never merge "the
weights changed" and "the cache was cleared" into one boolean: an engine can have done either without the other
(SGLang 0.5.23 answers 400 to an update whose flush was refused, *after* the weights have changed).

Every method is bounded in time by the engine's `Limits` and raises a subclass of
`reef_ref.engines.errors.EngineError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "ALL_REGIONS",
    "AdapterChange",
    "CacheState",
    "Continued",
    "Engine",
    "Flush",
    "Generation",
    "Health",
    "Limits",
    "LoadReport",
    "MemoryChange",
    "Pause",
    "PauseMode",
    "PluginReport",
    "Region",
    "Request",
    "Span",
    "Update",
    "WeightState",
]


class PauseMode(StrEnum):
    """How an engine stops generating.

    SGLang's third mode, abort, is left out: it never reaches the scheduler, so nothing is paused by it.
    """

    RETRACT = "retract"
    """Running requests give their KV back and wait in the queue; the prefix tree keeps what it holds."""
    IN_PLACE = "in_place"
    """Scheduling freezes; requests, their KV and the prefix tree stay as they are."""


class Region(StrEnum):
    """A region of device memory that can be given back and taken again; the values are SGLang's tags."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"
    CUDA_GRAPH = "cuda_graph"


ALL_REGIONS = frozenset(Region)


class WeightState(StrEnum):
    """What is known of an engine's weights after an update."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"
    UNKNOWN = "unknown"
    """The update failed on the way: the weights may be old, new or a mixture, and must be loaded completely again."""


class CacheState(StrEnum):
    """What is known of an engine's prefix cache after a call."""

    CLEARED = "cleared"
    KEPT = "kept"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds of every wait, in seconds, and the bounds of the retries."""

    connect_s: float = 2.0
    control_s: float = 30.0
    """Pause, continue, report, adapters."""
    health_s: float = 5.0
    generate_s: float = 600.0
    update_s: float = 300.0
    checksum_s: float = 120.0
    """Every byte of the weights is read."""
    memory_s: float = 120.0
    flush_try_s: float = 5.0
    """One try of a flush."""
    flush_total_s: float = 60.0
    """All tries of a flush together."""
    flush_first_wait_s: float = 0.05
    """The wait after the first refusal; it doubles up to `flush_longest_wait_s`."""
    flush_longest_wait_s: float = 1.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                message = f"Limits.{name} must be positive, got {getattr(self, name)!r}"
                raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation request: token ids in, at most `max_new_tokens` greedy tokens out.

    Greedy (temperature 0) unless `sampling` says otherwise. `json_schema` constrains the output, `adapter` names a
    loaded LoRA adapter, `ignore_eos` makes the length exact.
    """

    input_ids: tuple[int, ...]
    max_new_tokens: int
    ignore_eos: bool = True
    adapter: str | None = None
    json_schema: str | None = None
    request_id: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Span:
    """The output tokens `start` (inclusive) to `end` (exclusive) were labelled `load_id` by the engine.

    A label, not a proof: in place with overlap scheduling, SGLang's boundary is off by one.
    """

    load_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A completed request.

    `cached_tokens` is what the engine reports, in tokens of the prompt. It proves nothing for a request with
    `retractions > 0`: SGLang does not count the prefix that such a request reuses when it is prefilled again.
    """

    request_id: str
    output_ids: tuple[int, ...]
    text: str
    finish: str
    prompt_tokens: int
    cached_tokens: int
    retractions: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """The engine does not generate: `mode` says what became of the requests that ran."""

    mode: PauseMode


@dataclass(frozen=True, slots=True)
class Flush:
    """The prefix cache was cleared, after `refusals` refusals and `seconds` in all; `last_refusal` is the last text."""

    cache: CacheState
    refusals: int
    seconds: float
    last_refusal: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Regions that this call released or resumed; `released` is what is released now."""

    changed: frozenset[Region]
    released: frozenset[Region]


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an update did to the weights and, separately, to the cache."""

    weights: WeightState
    cache: CacheState
    load_id: str | None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Continued:
    """The engine may generate again."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The load ids that the engine reports for its weights: labels that it was given, not a proof of content.

    SGLang keeps two, the scheduler's and its front end's (`GET /model_info`). They differ after an update whose flush
    was refused: the scheduler has the new one, the front end still the old one.
    """

    load_id: str
    """The scheduler's label, the one that follows the weights."""
    front_end_load_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginReport:
    """What the plugin inside an engine says of it (`reef_ref.sglang.plugin`), over all its ranks.

    Without provenance nothing but `able_to_share` and `problems` is known: `provenance` is false, and the rest says
    what an engine without any finding would say.
    """

    able_to_share: bool
    """Whether every hook was verified; where one was not, the prefix cache is off."""
    problems: tuple[str, ...]
    provenance: bool
    complete: bool = True
    """Whether the weights are a complete load: not an open session, not what a failed update left."""
    mixed: bool = False
    """Whether KV of earlier weights may still be held by a request or the cache."""
    stale: int = 0
    """Reused prefixes and adopted KV that other weights made, since the engine started."""


@dataclass(frozen=True, slots=True)
class AdapterChange:
    """An adapter was loaded or unloaded; `loaded` names the adapters that the engine holds now."""

    name: str
    loaded: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether the engine's scheduler answers.

    True while paused, unlike SGLang's own `/health`, which generates a token and answers 503 then.
    """

    alive: bool
    detail: str


@runtime_checkable
class Engine(Protocol):
    """One engine that serves one model; the methods are those of a publication, in no particular order."""

    @property
    def address(self) -> str:
        """Where the engine is, for messages."""

    async def generate(self, request: Request) -> Generation:
        """Run one request to its end; waits while the engine is paused.

        Raises `GenerationFailed` if the engine answers with an error instead of tokens.
        """

    async def pause(self, mode: PauseMode) -> Pause:
        """Stop generating. SGLang: `POST /pause_generation`."""

    async def flush(self) -> Flush:
        """Clear the prefix cache; refusals are retried with back-off within the limits, then `FlushRefused`.

        SGLang: `POST /flush_cache` without a time-out of its own, which under a retract pause would always expire.
        """

    async def release(self, regions: frozenset[Region]) -> MemoryChange:
        """Give regions of memory back; those already released are skipped.

        `CallRefused` unless the engine is paused and was flushed since: SGLang's scheduler dies otherwise.
        """

    async def resume(self, regions: frozenset[Region]) -> MemoryChange:
        """Take regions back; those not released are skipped. The content of resumed KV is undefined."""

    async def update(self, checkpoint: Path, load_id: str) -> Update:
        """Load the checkpoint's weights under a new load id, leaving the cache alone.

        The checkpoint is read and checked first: `CheckpointRejected` means that the engine never heard of it.
        `UpdateFailed` carries what is known of weights and cache.
        """

    async def continue_generation(self) -> Continued:
        """Generate again. `CallRefused` while a region is released."""

    async def report(self) -> LoadReport:
        """The load id that the engine reports."""

    async def load_adapter(self, name: str, path: Path) -> AdapterChange:
        """Load a LoRA adapter under a name that the engine does not hold."""

    async def unload_adapter(self, name: str) -> AdapterChange:
        """Unload an adapter. `CallRefused` while paused: SGLang waits for requests that cannot end then."""

    async def adapters(self) -> Mapping[str, Path]:
        """The LoRA adapters that the engine holds: their names, and the folders that they were loaded from."""

    async def health(self) -> Health:
        """Whether the scheduler answers, paused or not; never raises for an engine that does not."""

    async def shut_down(self) -> None:
        """Let go of the engine, and end it if it is ours; calling it twice is allowed."""
