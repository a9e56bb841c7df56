"""A quantity that was measured several times: its median and quartiles."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The middle of what was measured, and between what half of it lies."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of two values or more."""
        lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, lower, upper)

    def text(self, digits: int = 0) -> str:
        """The median, and the quartiles in brackets."""
        return f"{self.median:,.{digits}f} ({self.lower:,.{digits}f} to {self.upper:,.{digits}f})"


__all__ = ["Spread"]
