"""An SGLang server as a child process: started on loopback, waited for with a bound, ended with all its children.

```python
async with serve(ServerSettings(model_path=path, flags=("--device", "cpu"))) as server:
    engine = server.engine
```
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from reef_ref.engines.checkpoint import read_layout
from reef_ref.engines.errors import EngineError, EngineLost, EngineStartFailed, EngineTimeout, EngineUnreachable
from reef_ref.engines.http import connect
from reef_ref.engines.interface import Limits
from reef_ref.engines.processes import end_session, session_members
from reef_ref.engines.sglang_engine import SGLangEngine

__all__ = ["Server", "ServerSettings", "free_port", "serve"]

LOOPBACK = "127.0.0.1"
POLL_S = 0.25
LOG_LINES = 15
PORT_TRIES = 3
PORT_TAKEN = ("address already in use", "Address already in use", "is already in use")
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What to start: a checkpoint folder, further flags of `sglang.launch_server`, further environment variables.

    `start_s` bounds the time until the server answers, in seconds. The host is loopback; `port` is where whoever knows
    the engine's address looks for it, none: any that is free.
    """

    model_path: Path
    port: int | None = None
    flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    start_s: float = 240.0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: its engine, the id of its first process (also its session's), its port and its log file."""

    engine: SGLangEngine
    pid: int
    port: int
    log: Path
    started_in_s: float

    def processes(self) -> list[int]:
        """The ids of the live processes of this server."""
        return sorted(process.pid for process in session_members(self.pid))

    def log_tail(self, lines: int = LOG_LINES) -> str:
        """The last lines of the log."""
        return _tail(self.log, lines)


def free_port() -> int:
    """A TCP port on loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def serve(settings: ServerSettings) -> AsyncIterator[Server]:
    """Start a server, attach to it, and end it and every process of its session on the way out, whatever happened.

    Raises `CheckpointRejected` before anything is started, and `EngineStartFailed` with the last lines of the log if it
    exits or does not answer within `start_s` seconds; a port taken by somebody else in between is tried again, at most
    three times in all.
    """
    await asyncio.to_thread(read_layout, settings.model_path)
    home = Path(tempfile.mkdtemp(prefix="reef-ref-engine-"))
    try:
        for attempt in range(1, PORT_TRIES + 1):
            log = home / f"server-{attempt}.log"
            child, port = _launch(settings, home, log)
            try:
                server = await _wait_until_up(settings, child, port, log)
                if server is None:
                    if attempt == PORT_TRIES:
                        message = f"no free port in {PORT_TRIES} tries: {_tail(log)}"
                        raise EngineStartFailed(message)
                    continue
                try:
                    yield server
                finally:
                    await server.engine.shut_down()
                return
            finally:
                _end(child)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _launch(settings: ServerSettings, home: Path, log: Path) -> tuple[subprocess.Popen[bytes], int]:
    port, rendezvous = settings.port or free_port(), free_port()
    command = [
        sys.executable, "-m", "sglang.launch_server",
        "--model-path", str(settings.model_path),
        "--host", LOOPBACK, "--port", str(port), "--nccl-port", str(rendezvous),
        *settings.flags,
    ]  # fmt: skip
    environment = {
        **os.environ,
        "TMPDIR": str(home),  # SGLang leaves socket files behind when it is killed.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        **settings.environment,
    }
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  Called from the one thread that forks here.
        )
    return child, port


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def _wait_until_up(
    settings: ServerSettings, child: subprocess.Popen[bytes], port: int, log: Path
) -> Server | None:
    """The server once it answers; None if it ended because its port was taken."""
    address = f"http://{LOOPBACK}:{port}"
    started = time.monotonic()
    problem = "nothing listens yet"
    while (elapsed := time.monotonic() - started) < settings.start_s:
        if (code := child.poll()) is not None:
            tail = _tail(log)
            if any(words in tail for words in PORT_TAKEN):
                return None
            message = f"the server at {address} ended with code {code} while starting; its last words:\n{tail}"
            raise EngineStartFailed(message)
        if _listens(child.pid, port):
            try:
                engine = await connect(address, limits=settings.limits)
            except (EngineUnreachable, EngineTimeout, EngineLost) as error:
                problem = str(error)
            except EngineError as error:
                message = f"{error}; the last words of its log:\n{_tail(log)}"
                raise EngineStartFailed(message) from error
            else:
                return Server(engine, child.pid, port, log, time.monotonic() - started)
        await asyncio.sleep(POLL_S)
    message = f"the server at {address} did not answer within {elapsed:.0f} s ({problem}); last words:\n{_tail(log)}"
    raise EngineStartFailed(message)


def _listens(session: int, port: int) -> bool:
    """Whether a process of this session, and not a stranger, listens on the port."""
    for process in session_members(session):
        try:
            connections = process.net_connections(kind="tcp4")
        except psutil.Error:
            continue
        if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
            return True
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    left = end_session(child.pid)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=10.0)
    if left:
        message = f"processes {left} of the server did not end after SIGKILL"
        raise EngineError(message)


def _tail(log: Path, lines: int = LOG_LINES) -> str:
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
