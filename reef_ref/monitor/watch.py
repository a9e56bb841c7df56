"""The monitor: takes what coordinators and engines tell, while it happens, and says what is wrong and what is known.

Two kinds of lines come in. Those of the coordinator (`reef_ref.events`) are held against the publication protocol: the
exact set of states that the deployment may be in is kept (`reef_ref.monitor.validate`). Those of each engine's ranks
(`reef_ref.rank_events`) are judged rank by rank (`reef_ref.monitor.ranks`). Neither order is taken from a clock; see
`reef_ref.monitor.order`. After a gap, what was not seen is *unknown* until the next settled state (of the deployment: a
record COMPLETE or REJECTED; of a rank: a flush or a start).

Nothing here does anything about what it finds (`reef_ref.monitor.respond`) or waits for anything. Memory is bounded by
the engines and by what may be the case, never by how long it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, TypeVar

from model_check.explain import Verdict
from reef_ref import events
from reef_ref.events import Line
from reef_ref.monitor.notice import CONFORMS, Freshness, Violation
from reef_ref.monitor.order import Lost, Numbered, Sequencer
from reef_ref.monitor.ranks import STORY, RankWatch
from reef_ref.monitor.trace import Unreadable, unlogged_by
from reef_ref.monitor.validate import Finding, Validator, called
from reef_ref.rank_events import Beat, RankEvent

__all__ = ["Counts", "EngineStatus", "Monitor", "Status"]

T = TypeVar("T")
OBJECTIONS = 3
"""Reasons that are told of an event that nothing explains."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What is known of one engine, over all of its ranks: the worst of them.

    `sources` names its ranks' processes, `load_id` what all of them run on, if that is one and the same. `sharing` is
    whether any of them shares prefixes; none where that was not heard of all.
    """

    freshness: Freshness
    why: str
    load_id: str | None
    paused: str | None
    sources: tuple[str, ...]
    sharing: bool | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """What came in. `lost`, `late` and `repeated` count events; `waiting` those that wait for a missing one."""

    coordinator: int
    ranks: int
    violations: int
    lost: int
    late: int
    repeated: int
    waiting: int
    resynchronised: int


@dataclass(frozen=True, slots=True)
class Status:
    """What is known now.

    `deployment` is whether a coordinator was heard and its possible states are known, `states` how many there may be,
    and `latched` whether it may have fenced the engines; none where no coordinator was heard.
    """

    engines: dict[int, EngineStatus]
    deployment: bool
    states: int
    latched: bool | None
    counts: Counts

    def held(self, engine: int) -> bool:
        """Whether somebody may keep an engine from generating."""
        return bool(self.latched) or self.engines[engine].paused is not None

    def plain(self) -> dict[str, Any]:
        """The same, of types that JSON has."""
        fields = asdict(self)
        for engine in fields["engines"].values():
            engine["freshness"] = engine["freshness"].value
        return fields


class Monitor:
    """Judges what it is told. Not thread-safe: one thread feeds it.

    Args:
        engines: how many slots the deployment has.
        on_violation: called with each violation, at once.
        on_line, on_rank: called with what was told, each once and in the order in which it is judged.
        window: how many events may wait for one that is missing.
    """

    def __init__(
        self,
        engines: int,
        on_violation: Callable[[Violation], None] = lambda _: None,
        *,
        on_line: Callable[[Line], None] = lambda _: None,
        on_rank: Callable[[int, RankEvent], None] = lambda _, __: None,
        window: int = 256,
    ) -> None:
        self._engines = engines
        self._on_violation = on_violation
        self._on_line = on_line
        self._on_rank = on_rank
        self._lines: Sequencer[Line] = Sequencer(window)
        self._rank_events: Sequencer[tuple[int, RankEvent]] = Sequencer(window)
        self._ranks: dict[int, dict[int, RankWatch]] = {engine: {} for engine in range(engines)}
        self._told: deque[Line | Lost] = deque(maxlen=STORY)
        self._heard_first = ""
        self._coordinator_events = self._rank_events_seen = self._violations = self._resynchronised = 0

    @cached_property
    def _validator(self) -> Validator:
        """Made when a coordinator or a guard is first heard: where there is none, nothing has to be got ready."""
        return Validator(self._engines, unlogged=unlogged_by([self._heard_first]))

    # What is fed

    def coordinator(self, line: Line) -> None:
        """Take what a coordinator, a guard, the service or a simulated engine tells."""
        self._heard_first = self._heard_first or line.source
        self._each(self._lines.put(Numbered(line.source, line.number, line)), self._judge)

    def rank(self, engine: int, event: RankEvent) -> None:
        """Take what a rank of an engine tells; `engine` is its slot. Slots that there are not, are an error."""
        if engine not in self._ranks:
            message = f"engine {engine} of {len(self._ranks)}"
            raise Unreadable(message)
        source = f"engine:{engine}/rank:{event.rank}/{event.pid}"
        watch = self._ranks[engine].get(event.rank)
        if watch is not None and watch.source == source:
            watch.heard()
        if isinstance(event, Beat):
            self._each(self._rank_events.reached(source, event.number), self._judge_rank)
            self._on_rank(engine, event)
            return
        self._each(self._rank_events.put(Numbered(source, event.number, (engine, event))), self._judge_rank)

    def give_up(self) -> None:
        """Wait no longer for what is missing: call it when that has taken too long."""
        self._each(self._lines.give_up(), self._judge)
        self._each(self._rank_events.give_up(), self._judge_rank)

    def silent(self, engine: int, reason: str) -> None:
        """Nothing was heard of an engine for too long."""
        for watch in self._ranks[engine].values():
            watch.silent(reason)

    # What is known

    @property
    def waiting(self) -> int:
        """How many events wait for one that is missing."""
        return self._lines.waiting + self._rank_events.waiting

    def status(self) -> Status:
        """What is known now."""
        heard = self._coordinator_events > 0
        explainer = self._validator.explainer if heard else None
        return Status(
            engines={engine: self._engine_status(engine) for engine in self._ranks},
            deployment=explainer is not None and not explainer.lost,
            states=0 if explainer is None else explainer.states,
            latched=None if explainer is None else explainer.lost or 1 in explainer.values("latch"),
            counts=Counts(
                coordinator=self._coordinator_events,
                ranks=self._rank_events_seen,
                violations=self._violations,
                lost=self._lines.lost + self._rank_events.lost,
                late=self._lines.late + self._rank_events.late,
                repeated=self._lines.repeated + self._rank_events.repeated,
                waiting=self.waiting,
                resynchronised=self._resynchronised + (self._validator.resynchronised if heard else 0),
            ),
        )

    def _engine_status(self, engine: int) -> EngineStatus:
        ranks = list(self._ranks[engine].values())
        if not ranks:
            return EngineStatus(Freshness.UNKNOWN, "nothing was heard of it yet", None, None, ())
        worst = min(ranks, key=lambda watch: _WORST_FIRST.index(watch.freshness))
        loads, pauses = {watch.load_id for watch in ranks}, {watch.paused for watch in ranks}
        return EngineStatus(
            worst.freshness,
            worst.why,
            loads.pop() if len(loads) == 1 else None,
            pauses.pop() if len(pauses) == 1 else None,
            tuple(watch.source for watch in ranks),
            _any_of(watch.sharing for watch in ranks),
        )

    # How it is judged

    def _each(self, found: Iterator[Numbered[T] | Lost], judge: Callable[[Numbered[T] | Lost], None]) -> None:
        for item in found:
            judge(item)

    def _judge(self, found: Numbered[Line] | Lost) -> None:
        if isinstance(found, Lost):
            self._told.append(found)
            self._forget(f"event {found.first} of {found.source} is missing")
            return
        line = found.item
        self._coordinator_events += 1
        self._told.append(line)
        if isinstance(line.event, events.Die | events.Retire | events.EmptySlot):
            # Whatever its ranks did not tell, they will not tell any more.
            self._ranks.get(line.event.engine, {}).clear()
        if self._validator.judge(line) is Verdict.INEXPLICABLE and (finding := self._validator.finding) is not None:
            self._violated(_as_violation(finding, tuple(map(_told, self._told))))
            self._forget(f"event {line.number} of {line.source} has no place in the protocol")
        self._on_line(line)

    def _forget(self, reason: str) -> None:
        """Go on from the next settled state."""
        self._resynchronised += self._validator.resynchronised
        self._validator.begin()
        self._validator.lose(reason)

    def _judge_rank(self, found: Numbered[tuple[int, RankEvent]] | Lost) -> None:
        if isinstance(found, Lost):
            for watches in self._ranks.values():
                for watch in watches.values():
                    if watch.source == found.source:
                        watch.lose(f"event {found.first} was not seen")
            return
        engine, event = found.item
        self._rank_events_seen += 1
        watches = self._ranks[engine]
        if event.rank not in watches or watches[event.rank].source != found.source:
            watches[event.rank] = RankWatch(engine, found.source)
        watch = watches[event.rank]
        for violation in watch.feed(event):
            self._violated(violation)
        self._on_rank(engine, event)

    def _violated(self, violation: Violation) -> None:
        self._violations += 1
        self._on_violation(violation)


_WORST_FIRST = (Freshness.STALE, Freshness.UNKNOWN, Freshness.FRESH)


def _any_of(answers: Iterable[bool | None]) -> bool | None:
    """Whether one is true; none where that is not known."""
    found = set(answers)
    return True if True in found else None if None in found else False


def _told(what: Line | Lost) -> str:
    """A step of a story. Made when there is one to tell: most of what comes in is never told again."""
    if isinstance(what, Lost):
        return f"events {what.first} to {what.last} of {what.source} are lost"
    return f"{what.number}. {called(what.event)}"


def _as_violation(finding: Finding, story: tuple[str, ...]) -> Violation:
    reasons = "; ".join(map(str, finding.objections[:OBJECTIONS]))
    return Violation(
        "no_stale_hit" if finding.note else CONFORMS,
        getattr(finding.event, "engine", None),
        finding.source,
        finding.number,
        finding.note or f"{called(finding.event)} has no place in the protocol: {reasons}",
        story,
    )
