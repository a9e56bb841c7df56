"""Small worlds in which the serving protocol is explored, and why each is worth it."""

from __future__ import annotations

from types import MappingProxyType

from spec.lang import Scope

SMOKE = Scope(
    "smoke",
    {"Request": 2, "Adapter": 2, "Load": 2},
    "two requests show what one leaves behind for the other and what waits beside it, two adapters what must be kept "
    "apart, and one publication what is older",
)

PR = Scope(
    "pr",
    {"Request": 2, "Adapter": 2, "Load": 4},
    "three publications: a request can live through all of them, and what the load before last left would be seen",
)

NIGHTLY = Scope(
    "nightly",
    {"Request": 3, "Adapter": 2, "Load": 2},
    "three requests: one runs ahead, one is on the device and one waits or compiles, all at once",
)

SCOPES = MappingProxyType({scope.name: scope for scope in (SMOKE, PR, NIGHTLY)})
"""Every scope by its name."""
