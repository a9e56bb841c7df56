"""Engine options by name: one spelling for each, and the settings that no flush makes safe.

Options are SGLang's server arguments. Their names are those of SGLang 0.5.23 (`sglang/srt/arg_groups/fields`), written
with underscores. An argument that a configuration may spell in several ways is judged under one of them only, so every
other spelling is brought to that one first or refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "enable_hicache": "enable_hierarchical_cache",
        "pipeline_parallel_size": "pp_size",
        "data_parallel_size": "dp_size",
        "attention_data_parallel_size": "attn_dp_size",
    }
)
"""SGLang's other names for arguments that are judged here."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Danger(StrEnum):
    """Why a setting is refused. The value is the name of the rule."""

    CACHE_TIER = "no-cache-beyond-flush"
    HIDDEN_SHARING = "no-hidden-sharing"
    IGNORED_PAUSE = "pause-is-obeyed"
    TOKENIZER_WORKERS = "one-tokenizer-worker"
    STREAMING_SESSIONS = "no-streaming-sessions"
    QUEUE_LIMIT = "no-queue-limit"
    UNHEARD_RANKS = "every-rank-answers"


class Applies(StrEnum):
    """Where a setting does harm."""

    SHARING = "where prefixes are shared"
    RETRACT = "under a retract pause"
    ALWAYS = "under every pause"


@dataclass(frozen=True, slots=True)
class UnsafeSetting:
    """A setting that a publication cannot live with, unless it has its `harmless` value (or `None`)."""

    name: str
    harmless: bool | int | None
    danger: Danger
    applies: Applies
    reason: str

    def is_set(self, options: Mapping[str, object]) -> bool:
        """The options give it any other value; one of another type counts, since nobody says what it would mean."""
        value = options.get(self.name)
        return value is not None and not (type(value) is type(self.harmless) and value == self.harmless)


def _tier(name: str, harmless: bool | None, reason: str) -> UnsafeSetting:
    return UnsafeSetting(name, harmless, Danger.CACHE_TIER, Applies.SHARING, reason)


def _ranks(name: str, harmless: bool | int) -> UnsafeSetting:
    reason = "of the ranks' answers to a flush only the first is reported, so a refusal elsewhere goes unseen"
    return UnsafeSetting(name, harmless, Danger.UNHEARD_RANKS, Applies.RETRACT, reason)


UNSAFE_SETTINGS = (
    _tier(
        "hicache_storage_backend",
        None,
        "KV in storage outlives a flush and is fetched again under the new weights",
    ),
    _tier(
        "enable_hierarchical_cache",
        False,
        "transfers of the host tier are not polled during a pause, so a flush may be refused until the pause ends",
    ),
    _tier("enable_lmcache", False, "LMCache holds KV that a flush does not reach, under keys without a load id"),
    _tier("enable_flexkv", False, "FlexKV holds KV that a flush does not reach, under keys without a load id"),
    _tier(
        "enable_unified_cache_external_linker",
        False,
        "KV in the linked store outlives a flush and is fetched again under the new weights",
    ),
    _tier("radix_cache_backend", None, "what a flush empties in a registered cache is not known"),
    UnsafeSetting(
        "enable_mm_global_cache",
        False,
        Danger.CACHE_TIER,
        Applies.ALWAYS,
        "embeddings in the global multimodal cache outlive every flush, under keys without a load id",
    ),
    UnsafeSetting(
        "disaggregation_decode_enable_radix_cache",
        False,
        Danger.HIDDEN_SHARING,
        Applies.ALWAYS,
        "SGLang turns prefix sharing on in decode engines for it, whatever disable_radix_cache says",
    ),
    UnsafeSetting(
        "pp_size",
        1,
        Danger.IGNORED_PAUSE,
        Applies.ALWAYS,
        "the pipeline-parallel loops never look at a pause, so forward passes go on while weights move",
    ),
    UnsafeSetting(
        "enable_pdmux",
        False,
        Danger.IGNORED_PAUSE,
        Applies.ALWAYS,
        "the multiplexing loop never looks at a pause, so forward passes go on while weights move",
    ),
    UnsafeSetting(
        "tokenizer_worker_num",
        1,
        Danger.TOKENIZER_WORKERS,
        Applies.ALWAYS,
        "a pause answered by one tokenizer worker says nothing about requests on the way through another",
    ),
    UnsafeSetting(
        "enable_streaming_session",
        False,
        Danger.STREAMING_SESSIONS,
        Applies.ALWAYS,
        "a session keeps its KV through a pause and goes on with it by slot, whatever the key says",
    ),
    UnsafeSetting(
        "max_queued_requests",
        None,
        Danger.QUEUE_LIMIT,
        Applies.RETRACT,
        "a retracted request that finds the queue full is aborted, and its work is lost",
    ),
    _ranks("dp_size", 1),
    _ranks("attn_dp_size", 1),
    _ranks("enable_dp_attention", False),
)
"""In the order in which they are judged. Seen in SGLang 0.5.23."""

JUDGED = frozenset(
    {
        "disable_radix_cache",
        "enable_lora",
        "lora_paths",
        "incremental_streaming_output",
        "disaggregation_mode",
        *(setting.name for setting in UNSAFE_SETTINGS),
    }
)
"""Names of all options that a decision may depend on."""

_ALL_SPELLINGS = JUDGED | ALIASES.keys()


def unsafe(options: Mapping[str, object], *, retract: bool, shares: bool) -> Iterator[UnsafeSetting]:
    """The settings among effective options that do harm under this pause mode, with or without sharing."""
    for setting in UNSAFE_SETTINGS:
        match setting.applies:
            case Applies.SHARING:
                applies = shares
            case Applies.RETRACT:
                applies = retract
            case Applies.ALWAYS:
                applies = True
        if applies and setting.is_set(options):
            yield setting


def has_adapters(options: Mapping[str, object]) -> bool:
    """LoRA is on: asked for, or implied by adapters to load.

    As SGLang resolves it (0.5.23, `arg_groups/lora_hook.py`): paths turn an unset `enable_lora` on, and are ignored
    under an explicit `False`.
    """
    enabled = options.get("enable_lora")
    return bool(options.get("lora_paths")) if enabled is None else bool(enabled)


class NameTrouble(ValueError):  # noqa: N818 - read as a word
    """A name that cannot be brought to one spelling; `key` is the name as it was given."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def spell(name: object) -> str:
    """The underscore spelling of any key.

    Raises:
        NameTrouble: it is no name.
    """
    if not isinstance(name, str):
        raise NameTrouble(short(name), f"a name must be text, not {type(name).__name__}")
    spelled = name.replace("-", "_")
    if not _NAME.fullmatch(spelled):
        raise NameTrouble(short(name), "a name has lower-case letters, digits, hyphens and underscores")
    return spelled


def spell_option(name: object) -> str:
    """The one name of an engine option under which it is judged.

    Raises:
        NameTrouble: it is no name, or an abbreviation that SGLang's command line would complete to a judged one.
    """
    spelled = spell(name)
    spelled = ALIASES.get(spelled, spelled)
    if spelled not in JUDGED:
        full = sorted(judged for judged in _ALL_SPELLINGS if judged.startswith(spelled))
        if full:
            raise NameTrouble(str(name), f"may stand for {' or '.join(full)}; write the name in full")
    return spelled


def one_spelling(given: Mapping[Any, object], to: Callable[[object], str] = spell) -> dict[str, object]:
    """The same mapping with every key spelled by `to`.

    Raises:
        NameTrouble: a key is no name, or two keys are spellings of the same one.
    """
    spelled: dict[str, object] = {}
    first: dict[str, object] = {}
    for key, value in given.items():
        name = to(key)
        if name in spelled:
            raise NameTrouble(str(key), f"is another spelling of {first[name]}, which is given as well; keep one")
        spelled[name] = value
        first[name] = key
    return spelled


def short(value: object) -> str:
    """A key in a report, on one line whatever it is."""
    if not isinstance(value, str):
        return f"a {type(value).__name__}"
    text = value if len(value) <= 60 else value[:57] + "..."
    return text if text.isprintable() else repr(text)


__all__ = [
    "ALIASES",
    "JUDGED",
    "UNSAFE_SETTINGS",
    "Applies",
    "Danger",
    "NameTrouble",
    "UnsafeSetting",
    "has_adapters",
    "one_spelling",
    "short",
    "spell",
    "spell_option",
    "unsafe",
]
