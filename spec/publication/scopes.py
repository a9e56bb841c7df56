"""Small worlds in which the publication protocol is explored, and why each is worth it."""

from __future__ import annotations

from types import MappingProxyType

from spec.lang import Scope

SMOKE = Scope(
    "smoke",
    {"Engine": 2, "Load": 2, "Content": 2},
    "two engines show every way in which one is ahead of the other, one job meets every fault any number of times, and "
    "one id more than jobs shows who takes an id too many",
)

PR = Scope(
    "pr",
    {"Engine": 2, "Load": 3, "Content": 4},
    "three jobs on two engines: each record has a parent that was itself published or refused, and an id or bytes of "
    "the load before last would be seen if they came back",
)

NIGHTLY = Scope(
    "nightly",
    {"Engine": 3, "Load": 2, "Content": 3},
    "three engines and two jobs: an engine can be ahead, behind and lost at once, over two publications in a row",
)

SCOPES = MappingProxyType({scope.name: scope for scope in (SMOKE, PR, NIGHTLY)})
"""Every scope by its name. None bounds how many faults there are."""
