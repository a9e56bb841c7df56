"""Eventualities judged by trying every way in which a run can be fair, one by one, in plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import networkx as nx

from model_check.evaluate import Env, Instance, Refused, Space, State
from model_check.explore import Counterexample
from spec.lang import Assumption
from spec.lang.nodes import Node, Var

MOST = 300
"""States of the largest world that is worth the wait."""
Duty = tuple[Assumption, str, Env]


class Plain:
    """A space as plain Python sees it: every state, every step, every duty, by `evaluate` alone."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.steps: dict[State, list[tuple[Instance, State]]] = {}
        self.cuts: dict[State, list[Instance]] = {}
        waiting = list(space.initial_states())
        while waiting and len(self.steps) <= MOST:
            state = waiting.pop()
            if state not in self.steps:
                self.steps[state] = list(space.successors(state))
                self.cuts[state] = [i for i in space.instances if space.step(state, i) is Refused.CUT]
                waiting += [after for _, after in self.steps[state]]
        self.complete = not waiting
        self.duties: list[Duty] = [
            (assumption, action, values)
            for assumption in space.protocol.assumptions.values()
            for action in assumption.actions
            for values in self.choices(assumption.params)
        ]

    def choices(self, params: tuple[Var, ...]) -> Iterator[Env]:
        for args in itertools.product(*(range(self.space.scope.cardinality(p.sort)) for p in params)):
            yield dict(zip(params, args, strict=True))

    def holds(self, node: Node, state: State, values: Env) -> bool:
        return bool(self.space.value(node, state, values))

    def is_done(self, duty: Duty, state: State, instance: Instance, after: State | None) -> bool:
        assumption, action, values = duty
        return (
            instance.action.name == action
            and after != state
            and all(instance.env[param] == value for param, value in values.items())
            and self.holds(assumption.where, state, values)
        )

    def is_possible(self, duty: Duty, state: State, *, past_cuts: bool) -> bool:
        within = any(self.is_done(duty, state, instance, after) for instance, after in self.steps[state])
        return within or (past_cuts and any(self.is_done(duty, state, i, None) for i in self.cuts[state]))

    def stays(self, source: Node, target: Node, values: Env, *, past_cuts: bool) -> bool:
        """Whether a fair run comes to a source and never to a target from there on."""
        begun = [s for s in self.steps if self.holds(source, s, values) and not self.holds(target, s, values)]
        region = set(begun)
        while begun:
            for _, after in self.steps[begun.pop()]:
                if after not in region and not self.holds(target, after, values):
                    region.add(after)
                    begun.append(after)
        possible = {s: [self.is_possible(d, s, past_cuts=past_cuts) for d in self.duties] for s in region}
        # A fair run does each duty for ever or, from some time on, none is possible: of a weak one, not all the time.
        for never in itertools.product([False, True], repeat=len(self.duties)):
            strong = [n for n, duty in enumerate(self.duties) if duty[0].strength == "strong"]
            usable = {s for s in region if not any(never[n] and possible[s][n] for n in strong)}
            graph = nx.DiGraph()
            graph.add_nodes_from(usable)
            for state in usable:
                for instance, after in self.steps[state]:
                    if after in usable and after != state and instance.action.kind != "fault":
                        graph.add_edge(state, after)
            for component in nx.strongly_connected_components(graph):
                if all(self.kept(n, never[n], component, possible) for n in range(len(self.duties))):
                    return True
        return False

    def kept(self, number: int, never: bool, component: set[State], possible: dict[State, list[bool]]) -> bool:
        duty = self.duties[number]
        if never:
            return duty[0].strength == "strong" or not all(possible[s][number] for s in component)
        return any(
            after in component and self.is_done(duty, state, instance, after)
            for state in component
            for instance, after in self.steps[state]
        )


def check_told(plain: Plain, told: Counterexample) -> None:
    """The lasso is a fair run of the protocol that begins and never ends."""
    claim, loop = plain.space.protocol.eventualities[told.claim], told.loop
    assert loop is not None
    states = [state for _, state in told.run]
    assert states[0] in plain.space.initial_states()
    for before, (instance, after) in zip(states, told.run[1:], strict=False):
        assert instance is not None
        assert plain.space.step(before, instance) == after
    assert states[-1] == states[loop.begins]
    assert plain.holds(claim.source, states[loop.since], loop.values)
    assert not any(plain.holds(claim.target, state, loop.values) for state in states[loop.since :])
    assert loop.since <= loop.begins
    repeated = list(zip(states[loop.begins :], told.run[loop.begins + 1 :], strict=False))
    assert all(instance is not None and instance.action.kind != "fault" for _, (instance, _) in repeated)
    for duty in plain.duties:
        possible = [plain.is_possible(duty, state, past_cuts=True) for state in states[loop.begins :]]
        done = any(i is not None and plain.is_done(duty, state, i, after) for state, (i, after) in repeated)
        assert done or not (any(possible) if duty[0].strength == "strong" else all(possible))
