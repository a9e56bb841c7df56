"""One OpenTelemetry span for each publication, with one for each of its parts.

Their lengths are by the coordinator's clock, which has no date: a publication is put where the monitor heard of its
end. Which exporter they go to is said by OpenTelemetry's own environment variables (`provider`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from reef_ref.events import Line
from reef_ref.monitor.notice import Violation
from reef_ref.monitor.publications import Outcome, Publication, Publications
from reef_ref.monitor.respond import Response
from reef_ref.rank_events import RankEvent

__all__ = ["EXPORTER", "BadExporter", "Spans", "finish", "provider", "wanted"]

EXPORTER = "OTEL_TRACES_EXPORTER"
"""Where spans go: names of exporters that are installed, `otlp` or `console` for example."""
GROUP = "opentelemetry_traces_exporter"
"""Entry points by which OpenTelemetry's exporters are found."""
FLUSH_MS = 5_000
NS = 1_000_000_000


class BadExporter(ValueError):  # noqa: N818  The name says what was found.
    """`OTEL_TRACES_EXPORTER` names one that is not installed."""


def wanted(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The exporters that are named. OpenTelemetry's own default, `otlp`, is left to whoever writes it."""
    names = [name.strip() for name in environment.get(EXPORTER, "").split(",")]
    return [name for name in names if name not in ("", "none")]


def provider(names: list[str]) -> TracerProvider:
    """Where spans go; resource, endpoint, headers, sampling and batches are OpenTelemetry's own `OTEL_*`.

    Raises:
        BadExporter: one is not installed.
    """
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = Resource.create({SERVICE_NAME: "reef-ref-monitor"})
    made = TracerProvider(resource=resource)
    for name in names:
        found = list(entry_points(group=GROUP, name=name))
        if not found:
            known = ", ".join(sorted(point.name for point in entry_points(group=GROUP)))
            raise BadExporter(
                f"{EXPORTER}={name}: no such exporter is installed; there is {known} (otlp is in the package "
                f"opentelemetry-exporter-otlp)"
            )
        made.add_span_processor(BatchSpanProcessor(found[0].load()()))
    return made


class Spans:
    """An observer that makes spans with `tracer`; `clock` is nanoseconds since 1970."""

    def __init__(self, tracer: Tracer, clock: Callable[[], int] = time.time_ns) -> None:
        self._tracer = tracer
        self._clock = clock
        self._publications = Publications()

    def line(self, line: Line) -> None:
        """Something a coordinator told."""
        for found in self._publications.feed(line):
            if isinstance(found, Publication):
                self._make(found)

    def rank(self, engine: int, event: RankEvent) -> None:
        """Something a rank told: no part of a span."""

    def unreadable(self, where: str, why: str) -> None:
        """A line that is no event: no part of a span."""

    def violation(self, violation: Violation) -> None:
        """A property does not hold: no part of a span."""

    def response(self, response: Response) -> None:
        """What was done about it: no part of a span."""

    def _make(self, publication: Publication) -> None:
        now, served = self._clock(), publication.outcome is Outcome.SERVED

        def at(seconds: float) -> int:
            return now - round((publication.end - seconds) * NS)

        told = {
            "errand": publication.errand.value,
            "outcome": publication.outcome.value,
            "job": publication.job,
            "load_id": publication.load_id,
            "coordinator": publication.source,
        }
        attributes = {f"reef_ref.{name}": value for name, value in told.items() if value}
        span = self._tracer.start_span("publication", start_time=at(publication.start), attributes=attributes)
        span.set_status(Status(StatusCode.OK) if served else Status(StatusCode.ERROR, publication.reason))
        within = set_span_in_context(span)
        for part in publication.parts:
            child = self._tracer.start_span(part.name.value, within, start_time=at(part.start))
            if publication.broken and part is publication.parts[-1]:
                child.set_status(Status(StatusCode.ERROR, publication.reason))
            child.end(at(part.end))
        span.end(at(publication.end))


def finish(made: TracerProvider) -> None:
    """Send what waits, within some seconds."""
    made.force_flush(FLUSH_MS)
    made.shutdown()
