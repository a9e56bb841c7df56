"""Which samples may be learned from: staleness admission by the spans of a response.

Source: reef-semantics sections 1.9 and 4, T6: well-formed, one incarnation, monotone, and 0 <= lag <= bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from reef_ref.engines.interface import Span
from reef_ref.load_id import LoadId, MalformedLoadId

__all__ = ["Refusal", "refusal"]


class Refusal(StrEnum):
    """Why a sample is dropped; the names are upstream's."""

    MISSING = "missing"
    """Its tokens bear no label."""
    MALFORMED = "malformed"
    """The labels are no load ids, or do not cover its tokens without gap and overlap."""
    CROSS_INCARNATION = "cross_incarnation"
    """A label is of another incarnation than the load that is served: the two have no order."""
    NON_MONOTONIC = "non_monotonic"
    """A later token was sampled by an older load."""
    FUTURE = "future"
    """A label is newer than the load that is served."""
    POLICY_LAG_EXCEEDED = "policy_lag_exceeded"
    """Its oldest token is too many loads behind."""


def refusal(spans: Sequence[Span], tokens: int, served: LoadId, max_lag: int) -> Refusal | None:
    """Why a sample of so many tokens may not be learned from while `served` is served, or none."""
    if not spans:
        return Refusal.MISSING
    try:
        loads = [LoadId.parse(span.load_id) for span in spans]
    except MalformedLoadId:
        return Refusal.MALFORMED
    ends = [span.end for span in spans]
    if [span.start for span in spans] != [0, *ends[:-1]] or ends[-1] != tokens:
        return Refusal.MALFORMED
    if any(span.end <= span.start for span in spans):
        return Refusal.MALFORMED
    if any(load.incarnation != served.incarnation for load in loads):
        return Refusal.CROSS_INCARNATION
    numbers = [load.sequence for load in loads]
    if numbers != sorted(numbers):
        return Refusal.NON_MONOTONIC
    if numbers[-1] > served.sequence:
        return Refusal.FUTURE
    if served.sequence - numbers[0] > max_lag:
        return Refusal.POLICY_LAG_EXCEEDED
    return None
