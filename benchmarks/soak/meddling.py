"""Calls to an engine that do not become what their caller asked for: refused, lost, never answered, or not made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reef_ref.engines.errors import EngineLost, EngineTimeout
from reef_ref.engines.wire import Answer, Route, Wire

__all__ = ["Life", "MeddledWire", "Meddling", "Rule", "fail", "hang", "refuse", "swallow"]

Rule = Callable[[Callable[[], Awaitable[Answer]], float], Awaitable[Answer]]
"""What becomes of a call: given the call itself, and the seconds that its caller waits."""


@dataclass
class Meddling:
    """The rules for one engine, by route; none: the call is made."""

    rules: dict[Route, Rule] = field(default_factory=dict)


@dataclass
class Life:
    """A life of the coordinator. What a dead one still does reaches nobody."""

    alive: bool = True


class MeddledWire:
    """A wire to an engine, for one life of the coordinator."""

    def __init__(self, wire: Wire, meddling: Meddling, life: Life) -> None:
        self._wire = wire
        self._meddling = meddling
        self._life = life

    @property
    def address(self) -> str:
        return self._wire.address

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        self._need_life()
        rule = self._meddling.rules.get(route)

        async def really() -> Answer:
            return await self._wire.call(route, body, bound_s)

        answer = await (really() if rule is None else rule(really, bound_s))
        self._need_life()
        return answer

    async def close(self) -> None:
        if self._life.alive:
            await self._wire.close()

    def _need_life(self) -> None:
        if not self._life.alive:
            raise EngineLost("the coordinator is dead")


async def swallow(call: Callable[[], Awaitable[Answer]], bound_s: float) -> Answer:
    """Say that it was done, and do nothing."""
    del call, bound_s
    return Answer(200, {"success": True, "message": "done"})


async def fail(call: Callable[[], Awaitable[Answer]], bound_s: float) -> Answer:
    """The call is made, and its answer lost."""
    del bound_s
    await call()
    message = "the connection broke before the answer"
    raise EngineLost(message)


async def hang(call: Callable[[], Awaitable[Answer]], bound_s: float) -> Answer:
    """The call is not made, and nobody says so."""
    del call
    await asyncio.sleep(bound_s)
    message = f"no answer within {bound_s:g} s"
    raise EngineTimeout(message)


def refuse(times: int) -> Rule:
    """The first so many calls are refused."""
    left = times

    async def refused(call: Callable[[], Awaitable[Answer]], bound_s: float) -> Answer:
        nonlocal left
        del bound_s
        if left > 0:
            left -= 1
            return Answer(400, {"message": "Cache not flushed because there are pending requests"})
        return await call()

    return refused
