"""Samples: as many requests in flight as asked for, at all engines, whatever else goes on.

Nobody stops for a publication. Requests that run are retracted by the barrier and go on with the new weights; their
spans say which tokens are whose. New ones wait at the gate while engines may not be asked.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from examples.rl_loop.learning import VOCABULARY
from examples.rl_loop.settings import Settings
from reef_ref.engines.interface import Engine, Request, Span

__all__ = ["Rollouts", "Sample", "prompts"]

FIRST_ORDINARY_TOKEN = 3
TAKE_S = 300.0
"""Bound of the wait for one sample, in seconds."""


def prompts(settings: Settings) -> tuple[tuple[int, ...], ...]:
    """The prompts of a run: all begin with the same tokens, and each ends with its own."""
    draw = random.Random(settings.seed)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(FIRST_ORDINARY_TOKEN, VOCABULARY) for _ in range(count))

    shared = tokens(settings.shared_prompt)
    return tuple(shared + tokens(settings.own_prompt) for _ in range(settings.prompts))


@dataclass(frozen=True, slots=True)
class Sample:
    """An answered prompt: its tokens, which load sampled which, and how much of the prompt came from the cache."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    spans: tuple[Span, ...]
    cached: int


class Rollouts:
    """Keeps requests in flight while its block lasts; `take` gives samples in the order in which they were answered.

    `name` is part of every request's id, so that those of two lives are told apart.
    """

    def __init__(self, engines: Sequence[Engine], gate: asyncio.Event, settings: Settings, name: str) -> None:
        self._engines = engines
        self._gate = gate
        self._settings = settings
        self._prompts = prompts(settings)
        self._ids = (f"{name}-{number}" for number in itertools.count())
        # One batch may wait to be learned from. Then requests wait, for their answers would only grow old.
        self._samples: asyncio.Queue[Sample] = asyncio.Queue(settings.batch)

    async def run(self) -> None:
        """Ask, until cancelled. Raises what an engine raises."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._settings.in_flight):
                engine = self._engines[number % len(self._engines)]
                # Every engine is asked each prompt by somebody.
                group.create_task(self._ask(engine, self._prompts[number // len(self._engines) % len(self._prompts)]))

    async def take(self) -> Sample:
        """The next sample. Raises `TimeoutError`."""
        async with asyncio.timeout(TAKE_S):
            return await self._samples.get()

    async def _ask(self, engine: Engine, prompt: tuple[int, ...]) -> None:
        while True:
            await self._gate.wait()
            answer = await engine.generate(
                Request(
                    input_ids=prompt,
                    max_new_tokens=self._settings.answer,
                    request_id=next(self._ids),
                    sampling={"temperature": 1.0},
                )
            )
            await self._samples.put(Sample(prompt, answer.output_ids, answer.spans, answer.cached_tokens))
