"""A trainer that trains nothing: its jobs leave checkpoints that are there already."""

from __future__ import annotations

from pathlib import Path

from reef_ref.training import Job, Trained

__all__ = ["WrittenTrainer"]


class WrittenTrainer:
    """A `reef_ref.training.Trainer` whose jobs leave the checkpoints in turn, by the number of their rollout."""

    def __init__(self, *checkpoints: Path) -> None:
        self._checkpoints = checkpoints

    async def prepare(self, job: Job) -> str | None:
        """It can always begin."""
        return None

    async def train(self, job: Job) -> Trained:
        """Answer the checkpoint whose turn it is."""
        return Trained(self._checkpoints[job.rollout % len(self._checkpoints)])
