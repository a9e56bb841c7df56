"""The compiled pass backwards agrees with networkx on who can still reach what."""

from __future__ import annotations

import networkx as nx
import pytest

from benchmarks import pubmodel
from benchmarks.pubmodel import Engine, Phase, Request, State, Status
from model_check.evaluate import Space
from model_check.graph import Graph, as_networkx
from model_check.record import Claims
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import CanReach, Protocol, exists, forall, wherever


def protocol() -> Protocol:
    model = pubmodel.build()

    @model.recovery()
    def served(s: State) -> CanReach:
        """Every request can be answered."""
        return wherever(True).can_reach(forall(Request, lambda r: s.status[r] == Status.DONE))

    @model.recovery(avoiding=["begin", "fail"])
    def idle_with_work(s: State) -> CanReach:
        """A request can wait while nothing is published."""
        return wherever(s.phase == Phase.IDLE).can_reach(
            exists(Request, lambda r: s.status[r] == Status.WAIT) & exists(Engine, lambda e: s.paused[e])
        )

    return model


@pytest.mark.parametrize("symmetric", [False, True])
def test_recoveries_agree_with_networkx(symmetric: bool) -> None:
    model = protocol()
    space = Space(model, pubmodel.scope(2, 2, 2))
    recoveries = list(model.recoveries.values())
    claims = Claims(recoveries=tuple((r.source, r.target) for r in recoveries))
    search = Search(space, claims, symmetric_sorts(space) if symmetric else (), 2, effort=0)
    while search.level():
        pass
    graph = Graph(search, recoveries)
    whole = as_networkx(search)
    assert len(whole) == search.states
    assert whole.number_of_edges() == search.steps
    verdicts = []
    for number, recovery in enumerate(recoveries):
        usable = nx.DiGraph()
        usable.add_nodes_from(whole.nodes(data=True))
        usable.add_edges_from(
            (a, b)
            for a, b, i in whole.edges(data="instance")
            if i.action.kind != "fault" and i.action.name not in recovery.avoiding
        )
        states = {packed: search.layout.unpack(packed) for packed in whole}
        targets = {p for p, s in states.items() if space.holds(recovery.target, s)}
        reaching = targets.union(*(nx.ancestors(usable, t) for t in targets))
        lost = [p for p, s in states.items() if space.holds(recovery.source, s) and p not in reaching]
        found = graph.lost(number, past_cuts=False)
        assert (found is None) == (not lost)
        if found:
            depths = whole.nodes(data="depth")
            assert found == (min(lost, key=lambda p: (depths[p], p)), min(depths[p] for p in lost))
        verdicts.append(found is None)
    assert verdicts == [True, False]
    search.close()
