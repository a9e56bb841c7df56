"""What one rank of an engine's scheduler tells: one line of JSON an event, numbered without gaps from 1.

The numbers are those of one process: `pid` and `rank` name the source. `time` is its wall clock, in seconds since
1970, for people; nothing is ordered by it. An event is told *after* its transition, in the scheduler's own order.

A *beat* has no number. It comes when there was nothing else to tell for a while and says how far the source has got,
so that a reader knows that it has seen everything, and what the counters are.
"""

from __future__ import annotations

from typing import Any, Literal, Union

import msgspec

__all__ = [
    "Beat",
    "Continue",
    "Flush",
    "Label",
    "Load",
    "MalformedRankEvent",
    "Pause",
    "RankEvent",
    "StaleAdoption",
    "StaleFinding",
    "StalePrefix",
    "Start",
    "encode",
    "read_rank_event",
]

SCHEMA: Literal[1] = 1


def _tag(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


class RankEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event", tag=_tag, forbid_unknown_fields=True):
    """What every event has."""

    schema: Literal[1] = SCHEMA
    pid: int
    rank: int
    time: float
    number: int
    engine: int | None = None
    """The slot of the rank's engine, where the deployment has said it (`REEF_REF_ENGINE`)."""


class Start(RankEvent, frozen=True, kw_only=True):
    """The scheduler is about to serve; the fields are those of the plugin's verdict."""

    able_to_share: bool
    sharing: bool
    """Whether its tree shares prefixes."""
    problems: tuple[str, ...]
    verdicts: tuple[dict[str, Any], ...]
    idle: str
    provenance: dict[str, Any] | None = None
    """Mode, load and counters; none where provenance is off."""


class Pause(RankEvent, frozen=True, kw_only=True):
    """The scheduler is paused; `mode` is retract or in_place."""

    mode: str


class Continue(RankEvent, frozen=True, kw_only=True):
    """The scheduler runs again, on the weights of `load_id`; none: of no complete load."""

    load_id: str | None


class Load(RankEvent, frozen=True, kw_only=True):
    """The weights' bytes have changed: a new epoch.

    Attributes:
        epoch: its number.
        load_id: its load; none where the bytes are no complete load.
        reason: how they came to be.
        mixed: whether KV of older weights may still be held, by a request or in the tree.
        paused: the mode of the pause that the change fell into; none outside a pause.
    """

    epoch: int
    load_id: str | None
    reason: str
    mixed: bool
    paused: str | None


class Label(RankEvent, frozen=True, kw_only=True):
    """The weights are called by another load id, and no byte has changed."""

    epoch: int
    load_id: str


class Flush(RankEvent, frozen=True, kw_only=True):
    """All KV was given up: the tree is empty and no request holds any."""

    load_id: str | None


class StaleFinding(RankEvent, frozen=True, kw_only=True):
    """A request was given KV that other weights, or another adapter, computed.

    Attributes:
        action: `reported`: it was used. `recomputed` or `refused`: it was not (mode enforce).
        request: SGLang's id of the request.
        reused: slots that were to be reused.
        stale: how many of them were stale.
        foreign_adapter: how many were another adapter's.
        slots: the first few, each with its position in the prefix.
        written_by: the loads that computed them.
        serving: the load of now.
        retractions: how often the request was retracted before.
        adapter: the request's own.
    """

    action: str
    request: str
    reused: int
    stale: int
    foreign_adapter: int
    slots: tuple[dict[str, int], ...]
    written_by: tuple[str, ...]
    serving: str
    retractions: int
    adapter: str | None = None

    @property
    def used(self) -> bool:
        """Whether tokens were computed from it."""
        return self.action == "reported"


class StalePrefix(StaleFinding, frozen=True, kw_only=True):
    """Found where a request took its prefix off the tree."""


class StaleAdoption(StaleFinding, frozen=True, kw_only=True):
    """Found where a request's own KV was exchanged for the tree's after a prefill."""


class Beat(RankEvent, frozen=True, kw_only=True):
    """`number` is that of the last event before; `dropped` were lost since the start for want of room."""

    dropped: int
    counters: dict[str, int]


_KINDS = Union[Start, Pause, Continue, Load, Label, Flush, StalePrefix, StaleAdoption, Beat]  # noqa: UP007  A value.
_DECODER: msgspec.json.Decoder[RankEvent] = msgspec.json.Decoder(_KINDS)
_ENCODER = msgspec.json.Encoder(enc_hook=str)


class MalformedRankEvent(ValueError):  # noqa: N818  The name says what is wrong with the line.
    """A line is not a rank's event."""


def encode(event: RankEvent) -> bytes:
    """One line of JSON, without its end."""
    return _ENCODER.encode(event)


def read_rank_event(line: str | bytes) -> RankEvent:
    """Read what `encode` made; `MalformedRankEvent` says what is wrong with anything else."""
    try:
        return _DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        raise MalformedRankEvent(f"not a rank's event: {error}") from error
