"""What the monitor finds, as lines: JSON for programs, or text for people. `docs/logs.md` says what stands in them.

Nothing that a request says is in them: events carry no prompts and no tokens, and of a line that is no event only what
is wrong with it is told.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any, TextIO

import structlog

from reef_ref.events import Line
from reef_ref.monitor.notice import Violation
from reef_ref.monitor.respond import Response
from reef_ref.rank_events import RankEvent

__all__ = ["Format", "Log"]


class Format(StrEnum):
    """How a line looks."""

    JSON = "json"
    """One object a line; `monitor` says what it is about."""
    CONSOLE = "console"
    """For people."""


class Log:
    """An observer that writes a line for each thing found.

    Args:
        stream: where to.
        on_response: called after each reaction was written.
    """

    def __init__(self, stream: TextIO, style: Format, on_response: Callable[[], None] = lambda: None) -> None:
        self.on_response = on_response
        self._logger = structlog.wrap_logger(
            structlog.WriteLogger(stream),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                *(_for_programs() if style is Format.JSON else _for_people(stream)),
            ],
            wrapper_class=structlog.BoundLogger,
        )

    def say(self, what: str, **fields: Any) -> None:
        """Write a line about anything else."""
        self._logger.info(what, **fields)

    def line(self, line: Line) -> None:
        """Something a coordinator told: nothing to write."""

    def rank(self, engine: int, event: RankEvent) -> None:
        """Something a rank told: nothing to write."""

    def unreadable(self, where: str, why: str) -> None:
        """A line that is no event."""
        self._logger.warning("unreadable", where=where, why=why)

    def violation(self, violation: Violation) -> None:
        """A property does not hold."""
        self._logger.error("violation", why=str(violation), **asdict(violation))

    def response(self, response: Response) -> None:
        """What was done about it."""
        say = self._logger.info if response.done else self._logger.error
        say(
            "response",
            why=str(response),
            reaction=response.reaction.value,
            done=response.done,
            seconds=round(response.seconds, 3),
        )
        self.on_response()


Fields = MutableMapping[str, Any]


def _for_programs() -> list[Any]:
    def named(_: object, __: str, fields: Fields) -> Fields:
        return {"monitor": fields.pop("event"), **fields}

    return [named, structlog.processors.JSONRenderer()]


def _for_people(stream: TextIO) -> list[Any]:
    def shorter(_: object, __: str, fields: Fields) -> Fields:
        """`why` says what the single fields say; the story is for programs."""
        kept = ("event", "level", "time", "why")
        return {key: fields[key] for key in kept if key in fields} if "why" in fields else fields

    renderer = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
    )
    return [shorter, renderer]
