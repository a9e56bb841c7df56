"""What the scenarios judge with: checks that can fail, an honest verdict, a command line that says what is wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx", reason="needs the extra 'engine': httpx is not installed")
pytest.importorskip("psutil", reason="needs the extra 'engine': psutil is not installed")

from reef_ref.engines.interface import Generation, Request, Span
from reef_ref.scenarios.catalogue import CASES, NOT_RUN, SCENARIOS
from reef_ref.scenarios.configuration import FIRST, SECOND, EngineConfiguration, Fresh
from reef_ref.scenarios.prompts import conforms, prompt, small_schema
from reef_ref.scenarios.report import as_json, as_text, write_atomically
from reef_ref.scenarios.runner import Slots
from reef_ref.scenarios.scenario import Check, Outcome, Scenario
from reef_ref.scenarios.stage import Comparison
from reef_ref.scenarios.traffic import boundary, spans_in_order


def generation(*spans: tuple[str, int, int], tokens: int = 10) -> Generation:
    return Generation(
        request_id="r", output_ids=tuple(range(tokens)), text="", finish="length", prompt_tokens=1, cached_tokens=0,
        retractions=0, spans=tuple(Span(*span) for span in spans),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "in_order"),
    [
        ((("engine:1", 0, 4), ("engine:2", 4, 10)), True),
        ((("engine:2", 0, 10),), True),
        ((("engine:1", 0, 10),), True),
        ((("engine:2", 0, 4), ("engine:1", 4, 10)), False),
        ((("engine:1", 0, 4), ("engine:2", 5, 10)), False),
        ((("engine:1", 0, 4), ("engine:2", 4, 9)), False),
        ((("engine:1", 0, 4), ("engine:3", 4, 10)), False),
        ((("engine:1", 0, 2), ("engine:2", 2, 4), ("engine:1", 4, 10)), False),
        ((), False),
    ],
)
def test_labels_must_cover_the_output_in_order(spans: tuple[tuple[str, int, int], ...], in_order: bool) -> None:
    """Gaps, a third id, the wrong order and a missing end are all noticed."""
    assert spans_in_order(generation(*spans), FIRST, SECOND) is in_order


def test_boundary_counts_the_tokens_before_the_new_load() -> None:
    """Tokens of any other id count as before."""
    assert boundary(generation(("engine:1", 0, 4), ("engine:2", 4, 10)), SECOND) == 4
    assert boundary(generation(("engine:2", 0, 10)), SECOND) == 0


REQUEST = Request(input_ids=(1,), max_new_tokens=3)


@pytest.mark.parametrize(
    ("tokens", "answer", "equal", "holds"),
    [
        ((1, 2, 3), (1, 2, 3), True, True),
        ((1, 2, 3), (1, 2, 4), True, False),
        ((1, 2, 3), (1, 2), True, False),
        ((1, 2, 3), (1, 2, 4), False, True),
        ((1, 2, 3), (1, 2, 3), False, False),
        ((1, 2, 3), (1, 2), False, False),
        ((), (), True, False),
    ],
)
def test_comparison_with_a_fresh_engine(
    tokens: tuple[int, ...], answer: tuple[int, ...], equal: bool, holds: bool
) -> None:
    """Equal means all tokens, different means as many but not all, and nothing compared proves nothing."""
    assert Comparison("x", Fresh(checkpoint=1), REQUEST, tokens, equal).check(answer).holds is holds


def test_json_must_be_what_the_schema_asks_for() -> None:
    """Missing, extra, misnamed or mistyped fields, and text that is no JSON, do not conform."""
    schema = small_schema(2, "f")
    assert conforms('{"f0": true, "f1": false}', schema)
    for text in ('{"f0": true}', '{"f0": true, "f1": 1}', '{"f1": true, "f0": true}', '{"f0": true, "f1": f', "[]", ""):
        assert not conforms(text, schema)


def test_prompts_are_the_same_in_every_run_and_share_no_prefix() -> None:
    """Seeded, in range, and different from the first tokens on."""
    assert prompt(1, 50) == prompt(1, 50)
    starts = {prompt(seed, 3) for seed in range(200)}
    assert len(starts) == 200
    assert all(3 <= token < 512 for token in prompt(3, 1000))


async def nothing(_: Any) -> None:
    return


SCENARIO = Scenario(name="s", shows="something", run=nothing)


def outcome(*checks: Check, error: str | None = None) -> Outcome:
    return Outcome(scenario=SCENARIO, checks=checks, seconds=1.0, error=error)


GOOD, BAD = Check("a", 1, "1", holds=True), Check("b", 2, "1", holds=False)


def test_a_scenario_holds_only_if_something_was_seen_and_all_of_it_holds() -> None:
    """No checks, a failed check or an error each spoil the verdict."""
    assert outcome(GOOD).holds
    assert not outcome().holds
    assert not outcome(GOOD, BAD).holds
    assert not outcome(GOOD, error="EngineLost: gone").holds


def test_both_reports_say_the_same() -> None:
    """Text and JSON carry every check, the error and the verdict."""
    outcomes = [outcome(GOOD), outcome(BAD, error="EngineLost: gone")]
    text = as_text(outcomes, 2.0)
    assert "s: as it must be" in text
    assert "NO   b: 2  (required: 1)" in text
    assert "error  EngineLost: gone" in text
    assert "1 of 2 scenarios as they must be" in text
    document = json.loads(as_json(outcomes, 2.0))
    assert document["holds"] is False
    assert [scenario["holds"] for scenario in document["scenarios"]] == [True, False]
    assert document["scenarios"][1]["checks"][0] == {"label": "b", "seen": 2, "required": "1", "holds": False}


def test_results_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """The file is replaced in one step and no temporary file stays behind."""
    target = tmp_path / "results.json"
    write_atomically(target, "one")
    write_atomically(target, "two")
    assert target.read_text() == "two"
    assert list(tmp_path.iterdir()) == [target]


def test_slots_are_taken_all_at_once() -> None:
    """Never more engines than slots, and two that need both never block each other."""

    async def story() -> None:
        slots = Slots(2)
        running = most = 0

        async def use(count: int) -> None:
            nonlocal running, most
            async with slots.take(count):
                running += count
                most = max(most, running)
                await asyncio.sleep(0)
                running -= count

        await asyncio.wait_for(asyncio.gather(*(use(count) for count in (2, 1, 2, 1, 1, 2))), 5)
        assert most == 2

    asyncio.run(story())


def test_catalogue_is_consistent() -> None:
    """Names are unique, every case has a place, and none is both shown and excused."""
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    shown = {case for scenario in SCENARIOS for case in scenario.cases}
    assert shown.isdisjoint(NOT_RUN)
    assert set(CASES) == shown | set(NOT_RUN)
    with_live_form = {"C01", "C02", "C03", "C08", "C09", "C10", "C12", "C13", "C27", "C29", "C42"}
    assert with_live_form <= set(CASES)


def test_configuration_says_everything_on_the_command_line(tmp_path: Path) -> None:
    """Sharing, scheduler, ranks and adapters are flags; the plugin's settings are environment."""
    from reef_ref.scenarios.models import Models

    models = Models(tmp_path)
    for name in ("checkpoint-1", "adapter-A"):
        (tmp_path / name).mkdir()
    plain = EngineConfiguration().settings(models, tmp_path / "events")
    assert "--disable-radix-cache" not in plain.flags
    assert (plain.environment["REEF_REF_PROVENANCE"], plain.environment["REEF_REF_IDLE"]) == ("report", "retract")
    assert plain.environment["OMP_NUM_THREADS"] == "1"
    other = EngineConfiguration(sharing=False, overlap=False, ranks=2, adapters=("A",), idle=False, provenance="off")
    flags = other.settings(models, None).flags
    for flag in ("--disable-radix-cache", "--disable-overlap-schedule", "--enable-lora"):
        assert flag in flags
    assert flags[flags.index("--tp-size") + 1] == "2"
    assert other.settings(models, None).environment["REEF_REF_IDLE"] == "sglang"
    assert "REEF_REF_EVENTS" not in other.settings(models, None).environment


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reef_ref.scenarios", *arguments],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("run",), "give either names of scenarios or --all"),
        (("run", "in-flight", "--all"), "give either names of scenarios or --all"),
        (("run", "no-such"), "no scenario no-such; there are disjoint-default"),
        (("run", "in-flight", "--output", "nowhere/x.json"), "the folder nowhere does not exist"),
        (("run", "in-flight", "--format", "xml"), "'xml' is not one of"),
    ],
)
def test_bad_use_gets_one_line_and_exit_status_2(arguments: tuple[str, ...], reason: str) -> None:
    """What is wrong, where, what would be right; no traceback, nothing started."""
    pytest.importorskip("sglang", reason="needs the extra 'engine': SGLang is not installed")
    result = command(*arguments)
    assert result.returncode == 2
    assert reason in result.stderr
    assert "Traceback" not in result.stderr


def test_list_names_every_scenario_and_case() -> None:
    """What there is, with the sentence that says what it shows."""
    pytest.importorskip("sglang", reason="needs the extra 'engine': SGLang is not installed")
    result = command("list")
    assert result.returncode == 0
    for scenario in SCENARIOS:
        assert f"{scenario.name} " in result.stdout
    for case in CASES:
        assert f"\n{case} " in result.stdout
