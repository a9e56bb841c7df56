"""From Slime's arguments to engines: which pause mode, which options, which groups.

Colocated engines, and disjoint ones that opt in by `disjoint-prefix-sharing`, are paused by retract; all others in
place. The arguments come from a command line, from the namespace that Slime's own parser made of one, or from a
deployment file; the same words mean the same thing in each.

Slime's parser cannot tell a `disable_radix_cache` that it sets by default from one that somebody chose: from its
namespace only `True` is a choice, and kept. In a file an explicit `false` is seen, and judged like any other.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reef_ref.config import FLAG, Count, Refusal, Rule, SGLangConfig, judge, refusal_of
from reef_ref.config_file import UnreadableError, read_yaml
from reef_ref.lora_schema import AskAdapterKeys, installed_adapter_keys
from reef_ref.options import NameTrouble, one_spelling, spell, spell_option

PREFIX = "sglang_"
NOT_ENGINES = ("router_", "config")
"""What Slime's `sglang_` arguments say to others than engines."""


class Preflight(StrEnum):
    """Rules on Slime's own arguments, each under the name that reports use."""

    COLOCATED_OFFLOADS = "colocated-engines-offload"
    OFFLOAD_IS_COLOCATED = "offload-is-for-colocated-engines"
    RESIDENT_BASE = "resident-base-needs-colocated-lora"


class SlimeArguments(BaseModel):
    """Slime's arguments, in so far as engines depend on them; others are left alone.

    `rollout_num_gpus` and `rollout_num_gpus_per_engine` count GPUs, `lora_slots` adapters;
    `distributed_timeout_minutes` is in minutes. `options` are SGLang's arguments as stated, under their own names, and
    `models` the contents of Slime's `sglang_config`, if there is one.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, hide_input_in_errors=True)

    colocate: bool = False
    disjoint_prefix_sharing: bool = False
    offload_train: bool = False
    offload_rollout: bool = False
    keep_lora_base_resident: bool = False
    rollout_num_gpus: Count = 1
    rollout_num_gpus_per_engine: Count = 1
    num_gpus_per_node: Count = 8
    prefill_num_servers: Count | None = None
    rollout_external_engine_addrs: Annotated[tuple[str, ...], Field(strict=False)] = ()
    lora_rank: Count = 0
    lora_slots: Count = Field(default=1, ge=1)
    lora_target_modules: Annotated[tuple[str, ...], Field(strict=False)] = ()
    use_fault_tolerance: bool = False
    distributed_timeout_minutes: float = 10.0
    options: dict[str, Any] = Field(default_factory=dict)
    models: Any = None

    @property
    def retracts(self) -> bool:
        """Publications retract what runs: then, and only then, prefixes may be shared."""
        return self.colocate or self.disjoint_prefix_sharing


def translate(arguments: SlimeArguments) -> dict[str, Any]:
    """The engines that Slime's arguments describe, as `reef_ref.config.judge` takes them."""
    options = dict(arguments.options)
    options.setdefault("enable_memory_saver", arguments.offload_rollout)
    if arguments.lora_rank > 0:
        options.setdefault("enable_lora", True)
        options.setdefault("max_lora_rank", arguments.lora_rank)
        options.setdefault("max_loaded_loras", arguments.lora_slots)
        options.setdefault("max_loras_per_batch", arguments.lora_slots)
        options.setdefault("enable_weights_cpu_backup", True)
        if arguments.lora_target_modules:
            options.setdefault("lora_target_modules", list(arguments.lora_target_modules))
    return {
        "pause_mode": "retract" if arguments.retracts else "in_place",
        "options": options,
        "models": _models(arguments),
        "external_engines": list(arguments.rollout_external_engine_addrs),
        "offload": arguments.offload_rollout,
        "num_gpus": arguments.rollout_num_gpus,
        "gpus_per_engine": arguments.rollout_num_gpus_per_engine,
        "gpus_per_node": arguments.num_gpus_per_node,
        "shared_gpus": arguments.rollout_num_gpus if arguments.colocate else 0,
        "health_enabled": arguments.use_fault_tolerance,
        "request_timeout": arguments.distributed_timeout_minutes * 60,
    }


def _models(arguments: SlimeArguments) -> object:
    if arguments.models is not None:
        return arguments.models
    if arguments.rollout_external_engine_addrs:
        return []
    gpus, width = arguments.rollout_num_gpus, arguments.rollout_num_gpus_per_engine
    if arguments.prefill_num_servers is None:
        sizes = {"regular": gpus}
    else:
        prefill = arguments.prefill_num_servers * width
        sizes = {"prefill": prefill, "decode": gpus - prefill}
    groups = [{"worker_type": kind, "num_gpus": size, "gpus_per_engine": width} for kind, size in sizes.items()]
    return [{"name": "actor", "update_weights": True, "groups": groups}]


def judge_slime(arguments: SlimeArguments, *, ask: AskAdapterKeys = installed_adapter_keys) -> SGLangConfig | Refusal:
    """Put Slime's arguments through its own rules, and the engines that they describe through every other.

    Args:
        arguments: as read from any source.
        ask: answers whether SGLang scopes cache keys by adapter.
    """
    refused = _preflight(arguments)
    if refused:
        return refused
    answer = judge(translate(arguments), ask=ask)
    return _in_slimes_words(answer) if isinstance(answer, Refusal) else answer


def _preflight(arguments: SlimeArguments) -> Refusal | None:
    if arguments.colocate and not (arguments.offload_train and arguments.offload_rollout):
        missing = "offload_rollout" if arguments.offload_train else "offload_train"
        return Refusal(
            Preflight.COLOCATED_OFFLOADS,
            f"training.options.{missing}",
            "is false; colocated engines and the trainer take turns on the same memory",
            "true",
        )
    if arguments.offload_rollout and not arguments.colocate:
        return Refusal(
            Preflight.OFFLOAD_IS_COLOCATED,
            "training.options.offload_rollout",
            "is true; disjoint engines keep their memory",
            "false, or colocate: true",
        )
    if arguments.keep_lora_base_resident and not (arguments.colocate and arguments.lora_rank > 0):
        return Refusal(
            Preflight.RESIDENT_BASE,
            "training.options.keep_lora_base_resident",
            "is true; only colocated engines under LoRA can keep base weights",
            "false",
        )
    return None


_NAMES = {
    "num_gpus": "training.options.rollout_num_gpus",
    "gpus_per_engine": "training.options.rollout_num_gpus_per_engine",
    "gpus_per_node": "training.options.num_gpus_per_node",
    "request_timeout": "training.options.distributed_timeout_minutes",
    "offload": "training.options.offload_rollout",
}


def _in_slimes_words(refusal: Refusal) -> Refusal:
    key = refusal.key
    key = f"inference.{key}" if key.startswith(("options.", "models")) else _NAMES.get(key, key)
    change = refusal.change.replace("pause_mode: retract", "disjoint_prefix_sharing: true")
    change = change.replace("pause_mode: in_place", "neither colocate nor disjoint_prefix_sharing")
    return replace(refusal, key=key, change=change)


def from_namespace(parsed: Mapping[str, Any], *, models: object = None) -> SlimeArguments:
    """What Slime's own parser made of a command line.

    Args:
        parsed: its attributes by name.
        models: the contents of `sglang_config`, if there is one.

    Raises:
        ValidationError: an argument has another type.
    """
    options = _engine_options(parsed)
    if options.get(FLAG) is not True:
        # The parser's default, which cannot be told from a choice.
        options.pop(FLAG, None)
    rest = {name: value for name, value in parsed.items() if not name.startswith(PREFIX) and value is not None}
    return SlimeArguments.model_validate(rest | {"options": options, "models": models})


def _engine_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    named = {name.removeprefix(PREFIX): value for name, value in arguments.items() if name.startswith(PREFIX)}
    return {name: value for name, value in named.items() if value is not None and not name.startswith(NOT_ENGINES)}


def from_command_line(argv: Sequence[str], *, read: Callable[[Path], object] = read_yaml) -> SlimeArguments | Refusal:
    """A command line as it is typed: nothing in it is a default.

    Args:
        argv: the arguments, `--name`, `--name value...` or `--name=value`.
        read: reads the file that `--sglang-config` names.
    """
    try:
        arguments = one_spelling(_pairs(argv), _argument)
        config = arguments.pop("sglang_config", None)
        models = None if config is None else read(Path(str(config)))
        options = one_spelling(_engine_options(arguments), spell_option)
    except NameTrouble as trouble:
        return Refusal(Rule.OPTION_NAMES, trouble.key, str(trouble), "")
    except UnreadableError as error:
        return Refusal(Rule.SHAPE, "--sglang-config", f"{config}: {error}", "")
    rest = {name: value for name, value in arguments.items() if not name.startswith(PREFIX)}
    for name in ("rollout_external_engine_addrs", "lora_target_modules"):
        if isinstance(rest.get(name), str):
            rest[name] = [rest[name]]
    return _arguments(rest | {"options": options, "models": models}, "")


def from_deployment(deployment: Mapping[object, object]) -> SlimeArguments | Refusal:
    """A deployment file: `training.options` are Slime's arguments; `inference.options` are SGLang's, for every engine.

    `inference.models` stands for Slime's `sglang_config`.
    """
    try:
        top = _sections(deployment, "", {"training", "inference"})
        training = _options_of(top.get("training"), "training", spell)
        inference = top.get("inference")
        options = _options_of(inference, "inference", spell_option)
        models = (
            _sections(inference, "inference.", {"models"}).get("models") if isinstance(inference, Mapping) else None
        )
    except NameTrouble as trouble:
        return Refusal(Rule.OPTION_NAMES, trouble.key, str(trouble), "")
    except _NoMappingError as error:
        return Refusal(Rule.SHAPE, str(error), "must hold names and values", "")
    own = {name: value for name, value in training.items() if name not in ("options", "models")}
    misspelt = _misspelt(own, SlimeArguments.model_fields.keys())
    if misspelt:
        return Refusal(Rule.SHAPE, f"training.options.{misspelt[0]}", f"did you mean {misspelt[1]}?", "")
    return _arguments(own | {"options": options, "models": models}, "training.options.")


class _NoMappingError(Exception):
    pass


def _options_of(section: object, name: str, to: Callable[[object], str]) -> dict[str, object]:
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise _NoMappingError(name)
    options = _sections(section, f"{name}.", {"options", "models"}).get("options")
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise _NoMappingError(f"{name}.options")
    try:
        return one_spelling(options, to)
    except NameTrouble as trouble:
        raise NameTrouble(f"{name}.options.{trouble.key}", str(trouble)) from trouble


def _sections(section: Mapping[Any, object], prefix: str, known: Iterable[str]) -> dict[str, object]:
    spelled = one_spelling(section)
    misspelt = _misspelt(spelled, known)
    if misspelt:
        raise NameTrouble(prefix + misspelt[0], f"did you mean {misspelt[1]}?")
    return spelled


def _misspelt(names: Iterable[str], known: Iterable[str]) -> tuple[str, str] | None:
    """A name that is nearly a known one, and that one. Names that resemble none are not ours to judge."""
    right = sorted(known)
    for name in names:
        close = difflib.get_close_matches(name, right, n=1, cutoff=0.88)
        if close and name not in right:
            return name, close[0]
    return None


def _arguments(values: Mapping[str, object], prefix: str) -> SlimeArguments | Refusal:
    try:
        return SlimeArguments.model_validate(values)
    except ValidationError as error:
        refusal = refusal_of(error)
        return replace(refusal, key=prefix + refusal.key)


def _argument(name: object) -> str:
    return spell(str(name).removeprefix("--"))


def _pairs(argv: Sequence[str]) -> dict[object, object]:
    """Arguments and their values: none is True, one is itself, more are a list."""
    found: dict[object, list[object]] = {}
    current: list[object] | None = None
    for word in argv:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            if name in found:
                raise NameTrouble(name, "is given twice; keep one")
            current = found[name] = [_value(value)] if equals else []
        elif current is None:
            raise NameTrouble(word, "is a value without a name before it")
        else:
            current.append(_value(word))
    return {name: True if not values else values[0] if len(values) == 1 else values for name, values in found.items()}


def _value(word: str) -> object:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


__all__ = [
    "Preflight",
    "SlimeArguments",
    "from_command_line",
    "from_deployment",
    "from_namespace",
    "judge_slime",
    "translate",
]
