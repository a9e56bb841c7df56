"""What each assumption is good for: which eventuality would be lost without it, or if it were weaker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from model_check.evaluate import Space
from model_check.fairness import Bits, FairGraph, Mask, packed
from model_check.liveness import Case, Judging, Runs
from spec.lang import Protocol, Scope


@dataclass(frozen=True)
class Reliance:
    """One action of one assumption, and the first eventuality that is no longer shown without it; empty: none.

    Of a strong one, also what is lost where it is only weak.
    """

    assumption: str
    action: str
    if_weak: bool
    claim: str


def reliances(protocol: Protocol, scope: Scope, *, workers: int = 2, memory: int | None = None) -> list[Reliance]:
    """Leave out, or weaken, each action of each assumption in turn.

    Args:
        protocol: the protocol.
        scope: how large a world.
        workers: threads.
        memory: bytes the search may grow by; none: most of what is free.

    Raises:
        Misuse: the scope does not fit the protocol.
        MemoryShort: the world or its graph does not fit in memory.
    """
    space = Space(protocol, scope)
    judging = Judging(space, list(protocol.eventualities.values()), workers, memory)
    search = judging.search
    try:
        while search.level():
            continue
        graph = FairGraph(search, judging.obligations, judging.conditions)
        runs = Runs(graph)
        regions = [(case, runs.region(case)) for case in judging.cases]
        return list(_reliances(protocol, graph, regions))
    finally:
        search.close()


def _reliances(protocol: Protocol, graph: FairGraph, regions: list[tuple[Case, Mask]]) -> Iterator[Reliance]:
    every = packed(True for _ in graph.obligations)
    for assumption in protocol.assumptions.values():
        for action in assumption.actions:
            mine = packed(o.assumption is assumption and o.action == action for o in graph.obligations)
            yield Reliance(assumption.name, action, False, _lost(graph, regions, every & ~mine, graph.strong))
            if assumption.strength == "strong":
                yield Reliance(assumption.name, action, True, _lost(graph, regions, every, graph.strong & ~mine))


def _lost(graph: FairGraph, regions: list[tuple[Case, Mask]], counted: Bits, strong: Bits) -> str:
    for case, region in regions:
        if np.any(graph.components(region, counted=counted, strong=strong) >= 0):
            return case.claim.name
    return ""


__all__ = ["Reliance", "reliances"]
