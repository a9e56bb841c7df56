"""The README's figures: counted here, written there. ``python -m benchmarks.readme`` (or ``make figures``).

What stands between ``<!-- figures -->`` and ``<!-- /figures -->``, and between ``<!-- story -->`` and its end, is never
typed by hand. Everything in it is a count, the same on every machine, and a test holds the README to it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from model_check.explore import Verdict, explore
from model_check.mutate import Change, Fate, mutate
from model_check.story import as_text, tell
from reef_ref.cli.catalogue import find_mutant, find_protocol, known_mutants, known_scopes
from reef_ref.cli.mutants import Kill, kill_mutant
from reef_ref.cli.output import write

README = Path(__file__).resolve().parent.parent / "README.md"
PROTOCOL = "publication"
SMALL = "smoke"
"""The scope in which mutants are explored."""
TOLD = "no-flush"
"""The mutant whose story the README shows."""
SECONDS = 1800.0
"""For any one exploration."""


def scope_row(scope: str, *, symmetry: bool) -> str:
    """One line of the table: the counts of a whole scope, or that it is too large to be seen whole here."""
    found = explore(
        find_protocol(PROTOCOL), known_scopes(PROTOCOL)[scope], symmetry=symmetry, orbits=symmetry, max_seconds=SECONDS
    )
    name = f"| {scope} | {'yes' if symmetry else 'no'} "
    if found.verdict is not Verdict.HOLDS:
        return f"{name}| {found.verdict.value} after {found.states:,} | | |"
    return f"{name}| {found.states:,} | {found.steps:,} | {found.depth} |"


def scope_table(rows: Iterable[str]) -> str:
    """The table of scopes."""
    head = ("| scope | symmetry | states | transitions | depth |", "|---|---|--:|--:|--:|")
    return "\n".join((*head, *rows))


def mutants_line(kills: Iterable[Kill]) -> str:
    """How many named mutants are killed as they must be."""
    fates = [kill.fate for kill in kills]
    return f"{fates.count('killed')} of {len(fates)} named mutants are killed by the property that each names."


def survivors_lines(changes: Iterable[Change]) -> str:
    """How many parts of actions nobody would miss, and which."""
    changes = list(changes)
    left = [change for change in changes if change.fate is not Fate.KILLED]
    lines = [
        f"Of {len(changes)} parts of actions (each condition of each guard, each update) dropped in turn at scope"
        f" {SMALL}, {len(changes) - len(left)} are missed by some property, goal or recovery;"
        f" {len(left)} are not{':' if left else '.'}"
    ]
    if left:
        lines += ["", "| part | dropped | what becomes of it |", "|---|---|---|"]
        lines += [f"| {c.name} | `{c.text}` | {c.fate.value} |" for c in left]
    return "\n".join(lines)


def story() -> str:
    """The shortest way in which one mutant breaks, as the command line tells it."""
    found = explore(find_mutant(PROTOCOL, TOLD).build(), known_scopes(PROTOCOL)[SMALL])
    assert found.counterexample is not None, f"mutant {TOLD} survives"
    return f"```\n{as_text(tell(found.counterexample))}```"


def replaced(text: str, name: str, content: str) -> str:
    """A text with what stands between two markers exchanged."""
    changed, count = re.subn(
        rf"(?s)(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m[1]}{content}\n{m[2]}", text
    )
    if count != 1:
        raise ValueError(f"{README.name}: needs the markers <!-- {name} --> and <!-- /{name} -->, once")
    return changed


def between(text: str, name: str) -> str:
    """What stands between two markers."""
    found = re.search(rf"(?s)<!-- {name} -->\n(.*?)\n<!-- /{name} -->", text)
    if found is None:
        raise ValueError(f"{README.name}: needs the markers <!-- {name} --> and <!-- /{name} -->")
    return found[1]


def main() -> int:
    """Count everything, then write it."""
    argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__).parse_args()
    text = README.read_text()
    with Console(stderr=True).status("") as status:
        rows = []
        for scope in known_scopes(PROTOCOL):
            for symmetry in (False, True):
                status.update(f"scope {scope} {'with' if symmetry else 'without'} symmetry")
                rows.append(scope_row(scope, symmetry=symmetry))
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
