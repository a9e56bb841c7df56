"""Mistakes built into the sharing decision, each noticed by the comparison with the specification's table.

Numbered as in the reports that taught them: ``M`` and ``H`` as in `mutants`. M25, a question about adapter keys that
fails open, is what `tests/config/test_lora_schema.py` is about, H2, names that are not brought to one spelling,
`tests/config/test_rules.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from reef_ref import config, options
from reef_ref.config import Rule, _Judgement
from spec.sharing import Trouble, cases, decide
from tests.conformance.configurations import outcome

Mutate = Callable[[pytest.MonkeyPatch], None]


def nothing(*_args: Any, **_more: Any) -> None:
    """A check that checks nothing."""


def retract_with_roles(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(config, "DISAGGREGATED", frozenset())


def in_place_shares(patch: pytest.MonkeyPatch) -> None:
    right = _Judgement._choose

    def choose(self: _Judgement, stated: Any) -> tuple[Rule, str, str]:
        rule, because, change = right(self, stated)
        return (Rule.RETRACT_SHARED if rule is Rule.IN_PLACE_UNSHARED else rule), because, change

    patch.setattr(_Judgement, "_choose", choose)


def adapters_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(config, "has_adapters", lambda _: False)


def groups_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Judgement, "_check_group", nothing)


def groups_checked_alone(patch: pytest.MonkeyPatch) -> None:
    """Without what all engines are given."""
    right = _Judgement._check_flag
    patch.setattr(
        _Judgement, "_check_flag", lambda self, _, stated, scope: right(self, _own(self, stated), stated, scope)
    )


def _own(judgement: _Judgement, stated: Any) -> dict[str, Any]:
    return {"disable_radix_cache": judgement._flag} | stated


def external_groups_unchecked(patch: pytest.MonkeyPatch) -> None:
    right = _Judgement._check_group

    def check(self: _Judgement, key: str, group: Any, *, owned: bool) -> None:
        if owned:
            right(self, key, group, owned=owned)

    patch.setattr(_Judgement, "_check_group", check)


def unsafe_corrected(patch: pytest.MonkeyPatch) -> None:
    """An explicit false that is not safe becomes true in silence."""
    right = config.judge

    def judge(settings: Any, **how: Any) -> Any:
        answer = right(settings, **how)
        if getattr(answer, "rule", None) is not Rule.SHARING_NEEDS_RETRACT:
            return answer
        stated = {name: value for name, value in settings["options"].items() if name != "disable_radix_cache"}
        return right(settings | {"options": stated}, **how)

    patch.setattr("tests.conformance.configurations.judge", judge)


def opt_out_dropped(patch: pytest.MonkeyPatch) -> None:
    right = config.judge

    def judge(settings: Any, **how: Any) -> Any:
        stated = {n: v for n, v in settings["options"].items() if (n, v) != ("disable_radix_cache", True)}
        return right(settings | {"options": stated}, **how)

    patch.setattr("tests.conformance.configurations.judge", judge)


def without(danger: options.Danger) -> Mutate:
    def mutate(patch: pytest.MonkeyPatch) -> None:
        left = tuple(setting for setting in options.UNSAFE_SETTINGS if setting.danger is not danger)
        patch.setattr(options, "UNSAFE_SETTINGS", left)

    return mutate


def not_as_shared(patch: pytest.MonkeyPatch) -> None:
    """Tiers are refused where nobody shares, too."""
    right = options.unsafe
    patch.setattr(config, "unsafe", lambda stated, *, retract, shares: right(stated, retract=retract, shares=True))


def deployment_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Judgement, "_check_deployment", nothing)


def frozen_models_judged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(config, "UPDATABLE", frozenset({"regular", "prefill", "decode", "encoder", "placeholder"}))


def numbers_first(patch: pytest.MonkeyPatch) -> None:
    """Another rule before its turn."""
    right = _Judgement.decision

    def decision(self: _Judgement) -> Any:
        self._check_numbers()
        return right(self)

    patch.setattr(_Judgement, "decision", decision)


MUTANTS: dict[str, Mutate] = {
    "M22 retract with roles": retract_with_roles,
    "M23 in place shares": in_place_shares,
    "M24 adapters forgotten": adapters_forgotten,
    "M26 groups unchecked": groups_unchecked,
    "M26 groups checked alone": groups_checked_alone,
    "H1 external groups unchecked": external_groups_unchecked,
    "H8 H26 deployment unchecked": deployment_unchecked,
    "unsafe choice corrected": unsafe_corrected,
    "opt-out dropped": opt_out_dropped,
    "tiers refused where nobody shares": not_as_shared,
    "engines judged that no publication reaches": frozen_models_judged,
    "numbers first": numbers_first,
} | {f"no rule {danger.value}": without(danger) for danger in options.Danger}

CASES = list(cases([frozenset(), *(frozenset({trouble}) for trouble in Trouble)]))
random.Random(0).shuffle(CASES)  # All of them, and what one mistake touches is not all at the end.


@pytest.mark.parametrize("name", MUTANTS)
def test_the_comparison_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(outcome(case) != decide(case) for case in CASES)
