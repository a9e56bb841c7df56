"""A guard with one check less is noticed, each by the story that is named."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from reef_ref import adapter
from reef_ref.engines.simulated import run_simulated
from tests.guard import stories
from tests.guard.stories import Story

SOURCE = Path(adapter.__file__).read_text()
NEVER = "if False"
BEFORE_THE_PAUSE = "await self._guard._write(Published(Status.UPDATING_WEIGHTS, self._load_id))\n        "
AT_THE_PAUSE = "self._reached = Reached.PAUSING\n        await self._control().barrier()\n        "
S = stories
MUTANTS: dict[str, tuple[str, str, Story]] = {
    "no barrier": ("await self._control().barrier()", "pass", S.a_flush_that_is_refused_lets_nobody_in),
    "in place": (
        "pause_mode=PauseMode.RETRACT",
        "pause_mode=PauseMode.IN_PLACE",
        S.all_are_paused_in_retract_mode_and_flushed_before_the_block,
    ),
    "nothing durable": (
        "await self._guard._write(Published(Status.UPDATING_WEIGHTS, self._load_id))",
        "pass",
        S.a_killed_process_leaves_engines_fenced_and_says_so,
    ),
    "durable only after the barrier": (
        BEFORE_THE_PAUSE + AT_THE_PAUSE,
        AT_THE_PAUSE + BEFORE_THE_PAUSE,
        S.whoever_is_killed_in_the_barrier_has_said_that_engines_are_paused,
    ),
    "the same id again": ("self._last = self._last.next()", "", S.a_failed_publication_is_followed_by_another_id),
    "a session is left from before": (
        "await self._end_sessions()  #",
        "#",
        S.a_session_of_a_try_that_failed_is_ended_for_the_next,
    ),
    "an open session will do": (
        "if left_open := await self._end_sessions()",
        "if (left_open := await self._end_sessions()) and False",
        S.a_session_that_was_left_open_is_a_partial_update,
    ),
    "the plugin is not asked for the load": (
        "report is not None and not report.complete",
        "False",
        S.what_the_plugin_calls_no_complete_load_is_none,
    ),
    "the plugin is not asked what was computed": (
        "report is not None and report.mixed",
        "False",
        S.an_engine_that_the_block_continued_is_found_by_what_it_computed,
    ),
    "no second fence": (
        "in self._engines]\n        await self._fence_again()",
        "in self._engines]",
        S.what_a_continued_engine_left_in_its_cache_does_not_outlive_the_block,
    ),
    "no fence after a failure": (
        "with contextlib.suppress(CallsFailed):\n                await self._fence_again()",
        "pass",
        S.an_exception_of_the_block_goes_on_and_engines_stay_fenced,
    ),
    "continued before it is verified": (
        "checksum = await control.verify(",
        "control._verified = self._load_id; await control.continue_all(self._load_id); checksum = "
        "await control.verify(",
        S.nobody_continues_before_all_are_verified,
    ),
    "nothing verified": (
        "checksum = await control.verify(self._load_id, None)",
        "checksum, control._verified = None, self._load_id",
        S.an_engine_that_was_missed_reports_another_id,
    ),
    "the exception of the block is not looked at": (
        "if error is not None:",
        f"{NEVER}:",
        S.an_exception_of_the_block_goes_on_and_engines_stay_fenced,
    ),
    "the end is not recorded": (
        "await self._guard._write(Published(Status.COMPLETE, self._load_id, checksum))",
        "pass",
        S.publications_follow_each_other,
    ),
    "two at a time": ("if self._busy:", f"{NEVER}:", S.one_publication_at_a_time),
    "entered again": ("if self._entered:", f"{NEVER}:", S.a_block_is_entered_once),
    "a gap is hidden": ("self._tell.skip()", "pass", S.the_trace_says_unknown_after_a_failure_and_is_explained_again),
    "the plugin is not required": (
        "_lacks(report) if self._settings.require_plugin else ()",
        "()",
        S.an_engine_without_the_plugin_is_refused_where_it_is_required,
    ),
    "the plugin is not required of a check": (
        "        if self._settings.require_plugin:\n            yield",
        "        if False:\n            yield",
        S.an_engine_without_the_plugin_is_refused_where_it_is_required,
    ),
    "a plugin that failed will do": (
        "elif not report.able_to_share:",
        "elif False:",
        S.an_engine_without_the_plugin_is_refused_where_it_is_required,
    ),
    "an unfinished publication will do": (
        "if not record.finished:",
        f"{NEVER}:",
        S.a_killed_process_leaves_engines_fenced_and_says_so,
    ),
    "a check asks for no label": (
        "if {labels.load_id, labels.front_end_load_id} != {str(record.load_id)}:",
        f"{NEVER}:",
        S.a_check_finds_another_load_and_a_gone_engine,
    ),
    "a check asks for no stale prefix": (
        "if stale > (told if stale >= told else 0):",
        f"{NEVER}:",
        S.a_check_tells_every_stale_prefix_once,
    ),
    "what was counted before is told": (
        "self._guard._begin_counting(number, report)",
        "pass",
        S.a_check_tells_every_stale_prefix_once,
    ),
    "a counter never falls": ("(told if stale >= told else 0)", "0", S.a_check_tells_every_stale_prefix_once),
    **{
        f"not told: {told}": (f"self._tell(events.{told})", "pass", S.publications_follow_each_other)
        for told in (
            "Declare, self.load_id",
            "RecordTarget, self.load_id, self.load_id",
            'Send, number, self.load_id, f"published as {self.load_id}"',
            "AllSent",
            "Verify, self.load_id, checksum",
            "RecordComplete, self.load_id",
        )
    },
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_guard_without_a_check_is_noticed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the story that tells what the check is for."""
    old, new, story = MUTANTS[name]
    assert SOURCE.count(old) == 1, f"{old!r} is {SOURCE.count(old)} times in the guard"
    module = ModuleType("reef_ref.adapter_without_a_check")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(SOURCE.replace(old, new), f"<{name}>", "exec"), module.__dict__)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  Whatever the story stumbles over.
        run_simulated(story(module, tmp_path))  # type: ignore[arg-type]
    assert not isinstance(caught.value, SyntaxError | NameError | TypeError | AttributeError), caught.value
