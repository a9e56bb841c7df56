"""Spans: one for each publication, with its parts, where the coordinator's clock puts them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry's SDK is not installed (extra otel)")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from reef_ref import events
from reef_ref.engines.simulated import Fault
from reef_ref.events import Line
from reef_ref.monitor.spans import Spans, wanted
from tests.conformance.world import Layout
from tests.monitor.deployments import trace

NOW_S = 1_700_000_000


def spans_of(lines: Sequence[Line]) -> tuple[ReadableSpan, ...]:
    """What is exported, in the order in which it ended; the clock stands still."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider.get_tracer("test"), clock=lambda: NOW_S * 10**9)
    for line in lines:
        spans.line(line)
    return tuple(exporter.get_finished_spans())


def parts_of(spans: Sequence[ReadableSpan], publication: ReadableSpan) -> list[ReadableSpan]:
    assert publication.context is not None
    return [one for one in spans if one.parent is not None and one.parent.span_id == publication.context.span_id]


def test_each_publication_is_a_span_with_its_parts(tmp_path: Path) -> None:
    spans = spans_of(trace(tmp_path, Layout(engines=2), (True, False, True)))
    roots = [one for one in spans if one.parent is None]
    assert [one.name for one in roots] == ["publication"] * 3
    assert len({one.context.trace_id for one in spans if one.context is not None}) == 3
    first, second, _ = roots
    assert [one.name for one in parts_of(spans, first)] == [
        *("barrier", "rebuild", "barrier"),
        *("transfer", "verification", "commit"),
    ]
    assert [one.name for one in parts_of(spans, second)] == ["barrier", "transfer", "verification", "commit"]
    assert dict(second.attributes or {}) == {
        "reef_ref.errand": "publish",
        "reef_ref.outcome": "served",
        "reef_ref.job": "job-1",
        "reef_ref.load_id": "life1:2",
        "reef_ref.coordinator": "coordinator:life1",
    }
    assert {one.status.status_code for one in roots} == {StatusCode.OK}


def test_parts_lie_where_the_coordinators_clock_puts_them() -> None:
    """The last event is now, the others as long before it as the coordinator says."""
    told = [
        (1.0, events.BeginPublish("j")),
        (3.0, events.Pause(0, "retract")),
        (4.0, events.AllFlushed()),
        (9.0, events.Send(0, "a:2", "/c")),
        (9.5, events.AllSent()),
        (10.0, events.Verify("a:2", None)),
        (20.0, events.Acknowledge("j")),
        (21.0, events.AllContinued()),
    ]
    lines = [Line("coordinator:a", n, at, event) for n, (at, event) in enumerate(told, start=1)]
    found = {
        one.name: ((one.start_time or 0) / 10**9 - NOW_S, (one.end_time or 0) / 10**9 - NOW_S)
        for one in spans_of(lines)
    }
    assert found == {
        "barrier": (-20.0, -17.0),
        "transfer": (-17.0, -11.5),
        "verification": (-11.5, -11.0),
        "commit": (-11.0, 0.0),
        "publication": (-20.0, 0.0),
    }


def test_a_failure_is_told_at_the_part_in_which_it_fell(tmp_path: Path) -> None:
    """The update of an engine fails; the retry is a span of its own."""
    spans = spans_of(trace(tmp_path, Layout(engines=2), (True,), {24: Fault.FAILS_BEFORE}))
    _, failed, retried = (one for one in spans if one.parent is None)
    assert failed.status.status_code is StatusCode.ERROR
    assert "update" in (failed.status.description or "") or "send" in (failed.status.description or "")
    broken = [one.name for one in parts_of(spans, failed) if one.status.status_code is StatusCode.ERROR]
    assert broken == ["transfer"]
    assert dict(retried.attributes or {})["reef_ref.errand"] == "retry"
    assert retried.status.status_code is StatusCode.OK


@pytest.mark.parametrize(
    ("said", "names"),
    [(None, []), ("", []), ("none", []), ("console", ["console"]), ("otlp, console", ["otlp", "console"])],
)
def test_exporters_are_those_that_the_environment_names(said: str | None, names: list[str]) -> None:
    assert wanted({} if said is None else {"OTEL_TRACES_EXPORTER": said}) == names


def test_the_command_sends_spans_where_the_environment_says(tmp_path: Path) -> None:
    """OpenTelemetry's own exporter to the console, at the end of a run that ends at a violation."""
    lines = trace(tmp_path, Layout(engines=2), (True,))
    wrong = Line(
        "coordinator:life1", len([x for x in lines if x.source == "coordinator:life1"]) + 1, 0.0, events.AllSent()
    )
    file = tmp_path / "told.ndjson"
    file.write_text("".join(f"{line.to_json()}\n" for line in [*lines, wrong]))
    command = [sys.executable, "-m", "reef_ref.cli", "monitor", "--engines", "2", "--coordinator", str(file)]
    environment = {"OTEL_TRACES_EXPORTER": "console", "OTEL_SERVICE_NAME": "ours"}
    done = subprocess.run(
        [*command, "--until", "violation"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.count('"name": "publication"') == 2
    assert '"service.name": "ours"' in done.stdout


def test_an_exporter_that_is_not_installed_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reef_ref.cli", "monitor", "--engines", "1", "--coordinator", str(tmp_path / "x")]
    done = subprocess.run(
        command,
        env={**os.environ, "OTEL_TRACES_EXPORTER": "the-moon"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "OTEL_TRACES_EXPORTER=the-moon: no such exporter is installed; there is console" in done.stderr
