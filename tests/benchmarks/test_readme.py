"""The README's figures are what the code counts."""

from __future__ import annotations

import pytest

from benchmarks import readme
from benchmarks.readme import between, replaced

TEXT = readme.README.read_text()


@pytest.mark.parametrize(("scope", "symmetry"), [("smoke", False), ("smoke", True), ("pr", True)])
def test_the_counts_of_a_scope_are_fresh(scope: str, symmetry: bool) -> None:
    """`make figures` writes them."""
    assert readme.scope_row(scope, symmetry=symmetry) in between(TEXT, "figures").splitlines()


def test_the_story_is_fresh() -> None:
    """The one that the README tells is the one that is found."""
    assert between(TEXT, "story") == readme.story()


def test_every_mutant_is_counted() -> None:
    """The line about mutants speaks of as many as there are, and of no survivor."""
    total = len(readme.known_mutants(readme.PROTOCOL))
    line = f"{total} of {total} named mutants are killed by the property that each names."
    assert line in between(TEXT, "figures").splitlines()


def test_only_what_stands_between_the_markers_changes() -> None:
    """The rest of the text stays as it is."""
    text = "before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n"
    assert replaced(text, "figures", "new") == "before\n<!-- figures -->\nnew\n<!-- /figures -->\nafter\n"
    assert between(replaced(text, "figures", "new"), "figures") == "new"


def test_a_readme_without_markers_is_refused() -> None:
    """Nothing is written at a guess."""
    with pytest.raises(ValueError, match="needs the markers"):
        replaced("nothing", "figures", "new")
