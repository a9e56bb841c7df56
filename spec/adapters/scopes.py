"""Small worlds in which the adapter protocol is explored, and why each is worth it."""

from __future__ import annotations

from types import MappingProxyType

from spec.lang import Scope

SMOKE = Scope(
    "smoke",
    {"Engine": 2, "Scenario": 2, "Adapter": 3, "Slot": 2},
    "two scenarios in two slots, or in one: there is no room for the third revision but where something goes, and "
    "a scenario that is served alone has a slot to spare",
)

PR = Scope(
    "pr",
    {"Engine": 2, "Scenario": 2, "Adapter": 3, "Slot": 3},
    "as many slots as revisions: old ones stay to be gone back to, both scenarios have a slot to spare, and leaks lie "
    "beside what is served",
)

NIGHTLY = Scope(
    "nightly",
    {"Engine": 2, "Scenario": 2, "Adapter": 4, "Slot": 3},
    "a revision more than slots: both scenarios are served, and something pinned, in flight or leaked is in the way of "
    "a fourth",
)

SCOPES = MappingProxyType({scope.name: scope for scope in (SMOKE, PR, NIGHTLY)})
"""Every scope by its name. None bounds how many faults there are."""
