"""What samples are worth, and whether anything was learned. No tensor here."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LEAST_STEPS", "VOCABULARY", "Figures", "Judgement", "advantages", "chosen_tokens", "judge", "reward"]

VOCABULARY = 512
CHOSEN = 64
LEAST_STEPS = 8
"""Steps of which a quarter is two or more; of fewer nothing is concluded."""
LIKELIEST_BY_CHANCE = 0.001


def chosen_tokens(seed: int) -> frozenset[int]:
    """The tokens that are rewarded: an eighth of the vocabulary."""
    return frozenset(random.Random(seed).sample(range(VOCABULARY), CHOSEN))


def reward(output: Sequence[int], chosen: frozenset[int]) -> float:
    """The share of the sampled tokens that are chosen ones."""
    return sum(token in chosen for token in output) / len(output)


def advantages(rewards: Sequence[float]) -> list[float]:
    """How much better each sample was than the others of its batch, in standard deviations of the batch.

    The baseline of a sample is the mean of all others: a baseline must not depend on what it is compared with.
    Where all rewards are equal there is nothing to learn.
    """
    total, others = sum(rewards), len(rewards) - 1
    spread = statistics.pstdev(rewards)
    if not spread:
        return [0.0] * len(rewards)
    return [(one - (total - one) / others) / spread for one in rewards]


@dataclass(frozen=True, slots=True)
class Figures:
    """The rewards of one batch: how many, their mean, and their standard deviation."""

    count: int
    mean: float
    deviation: float

    @classmethod
    def of(cls, rewards: Sequence[float]) -> Figures:
        """The figures of at least two rewards."""
        return cls(len(rewards), statistics.fmean(rewards), statistics.stdev(rewards))

    @classmethod
    def together(cls, parts: Sequence[Figures]) -> Figures:
        """The figures of all samples of several batches."""
        count = sum(part.count for part in parts)
        mean = sum(part.count * part.mean for part in parts) / count
        squares = sum((part.count - 1) * part.deviation**2 + part.count * (part.mean - mean) ** 2 for part in parts)
        return cls(count, mean, (squares / (count - 1)) ** 0.5)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The first quarter of the steps beside the last: `chance` is how likely such a rise is if nothing was learned."""

    first: Figures
    last: Figures
    chance: float

    @property
    def rises(self) -> bool:
        """Whether the reward has risen beyond chance."""
        return self.chance < LIKELIEST_BY_CHANCE

    def __str__(self) -> str:
        verb = "rises" if self.rises else "does not rise"
        return (
            f"reward {verb}: {self.first.mean:.3f} over the first quarter of the steps ({self.first.count} samples), "
            f"{self.last.mean:.3f} over the last ({self.last.count}); by chance alone p = {self.chance:.1e} "
            f"(one-sided Welch's t-test, needed below {LIKELIEST_BY_CHANCE})"
        )


def judge(steps: Sequence[Figures]) -> Judgement | None:
    """Compare the first quarter of the steps with the last; none if there are fewer than `LEAST_STEPS`."""
    from scipy import stats

    if len(steps) < LEAST_STEPS:
        return None
    quarter = len(steps) // 4
    first, last = Figures.together(steps[:quarter]), Figures.together(steps[-quarter:])
    if not first.deviation and not last.deviation:
        return Judgement(first, last, 0.0 if last.mean > first.mean else 1.0)
    found = stats.ttest_ind_from_stats(
        last.mean, last.deviation, last.count, first.mean, first.deviation, first.count,
        equal_var=False, alternative="greater",
    )  # fmt: skip
    return Judgement(first, last, float(found.pvalue))
