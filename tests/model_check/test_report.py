"""Reports: what is undetermined is never shown as passed, and what is wrong is told in full."""

from __future__ import annotations

import json
from typing import Any, get_args, get_origin, get_type_hints
from xml.etree import ElementTree

import pytest

from benchmarks import pubmodel
from model_check.explore import Exploration, Verdict, explore
from model_check.report import (
    ExplorationJson,
    SimulationJson,
    as_json,
    as_junit,
    as_markdown,
    as_text,
    conclusion,
)
from model_check.simulate import simulate
from spec.lang import Bool, Fields, Index, Map, Natural, Protocol, Scope, Step, each, exists, field, forall, when

WORLD = pubmodel.scope(2, 2, 3)


class Engine(Index):
    """An engine."""


class Load(Natural):
    """A load."""


class Loads(Fields):
    """The loads of engines."""

    load: Map[Engine, Load] = field("the load of its weights")


def counting(*, idle: bool) -> Protocol:
    """Engines count up to the bound; one action never happens, and one goal is met only where `idle` is false."""
    protocol = Protocol("counting", Loads, "Engines count up.")

    @protocol.initially
    def begin() -> Step:
        """All begin at 0."""
        return when().then(load=each(Engine, lambda e: 0))

    @protocol.action(by="e")
    def count_up(s: Loads, e: Engine) -> Step:
        """An engine counts up."""
        return when().then(load={e: s.load[e] + 1})

    if idle:

        @protocol.action(by="e")
        def nap(s: Loads, e: Engine) -> Step:
            """An engine that is ahead of itself rests."""
            return when(s.load[e] < s.load[e]).then(load={e: 0})

    @protocol.property
    def comparable(s: Loads) -> Bool:
        """Every load | is a load <or less> & so on."""
        return forall(Engine, lambda e: s.load[e] <= s.load[e])

    @protocol.goal
    def ahead(s: Loads) -> Bool:
        """An engine has load 5."""
        return exists(Engine, lambda e: s.load[e] == (5 if idle else 2))

    return protocol


def counted(*, idle: bool) -> Exploration:
    return explore(counting(idle=idle), Scope("small", {"Engine": 2, "Load": 5 if not idle else 4}, "small enough"))


@pytest.fixture(scope="module")
def holds() -> Exploration:
    return counted(idle=False)


@pytest.fixture(scope="module")
def open_() -> Exploration:
    return counted(idle=True)


@pytest.fixture(scope="module")
def violated() -> Exploration:
    return explore(pubmodel.build(2), WORLD)


@pytest.fixture(scope="module")
def stopped() -> Exploration:
    return explore(pubmodel.build(), WORLD, max_states=100)


def test_the_verdicts_are_the_ones_that_the_tests_mean(
    holds: Exploration, open_: Exploration, violated: Exploration, stopped: Exploration
) -> None:
    assert [x.verdict for x in (holds, open_, violated, stopped)] == [
        Verdict.HOLDS,
        Verdict.UNDETERMINED,
        Verdict.VIOLATED,
        Verdict.UNDETERMINED,
    ]


# Text


def test_text_of_what_holds(holds: Exploration) -> None:
    text = as_text(holds)
    assert text.startswith("counting in scope small: Engine 2, Load 5\nsmall enough\n")
    assert "  2 properties hold: comparable, no_dead_end\n" in text
    assert f"  1 goal reached: ahead {holds.goals['ahead']}\n" in text
    assert f"  Load  {holds.cuts['Load']}  would have passed 5\n" in text
    assert "never taken" not in text
    assert text.endswith("\n\nholds: every state of the scope was seen\n")


def test_text_calls_out_what_never_happens(open_: Exploration) -> None:
    text = as_text(open_)
    assert "  undetermined, not reached\n    goal  ahead  An engine has load 5.\n" in text
    assert "  never taken: nap\n" in text
    assert text.endswith("undetermined: goal ahead: not reached\n")


def test_text_of_what_was_stopped_says_not_yet(stopped: Exploration) -> None:
    text = as_text(stopped)
    assert "never taken" not in text
    assert " hold" not in text
    assert text.endswith("undetermined: stopped past 100 states\n")


def test_text_ends_with_the_story_and_the_verdict(violated: Exploration) -> None:
    text = as_text(violated)
    assert text.index("How pubmodel-bug2 comes to violate kv_fresh") > text.index("Steps per action")
    assert text.endswith("\n\nviolated: kv_fresh, in 10 steps\n")
    assert max(map(len, text.splitlines())) <= 100
    assert all(line == line.rstrip() for line in text.splitlines())


# JSON


def conforms(value: Any, shape: Any) -> bool:
    """A JSON value has exactly the documented shape."""
    if hasattr(shape, "__required_keys__"):
        hints = get_type_hints(shape)
        return (
            isinstance(value, dict)
            and value.keys() == hints.keys()
            and all(conforms(value[name], hints[name]) for name in hints)
        )
    origin, args = get_origin(shape), get_args(shape)
    if origin is list:
        return isinstance(value, list) and all(conforms(item, args[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(conforms(item, args[1]) for item in value.values())
    if args:
        return any(conforms(value, arg) for arg in args)
    if shape is Any:
        return True
    if shape is float:
        return type(value) in (int, float)
    return type(value) is shape if shape is not type(None) else value is None


@pytest.mark.parametrize("name", ["holds", "open_", "violated", "stopped"])
def test_json_has_the_documented_shape(name: str, request: pytest.FixtureRequest) -> None:
    found: Exploration = request.getfixturevalue(name)
    document = json.loads(as_json(found))
    assert conforms(document, ExplorationJson)
    assert (document["verdict"], document["states"]) == (found.verdict.value, found.states)
    assert not conforms({**document, "states": "many"}, ExplorationJson)
    assert not conforms({**document, "more": 1}, ExplorationJson)


def test_json_of_a_simulation_has_the_documented_shape() -> None:
    for bug in (0, 2):
        document = json.loads(as_json(simulate(pubmodel.build(bug), WORLD, walks=3, length=20)))
        assert conforms(document, SimulationJson)


def test_json_holds_the_story_in_every_form(violated: Exploration) -> None:
    story = json.loads(as_json(violated))["counterexample"]
    assert [step["number"] for step in story["steps"]] == list(range(1, 11))
    assert story["steps"][1]["arguments"] == {"r": "request 0", "e": "engine 0"}
    assert story["mermaid"].startswith("sequenceDiagram\n")
    assert story["text"].startswith("How pubmodel-bug2 comes to violate kv_fresh")
    assert len(story["itf"]["states"]) == 11


# JUnit


def cases(found: Exploration) -> dict[str, list[str]]:
    suites = ElementTree.fromstring(as_junit(found))
    result = {case.attrib["name"]: [child.tag for child in case] for case in suites.iter("testcase")}
    for suite in (suites, *suites.iter("testsuite")):
        tags = [tag for children in result.values() for tag in children]
        assert int(suite.attrib["tests"]) == len(result)
        assert int(suite.attrib["failures"]) == tags.count("failure")
        assert int(suite.attrib["errors"]) == tags.count("error")
    return result


def test_junit_has_a_case_for_every_claim(holds: Exploration) -> None:
    assert cases(holds) == {"comparable": [], "no_dead_end": [], "ahead": []}


def test_junit_counts_undetermined_as_an_error(open_: Exploration, stopped: Exploration) -> None:
    assert cases(open_)["ahead"] == ["error"]
    assert set(map(tuple, cases(stopped).values())) == {("error",)}


def test_junit_tells_the_story_in_the_failure(violated: Exploration) -> None:
    assert cases(violated)["kv_fresh"] == ["failure"]
    assert cases(violated)["cache_fresh"] == ["error"], "not every state was seen"
    failure = ElementTree.fromstring(as_junit(violated)).find(".//failure")
    assert failure is not None
    assert "  1. publisher  begin\n" in (failure.text or "")


# Markdown


def test_markdown_of_what_holds(holds: Exploration) -> None:
    text = as_markdown(holds)
    assert text.startswith("## counting at small: holds\n\nholds: every state of the scope was seen.\n")
    assert "| holds | `comparable` | property | Every load \\| is a load <or less> & so on. |  |" in text
    assert "mermaid" not in text


def test_markdown_is_loud_about_the_rest(open_: Exploration, violated: Exploration) -> None:
    assert "| **undetermined** | `ahead` | goal |" in as_markdown(open_)
    assert "**Actions never taken:** `nap`" in as_markdown(open_)
    text = as_markdown(violated)
    assert "| **violated** | `kv_fresh` |" in text
    assert text.count("```mermaid\nsequenceDiagram\n") == 1
    assert text.count("```") == 4


def test_the_conclusion_is_one_line(holds: Exploration, violated: Exploration) -> None:
    assert conclusion(holds) == "holds: every state of the scope was seen"
    assert conclusion(violated) == "violated: kv_fresh, in 10 steps"
