"""The doctor's verdict on the installed SGLang, and on ones that were altered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reef_ref.sglang import doctor
from reef_ref.testing.altered import altered


def test_the_installed_sglang_is_as_the_hooks_need_it() -> None:
    """Every target of every mode is exercised, and a prompt is in fact shared."""
    report = doctor.diagnose()
    assert report.problems == ()
    assert report.able_to_share
    assert report.sglang == "0.5.23"
    assert report.reused_tokens == report.prompt_tokens - 1
    assert {check.problem for check in report.checks} == {None}
    exercised = {check.target.rpartition(".")[2] for check in report.checks}
    assert exercised >= {
        "is_fully_idle",
        "pause_generation",
        "continue_generation",
        "prepare_for_extend",
        "prepare_for_decode",
        "match_kv_cache",
        "checkpoint_kv_cache",
        "release_kv_cache",
        "flush_cache",
        "record_weight_version_change",
        "update_weights_from_disk",
        "update_weights_from_ipc",
        "update_weights_from_tensor",
        "update_weights_from_distributed",
        "release_memory_occupation",
        "resume_memory_occupation",
    }
    assert report.lines()[-1] == "prefixes may be shared"


@pytest.mark.parametrize(
    ("module", "code", "target", "what"),
    [
        (
            "reef_ref.sglang.exercise",
            "COMMON = 'sglang.srt.mem_cache.elsewhere'",
            "sglang.srt.mem_cache.elsewhere.checkpoint_kv_cache",
            "missing in this SGLang",
        ),
        (
            "sglang.srt.mem_cache.common",
            "def checkpoint_kv_cache(req, tree_cache): req.prefix_len = req.extend_end",
            "checkpoint_kv_cache",
            "was not seen",
        ),
        (
            "sglang.srt.managers.scheduler",
            "_own = Scheduler.is_fully_idle\n"
            "def is_fully_idle(self, **options):\n"
            "    chunked, self.chunked_req = self.chunked_req, None\n"
            "    try:\n"
            "        return _own(self, **options)\n"
            "    finally:\n"
            "        self.chunked_req = chunked\n"
            "Scheduler.is_fully_idle = is_fully_idle\n",
            "is_fully_idle",
            "KV held through chunked_req does not count as work",
        ),
    ],
    ids=["renamed", "a checkpoint that keeps nothing", "an idle check that overlooks a chunked request"],
)
def test_an_altered_sglang_is_refused_and_shares_nothing(
    tmp_path: Path, module: str, code: str, target: str, what: str
) -> None:
    """The verdict names the target and the deviation; the engine serves, without sharing."""
    report = doctor.diagnose(environment=dict(os.environ) | altered(tmp_path / "altered", module, code))
    assert not report.able_to_share
    assert any(target in problem and what in problem for problem in report.problems), report.problems
    assert report.reused_tokens == 0, "sharing must be off"
    assert report.lines()[-1] == "prefixes must not be shared; sharing is off"


def test_an_engine_that_cannot_even_be_asked_is_not_started(tmp_path: Path) -> None:
    """Without a way to switch sharing off, no engine is better than an unguarded one."""
    code = "SCHEDULER = 'sglang.srt.managers.elsewhere.Scheduler'"
    environment = dict(os.environ) | altered(tmp_path / "altered", "reef_ref.sglang.exercise", code)
    report = doctor.diagnose(environment=environment)
    assert not report.able_to_share
    assert report.reused_tokens is None
    assert "no engine is started" in report.problems[0]


def test_an_engine_that_does_not_answer_is_ended(tmp_path: Path) -> None:
    """The bound holds, and nothing is left running."""
    import psutil

    code = "import time; time.sleep(600)"
    environment = dict(os.environ) | altered(tmp_path / "altered", "reef_ref.testing.tiny_model", code)
    report = doctor.diagnose(timeout_s=5, environment=environment)
    assert report.problems == ("the engine did not answer within 5 s",)
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert [child for child in living if "--probe" in child.cmdline()] == []


def test_the_command_line_refuses_a_bound_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong arguments end with 2."""
    with pytest.raises(SystemExit) as ended:
        doctor.main(["--timeout", "0"])
    assert ended.value.code == 2
    assert "must be more than 0" in capsys.readouterr().err
