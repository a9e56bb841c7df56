"""The sharing decision as implemented, held to the specification's table."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

import reef_ref.config
import spec.sharing
from spec.sharing import (
    GROUP_TROUBLES,
    TABLE,
    Accepted,
    Case,
    Engines,
    Flag,
    Keys,
    Lora,
    Memory,
    Pause,
    Refused,
    Role,
    Trouble,
    cases,
    decide,
)
from tests.conformance.configurations import outcome

NO_TROUBLE: frozenset[Trouble] = frozenset()
AT_MOST_ONE = [NO_TROUBLE, *(frozenset({trouble}) for trouble in Trouble)]


def report(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")


@pytest.mark.parametrize("pause", Pause)
def test_implementation_and_table_agree_on_every_case(pause: Pause, capsys: pytest.CaptureFixture[str]) -> None:
    """Every configuration that a case can describe, with nothing else wrong and with each other thing that can be."""
    compared = refused = 0
    for case in cases(AT_MOST_ONE, pauses=(pause,)):
        expected = decide(case)
        assert outcome(case) == expected, case
        compared += 1
        refused += isinstance(expected, Refused)
    report(capsys, f"sharing, {pause.name}: {compared:,} configurations compared, {refused:,} of them refused")
    assert compared == sum(1 for _ in cases(AT_MOST_ONE, pauses=(pause,))) > 0


def test_first_failure_wins_in_both(capsys: pytest.CaptureFixture[str]) -> None:
    """Every two things wrong at once: both name the same one first."""
    compared = 0
    plain = [case for case in cases() if _plain(case)]
    for pair in map(frozenset, combinations(Trouble, 2)):
        for case in plain:
            if case.engines is Engines.BARE and pair & GROUP_TROUBLES:
                continue
            both = replace(case, troubles=pair)
            assert outcome(both) == decide(both), both
            compared += 1
    report(capsys, f"sharing: {compared:,} configurations with two troubles compared")
    assert compared > len(Trouble) * (len(Trouble) - 1) // 2


def _plain(case: Case) -> bool:
    """Few of the cases that differ only in who shares: what is compared here is order."""
    return (
        (case.lora, case.group_lora, case.keys) == (Lora.OFF, Lora.UNSET, Keys.SCOPED)
        and case.memory is Memory.KEPT
        and case.role in (Role.REGULAR, Role.PREFILL, Role.FROZEN)
        and case.group_flag in (Flag.UNSET, Flag.FALSE)
    )


def test_the_table_is_total_and_every_row_matters() -> None:
    """Some row fits every case, and without any one row some case would be decided otherwise."""
    matters = set()
    for case in cases(AT_MOST_ONE):
        fitting = (row for row in TABLE if row.fits(case))
        row = next(fitting, None)
        assert row is not None, case
        if id(row) not in matters:
            other = next(fitting, None)
            if other is None or other.outcome != row.outcome:
                matters.add(id(row))
    assert [row for row in TABLE if id(row) not in matters] == []


def test_what_the_decision_is_for() -> None:
    """Whoever shares retracts; an opt-out is always kept; an unsafe choice is never corrected."""
    for case in cases(AT_MOST_ONE):
        decided = decide(case)
        if isinstance(decided, Refused):
            continue
        values = [value for value in (decided.everybody, decided.group) if value]
        assert all(value.disabled for value in values) or case.pause is Pause.RETRACT
        assert case.flag is not Flag.TRUE or decided.everybody.disabled
        assert case.flag is not Flag.FALSE or not decided.everybody.disabled
        assert Flag.OTHER not in (case.flag, case.group_flag) or decided.group is None
        if decided.group:
            assert case.group_flag is not Flag.TRUE or decided.group.disabled
            assert case.group_flag is not Flag.FALSE or not decided.group.disabled
            assert case.role not in (Role.PREFILL, Role.DECODE) or case.pause is Pause.IN_PLACE


def test_the_two_name_the_same_rules() -> None:
    """But for those that are about how a file is written."""
    ours = {rule.value for rule in reef_ref.config.Rule} - {"shape", "option-names"}
    assert ours == {rule.value for rule in spec.sharing.Rule}


def test_bare_engines_have_no_group() -> None:
    for case in cases(AT_MOST_ONE):
        decided = decide(case)
        if case.engines is Engines.BARE:
            assert not case.troubles & GROUP_TROUBLES
            assert isinstance(decided, Refused) or (isinstance(decided, Accepted) and decided.group is None)
