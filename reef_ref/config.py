"""What a deployment's configuration says about engines, and whether they may share prefixes.

`judge` puts a configuration through every rule, in order, and answers with a `Decision` or with the first `Refusal`.
An `SGLangConfig` that was validated has been accepted; its `decision` says which value of SGLang's
`disable_radix_cache` each scope gets, which rule decided, and what would change it.

The reason for all of it: a cached KV entry carries no load id, so one that outlives a publication is matched by
requests that run under other weights. Prefixes may therefore be shared only where each publication retracts what runs
and empties the cache before the weights change, and, under LoRA, where the key of an entry names its adapter.

An explicit `disable_radix_cache: true` always wins. An explicit `false` that is not safe is refused, never corrected.

Upstream's rules come first, in upstream's order. What this project refuses besides, or sooner:

* two spellings of one name, abbreviations, and hyphens in a group's options, which upstream would not judge;
* under external engines the rules on groups, where upstream stops before them; only their GPUs are not counted;
* `disaggregation_mode` among the options, where it makes another worker than `worker_type` says;
* the settings of `reef_ref.options.UNSAFE_SETTINGS`, in groups that a publication reaches;
* memory offload with in-place pauses, and a second model whose weights are updated;
* times without an end.

LoRA counts as on where `lora_paths` turn it on, as they do in SGLang.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from reef_ref.lora_schema import AdapterKeys, AskAdapterKeys, installed_adapter_keys
from reef_ref.options import Applies, Danger, NameTrouble, has_adapters, one_spelling, short, spell_option, unsafe

PAUSE_MODES = ("in_place", "retract")
PORTS = range(1, 65_501)
"""First ports from which an engine's ports may be taken."""

FLAG = "disable_radix_cache"
STREAMING = "incremental_streaming_output"

WorkerType = Literal["regular", "prefill", "decode", "encoder", "placeholder"]
DISAGGREGATED = frozenset({"prefill", "decode"})
UPDATABLE = frozenset({"regular", "prefill", "decode"})
"""Workers that a publication reaches, in a model whose weights are updated."""


class Rule(StrEnum):
    """What can decide, each under the name that reports use."""

    SHAPE = "shape"
    OPTION_NAMES = "option-names"
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
    CACHE_TIER = Danger.CACHE_TIER.value
    HIDDEN_SHARING = Danger.HIDDEN_SHARING.value
    IGNORED_PAUSE = Danger.IGNORED_PAUSE.value
    TOKENIZER_WORKERS = Danger.TOKENIZER_WORKERS.value
    STREAMING_SESSIONS = Danger.STREAMING_SESSIONS.value
    QUEUE_LIMIT = Danger.QUEUE_LIMIT.value
    UNHEARD_RANKS = Danger.UNHEARD_RANKS.value
    OFFLOAD_NEEDS_RETRACT = "offload-needs-retract"
    ONE_UPDATABLE_MODEL = "one-updatable-model"

    OPT_OUT = "opt-out"
    STATED_SHARED = "stated-shared"
    RETRACT_SHARED = "retract-shared"
    IN_PLACE_UNSHARED = "in-place-unshared"
    UNKEYED_ADAPTERS_UNSHARED = "unkeyed-adapters-unshared"
    INHERITED = "inherited"


@dataclass(frozen=True, slots=True)
class ScopeDecision:
    """What one scope gets: the options of all engines, or those of one group."""

    scope: str
    disable_radix_cache: bool
    rule: Rule
    because: str
    change: str
    """What would make it the other value."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An accepted configuration: the options of all engines first, then each group in order."""

    pause_mode: str
    scopes: tuple[ScopeDecision, ...]

    def disable_radix_cache(self, scope: str = "options") -> bool:
        """The effective value in a scope.

        Raises:
            KeyError: there is no such scope.
        """
        for decided in self.scopes:
            if decided.scope == scope:
                return decided.disable_radix_cache
        raise KeyError(scope)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused configuration: the first rule that it breaks."""

    rule: StrEnum
    key: str
    reason: str
    change: str
    """What would be right; empty where the reason says so."""


class _Refused(Exception):  # noqa: N818 - internal, never seen
    def __init__(self, rule: Rule, key: str, reason: str, change: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.refusal = Refusal(rule, key, reason, change)


def _options(value: object) -> object:
    """Every option under its one name. Anything but a mapping is left for the type to refuse."""
    return _spelled(value, option=True)


def _spelled(value: object, *, option: bool = False) -> object:
    if not isinstance(value, Mapping):
        return value
    try:
        return one_spelling(value, spell_option) if option else one_spelling(value)
    except NameTrouble as trouble:
        raise PydanticCustomError("option-names", "{reason}", {"key": trouble.key, "reason": str(trouble)}) from trouble


Count = Annotated[int, Field(ge=-(10**9), le=10**9)]
"""A number of things, or a port."""

Options = Annotated[dict[str, Any], BeforeValidator(_options)]
"""SGLang's server arguments by their underscore names."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, value: object) -> object:
        return _spelled(value)


class GroupConfig(_Part):
    """Engines of one kind within a model.

    `num_gpus` and `gpus_per_engine` count GPUs. `options_reported_by` names the external engine from whose own report
    `options` were taken, if they were.
    """

    worker_type: WorkerType = "regular"
    num_gpus: Count = Field(gt=0)
    gpus_per_engine: Count = Field(gt=0)
    options: Options = Field(default_factory=dict)
    options_reported_by: str | None = None

    @model_validator(mode="after")
    def _whole_engines(self) -> GroupConfig:
        if self.worker_type != "placeholder" and self.num_gpus % self.gpus_per_engine:
            raise PydanticCustomError(
                "whole_engines",
                "{gpus} GPUs are no whole number of engines of {width}",
                {"gpus": self.num_gpus, "width": self.gpus_per_engine},
            )
        return self


class ModelConfig(_Part):
    """A model: its groups, and whether publications update its weights."""

    name: str = "model"
    update_weights: bool = True
    groups: Annotated[tuple[GroupConfig, ...], Field(strict=False)] = ()


class SGLangConfig(_Part):
    """A deployment's engines, as every rule accepts them.

    GPU fields count GPUs; times are in seconds. `options` go to every engine, a group's own `options` over them.
    `external_engines` are addresses of engines that somebody else runs; they are launched and stopped by nobody here,
    so their GPUs are not counted. `options_reported_by` is as in a group.

    Adapter keys are asked for only where a decision hangs on them; `judge` takes another way to ask.

    Raises:
        ValidationError: of one error, whose type is the `Rule`.
    """

    pause_mode: str = "in_place"
    options: Options = Field(default_factory=dict)
    options_reported_by: str | None = None
    models: Annotated[tuple[ModelConfig, ...], Field(strict=False)] = ()
    external_engines: Annotated[tuple[str, ...], Field(strict=False)] = ()
    offload: bool = False
    num_gpus: Count = 1
    gpus_per_engine: Count = 1
    gpus_per_node: Count = 8
    shared_gpus: Count = 0
    check_weights: bool = False
    health_enabled: bool = False
    health_interval: float = 30.0
    health_timeout: float = 30.0
    health_first_wait: float = 60.0
    request_timeout: float = 600.0
    startup_timeout: float = 14_400.0
    engine_port_base: Count = 30_000

    _decision: Decision = PrivateAttr()

    @model_validator(mode="after")
    def _judge(self, info: ValidationInfo) -> SGLangConfig:
        ask = (info.context or {}).get(_ASK, installed_adapter_keys)
        try:
            self._decision = _Judgement(self, ask).decision()
        except _Refused as refused:
            refusal = refused.refusal
            context: dict[str, Any] = {"key": refusal.key, "reason": refusal.reason, "change": refusal.change}
            raise PydanticCustomError(_literal(refused.rule), "{key}: {reason}", context) from refused
        return self

    @property
    def decision(self) -> Decision:
        """Who shares prefixes, and why."""
        return self._decision

    def effective_options(self, scope: str = "options") -> dict[str, Any]:
        """What an engine of a scope is started with: all engines' options, the group's over them, and the decision.

        Args:
            scope: as a `ScopeDecision` names it; by default the options of all engines.

        Raises:
            KeyError: there is no such scope.
        """
        decided = {FLAG: self.decision.disable_radix_cache(scope), STREAMING: True}
        group = next((group for key, _, group in self.groups() if f"{key}.options" == scope), None)
        return self.options | (group.options if group else {}) | decided

    def groups(self) -> Iterator[tuple[str, ModelConfig, GroupConfig]]:
        """Every group in order, with its key and its model."""
        for m, model in enumerate(self.models):
            for g, group in enumerate(model.groups):
                yield f"models[{m}].groups[{g}]", model, group


_ASK = "ask_adapter_keys"


def _literal(rule: Rule) -> Any:
    """pydantic wants a literal for what is any text."""
    return rule.value


class _Judgement:
    """The rules, in order: upstream's first and in its order, then this project's own."""

    def __init__(self, config: SGLangConfig, ask: AskAdapterKeys) -> None:
        self._config = config
        self._ask = ask
        self._retract = config.pause_mode == "retract"
        self._flag = True

    def decision(self) -> Decision:
        config = self._config
        if config.pause_mode not in PAUSE_MODES:
            self._refuse(Rule.PAUSE_MODE, "pause_mode", f"is {_show(config.pause_mode)}", "in_place or retract")
        self._check_streaming(config.options, "options")
        everybody = self._decide_for_all()
        self._check_flag(config.options | {FLAG: self._flag}, config.options, "options")
        self._check_numbers()
        owned = not config.external_engines
        groups = list(config.groups())
        if owned:
            reserved = sum(group.num_gpus for _, _, group in groups)
            if reserved != config.num_gpus:
                self._refuse(
                    Rule.GPUS,
                    "num_gpus",
                    f"{config.num_gpus} GPUs are reserved and the groups take {reserved}",
                    "make them equal",
                )
        scopes = [everybody]
        for key, _, group in groups:
            self._check_group(key, group, owned=owned)
            scopes.append(self._decide_for_group(key, group, everybody))
        if not groups:
            self._check_role("options", "regular", {})
            self._check_settings("options", {})
        for key, model, group in groups:
            self._check_role(f"{key}.options", group.worker_type, group.options)
            if model.update_weights and group.worker_type in UPDATABLE:
                self._check_settings(f"{key}.options", group.options)
        self._check_deployment()
        return Decision(config.pause_mode, tuple(scopes))

    # Who shares

    def _decide_for_all(self) -> ScopeDecision:
        options = self._config.options
        rule, because, change = self._choose(options)
        self._flag = rule not in (Rule.RETRACT_SHARED, Rule.STATED_SHARED)
        return ScopeDecision("options", self._flag, rule, because, change)

    def _choose(self, options: Mapping[str, object]) -> tuple[Rule, str, str]:
        if FLAG in options:
            # One that is neither true nor safe does not get past the check that follows.
            if options[FLAG] is True:
                return Rule.OPT_OUT, f"{FLAG} is true", f"leave {FLAG} out: then what is safe is chosen"
            return Rule.STATED_SHARED, f"{FLAG} is false, and that is safe", f"{FLAG}: true"
        if not self._retract:
            return (
                Rule.IN_PLACE_UNSHARED,
                "an in-place pause keeps requests and their KV, so the cache cannot be emptied for new weights",
                "pause_mode: retract",
            )
        if not has_adapters(options):
            return Rule.RETRACT_SHARED, "a publication retracts what runs and empties the cache", f"{FLAG}: true"
        keys = self._ask()
        if keys.scoped:
            because = f"a publication retracts what runs and empties the cache, and {keys.because}"
            return Rule.RETRACT_SHARED, because, f"{FLAG}: true"
        return (
            Rule.UNKEYED_ADAPTERS_UNSHARED,
            f"under LoRA entries must be found by their own adapter only: {keys.because}",
            "an SGLang whose keys name the adapter, or no LoRA",
        )

    def _decide_for_group(self, key: str, group: GroupConfig, everybody: ScopeDecision) -> ScopeDecision:
        scope = f"{key}.options"
        if FLAG in group.options:
            rule, because, change = self._choose(group.options)
            return ScopeDecision(scope, rule is Rule.OPT_OUT, rule, because, change)
        change = everybody.change if everybody.disable_radix_cache else f"{FLAG}: true, here or for all engines"
        because = f"as for all engines ({everybody.rule}): {everybody.because}"
        return ScopeDecision(scope, everybody.disable_radix_cache, Rule.INHERITED, because, change)

    # Upstream's rules

    def _check_streaming(self, options: Mapping[str, object], scope: str) -> None:
        if options.get(STREAMING, True) is not True:
            self._refuse(
                Rule.STREAMING_OUTPUT,
                f"{scope}.{STREAMING}",
                f"is {_show(options[STREAMING])}; per-token load ids are read from disjoint output segments",
                "true, or leave it out",
            )

    def _check_flag(self, options: Mapping[str, object], stated: Mapping[str, object], scope: str) -> None:
        """Judge a scope's effective options; `stated` are those that the scope itself gives."""
        key = f"{scope}.{FLAG}"
        flag = stated.get(FLAG, options[FLAG])
        if flag is True:
            return
        if flag is not False:
            self._refuse(Rule.FLAG_BOOLEAN, key, f"is {_show(flag)}", "true, false, or leave it out")
        if not self._retract:
            self._refuse(
                Rule.SHARING_NEEDS_RETRACT,
                key,
                "false shares prefixes, which an in-place pause would carry over to the next weights",
                "true, or pause_mode: retract",
            )
        if has_adapters(options):
            keys: AdapterKeys = self._ask()
            if not keys.scoped:
                self._refuse(
                    Rule.SHARING_NEEDS_ADAPTER_KEYS,
                    key,
                    f"{'false shares' if FLAG in stated else 'inherited, it shares'} prefixes between adapters: "
                    f"{keys.because}",
                    "true, or an SGLang whose keys name the adapter",
                )

    def _check_numbers(self) -> None:
        config = self._config
        for name in ("num_gpus", "gpus_per_engine", "gpus_per_node"):
            if (size := getattr(config, name)) <= 0:
                self._refuse(Rule.SIZES, name, f"is {size}", "at least 1")
        if config.shared_gpus < 0:
            self._refuse(Rule.SIZES, "shared_gpus", f"is {config.shared_gpus}", "at least 0")
        for name in ("health_interval", "health_timeout", "health_first_wait", "request_timeout", "startup_timeout"):
            if not 0 < (seconds := getattr(config, name)) < math.inf:
                self._refuse(Rule.TIMES, name, f"is {seconds} s", "a finite time above 0")
        if config.engine_port_base not in PORTS:
            given, last = config.engine_port_base, PORTS[-1]
            self._refuse(Rule.PORT, "engine_port_base", f"is {given}", f"{PORTS[0]} to {last}")

    def _check_group(self, key: str, group: GroupConfig, *, owned: bool) -> None:
        config = self._config
        scope = f"{key}.options"
        self._check_streaming(group.options, scope)
        self._check_flag(config.options | {FLAG: self._flag} | group.options, group.options, scope)
        disaggregated = group.worker_type in DISAGGREGATED
        if config.offload and disaggregated:
            self._refuse(
                Rule.OFFLOAD_ROLES,
                f"{key}.worker_type",
                f"is {group.worker_type}; the memory of disaggregated engines cannot be released",
                "regular, or offload: false",
            )
        if self._retract and disaggregated:
            self._refuse(
                Rule.RETRACT_ROLES,
                f"{key}.worker_type",
                f"is {group.worker_type}; the requests of disaggregated engines cannot be retracted",
                "regular, or pause_mode: in_place",
            )
        width, node = group.gpus_per_engine, config.gpus_per_node
        if owned and width > node and width % node:
            self._refuse(
                Rule.WHOLE_NODES,
                f"{key}.gpus_per_engine",
                f"is {width}, which is wider than a node of {node} GPUs and no multiple of it",
                f"a multiple of {node}",
            )

    # Beyond upstream

    def _check_role(self, scope: str, worker_type: str, own: dict[str, Any]) -> None:
        stated = (self._config.options | own).get("disaggregation_mode")
        if stated not in (None, "null", worker_type):
            self._refuse(
                Rule.ROLE_ONCE,
                self._where("disaggregation_mode", scope, own),
                f"is {_show(stated)}, where worker_type makes a {worker_type} worker",
                "leave it out, and say so in a group's worker_type",
            )

    def _check_settings(self, scope: str, own: dict[str, Any]) -> None:
        """Refuse what no flush makes safe, in one scope's effective options."""
        options = self._config.options | own
        shares = own.get(FLAG, self._flag) is False
        for setting in unsafe(options, retract=self._retract, shares=shares):
            harmless = setting.harmless
            value = "leave it out" if harmless is None else f"{_yaml(harmless)}, or leave it out"
            if setting.applies is Applies.SHARING:
                value += f"; or {FLAG}: true"
            self._refuse(
                Rule(setting.danger.value),
                self._where(setting.name, scope, own),
                f"is {_show(options[setting.name])}; {setting.reason}",
                value,
            )

    def _check_deployment(self) -> None:
        config = self._config
        if config.offload and not self._retract:
            self._refuse(
                Rule.OFFLOAD_NEEDS_RETRACT,
                "offload",
                "memory is released only from an idle engine, and an in-place pause leaves its requests running",
                "pause_mode: retract, or offload: false",
            )
        updated = [f"models[{m}]" for m, model in enumerate(config.models) if model.update_weights]
        if len(updated) > 1:
            self._refuse(
                Rule.ONE_UPDATABLE_MODEL,
                f"{updated[1]}.update_weights",
                f"is true as in {updated[0]}; a publication reaches the first such model only",
                "false",
            )

    def _where(self, option: str, scope: str, own: Mapping[str, object]) -> str:
        return f"{scope if option in own else 'options'}.{option}"

    def _refuse(self, rule: Rule, key: str, reason: str, change: str) -> None:
        raise _Refused(rule, key, reason, change)


def judge(settings: object, *, ask: AskAdapterKeys = installed_adapter_keys) -> SGLangConfig | Refusal:
    """Put a configuration through every rule.

    Args:
        settings: the configuration as read, in either spelling of its names.
        ask: answers whether SGLang scopes cache keys by adapter.

    Returns:
        The accepted configuration, whose `decision` says who shares; or the first rule that it breaks.
    """
    try:
        return SGLangConfig.model_validate(settings, context={_ASK: ask})
    except ValidationError as error:
        return refusal_of(error)


def refusal_of(error: ValidationError) -> Refusal:
    """The first thing that is wrong, of what pydantic found."""
    first = error.errors(include_url=False, include_input=False)[0]
    context = first.get("ctx", {})
    where = _path(first["loc"])
    match first["type"]:
        case "option-names":
            return Refusal(Rule.OPTION_NAMES, _join(where, str(context["key"])), str(context["reason"]), "")
        case kind if kind in _DECIDING:
            return Refusal(Rule(kind), str(context["key"]), str(context["reason"]), str(context["change"]))
        case "value_error" | "assertion_error":
            raise error  # No rule raises these: a defect is not a refusal.
        case "extra_forbidden":
            return Refusal(Rule.SHAPE, where, "is no setting here", "")
        case "missing":
            return Refusal(Rule.SHAPE, where, "is missing", "")
        case _:
            message = first["msg"]
            return Refusal(Rule.SHAPE, where or "configuration", message[:1].lower() + message[1:], "")


_DECIDING = frozenset(rule.value for rule in Rule) - {Rule.SHAPE.value, Rule.OPTION_NAMES.value}


def _path(loc: Sequence[str | int]) -> str:
    path = ""
    for part in loc:
        path = f"{path}[{part}]" if isinstance(part, int) else _join(path, short(part))
    return path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _show(value: object) -> str:
    """A value in a report: short, whatever it is."""
    match value:
        case bool() | None | int() | float():
            return _yaml(value)[:40]
        case str():
            return repr(value if len(value) <= 40 else value[:37] + "...")
        case _:
            return f"a {type(value).__name__}"


def _yaml(value: float | bool | None) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 128:
            return "a very large number"
        case _:
            return str(value)


__all__ = [
    "FLAG",
    "PAUSE_MODES",
    "PORTS",
    "Count",
    "Decision",
    "GroupConfig",
    "ModelConfig",
    "Refusal",
    "Rule",
    "SGLangConfig",
    "ScopeDecision",
    "judge",
    "refusal_of",
]
