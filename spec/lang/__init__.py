"""A small language for protocols: typed actions traced once into a tree that many readers share.

Nothing here knows what a protocol is about, and nothing beyond the standard library is imported.
"""

from spec.lang.liveness import Assumption, Eventuality, Fair, LeadsTo, strongly_fair, weakly_fair
from spec.lang.protocol import Action, CanReach, Protocol, Step, when, wherever
from spec.lang.scope import Scope, count_faults
from spec.lang.terms import (
    Bool,
    Each,
    Fields,
    Index,
    Map,
    Map2,
    Maybe,
    Misuse,
    Natural,
    Relation,
    Value,
    all_of,
    any_of,
    count,
    each,
    exists,
    field,
    forall,
    ghost,
    ite,
)

__all__ = [
    "Action",
    "Assumption",
    "Bool",
    "CanReach",
    "Each",
    "Eventuality",
    "Fair",
    "Fields",
    "Index",
    "LeadsTo",
    "Map",
    "Map2",
    "Maybe",
    "Misuse",
    "Natural",
    "Protocol",
    "Relation",
    "Scope",
    "Step",
    "Value",
    "all_of",
    "any_of",
    "count",
    "count_faults",
    "each",
    "exists",
    "field",
    "forall",
    "ghost",
    "ite",
    "strongly_fair",
    "weakly_fair",
    "when",
    "wherever",
]
