"""A configuration file's contents for every case of the specification's table."""

from __future__ import annotations

from typing import Any

from reef_ref.config import Decision, Refusal, SGLangConfig, judge
from reef_ref.lora_schema import AdapterKeys
from spec.sharing import (
    Accepted,
    Case,
    Engines,
    Flag,
    Keys,
    Lora,
    Memory,
    Outcome,
    Pause,
    Refused,
    Role,
    Rule,
    Trouble,
    Value,
)

FLAGS: dict[Flag, dict[str, object]] = {
    Flag.UNSET: {},
    Flag.TRUE: {"disable_radix_cache": True},
    Flag.FALSE: {"disable_radix_cache": False},
    Flag.OTHER: {"disable_radix_cache": "false"},
}
LORA: dict[Lora, dict[str, object]] = {Lora.UNSET: {}, Lora.OFF: {"enable_lora": False}, Lora.ON: {"enable_lora": True}}
MODES = {Pause.IN_PLACE: "in_place", Pause.RETRACT: "retract", Pause.UNKNOWN: "abort"}
KEYS = {Keys.SCOPED: AdapterKeys(True, "said so"), Keys.UNSCOPED: AdapterKeys(False, "said so")}
WORKERS = {role: "regular" if role is Role.FROZEN else role.name.lower() for role in Role}

TOP: dict[Trouble, dict[str, object]] = {
    Trouble.SIZE: {"gpus_per_engine": 0},
    Trouble.TIME: {"request_timeout": 0.0},
    Trouble.PORT: {"engine_port_base": 65_501},
}
OPTIONS: dict[str, dict[str, object]] = {
    "STREAMING": {"incremental_streaming_output": False},
    "TIER": {"hicache_storage_backend": "file"},
    "EMBEDDINGS": {"enable_mm_global_cache": True},
    "HIDDEN_SHARING": {"disaggregation_decode_enable_radix_cache": True},
    "IGNORED_PAUSE": {"pp_size": 2},
    "TOKENIZERS": {"tokenizer_worker_num": 4},
    "SESSIONS": {"enable_streaming_session": True},
    "QUEUE_LIMIT": {"max_queued_requests": 8},
    "RANKS": {"dp_size": 2},
}


def configuration(case: Case) -> dict[str, Any]:
    """The configuration that a case describes, as it would be read from a file."""
    wrong = case.troubles
    everybody = FLAGS[case.flag] | LORA[case.lora]
    group_options = FLAGS[case.group_flag] | LORA[case.group_lora]
    role = {"disaggregation_mode": "decode" if case.role is Role.PREFILL else "prefill"}
    settings: dict[str, Any] = {"pause_mode": MODES[case.pause], "offload": case.memory is Memory.OFFLOADED}
    for trouble in wrong:
        settings |= TOP.get(trouble, {})
        name = trouble.name
        if name.startswith("GROUP_"):
            group_options |= role if trouble is Trouble.GROUP_ROLE else OPTIONS[name.removeprefix("GROUP_")]
        elif trouble is Trouble.ROLE:
            everybody |= role
        else:
            everybody |= OPTIONS.get(name, {})
    settings["options"] = everybody
    if case.engines is not Engines.OWNED:
        settings["external_engines"] = ["http://engine"]
    if case.engines is Engines.BARE:
        return settings
    width = 3 if Trouble.NODES in wrong else 1
    group = {
        "worker_type": WORKERS[case.role],
        "num_gpus": width,
        "gpus_per_engine": width,
        "options": group_options,
    }
    settings["models"] = [{"update_weights": case.role is not Role.FROZEN, "groups": [group]}]
    reserved = width
    if Trouble.SECOND_MODEL in wrong:
        second = {"worker_type": "placeholder", "num_gpus": 1, "gpus_per_engine": 1}
        settings["models"].append({"update_weights": True, "groups": [second]})
        reserved += 1
    return settings | {"num_gpus": reserved + (Trouble.GPUS in wrong), "gpus_per_node": 2}


def outcome(case: Case) -> Outcome:
    """What the implementation makes of a case, in the specification's words."""
    answer = judge(configuration(case), ask=lambda: KEYS[case.keys])
    if isinstance(answer, Refusal):
        return Refused(Rule(answer.rule.value))
    return _accepted(answer.decision, answer)


def _accepted(decision: Decision, config: SGLangConfig) -> Accepted:
    values = [Value(scope.disable_radix_cache, Rule(scope.rule.value)) for scope in decision.scopes]
    return Accepted(values[0], values[1] if config.models else None)
