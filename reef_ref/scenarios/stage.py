"""Where a scenario plays: engines to start, checks to record, comparisons with fresh engines to ask for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reef_ref.engines.interface import Request
from reef_ref.engines.process import Server, serve
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.configuration import EngineConfiguration, Fresh
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.scenario import Check

__all__ = ["Comparison", "Stage", "Subject"]

LOG_LINES = 6


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tokens that a fresh engine must answer (`equal`) or must not answer to the same request."""

    label: str
    fresh: Fresh
    request: Request
    tokens: tuple[int, ...]
    equal: bool

    def check(self, answer: Sequence[int]) -> Check:
        """What the fresh engine's answer says."""
        agree = common_prefix(self.tokens, answer)
        whole = len(self.tokens)
        return Check(
            label=self.label,
            seen=f"{agree} of {whole} tokens agree",
            required=f"{'all' if self.equal else 'not all'} agree with a {self.fresh}",
            holds=whole > 0 and len(answer) == whole and (agree == whole) == self.equal,
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine under observation; `events` is where its plugin writes what it saw."""

    server: Server
    events: Path

    @property
    def engine(self) -> SGLangEngine:
        """The engine."""
        return self.server.engine


class Stage:
    """Everything that one run of a scenario may use."""

    def __init__(self, models: Models, folder: Path) -> None:
        self.models = models
        self.checks: list[Check] = []
        self.comparisons: list[Comparison] = []
        self._folder = folder
        self._engines = 0

    @contextlib.asynccontextmanager
    async def engine(self, configuration: EngineConfiguration) -> AsyncIterator[Subject]:
        """Start an engine, and end it with all its processes on the way out.

        An error inside carries the last lines of the engine's log as a note.
        """
        self._engines += 1
        events = self._folder / f"events-{self._engines}.ndjson"
        async with serve(configuration.settings(self.models, events)) as server:
            try:
                yield Subject(server, events)
            except Exception as error:
                error.add_note(f"the engine's log ends:\n{server.log_tail(LOG_LINES)}")
                raise

    def check(self, label: str, seen: Any, required: str, holds: bool) -> None:
        """Record one thing seen and whether it is as required."""
        self.checks.append(Check(label, seen, required, holds))

    def equal(self, label: str, seen: Any, required: Any) -> None:
        """Record a value that must be exactly this."""
        self.check(label, seen, str(required), seen == required)

    def at_least(self, label: str, seen: float, bound: float) -> None:
        """Record a figure that must not be smaller."""
        self.check(label, seen, f"at least {bound}", seen >= bound)

    def note(self, label: str, seen: Any) -> None:
        """Record a figure that nothing is required of."""
        self.checks.append(Check(label, seen, None, holds=True))

    def like_fresh(self, label: str, fresh: Fresh, request: Request, tokens: Sequence[int]) -> None:
        """The tokens must be those of a fresh engine, asked after the scenario."""
        self.comparisons.append(Comparison(label, fresh, request, tuple(tokens), equal=True))

    def unlike_fresh(self, label: str, fresh: Fresh, request: Request, tokens: Sequence[int]) -> None:
        """The tokens must differ from those of a fresh engine: the stale hit shows in the output."""
        self.comparisons.append(Comparison(label, fresh, request, tuple(tokens), equal=False))


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """The number of leading tokens in which two answers agree."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))
