"""The README's figures: counted here, written there. ``python -m benchmarks.readme`` (or ``make figures``).

What stands between ``<!-- figures -->`` and ``<!-- /figures -->``, and between ``<!-- story -->`` and its end, is never
typed by hand. Everything in it is a count, the same on every machine, and a test holds the README to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from rich.console import Console

from benchmarks.sections import README, replaced
from model_check.explore import Exploration, Verdict, explore
from model_check.mutate import Change, Fate, mutate
from model_check.story import as_text, tell
from reef_ref.cli.catalogue import find_mutant, find_protocol, known_mutants, known_scopes
from reef_ref.cli.mutants import Kill, kill_mutant
from reef_ref.cli.output import write
from spec.publication.mutants import UNMISSED

PROTOCOL = "publication"
SMALL = "smoke"
"""The scope in which mutants are explored."""
TOLD = "no-flush"
"""The mutant whose story the README shows."""
SECONDS = 1800.0
"""For any one exploration."""
MOST = 20_000_000
"""States that are explored one by one; of a larger world the orbits are."""


def explored(scope: str, *, symmetry: bool) -> Exploration:
    """The whole of a scope, and with symmetry what its states stand for."""
    found = explore(
        find_protocol(PROTOCOL), known_scopes(PROTOCOL)[scope], symmetry=symmetry, orbits=symmetry, max_seconds=SECONDS
    )
    assert found.verdict is Verdict.HOLDS, f"scope {scope}: {found.verdict.value}: {found.reason}"
    return found


def scope_row(found: Exploration) -> str:
    """One line of the table: the counts of one exploration."""
    symmetry = "yes" if found.symmetric else "no"
    return f"| {found.scope.name} | {symmetry} | {found.states:,} | {found.steps:,} | {found.depth} |"


def scope_rows(scope: str) -> Iterator[str]:
    """The lines of one scope: all its states, and one for each orbit.

    Where there are too many to be explored one by one, their number is the sum of the orbits' sizes.
    """
    orbits = explored(scope, symmetry=True)
    if orbits.orbits > MOST:
        yield f"| {scope} | no | {orbits.orbits:,} | | {orbits.depth} |"
    else:
        whole = explored(scope, symmetry=False)
        assert whole.states == orbits.orbits, f"scope {scope}: {whole.states:,} states, orbits of {orbits.orbits:,}"
        yield scope_row(whole)
    yield scope_row(orbits)


def scope_table(rows: Iterable[str]) -> str:
    """The table of scopes."""
    head = ("| scope | symmetry | states | transitions | depth |", "|---|---|--:|--:|--:|")
    return "\n".join((*head, *rows))


def mutants_line(kills: Iterable[Kill]) -> str:
    """How many named mutants are killed as they must be."""
    fates = [kill.fate for kill in kills]
    return f"{fates.count('killed')} of {len(fates)} named mutants are killed by the property that each names."


def survivors_lines(changes: Iterable[Change]) -> str:
    """How many parts of actions are missed when they are dropped, and why each of the others stays.

    Raises:
        ValueError: the parts that are not missed are not those that the specification gives a reason for.
    """
    changes = list(changes)
    left = {change.name for change in changes if change.fate is not Fate.KILLED}
    reasons = {name: why for why, names in UNMISSED.items() for name in names}
    if without := sorted(left - set(reasons)):
        raise ValueError(f"no property misses {', '.join(without)}, and UNMISSED says not why it stays")
    if missed := sorted(set(reasons) - left):
        raise ValueError(f"UNMISSED says why {', '.join(missed)} stays, which a property does miss")
    return "\n".join(
        (
            f"Of {len(changes)} parts of actions (each condition of each guard, each update), dropped in turn at scope"
            f" {SMALL}, {len(changes) - len(left)} are missed by some property, goal or recovery; {len(left)} are not:",
            "",
            *reason_lines(),
        )
    )


def reason_lines() -> Iterator[str]:
    """The parts that nobody misses, by why they stay."""
    for why, names in UNMISSED.items():
        yield f"* {why}: {', '.join(f'`{name}`' for name in names)}"


def story() -> str:
    """The shortest way in which one mutant breaks, as the command line tells it."""
    wrong = find_mutant(PROTOCOL, TOLD)
    found = explore(wrong.build(), known_scopes(PROTOCOL)[SMALL], only=[wrong.breaks])
    assert found.counterexample is not None, f"mutant {TOLD} survives"
    command = f"reef-ref check {PROTOCOL} --scope {SMALL} --mutant {TOLD} --property {wrong.breaks}"
    return f"```console\n$ {command}\n{as_text(tell(found.counterexample))}```"


def main() -> int:
    """Count everything, then write it."""
    argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__).parse_args()
    text = README.read_text()
    with Console(stderr=True).status("") as status:
        rows: list[str] = []
        for scope in known_scopes(PROTOCOL):
            status.update(f"scope {scope}")
            rows += scope_rows(scope)
        kills = []
        for name in known_mutants(PROTOCOL):
            status.update(f"mutant {name}")
            kills.append(kill_mutant(PROTOCOL, SMALL, name, SECONDS))
        status.update("every part dropped in turn")
        changes = list(mutate(find_protocol(PROTOCOL), known_scopes(PROTOCOL)[SMALL]))
    parts = (scope_table(rows), mutants_line(kills), survivors_lines(changes))
    text = replaced(text, "figures", "\n\n".join(parts))
    write(README, replaced(text, "story", story()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
