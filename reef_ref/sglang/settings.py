"""What the plugin is asked to do, read from the environment once per process."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from reef_ref.outlet import check_target


class ProvenanceMode(enum.StrEnum):
    """What happens with a reused prefix that other weights computed."""

    OFF = "off"
    """No hook is installed."""
    REPORT = "report"
    """It is counted and written to the events; serving goes on."""
    ENFORCE = "enforce"
    """No token is sampled from it; see `OnStale`."""


class OnStale(enum.StrEnum):
    """How `enforce` keeps a request away from a stale prefix."""

    RECOMPUTE = "recompute"
    """The prefix counts as a miss and is computed with the weights of now."""
    REFUSE = "refuse"
    """The request is answered with an error that names the loads."""


class IdleCheck(enum.StrEnum):
    """Which test SGLang applies before it flushes or releases memory."""

    SGLANG = "sglang"
    """SGLang's own, unchanged."""
    RETRACT = "retract"
    """While paused in retract mode it ignores requests without KV: those waiting, those whose grammar compiles."""


@dataclass(frozen=True)
class Settings:
    """The plugin's configuration; `REEF_REF_*` in the environment."""

    provenance: ProvenanceMode = ProvenanceMode.OFF
    on_stale: OnStale = OnStale.RECOMPUTE
    idle: IdleCheck = IdleCheck.SGLANG
    events: str | None = None
    """A file or `unix:` and a socket's path, for `reef_ref.outlet`."""
    engine: int | None = None
    """The slot of this engine in its deployment, for whoever reads its events."""
    verify_all: bool = False
    """Exercise the hooks of every mode at start, not only those of the mode in force; set by the doctor."""

    @property
    def active(self) -> bool:
        """Whether anything has to be hooked at all."""
        return self.provenance is not ProvenanceMode.OFF or self.idle is not IdleCheck.SGLANG

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """Read the settings.

        Raises:
            ValueError: a variable holds something else than it may; the message names it and what would be right.
        """
        environment = os.environ if environment is None else environment
        events = environment.get("REEF_REF_EVENTS", "")
        if events:
            try:
                check_target(events)
            except ValueError as error:
                raise ValueError(f"REEF_REF_EVENTS={error}") from None
        return cls(
            provenance=_choice(environment, "REEF_REF_PROVENANCE", ProvenanceMode.OFF),
            on_stale=_choice(environment, "REEF_REF_ON_STALE", OnStale.RECOMPUTE),
            idle=_choice(environment, "REEF_REF_IDLE", IdleCheck.SGLANG),
            events=events or None,
            engine=_slot(environment.get("REEF_REF_ENGINE", "")),
            verify_all=environment.get("REEF_REF_VERIFY_ALL") == "1",
        )


def _slot(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise ValueError(f"REEF_REF_ENGINE={text!r}: must be the number of a slot, 0 or more")
    return int(text)


_Choice = TypeVar("_Choice", bound=enum.StrEnum)


def _choice(environment: Mapping[str, str], name: str, default: _Choice) -> _Choice:
    value = environment.get(name) or default.value
    try:
        return type(default)(value)
    except ValueError:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(type(default))}") from None
