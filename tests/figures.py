"""The README's figures: the tests that explore or prove anyway hold its lines to what they find."""

from __future__ import annotations

from benchmarks.sections import README, between

SECTIONS = ("worlds", "strength", "proofs")
FIGURES = [line for section in SECTIONS for line in between(README.read_text(), section).splitlines()]
"""Every line of these sections. ``make figures`` writes them."""

__all__ = ["FIGURES"]
