"""HTTP and the log: who is answered, what is said, and what never is."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from reef_ref.cli import main
from reef_ref.monitor.http import TOKEN, Address, BadAddress, BadToken, Server, application, read_token
from reef_ref.monitor.logs import Format, Log
from reef_ref.monitor.metrics import Metrics
from reef_ref.monitor.notice import Violation
from reef_ref.monitor.policy import Reaction
from reef_ref.monitor.respond import Response
from reef_ref.monitor.sidecar import Inputs, Sidecar
from tests.conformance.world import Layout
from tests.monitor.deployments import Rank, as_lines, trace

SECRET = "0123456789abcdef-token"
PAGES = ("/metrics", "/status", "/healthz")


def asked(token: str | None, *paths: str, host: str = "127.0.0.1:9464", **headers: str) -> list[httpx.Response]:
    """Ask the application itself, without a socket."""
    sidecar = Sidecar(1, Inputs())
    app = application(Metrics(1, sidecar.status).registry, lambda: sidecar.status().plain(), token)

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return [await client.get(path, headers=headers) for path in paths]

    return asyncio.run(ask())


def test_pages_are_what_they_say() -> None:
    metrics, status, healthz = asked(None, *PAGES)
    assert metrics.headers["content-type"].startswith("text/plain")
    assert "reef_ref_engine_freshness" in metrics.text
    assert status.json()["engines"]["0"]["freshness"] == "unknown"
    assert (healthz.status_code, healthz.text) == (200, "ok\n")


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", f"Basic {SECRET}", SECRET, f"Bearer {SECRET}x"])
def test_without_the_token_only_life_is_told(given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    codes = [answer.status_code for answer in asked(SECRET, *PAGES, host="10.1.2.3:9464", **headers)]
    assert codes == [401, 401, 200]


def test_with_the_token_all_is_told_under_any_name() -> None:
    answers = asked(SECRET, *PAGES, host="monitor.example:9464", Authorization=f"Bearer {SECRET}")
    assert [answer.status_code for answer in answers] == [200, 200, 200]


@pytest.mark.parametrize(
    ("host", "code"),
    [("127.0.0.1:1", 200), ("localhost:1", 200), ("[::1]:1", 200), ("evil.example:1", 421), ("10.0.0.1", 421)],
)
def test_on_loopback_only_loopback_names_are_answered(host: str, code: int) -> None:
    """A page in a browser may have its own name lead to 127.0.0.1."""
    assert [answer.status_code for answer in asked(None, *PAGES, host=host)] == [code, code, 200]


def test_nothing_but_get_is_answered() -> None:
    sidecar = Sidecar(1, Inputs())
    app = application(Metrics(1, sidecar.status).registry, dict, None)

    async def ask() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as client:
            return [(await client.request(m, "/status")).status_code for m in ("POST", "PUT", "DELETE")]

    assert asyncio.run(ask()) == [405, 405, 405]


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("9464", Address("127.0.0.1", 9464), True),
        ("localhost:0", Address("localhost", 0), True),
        ("0.0.0.0:80", Address("0.0.0.0", 80), False),
        ("[::1]:65535", Address("::1", 65535), True),
        ("[::]:1", Address("::", 1), False),
        ("monitor.example:1", Address("monitor.example", 1), False),
    ],
)
def test_addresses(text: str, address: Address, loopback: bool) -> None:
    assert Address.parse(text) == address
    assert address.loopback is loopback


@pytest.mark.parametrize("text", ["", ":", ":1", "x", "x:", "x:y", "1:65536", "x:-1", "x:" + "9" * 5000, "x:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadAddress, match=r"write \[HOST:\]PORT"):
        Address.parse(text)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "monitor.example"])
def test_elsewhere_than_on_loopback_a_token_is_needed(host: str) -> None:
    """Refused before anything is listened at."""
    sidecar = Sidecar(1, Inputs())
    with pytest.raises(BadToken, match="a token is needed"):
        Server(Address(host, 0), Metrics(1, sidecar.status).registry, dict, None)


def token_file(folder: Path, text: str = f"{SECRET}\n", mode: int = 0o600) -> Path:
    file = folder / "token"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    assert read_token(token_file(tmp_path), {TOKEN: "another-token-than-that"}) == SECRET
    assert read_token(None, {TOKEN: SECRET}) == SECRET
    assert read_token(None, {}) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_token_file_that_others_may_use_is_refused(mode: int, tmp_path: Path) -> None:
    with pytest.raises(BadToken, match="make it 0600"):
        read_token(token_file(tmp_path, mode=mode), {})


@pytest.mark.parametrize(
    "text", ["", "short", "a token with spaces in it", "twolines-twolines\ntwolines", "ü" * 20, "x" * 5000]
)
def test_what_is_no_token_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadToken) as caught:
        read_token(token_file(tmp_path, text), {})
    assert not text or text not in str(caught.value)
    with pytest.raises(BadToken):
        read_token(None, {TOKEN: text})


BAD = [
    (["--http", "x"], "--http 'x': write [HOST:]PORT"),
    (["--http", "0.0.0.0:0"], "--http 0.0.0.0:0 can be reached from elsewhere, so a token is needed"),
    (["--token-file", "/nowhere/at/all"], "--token-file is for --http"),
    (["--http", "0", "--token-file", "/nowhere/at/all"], "--token-file /nowhere/at/all: No such file"),
]


@pytest.mark.parametrize(("options", "line"), BAD, ids=[" ".join(o) for o, _ in BAD])
def test_bad_options_get_one_line(
    options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["monitor", "--engines", "1", "--coordinator", str(tmp_path / "none"), *options])
    out, err = capsys.readouterr()
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert line in err


# A process.


class Running:
    """A `reef-ref monitor` that serves HTTP, and what it writes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = ""

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def stop(self) -> tuple[int, list[dict[str, Any]]]:
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=30)
        assert not err, err
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]


@contextmanager
def monitor(*options: str, **environment: str) -> Iterator[Running]:
    """Started, listening and watching."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reef_ref.cli", "monitor", *options],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        running = Running(process)
        if "--http" in options:
            said = running.line()
            assert said["monitor"] == "listening"
            running.url = said["url"]
        assert running.line()["monitor"] == "watching"
        yield running
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_a_process_is_asked_and_ends_with_what_it_said(tmp_path: Path) -> None:
    """The status over HTTP, once all is read, is the last line of the log; and the token is wanted."""
    file = tmp_path / "rank.ndjson"
    rank = Rank(7)
    file.write_bytes(as_lines([rank.start(), *rank.publication("a:2")]))
    headers = {"Authorization": f"Bearer {SECRET}"}
    options = ("--engines", "1", "--engine", f"0={file}", "--http", "0", "--token-file", str(token_file(tmp_path)))
    with monitor(*options) as running:
        assert httpx.get(f"{running.url}/status").status_code == 401
        assert httpx.get(f"{running.url}/healthz").text == "ok\n"
        for _ in range(200):
            status = httpx.get(f"{running.url}/status", headers=headers).json()
            if status["counts"]["ranks"] == 5:
                break
        code, (last,) = running.stop()
    assert code == 0
    assert status["engines"]["0"] | {"sources": None} == {
        "freshness": "fresh",
        "why": "",
        "load_id": "a:2",
        "paused": None,
        "sharing": True,
        "sources": None,
    }
    assert {key: last[key] for key in status} == status
    assert last["monitor"] == "status"


def test_a_port_that_is_taken_gets_one_line(tmp_path: Path) -> None:
    file = str(tmp_path / "none")
    with monitor("--engines", "1", "--coordinator", file, "--http", "0") as running:
        port = running.url.rpartition(":")[2]
        command = [sys.executable, "-m", "reef_ref.cli", "monitor", "--engines", "1", "--coordinator", file]
        done = subprocess.run([*command, "--http", port], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert f"--http {port}: Address already in use" in done.stderr


# The log.


def logged(style: Format) -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    return Log(stream, style), stream


VIOLATION = Violation("no_stale_hit", 1, "engine:1/rank:0/7", 5, "because", ("4. Flush()", "5. StalePrefix()"))


def test_a_violation_is_one_line_with_its_story() -> None:
    log, stream = logged(Format.JSON)
    log.violation(VIOLATION)
    log.response(Response(VIOLATION, Reaction.FENCE, False, "no answer", 1.23456))
    violation, response = map(json.loads, stream.getvalue().splitlines())
    assert violation.pop("time").endswith("Z")
    assert violation == {
        "monitor": "violation",
        "level": "error",
        "why": "no_stale_hit violated at engine 1: because [event 5 of engine:1/rank:0/7]",
        "property": "no_stale_hit",
        "engine": 1,
        "source": "engine:1/rank:0/7",
        "number": 5,
        "reason": "because",
        "story": ["4. Flush()", "5. StalePrefix()"],
        "stopped": False,
    }
    assert (response["reaction"], response["done"], response["seconds"]) == ("fence", False, 1.235)
    assert response["level"] == "error"


def test_people_get_why_and_nothing_more() -> None:
    log, stream = logged(Format.CONSOLE)
    log.violation(VIOLATION)
    (line,) = stream.getvalue().splitlines()
    assert "no_stale_hit violated at engine 1: because" in line
    assert "story" not in line
    assert "\x1b" not in line, "no colours where nobody looks"


def test_whoever_waits_for_a_reaction_hears_of_it() -> None:
    heard: list[str] = []
    log = Log(io.StringIO(), Format.JSON, on_response=lambda: heard.append("one"))
    log.response(Response(VIOLATION, Reaction.REPORT, True, "reported", 0.0))
    assert heard == ["one"]


PROMPT = "the-quick-brown-secret"
IDS = [31337, 424242]
NO_EVENTS = [
    {"event": "admit", "source": "s", "number": 1, "at": 0.0, "schema": 1, "engine": 0, "request": "r", "text": PROMPT},
    {"pid": 1, "event": "flush", "prompt": PROMPT, "input_ids": IDS},
    {"text": PROMPT, "input_ids": IDS},
    {"pid": 1, "rank": 0, "time": 0.0, "number": 1, "event": "continue", "load_id": IDS},
    [PROMPT, *IDS],
]


@pytest.mark.parametrize("wrong", NO_EVENTS, ids=lambda wrong: json.dumps(wrong)[:24])
def test_of_a_line_that_is_no_event_nothing_is_shown(wrong: Any) -> None:
    """Somebody may send a whole request where an event should be."""
    log, stream = logged(Format.JSON)
    sidecar = Sidecar(1, Inputs(), observers=[log])
    sidecar.take("socket", json.dumps(wrong).encode())
    (line,) = stream.getvalue().splitlines()
    said = json.loads(line)
    assert (said["monitor"], said["level"], said["where"]) == ("unreadable", "warning", "socket")
    assert PROMPT not in line
    assert not any(str(number) in said["why"] for number in IDS)


def test_a_whole_life_is_silent(tmp_path: Path) -> None:
    """Nothing is written of what keeps the protocol, requests included."""
    log, stream = logged(Format.JSON)
    sidecar = Sidecar(2, Inputs(), observers=[log])
    for line in trace(tmp_path, Layout(engines=2), (True, False)):
        sidecar.take("file", line.to_json().encode())
    assert stream.getvalue() == ""
