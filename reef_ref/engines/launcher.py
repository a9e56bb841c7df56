"""Starts SGLang servers for a coordinator that owns its engines: shutting such an engine down ends its server.

```python
async with ServerLauncher(settings_of_slot) as launcher:
    slots = Slots([await launcher.start(0), await launcher.start(1)])
```
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

from reef_ref.engines.process import Server, ServerSettings, serve
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Answer, Route, Wire

__all__ = ["ServerLauncher"]


class ServerLauncher:
    """A `reef_ref.control.Launcher` of servers on this machine; leaving it ends every one of them.

    Args:
        settings: what to start for a slot, by its number.
    """

    def __init__(self, settings: Callable[[int], ServerSettings]) -> None:
        self._settings = settings
        self._servers: dict[int, Server] = {}
        self._all = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._all.aclose()

    def server(self, slot: int) -> Server:
        """The server that was started last for a slot."""
        return self._servers[slot]

    async def start(self, slot: int) -> SGLangEngine:
        """Start a server and attach to it. Raises what `serve` raises; a start that fails leaves no process."""
        settings = self._settings(slot)
        life = contextlib.AsyncExitStack()
        server = await life.enter_async_context(serve(settings))
        self._all.push_async_callback(life.aclose)
        self._servers[slot] = server
        return SGLangEngine(
            _OwnedWire(server.engine.wire, life.aclose), limits=settings.limits, layout=server.engine.layout
        )


class _OwnedWire:
    """A wire to a server that ends with it."""

    def __init__(self, wire: Wire, end: Callable[[], Awaitable[None]]) -> None:
        self._wire = wire
        self._end = end

    @property
    def address(self) -> str:
        return self._wire.address

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        return await self._wire.call(route, body, bound_s)

    async def close(self) -> None:
        await self._end()
