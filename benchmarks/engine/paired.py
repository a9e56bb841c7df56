"""Ratios of times that were taken in pairs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ratio", "ratio"]


@dataclass(frozen=True)
class Ratio:
    """How many times as long one thing takes as another: median and quartiles over `pairs` pairs."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


def ratio(taken: Sequence[float], base: Sequence[float]) -> Ratio:
    """The ratios of times with the same index."""
    ratios = [ours / theirs for ours, theirs in zip(taken, base, strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    return Ratio(median, low, high, len(ratios))
