"""What `--break` leaves out. Nothing else in this example knows how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reef_ref.engines.wire import Answer, Route, Wire

__all__ = ["Unflushed"]


class Unflushed:
    """A wire over which a flush is answered with success and never sent; everything else goes through."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def address(self) -> str:
        """Where the engine is."""
        return self._wire.address

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        """Make one call, unless it is a flush."""
        if route is Route.FLUSH:
            return Answer(200, "Cache flushed.")
        return await self._wire.call(route, body, bound_s)

    async def close(self) -> None:
        """Close the real wire."""
        await self._wire.close()
