"""`reef-ref monitor`: watches a deployment while it serves."""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reef_ref.cli.trouble import Status, Trouble

if TYPE_CHECKING:
    from reef_ref.monitor.policy import Policy
    from reef_ref.monitor.sidecar import Sidecar

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Until(StrEnum):
    """When the monitor ends by itself."""

    STOPPED = "stopped"
    VIOLATION = "violation"


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
) -> int:
    """Judge what coordinators and engines tell, while it happens, and react to what is wrong.

    Writes one line of JSON for each thing found, and the status at the end, and whenever it is sent SIGUSR1. What was
    not seen is unknown, never fresh. Ends when it is stopped (SIGINT, SIGTERM).

    Exit status: 0 nothing was violated and all was seen, 1 violated, 2 bad usage or input, 3 something was not seen.
    """
    from reef_ref.monitor.sidecar import Inputs, Patience, Sidecar

    files = [(slot, Path(file)) for slot, file in _by_slot("--engine", engine, engines, "FILE")]
    addresses = dict(_by_slot("--address", address, engines, "URL"))
    if not (files or coordinator or socket):
        raise Trouble("monitor: there is nothing to read; give --coordinator, --engine or --socket")
    log = _Log()
    sidecar = Sidecar(
        engines,
        Inputs(tuple(coordinator or ()), tuple(files), socket),
        _policy(policy, on or []),
        _responder(addresses) if addresses else None,
        (log,),
        Patience(silence_s=silence),
    )
    try:
        asyncio.run(_watch(sidecar, log, until))
    except* OSError as errors:
        first = next(_leaves(errors))
        where = f"{first.filename}: " if first.filename else ""
        raise Trouble(f"monitor: {where}{first.strerror or first}") from None
    status = _say_status(sidecar, log)
    if status.counts.violations:
        return Status.VIOLATED
    return Status.UNDETERMINED if status.counts.lost or sidecar.unreadable else Status.HOLDS


async def _watch(sidecar: Sidecar, log: _Log, until: Until) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, _say_status, sidecar, log)
    if until is Until.VIOLATION:
        log.on_response = stop.set
    task = asyncio.create_task(sidecar.run(lambda: log.say("watching", {})))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if task.done():
        task.result()
    await sidecar.catch_up()
    task.cancel()
    await asyncio.gather(task, stopped, return_exceptions=True)


def _say_status(sidecar: Sidecar, log: _Log) -> Any:
    status = sidecar.status()
    log.say("status", {**_plain(asdict(status)), "unreadable": sidecar.unreadable, "reacting": sidecar.reacting})
    return status


class _Log:
    """Writes what is found to standard output, a line each."""

    def __init__(self) -> None:
        self.on_response: Any = lambda: None

    def say(self, what: str, fields: dict[str, Any]) -> None:
        print(json.dumps({"monitor": what, **fields}), flush=True)

    def line(self, line: Any) -> None:
        pass

    def rank(self, engine: int, event: Any) -> None:
        pass

    def unreadable(self, where: str, why: str) -> None:
        self.say("unreadable", {"where": where, "why": why})

    def violation(self, violation: Any) -> None:
        self.say("violation", {"why": str(violation), **asdict(violation)})

    def response(self, response: Any) -> None:
        self.say("response", {"why": str(response), "reaction": response.reaction.value, "done": response.done})
        self.on_response()


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


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    engines = {slot: {**one, "freshness": one["freshness"].value} for slot, one in fields["engines"].items()}
    return {**fields, "engines": engines}


def _leaves(group: BaseExceptionGroup[OSError]) -> Any:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
