"""Random walks through a protocol, by the definition: quick to start in any world, and no proof of anything.

A violation is told without the steps of the walk that it can do without.

Recoveries are not judged: what can still be reached is a question about every run, and a walk is one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from model_check.evaluate import Instance, Refused, Space, State
from model_check.explore import _DEAD, DEAD_END, Counterexample, Interrupted, Progress
from model_check.minimise import dead, minimise
from spec.lang import Misuse, Protocol, Scope
from spec.lang.protocol import Property

T = TypeVar("T")


@dataclass(frozen=True)
class Simulation:
    """What the walks met.

    `coverage` counts steps per action, `goals` the states met in which each goal holds, `cut` the walks that ended
    where only steps past the scope's bound were left, `rested` those that ended where no step was left at all. The
    violation was met after `met` steps of a walk; its run is what remains of them without the needless ones, and need
    not be a shortest one. `reason` says why it stopped early, if so.
    """

    protocol: str
    scope: Scope
    seed: int
    walks: int
    steps: int
    longest: int
    rested: int
    cut: int
    coverage: dict[str, int]
    goals: dict[str, int]
    judged: tuple[str, ...]
    violation: Counterexample | None
    met: int
    reason: str
    seconds: float

    @property
    def never(self) -> tuple[str, ...]:
        """The actions that no walk took."""
        return tuple(name for name, count in self.coverage.items() if not count)


def simulate(
    protocol: Protocol,
    scope: Scope,
    *,
    seed: int = 0,
    walks: int = 100,
    length: int = 200,
    only: Collection[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Simulation:
    """Walk at random until a property is violated or all walks are done. The same seed gives the same walks.

    Each step takes an action at random among those that are possible, then one of its instances.

    Args:
        protocol: what to walk through.
        scope: how large a world.
        seed: of the random numbers.
        walks: how many walks.
        length: the most steps of one walk.
        only: names of the properties to judge; none: all.
        progress: called after each walk, and while needless steps are left out; may raise `Interrupted`.

    Raises:
        Misuse: the scope does not fit the protocol, or `only` names what a walk cannot judge.
    """
    if only is not None and (unknown := sorted(set(only) - set(protocol.properties) - {DEAD_END})):
        known = ", ".join((*protocol.properties, DEAD_END))
        raise Misuse(f"a walk through {protocol.name} cannot judge {unknown[0]!r}; it can judge {known}")
    walking = _Walking(Space(protocol, scope), random.Random(seed), only)
    began, done, reason = time.perf_counter(), 0, ""

    def tick(doing: str, depth: int) -> None:
        if progress is not None:
            seconds = time.perf_counter() - began
            progress(Progress(walking.steps + done, walking.steps, depth, done, seconds, doing))

    shorter: Counterexample | None = None
    try:
        while done < walks and walking.violation is None:
            walking.walk(length)
            done += 1
            tick("walking", walking.longest)
        if walking.violation is not None:
            shorter = minimise(walking.violation, partial(tick, "leaving out needless steps"))
    except (Interrupted, KeyboardInterrupt):
        reason = "interrupted"
    return Simulation(
        protocol=protocol.name,
        scope=scope,
        seed=seed,
        walks=done,
        steps=walking.steps,
        longest=walking.longest,
        rested=walking.rested,
        cut=walking.cut,
        coverage=walking.coverage,
        goals=walking.goals,
        judged=tuple(walking.judged),
        violation=shorter or walking.violation,
        met=walking.violation.steps if walking.violation else 0,
        reason=reason,
        seconds=time.perf_counter() - began,
    )


class _Walking:
    def __init__(self, space: Space, chance: random.Random, only: Collection[str] | None) -> None:
        self.space, self.chance = space, chance
        chosen = [p for p in space.protocol.properties.values() if only is None or p.name in only]
        self.invariants = [p for p in chosen if not p.stepwise]
        self.stepwise = [p for p in chosen if p.stepwise]
        self.dead_ends = only is None or DEAD_END in only
        self.judged = [*(p.name for p in (*self.invariants, *self.stepwise)), *([DEAD_END] if self.dead_ends else [])]
        self.initial = space.initial_states()
        if not self.initial:
            raise Misuse(f"{space.protocol.name}: no initial state in scope {space.scope.name}")
        self.by_action: dict[str, list[Instance]] = {name: [] for name in space.protocol.actions}
        for instance in space.instances:
            self.by_action[instance.action.name].append(instance)
        self.coverage = dict.fromkeys(space.protocol.actions, 0)
        self.goals = dict.fromkeys(space.protocol.goals, 0)
        self.steps = self.longest = self.rested = self.cut = 0
        self.violation: Counterexample | None = None

    def walk(self, length: int) -> None:
        state = self.chance.choice(self.initial)
        run: list[tuple[Instance | None, State]] = [(None, state)]
        if self._judge(run):
            return
        for _ in range(length):
            found = self._random_step(state)
            if isinstance(found, Refused) or found[0].action.kind == "fault":
                self._judge_rest(run)
            if isinstance(found, Refused):
                self.rested += found is Refused.DISABLED
                self.cut += found is Refused.CUT
                return
            if self.violation is not None:
                return
            instance, state = found
            run.append(found)
            self.steps += 1
            self.longest = max(self.longest, len(run) - 1)
            self.coverage[instance.action.name] += 1
            if self._judge(run):
                return

    def _random_step(self, state: State) -> tuple[Instance, State] | Refused:
        """A possible step, or whether there is none at all or only some past the bound."""
        why = Refused.DISABLED
        for name in self._shuffled(list(self.space.protocol.actions)):
            for instance in self._shuffled(self.by_action[name]):
                after = self.space.step(state, instance)
                if not isinstance(after, Refused):
                    return instance, after
                if after is Refused.CUT:
                    why = Refused.CUT
        return why

    def _shuffled(self, items: list[T]) -> list[T]:
        return self.chance.sample(items, len(items))

    def _judge(self, run: list[tuple[Instance | None, State]]) -> bool:
        """Whether the run's last state or step breaks something."""
        state = run[-1][1]
        for goal in self.space.protocol.goals.values():
            self.goals[goal.name] += self.space.holds(goal.node, state)
        for claim in self.invariants:
            if not self.space.holds(claim.node, state):
                return self._broken(claim, "property", run)
        for claim in self.stepwise if len(run) > 1 else ():
            if not self.space.holds(claim.node, run[-2][1], state):
                return self._broken(claim, "step property", run)
        return False

    def _broken(self, claim: Property, kind: str, run: list[tuple[Instance | None, State]]) -> bool:
        self.violation = Counterexample(claim.name, kind, claim.doc, self.space, tuple(run))
        return True

    def _judge_rest(self, run: list[tuple[Instance | None, State]]) -> None:
        """Whether the run's last state is a dead end: but for faults nothing is possible, and it may not rest."""
        if self.dead_ends and dead(self.space, run[-1][1]):
            self.violation = Counterexample(DEAD_END, "dead end", _DEAD, self.space, tuple(run))


__all__ = ["Simulation", "simulate"]
