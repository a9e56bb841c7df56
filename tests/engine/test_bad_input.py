"""Engines that die, start badly or are asked for the impossible: one clear error, no process left, ports free.

Each test ends by looking: at the processes of the server's session, by id, and at the port that it listened on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from reef_ref.engines.errors import CheckpointRejected, EngineLost, EngineStartFailed, EngineUnreachable
from reef_ref.engines.http import connect
from reef_ref.engines.interface import Health, PauseMode, Request, WeightState
from reef_ref.engines.process import Server, ServerSettings, serve
from reef_ref.engines.processes import session_members
from reef_ref.engines.wire import Route
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt
from reef_ref.scenarios.publication import publish
from reef_ref.scenarios.traffic import decoding

BOUND_S = 420.0
POLL_S = 0.1
PROBE = Request(input_ids=prompt(1, 200), max_new_tokens=8)
LONG = Request(input_ids=prompt(2, 200), max_new_tokens=3000)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("checkpoints"))


def settings(checkpoints: Models) -> ServerSettings:
    return EngineConfiguration(provenance="off", idle=False).settings(checkpoints, None)


def truncated(checkpoints: Models, folder: Path) -> Path:
    """A copy of a good checkpoint whose weights lack their last bytes."""
    folder.mkdir()
    for file in checkpoints.checkpoint(2).iterdir():
        content = file.read_bytes()
        (folder / file.name).write_bytes(content[:-100] if file.suffix == ".safetensors" else content)
    return folder


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def run_against_server(checkpoints: Models, story: Callable[[Server], Awaitable[None]]) -> None:
    """Run a story on a real server; afterwards no process of it is left and its port is free."""
    seen: list[Server] = []

    async def whole() -> None:
        async with asyncio.timeout(BOUND_S), serve(settings(checkpoints)) as server:
            seen.append(server)
            assert len(server.processes()) >= 3
            await story(server)

    asyncio.run(whole())
    (server,) = seen
    assert session_members(server.pid) == []
    assert port_is_free(server.port)


def test_a_bad_checkpoint_never_reaches_the_engine(checkpoints: Models, tmp_path: Path) -> None:
    """Missing and truncated checkpoints are refused while paused; the engine lives and takes a good one."""

    async def story(server: Server) -> None:
        engine = server.engine
        await engine.pause(PauseMode.RETRACT)
        await engine.flush()
        with pytest.raises(CheckpointRejected, match="is not a folder"):
            await engine.update(tmp_path / "missing", "engine:2")
        with pytest.raises(CheckpointRejected, match="is truncated: expected"):
            await engine.update(truncated(checkpoints, tmp_path / "truncated"), "engine:2")
        assert (await engine.report()).load_id == "engine:1"
        result = await engine.update(checkpoints.checkpoint(2), "engine:2")
        assert result.weights is WeightState.CHANGED
        await engine.continue_generation()
        assert len((await engine.generate(PROBE)).output_ids) == PROBE.max_new_tokens

    run_against_server(checkpoints, story)


def test_an_unchecked_truncated_checkpoint_kills_the_scheduler(checkpoints: Models, tmp_path: Path) -> None:
    """Control: what the check prevents. The loss is reported, later calls fail at once, health is false."""
    bad = truncated(checkpoints, tmp_path / "truncated")

    async def story(server: Server) -> None:
        engine = server.engine
        await engine.pause(PauseMode.RETRACT)
        with pytest.raises((EngineLost, EngineUnreachable)):
            await engine.wire.call(Route.UPDATE_FROM_DISK, {"model_path": str(bad), "flush_cache": False}, 60.0)
        await until_refused(server)
        started = time.monotonic()
        with pytest.raises(EngineUnreachable):
            await engine.flush()
        assert time.monotonic() - started < 1
        health: Health = await engine.health()
        assert not health.alive

    run_against_server(checkpoints, story)


async def until_refused(server: Server) -> None:
    """Wait, bounded, until the dying server's port refuses connections."""
    async with asyncio.timeout(60):
        while not port_is_free(server.port):
            await asyncio.sleep(POLL_S)


def test_an_engine_killed_with_a_request_in_flight(checkpoints: Models) -> None:
    """The request ends with an error that says the connection broke, and the orphans are found and ended."""

    async def story(server: Server) -> None:
        engine = server.engine
        request = asyncio.create_task(engine.generate(LONG))
        await decoding(engine)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(EngineLost, match="the connection broke"):
            await asyncio.wait_for(request, 30)
        # Until its last socket is gone, a call may still find a connection, and break with it.
        await until_refused(server)
        with pytest.raises(EngineUnreachable, match="nothing listens"):
            await publish(engine, checkpoints.checkpoint(2), "engine:2")

    run_against_server(checkpoints, story)


def test_the_wrong_port(checkpoints: Models) -> None:
    """Beside a running engine, an address one off is refused at once, with the address in the error."""

    async def story(server: Server) -> None:
        wrong = server.port + 1 if port_is_free(server.port + 1) else server.port - 1
        with pytest.raises(EngineUnreachable, match=str(wrong)):
            await connect(f"http://127.0.0.1:{wrong}")

    run_against_server(checkpoints, story)


@pytest.mark.parametrize(
    ("flags", "start_s", "reason"),
    [
        pytest.param(("--no-such-flag",), 120.0, "ended with code [0-9]+ while starting", id="unknown flag"),
        pytest.param((), 1.0, "did not answer within 1 s", id="too slow"),
    ],
)
def test_a_server_that_does_not_come_up(
    checkpoints: Models, flags: tuple[str, ...], start_s: float, reason: str
) -> None:
    """The error says what happened, ends with the log, and nothing stays behind."""
    bad = ServerSettings(model_path=checkpoints.checkpoint(1), flags=flags, start_s=start_s)
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    async def start() -> None:
        async with serve(bad):
            pytest.fail("the server came up")

    with pytest.raises(EngineStartFailed, match=reason):
        asyncio.run(start())
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_server_on_a_missing_checkpoint_is_not_even_started(tmp_path: Path) -> None:
    """The checkpoint is read first."""

    async def start() -> None:
        async with serve(ServerSettings(model_path=tmp_path / "missing")):
            pytest.fail("the server came up")

    started = time.monotonic()
    with pytest.raises(CheckpointRejected, match="missing"):
        asyncio.run(start())
    assert time.monotonic() - started < 1


@contextlib.contextmanager
def running_scenario(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of a scenario with requests in flight, as a person starts it; killed at the end if it still runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "reef_ref.scenarios", "run", "small-chunks"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as run:
        try:
            yield run
        finally:
            run.kill()


def wait_for_server(run: subprocess.Popen[str], listening: bool) -> tuple[int, int]:
    """The id of the first process of the run's server and its port, once it exists or, if asked for, listens."""
    deadline = time.monotonic() + BOUND_S
    while time.monotonic() < deadline:
        assert run.poll() is None, run.communicate()[0]
        for child in psutil.Process(run.pid).children():
            try:
                command = " ".join(child.cmdline())
            except psutil.Error:  # It has just ended.
                continue
            if (found := re.search(r"sglang\.launch_server.* --port (\d+)", command)) is None:
                continue
            port = int(found[1])
            if not listening or not port_is_free(port):
                return child.pid, port
        time.sleep(POLL_S)
    pytest.fail("no server in time")


def assert_nothing_left(server: int, port: int, folder: Path) -> None:
    assert session_members(server) == []
    assert port_is_free(port)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("listening", [False, True], ids=["while starting", "while serving"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scenario_leaves_nothing(tmp_path: Path, sent: signal.Signals, listening: bool) -> None:
    """Ctrl-C, or being told to terminate, ends every engine first and says so, at any time."""
    with running_scenario(tmp_path) as run:
        server, port = wait_for_server(run, listening)
        run.send_signal(sent)
        output, _ = run.communicate(timeout=60)
    assert run.returncode == 130, output
    assert "interrupted with 1 scenarios not played; every engine that was started has ended" in output
    assert "Traceback" not in output
    assert_nothing_left(server, port, tmp_path)


def test_an_engine_that_dies_in_the_middle_of_a_scenario(tmp_path: Path) -> None:
    """The scenario fails with a clear error, the run with exit status 1, and nothing stays behind."""
    with running_scenario(tmp_path) as run:
        server, port = wait_for_server(run, listening=True)
        os.kill(server, signal.SIGKILL)
        output, _ = run.communicate(timeout=120)
    assert run.returncode == 1, output
    assert "small-chunks: NOT AS IT MUST BE" in output
    assert re.search(r"error +Engine(Lost|Unreachable|StartFailed)", output), output
    assert_nothing_left(server, port, tmp_path)


def test_an_engine_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Killed without a chance to clean up, the run takes its server's processes with it."""
    with running_scenario(tmp_path) as run:
        server, port = wait_for_server(run, listening=True)
        run.kill()
    deadline = time.monotonic() + 60
    while session_members(server) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    assert session_members(server) == []
    assert port_is_free(port)
