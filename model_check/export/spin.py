"""SPIN on a model: its verifier made and run, and what that found."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_check.evaluate import Space, State
from model_check.export.promela import promela
from model_check.process import Failed, Finished, run, tool

LIMIT = 600.0
"""Seconds for any one program."""
SMALL_TABLE = 16
"""The logarithm of the slots of a hash table that is enough for a small world; emptying SPIN's own takes longer."""


@dataclass(frozen=True)
class Pan:
    """What a verifier of SPIN counted. `transitions` counts the arrival at the first state too."""

    states: int
    transitions: int
    errors: int
    seconds: float
    finished: Finished


def make(
    folder: Path, text: str, *, limit: float = LIMIT, generate: Sequence[str] = (), build: Sequence[str] = ()
) -> float:
    """Make the verifier of a model, with options for SPIN and for the compiler. Answers the seconds that it took.

    Raises:
        Missing: SPIN or gcc is not installed.
        Failed: one of them refuses.
    """
    model = folder / "model.pml"
    model.write_text(text)
    seconds = run([tool("spin"), *generate, "-a", model.name], limit=limit, folder=folder).seconds
    return seconds + run([tool("gcc"), *build, "-o", "pan", "pan.c"], limit=limit, folder=folder).seconds


class TooDeep(Failed):
    """A path is longer than the verifier had room for."""


def pan(folder: Path, *options: str, limit: float = LIMIT) -> Pan:
    """Run a verifier that was made here, without a look at end states.

    Raises:
        Failed: it ends badly, does not end in time, or does not see all that there is.
    """
    finished = run([folder / "pan", "-E", *options], limit=limit, folder=folder)
    text = finished.output
    if "max search depth too small" in text:
        raise TooDeep("pan: the search is deeper than -m allows")
    return Pan(
        states=int(_match(r"(\d+) states, stored", text)),
        transitions=int(_match(r"(\d+) transitions", text)),
        errors=int(_match(r"errors: (\d+)", text)),
        seconds=float(_match(r"elapsed time ([\d.]+) seconds", text)),
        finished=finished,
    )


@dataclass(frozen=True)
class Verified:
    """What SPIN finds in every state of an exported protocol: how many states and steps, and whose claims fail.

    `visited` has the states themselves, where they were asked for.
    """

    states: int
    steps: int
    violated: frozenset[str]
    reached: frozenset[str]
    visited: frozenset[State]


def verify(
    space: Space, *, visit: bool = False, quick: bool = False, depth: int = 1_000_000, limit: float = LIMIT
) -> Verified:
    """Export a protocol in its scope, and let SPIN see all of it, also past violations.

    Args:
        space: the protocol in its scope.
        visit: also answer the states.
        quick: the world is small, so that compiling the verifier well takes longer than it would save.
        depth: the most steps of SPIN on one path, some for each step of the protocol; ten times as many if need be.
        limit: seconds for each program.

    Raises:
        Missing: SPIN or gcc is not installed.
        Failed: one of the programs refuses, or is not done in time.
    """
    with tempfile.TemporaryDirectory(prefix="spin-") as name:
        folder = Path(name)
        asked = ["-DREPORT", *(["-DSTATES"] if visit else [])]
        room = 256 + 8 * space.cells
        make(
            folder,
            promela(space),
            limit=limit,
            generate=("-o2", *asked),
            build=("-O0" if quick else "-O1", "-w", "-DSAFETY", "-DNOREDUCE", f"-DVECTORSZ={room}"),
        )
        table = [f"-w{SMALL_TABLE}"] if quick else []
        try:
            found = pan(folder, f"-m{depth}", *table, limit=limit)
        except TooDeep:
            found = pan(folder, f"-m{10 * depth}", *table, limit=limit)
    lines = found.finished.output.splitlines()
    visited = frozenset(tuple(map(int, line.split()[1:])) for line in set(lines) if line.startswith("state "))
    choices = sum(1 for _ in space.first_steps())
    # The process starts with nothing chosen: that is a state, and each choice a transition.
    return Verified(
        states=found.states - 1,
        steps=found.transitions - 1 - choices,
        violated=_told("violated", lines),
        reached=_told("reached", lines),
        visited=visited,
    )


def _told(word: str, lines: Sequence[str]) -> frozenset[str]:
    return frozenset(line.split()[1] for line in lines if line.startswith(f"{word} "))


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise Failed(f"pan: no {pattern!r} in what it printed")
    return found[1]
