"""What happens in the end, on every fair run: eventualities judged on the whole explored graph.

A claim that `source` leads to `target` fails where a run comes to a source, never meets a target from there on, has no
more faults in the end, and keeps every obligation. Such a run exists exactly where a fair component can be got to from
a source without meeting a target (`model_check.fairness`); it is told as a lasso (`model_check.lasso`).

*Violated* is said only of a run that is fair in the protocol itself, where no bound cuts any step. *Holds* is said of
the runs within the scope's bounds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np

from model_check.evaluate import Env, Refused, Space
from model_check.explore import (
    UNSEEN,
    Counterexample,
    Exploration,
    Interrupted,
    Loop,
    Outcome,
    Progress,
    Verdict,
    conclude,
    peak_memory,
)
from model_check.fairness import SYMMETRY, Bits, FairGraph, Mask, Obligation, obligations, packed
from model_check.lasso import Lasso, find_lasso, how_kept
from model_check.record import Claims
from model_check.search import Search
from model_check.symmetry import symmetric_sorts
from spec.lang import Eventuality, Misuse, Protocol, Scope
from spec.lang.nodes import Const, Node, Plus, Var, grounded, walk

MOST_CONDITIONS = 64
"""Conditions that are told apart in every state at once."""
HELD = "every run in this scope whose faults end, and that is fair as assumed"
CUT = "a run goes on only past the scope's bounds"
VACUOUS = "no state where it begins was reached"


@dataclass(frozen=True)
class Case:
    """An eventuality with values for its parameters."""

    claim: Eventuality
    values: Env
    source: Node
    target: Node


def judge(
    protocol: Protocol,
    scope: Scope,
    *,
    symmetry: bool = False,
    only: Collection[str] | None = None,
    workers: int = 2,
    max_states: int | None = None,
    max_seconds: float | None = None,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Exploration:
    """Explore every state of a protocol in a scope, and judge its eventualities on all fair runs.

    Args:
        protocol: what to explore.
        scope: how large a world.
        symmetry: refused; there so that the refusal says why.
        only: names of the eventualities to judge; none: all.
        workers: threads.
        max_states: give up (undetermined) past this many states.
        max_seconds: give up (undetermined) after this time.
        memory: bytes the search may grow by; none: most of what is free.
        progress: called often; may raise `Interrupted`.

    Raises:
        Misuse: the scope does not fit the protocol, `only` names something unknown, or symmetry is asked for.
        MemoryShort: the world or its graph does not fit in memory.
    """
    if symmetry:
        raise Misuse(SYMMETRY)
    if not protocol.eventualities:
        raise Misuse(f"{protocol.name} claims no eventuality")
    if only is not None and (unknown := sorted(set(only) - set(protocol.eventualities))):
        known = ", ".join(protocol.eventualities)
        raise Misuse(f"{protocol.name} has no eventuality {unknown[0]!r}; it has {known}")
    chosen = [claim for claim in protocol.eventualities.values() if only is None or claim.name in only]
    return Judging(Space(protocol, scope), chosen, workers, memory).run(max_states, max_seconds, progress)


class Judging:
    """A search whose states tell the conditions of eventualities and assumptions apart."""

    def __init__(self, space: Space, claims: list[Eventuality], workers: int, memory: int | None) -> None:
        self.space = space
        self.claims = claims
        start = time.perf_counter()
        self.cases = [case for claim in claims for case in cases(space, claim)]
        self.obligations = obligations(space)
        nodes = [*(o.where for o in self.obligations), *(n for c in self.cases for n in (c.source, c.target))]
        self.conditions = list(dict.fromkeys(nodes))
        if len(self.conditions) > MOST_CONDITIONS:
            raise Misuse(
                f"{space.protocol.name} in scope {space.scope.name}: {len(self.conditions)} conditions to tell apart, "
                f"and {MOST_CONDITIONS} can be at once: judge fewer eventualities"
            )
        self.search = Search(space, Claims(goals=tuple(self.conditions)), (), workers, memory)
        self.ready = time.perf_counter() - start

    def run(
        self, max_states: int | None, max_seconds: float | None, progress: Callable[[Progress], None] | None
    ) -> Exploration:
        """Explore, judge and conclude, as `judge` says."""
        search, began, peak = self.search, time.perf_counter(), peak_memory()
        reason = ""

        def tick(doing: str = "exploring") -> None:
            nonlocal reason
            seconds = time.perf_counter() - began
            if max_seconds is not None and seconds > max_seconds:
                reason = reason or f"stopped after {max_seconds:g} seconds"
                search.stop()
            if progress is not None:
                progress(Progress(search.states, search.steps, len(search.counts), search.counts[-1], seconds, doing))

        outcomes: dict[str, Outcome] = {}
        counterexample = None
        try:
            while not search.stopped and search.counts[-1]:
                tick()
                search.level(tick)
                if max_states is not None and search.states > max_states:
                    reason = reason or f"stopped past {max_states:,} states"
                    search.stop()
            judged = None
            for claim in self.claims:
                if not search.stopped:
                    tick("building the graph" if judged is None else f"asking whether {claim.name.replace('_', ' ')}")
                    judged = judged or Runs(FairGraph(search, self.obligations, self.conditions))
                    outcomes[claim.name], told = self._judge(judged, claim)
                    counterexample = counterexample or told
        except (Interrupted, KeyboardInterrupt):
            reason = "interrupted"
        finally:
            search.close()
        complete = tuple(outcomes.get(c.name) or _outcome(c, Verdict.UNDETERMINED, UNSEEN) for c in self.claims)
        verdict, why = conclude(complete, reason, HELD)
        counts = search.counts if search.counts[-1] else search.counts[:-1]
        coverage = dict.fromkeys(self.space.protocol.actions, 0)
        for instance, count in zip(self.space.instances, search.coverage, strict=True):
            coverage[instance.action.name] += count
        return Exploration(
            protocol=self.space.protocol.name,
            scope=self.space.scope,
            symmetric=(),
            verdict=verdict,
            reason=why,
            states=search.states,
            steps=search.steps,
            per_depth=tuple(counts),
            coverage=coverage,
            cuts=search.cuts,
            goals={},
            outcomes=complete,
            counterexample=counterexample,
            orbits=0,
            bits=search.layout.bits,
            workers=search.workers,
            seconds_ready=self.ready,
            seconds=time.perf_counter() - began,
            grown=max(peak_memory() - peak, 0),
            assumed=tuple(self.space.protocol.assumptions.values()),
        )

    def _judge(self, judged: Runs, claim: Eventuality) -> tuple[Outcome, Counterexample | None]:
        verdict, begun = Verdict.HOLDS, 0
        for case in (case for case in self.cases if case.claim is claim):
            begun += int((judged.graph.mask(case.source) & ~judged.graph.mask(case.target)).sum())
            found = judged.stays(case)
            if isinstance(found, Lasso):
                told = self._tell(judged.graph, case, found)
                return _outcome(claim, Verdict.VIOLATED, ""), told
            verdict = verdict if found is Verdict.HOLDS else found
        if verdict is Verdict.HOLDS and not begun:
            return _outcome(claim, Verdict.UNDETERMINED, VACUOUS), None
        return _outcome(claim, verdict, f"from {begun:,} states" if verdict is Verdict.HOLDS else CUT), None

    def _tell(self, graph: FairGraph, case: Case, lasso: Lasso) -> Counterexample:
        """The run, taken again by `evaluate`, which must find it as it is claimed to be."""
        search, space = self.search, self.space
        path = search.path(search.packed_at(lasso.way[0]), lasso.depth)
        run = search.run_of([*path, *(search.packed_at(position) for position in lasso.way[1:])])
        since, begins = lasso.depth, len(run) - 1
        for number, position in lasso.loop:
            instance = space.instances[number]
            after = space.step(run[-1][1], instance)
            assert not isinstance(after, Refused), "evaluate finds no step where the search found one"
            assert search.layout.pack(after) == search.packed_at(position), "evaluate finds another step"
            run.append((instance, after))
        start = run[begins][1]
        assert run[-1][1] == start, "the loop does not end where it begins"
        assert space.holds(case.source, run[since][1]), "evaluate finds no beginning"
        assert not any(space.holds(case.target, state) for _, state in run[since:]), "evaluate finds the target"
        loop = [(instance, state) for instance, state in run[begins + 1 :] if instance is not None]
        assert all(instance.action.kind != "fault" for instance, _ in loop), "a fault in the loop"
        kept = how_kept(space, graph.obligations, loop, start)
        assert all(how for _, how in kept), "evaluate finds the loop unfair"
        told = tuple((obligation_name(space, obligation), how) for obligation, how in kept)
        return Counterexample(
            case.claim.name,
            "eventuality",
            case.claim.doc,
            space,
            tuple(run),
            Loop(begins, since, case.values, told),
        )


class Runs:
    """The explored graph, asked for runs that break an eventuality."""

    def __init__(self, graph: FairGraph) -> None:
        self.graph = graph

    def stays(self, case: Case) -> Lasso | Verdict:
        """A run that stays where the target does not hold, or that there is none, or that the bounds leave it open."""
        graph = self.graph
        source, target = graph.mask(case.source), graph.mask(case.target)
        region = self.region(case)
        component = graph.components(region)
        if (component < 0).all():
            return Verdict.HOLDS
        for possible in (graph.possible, self._with_cuts()):
            if possible is not graph.possible:
                component = graph.components(region, possible)
                if (component < 0).all():
                    break
            lasso = find_lasso(graph, source, target, component, possible)
            if self._fair_without_bounds(lasso):
                return lasso
        return Verdict.UNDETERMINED

    def region(self, case: Case) -> Mask:
        """Where a run can get to from a source, with faults, without meeting a target."""
        graph, steps = self.graph, self.graph.steps
        avoided = graph.mask(case.target)
        seeds = graph.mask(case.source) & ~avoided
        marks = (seeds | avoided).astype(np.uint8)
        found = np.flatnonzero(seeds)
        queue = np.zeros(graph.size, np.uint32)
        queue[: len(found)] = found
        any_step = np.ones(len(graph.search.space.instances), np.uint8)
        graph.search.machine.spread(
            steps.offsets.ctypes.data,
            steps.targets.ctypes.data,
            steps.via.ctypes.data,
            any_step.ctypes.data,
            marks.ctypes.data,
            queue.ctypes.data,
            len(found),
        )
        region: Mask = (marks != 0) & ~avoided
        return region

    def _with_cuts(self) -> Bits:
        """What is possible at most: where a bound cut some step, it may have been one of any action with a sum."""
        actions = self.graph.search.space.protocol.actions
        summing = {
            name for name, a in actions.items() if any(isinstance(n, Plus) for w in a.writes for n in walk(w.value))
        }
        possible = self.graph.possible.copy()
        possible[self.graph.steps.cut != 0] |= packed(o.action in summing for o in self.graph.obligations)
        return possible

    def _fair_without_bounds(self, lasso: Lasso) -> bool:
        graph, space = self.graph, self.graph.search.space
        layout, pack = graph.search.layout, graph.search.packed_at
        start = layout.unpack(pack(lasso.way[-1]))
        loop = [(space.instances[i], layout.unpack(pack(position))) for i, position in lasso.loop]
        return all(how for _, how in how_kept(space, graph.obligations, loop, start))


def cases(space: Space, claim: Eventuality) -> Iterator[Case]:
    """An eventuality for every choice of its parameters, but for those that only exchange interchangeable elements.

    Exchanging them turns runs into runs and fair ones into fair ones, so that one choice answers for the others.
    """
    symmetric = symmetric_sorts(space)
    for args in itertools.product(*(range(space.scope.cardinality(var.sort)) for var in claim.params)):
        used: dict[str, int] = {}
        fresh = True
        for var, value in zip(claim.params, args, strict=True):
            if var.sort.name in symmetric:
                known = used.get(var.sort.name, 0)
                fresh = fresh and value <= known
                used[var.sort.name] = max(known, value + 1)
        if fresh:
            values = dict(zip(claim.params, args, strict=True))
            constants: dict[Var, Const] = {var: Const(var.sort, value) for var, value in values.items()}
            yield Case(claim, values, grounded(claim.source, constants), grounded(claim.target, constants))


def obligation_name(space: Space, obligation: Obligation) -> str:
    """``flush(engine 1)``, or the action alone where its parameters do not matter."""
    pairs = zip(obligation.assumption.params, obligation.choice, strict=True)
    names = [space.value_name(var.sort, value) for var, value in pairs]
    return obligation.action + (f"({', '.join(names)})" if names else "")


def _outcome(claim: Eventuality, verdict: Verdict, note: str) -> Outcome:
    return Outcome(claim.name, "eventuality", claim.doc, verdict, note)


__all__ = ["CUT", "VACUOUS", "Case", "Judging", "Runs", "cases", "judge", "obligation_name"]
