"""What the monitor sees, as Prometheus metrics: `TABLE` says which there are, and `docs/metrics.md` is made from it.

Counters count what came in since this process began. What a rank counts itself comes with its beats and starts anew
with its process: only what was added is taken over, so that no counter here goes back. Every series is there from the
beginning, at zero, so that a first increase is seen as one.
"""

from __future__ import annotations

import bisect
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, product
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from reef_ref import events, rank_events
from reef_ref.engines.blockers import Blocker, blocker_of
from reef_ref.events import Line
from reef_ref.monitor.notice import Freshness, Violation
from reef_ref.monitor.policy import PROPERTIES, Reaction
from reef_ref.monitor.publications import Barrier, Errand, Outcome, Publications
from reef_ref.monitor.respond import Response
from reef_ref.monitor.watch import Status
from reef_ref.rank_events import RankEvent

__all__ = ["TABLE", "Described", "Kind", "Metrics", "table"]

BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds. A barrier is some calls that each engine answers at once, or a wait for what refuses the flush."""
PROCESSES = 1024
"""Ranks' processes whose counters are kept; the one that was silent longest is forgotten first."""
DEPLOYMENT = ""
"""The `engine` of what is the whole deployment's."""
STOPPABLE = frozenset({"no_stale_hit", "adapters_are_apart"})
"""Properties that an engine can keep (mode enforce), though what would violate them was there."""


class Kind(StrEnum):
    """Prometheus's kinds of metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """Who told an event."""

    COORDINATOR = "coordinator"
    MONITOR = "monitor"
    SERVICE = "service"
    DEPLOYMENT = "deployment"
    ENGINE = "engine"
    RANK = "rank"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Described:
    """One metric. `name` is without Prometheus's own endings; `labels` have few values, whatever is told."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    about: str

    @property
    def exposed(self) -> str:
        """The name that queries use; of a histogram, before `_bucket`, `_sum` and `_count`."""
        return f"{self.name}_total" if self.kind is Kind.COUNTER else self.name


def _c(name: str, labels: str, about: str) -> Described:
    return Described(f"reef_ref_{name}", Kind.COUNTER, tuple(labels.split()), about)


def _g(name: str, labels: str, about: str) -> Described:
    return Described(f"reef_ref_{name}", Kind.GAUGE, tuple(labels.split()), about)


TABLE = (
    _c("publications", "errand outcome", "Publications that have ended; a try that failed is one, its retry another."),
    _c("rejections", "", "Candidates that were rejected."),
    Described(
        "reef_ref_barrier_seconds",
        Kind.HISTOGRAM,
        (),
        "From the coordinator's event before the first pause until all are flushed (in place: paused), by its clock.",
    ),
    _g(
        "publication_pending_seconds",
        "",
        "How long ago a publication was begun after which engines have not generated yet, failed tries included, by "
        "the monitor's clock; 0 where there is none.",
    ),
    _c(
        "flush_refusals",
        "blocker",
        "Refusals before a flush went through, by what the last of them named. SGLang 0.5.23 names nothing: unnamed.",
    ),
    _c("flushes_given_up", "blocker", "Flushes that were refused until their time was up."),
    _c(
        "engines_retired",
        "engine by",
        "Engines taken out of service: by the coordinator after a failure, or by its health monitor.",
    ),
    _c("engines_rebuilt", "engine", "Engines put into an empty slot."),
    _g(
        "latched",
        "",
        "1 where engines may be fenced, else 0; absent where no coordinator was heard.",
    ),
    _g("engine_freshness", "engine freshness", "1 for what may be said of an engine's reused prefixes, else 0."),
    _g(
        "engine_sharing",
        "engine",
        "1 where a rank of the engine shares prefixes, else 0; absent where that was not heard.",
    ),
    _c("prefixes_checked", "engine", "Reused prefixes whose slots were compared, over all ranks."),
    _c("prefix_slots_checked", "engine", "Slots (tokens) in them."),
    _c("stale_slots", "engine", "Slots of reused prefixes that other weights, or another adapter, computed."),
    _c(
        "stale_prefixes_stopped",
        "engine by",
        "Stale prefixes that the engine kept from having an effect: recomputed, or the request refused.",
    ),
    _c("violations", "property engine stopped", "Properties found violated; stopped=yes: the engine kept it harmless."),
    _c("reactions", "reaction outcome", "What was done about violations."),
    _c("events", "source", "Events taken, by who told them."),
    _c("events_lost", "", "Events that never came, or too late."),
    _c("events_late", "", "Events that came after a later one of their source, in time."),
    _c("events_repeated", "", "Events that came again."),
    _c("lines_unreadable", "", "Lines that are no event, or of an engine that there is not."),
    _c("resynchronisations", "", "Times the deployment's state became known again after a gap."),
    _g("events_waiting", "", "Events that wait for one that is missing."),
    _g(
        "engine_silence_seconds",
        "engine",
        "How long ago a rank of the engine was heard last, or the monitor began, by the monitor's clock.",
    ),
    _g("deployment_known", "", "1 where the deployment's possible states are known, else 0."),
    _g("possible_states", "", "How many states the deployment may be in."),
)
"""All metrics but those of the process itself, which are the library's (`process_*`)."""


def table() -> str:
    """`TABLE` in Markdown."""
    lines = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in TABLE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.exposed}` | {metric.kind} | {labels} | {metric.about} |")
    return "\n".join(lines) + "\n"


class Metrics(Collector):
    """An observer whose numbers are asked for with `registry`.

    Args:
        engines: how many slots the deployment has.
        status: the monitor's.
        clock: seconds, of no particular beginning.
    """

    def __init__(self, engines: int, status: Callable[[], Status], clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._engines = engines
        self._status = status
        self._clock = clock
        self._counts: dict[str, dict[tuple[str, ...], float]] = {it.name: {} for it in TABLE if it.kind is Kind.COUNTER}
        self._barriers = [0] * (len(BUCKETS) + 1)
        self._barrier_seconds = 0.0
        self._publications = Publications()
        self._pending_since: float | None = None
        self._heard = dict.fromkeys(range(engines), clock())
        self._processes = _Processes()
        self._lay_out()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def collect(self) -> Iterable[Metric]:
        """Every metric of `TABLE`, as of now."""
        status = self._status()
        gauges = self._gauges(status)
        counts = {**self._counts, **_counted(status)}
        for it in TABLE:
            match it.kind:
                case Kind.COUNTER:
                    counter = CounterMetricFamily(it.name, it.about, labels=it.labels)
                    for labels, value in counts[it.name].items():
                        counter.add_metric(labels, value)
                    yield counter
                case Kind.GAUGE:
                    gauge = GaugeMetricFamily(it.name, it.about, labels=it.labels)
                    for labels, value in gauges[it.name].items():
                        gauge.add_metric(labels, value)
                    yield gauge
                case Kind.HISTOGRAM:
                    bounds = (*map(str, BUCKETS), "+Inf")
                    buckets = list(zip(bounds, map(float, accumulate(self._barriers)), strict=True))
                    yield HistogramMetricFamily(it.name, it.about, buckets=buckets, sum_value=self._barrier_seconds)

    # What is told

    def line(self, line: Line) -> None:
        """Something a coordinator told."""
        self._count("events", _source(line.source))
        match line.event:
            case events.Flush(refusals=refusals, blocker=blocker) if refusals > 0:
                self._count("flush_refusals", _blocker(blocker), more=refusals)
            case events.BarrierFails(call="flush", engines=engines, reason=reason):
                self._count("flushes_given_up", blocker_of(reason), more=len(engines))
            case events.Retire(engine=engine):
                self._count("engines_retired", str(engine), "coordinator")
            case events.EmptySlot(engine=engine):
                self._count("engines_retired", str(engine), "health_monitor")
            case events.Rebuild(engine=engine):
                self._count("engines_rebuilt", str(engine))
            case events.RecordRejected():
                self._count("rejections")
        for found in self._publications.feed(line):
            if isinstance(found, Barrier):
                self._barriers[bisect.bisect_left(BUCKETS, found.seconds)] += 1
                self._barrier_seconds += found.seconds
            else:
                self._count("publications", found.errand, found.outcome)
        if not self._publications.pending:
            self._pending_since = None
        elif self._pending_since is None:
            self._pending_since = self._clock()

    def rank(self, engine: int, event: RankEvent) -> None:
        """Something a rank told."""
        self._heard[engine] = self._clock()
        if not isinstance(event, rank_events.Beat):
            self._count("events", Source.RANK)
        for name, more in self._processes.take(engine, event):
            metric, *labels = COUNTED[name]
            self._count(metric, str(engine), *labels, more=more)

    def unreadable(self, where: str, why: str) -> None:
        """A line that is no event."""
        self._count("lines_unreadable")

    def violation(self, violation: Violation) -> None:
        """A property does not hold."""
        engine = DEPLOYMENT if violation.engine is None else str(violation.engine)
        self._count("violations", violation.property, engine, "yes" if violation.stopped else "no")

    def response(self, response: Response) -> None:
        """What was done about it."""
        self._count("reactions", response.reaction, "done" if response.done else "failed")

    # How it is kept

    def _count(self, name: str, *labels: str, more: float = 1) -> None:
        series = self._counts[f"reef_ref_{name}"]
        series[labels] = series.get(labels, 0) + more

    def _lay_out(self) -> None:
        """Begin every series at zero."""
        engines = [str(engine) for engine in range(self._engines)]
        known: dict[str, Iterable[tuple[str, ...]]] = {
            "publications": product(Errand, Outcome),
            "flush_refusals": product(Blocker),
            "flushes_given_up": product(Blocker),
            "engines_retired": product(engines, ("coordinator", "health_monitor")),
            "engines_rebuilt": product(engines),
            "violations": (
                (name, engine, stopped)
                for name, engine in product(PROPERTIES, (DEPLOYMENT, *engines))
                for stopped in (("no", "yes") if name in STOPPABLE else ("no",))
            ),
            "reactions": product(Reaction, ("done", "failed")),
            "events": product(Source),
            "rejections": [()],
            "lines_unreadable": [()],
        }
        for name, all_labels in known.items():
            for labels in all_labels:
                self._count(name, *labels, more=0)
        for metric, *rest in COUNTED.values():
            for engine in engines:
                self._count(metric, engine, *rest, more=0)

    def _gauges(self, status: Status) -> dict[str, dict[tuple[str, ...], float]]:
        now, engines = self._clock(), {str(engine): one for engine, one in status.engines.items()}
        pending = 0.0 if self._pending_since is None else now - self._pending_since
        found: dict[str, dict[tuple[str, ...], float]] = {
            "publication_pending_seconds": {(): pending},
            "latched": {} if status.latched is None else {(): status.latched},
            "deployment_known": {(): status.deployment},
            "possible_states": {(): status.states},
            "events_waiting": {(): status.counts.waiting},
            "engine_freshness": {
                (name, freshness.value): one.freshness is freshness
                for name, one in engines.items()
                for freshness in Freshness
            },
            "engine_sharing": {(name,): one.sharing for name, one in engines.items() if one.sharing is not None},
            "engine_silence_seconds": {(str(engine),): now - heard for engine, heard in self._heard.items()},
        }
        return {f"reef_ref_{name}": series for name, series in found.items()}


COUNTED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "prefixes_checked": ("prefixes_checked",),
        "slots_checked": ("prefix_slots_checked",),
        "stale_slots": ("stale_slots",),
        "recomputed": ("stale_prefixes_stopped", "recomputed"),
        "refused": ("stale_prefixes_stopped", "refused"),
    }
)
"""What ranks count: by their name, the metric here and its labels behind the engine's."""


class _Processes:
    """What each rank's process has counted, and what has been taken over of it."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int], _Process] = OrderedDict()

    def take(self, engine: int, event: RankEvent) -> Iterator[tuple[str, int]]:
        """The counters that an event shows to have grown, and by how much."""
        key = (engine, event.rank, event.pid)
        process = self._known.setdefault(key, _Process())
        if isinstance(event, rank_events.Start) or event.number < process.number:
            # Another process, under a number that was used before.
            process = self._known[key] = _Process()
        process.number = event.number
        self._known.move_to_end(key)
        if len(self._known) > PROCESSES:
            self._known.popitem(last=False)
        match event:
            case rank_events.Beat(counters=counters):
                for name in COUNTED:
                    yield from process.set(name, counters.get(name, 0))
            case rank_events.StalePrefix(action="reported", stale=stale):
                # Told at once; the beat that counts it too may be far.
                yield from process.add("stale_slots", stale)
            case rank_events.StalePrefix(action="refused", stale=stale):
                yield from process.add("stale_slots", stale)
                yield from process.add("refused", 1)
            case rank_events.StalePrefix(action="recomputed"):
                yield from process.add("recomputed", 1)


class _Process:
    """One process's counters. A beat says what they are; what is told between two of them, is added."""

    def __init__(self) -> None:
        self.number = 0
        """Of the last event."""
        self._counts: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()

    def set(self, name: str, count: int) -> Iterator[tuple[str, int]]:
        """A beat says that it is this much. What was added before its event was told, is in it already."""
        self._counts[name] = count
        if (more := count - self._taken[name]) > 0:
            self._taken[name] = count
            yield name, more

    def add(self, name: str, more: int) -> Iterator[tuple[str, int]]:
        """An event says that it is so much more."""
        yield from self.set(name, self._counts[name] + more)


def _counted(status: Status) -> dict[str, dict[tuple[str, ...], float]]:
    counts = status.counts
    found = {
        "events_lost": counts.lost,
        "events_late": counts.late,
        "events_repeated": counts.repeated,
        "resynchronisations": counts.resynchronised,
    }
    return {f"reef_ref_{name}": {(): float(count)} for name, count in found.items()}


def _source(name: str) -> Source:
    kind = name.partition(":")[0]
    return next((source for source in _TELLERS if source == kind), Source.OTHER)


def _blocker(name: str) -> Blocker:
    return next((blocker for blocker in Blocker if blocker == name), Blocker.UNNAMED)


_TELLERS = frozenset(Source) - {Source.RANK, Source.OTHER}
