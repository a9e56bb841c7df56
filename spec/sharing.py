"""Who may share a prefix cache: one total decision table.

A cached entry does not say which load made it. It may be matched by whoever comes next only where every publication
retracts what runs and empties the cache before the weights change, and, under LoRA, where entries of one adapter are
found by that adapter alone.

`TABLE` is read from the top: the first row that fits a `Case` decides it, and some row fits every case. A row refuses
the configuration, or accepts it with what `disable_radix_cache` is worth for all engines and for the group judged. A
deployment of several groups is accepted where each group is, and refused by the first row that refuses any.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from itertools import product


class Pause(enum.Enum):
    """How engines are paused for a publication."""

    IN_PLACE = enum.auto()
    RETRACT = enum.auto()
    UNKNOWN = enum.auto()


class Flag(enum.Enum):
    """What a scope says of `disable_radix_cache`. OTHER is anything that is neither true nor false, null included."""

    UNSET = enum.auto()
    TRUE = enum.auto()
    FALSE = enum.auto()
    OTHER = enum.auto()


class Lora(enum.Enum):
    """What a scope says of adapters. For all engines, UNSET is OFF."""

    UNSET = enum.auto()
    OFF = enum.auto()
    ON = enum.auto()


class Keys(enum.Enum):
    """Whether the engine's cache keys tell adapters, and the base model, apart."""

    SCOPED = enum.auto()
    UNSCOPED = enum.auto()


class Engines(enum.Enum):
    """Whose the engines are. BARE ones are somebody else's, and the configuration describes no group of them."""

    OWNED = enum.auto()
    EXTERNAL = enum.auto()
    BARE = enum.auto()


class Role(enum.Enum):
    """The work that the group's engines do. A FROZEN one is a regular one whose weights no publication updates."""

    REGULAR = enum.auto()
    PREFILL = enum.auto()
    DECODE = enum.auto()
    ENCODER = enum.auto()
    PLACEHOLDER = enum.auto()
    FROZEN = enum.auto()


class Memory(enum.Enum):
    """Whether a trainer takes the engines' memory between publications."""

    KEPT = enum.auto()
    OFFLOADED = enum.auto()


class Trouble(enum.Enum):
    """What else may be wrong with a configuration, apart from who shares. Of a group where the name says so."""

    STREAMING = enum.auto()
    SIZE = enum.auto()
    TIME = enum.auto()
    PORT = enum.auto()
    GPUS = enum.auto()
    GROUP_STREAMING = enum.auto()
    NODES = enum.auto()
    ROLE = enum.auto()
    GROUP_ROLE = enum.auto()
    TIER = enum.auto()
    GROUP_TIER = enum.auto()
    EMBEDDINGS = enum.auto()
    GROUP_EMBEDDINGS = enum.auto()
    HIDDEN_SHARING = enum.auto()
    GROUP_HIDDEN_SHARING = enum.auto()
    IGNORED_PAUSE = enum.auto()
    GROUP_IGNORED_PAUSE = enum.auto()
    TOKENIZERS = enum.auto()
    GROUP_TOKENIZERS = enum.auto()
    SESSIONS = enum.auto()
    GROUP_SESSIONS = enum.auto()
    QUEUE_LIMIT = enum.auto()
    GROUP_QUEUE_LIMIT = enum.auto()
    RANKS = enum.auto()
    GROUP_RANKS = enum.auto()
    SECOND_MODEL = enum.auto()


GROUP_TROUBLES = frozenset(
    {Trouble.GPUS, Trouble.NODES, Trouble.SECOND_MODEL} | {t for t in Trouble if t.name.startswith("GROUP_")}
)
"""What cannot be wrong where no group is described."""


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration with at most one group, in so far as a row may ask about it."""

    pause: Pause
    flag: Flag
    lora: Lora
    keys: Keys
    engines: Engines
    memory: Memory
    role: Role = Role.REGULAR
    group_flag: Flag = Flag.UNSET
    group_lora: Lora = Lora.UNSET
    troubles: frozenset[Trouble] = frozenset()


class Rule(enum.Enum):
    """What decides. The values are the names that reports use."""

    PAUSE_MODE = "pause-mode-known"
    STREAMING_OUTPUT = "streaming-output"
    FLAG_BOOLEAN = "flag-is-boolean"
    SHARING_NEEDS_RETRACT = "sharing-needs-retract"
    SHARING_NEEDS_ADAPTER_KEYS = "sharing-needs-adapter-keys"
    SIZES = "sizes-positive"
    TIMES = "times-positive"
    PORT = "port-in-range"
    GPUS = "gpus-add-up"
    OFFLOAD_ROLES = "offload-excludes-roles"
    RETRACT_ROLES = "retract-excludes-roles"
    WHOLE_NODES = "engines-fill-nodes"
    ROLE_ONCE = "role-is-worker-type"
    CACHE_TIER = "no-cache-beyond-flush"
    HIDDEN_SHARING = "no-hidden-sharing"
    IGNORED_PAUSE = "pause-is-obeyed"
    TOKENIZER_WORKERS = "one-tokenizer-worker"
    STREAMING_SESSIONS = "no-streaming-sessions"
    QUEUE_LIMIT = "no-queue-limit"
    UNHEARD_RANKS = "every-rank-answers"
    OFFLOAD_NEEDS_RETRACT = "offload-needs-retract"
    ONE_UPDATABLE_MODEL = "one-updatable-model"

    OPT_OUT = "opt-out"
    STATED_SHARED = "stated-shared"
    RETRACT_SHARED = "retract-shared"
    IN_PLACE_UNSHARED = "in-place-unshared"
    UNKEYED_ADAPTERS_UNSHARED = "unkeyed-adapters-unshared"
    INHERITED = "inherited"


@dataclass(frozen=True, slots=True)
class Value:
    """What `disable_radix_cache` is worth in a scope, and the rule that says so."""

    disabled: bool
    rule: Rule


@dataclass(frozen=True, slots=True)
class Refused:
    """The configuration is refused, by this rule."""

    rule: Rule


@dataclass(frozen=True, slots=True)
class Accepted:
    """The configuration is accepted. `group` is None where no group is described."""

    everybody: Value
    group: Value | None


Outcome = Refused | Accepted


@dataclass(frozen=True, slots=True)
class Row:
    """Fits a case whose every named column has one of the values given, and, if named, one of the troubles."""

    outcome: Outcome
    asks: tuple[tuple[str, frozenset[enum.Enum]], ...] = ()
    troubles: frozenset[Trouble] = field(default=frozenset())

    def fits(self, case: Case) -> bool:
        """The row says something about this case."""
        if self.troubles and not self.troubles & case.troubles:
            return False
        return all(getattr(case, column) in values for column, values in self.asks)


Cell = enum.Enum | tuple[enum.Enum, ...]


def _row(outcome: Outcome | Rule, *troubles: Trouble, **cells: Cell) -> Row:
    known = {f.name for f in fields(Case)}
    for column in cells:
        if column not in known:
            raise TypeError(f"a case has no column {column!r}")
    asks = tuple((column, frozenset(cell if isinstance(cell, tuple) else (cell,))) for column, cell in cells.items())
    return Row(Refused(outcome) if isinstance(outcome, Rule) else outcome, asks, frozenset(troubles))


P, F, L, K, E, M, R, T = Pause, Flag, Lora, Keys, Engines, Memory, Role, Trouble

GROUPED = (E.OWNED, E.EXTERNAL)
APART = (R.PREFILL, R.DECODE)
UPDATED = (R.REGULAR, *APART)


def _wherever_updated(rule: Rule, everywhere: Trouble, in_group: Trouble, **cells: Cell) -> tuple[Row, ...]:
    """A setting of all engines, or of one group, that no engine may have to which a publication goes."""
    return (
        _row(rule, everywhere, engines=E.BARE, **cells),
        _row(rule, everywhere, in_group, engines=GROUPED, role=UPDATED, **cells),
    )


SAID_BY_GROUP = {
    F.UNSET: Rule.INHERITED,
    F.TRUE: Rule.OPT_OUT,
    F.FALSE: Rule.STATED_SHARED,
}


def _accepted(everybody: Value, *said: Flag, **cells: Cell) -> tuple[Row, ...]:
    """What a group that says one of these makes of the value for all engines: another, or the same."""
    values = {F.UNSET: everybody.disabled, F.TRUE: True, F.FALSE: False}
    return (
        _row(Accepted(everybody, None), engines=E.BARE, **cells),
        *(
            _row(Accepted(everybody, Value(values[flag], SAID_BY_GROUP[flag])), group_flag=flag, **cells)
            for flag in said
        ),
    )


TABLE: tuple[Row, ...] = (
    _row(Rule.PAUSE_MODE, pause=P.UNKNOWN),
    _row(Rule.STREAMING_OUTPUT, T.STREAMING),
    # What is said for all engines
    _row(Rule.FLAG_BOOLEAN, flag=F.OTHER),
    _row(Rule.SHARING_NEEDS_RETRACT, flag=F.FALSE, pause=P.IN_PLACE),
    _row(Rule.SHARING_NEEDS_ADAPTER_KEYS, flag=F.FALSE, lora=L.ON, keys=K.UNSCOPED),
    _row(Rule.SIZES, T.SIZE),
    _row(Rule.TIMES, T.TIME),
    _row(Rule.PORT, T.PORT),
    _row(Rule.GPUS, T.GPUS, engines=E.OWNED),
    # What a group says, or inherits
    _row(Rule.STREAMING_OUTPUT, T.GROUP_STREAMING, engines=GROUPED),
    _row(Rule.FLAG_BOOLEAN, group_flag=F.OTHER, engines=GROUPED),
    _row(Rule.SHARING_NEEDS_RETRACT, group_flag=F.FALSE, pause=P.IN_PLACE, engines=GROUPED),
    _row(
        Rule.SHARING_NEEDS_ADAPTER_KEYS,
        engines=GROUPED, group_flag=F.FALSE, group_lora=L.ON, keys=K.UNSCOPED,
    ),
    _row(
        Rule.SHARING_NEEDS_ADAPTER_KEYS,
        engines=GROUPED, group_flag=F.FALSE, group_lora=L.UNSET, lora=L.ON, keys=K.UNSCOPED,
    ),
    _row(
        Rule.SHARING_NEEDS_ADAPTER_KEYS,
        engines=GROUPED, group_flag=F.UNSET, group_lora=L.ON, keys=K.UNSCOPED,
        flag=F.FALSE,
    ),
    _row(
        Rule.SHARING_NEEDS_ADAPTER_KEYS,
        engines=GROUPED, group_flag=F.UNSET, group_lora=L.ON, keys=K.UNSCOPED,
        flag=F.UNSET, pause=P.RETRACT, lora=L.OFF,
    ),
    _row(Rule.OFFLOAD_ROLES, engines=GROUPED, role=APART, memory=M.OFFLOADED),
    _row(Rule.RETRACT_ROLES, engines=GROUPED, role=APART, pause=P.RETRACT),
    _row(Rule.WHOLE_NODES, T.NODES, engines=E.OWNED),
    # What no flush makes safe
    _row(Rule.ROLE_ONCE, T.ROLE, T.GROUP_ROLE),
    _row(Rule.CACHE_TIER, T.TIER, engines=E.BARE, flag=F.FALSE),
    _row(Rule.CACHE_TIER, T.TIER, engines=E.BARE, flag=F.UNSET, pause=P.RETRACT, lora=L.OFF),
    _row(Rule.CACHE_TIER, T.TIER, engines=E.BARE, flag=F.UNSET, pause=P.RETRACT, keys=K.SCOPED),
    _row(Rule.CACHE_TIER, T.TIER, T.GROUP_TIER, engines=GROUPED, role=UPDATED, group_flag=F.FALSE),
    _row(Rule.CACHE_TIER, T.TIER, T.GROUP_TIER, engines=GROUPED, role=UPDATED, group_flag=F.UNSET, flag=F.FALSE),
    _row(
        Rule.CACHE_TIER, T.TIER, T.GROUP_TIER,
        engines=GROUPED, role=UPDATED, group_flag=F.UNSET, flag=F.UNSET, pause=P.RETRACT, lora=L.OFF,
    ),
    _row(
        Rule.CACHE_TIER, T.TIER, T.GROUP_TIER,
        engines=GROUPED, role=UPDATED, group_flag=F.UNSET, flag=F.UNSET, pause=P.RETRACT, keys=K.SCOPED,
    ),
    *_wherever_updated(Rule.CACHE_TIER, T.EMBEDDINGS, T.GROUP_EMBEDDINGS),
    *_wherever_updated(Rule.HIDDEN_SHARING, T.HIDDEN_SHARING, T.GROUP_HIDDEN_SHARING),
    *_wherever_updated(Rule.IGNORED_PAUSE, T.IGNORED_PAUSE, T.GROUP_IGNORED_PAUSE),
    *_wherever_updated(Rule.TOKENIZER_WORKERS, T.TOKENIZERS, T.GROUP_TOKENIZERS),
    *_wherever_updated(Rule.STREAMING_SESSIONS, T.SESSIONS, T.GROUP_SESSIONS),
    *_wherever_updated(Rule.QUEUE_LIMIT, T.QUEUE_LIMIT, T.GROUP_QUEUE_LIMIT, pause=P.RETRACT),
    *_wherever_updated(Rule.UNHEARD_RANKS, T.RANKS, T.GROUP_RANKS, pause=P.RETRACT),
    # What holds for the deployment
    _row(Rule.OFFLOAD_NEEDS_RETRACT, memory=M.OFFLOADED, pause=P.IN_PLACE),
    _row(Rule.ONE_UPDATABLE_MODEL, T.SECOND_MODEL, role=tuple(r for r in R if r is not R.FROZEN)),
    # Who shares
    *_accepted(Value(True, Rule.OPT_OUT), F.UNSET, F.TRUE, F.FALSE, flag=F.TRUE),
    *_accepted(Value(False, Rule.STATED_SHARED), F.UNSET, F.TRUE, F.FALSE, flag=F.FALSE),
    *_accepted(Value(True, Rule.IN_PLACE_UNSHARED), F.UNSET, F.TRUE, flag=F.UNSET, pause=P.IN_PLACE),
    *_accepted(
        Value(False, Rule.RETRACT_SHARED), F.UNSET, F.TRUE, F.FALSE,
        flag=F.UNSET, pause=P.RETRACT, lora=L.OFF,
    ),
    *_accepted(
        Value(False, Rule.RETRACT_SHARED), F.UNSET, F.TRUE, F.FALSE,
        flag=F.UNSET, pause=P.RETRACT, lora=L.ON, keys=K.SCOPED,
    ),
    *_accepted(
        Value(True, Rule.UNKEYED_ADAPTERS_UNSHARED), F.UNSET, F.TRUE, F.FALSE,
        flag=F.UNSET, pause=P.RETRACT, lora=L.ON, keys=K.UNSCOPED,
    ),
)  # fmt: skip


def row_of(case: Case) -> Row:
    """The row that decides a case.

    Raises:
        LookupError: none fits, so the table is not total.
    """
    for row in TABLE:
        if row.fits(case):
            return row
    raise LookupError(case)


def decide(case: Case) -> Outcome:
    """What the table says of a case."""
    return row_of(case).outcome


def cases(
    troubles: Iterable[frozenset[Trouble]] = (frozenset(),), pauses: Iterable[Pause] = tuple(Pause)
) -> Iterator[Case]:
    """Every case with these pause modes under each of these sets of troubles.

    Without a group, only what a case without a group can have.
    """
    everywhere = list(product(pauses, Flag, (Lora.OFF, Lora.ON), Keys, Memory))
    grouped = list(product(GROUPED, Role, Flag, Lora))
    for wrong in troubles:
        for pause, flag, lora, keys, memory in everywhere:
            if not wrong & GROUP_TROUBLES:
                yield Case(pause, flag, lora, keys, Engines.BARE, memory, troubles=wrong)
            for engines, role, group_flag, group_lora in grouped:
                yield Case(pause, flag, lora, keys, engines, memory, role, group_flag, group_lora, wrong)


__all__ = [
    "TABLE",
    "Accepted",
    "Case",
    "Engines",
    "Flag",
    "Keys",
    "Lora",
    "Memory",
    "Outcome",
    "Pause",
    "Refused",
    "Role",
    "Row",
    "Rule",
    "Trouble",
    "Value",
    "cases",
    "decide",
    "row_of",
]
