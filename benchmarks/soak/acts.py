"""Violations that are injected into a deployment on real engines: what an engine or a coordinator must never do.

Each act does the wrong thing at real engines, and knows which property it violates, and which others may fall with it.
What is wrong afterwards, but for what the monitor did about it, is put right by the deployment's own means: the next
publication.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.soak.alterations import ALTERATIONS
from benchmarks.soak.clients import PROBE, PROMPTS
from benchmarks.soak.meddling import Rule, swallow
from benchmarks.soak.stage import CHECKPOINTS, Stage
from reef_ref.engines.wire import Route
from reef_ref.monitor.notice import CONFORMS

__all__ = ["ACTS", "POLICY", "Act", "Field"]

CALL_S = 60.0
VICTIM = 1
"""The slot of the engine that things are done to."""
POLICY = {
    "sharing_only_with_retract": "fence",
    "bytes_arrive_in_a_pause": "fence",
    "adapters_are_apart": "fence",
    "only_whole_loads_compute": "retire",
}
"""What the monitor is told to do, other than its defaults (fence for a stale hit, report for the rest)."""
STALE = frozenset({"flush_point", "no_stale_hit"})
"""What may fall wherever bytes meet a tree that was not emptied."""


@dataclass
class Field:
    """What acts are done to: the deployment, and the engines' own HTTP interface, past every guard of ours."""

    stage: Stage
    addresses: Sequence[str]
    http: httpx.AsyncClient
    injected: int = 0
    afterwards: list[Callable[[], Awaitable[object]]] = field(default_factory=list)
    """What is left to be done when the monitor has reacted, before the next publication."""

    @classmethod
    @asynccontextmanager
    async def over(cls, stage: Stage, addresses: Sequence[str]) -> AsyncIterator[Field]:
        """Open connections."""
        async with httpx.AsyncClient(timeout=CALL_S, trust_env=False) as client:
            yield cls(stage, addresses, client)

    async def call(self, path: str, body: dict[str, Any] | None = None, slot: int = VICTIM) -> Any:
        """One call to an engine. Raises `httpx.HTTPError`."""
        answer = await self.http.post(f"{self.addresses[slot]}/{path}", json=body or {})
        answer.raise_for_status()
        return answer.json() if "json" in answer.headers.get("content-type", "") else answer.text

    async def pause(self, mode: str = "retract") -> None:
        await self.call("pause_generation", {"mode": mode})

    async def resume(self) -> None:
        await self.call("continue_generation")

    async def flush(self) -> None:
        """SGLang refuses for a moment after an answer, and while something runs."""
        for _ in range(200):
            with contextlib.suppress(httpx.HTTPStatusError):
                await self.call("flush_cache")
                return
            await asyncio.sleep(0.05)
        message = "the engine was never idle"
        raise RuntimeError(message)

    async def update(self) -> int:
        """Give the engine the other checkpoint's bytes, under an id that nobody else uses; which checkpoint it was."""
        self.injected += 1
        load_id = f"injected:{self.injected}"
        other = next(number for number in CHECKPOINTS if number != self.stage.checkpoint)
        self.stage.content[load_id] = other
        body = {"model_path": str(self.stage.models.checkpoint(other)), "weight_version": load_id}
        await self.call("update_weights_from_disk", {**body, "flush_cache": False, "abort_all_requests": False})
        return other

    async def ask(self, number: int = PROBE) -> None:
        """One short request, so that its prompt is in the tree, or reused from it."""
        sampling = {"temperature": 0.0, "max_new_tokens": 2, "ignore_eos": True}
        await self.call("generate", {"input_ids": list(PROMPTS[number]), "sampling_params": sampling})


@dataclass(frozen=True)
class Act:
    """Something wrong.

    Attributes:
        name: its name.
        what: what is done, in one sentence.
        by: `engine`: past the coordinator. `coordinator`: by it, or because it was lied to.
        shows: the property that must be found violated.
        follows: others that may be.
        do: does it.
        alone: the engine that it is done to is right again, but for its load, once the monitor has reacted.
    """

    name: str
    what: str
    by: str
    shows: str
    follows: frozenset[str]
    do: Callable[[Field], Awaitable[None]]
    alone: bool = False


async def _published_without_a_flush(field: Field) -> None:
    await field.ask()
    await field.pause()
    await field.update()
    await field.resume()


async def _stale_hit(field: Field) -> None:
    await _published_without_a_flush(field)
    await field.ask()


async def _in_place_with_sharing(field: Field) -> None:
    await field.ask()
    await field.pause("in_place")
    await field.update()
    await field.resume()


async def _outside_a_pause(field: Field) -> None:
    await field.update()


async def _label_without_bytes(field: Field) -> None:
    field.injected += 1
    name = f"injected:{field.injected}"
    field.stage.content[name] = field.stage.checkpoint
    await field.call("update_weight_version", {"new_version": name, "abort_all_requests": False})


async def _half_an_update(field: Field) -> None:
    await field.pause()
    await field.flush()
    await field.call("begin_weight_update", {"selector": "all"})
    await field.resume()
    # Not before the monitor has reacted: SGLang lets nobody end a session while requests run that a pause has stopped.
    field.afterwards.append(lambda: field.call("end_weight_update"))


def _lied_to(*routes: Route) -> Callable[[Field], Awaitable[None]]:
    """A publication by the coordinator, to whom one engine says that it has done what it has not."""

    async def act(field: Field) -> None:
        await field.ask()
        rules: dict[Route, Rule] = dict.fromkeys(routes, swallow)
        field.stage.meddling[VICTIM].rules.update(rules)
        try:
            await field.stage.publish()
        finally:
            field.stage.meddling[VICTIM].rules.clear()
        await field.ask()

    return act


def _altered(name: str) -> Callable[[Field], Awaitable[None]]:
    """A publication by a coordinator that does one thing wrong."""

    async def act(field: Field) -> None:
        coordinator = field.stage.coordinator
        assert coordinator is not None
        with ALTERATIONS[name](coordinator):
            await field.stage.publish()

    return act


def _sentence(doc: str | None) -> str:
    assert doc is not None
    return doc.strip().splitlines()[0]


_STALE_TOO = {"no_flush", "flush_of_one", "continued_before_the_bytes"}

ACTS: tuple[Act, ...] = (
    Act(
        "published without a flush", "Pause, bytes, continue: the tree keeps what the old weights made.",
        "engine", "flush_point", STALE, _published_without_a_flush,
    ),
    Act(
        "stale hit", "The same, and a request reuses the old prefix.",
        "engine", "no_stale_hit", STALE, _stale_hit, alone=True,
    ),
    Act(
        "in place with sharing", "Bytes arrive in an in-place pause while prefixes are shared.",
        "engine", "sharing_only_with_retract", STALE, _in_place_with_sharing, alone=True,
    ),
    Act(
        "outside a pause", "Bytes arrive while the engine generates.",
        "engine", "bytes_arrive_in_a_pause", STALE, _outside_a_pause, alone=True,
    ),
    Act(
        "label without bytes", "The weights are called by another load id.",
        "engine", "label_follows_success", frozenset(), _label_without_bytes,
    ),
    Act(
        "half an update", "An engine continues in the middle of an update session.",
        "engine", "only_whole_loads_compute", STALE | {"bytes_arrive_in_a_pause"}, _half_an_update,
    ),
    Act(
        "a flush that was none", "One engine says that it has flushed, and has not.",
        "coordinator", "flush_point", STALE, _lied_to(Route.FLUSH),
    ),
    Act(
        "a pause that was none", "One engine says that it has paused and flushed, and generates on.",
        "coordinator", "bytes_arrive_in_a_pause", STALE, _lied_to(Route.PAUSE, Route.FLUSH),
    ),
    *(
        Act(
            name.replace("_", " "), _sentence(alteration.__doc__),
            "coordinator", CONFORMS, STALE if name in _STALE_TOO else frozenset(), _altered(name),
        )
        for name, alteration in ALTERATIONS.items()
    ),
)  # fmt: skip
"""Every kind that needs no engine of its own; see `benchmarks.soak.special` for those that do."""
