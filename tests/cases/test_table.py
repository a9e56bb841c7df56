"""No report is missing, and what is said to stop one does."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections import Counter
from functools import cache

import pytest

import spec
from model_check.explain import Verdict
from reef_ref.config import Refusal, judge
from reef_ref.events import Line
from reef_ref.lora_schema import AdapterKeys
from reef_ref.monitor.validate import Validator
from spec.lang.mutants import Mutant
from tests.cases.table import LIVE, ROWS, Code, Judged, Open, Outside, Row, Told
from tests.cases.traces import ENGINES, TRACES
from tests.conformance import test_known_bugs, test_known_engine_bugs

NO_SUCH_ROWS = {4, 17, 35, 47, 63, 65, 66, 85, 87, 92, 94, 96}
"""Numbers that no report has."""

EXPECTED = [f"C{n:02}" for n in range(1, 108) if n not in NO_SUCH_ROWS] + [f"X{n}" for n in range(1, 17)]

MUTANTS: list[Mutant] = [
    mutant
    for protocol in pkgutil.iter_modules(spec.__path__, "spec.")
    if protocol.ispkg and importlib.util.find_spec(f"{protocol.name}.mutants") and protocol.name != "spec.lang"
    for mutant in importlib.import_module(f"{protocol.name}.mutants").MUTANTS.values()
]
"""Of every protocol."""

JUDGED = [(row.id, stop) for row in ROWS for stop in row.stops if isinstance(stop, Judged)]


def mutants_of(row: str) -> list[str]:
    return [mutant.name for mutant in MUTANTS if row in mutant.report]


def test_no_row_is_missing_or_double(capsys: pytest.CaptureFixture[str]) -> None:
    assert [row.id for row in ROWS] == EXPECTED
    stopped = Counter(
        kind
        for row in ROWS
        for kind in {type(stop).__name__ for stop in row.stops} | ({"Mutant"} if mutants_of(row.id) else set())
    )
    still = [row.id for row in ROWS if all(isinstance(stop, Open) for stop in row.stops) and not mutants_of(row.id)]
    with capsys.disabled():
        print(f"\nreports: {len(ROWS)} rows: {', '.join(f'{n} {kind}' for kind, n in sorted(stopped.items()))}")
        print(f"reports that nothing stops yet: {', '.join(still) or 'none'}")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_every_row_is_stopped_or_said_to_be_open(row: Row) -> None:
    assert row.stops or mutants_of(row.id)
    assert row.title
    assert set(row.forms) <= set("abcd")
    outside = [stop for stop in row.stops if isinstance(stop, Outside)]
    if outside:
        assert row.stops == (outside[0],)
        assert outside[0].reason
        assert not mutants_of(row.id)
    if "a" in row.forms and not outside:
        assert any(isinstance(stop, Judged) for stop in row.stops), "a configuration could show it"


@pytest.mark.parametrize(("row", "stop"), JUDGED, ids=[f"{row}-{stop.rule}" for row, stop in JUDGED])
def test_the_rule_decides_the_configuration(row: str, stop: Judged) -> None:
    answer = judge(stop.settings, ask=lambda: AdapterKeys(stop.scoped, "said so"))
    rule = answer.rule if isinstance(answer, Refusal) else answer.decision.scopes[0].rule
    assert rule.value == stop.rule, row


@cache
def validator() -> Validator:
    return Validator(ENGINES)


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_explained_or_is_not_and_where(name: str) -> None:
    trace, taken = TRACES[name], validator()
    taken.begin()
    for number, event in enumerate(trace.events, 1):
        if taken.feed(Line("run", number, 0.0, event), number) is Verdict.INEXPLICABLE:
            break
    report = taken.report()
    if trace.at is None:
        assert (report.verdict, report.events) == (Verdict.EXPLAINED, len(trace.events))
        return
    assert report.finding is not None
    assert isinstance(report.finding.event, trace.at)
    assert trace.why in " ".join([*map(str, report.finding.objections), report.finding.note])


def test_what_stops_a_row_is_there_and_every_trace_is_of_a_row() -> None:
    """A bug that is named is built in, and noticed, in the tests of conformance."""
    bugs = {bug.name for bug in (*test_known_bugs.MUTANTS, *test_known_engine_bugs.MUTANTS)}
    assert {stop.bug for row in ROWS for stop in row.stops if isinstance(stop, Code)} <= bugs
    told = {stop.trace for row in ROWS for stop in row.stops if isinstance(stop, Told)}
    assert told | {"nothing_went_wrong"} == set(TRACES)


def test_mutants_report_rows_that_exist() -> None:
    named = {row for mutant in MUTANTS for row in mutant.report if row[0] in "CX"}
    assert named <= set(EXPECTED)


CATALOGUE = "reef_ref.scenarios.catalogue"
PRESENT = importlib.util.find_spec("reef_ref.scenarios") is not None


@pytest.mark.skipif(not PRESENT, reason="the scenarios on real engines are not in this checkout")
def test_scenarios_show_what_the_table_says() -> None:
    catalogue = importlib.import_module(CATALOGUE)
    shown = {case for scenario in catalogue.SCENARIOS for case in scenario.cases}
    assert shown == {row.id for row in ROWS if LIVE in row.stops}
