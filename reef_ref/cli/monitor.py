"""`reef-ref monitor`: watches a deployment while it serves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reef_ref.cli.trouble import Status, Trouble

if TYPE_CHECKING:
    from reef_ref.monitor.http import Server
    from reef_ref.monitor.logs import Log
    from reef_ref.monitor.policy import Policy
    from reef_ref.monitor.sidecar import Observer, Sidecar

app = typer.Typer(rich_markup_mode=None, add_completion=False)
HTTP_ENDS_S = 5


class Until(StrEnum):
    """When the monitor ends by itself."""

    STOPPED = "stopped"
    VIOLATION = "violation"


class Style(StrEnum):
    """How lines are written."""

    JSON = "json"
    CONSOLE = "console"


@app.command()
def monitor(
    *,
    engines: Annotated[int, typer.Option(min=1, max=64, help="Slots of the deployment.")],
    coordinator: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="A coordinator's events; may be given again.")
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="SLOT=FILE", help="The events of an engine's ranks (REEF_REF_EVENTS); once an engine."),
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Listen here for both; made with mode 0600.")
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option(metavar="SLOT=URL", help="Where an engine is, for whatever is to be done to it; once an engine."),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(metavar="PROPERTY=REACTION", help="report, fence, retire or halt; may be given again."),
    ] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Reactions in YAML.")] = None,
    until: Annotated[Until, typer.Option(help="End at the first violation, or only when stopped.")] = Until.STOPPED,
    silence: Annotated[float, typer.Option(min=1, help="Seconds after which a silent engine is unknown.")] = 30.0,
    http: Annotated[
        str | None, typer.Option(metavar="[HOST:]PORT", help="Serve /metrics, /status and /healthz; on 127.0.0.1.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="What HTTP wants as bearer token (mode 0600), or set REEF_REF_MONITOR_TOKEN."
        ),
    ] = None,
    log: Annotated[Style, typer.Option(metavar="FORMAT", help="json for programs, console for people.")] = Style.JSON,
) -> int:
    """Judge what coordinators and engines tell, while it happens, and react to what is wrong.

    Writes one line of JSON for each thing found, and the status at the end, and whenever it is sent SIGUSR1. What was
    not seen is unknown, never fresh. Ends when it is stopped (SIGINT, SIGTERM). Where OTEL_TRACES_EXPORTER names
    exporters, every publication is a span.

    Exit status: 0 nothing was violated and all was seen, 1 violated, 2 bad usage or input, 3 something was not seen.
    """
    with _installed("monitor"):
        from reef_ref.monitor.logs import Format, Log
    from reef_ref.monitor.sidecar import Inputs, Patience, Sidecar

    files = [(slot, Path(file)) for slot, file in _by_slot("--engine", engine, engines, "FILE")]
    addresses = dict(_by_slot("--address", address, engines, "URL"))
    if not (files or coordinator or socket):
        raise Trouble("monitor: there is nothing to read; give --coordinator, --engine or --socket")
    if token_file is not None and http is None:
        raise Trouble("monitor: --token-file is for --http; give both")
    written = Log(sys.stdout, Format(log.value))
    observers: list[Observer] = [written]
    sidecar = Sidecar(
        engines,
        Inputs(tuple(coordinator or ()), tuple(files), socket),
        _policy(policy, on or []),
        _responder(addresses) if addresses else None,
        observers,
        Patience(silence_s=silence),
    )
    with contextlib.ExitStack() as stack:
        observers += stack.enter_context(_spans())
        server = None if http is None else _server(http, token_file, sidecar, engines, observers)
        if server is not None:
            stack.callback(server.close)
        try:
            asyncio.run(_watch(sidecar, server, written, until))
        except* OSError as errors:
            first = next(_leaves(errors))
            where = f"{first.filename}: " if first.filename else ""
            raise Trouble(f"monitor: {where}{first.strerror or first}") from None
    written.say("status", **_known(sidecar))
    status = sidecar.status()
    if status.counts.violations:
        return Status.VIOLATED
    return Status.HOLDS if sidecar.saw_all() else Status.UNDETERMINED


async def _watch(sidecar: Sidecar, server: Server | None, log: Log, until: Until) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, lambda: log.say("status", **_known(sidecar)))
    if until is Until.VIOLATION:
        log.on_response = stop.set
    tasks = [asyncio.create_task(sidecar.run(lambda: log.say("watching")))]
    if server is not None:
        log.say("listening", url=f"http://{server.address}")
        tasks.append(asyncio.create_task(server.run()))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    try:
        for task in tasks:
            if task.done():
                task.result()
        await sidecar.catch_up()
    finally:
        tasks[0].cancel()
        if server is not None:
            server.stop()
            await asyncio.wait(tasks[1:], timeout=HTTP_ENDS_S)
            tasks[1].cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)


def _known(sidecar: Sidecar) -> dict[str, Any]:
    return {**sidecar.status().plain(), "unreadable": sidecar.unreadable, "reacting": sidecar.reacting}


def _server(where: str, token_file: Path | None, sidecar: Sidecar, engines: int, observers: list[Observer]) -> Server:
    with _installed("monitor"):
        from reef_ref.monitor.http import Address, BadAddress, BadToken, Server, read_token
        from reef_ref.monitor.metrics import Metrics
    try:
        token = read_token(token_file)
    except BadToken as error:
        raise Trouble(f"--token-file {error}" if token_file else str(error)) from error
    except OSError as error:
        raise Trouble(f"--token-file {token_file}: {error.strerror or error}") from error
    metrics = Metrics(engines, sidecar.status)
    try:
        server = Server(Address.parse(where), metrics.registry, lambda: _known(sidecar), token)
    except (BadAddress, BadToken) as error:
        raise Trouble(f"--http {error}") from error
    except OSError as error:
        raise Trouble(f"--http {where}: {error.strerror or error}") from error
    observers.append(metrics)
    return server


@contextlib.contextmanager
def _spans() -> Iterator[list[Observer]]:
    """The observer that makes spans, where the environment wants some; what it has made is sent at the end."""
    from os import environ

    if environ.get("OTEL_TRACES_EXPORTER", "none") in ("", "none"):
        yield []
        return
    with _installed("otel"):
        from reef_ref.monitor.spans import BadExporter, Spans, finish, provider, wanted
    try:
        made = provider(wanted())
    except BadExporter as error:
        raise Trouble(f"monitor: {error}") from error
    try:
        yield [Spans(made.get_tracer("reef_ref"))]
    finally:
        finish(made)


@contextlib.contextmanager
def _installed(extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise Trouble(f"monitor needs {error.name}: install reef-ref[{extra}]") from error


def _by_slot(option: str, sayings: list[str] | None, engines: int, what: str) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for saying in sayings or ():
        slot, _, rest = saying.partition("=")
        if not (slot.isascii() and slot.isdigit() and rest) or not int(slot) < engines:
            raise Trouble(f"{option} {saying}: write SLOT={what}, with a slot from 0 to {engines - 1}")
        if any(int(slot) == other for other, _ in found):
            raise Trouble(f"{option} {saying}: slot {slot} was given before")
        found.append((int(slot), rest))
    return found


def _policy(file: Path | None, sayings: list[str]) -> Policy:
    from reef_ref.monitor.policy import BadPolicy, Policy

    base = None
    if file is not None:
        try:
            base = Policy.read(file)
        except BadPolicy as error:
            raise Trouble(f"--policy {file}: {error}") from error
        except OSError as error:
            raise Trouble(f"--policy {file}: {error.strerror or error}") from error
    try:
        return Policy.of(sayings, base)
    except BadPolicy as error:
        raise Trouble(f"--on {error}") from error


def _responder(addresses: dict[int, str]) -> Any:
    from reef_ref.engines.http import connect
    from reef_ref.monitor.respond import ByCalls

    return lambda status: ByCalls(
        lambda slot: connect(addresses[slot]),
        addresses,
        lambda slot: status().held(slot),
        lambda: bool(status().latched),
    )


def _leaves(group: BaseExceptionGroup[OSError]) -> Any:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
