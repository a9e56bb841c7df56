"""The README's figures are what the code counts."""

from __future__ import annotations

import pytest

from benchmarks import readme
from benchmarks.sections import README, between, replaced
from model_check.mutate import Change, Fate, mutate
from reef_ref.cli.catalogue import find_protocol, known_mutants, known_scopes

TEXT = README.read_text()


def test_the_counts_of_the_smallest_scope_are_fresh() -> None:
    """`make figures` writes them; the orbits' sizes add up to the states."""
    lines = between(TEXT, "figures").splitlines()
    assert all(row in lines for row in readme.scope_rows("smoke"))


def test_the_counts_of_the_main_scope_are_fresh() -> None:
    """Those of the world that `make check` explores."""
    row = readme.scope_row(readme.explored("pr", symmetry=True))
    assert row in between(TEXT, "figures").splitlines()


def test_the_story_is_fresh() -> None:
    """The one that the README tells is the one that is found."""
    assert between(TEXT, "story") == readme.story()


def test_every_mutant_is_counted() -> None:
    """The line about mutants speaks of as many as there are, and of no survivor."""
    total = len(known_mutants(readme.PROTOCOL))
    line = f"{total} of {total} named mutants are killed by the property that each names."
    assert line in between(TEXT, "figures").splitlines()


def test_every_part_is_missed_or_stays_for_a_reason() -> None:
    """Every condition and every update dropped in turn: what no property misses is what the README lists."""
    changes = mutate(find_protocol(readme.PROTOCOL), known_scopes(readme.PROTOCOL)[readme.SMALL])
    assert readme.survivors_lines(changes) in between(TEXT, "figures")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (Change("flush", "write", 1, "", Fate.SURVIVED, "", None), "no property misses flush: write 2"),
        (Change("crash", "guard", 0, "", Fate.KILLED, "no_stale_hit", 3), "says why .*crash: guard 1.* stays"),
    ],
)
def test_a_list_that_is_wrong_is_refused(changed: Change, message: str) -> None:
    """A part that nobody misses needs a reason, and one that is missed needs none."""
    with pytest.raises(ValueError, match=message):
        readme.survivors_lines([changed])


def test_only_what_stands_between_the_markers_changes() -> None:
    """The rest of the text stays as it is."""
    text = "before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n"
    assert replaced(text, "figures", "new") == "before\n<!-- figures -->\nnew\n<!-- /figures -->\nafter\n"
    assert between(replaced(text, "figures", "new"), "figures") == "new"


def test_a_readme_without_markers_is_refused() -> None:
    """Nothing is written at a guess."""
    with pytest.raises(ValueError, match="needs the markers"):
        replaced("nothing", "figures", "new")
