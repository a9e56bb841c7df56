"""Every scenario, and where each public report that a running engine could show is shown.

Reports are named as in `tests/cases`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reef_ref.scenarios.colocated import COLOCATED, COLOCATED_LORA
from reef_ref.scenarios.grammar import GRAMMAR_PENDING, GRAMMAR_PENDING_PLAIN
from reef_ref.scenarios.in_flight import IN_FLIGHT, IN_FLIGHT_NO_OVERLAP, TENSOR_PARALLEL
from reef_ref.scenarios.out_of_turn import ANOTHER_SHAPE, OUT_OF_TURN
from reef_ref.scenarios.reported import (
    FLUSH_AFTER_LAST_TOKEN,
    QUEUED_AND_RETRACTED,
    REFUSED_FLUSH_IN_UPDATE,
    SMALL_CHUNKS,
)
from reef_ref.scenarios.scenario import Scenario
from reef_ref.scenarios.sharing import DISJOINT_DEFAULT, DISJOINT_SHARING
from reef_ref.scenarios.stale import STALE_ENFORCED, STALE_IN_PLACE, STALE_REFUSED, STALE_RETRACT

__all__ = ["CASES", "SCENARIOS"]

SCENARIOS: tuple[Scenario, ...] = (
    DISJOINT_DEFAULT,
    DISJOINT_SHARING,
    IN_FLIGHT,
    IN_FLIGHT_NO_OVERLAP,
    COLOCATED,
    COLOCATED_LORA,
    GRAMMAR_PENDING,
    GRAMMAR_PENDING_PLAIN,
    STALE_IN_PLACE,
    STALE_RETRACT,
    STALE_ENFORCED,
    STALE_REFUSED,
    QUEUED_AND_RETRACTED,
    REFUSED_FLUSH_IN_UPDATE,
    FLUSH_AFTER_LAST_TOKEN,
    SMALL_CHUNKS,
    OUT_OF_TURN,
    ANOTHER_SHAPE,
    TENSOR_PARALLEL,
)

NOT_RUN: Mapping[str, str] = MappingProxyType(
    {
        "C09": "not run: an update that aborts all requests is never sent; abort is not acknowledged by the scheduler",
        "C29": "not run: SGLang 0.5.23 does not start a hierarchical cache without CUDA; refused by configuration",
    }
)


def _cases() -> dict[str, str]:
    shown: dict[str, list[str]] = {}
    for scenario in SCENARIOS:
        for case in scenario.cases:
            shown.setdefault(case, []).append(scenario.name)
    return {case: ", ".join(names) for case, names in sorted(shown.items())} | dict(NOT_RUN)


CASES: Mapping[str, str] = MappingProxyType(_cases())
"""Report to the scenarios that show it, or the reason why it is not run here."""
