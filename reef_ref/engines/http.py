"""SGLang engines over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from reef_ref.engines.errors import EngineError, EngineLost, EngineTimeout, EngineUnreachable
from reef_ref.engines.interface import Limits
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.engines.wire import Answer, Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reef_ref.engines.checkpoint import CheckpointLayout

__all__ = ["HttpWire", "connect"]

# uvicorn closes an idle connection after five seconds; a connection given up earlier is never one that it just closed.
KEEP_ALIVE_S = 2.0
READS = frozenset({Route.MODELS, Route.MODEL_INFO, Route.SERVER_INFO})


class HttpWire:
    """Calls to the HTTP server of an engine's node rank 0, as many at once as there are requests."""

    def __init__(self, address: str, *, connect_s: float, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._address = address.rstrip("/")
        self._connect_s = connect_s
        self._client = httpx.AsyncClient(
            base_url=self._address,
            transport=transport,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=KEEP_ALIVE_S),
            trust_env=False,  # A proxy from the environment has no business between a coordinator and its engines.
        )

    @property
    def address(self) -> str:
        """The base URL."""
        return self._address

    async def call(self, route: Route, body: Mapping[str, Any] | None, bound_s: float) -> Answer:
        """Make one call; connection refused fails at once."""
        method = "GET" if route in READS else "POST"
        where = f"{route.value} at {self._address}"
        if self._client.is_closed:
            message = f"{where}: this handle was shut down"
            raise EngineUnreachable(message)
        try:
            async with asyncio.timeout(bound_s):
                response = await self._client.request(
                    method,
                    f"/{route.value}",
                    json=body,
                    timeout=httpx.Timeout(bound_s, connect=min(self._connect_s, bound_s)),
                )
        except httpx.ConnectTimeout as error:
            message = f"{where}: no connection within {min(self._connect_s, bound_s):g} s"
            raise EngineUnreachable(message) from error
        except (TimeoutError, httpx.TimeoutException) as error:
            message = f"{where}: no answer within {bound_s:g} s"
            raise EngineTimeout(message) from error
        except httpx.ConnectError as error:
            message = f"{where}: nothing listens there ({error})"
            raise EngineUnreachable(message) from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            message = f"{where}: not an http address ({error})"
            raise EngineUnreachable(message) from error
        except httpx.TransportError as error:
            message = f"{where}: the connection broke before the answer ({error or type(error).__name__})"
            raise EngineLost(message) from error
        return Answer(response.status_code, _decoded(response))

    async def close(self) -> None:
        """Close the connections; the server is not ours to end."""
        await self._client.aclose()


def _decoded(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text


async def connect(
    address: str,
    *,
    limits: Limits | None = None,
    layout: CheckpointLayout | None = None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> SGLangEngine:
    """Attach to the server at `address`, for example `http://127.0.0.1:30000`.

    Only node rank 0 of an engine answers control calls for the whole engine: another rank, more data-parallel or
    pipeline ranks or tokenizer workers than one are `EngineNotSupported`, because their answers would be those of a
    part. `layout` is the layout of the served checkpoint, read from the server's `model_path` if not given.
    """
    limits = limits or Limits()
    wire = HttpWire(address, connect_s=limits.connect_s, transport=transport)
    try:
        return await SGLangEngine.attach(wire, limits=limits, layout=layout)
    except (EngineError, asyncio.CancelledError):
        await wire.close()
        raise
