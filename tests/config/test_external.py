"""Engines that somebody else runs: reported settings against configured ones."""

from __future__ import annotations

from typing import Any

import pytest

from reef_ref.config import Refusal, Rule, SGLangConfig, judge
from reef_ref.external import Comparison, Reported, compare
from reef_ref.lora_schema import AdapterKeys
from reef_ref.options import UNSAFE_SETTINGS, Applies, UnsafeSetting

SHARED = {"disable_radix_cache": False, "enable_memory_saver": False, "incremental_streaming_output": True}


def ours(**settings: Any) -> SGLangConfig:
    external = {"pause_mode": "retract", "external_engines": ["http://engine"]}
    answer = judge(external | settings, ask=lambda: AdapterKeys(True, "said so"))
    assert isinstance(answer, SGLangConfig), answer
    return answer


def answer(config: SGLangConfig, settings: dict[str, object]) -> Refusal:
    found = compare(config, Reported("http://engine", settings))
    assert found is not None
    assert found.key.startswith("http://engine: ")
    return found


def test_equal_settings_pass() -> None:
    assert compare(ours(), Reported("http://engine", SHARED)) is None


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("value", ["other", None, 0, 1, "absent", "false"])
def test_each_compared_setting_must_be_reported_and_equal(name: str, value: object) -> None:
    theirs: dict[str, object] = dict(SHARED)
    if value == "absent":
        del theirs[name]
    else:
        theirs[name] = not SHARED[name] if value == "other" else value
    refusal = answer(ours(), theirs)
    assert refusal.rule is Comparison.REPORTED
    assert name in refusal.key


def test_options_taken_from_a_report_are_not_compared_with_it() -> None:
    """They agree whatever the engine says; for all engines, and for a group."""
    reported = Reported("http://engine", {"disable_radix_cache": True})
    config = ours(**reported.as_options())
    for report in (reported, Reported("http://engine", SHARED)):
        found = compare(config, report)
        assert found is not None
        assert found.rule is Comparison.OWN_STATEMENT
    group = {"num_gpus": 1, "gpus_per_engine": 1} | reported.as_options()
    config = ours(models=[{"groups": [group]}])
    found = compare(config, reported, "models[0].groups[0].options")
    assert found is not None
    assert found.rule is Comparison.OWN_STATEMENT


def test_a_report_is_as_it_was() -> None:
    """Changing what it was made of changes neither the report nor options made of it."""
    settings: dict[str, object] = dict(SHARED)
    reported = Reported("http://engine", settings)
    settings["disable_radix_cache"] = True
    assert reported.settings["disable_radix_cache"] is False


def test_adapters_that_nobody_configured_are_refused() -> None:
    assert "enable_lora" in answer(ours(), SHARED | {"lora_paths": ["a=/a"]}).key
    assert compare(ours(options={"enable_lora": True}), Reported("e", SHARED | {"enable_lora": True})) is None


@pytest.mark.parametrize("setting", UNSAFE_SETTINGS, ids=lambda setting: setting.name)
def test_reported_settings_are_judged_too(setting: UnsafeSetting) -> None:
    """Nobody stated them here, and yet they hold there."""
    value = {"bool": True, "int": 2, "NoneType": "8"}[type(setting.harmless).__name__]
    assert answer(ours(), SHARED | {setting.name: value}).rule.value == setting.danger.value
    assert compare(ours(), Reported("e", SHARED | {setting.name: setting.harmless})) is None
    unshared = SHARED | {"disable_radix_cache": True, setting.name: value}
    found = compare(ours(options={"disable_radix_cache": True}), Reported("e", unshared))
    assert (found is None) is (setting.applies is Applies.SHARING)


def test_reported_roles_are_judged_too() -> None:
    assert answer(ours(), SHARED | {"disaggregation_mode": "decode"}).rule is Rule.RETRACT_ROLES
    in_place = ours(pause_mode="in_place")
    unshared = SHARED | {"disable_radix_cache": True}
    assert compare(in_place, Reported("e", unshared | {"disaggregation_mode": "null"})) is None
    assert answer(in_place, unshared | {"disaggregation_mode": "decode"}).rule is Rule.ROLE_ONCE


def test_groups_of_external_engines_are_judged() -> None:
    """Their GPUs are not counted; what they share is."""
    group = {"num_gpus": 4, "gpus_per_engine": 4, "options": {"disable-radix-cache": False}}
    refusal = judge({"external_engines": ["http://engine"], "models": [{"groups": [group]}]})
    assert isinstance(refusal, Refusal)
    assert refusal.rule is Rule.SHARING_NEEDS_RETRACT
