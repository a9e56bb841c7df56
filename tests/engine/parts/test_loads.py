"""Which updates are loads: driven through the hooks with stand-ins for SGLang's own part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from reef_ref.sglang.loads import Load, LoadHooks


class _Engine:
    """Calls the hooks as SGLang does and collects what they opened."""

    def __init__(self, *, keeps_weights: bool = False) -> None:
        self.label = "engine:1"
        self.opened: list[str | None] = []
        self.relabelled: list[str] = []
        self.released = 0
        self.hooks = LoadHooks(
            opened=self._opened,
            relabelled=self.relabelled.append,
            released=self._release,
            load_id=lambda: self.label,
            keeps_weights=lambda: keeps_weights,
        )

    def _opened(self, load: Load) -> None:
        self.opened.append(load.load_id)

    def _release(self) -> None:
        self.released += 1

    def record(self, version: str | None) -> None:
        def original(_: object, *, new_version: str | None) -> None:
            self.label = new_version or self.label

        self.hooks.record_weight_version_change(original, self, version)

    def update(
        self, kind: str, *, loads: bool = True, success: bool = True, message: str = "", version: str = ""
    ) -> Any:
        def original(_: object, __: object) -> Any:
            if loads:
                self.record(version or None)
            return SimpleNamespace(success=success, message=message)

        return self.hooks.hooks()[f"update_weights_from_{kind}"](original, None, None)

    def session(self, call: str, *, success: bool = True) -> None:
        answer = SimpleNamespace(success=success)
        self.hooks.hooks()[f"{call}_weight_update"](lambda *_: answer, None, None)

    def memory(self, call: str, tags: list[str] | None) -> None:
        self.hooks.hooks()[f"{call}_memory_occupation"](lambda *_: None, None, SimpleNamespace(tags=tags))


@pytest.mark.parametrize("kind", ["disk", "ipc"])
def test_a_complete_update_is_a_load(kind: str) -> None:
    """Its epoch bears the new load id."""
    engine = _Engine()
    engine.update(kind, version="engine:2")
    assert engine.opened == ["engine:2"]


@pytest.mark.parametrize("kind", ["disk", "ipc"])
def test_a_refused_flush_does_not_undo_the_load(kind: str) -> None:
    """SGLang answers with failure although the weights are the new ones."""
    engine = _Engine()
    engine.update(
        kind, version="engine:2", success=False, message="Weights were updated, but the cache was not flushed"
    )
    assert engine.opened == ["engine:2"]


def test_a_failed_update_is_no_load_and_not_the_old_one_either() -> None:
    """Bytes may be mixed: what they compute is told apart from both."""
    engine = _Engine()
    engine.update("disk", loads=False, success=False, message="Failed to update weights: x.\nRolling back")
    assert engine.opened == [None]


def test_an_update_refused_before_a_byte_was_written_changes_nothing() -> None:
    """A missing checkpoint leaves the old load in force, and its cache valid."""
    engine = _Engine()
    engine.update("disk", loads=False, success=False, message="Failed to get weights iterator: no such directory")
    engine.update("tensor", loads=False, success=False, message="update_weights_from_tensor must run between ...")
    assert engine.opened == []


@pytest.mark.parametrize("kind", ["tensor", "distributed"])
def test_a_session_is_a_load_only_as_a_whole(kind: str) -> None:
    """Every part changes bytes; the id advances at the end."""
    engine = _Engine()
    engine.session("begin")
    engine.update(kind, version="engine:2")
    engine.update(kind, version="engine:2")
    assert engine.opened == [None, None, None]
    engine.session("end")
    assert engine.opened == [None, None, None, "engine:2"]


def test_a_session_with_a_failed_part_is_no_load() -> None:
    """Even if its last part succeeds and it ends well."""
    engine = _Engine()
    engine.session("begin")
    engine.update("tensor", loads=False, success=False, message="shape mismatch")
    engine.update("tensor", version="engine:2")
    engine.session("end")
    assert engine.opened == [None] * 4
    engine.session("begin")
    engine.update("tensor", version="engine:3")
    engine.session("end")
    assert engine.opened[-1] == "engine:3", "the next session starts afresh"


def test_refused_session_calls_change_nothing() -> None:
    """Begin while open, end while closed."""
    engine = _Engine()
    engine.session("begin", success=False)
    engine.session("end", success=False)
    assert engine.opened == []


def test_a_new_label_alone_is_no_new_epoch() -> None:
    """`/update_weight_version` changes no byte."""
    engine = _Engine()
    engine.record("engine:9")
    assert (engine.opened, engine.relabelled) == ([], ["engine:9"])


@pytest.mark.parametrize(("tags", "released"), [(None, 1), ([], 1), (["kv_cache"], 1), (["weights"], 0)])
def test_released_kv_is_given_up(tags: list[str] | None, released: int) -> None:
    """No tags means all of them."""
    engine = _Engine()
    engine.memory("release", tags)
    assert engine.released == released


@pytest.mark.parametrize(
    ("tags", "keeps", "opened"), [(None, False, 1), (["weights"], False, 1), (["kv_cache"], False, 0), (None, True, 0)]
)
def test_weights_that_come_back_empty_are_no_load(tags: list[str] | None, keeps: bool, opened: int) -> None:
    """Unless a copy was kept."""
    engine = _Engine(keeps_weights=keeps)
    engine.memory("resume", tags)
    assert engine.opened == [None] * opened
