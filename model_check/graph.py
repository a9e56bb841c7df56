"""The explored graph: which states can still reach others, without faults.

Every state of a finished search, and every step that a recovery may count on, seen from where the step leads. Going
backwards from the targets once then answers a recovery for all states, in time linear in the steps.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from model_check.record import BLOCK
from model_check.search import Marks, MemoryShort, Search, available_memory
from spec.lang.protocol import Recovery

if TYPE_CHECKING:
    import networkx as nx


class Steps:
    """The wanted steps of a finished search, by the state that they leave.

    States are named by their position in the arena. The steps of a state lie at ``offsets[state]`` up to but not with
    ``offsets[state + 1]``: where each leads, in `targets`, and by which instance, in `via`. `cut` tells in which states
    the scope's bound cut a step that is no fault. Memory: 6 bytes a step and 9 a state.

    Args:
        search: finished, and still open.
        wanted: by instance, whether its steps are kept.

    Raises:
        MemoryShort: there are too many.
    """

    def __init__(self, search: Search, wanted: Marks) -> None:
        machine, context = search.machine, search.context
        last = search.levels[-1][1]
        self.size = last * BLOCK
        places = np.zeros(search.capacity if search.layout.words == 1 else 1, np.uint32)
        machine.places(context, places.ctypes.data, 0, last)
        self.offsets = np.zeros(self.size + 1, np.uint64)
        self.cut: Marks = np.zeros(self.size, np.uint8)
        nothing = np.zeros(1, np.uint32)

        def fill(targets: npt.NDArray[np.uint32], via: npt.NDArray[np.uint16], filling: bool) -> None:
            def share(first: int, end: int) -> None:
                machine.edges(
                    context,
                    first,
                    end,
                    wanted.ctypes.data,
                    places.ctypes.data,
                    self.offsets.ctypes.data,
                    targets.ctypes.data,
                    via.ctypes.data,
                    self.cut.ctypes.data,
                    int(filling),
                    search.switch,
                )

            search.crew.run([partial(share, *blocks) for blocks in search.shares(last)])

        fill(nothing, np.zeros(1, np.uint16), False)
        self.offsets[1:] = np.cumsum(self.offsets[:-1])
        self.offsets[0] = 0
        self.count = int(self.offsets[-1])
        if 12 * self.count > available_memory():
            raise MemoryShort(f"the explored graph has {self.count:,} steps to keep, {12 * self.count / 2**30:.1f} GiB")
        self.targets = np.zeros(max(self.count, 1), np.uint32)
        self.via = np.zeros(max(self.count, 1), np.uint16)
        fill(self.targets, self.via, True)


class Graph:
    """The steps of a finished search that at least one of the recoveries may take, by the state that they lead to.

    Memory: 6 bytes a step twice while it is built, once afterwards, and 17 bytes a state.
    """

    def __init__(self, search: Search, recoveries: Collection[Recovery]) -> None:
        self.search = search
        self.recoveries = tuple(recoveries)
        self.allowed = [allowed(search, recovery) for recovery in self.recoveries]
        wanted = np.bitwise_or.reduce(self.allowed) if self.allowed else np.zeros(len(search.space.instances), np.uint8)
        steps = Steps(search, wanted)
        self.size, self.cut = steps.size, steps.cut
        self._starts = np.zeros(self.size + 1, np.uint64)
        self._starts[:-1] = np.cumsum(np.bincount(steps.targets[: steps.count], minlength=self.size))
        self._starts[-1] = steps.count
        self._sources, self._by = np.zeros_like(steps.targets), np.zeros_like(steps.via)
        search.machine.reverse(
            self.size,
            steps.offsets.ctypes.data,
            steps.targets.ctypes.data,
            steps.via.ctypes.data,
            self._starts.ctypes.data,
            self._sources.ctypes.data,
            self._by.ctypes.data,
        )

    def lost(self, number: int, *, past_cuts: bool) -> tuple[int, int] | None:
        """A source of a recovery that cannot reach a target: the least of the shallowest, packed, and its depth.

        With `past_cuts`, a state with a step that the scope's bound cut counts as a target: who knows where it leads.
        """
        search = self.search
        marks = np.zeros(self.size, np.uint8)
        best = np.zeros(search.layout.words, np.uint64)
        search.machine.seed(search.context, marks.ctypes.data, 0, search.levels[-1][1], number, 0, best.ctypes.data)
        if past_cuts:
            marks |= self.cut
        found = np.flatnonzero(marks)
        queue = np.zeros(self.size, np.uint32)
        queue[: len(found)] = found
        search.machine.spread(
            self._starts.ctypes.data,
            self._sources.ctypes.data,
            self._by.ctypes.data,
            self.allowed[number].ctypes.data,
            marks.ctypes.data,
            queue.ctypes.data,
            len(found),
        )
        return search.shallowest(marks, number)


def as_networkx(search: Search) -> nx.MultiDiGraph:
    """The whole explored graph, for the algorithms and drawings of networkx: worlds of some ten thousand states.

    Nodes are packed states; ``depth`` says how many steps away the nearest initial state is. An edge carries
    ``instance``, the step it is (under symmetry: up to exchange of elements).
    """
    import networkx as nx

    graph = nx.MultiDiGraph()
    for depth in range(len(search.levels)):
        graph.add_nodes_from(search.packed_states(depth), depth=depth)
    for state in list(graph):
        for instance, after in search.successors(state):
            graph.add_edge(state, search.canonical(after), instance=instance)
    return graph


def allowed(search: Search, recovery: Recovery) -> Marks:
    """By instance, whether a recovery may count on it: no fault, and nothing that it avoids."""
    return np.array(
        [i.action.kind != "fault" and i.action.name not in recovery.avoiding for i in search.space.instances], np.uint8
    )
