"""What the monitor knows, over HTTP: `/metrics` for Prometheus, `/status` as JSON, `/healthz` for whoever restarts it.

On loopback anybody of this machine may ask, but nobody through a browser that was led astray (by the name that it asks
for). Elsewhere, and wherever a token is set, `/metrics` and `/status` want ``Authorization: Bearer TOKEN``.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

__all__ = ["TOKEN", "Address", "BadAddress", "BadToken", "Server", "application", "read_token"]

TOKEN = "REEF_REF_MONITOR_TOKEN"
"""The environment variable that holds a token."""
SHORTEST = 16
"""Characters that a token has at least."""
LONGEST = 4096
CONNECTIONS = 64
KEEP_ALIVE_S = 30
"""Longer than most scrape intervals are, so that a connection serves more than one."""
SHUT_DOWN_S = 2


class BadAddress(ValueError):  # noqa: N818  The name says what was found.
    """Not `[HOST:]PORT`."""


class BadToken(ValueError):  # noqa: N818  The name says what was found.
    """A token is missing, or cannot be used; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `[HOST:]PORT`; the host is 127.0.0.1 unless it is named, an IPv6 one stands in brackets."""
        host, _, port = text.rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16) or text == f":{port}":
            raise BadAddress(f"{text!r}: write [HOST:]PORT, with a port from 0 to 65535")
        return cls(host or "127.0.0.1", int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return _is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_token(file: Path | None, environment: dict[str, str] | None = None) -> str | None:
    """The token of a file that is its owner's alone (0600), or of the environment; none if neither is there.

    Raises:
        BadToken: the file may be read by others, or what it holds is no token.
        OSError: it cannot be read.
    """
    if file is None:
        found = (os.environ if environment is None else environment).get(TOKEN)
        return None if found is None else _checked(found, TOKEN)
    with file.open("rb") as stream:
        mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
        if mode & 0o077:
            raise BadToken(f"{file}: mode {mode:04o} lets others read it; make it 0600")
        return _checked(stream.read(LONGEST + 1).decode("utf-8", "replace").strip(), str(file))


def _checked(token: str, where: str) -> str:
    if not (SHORTEST <= len(token) <= LONGEST and token.isascii() and token.isprintable() and " " not in token):
        raise BadToken(f"{where}: a token has {SHORTEST} or more letters, digits and signs, in one line without spaces")
    return token


def application(registry: CollectorRegistry, status: Callable[[], dict[str, Any]], token: str | None) -> Starlette:
    """The three pages. Without a token, only those are answered who ask for a loopback name."""

    def refusal(request: Request) -> Response | None:
        if token is not None:
            given = request.headers.get("authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return None
            headers = {"WWW-Authenticate": "Bearer"}
            return PlainTextResponse("a bearer token is needed\n", 401, headers)
        if _is_loopback(request.url.hostname or ""):
            return None
        return PlainTextResponse("ask for 127.0.0.1 or localhost\n", 421)

    async def metrics(request: Request) -> Response:
        return refusal(request) or Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def state(request: Request) -> Response:
        return refusal(request) or JSONResponse(status())

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Starlette(routes=[Route("/metrics", metrics), Route("/status", state), Route("/healthz", healthz)])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command."""
        yield


class Server:
    """Listens from when it is made; serves while `run` does.

    Raises:
        BadToken: others than this machine can reach the address, and there is no token.
        OSError: the address cannot be listened at.
    """

    def __init__(
        self, address: Address, registry: CollectorRegistry, status: Callable[[], dict[str, Any]], token: str | None
    ) -> None:
        if token is None and not address.loopback:
            message = (
                f"{address} can be reached from elsewhere, so a token is needed: give --token-file, or set {TOKEN}; "
                f"or listen on 127.0.0.1"
            )
            raise BadToken(message)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.create_server((address.host, address.port), family=family)
        self.address = Address(address.host, self._socket.getsockname()[1])
        self._server = _Server(
            uvicorn.Config(
                application(registry, status, token),
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUT_DOWN_S,
            )
        )

    async def run(self) -> None:
        """Serve until `stop`."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Let `run` come to its end, soon."""
        self._server.should_exit = True

    def close(self) -> None:
        """Listen no more, where `run` was never called."""
        self._socket.close()
