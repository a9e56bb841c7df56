"""What is done about a violation: as the policy says, or in one line why that is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref.monitor.notice import Violation
from reef_ref.monitor.policy import PROPERTIES, BadPolicy, Policy, Reaction


def violation(name: str, engine: int | None = 0, *, stopped: bool = False) -> Violation:
    return Violation(name, engine, "engine:0/rank:0/7", 5, "because", ("5. it",), stopped)


def test_a_stale_hit_is_fenced_and_the_rest_reported() -> None:
    """Unless something else was said."""
    assert {n for n in PROPERTIES if Policy().reaction(violation(n)) is Reaction.FENCE} == {"no_stale_hit"}


def test_what_the_engine_stopped_is_only_reported() -> None:
    """Nothing came of it."""
    assert Policy().reaction(violation("no_stale_hit", stopped=True)) is Reaction.REPORT


def test_a_file_and_the_command_line_say_more(tmp_path: Path) -> None:
    """The command line wins."""
    file = tmp_path / "policy.yaml"
    file.write_text("otherwise: retire\nreactions:\n  flush_point: halt\n  no_stale_hit: report\n")
    policy = Policy.of(["no_stale_hit=halt"], Policy.read(file))
    assert policy.reaction(violation("no_stale_hit")) is Reaction.HALT
    assert policy.reaction(violation("flush_point")) is Reaction.HALT
    assert policy.reaction(violation("adapters_are_apart")) is Reaction.RETIRE
    (tmp_path / "empty.yaml").write_text("")
    assert Policy.read(tmp_path / "empty.yaml").reaction(violation("no_stale_hit")) is Reaction.FENCE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("reactions: {no_stale_hits: halt}", "unknown property 'no_stale_hits': one of no_stale_hit, "),
        ("reactions: {no_stale_hit: stop}", "reactions.no_stale_hit: Input should be 'report', 'fence'"),
        ("reaction: {}", "reaction: Extra inputs are not permitted"),
        ("- halt", "the file: Input should be a valid dictionary"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: [", "while parsing a flow"),
        ("#" * 70_000, "longer than 65,536 bytes"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, why: str) -> None:
    """And nothing is executed."""
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(BadPolicy) as caught:
        Policy.read(file)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("saying", ["no_stale_hit", "no_stale_hit=stop", "=fence", ""])
def test_a_saying_of_another_form_is_refused(saying: str) -> None:
    """With what would be right."""
    with pytest.raises(BadPolicy):
        Policy.of([saying])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=200), st.text(alphabet="&*!{}[]: -\n\"'abr|>%@`", max_size=60).map(str.encode)))
def test_any_file_is_a_policy_or_none(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    """Never anything else."""
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(raw)
    problem = ""
    try:
        Policy.read(file)
    except BadPolicy as error:
        problem = str(error)
    assert "\n" not in problem
