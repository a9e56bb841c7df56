"""The counts of the common model, on which independent checkers agree: every run is held to them."""

from __future__ import annotations

from dataclasses import dataclass

World = tuple[int, int, int]
"""Engines, requests, loads."""


@dataclass(frozen=True)
class Counts:
    """What the whole of one world holds.

    `depth` is the largest number of steps from the initial state. `orbits` and `orbit_transitions` are the same counts
    up to exchange of engines and of requests.
    """

    states: int
    transitions: int
    depth: int
    orbits: int
    orbit_transitions: int


EXPECTED: dict[World, Counts] = {
    (2, 3, 3): Counts(7_944, 38_028, 23, 1_132, 5_263),
    (3, 4, 3): Counts(331_292, 2_273_665, 31, 5_842, 38_692),
    (3, 5, 3): Counts(2_491_930, 20_674_733, 34, 12_888, 101_263),
    (3, 6, 2): Counts(10_157_633, 98_439_041, 29, 13_892, 126_306),
}

VIOLATION_STEPS = {1: 14, 2: 13}
"""Steps of the shortest violation of each deliberate bug, in a world of three engines."""
