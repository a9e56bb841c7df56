"""The README's figures: the tests that explore or prove anyway hold its lines to what they find."""

from __future__ import annotations

from benchmarks.sections import README, between

FIGURES = between(README.read_text(), "figures").splitlines()
"""Every line of the section. ``make figures`` writes it."""

__all__ = ["FIGURES"]
