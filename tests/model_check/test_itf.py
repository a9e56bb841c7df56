"""Traces that somebody else wrote: read as a run, each step of which `evaluate` takes, or refused in one line."""

from __future__ import annotations

import contextlib
import itertools
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks import pubmodel
from model_check.explore import Counterexample, explore
from model_check.itf import BadTrace, as_itf, read_itf, violations
from reef_ref.cli.catalogue import PROTOCOLS, find_protocol, find_scope
from spec.lang import Protocol, Scope
from tests.agreement.drawn import SCOPES, protocols

FUZZ = settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
WRONG = pubmodel.build(1)


@cache
def story() -> Counterexample:
    found = explore(WRONG, pubmodel.scope(2, 3, 2), workers=1).counterexample
    assert found is not None
    return found


def attempt(text: str) -> bool:
    """Whether a text is a run. If it is one, it is one by the definition; if not, one line says why."""
    space, run = None, ()
    with contextlib.suppress(BadTrace):
        space, run = read_itf(text, WRONG)
    if space is None:
        with pytest.raises(BadTrace) as refused:
            read_itf(text, WRONG)
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 400
        return False
    assert run[0][1] in space.initial_states()
    for (_, before), (instance, after) in itertools.pairwise(run):
        assert instance is not None
        assert space.step(before, instance) == after
    return True


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**6) | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["#map", "#tup", "#bigint", "tag", "value", "states", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a document with every key of it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


@FUZZ
@given(st.data())
def test_a_trace_with_one_thing_changed(data: st.DataObject) -> None:
    trace = json.loads(json.dumps(as_itf(story())))
    holder, key = data.draw(st.sampled_from(places(trace)))
    if data.draw(st.booleans()):
        holder[key] = data.draw(JSON)
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        del holder[key]
    attempt(json.dumps(trace))


@FUZZ
@given(st.text() | st.binary().map(lambda raw: raw.decode(errors="replace")) | JSON.map(json.dumps))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert not attempt(text)


def in_world(**sizes: object) -> str:
    return json.dumps({**as_itf(story()), "#meta": {"scope": {"name": "odd", "sizes": sizes}}})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "not ITF: lists in lists"),
        ("9" * 10_000, "not JSON: "),
        (in_world(Engine=10**9), "#meta.scope: scope odd: says nothing about"),
        (in_world(Engine=2, Request=3, Load=10**12), "#meta.scope: a world with more than 100,000"),
        (in_world(Engine=10**9, Request=3, Load=1), "#meta.scope: a world with more than 100,000"),
        (in_world(Engine="2"), "#meta.scope: sizes and faults are whole numbers"),
    ],
)
def test_what_would_take_for_ever_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadTrace) as refused:
        read_itf(text, WRONG)
    assert str(refused.value).startswith(why)


def test_truth_is_no_number() -> None:
    """Python takes 1 for true."""
    trace = as_itf(story())
    trace["states"][0]["paused"]["#map"][0][1] = 0
    with pytest.raises(BadTrace, match=r"states\[0\]\.paused: 0 is not a Bool"):
        read_itf(json.dumps(trace), WRONG)


def test_a_key_is_there_once() -> None:
    trace = as_itf(story())
    pairs = trace["states"][0]["paused"]["#map"]
    pairs.append([pairs[0][0], True])
    with pytest.raises(BadTrace, match=r"states\[0\]\.paused: has paused\[engine 0\] twice"):
        read_itf(json.dumps(trace), WRONG)


def test_violations_are_those_of_the_exploration() -> None:
    space, run = read_itf(json.dumps(as_itf(story())), WRONG)
    assert violations(space, run) == {story().claim: len(run) - 1}
    assert violations(space, run[:-1]) == {}


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("faults", [None, 2])
def test_runs_of_every_protocol_come_back(name: str, faults: int | None) -> None:
    """Whatever their fields are."""
    protocol = find_protocol(name)
    named = find_scope(name, "smoke", protocol)
    scope = Scope("custom", named.sizes, "to be read back", faults)
    run_comes_back(protocol, scope)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(protocols(), SCOPES)
def test_runs_of_drawn_protocols_come_back(protocol: Protocol, scope: Scope) -> None:
    """The whole language."""
    run_comes_back(protocol, scope)


def run_comes_back(protocol: Protocol, scope: Scope) -> None:
    from model_check.evaluate import Space

    space = Space(protocol, scope)
    state = space.initial_states()[0]
    run: list[Any] = [(None, state)]
    for _ in range(30):
        steps = [step for step in space.successors(run[-1][1]) if step[1] not in {state for _, state in run}]
        if not steps:
            break
        run.append(steps[len(run) * 7 % len(steps)])
    told = Counterexample("nothing", "property", "", space, tuple(run))
    assert read_itf(json.dumps(as_itf(told)), protocol) == (space_like(space), tuple(run))


class space_like:  # noqa: N801 - read as words
    """Equal to a space of the same world."""

    def __init__(self, space: Any) -> None:
        self.scope = space.scope

    def __eq__(self, other: object) -> bool:
        return bool(getattr(other, "scope", None) == self.scope)

    __hash__ = None  # type: ignore[assignment]
