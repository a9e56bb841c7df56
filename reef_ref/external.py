"""Engines that somebody else runs: what they report of themselves, against what is configured here.

Nobody here launches such an engine, so its options are not what governs it. They are compared with what its server
answers, and what the server answers is judged besides, since a setting that nobody stated here may still be set there.
A comparison proves nothing where the one side was copied from the other: options that were taken from an engine's own
report are therefore refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from reef_ref.config import DISAGGREGATED, FLAG, STREAMING, GroupConfig, Refusal, Rule, SGLangConfig
from reef_ref.options import has_adapters, unsafe

MEMORY_SAVER = "enable_memory_saver"


class Comparison(StrEnum):
    """Rules on reported settings, each under the name that reports use."""

    OWN_STATEMENT = "compared-with-itself"
    REPORTED = "reported-settings-match"


@dataclass(frozen=True)
class Reported:
    """What one engine's server says of itself: SGLang's server arguments by their underscore names.

    The settings are a copy, as they were when the report was taken.
    """

    engine: str
    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    def as_options(self) -> dict[str, object]:
        """Fields of a configuration or group whose options are this report, marked as such."""
        return {"options": dict(self.settings), "options_reported_by": self.engine}


def compare(config: SGLangConfig, reported: Reported, scope: str = "options") -> Refusal | None:
    """The first thing that keeps an external engine from serving under a configuration, or None.

    Compared are `disable_radix_cache`, `enable_memory_saver`, `incremental_streaming_output`, and whether there are
    adapters. A setting that the engine does not report is unknown, and no match.

    Args:
        config: ours, accepted.
        reported: theirs, as the engine's own server answered.
        scope: the engine's scope in `config`: its group's options, if a group is described.

    Raises:
        KeyError: there is no such scope.
    """
    group = next((group for key, _, group in config.groups() if f"{key}.options" == scope), None)
    source = config.options_reported_by or (group.options_reported_by if group else None)
    if source is not None:
        return Refusal(
            Comparison.OWN_STATEMENT,
            "options_reported_by",
            f"is {source}: options taken from an engine's report agree with it whatever it says",
            "state the options here",
        )
    ours = config.effective_options(scope)
    expected = {
        MEMORY_SAVER: ours.get(MEMORY_SAVER, config.offload),
        FLAG: ours[FLAG],
        STREAMING: ours[STREAMING],
    }
    theirs = reported.settings
    for name, value in expected.items():
        if name not in theirs:
            return _differs(reported, name, f"is not reported, and {_yaml(value)} is configured", _yaml(value))
        if theirs[name] is not value:
            found = _yaml(theirs[name])
            return _differs(reported, name, f"is {found}, and {_yaml(value)} is configured", _yaml(value))
    if has_adapters(theirs) and not has_adapters(ours):
        return _differs(reported, "enable_lora", "is on, and no adapters are configured", "the same on both sides")
    return _unsafe(config, reported, group)


def _unsafe(config: SGLangConfig, reported: Reported, group: GroupConfig | None) -> Refusal | None:
    theirs = reported.settings
    retract = config.pause_mode == "retract"
    mode = theirs.get("disaggregation_mode")
    worker = group.worker_type if group else "regular"
    if mode not in (None, "null") and (mode != worker or retract):
        rule = Rule.RETRACT_ROLES if retract and mode in DISAGGREGATED else Rule.ROLE_ONCE
        return _refused(rule, reported, "disaggregation_mode", f"is {mode}, where a {worker} worker may be", "null")
    for setting in unsafe(theirs, retract=retract, shares=theirs[FLAG] is False):
        value = "unset" if setting.harmless is None else _yaml(setting.harmless)
        found = _yaml(theirs[setting.name])
        return _refused(Rule(setting.danger.value), reported, setting.name, f"is {found}; {setting.reason}", value)
    return None


def _differs(reported: Reported, name: str, reason: str, change: str) -> Refusal:
    return _refused(Comparison.REPORTED, reported, name, reason, change)


def _refused(rule: StrEnum, reported: Reported, name: str, reason: str, change: str) -> Refusal:
    return Refusal(rule, f"{reported.engine}: {name}", reason, change)


def _yaml(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)[:40]


__all__ = ["Comparison", "Reported", "compare"]
