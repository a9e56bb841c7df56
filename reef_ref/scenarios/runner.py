"""Running scenarios: never more engines at once than the machine bears, fresh engines shared between scenarios."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reef_ref.engines.errors import EngineError
from reef_ref.engines.process import serve
from reef_ref.scenarios.configuration import Fresh
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.scenario import Check, Outcome, Scenario
from reef_ref.scenarios.stage import Comparison, Stage

__all__ = ["ENGINES_AT_ONCE", "SCENARIO_LIMIT_S", "run_scenarios"]

ENGINES_AT_ONCE = 2
"""Scheduler processes at once, one for each of two cores."""
SCENARIO_LIMIT_S = 420.0
"""Upper bound of one scenario, in seconds: far above what any takes, so that a hang ends as an error."""

Progress = Callable[[str], None]
Kept = Callable[[Outcome], None]


class Slots:
    """Permits for engines, taken all at once, so that two half-served scenarios never wait for each other."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Hold `count` permits."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= count)
            self._free -= count
        try:
            yield
        finally:
            self._free += count
            async with self._changed:
                self._changed.notify_all()


@dataclass(frozen=True, slots=True)
class _Played:
    outcome: Outcome
    comparisons: Sequence[Comparison]


async def run_scenarios(
    scenarios: Sequence[Scenario], progress: Progress, keep: Kept = lambda _: None
) -> list[Outcome]:
    """Run the scenarios and afterwards ask the fresh engines for what the scenarios want compared.

    Every engine ends before this returns, also when it is cancelled. `progress` gets one line for each step, and `keep`
    each outcome as soon as its scenario was played: what is to be compared is still open in it, and does not hold.
    """
    with tempfile.TemporaryDirectory(prefix="reef-ref-scenarios-") as name:
        folder = Path(name)
        models = Models(folder)
        slots = Slots(ENGINES_AT_ONCE)

        async def play(scenario: Scenario) -> _Played:
            one = await _play(scenario, models, folder / scenario.name, slots, progress)
            keep(
                _completed(one, {comparison: _unanswered(comparison, "interrupted") for comparison in one.comparisons})
            )
            return one

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play(scenario)) for scenario in scenarios]
        played = [task.result() for task in tasks]
        answers = await _ask_fresh(played, models, slots, progress)
    return [_completed(one, answers) for one in played]


async def _play(scenario: Scenario, models: Models, folder: Path, slots: Slots, progress: Progress) -> _Played:
    folder.mkdir()
    stage = Stage(models, folder)
    error: str | None = None
    async with slots.take(scenario.engines):
        progress(f"{scenario.name}: started")
        started = time.monotonic()
        try:
            async with asyncio.timeout(SCENARIO_LIMIT_S):
                await scenario.run(stage)
        except Exception as failure:
            error = _described(failure)
        seconds = time.monotonic() - started
    wrong = sum(not check.holds for check in stage.checks)
    verdict = "failed" if error is not None else f"{wrong} checks do not hold" if wrong else "as it must be so far"
    progress(f"{scenario.name}: {verdict} ({len(stage.checks)} checks, {seconds:.1f} s)")
    outcome = Outcome(scenario=scenario, checks=tuple(stage.checks), seconds=seconds, error=error)
    return _Played(outcome, stage.comparisons)


Answers = dict[Comparison, Check]


async def _ask_fresh(played: Sequence[_Played], models: Models, slots: Slots, progress: Progress) -> Answers:
    wanted: dict[Fresh, list[Comparison]] = defaultdict(list)
    for one in played:
        for comparison in one.comparisons:
            wanted[comparison.fresh].append(comparison)
    answers: Answers = {}

    async def ask(fresh: Fresh, comparisons: Sequence[Comparison]) -> None:
        async with slots.take(fresh.ranks):
            progress(f"{fresh}: started for {len(comparisons)} comparisons")
            try:
                async with serve(fresh.configuration().settings(models, None)) as server:
                    for comparison in comparisons:
                        generation = await server.engine.generate(comparison.request)
                        answers[comparison] = comparison.check(generation.output_ids)
            except EngineError as error:
                for comparison in comparisons:
                    answers.setdefault(comparison, _unanswered(comparison, str(error)))

    async with asyncio.TaskGroup() as group:
        for fresh, comparisons in wanted.items():
            group.create_task(ask(fresh, comparisons))
    return answers


def _unanswered(comparison: Comparison, reason: str) -> Check:
    return Check(comparison.label, f"not compared: {reason}", f"compared with a {comparison.fresh}", holds=False)


def _completed(one: _Played, answers: Answers) -> Outcome:
    checks = (*one.outcome.checks, *(answers[comparison] for comparison in one.comparisons))
    return replace(one.outcome, checks=checks)


def _described(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_described(inner) for inner in error.exceptions)
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}: {error}{notes}"
