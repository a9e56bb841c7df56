"""Exhaustive, exact, breadth-first exploration of a protocol in a scope, and what it concludes.

The verdict is *holds* only where every state of the scope was seen. A cap, a time limit or an interrupt makes it
*undetermined*, and so does a goal that was never reached or a recovery that would need what the scope's bound cut off.
"""

from __future__ import annotations

import enum
import resource
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from model_check.checkpoint import Checkpoint, Unfit
from model_check.evaluate import Env, Instance, Space, State
from model_check.graph import Graph
from model_check.interrupts import remembered
from model_check.links import Links
from model_check.record import DEAD_END, Claims
from model_check.runs import DiskShort
from model_check.search import Found, MemoryShort
from model_check.spilling import Spilling
from model_check.symmetry import symmetric_sorts
from spec.lang import Assumption, Misuse, Protocol, Scope
from spec.lang.protocol import Property

Run = tuple[tuple[Instance | None, State], ...]
UNSEEN = "not every state was seen"


class Verdict(enum.Enum):
    """What an exploration says of a claim."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True)
class Outcome:
    """The verdict on one claim. `kind`: property, step property, recovery, eventuality, goal or dead end."""

    name: str
    kind: str
    doc: str
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True)
class Loop:
    """How a run goes on for ever: its last state is that at position `begins`, and what lies between is repeated.

    `since` is the position of the state where something was promised that never comes, `values` what the parameters of
    the claim stand for. `kept` tells how the loop is fair to every action that is possible somewhere in it: the
    action, and in words why it is not passed over.
    """

    begins: int
    since: int
    values: Env
    kept: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Counterexample:
    """A run that breaks a claim, replayed by `evaluate`; its first state has no action before it.

    A shortest one, but where it has a `loop`: then the way to the loop is a shortest one.
    """

    claim: str
    kind: str
    doc: str
    space: Space = field(repr=False)
    run: Run = field(repr=False)
    loop: Loop | None = None

    @property
    def steps(self) -> int:
        """How many steps the run takes."""
        return len(self.run) - 1


@dataclass(frozen=True)
class Progress:
    """Where a running exploration stands."""

    states: int
    steps: int
    depth: int
    frontier: int
    seconds: float
    doing: str


@dataclass(frozen=True)
class Exploration:
    """Everything one exploration found.

    `states` counts representatives where `symmetric` is not empty, and `orbits` the states that they stand for (0 where
    it was not asked for, or could not be counted in 64 bits). `per_depth[d]` counts states first met after `d` steps.
    `cuts` counts, per sort, the steps that the scope's bound cut. Times are in seconds, `grown` is the growth of the
    process's peak memory in bytes, `disk` the most bytes that states took on disk at once (0: all were in memory).
    `assumed` is what eventualities were judged under.
    """

    protocol: str
    scope: Scope
    symmetric: tuple[str, ...]
    verdict: Verdict
    reason: str
    states: int
    steps: int
    per_depth: tuple[int, ...]
    coverage: dict[str, int]
    cuts: dict[str, int]
    goals: dict[str, int]
    outcomes: tuple[Outcome, ...]
    counterexample: Counterexample | None
    orbits: int
    bits: int
    workers: int
    seconds_ready: float
    seconds: float
    grown: int
    disk: int = 0
    assumed: tuple[Assumption, ...] = ()

    @property
    def depth(self) -> int:
        """The largest number of steps from an initial state."""
        return len(self.per_depth) - 1

    @property
    def never(self) -> tuple[str, ...]:
        """The actions that were never taken."""
        return tuple(name for name, count in self.coverage.items() if not count)

    def outcome(self, name: str) -> Outcome:
        """The outcome of one claim."""
        return next(o for o in self.outcomes if o.name == name)


class Interrupted(Exception):  # noqa: N818 - raised by a caller's `progress` to end an exploration in order
    """Stop now, and report what was found so far as undetermined."""


def explore(
    protocol: Protocol,
    scope: Scope,
    *,
    symmetry: bool = True,
    only: Collection[str] | None = None,
    workers: int = 2,
    max_states: int | None = None,
    max_seconds: float | None = None,
    memory: int | None = None,
    checkpoint: Path | None = None,
    orbits: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Explore every state of a protocol in a scope, or as far as the first violation.

    Args:
        protocol: what to explore.
        scope: how large a world.
        symmetry: explore one state of those that differ only by exchanging interchangeable elements.
        only: names of the properties and recoveries to judge; none: all.
        workers: threads.
        max_states: give up (undetermined) past this many states.
        max_seconds: give up (undetermined) after this time.
        memory: bytes the search may grow by, before states go to disk; none: most of what is free.
        checkpoint: a folder that keeps every finished level, so that the same exploration goes on from the last one;
            none: states that do not fit in memory are in a folder for temporary files meanwhile.
        orbits: also count the states that representatives stand for.
        progress: called at every level and about ten times a second; may raise `Interrupted`.

    Raises:
        Misuse: the scope does not fit the protocol, or `only` names something unknown.
        MemoryShort: there is not even memory for the initial states, or to begin on disk.
        Unfit: the checkpoint is of something else, or torn.
    """
    known = {**protocol.properties, **protocol.recoveries}
    if only is not None and (unknown := sorted(set(only) - set(known) - {DEAD_END})):
        raise Misuse(f"{protocol.name} has no property {unknown[0]!r}; it has {', '.join((*known, DEAD_END))}")
    space = Space(protocol, scope)
    with ExitStack() as stack:
        kept = None if checkpoint is None else stack.enter_context(closing(Checkpoint(checkpoint)))
        exploring = _Exploring(space, symmetry, only, workers, memory=memory, checkpoint=kept)
        stack.callback(exploring.search.close)
        return exploring.run(max_states, max_seconds, orbits, progress)


class _Exploring:
    def __init__(
        self,
        space: Space,
        symmetry: bool,
        only: Collection[str] | None,
        workers: int,
        *,
        memory: int | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        chosen = space.protocol.properties.values()
        properties = [p for p in chosen if only is None or p.name in only]
        self.invariants = [p for p in properties if not p.stepwise]
        self.stepwise = [p for p in properties if p.stepwise]
        self.recoveries = [r for r in space.protocol.recoveries.values() if only is None or r.name in only]
        self.dead_ends = only is None or DEAD_END in only
        self.space = space
        start = time.perf_counter()
        claims = Claims(
            invariants=tuple(p.node for p in self.invariants),
            steps=tuple(p.node for p in self.stepwise),
            goals=tuple(g.node for g in space.protocol.goals.values()),
            rest=tuple(g.node for g in space.protocol.rest.values()),
            recoveries=tuple((r.source, r.target) for r in self.recoveries),
        )
        symmetric = symmetric_sorts(space) if symmetry else ()
        self.checkpoint = checkpoint
        self.search = Spilling(space, claims, symmetric, workers, memory, checkpoint=checkpoint)
        self.ready = time.perf_counter() - start

    def run(
        self,
        max_states: int | None,
        max_seconds: float | None,
        orbits: bool,
        progress: Callable[[Progress], None] | None,
    ) -> Exploration:
        with remembered() as interrupt:
            return self._run(max_states, max_seconds, orbits, progress, interrupt)

    def _run(
        self,
        max_states: int | None,
        max_seconds: float | None,
        orbits: bool,
        progress: Callable[[Progress], None] | None,
        interrupt: Callable[[], None],
    ) -> Exploration:
        search, began, peak = self.search, time.perf_counter(), peak_memory()
        reason, complete = "", False

        def tick(doing: str = "exploring") -> None:
            nonlocal reason
            interrupt()
            seconds = time.perf_counter() - began
            if max_seconds is not None and seconds > max_seconds:
                reason = f"stopped after {max_seconds:g} seconds"
                search.stop()
            if progress is not None:
                progress(Progress(search.states, search.steps, len(search.counts), search.counts[-1], seconds, doing))

        counterexample, unreachable = None, {}
        try:
            found = self._violation()
            while not found and not search.stopped and search.counts[-1]:
                tick()
                search.level(tick)
                found = self._violation()
                if max_states is not None and search.states > max_states:
                    reason = reason or f"stopped past {max_states:,} states"
                    search.stop()
                interrupt()
            complete = not search.stopped and not search.counts[-1]
            if found:
                counterexample = self._tell(found)
            elif complete and self.recoveries:
                doing = "building the graph"
                tick(doing)
                links = partial(Links, tick=lambda: tick(doing))
                graph = links(search, self.recoveries) if search.on_disk else Graph(search, self.recoveries)
                for number, recovery in enumerate(self.recoveries):
                    doing = f"asking whether {recovery.name.replace('_', ' ')}"
                    tick(doing)
                    lost = self._unreachable(graph, number)
                    if search.stopped:
                        break
                    unreachable[recovery.name] = lost
                    counterexample = counterexample or lost[1]
        except (Interrupted, KeyboardInterrupt):
            reason = "interrupted"
        except (DiskShort, MemoryShort) as error:
            reason = str(error)
        if reason and self.checkpoint is not None:
            reason += f"; {self.checkpoint.folder} keeps what was found, to go on from"
        outcomes = self._outcomes(counterexample, complete, unreachable)
        verdict, reason = conclude(outcomes, reason)
        counts = search.counts if search.counts[-1] else search.counts[:-1]
        coverage = dict.fromkeys(self.space.protocol.actions, 0)
        for instance, count in zip(self.space.instances, search.coverage, strict=True):
            coverage[instance.action.name] += count
        return Exploration(
            protocol=self.space.protocol.name,
            scope=self.space.scope,
            symmetric=search.symmetric,
            verdict=verdict,
            reason=reason,
            states=search.states,
            steps=search.steps,
            per_depth=tuple(counts),
            coverage=coverage,
            cuts=search.cuts,
            goals=dict(zip(self.space.protocol.goals, search.goals, strict=True)),
            outcomes=outcomes,
            counterexample=counterexample,
            orbits=search.orbit_total() if orbits and search.symmetric else 0,
            bits=search.layout.bits,
            workers=search.workers,
            seconds_ready=self.ready,
            seconds=time.perf_counter() - began,
            grown=max(peak_memory() - peak, 0),
            disk=search.disk,
        )

    def _violation(self) -> list[Found]:
        return [f for f in self.search.found() if f.kind != 2 or self.dead_ends]

    def _tell(self, found: list[Found]) -> Counterexample:
        """The shortest violation: a dead end lies one step before what the last level found."""
        level = len(self.search.counts) - 1
        first = min(found, key=lambda f: ((2, 0, 1).index(f.kind), f.prop))
        depth = level if first.kind == 0 else level - 1
        run = self.search.run_of(self.search.path(first.packed, depth))
        state = run[-1][1]
        if first.kind == 2:
            ordinary = [i for i, _ in self.space.successors(state) if i.action.kind != "fault"]
            assert not ordinary, "evaluate finds a step where the search found none"
            return Counterexample(DEAD_END, "dead end", _DEAD, self.space, tuple(run))
        if first.kind == 0:
            claim = self.invariants[first.prop]
            assert not self.space.holds(claim.node, state), f"evaluate does not find {claim.name} violated"
            return Counterexample(claim.name, "property", claim.doc, self.space, tuple(run))
        claim = self.stepwise[first.prop]
        instance, after = next(
            (i, t) for i, t in self.space.successors(state) if not self.space.holds(claim.node, state, t)
        )
        return Counterexample(claim.name, "step property", claim.doc, self.space, (*run, (instance, after)))

    def _unreachable(self, graph: Graph | Links, number: int) -> tuple[Verdict, Counterexample | None]:
        """Whether some source state has lost the target for good."""
        if graph.lost(number, past_cuts=False) is None:
            return Verdict.HOLDS, None
        lost = graph.lost(number, past_cuts=True)
        if lost is None:
            return Verdict.UNDETERMINED, None
        recovery, (packed, depth) = self.recoveries[number], lost
        run = self.search.run_of(self.search.path(packed, depth))
        return Verdict.VIOLATED, Counterexample(recovery.name, "recovery", recovery.doc, self.space, tuple(run))

    def _outcomes(
        self,
        counterexample: Counterexample | None,
        complete: bool,
        unreachable: dict[str, tuple[Verdict, Counterexample | None]],
    ) -> tuple[Outcome, ...]:
        broken = counterexample.claim if counterexample else ""
        open_ = Verdict.HOLDS if complete else Verdict.UNDETERMINED
        note = "" if complete else UNSEEN
        result = [
            Outcome(p.name, _kind(p), p.doc, *((Verdict.VIOLATED, "") if p.name == broken else (open_, note)))
            for p in (*self.invariants, *self.stepwise)
        ]
        if self.dead_ends:
            verdict = Verdict.VIOLATED if broken == DEAD_END else open_
            result.append(Outcome(DEAD_END, "dead end", _DEAD, verdict, "" if verdict is Verdict.VIOLATED else note))
        for r in self.recoveries:
            judged = r.name in unreachable
            verdict = unreachable[r.name][0] if judged else Verdict.UNDETERMINED
            open_why = "the scope's bound cuts the way there" if judged else note or "it was not judged"
            why = open_why if verdict is Verdict.UNDETERMINED else ""
            result.append(Outcome(r.name, "recovery", r.doc, verdict, why))
        reached = dict(zip(self.space.protocol.goals, self.search.goals, strict=True))
        for goal in self.space.protocol.goals.values():
            count = reached[goal.name]
            verdict = Verdict.HOLDS if count else Verdict.UNDETERMINED
            result.append(
                Outcome(goal.name, "goal", goal.doc, verdict, f"in {count:,} states" if count else "not reached")
            )
        return tuple(result)


_DEAD = "Where nothing but a fault can happen any more, the protocol says that it may rest."


def _kind(claim: Property) -> str:
    return "step property" if claim.stepwise else "property"


def conclude(
    outcomes: tuple[Outcome, ...], reason: str, held: str = "every state of the scope was seen"
) -> tuple[Verdict, str]:
    """The verdict on all claims together, and its reason: the one given, or `held` where all hold."""
    for outcome in outcomes:
        if outcome.verdict is Verdict.VIOLATED:
            return Verdict.VIOLATED, f"{outcome.name} is violated"
    if reason:
        return Verdict.UNDETERMINED, reason
    for outcome in outcomes:
        if outcome.verdict is Verdict.UNDETERMINED:
            return Verdict.UNDETERMINED, f"{outcome.kind} {outcome.name}: {outcome.note}"
    return Verdict.HOLDS, held


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


__all__ = [
    "DEAD_END",
    "Counterexample",
    "Exploration",
    "Interrupted",
    "MemoryShort",
    "Outcome",
    "Progress",
    "Unfit",
    "Verdict",
    "explore",
]
