"""The README's figures are what the code counts."""

from __future__ import annotations

import pytest

from benchmarks import readme
from benchmarks.sections import README, between, replaced
from model_check.mutate import Change, Fate, mutate
from reef_ref.cli.catalogue import PROTOCOLS, find_protocol, known_mutants, known_scopes
from tests.figures import FIGURES

TEXT = README.read_text()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_scope_has_its_lines(protocol: str) -> None:
    """The tests of each protocol, which explore its two smaller scopes anyway, hold their lines to what is found."""
    rows = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in FIGURES]
    for scope in known_scopes(protocol):
        assert {symmetry for p, s, symmetry in rows if (p, s) == (protocol, scope)} == {"no", "yes"}


def test_the_story_is_fresh() -> None:
    """The one that the README tells is the one that is found."""
    assert between(TEXT, "story") == readme.story()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_mutant_is_counted_and_every_part_is_missed_or_stays_for_a_reason(protocol: str) -> None:
    """All mutants are killed as named; of the parts dropped in turn, as many are missed as the README says."""
    total = len(known_mutants(protocol))
    changes = mutate(find_protocol(protocol), known_scopes(protocol)[readme.SMALL])
    assert f"| {protocol} | {total} of {total} | {readme.missed_cells(protocol, changes)} |" in FIGURES


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (Change("flush", "write", 1, "", Fate.SURVIVED, "", None), "no claim of publication misses flush: write 2"),
        (Change("crash", "guard", 0, "", Fate.KILLED, "no_stale_hit", 3), "says why .*crash: guard 1.* stays"),
    ],
)
def test_a_list_that_is_wrong_is_refused(changed: Change, message: str) -> None:
    """A part that nobody misses needs a reason, and one that is missed needs none."""
    with pytest.raises(ValueError, match=message):
        readme.missed_cells("publication", [changed])


def test_only_what_stands_between_the_markers_changes() -> None:
    """The rest of the text stays as it is."""
    text = "before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n"
    assert replaced(text, "figures", "new") == "before\n<!-- figures -->\nnew\n<!-- /figures -->\nafter\n"
    assert between(replaced(text, "figures", "new"), "figures") == "new"


def test_a_readme_without_markers_is_refused() -> None:
    """Nothing is written at a guess."""
    with pytest.raises(ValueError, match="needs the markers"):
        replaced("nothing", "figures", "new")
