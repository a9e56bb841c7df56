"""Slime's arguments: the same words mean the same on a command line, in its parser's namespace and in a file."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from reef_ref.config import Refusal, Rule, SGLangConfig
from reef_ref.config_file import UnreadableError
from reef_ref.lora_schema import AdapterKeys
from reef_ref.slime import (
    Preflight,
    SlimeArguments,
    from_command_line,
    from_deployment,
    from_namespace,
    judge_slime,
    translate,
)

COLOCATED = {"colocate": True, "offload_train": True, "offload_rollout": True}


def yes() -> AdapterKeys:
    return AdapterKeys(True, "said so")


def no() -> AdapterKeys:
    return AdapterKeys(False, "said so")


def judged(arguments: SlimeArguments | Refusal, ask: Any = yes) -> SGLangConfig | Refusal:
    return arguments if isinstance(arguments, Refusal) else judge_slime(arguments, ask=ask)


def accepted(arguments: SlimeArguments | Refusal, ask: Any = yes) -> SGLangConfig:
    answer = judged(arguments, ask)
    assert isinstance(answer, SGLangConfig), answer
    return answer


def refused(arguments: SlimeArguments | Refusal, ask: Any = yes) -> Refusal:
    answer = judged(arguments, ask)
    assert isinstance(answer, Refusal), answer
    return answer


@pytest.mark.parametrize(("colocate", "opt_in"), list(product((False, True), repeat=2)))
def test_retract_where_colocated_or_opted_in(colocate: bool, opt_in: bool) -> None:
    config = accepted(SlimeArguments(**(COLOCATED if colocate else {}), disjoint_prefix_sharing=opt_in))
    assert config.pause_mode == ("retract" if colocate or opt_in else "in_place")
    assert config.decision.disable_radix_cache() is not (colocate or opt_in)
    assert config.shared_gpus == (1 if colocate else 0)
    assert config.offload is colocate


def sources(training: dict[str, object], engine: dict[str, object], *, hyphens: bool) -> list[SlimeArguments | Refusal]:
    """The same arguments from a command line, from Slime's namespace, and from a file."""

    def spelled(name: str) -> str:
        return name.replace("_", "-") if hyphens else name

    argv: list[str] = []
    for name, value in (training | {f"sglang_{name}": value for name, value in engine.items()}).items():
        argv += [f"--{spelled(name)}", *([] if value is True else [str(value)])]
    namespace = training | {"sglang_disable_radix_cache": False}
    namespace |= {f"sglang_{name}": value for name, value in engine.items()}
    deployment: dict[object, object] = {
        "training": {"options": {spelled(name): value for name, value in training.items()}},
        "inference": {"options": {spelled(name): value for name, value in engine.items()}},
    }
    return [from_command_line(argv), from_namespace(namespace), from_deployment(deployment)]


TRAINING: tuple[dict[str, object], ...] = (
    {},
    COLOCATED,
    {"disjoint_prefix_sharing": True},
    {"disjoint_prefix_sharing": True, "rollout_num_gpus": 4, "prefill_num_servers": 1},
    {"rollout_num_gpus": 4, "prefill_num_servers": 1},
    {"disjoint_prefix_sharing": True, "lora_rank": 8, "lora_slots": 2},
    {"lora_rank": 8},
    {"colocate": True},
    {"offload_rollout": True},
    {"keep_lora_base_resident": True},
    {"keep_lora_base_resident": True, "lora_rank": 8} | COLOCATED,
)
ENGINE: tuple[dict[str, object], ...] = (
    {},
    {"disable_radix_cache": True},
    {"enable_lora": True},
    {"pp_size": 2},
    {"hicache_storage_backend": "file"},
    {"max_queued_requests": 100},
    {"tokenizer_worker_num": 2},
)


@pytest.mark.parametrize("training", TRAINING, ids=str)
@pytest.mark.parametrize("engine", ENGINE, ids=str)
@pytest.mark.parametrize("hyphens", [False, True])
@pytest.mark.parametrize("ask", [yes, no])
def test_every_source_gets_the_same_answer(
    training: dict[str, object], engine: dict[str, object], hyphens: bool, ask: Any
) -> None:
    answers = [judged(source, ask) for source in sources(training, engine, hyphens=hyphens)]
    assert answers[0] == answers[1] == answers[2]


def test_the_opt_out_is_kept_in_every_source() -> None:
    for arguments in sources(COLOCATED, {"disable_radix_cache": True}, hyphens=True):
        assert accepted(arguments).decision.scopes[0].rule is Rule.OPT_OUT


@pytest.mark.parametrize("value", [False, None, 0, "true"])
def test_from_slimes_parser_only_true_is_a_choice(value: object) -> None:
    """It cannot tell its default from one."""
    arguments = from_namespace({"disjoint_prefix_sharing": True, "sglang_disable_radix_cache": value})
    assert accepted(arguments).decision.scopes[0].rule is Rule.RETRACT_SHARED


def test_an_explicit_choice_in_a_file_is_judged() -> None:
    """Accepted where it is safe, refused where not, and never corrected."""
    inference = {"options": {"disable-radix-cache": False}}
    safe = from_deployment({"training": {"options": {"disjoint-prefix-sharing": True}}, "inference": inference})
    assert accepted(safe).decision.scopes[0].rule is Rule.STATED_SHARED
    unsafe = refused(from_deployment({"inference": inference}))
    assert unsafe.rule is Rule.SHARING_NEEDS_RETRACT
    assert unsafe.key == "inference.options.disable_radix_cache"
    assert "disjoint_prefix_sharing" in unsafe.change


def test_disaggregated_engines_are_refused_from_every_source() -> None:
    training: dict[str, object] = {"disjoint_prefix_sharing": True, "rollout_num_gpus": 2, "prefill_num_servers": 1}
    for arguments in sources(training, {}, hyphens=False):
        assert refused(arguments).rule is Rule.RETRACT_ROLES


def test_groups_from_a_file_are_judged_too(tmp_path: Path) -> None:
    """Given to the command line as `--sglang-config`, or in the deployment itself."""
    models = [{"groups": [{"num-gpus": 1, "gpus-per-engine": 1, "options": {"disable-radix-cache": False}}]}]
    typed = from_command_line(["--sglang-config", "models.yaml"], read=lambda _: models)
    filed = from_deployment({"inference": {"models": models}})
    assert refused(typed) == refused(filed)
    assert refused(filed).rule is Rule.SHARING_NEEDS_RETRACT
    assert refused(filed).key == "inference.models[0].groups[0].options.disable_radix_cache"
    missing = refused(from_command_line(["--sglang-config", str(tmp_path / "none.yaml")]))
    assert "cannot be read" in missing.reason


def test_a_file_that_cannot_be_read_is_said() -> None:
    def read(_: Path) -> object:
        raise UnreadableError("is no YAML")

    assert refused(from_command_line(["--sglang-config=x.yaml"], read=read)).reason == "x.yaml: is no YAML"


def test_lora_and_engine_settings_are_translated() -> None:
    arguments = SlimeArguments(
        **COLOCATED, lora_rank=16, lora_slots=3, lora_target_modules=("q_proj",), use_fault_tolerance=True,
        distributed_timeout_minutes=2.0,
    )  # fmt: skip
    settings = translate(arguments)
    options = settings["options"]
    assert (options["enable_lora"], options["max_lora_rank"], options["max_loaded_loras"]) == (True, 16, 3)
    assert options["enable_memory_saver"] is True
    assert settings["health_enabled"] is True
    assert settings["request_timeout"] == 120
    assert accepted(arguments, no).decision.disable_radix_cache()
    assert not accepted(arguments, yes).decision.disable_radix_cache()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"colocate": True}, Preflight.COLOCATED_OFFLOADS),
        ({"colocate": True, "offload_train": True}, Preflight.COLOCATED_OFFLOADS),
        ({"offload_rollout": True}, Preflight.OFFLOAD_IS_COLOCATED),
        ({"keep_lora_base_resident": True, "lora_rank": 1}, Preflight.RESIDENT_BASE),
        ({"keep_lora_base_resident": True} | COLOCATED, Preflight.RESIDENT_BASE),
    ],
)
def test_slimes_own_rules(arguments: dict[str, Any], rule: Preflight) -> None:
    assert refused(SlimeArguments(**arguments)).rule is rule


@pytest.mark.parametrize(
    "argv",
    [
        ["value"],
        ["--colocate", "--colocate"],
        ["--sglang-pp-size", "2", "--sglang-pipeline-parallel-size", "2"],
        ["--sglang-disable-radix"],
        ["--rollout-num-gpus", "many"],
        ["--Colocate"],
    ],
)
def test_a_command_line_that_cannot_be_judged_is_refused(argv: list[str]) -> None:
    assert refused(from_command_line(argv)).rule in (Rule.OPTION_NAMES, Rule.SHAPE)


@pytest.mark.parametrize(
    "deployment",
    [
        {"inferense": {"options": {"disable-radix-cache": True}}},
        {"inference": {"option": {"disable-radix-cache": True}}},
        {"training": {"options": {"disjoint-prefix-sharng": True}}},
        {"training": 3},
        {"training": {"options": []}},
        {"inference": {"options": {"disable-radix-cache": True, "disable_radix_cache": True}}},
        {"training": {"options": {"colocate": "yes"}}},
    ],
)
def test_a_file_that_cannot_be_judged_is_refused(deployment: dict[object, object]) -> None:
    """A misspelt section or argument would otherwise say nothing, in silence."""
    assert refused(from_deployment(deployment)).rule in (Rule.OPTION_NAMES, Rule.SHAPE)


def test_external_engines_need_no_groups() -> None:
    arguments = from_command_line(["--rollout-external-engine-addrs", "http://a", "--disjoint-prefix-sharing"])
    config = accepted(arguments)
    assert config.external_engines == ("http://a",)
    assert config.models == ()
