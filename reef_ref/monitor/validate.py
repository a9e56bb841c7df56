"""Validate a trace while it is read: explained by the publication protocol, not explained by it, or unknown.

Memory is bounded by what may be the case, never by how long the trace is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from model_check.evaluate import Space
from model_check.explain import Explainer, Held, Objection, Verdict
from reef_ref import events
from reef_ref.monitor.trace import UNLOGGED, WATCHED, Reader, Unreadable, unlogged_by, world
from spec.lang import Protocol, Scope, Step, when
from spec.publication import publication
from spec.publication.state import Errand, Marker, Phase, Request, Slot, Stage, State, forget

LONGEST = 1 << 20
"""Bytes that a line may have."""
LOOKED_AT = 1000
"""Lines that are read before the first is judged, to learn how many engines there are."""
MOST_ENGINES = 64
SETTLED = {"record_complete": Marker.COMPLETE, "record_rejected": Marker.REJECTED}
"""Events after which enough is known to begin again."""
PROVED = (
    "sharing_only_with_retract",
    "retract_keeps_kv_pure",
    "in_place_keeps_kv_private",
    "provenance_is_complete",
    "empty_slots_hold_nothing",
    "memory_mirrors_disk",
    "latch_covers_pause",
    "uniform_when_serving",
)
"""Properties that exploration has shown to hold everywhere, so that what violates one need not be thought possible."""


class Garbled(ValueError):  # noqa: N818 - read as a word
    """A line of a trace cannot be read."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


@dataclass(frozen=True)
class Numbered:
    """An event and the line of the trace that it stands on, from 1."""

    line: int
    event: events.Line


def read(stream: Iterable[bytes]) -> Iterator[Numbered]:
    """The events of a trace, line by line. Blank lines are skipped.

    Raises:
        Garbled: a line is not an event; the last one may have been cut off while it was written.
    """
    for number, raw in enumerate(stream, 1):
        if len(raw) > LONGEST:
            raise Garbled(number, f"longer than {LONGEST:,} bytes")
        if raw.isspace():
            continue
        try:
            line = events.read_line(raw)
        except events.MalformedEvent as error:
            if not raw.endswith(b"\n"):
                raise Garbled(number, "is cut off: the trace is truncated") from error
            raise Garbled(number, " ".join(str(error).split())[:200]) from error
        yield Numbered(number, line)


def engines_in(lines: Iterable[Numbered]) -> int:
    """How many engines there are, by the highest slot that is named; at least one."""
    highest = 0
    for numbered in lines:
        event = numbered.event.event
        named = [getattr(event, name, ()) for name in ("engine", "source", "destination", "survivors", "engines")]
        for slots in named:
            highest = max(highest, *(slots if isinstance(slots, tuple) else (slots,)), 0)
    return highest + 1


@dataclass(frozen=True)
class Finding:
    """The first event that no behaviour explains, and why.

    `possible` names the steps that the protocol could have taken there, `note` says in words what was seen where the
    objections speak of a cell only.
    """

    line: int
    source: str
    number: int
    event: events.Event
    objections: tuple[Objection, ...]
    possible: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Report:
    """What a trace is. `states` bounds how many states the deployment may be in, 0 where nothing is known."""

    verdict: Verdict
    events: int
    engines: int
    finding: Finding | None
    reason: str
    properties: dict[str, Held]
    repeated: int
    gaps: int
    resynchronised: int
    states: int


def deployment() -> Protocol:
    """The publication protocol where whoever runs a deployment may also end it while nothing is wrong with it.

    What that leaves is what a crash leaves after engines were retired. A coordinator that refused the record that it
    found may die as well, as a process may: the next one finds the same.
    """
    protocol = publication.variant(publication.name, publication.doc)
    protocol.change_action("tear_down", guard=())
    protocol.remove_action("crash")

    @protocol.fault(by="coordinator")
    def crash(s: State) -> Step:
        """The coordinator's process is gone; engines stay as they are."""
        return when(s.stage != Stage.DOWN).then(**forget())

    return protocol


class Validator:
    """Takes events one at a time, in the order in which they happened.

    Args:
        engines: how many slots the deployment has.
        unlogged: actions of the protocol that nobody tells.
        judged: properties to judge on the way. Exploration has shown that the right protocol violates none, so that
            this is for a trace that another protocol explains.
        protocol: what should explain the trace; none: `deployment`.
        scope: the world, if another one than engines call for.
    """

    def __init__(
        self,
        engines: int,
        *,
        unlogged: Collection[str] = UNLOGGED,
        judged: Collection[str] = (),
        protocol: Protocol | None = None,
        scope: Scope | None = None,
    ) -> None:
        self.engines = engines
        protocol = protocol or deployment()
        self.space = Space(protocol, scope or world(engines))
        hidden = [name for name in protocol.actions if name in unlogged]
        self.explainer = Explainer(self.space, hidden=hidden, judged=judged, fields=WATCHED)
        self.begin()

    def begin(self) -> None:
        """Be at the beginning of a trace; what the last one taught about the protocol is kept."""
        self.explainer.begin()
        self.reader = Reader(self.space, self.explainer)
        self.finding: Finding | None = None
        self.events = self.repeated = self.gaps = self.resynchronised = 0
        self._numbers: dict[str, int] = {}

    def feed(self, line: events.Line, at: int = 0) -> Verdict:
        """Take one event, which stands on a line of a trace.

        Raises:
            Unreadable: it speaks of an engine that the deployment does not have.
        """
        if not self._in_order(line):
            return self.explainer.verdict
        return self.judge(line, at)

    def judge(self, line: events.Line, at: int = 0) -> Verdict:
        """As `feed`, for whoever knows that this is the next event, and says with `lose` where one is missing."""
        self.events += 1
        if self.explainer.lost:
            self._settle(line.event)
            return self.explainer.verdict
        verdict = self.explainer.feed(self.reader.read(line.event))
        problem = self.explainer.problem
        if problem is not None and self.finding is None:
            self.finding = Finding(
                at, line.source, line.number, line.event, problem.objections, problem.possible, _note(line.event)
            )
        elif self.explainer.possible:
            self.reader.after(line.event)
        return verdict

    def lose(self, reason: str) -> None:
        """Something was not seen: nothing is known until the next settled state."""
        self.explainer.lose(reason)
        self.reader.lose()

    def _in_order(self, line: events.Line) -> bool:
        """Whether the event is the next of its source, or the first of a new life of it. A gap is kept in mind."""
        last = self._numbers.get(line.source)
        if last is not None and 1 < line.number <= last:
            self.repeated += 1
            return False
        if line.number != 1 and line.number != (last or 0) + 1:
            self.gaps += 1
            missing = f"{(last or 0) + 1}" + (f" to {line.number - 1}" if line.number - 1 > (last or 0) + 1 else "")
            self.lose(f"event {missing} of {line.source} is missing")
        self._numbers[line.source] = line.number
        return True

    def _settle(self, event: events.Event) -> None:
        marker = SETTLED.get(event.name())
        if marker is not None and self.explainer.resynchronise(settled(self.space, marker), PROVED):
            self.resynchronised += 1

    def report(self) -> Report:
        """What was found so far."""
        return Report(
            verdict=self.explainer.verdict,
            events=self.events,
            engines=self.engines,
            finding=self.finding,
            reason=self.explainer.reason,
            properties=self.explainer.properties(),
            repeated=self.repeated,
            gaps=self.gaps,
            resynchronised=self.resynchronised,
            states=self.explainer.states,
        )


def settled(space: Space, marker: Marker) -> dict[int, tuple[int, ...]]:
    """What cells may have right after a job has come to its end, in numbers of which the newest are the largest."""
    status = list(Marker).index(marker)
    parent, target = 2, 3
    complete = marker is Marker.COMPLETE
    served = target if complete else parent
    open_or_not = (0, 1)
    fields: dict[str, tuple[int, ...]] = {
        "colocated": open_or_not,
        "mode": open_or_not,
        "sharing": open_or_not,
        "stage": (list(Stage).index(Stage.IDLE),),
        "errand": (list(Errand).index(Errand.NOTHING),),
        "phase": (list(Phase).index(Phase.SERVING),),
        "head": (served,),
        "gate": open_or_not,
        "slot": tuple(range(len(Slot))),
        "weights": (0, served),
        "reports": (0, served + 1),
        "request": tuple(range(len(Request))),
        "cached": open_or_not,
    }
    for where in ("disk", "memory"):
        fields |= {
            f"{where}_status": (status,),
            f"{where}_parent": (parent,),
            f"{where}_parent_content": (parent,),
            f"{where}_content": (target,),
            f"{where}_target": (target + 1,) if complete else (0,),
        }
    shown: dict[int, tuple[int, ...]] = {}
    for cell in range(space.cells):
        field, name = space.cell_name(cell)
        if field.name in ("kv", "made_by"):
            shown[cell] = open_or_not if name.endswith(f", {served}]") else (0,)
        else:
            shown[cell] = fields.get(field.name, (0,))
    return shown


def _note(event: events.Event) -> str:
    if isinstance(event, events.StartOnHit):
        others = [maker for maker in event.made_by if maker != event.load_id]
        if others:
            makers = " and ".join(others)
            return f"a request on load {event.load_id} reuses a prefix that {makers} made: no_stale_hit is violated"
    return ""


def validate(stream: Iterable[bytes], *, engines: int | None = None, judged: Collection[str] = ()) -> Report:
    """Validate a whole trace, up to the first event that nothing explains.

    Args:
        stream: its lines.
        engines: how many slots the deployment has; none: as many as its first thousand lines name.
        judged: properties to judge on the way.

    Raises:
        Garbled: a line cannot be read, or speaks of an engine that is not there; or there is no line at all.
    """
    lines = read(stream)
    first: list[Numbered] = []
    for numbered in lines:
        first.append(numbered)
        if len(first) == LOOKED_AT or engines is not None:
            break
    if not first:
        raise Garbled(1, "there is no event")
    found = engines_in(first) if engines is None else engines
    if found > MOST_ENGINES:
        raise Garbled(first[0].line, f"{found:,} engines are named, and {MOST_ENGINES:,} are the most")
    unlogged = unlogged_by(numbered.event.source for numbered in first)
    validator = Validator(found, unlogged=unlogged, judged=judged)
    for numbered in itertools.chain(first, lines):
        if _fed(validator, numbered) is Verdict.INEXPLICABLE:
            break
    return validator.report()


def _fed(validator: Validator, numbered: Numbered) -> Verdict:
    try:
        return validator.feed(numbered.event, numbered.line)
    except Unreadable as error:
        raise Garbled(numbered.line, f"{error}; say with --engines how many there are") from error


def called(event: events.Event) -> str:
    """An event as people read it: ``send(engine=1, load_id='a:2')``."""
    return re.sub(r"^\w+", event.name(), repr(event))


__all__ = [
    "Finding",
    "Garbled",
    "Numbered",
    "Report",
    "Validator",
    "called",
    "deployment",
    "read",
    "settled",
    "validate",
]
