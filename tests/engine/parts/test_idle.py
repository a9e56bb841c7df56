"""The relaxed idle check, on a stand-in that records what SGLang's own check was asked and could see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reef_ref.sglang.idle import IdleHooks
from reef_ref.sglang.pauses import PauseHooks


class _Scheduler:
    """Answers the idle check as SGLang does, and remembers each call."""

    def __init__(self) -> None:
        self.grammar_manager = SimpleNamespace(grammar_queue=["compiling"])
        self.asked: list[tuple[bool, bool, list[str]]] = []
        self.fails = False

    def is_fully_idle(self, for_health_check: bool = False, ignore_waiting: bool = False) -> bool:
        self.asked.append((for_health_check, ignore_waiting, list(self.grammar_manager.grammar_queue)))
        if self.fails:
            raise RuntimeError("the check failed")
        return not self.grammar_manager.grammar_queue


def _ask(hooks: IdleHooks, scheduler: _Scheduler, **options: bool) -> Any:
    return hooks.is_fully_idle(lambda it, **given: it.is_fully_idle(**given), scheduler, **options)


class _Told(PauseHooks):
    """With what they told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        super().__init__(self.told.append, lambda: self.told.append("continued"))


def _paused(mode: str, *, fails: bool = False) -> tuple[IdleHooks, _Told, _Scheduler]:
    pauses, scheduler = _Told(), _Scheduler()

    def pause(_: object, __: object) -> None:
        if fails:
            raise RuntimeError("the pause failed")

    if fails:
        with pytest.raises(RuntimeError, match="the pause failed"):
            pauses.pause_generation(pause, scheduler, SimpleNamespace(mode=mode))
    else:
        pauses.pause_generation(pause, scheduler, SimpleNamespace(mode=mode))
    return IdleHooks(pauses), pauses, scheduler


def test_paused_in_retract_mode_requests_without_kv_are_ignored() -> None:
    """The queue is out of sight during the call and the very same object after it."""
    hooks, _, scheduler = _paused("retract")
    queue = scheduler.grammar_manager.grammar_queue
    assert _ask(hooks, scheduler)
    assert scheduler.asked == [(False, True, [])]
    assert scheduler.grammar_manager.grammar_queue is queue
    assert queue == ["compiling"]


def test_the_queue_comes_back_when_the_check_fails() -> None:
    """Otherwise every compiling request would be lost."""
    hooks, _, scheduler = _paused("retract")
    queue = scheduler.grammar_manager.grammar_queue
    scheduler.fails = True
    with pytest.raises(RuntimeError, match="the check failed"):
        _ask(hooks, scheduler)
    assert scheduler.grammar_manager.grammar_queue is queue


_QUESTIONS: list[dict[str, bool]] = [{}, {"ignore_waiting": True}, {"for_health_check": True}]
_STATES = ("in_place", "unpaused", "continued", "failed pause", "switched off")


@pytest.mark.parametrize(
    ("state", "options"),
    [*((state, options) for state in _STATES for options in _QUESTIONS), ("retract", {"for_health_check": True})],
)
def test_everything_else_is_sglangs_own_answer(state: str, options: dict[str, bool]) -> None:
    """Same arguments, same queue, same answer; under a retract pause this holds for the health check alone."""
    pauses, scheduler = _Told(), _Scheduler()
    hooks = IdleHooks(pauses)
    if state != "unpaused":
        mode = "in_place" if state == "in_place" else "retract"
        hooks, pauses, scheduler = _paused(mode, fails=state == "failed pause")
    if state == "continued":
        pauses.continue_generation(lambda *_: None, scheduler, SimpleNamespace())
    if state == "switched off":
        hooks.enabled = False
    assert _ask(hooks, scheduler, **options) is False
    expected = (options.get("for_health_check", False), options.get("ignore_waiting", False), ["compiling"])
    assert scheduler.asked == [expected]


def test_a_continue_that_fails_ends_the_relaxation_too() -> None:
    """When nobody knows whether the engine runs, the strict check is the safe one."""
    hooks, pauses, scheduler = _paused("retract")

    def broken(*_: object) -> None:
        raise RuntimeError("continue failed")

    with pytest.raises(RuntimeError, match="continue failed"):
        pauses.continue_generation(broken, scheduler, SimpleNamespace())
    assert _ask(hooks, scheduler) is False


def test_pauses_are_told_when_they_are_so() -> None:
    """A pause that failed is none, and what continues is told after it has."""
    _, pauses, scheduler = _paused("in_place", fails=True)
    assert (pauses.mode, pauses.told) == (None, [])
    _, pauses, scheduler = _paused("in_place")
    assert (pauses.mode, pauses.told) == ("in_place", ["in_place"])
    seen: list[list[str]] = []
    pauses.continue_generation(lambda *_: seen.append(list(pauses.told)), scheduler, SimpleNamespace())
    assert seen == [["in_place"]]
    assert (pauses.mode, pauses.told) == (None, ["in_place", "continued"])
