"""Configurations one by one: what is refused and why, how names may be spelled, and what an accepted one says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from reef_ref.config import Refusal, Rule, SGLangConfig, judge
from reef_ref.lora_schema import AdapterKeys
from reef_ref.options import ALIASES, JUDGED, UNSAFE_SETTINGS, Applies, UnsafeSetting, has_adapters


def yes() -> AdapterKeys:
    return AdapterKeys(True, "said so")


def engines(options: dict[Any, object] | None = None, group: dict[Any, object] | None = None, **top: object) -> object:
    """One regular engine on one GPU."""
    described = {"num_gpus": 1, "gpus_per_engine": 1, "options": group or {}}
    settings = {"pause_mode": "retract", "options": options or {}, "models": [{"groups": [described]}]}
    return settings | top


def refused(settings: object, **how: Any) -> Refusal:
    answer = judge(settings, **how)
    assert isinstance(answer, Refusal), answer
    return answer


def accepted(settings: object, **how: Any) -> SGLangConfig:
    answer = judge(settings, **how)
    assert isinstance(answer, SGLangConfig), answer
    return answer


def harmful(setting: UnsafeSetting) -> list[object]:
    """Values that a setting must not have: another of its type, and some whose meaning nobody knows."""
    match setting.harmless:
        case bool():
            return [not setting.harmless, "false", 0, []]
        case int():
            return [setting.harmless + 1, 0, "1", float(setting.harmless), True]
        case None:
            return ["file", 8, 0, False, ""]


SETTINGS = [(setting, value) for setting in UNSAFE_SETTINGS for value in harmful(setting)]


@pytest.mark.parametrize(("setting", "value"), SETTINGS, ids=lambda x: getattr(x, "name", repr(x)))
@pytest.mark.parametrize("in_group", [False, True])
@pytest.mark.parametrize("hyphens", [False, True])
def test_settings_that_no_flush_makes_safe(
    setting: UnsafeSetting, value: object, in_group: bool, hyphens: bool
) -> None:
    """Wherever given and however spelled; where the setting does no harm, it is accepted."""
    name = setting.name.replace("_", "-") if hyphens else setting.name
    where = "group" if in_group else "options"

    def settings(**more: object) -> object:
        mode = more.pop("pause_mode", "retract")
        return engines(**{where: {name: value} | more}, pause_mode=mode)

    answer = refused(settings())
    assert answer.rule.value == setting.danger.value
    assert answer.key == f"{'models[0].groups[0].' if in_group else ''}options.{setting.name}"
    assert setting.reason in answer.reason
    unshared, in_place = settings(disable_radix_cache=True), settings(pause_mode="in_place")
    if setting.applies is Applies.SHARING:
        assert accepted(unshared).decision.disable_radix_cache("models[0].groups[0].options")
    else:
        assert refused(unshared).rule == answer.rule
    if setting.applies is Applies.ALWAYS:
        assert refused(in_place).rule == answer.rule
    else:
        accepted(in_place)


@pytest.mark.parametrize("setting", UNSAFE_SETTINGS, ids=lambda setting: setting.name)
def test_harmless_values_are_accepted(setting: UnsafeSetting) -> None:
    accepted(engines({setting.name: setting.harmless}))
    accepted(engines({setting.name: None}))


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_sglangs_other_names_are_the_same_setting(alias: str, name: str) -> None:
    assert refused(engines({alias: 2})) == refused(engines({name: 2}))
    assert refused(engines({alias: 1, name: 1})).rule is Rule.OPTION_NAMES


@pytest.mark.parametrize("name", sorted(JUDGED))
def test_two_spellings_of_one_name_are_refused(name: str) -> None:
    """Even where they agree: nobody says which holds."""
    hyphens = name.replace("_", "-", 1)
    answer = refused(engines({name: True, hyphens: True}))
    assert answer.rule is Rule.OPTION_NAMES
    assert name in answer.reason


@pytest.mark.parametrize("name", ["disable_radix", "disable-radix", "enable_hier", "pp", "enable", "d", "lora"])
def test_abbreviations_of_judged_names_are_refused(name: str) -> None:
    """SGLang's command line would complete them."""
    answer = refused(engines({name: True}))
    assert answer.rule is Rule.OPTION_NAMES
    assert "may stand for" in answer.reason


@pytest.mark.parametrize(
    "name", [1, None, True, "", "--disable-radix-cache", "Disable_Radix_Cache", "disable radix cache", "a\nb", ("a",)]
)
@pytest.mark.parametrize("place", ["top", "options", "group"])
def test_what_is_no_name_is_refused(name: Any, place: str) -> None:
    settings = {name: True} if place == "top" else engines(**{place: {name: True}})
    answer = refused(settings)
    assert answer.rule is Rule.OPTION_NAMES
    assert "\n" not in answer.key


def test_hyphens_are_underscores_at_every_level() -> None:
    hyphens = {
        "pause-mode": "retract",
        "num-gpus": 1,
        "options": {"disable-radix-cache": True},
        "models": [
            {
                "update-weights": True,
                "groups": [{"num-gpus": 1, "gpus-per-engine": 1, "options": {"disable-radix-cache": False}}],
            }
        ],
    }
    assert accepted(hyphens) == accepted(engines({"disable_radix_cache": True}, {"disable_radix_cache": False}))


@pytest.mark.parametrize("value", [None, 0, 1, "false", "true", "", [], {}, 0.0])
@pytest.mark.parametrize("place", ["options", "group"])
@pytest.mark.parametrize("mode", ["retract", "in_place"])
def test_a_flag_that_is_not_boolean_is_refused(value: object, place: str, mode: str) -> None:
    settings = engines(**{place: {"disable_radix_cache": value}}, pause_mode=mode)
    assert refused(settings).rule is Rule.FLAG_BOOLEAN


@pytest.mark.parametrize("mode", ["abort", "", "in", "retract ", "Retract", "in_place_"])
def test_pause_modes_are_compared_whole(mode: str) -> None:
    assert refused(engines(pause_mode=mode)).rule is Rule.PAUSE_MODE


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({}, False),
        ({"enable_lora": None}, False),
        ({"enable_lora": True}, True),
        ({"enable_lora": "no"}, True),
        ({"lora_paths": ["a=/a"]}, True),
        ({"lora_paths": []}, False),
        ({"enable_lora": False, "lora_paths": ["a=/a"]}, False),
    ],
)
def test_adapters_to_load_turn_lora_on(options: dict[str, object], on: bool) -> None:
    """What holds is judged, not what is written."""
    assert has_adapters(options) is on
    decided = accepted(engines(dict(options)), ask=lambda: AdapterKeys(False, "said so")).decision
    assert decided.disable_radix_cache() is on


def test_keys_are_asked_for_only_where_something_hangs_on_them() -> None:
    """Asking imports an engine."""

    asked = 0

    def ask() -> AdapterKeys:
        nonlocal asked
        asked += 1
        return yes()

    accepted(engines(), ask=ask)
    accepted(engines({"enable_lora": True}, pause_mode="in_place"), ask=ask)
    accepted(engines({"enable_lora": True, "disable_radix_cache": True}), ask=ask)
    assert asked == 0
    accepted(engines({"enable_lora": True}), ask=ask)
    assert asked > 0


def test_a_defect_is_not_a_refusal() -> None:
    def ask() -> AdapterKeys:
        raise ValueError("a mistake")

    with pytest.raises(ValidationError, match="a mistake"):
        judge(engines({"enable_lora": True}), ask=ask)


def test_what_would_change_a_decision_changes_it() -> None:
    """The values that decisions name, tried."""
    for options, mode, change in (
        ({}, "retract", {"options": {"disable_radix_cache": True}}),
        ({}, "in_place", {"pause_mode": "retract"}),
        ({"disable_radix_cache": False}, "retract", {"options": {"disable_radix_cache": True}}),
        ({"disable_radix_cache": True}, "retract", {"options": {}}),
    ):
        before: Any = engines(dict(options), pause_mode=mode)
        after = before | change
        first, second = accepted(before).decision, accepted(after).decision
        assert first.disable_radix_cache() is not second.disable_radix_cache()


def test_the_effective_options_of_each_group() -> None:
    settings: Any = engines({"enable_lora": True, "page_size": 16}, {"page_size": 64})
    config = accepted(settings, ask=yes)
    assert config.effective_options("models[0].groups[0].options") == {
        "enable_lora": True,
        "page_size": 64,
        "disable_radix_cache": False,
        "incremental_streaming_output": True,
    }
    assert config.effective_options()["page_size"] == 16
    with pytest.raises(KeyError):
        config.effective_options("models[9].groups[0].options")


def test_options_changed_afterwards_do_not_change_the_decision() -> None:
    config = accepted(engines(pause_mode="in_place"))
    config.options["disable_radix_cache"] = False
    assert config.effective_options()["disable_radix_cache"] is True


def test_a_refused_configuration_does_not_exist() -> None:
    with pytest.raises(ValidationError) as found:
        SGLangConfig(pause_mode="abort")
    [error] = found.value.errors()
    assert error["type"] == Rule.PAUSE_MODE.value
    assert "pause_mode" in error["msg"]


def test_the_first_group_that_breaks_a_rule_is_named() -> None:
    group = {"num_gpus": 1, "gpus_per_engine": 1}
    bad = group | {"worker_type": "decode"}
    models = [{"groups": [group, bad]}, {"update_weights": False, "groups": [bad]}]
    answer = refused({"pause_mode": "retract", "num_gpus": 3, "models": models})
    assert (answer.rule, answer.key) == (Rule.RETRACT_ROLES, "models[0].groups[1].worker_type")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"pause_mod": "retract"}, "pause_mod"),
        ({"num_gpus": "8"}, "num_gpus"),
        ({"num_gpus": True}, "num_gpus"),
        ({"models": {}}, "models"),
        ({"models": [{"groups": [{"gpus_per_engine": 1}]}]}, "models[0].groups[0].num_gpus"),
        ({"models": [{"groups": [{"num_gpus": 3, "gpus_per_engine": 2}]}]}, "models[0].groups[0]"),
        ({"models": [{"groups": [{"num_gpus": 0, "gpus_per_engine": 1}]}]}, "models[0].groups[0].num_gpus"),
        ({"options": []}, "options"),
        ([], "configuration"),
    ],
)
def test_what_has_another_shape_is_refused(settings: object, key: str) -> None:
    answer = refused(settings)
    assert (answer.rule, answer.key) == (Rule.SHAPE, key)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_every_time_is_bounded(seconds: float) -> None:
    assert refused(engines(request_timeout=seconds)).rule is Rule.TIMES


def test_importing_the_decision_imports_no_engine() -> None:
    """Nor numpy: a deployment's driver reads configurations."""
    code = (
        "import sys, reef_ref.config, reef_ref.slime, reef_ref.external;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'sglang', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
