"""Stories: who acts, what changes, which part of the claim is false; as text, as a diagram, as a trace and back."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest

from benchmarks import pubmodel
from model_check.diagram import as_mermaid
from model_check.evaluate import Space
from model_check.explore import Counterexample, explore
from model_check.itf import BadTrace, as_itf, read_itf
from model_check.reasons import reasons
from model_check.story import Change, as_text, tell
from spec.lang import (
    Bool,
    CanReach,
    Fields,
    Index,
    Map,
    Maybe,
    Natural,
    Protocol,
    Scope,
    Step,
    all_of,
    any_of,
    count,
    each,
    exists,
    field,
    forall,
    ite,
    when,
    wherever,
)


def violation(protocol: Protocol, scope: Scope) -> Counterexample:
    found = explore(protocol, scope).counterexample
    assert found is not None
    return found


@pytest.fixture(scope="module")
def stale() -> Counterexample:
    """A failed flush is ignored, and a running engine ends with a cache of the old weights."""
    return violation(pubmodel.build(1), pubmodel.scope(3, 5, 3))


# Text


def test_every_step_says_who_acts_in_words_and_what_changes(stale: Counterexample) -> None:
    story = tell(stale)
    assert len(story.steps) == stale.steps == 14
    assert [step.number for step in story.steps] == list(range(1, 15))
    first, pause, lost = story.steps[0], story.steps[4], story.steps[7]
    assert (first.who, first.call, first.words) == ("publisher", "begin", "A publication starts.")
    assert first.changes == (Change("target", "0", "1"), Change("phase", "IDLE", "PAUSE"))
    assert (pause.by, pause.on, pause.who) == ("publisher", "engine 0", "publisher → engine 0")
    assert Change("kv[request 0]", "{0}", "{}") in pause.changes
    assert lost.words == "A refused flush is taken for a done one."
    assert story.steps[3].call == "insert(request 0, engine 0, v: 0)"


def test_the_changes_of_every_step_are_the_difference_of_its_states(stale: Counterexample) -> None:
    space = stale.space
    for step, (_, before), (_, after) in zip(tell(stale).steps, stale.run, stale.run[1:], strict=False):
        fields = {space.cell_name(n)[0].name for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}
        assert {change.what.split("[")[0] for change in step.changes} == fields


def test_the_violated_parts_are_named_with_their_values(stale: Counterexample) -> None:
    story = tell(stale)
    assert story.doc == "A running engine's cache was made by its weights."
    assert [(r.text, r.holds, r.facts) for r in story.why] == [
        ("paused[engine 0]", False, ()),
        ("cache[engine 0] == none", False, ("cache[engine 0] is 0",)),
        ("cache[engine 0] == weights[engine 0]", False, ("cache[engine 0] is 0", "weights[engine 0] is 1")),
    ]
    assert dict(story.ending) == {
        "weights": "1 for every engine",
        "cache": "engine 0: 0, engine 1: none, engine 2: none",
        "paused": "engine 0: no, engine 1: yes, engine 2: yes",
    }


def test_text_fits_the_width(stale: Counterexample) -> None:
    for width in (60, 100):
        text = as_text(tell(stale), width)
        assert max(map(len, text.splitlines())) <= width
        assert "  8. publisher → engine 0  flush_lost(engine 0)\n" in text


class Engine(Index):
    """An engine."""


class Load(Natural):
    """A load."""


class Fleet(Fields):
    """A small state with a field of every kind."""

    moved: Bool = field("whether anything happened")
    load: Map[Engine, Load] = field("the load of its weights")
    leader: Maybe[Engine] = field("the engine that was first")


def fleet() -> Protocol:
    protocol = Protocol("fleet", Fleet, "Engines count up.")

    @protocol.initially
    def begin(moved: Bool) -> Step:
        """All begin at 0. Whether anything happened before is open."""
        return when().then(moved=moved, load=each(Engine, lambda e: 0), leader=None)

    @protocol.action(by="e")
    def count_up(s: Fleet, e: Engine) -> Step:
        """An engine counts up. It may be the first."""
        return when(s.load[e] < 2).then(moved=True, load={e: s.load[e] + 1}, leader=s.leader.or_else(e))

    @protocol.fault(by="weather", on="e")
    def reset(s: Fleet, e: Engine) -> Step:
        """Lightning strikes."""
        return when(s.moved).then(load=each(Engine, lambda f: 0))

    @protocol.may_rest
    def anywhere(s: Fleet) -> Bool:
        """Nothing need happen."""
        return all_of()

    return protocol


SMALL = Scope("small", {"Engine": 2, "Load": 2}, "two of each", faults=1)


def test_a_step_property_is_told_of_both_states() -> None:
    protocol = fleet()

    @protocol.step_property
    def never_falls(s: Fleet, t: Fleet) -> Bool:
        """No load falls."""
        return forall(Engine, lambda e: s.load[e] <= t.load[e])

    story = tell(violation(protocol, SMALL))
    last = story.steps[-1]
    assert (last.who, last.fault, last.call) == ("weather → engine 0", True, "reset(engine 0)")
    assert len(story.why) == 1
    assert not story.why[0].holds
    assert set(story.why[0].facts) == {"load[engine 0] is 1", "load[engine 0] after is 0"}
    assert "weather → engine 0  reset(engine 0)  fault\n" in as_text(story)
    assert "faults" not in {c.what for step in story.steps for c in step.changes}, "the scope's own counter"


def test_a_recovery_is_told_by_where_it_is_lost() -> None:
    protocol = fleet()

    @protocol.recovery()
    def returns(s: Fleet) -> CanReach:
        """Everything can be as it was."""
        return wherever(s.moved).can_reach(forall(Engine, lambda e: s.load[e] == 0))

    story = tell(violation(protocol, SMALL))
    assert story.kind == "recovery"
    assert story.formula == "from moved, without faults, can be reached: every Engine e: load[e] == 0"
    assert [(r.text, r.holds) for r in story.why] == [("moved", True), ("load[engine 0] == 0", False)]


def test_the_setting_is_what_the_first_states_differ_in() -> None:
    protocol = fleet()

    @protocol.property
    def still(s: Fleet) -> Bool:
        """Nothing happens."""
        return ~s.moved

    story = tell(violation(protocol, SMALL))
    assert story.steps == ()
    assert story.setting == (("moved", "yes"),)
    assert story.opening == "All begin at 0."
    assert as_text(story).startswith("How fleet comes to violate still, in 0 steps\n")


def test_a_dead_end_is_told_with_the_whole_state() -> None:
    protocol = fleet()
    protocol.rest.clear()
    protocol.remove_action("count_up")
    story = tell(violation(protocol, SMALL))
    assert story.claim == "no_dead_end"
    assert [name for name, _ in story.ending] == ["moved", "load", "leader", "faults"]


# Reasons

ONE, TWO = (1, 0, 1, 2), (1, 2, 0, 0)
"""moved, load 0 and 1, leader 1; moved, load 2 and 0, no leader."""


@pytest.mark.parametrize(
    ("condition", "state", "expected"),
    [
        (lambda s: forall(Engine, lambda e: s.load[e] == 0), ONE, [("load[engine 1] == 0", False)]),
        (lambda s: exists(Engine, lambda e: s.load[e] == 1), ONE, [("load[engine 1] == 1", True)]),
        (lambda s: exists(Engine, lambda e: s.load[e] == 2), ONE, [("some Engine e: load[e] == 2", False)]),
        (lambda s: all_of(s.moved, s.leader.is_none), ONE, [("leader == none", False)]),
        (lambda s: all_of(s.moved, ~s.leader.is_none), ONE, [("moved", True), ("leader != none", True)]),
        (lambda s: any_of(~s.moved, s.leader.is_none), ONE, [("moved", True), ("leader == none", False)]),
        (lambda s: any_of(s.leader.is_none, s.moved), ONE, [("moved", True)]),
        (lambda s: ~(s.moved & s.leader.is_none), TWO, [("moved", True), ("leader == none", True)]),
        (lambda s: ite(s.moved, s.leader.is_none, True), ONE, [("moved", True), ("leader == none", False)]),
        (
            lambda s: s.moved.implies(s.load.get(s.leader, 0) == 2),
            ONE,
            [("moved", True), ("load[leader] or 0 == 2", False)],
        ),
    ],
)
def test_reasons_are_the_parts_that_decide(
    condition: Any, state: tuple[int, ...], expected: list[tuple[str, bool]]
) -> None:
    protocol = fleet()

    def asked(s: Fleet) -> Bool:
        """Asked."""
        answer: Bool = condition(s)
        return answer

    protocol.property(asked)
    space = Space(protocol, Scope("small", SMALL.sizes, ""))
    found = reasons(space, space.protocol.properties["asked"].node, state)
    assert [(r.text, r.holds) for r in found] == expected


def test_facts_count_and_name_whole_fields_under_a_quantifier() -> None:
    protocol = fleet()

    @protocol.property
    def one_ahead(s: Fleet) -> Bool:
        """At most one engine is ahead."""
        return count(Engine, lambda e: s.load[e] == 2) == 2

    space = Space(protocol, Scope("small", SMALL.sizes, ""))
    (reason,) = reasons(space, space.protocol.properties["one_ahead"].node, TWO)
    assert reason.facts == ("how many Engine e: load[e] == 2 is 1", "load is engine 0: 2, engine 1: 0")


# Mermaid


def test_the_diagram_has_a_lane_for_every_engine_and_every_actor_that_occurs(stale: Counterexample) -> None:
    story = tell(stale)
    assert story.lanes == ("router", "publisher", "engine 0", "engine 1", "engine 2")
    lines = as_mermaid(story).splitlines()
    assert lines[0] == "sequenceDiagram"
    assert lines[1:6] == [f"    participant lane{n} as {lane}" for n, lane in enumerate(story.lanes)]
    arrows = [line for line in lines if "->>" in line]
    assert len(arrows) == 14
    assert arrows[0] == "    lane1->>lane1: 1. begin"
    assert arrows[3] == "    lane2->>lane2: 4. insert(request 0, v: 0)"
    assert arrows[7] == "    lane1->>lane2: 8. flush_lost"
    assert lines[-1].startswith("    Note over lane0,lane4: violated: cache_fresh<br/>")


def test_every_line_of_a_diagram_is_one_that_mermaid_reads() -> None:
    """The grammar that is used, and no character in a text that would end it or start an escape."""
    protocol = fleet()

    @protocol.property
    def low(s: Fleet) -> Bool:
        """Loads; stay <low> #1, 100%."""
        return forall(Engine, lambda e: s.load[e] < 1)

    source = as_mermaid(tell(violation(protocol, SMALL)))
    text = r"(?:[^;#<>%\n]|#\d+;|<br/>)+"
    shapes = (
        r"sequenceDiagram",
        rf"    participant lane\d+ as {text}",
        rf"    lane\d+(?:->>|-x)lane\d+: {text}",
        rf"    Note over lane\d+(?:,lane\d+)?: {text}",
    )
    for line in source.splitlines():
        assert any(re.fullmatch(shape, line) for shape in shapes), line
    assert "Loads#59; stay #60;low#62; #35;1, 100#37;." in source


# ITF


def test_a_trace_names_values_as_other_tools_do(stale: Counterexample) -> None:
    trace = as_itf(stale)
    assert trace["#meta"]["format"] == "ITF"
    assert trace["vars"] == list(stale.space.protocol.fields)
    state = trace["states"][4]
    assert state["#meta"] == {"index": 4, "action": "insert", "arguments": ["request 0", "engine 0", {"#bigint": "0"}]}
    assert state["target"] == {"#bigint": "1"}
    assert state["phase"] == "PAUSE"
    assert state["paused"]["#map"][0] == ["engine 0", False]
    assert state["cache"]["#map"][:2] == [
        ["engine 0", {"tag": "Some", "value": {"#bigint": "0"}}],
        ["engine 1", {"tag": "None", "value": {"#tup": []}}],
    ]
    assert state["kv"]["#map"][0] == [{"#tup": ["request 0", {"#bigint": "0"}]}, True]
    assert trace["#meta"]["varTypes"]["kv"] == "(<<Str, Int>> -> Bool)"


@pytest.mark.parametrize("named", [True, False])
def test_a_trace_is_read_back_and_replayed(stale: Counterexample, named: bool) -> None:
    """Also without the names of actions, as other tools write it."""
    trace = as_itf(stale)
    if not named:
        for state in trace["states"]:
            del state["#meta"]
    space, run = read_itf(json.dumps(trace), pubmodel.build(1))
    assert run == stale.run
    assert space.scope == stale.space.scope


def spoil(trace: dict[str, Any], case: str) -> str:
    states = trace["states"]
    match case:
        case "not JSON":
            return "{"
        case "no states":
            return "[]"
        case "no scope":
            del trace["#meta"]["scope"]
        case "other beginning":
            states[0]["phase"] = "PAUSE"
        case "missing field":
            del states[2]["phase"]
        case "no such value":
            states[2]["phase"] = "NAP"
        case "missing key":
            del states[2]["paused"]["#map"][1]
        case "no map":
            states[2]["paused"] = []
        case "other state":
            states[3]["status"]["#map"][0][1] = "DONE"
        case "impossible":
            states[3]["#meta"] = {"action": "flush", "arguments": ["engine 0"]}
        case "unknown action":
            states[3]["#meta"]["action"] = "nap"
        case "too few arguments":
            states[3]["#meta"]["arguments"] = []
        case "no step":
            del states[3]["#meta"]
            states[3]["phase"] = "REBUILD"
    return json.dumps(trace)


BAD = {
    "not JSON": "not JSON: ",
    "no states": "not an ITF trace: an object with a list of states is needed",
    "no scope": "#meta.scope: names no scope, and none was given",
    "other beginning": "states[0]: not an initial state of pubmodel-bug1",
    "missing field": "states[2]: has no phase",
    "no such value": 'states[2].phase: "NAP" is not a Phase of scope 3,5,3',
    "missing key": "states[2].paused: has no paused[engine 1]",
    "no map": "states[2].paused: a #map is needed",
    "other state": "states[3].status[request 0]: admit(request 0, engine 0) makes it RUN, not DONE",
    "impossible": "states[3]: flush(engine 0) is not possible: a condition of the guard is false",
    "unknown action": "states[3]: pubmodel-bug1 has no action 'nap'",
    "too few arguments": "states[3]: admit takes 2 arguments",
    "no step": "states[3]: no action of pubmodel-bug1 leads here",
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_trace_is_refused_in_one_line(stale: Counterexample, case: str) -> None:
    text = spoil(copy.deepcopy(as_itf(stale)), case)
    with pytest.raises(BadTrace) as refused:
        read_itf(text, pubmodel.build(1))
    assert str(refused.value).startswith(BAD[case])
    assert "\n" not in str(refused.value)
