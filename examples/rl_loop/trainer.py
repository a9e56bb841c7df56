"""The coordinator's trainer: a job is one step, on the batch that was offered before it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence

from examples.rl_loop.head import Learned
from examples.rl_loop.learning import advantages
from examples.rl_loop.policy import Policy
from examples.rl_loop.rollout import Sample
from examples.rl_loop.settings import Places
from reef_ref.training import Job, Trained

__all__ = ["PolicyTrainer"]

LEAST_FREE = 64 << 20
"""Bytes that must be free before a step begins: a checkpoint has one or two million."""


class PolicyTrainer:
    """A `reef_ref.training.Trainer`."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._policy: Policy | None = None
        self._batch: tuple[Sequence[Sample], Sequence[float], Learned] | None = None

    def begin(self, policy: Policy) -> None:
        """Go on from a policy: that of the load which is served."""
        self._policy = policy

    def offer(self, samples: Sequence[Sample], rewards: Sequence[float], learned: Learned) -> None:
        """What the next job learns from, and what is noted beside its checkpoint."""
        self._batch = samples, rewards, learned

    async def prepare(self, job: Job) -> str | None:
        """Decline what cannot be begun."""
        if self._policy is None or self._batch is None or job.rollout != self._policy.step + 1:
            return "there is no batch for this step"
        free = shutil.disk_usage(self._places.checkpoints).free
        if free < LEAST_FREE:
            return f"{free:,} bytes are free for checkpoints, {LEAST_FREE:,} are needed"
        return None

    async def train(self, job: Job) -> Trained:
        """Learn, and save. In a thread of its own, so that samples keep coming."""
        return await asyncio.to_thread(self._step, job.rollout)

    def _step(self, number: int) -> Trained:
        assert self._policy is not None
        assert self._batch is not None
        samples, rewards, learned = self._batch
        checkpoint = self._places.checkpoint(number)
        self._policy.learn(samples, advantages(rewards))
        self._policy.save(checkpoint, {"learned": learned.model_dump(mode="json")})
        self._batch = None
        return Trained(checkpoint)
