"""The README's figures: counted here, written there. ``python -m benchmarks.readme`` (or ``make figures``).

What stands between ``<!-- worlds -->`` and ``<!-- /worlds -->``, and between the marks of the other `PARTS`, is never
typed by hand. Everything in it is a count, the same on every machine, and tests hold the README to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module

from rich.console import Console

from benchmarks.sections import put
from model_check.explore import Exploration, Verdict, explore
from model_check.mutate import Change, Fate, mutate
from model_check.prove.induction import Proof, prove
from model_check.prove.prover import Answer
from model_check.story import as_text, tell
from reef_ref.cli.catalogue import PROTOCOLS, find_mutant, find_protocol, known_mutants, known_scopes
from reef_ref.cli.mutants import Kill, kill_mutant
from reef_ref.cli.prove import theory_of

SMALL = "smoke"
"""The scope in which mutants are explored."""
STORY = ("publication", "no-flush")
"""The protocol and the mutant whose story the README shows."""
SECONDS = 1800.0
"""For any one exploration."""
MOST = 20_000_000
"""States that are explored one by one; of a larger world the orbits are."""


def explored(protocol: str, scope: str, *, symmetry: bool) -> Exploration:
    """The whole of a scope, and with symmetry what its states stand for."""
    found = explore(
        find_protocol(protocol), known_scopes(protocol)[scope], symmetry=symmetry, orbits=symmetry, max_seconds=SECONDS
    )
    assert found.verdict is Verdict.HOLDS, f"{protocol}, scope {scope}: {found.verdict.value}: {found.reason}"
    return found


def scope_row(found: Exploration) -> str:
    """One line of the table: the counts of one exploration."""
    symmetry = "yes" if found.symmetric else "no"
    return (
        f"| {found.protocol} | {found.scope.name} | {symmetry} | {found.states:,} | {found.steps:,} | {found.depth} |"
    )


def sum_row(orbits: Exploration) -> str:
    """The line of a scope whose states are too many to be explored one by one: the sum of the orbits' sizes."""
    return f"| {orbits.protocol} | {orbits.scope.name} | no | {orbits.orbits:,} | | {orbits.depth} |"


def scope_rows(protocol: str, scope: str) -> Iterator[str]:
    """The lines of one scope: all its states, and one for each orbit."""
    orbits = explored(protocol, scope, symmetry=True)
    if orbits.orbits > MOST:
        yield sum_row(orbits)
    else:
        whole = explored(protocol, scope, symmetry=False)
        assert whole.states == orbits.orbits, f"scope {scope}: {whole.states:,} states, orbits of {orbits.orbits:,}"
        yield scope_row(whole)
    yield scope_row(orbits)


def scope_table(rows: Iterable[str]) -> str:
    """The table of scopes."""
    head = ("| protocol | scope | symmetry | states | transitions | depth |", "|---|---|---|--:|--:|--:|")
    return "\n".join((*head, *rows))


def strength_row(protocol: str, kills: Iterable[Kill], changes: Iterable[Change]) -> str:
    """How many named mutants are killed as they must be, and how many parts of actions are missed when dropped."""
    fates = [kill.fate for kill in kills]
    return f"| {protocol} | {fates.count('killed')} of {len(fates)} | {missed_cells(protocol, changes)} |"


def missed_cells(protocol: str, changes: Iterable[Change]) -> str:
    """The cells of one protocol on its parts: how many there are, how many are missed, how many stay for a reason.

    Raises:
        ValueError: the parts that are not missed are not those that the specification gives a reason for.
    """
    changes = list(changes)
    left = {change.name for change in changes if change.fate is not Fate.KILLED}
    unmissed = import_module(f"spec.{protocol}.mutants").UNMISSED
    listed = {name for names in unmissed.values() for name in names}
    if without := sorted(left - listed):
        raise ValueError(f"no claim of {protocol} misses {', '.join(without)}, and UNMISSED says not why it stays")
    if missed := sorted(listed - left):
        raise ValueError(f"UNMISSED says why {', '.join(missed)} stays, which a claim of {protocol} does miss")
    return f"{len(changes)} | {len(changes) - len(left)} | {len(left)}"


def strength_table(rows: Iterable[str]) -> str:
    """The table of what would be noticed."""
    head = (
        "| protocol | wrong protocols killed by the claim that each names | parts of actions | missed when dropped | "
        "kept for a reason |",
        "|---|--:|--:|--:|--:|",
    )
    return "\n".join((*head, *rows))


def proof_row(protocol: str, proof: Proof) -> str:
    """How many claims of a protocol are proved for any number of everything, and which are not."""
    proved = [outcome.claim for outcome in proof.outcomes if outcome.answer is Answer.HOLDS]
    others = [outcome.claim for outcome in proof.outcomes if outcome.answer is not Answer.HOLDS]
    explored = [*find_protocol(protocol).recoveries, *find_protocol(protocol).eventualities]
    return (
        f"| {protocol} | {len(proved)} of {len(proof.outcomes)} | {len(proof.discharges):,} "
        f"| {', '.join(f'`{name}`' for name in [*others, *explored])} |"
    )


def proof_table(rows: Iterable[str]) -> str:
    """The table of proofs."""
    head = (
        "| protocol | safety claims proved for any number | obligations | only explored, in worlds of a scope |",
        "|---|--:|--:|---|",
    )
    return "\n".join((*head, *rows))


def story() -> str:
    """The shortest way in which one mutant breaks, as the command line tells it."""
    protocol, mutant = STORY
    wrong = find_mutant(protocol, mutant)
    found = explore(wrong.build(), known_scopes(protocol)[SMALL], only=[wrong.breaks])
    assert found.counterexample is not None, f"mutant {mutant} survives"
    command = f"reef-ref check {protocol} --scope {SMALL} --mutant {mutant} --property {wrong.breaks}"
    return f"```console\n$ {command}\n{as_text(tell(found.counterexample))}```"


PARTS: Mapping[str, Callable[[Callable[[str], None]], str]] = {
    "worlds": lambda say: scope_table(_scope_rows(say)),
    "strength": lambda say: strength_table(_strength_rows(say)),
    "proofs": lambda say: proof_table(_proof_rows(say)),
    "story": lambda say: story(),
}
"""What makes each section, given somebody to tell how far it is."""


def _scope_rows(say: Callable[[str], None]) -> Iterator[str]:
    for protocol in PROTOCOLS:
        for scope in known_scopes(protocol):
            say(f"{protocol}, scope {scope}")
            yield from scope_rows(protocol, scope)


def _strength_rows(say: Callable[[str], None]) -> Iterator[str]:
    for protocol in PROTOCOLS:
        kills = []
        for name in known_mutants(protocol):
            say(f"{protocol}, mutant {name}")
            kills.append(kill_mutant(protocol, SMALL, name, SECONDS))
        say(f"{protocol}, every part dropped in turn")
        yield strength_row(protocol, kills, mutate(find_protocol(protocol), known_scopes(protocol)[SMALL]))


def _proof_rows(say: Callable[[str], None]) -> Iterator[str]:
    for protocol in PROTOCOLS:
        say(f"{protocol}, proofs")
        yield proof_row(protocol, prove(partial(theory_of, protocol, None), workers=2))


def main() -> int:
    """Count everything, or the parts that are named, and write each when it is counted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; none: all of them")
    wanted = parser.parse_args().parts or list(PARTS)
    if unknown := [part for part in wanted if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}: there are {', '.join(PARTS)}")
    with Console(stderr=True).status("") as status:
        for part in wanted:
            put(part, PARTS[part](status.update))
    return 0


if __name__ == "__main__":
    sys.exit(main())
