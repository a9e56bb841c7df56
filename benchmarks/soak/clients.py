"""Clients of the engines: agents that share a long prompt, each request answered rightly, or failed with a reason."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.soak.stage import CHECKPOINTS, ENGINES, Stage
from reef_ref.engines.errors import EngineError, EngineTimeout
from reef_ref.engines.interface import Generation, Request
from reef_ref.engines.sglang_engine import SGLangEngine
from reef_ref.scenarios.prompts import prompt

__all__ = ["ANSWER", "PROBE", "PROMPTS", "Answers", "Clients", "Tally"]

SYSTEM = prompt(1, 300)
CONVERSATIONS = 4
TURNS = 4
TURN = 40
ANSWER = 12
PROMPTS = tuple(
    SYSTEM + tuple(token for turn in range(turns + 1) for token in prompt(100 * conversation + turn + 10, TURN))
    for conversation in range(CONVERSATIONS)
    for turns in range(TURNS)
)
"""Every turn of every conversation: the same system prompt, then a history that grows."""
PROBE = 0
"""The prompt that is asked when somebody wants to know whether an engine is right."""
AFTER_FAILURE_S = 0.5
BETWEEN_S = 0.05


class Answers:
    """What each checkpoint answers to each prompt, learnt from engines that could reuse nothing stale."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    async def learn(self, engine: SGLangEngine, checkpoint: int) -> None:
        """Ask an engine that serves a checkpoint."""
        for number in range(len(PROMPTS)):
            self._known[checkpoint, number] = (await engine.generate(request(number))).output_ids

    def right(self, answer: Generation, number: int, content: Mapping[str, int]) -> bool | None:
        """Whether an answer is what its load's checkpoint answers; none where several loads made it."""
        loads = {span.load_id for span in answer.spans}
        if len(loads) != 1 or (checkpoint := content.get(next(iter(loads)))) is None:
            return None
        return self._known[checkpoint, number] == answer.output_ids

    @property
    def complete(self) -> bool:
        """Whether every checkpoint was asked everything, and they differ."""
        every = [tuple(self._known.get((c, n), ()) for n in range(len(PROMPTS))) for c in CHECKPOINTS]
        return all(all(answers) for answers in every) and len(set(every)) == len(CHECKPOINTS)


def request(number: int, tokens: int = ANSWER) -> Request:
    """The request of a prompt's number."""
    return Request(input_ids=PROMPTS[number], max_new_tokens=tokens)


@dataclass
class Tally:
    """What became of requests; `aside` are answers that several loads made, or while something was injected."""

    answered: int = 0
    right: int = 0
    aside: int = 0
    wrong: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    reused: int = 0
    prompt: int = 0


class Clients:
    """So many clients that ask one after the other, at random engines.

    Args:
        injected: whether something is injected at the moment, so that an answer may be wrong.
    """

    def __init__(
        self, stage: Stage, engines: Sequence[SGLangEngine], answers: Answers, injected: Callable[[], int], seed: int
    ) -> None:
        self.tally = Tally()
        self.first_wrong = ""
        self._stage = stage
        self._engines = engines
        self._answers = answers
        self._injected = injected
        self._draw = random.Random(seed)
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, count: int) -> None:
        """Begin."""
        self._tasks = [asyncio.create_task(self._one()) for _ in range(count)]

    async def stop(self, bound_s: float) -> list[str]:
        """Ask nothing more, and wait for what was asked; what is not answered by then is lost. What clients died of."""
        self._stopping = True
        _, left = await asyncio.wait(self._tasks, timeout=bound_s) if self._tasks else (set(), set())
        self.tally.lost += len(left)
        for task in left:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        return [
            f"a client died of {type(error).__name__}: {error}" for error in results if isinstance(error, Exception)
        ]

    async def _one(self) -> None:
        while not self._stopping:
            slot = self._draw.randrange(ENGINES)
            if self._stage.slots[slot] is None:
                await asyncio.sleep(AFTER_FAILURE_S)
                continue
            await self._ask(slot, self._draw.randrange(len(PROMPTS)))
            await asyncio.sleep(BETWEEN_S)

    async def _ask(self, slot: int, number: int) -> None:
        tally, injected = self.tally, self._injected()
        try:
            answer = await self._engines[slot].generate(request(number))
        except EngineTimeout:
            tally.lost += 1
        except EngineError as error:
            tally.failed[type(error).__name__] += 1
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(AFTER_FAILURE_S)
        else:
            tally.answered += 1
            tally.prompt += answer.prompt_tokens
            tally.reused += answer.cached_tokens
            right = self._answers.right(answer, number, self._stage.content)
            if right is None or injected != self._injected() or injected % 2:
                tally.aside += 1
            elif right:
                tally.right += 1
            else:
                tally.wrong += 1
                spans = ", ".join(f"{span.load_id} {span.start}-{span.end}" for span in answer.spans)
                self.first_wrong = self.first_wrong or (
                    f"prompt {number} at engine {slot}: {answer.output_ids}, loads {spans}, "
                    f"{answer.cached_tokens} reused, {answer.retractions} retractions"
                )
