"""What the environment may say, and what happens when it says something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from reef_ref.sglang import plugin
from reef_ref.sglang.settings import IdleCheck, OnStale, ProvenanceMode, Settings


def test_nothing_said_means_off() -> None:
    """An installed plugin that nobody asked for does nothing."""
    settings = Settings.from_environment({})
    assert settings == Settings()
    assert not settings.active


def test_everything_said(tmp_path: Path) -> None:
    """Each variable arrives where it belongs."""
    settings = Settings.from_environment(
        {
            "REEF_REF_PROVENANCE": "enforce",
            "REEF_REF_ON_STALE": "refuse",
            "REEF_REF_IDLE": "retract",
            "REEF_REF_EVENTS": str(tmp_path / "events"),
        }
    )
    assert settings == Settings(ProvenanceMode.ENFORCE, OnStale.REFUSE, IdleCheck.RETRACT, str(tmp_path / "events"))
    assert settings.active


@pytest.mark.parametrize("name", ["REEF_REF_PROVENANCE", "REEF_REF_ON_STALE", "REEF_REF_IDLE"])
def test_a_misspelt_value_names_the_variable_and_what_would_be_right(name: str) -> None:
    """One line: what, where, what would be right."""
    with pytest.raises(ValueError, match=rf"^{name}='enforced': must be one of \w+, \w+"):
        Settings.from_environment({name: "enforced"})


def test_events_in_a_directory_that_does_not_exist_are_refused(tmp_path: Path) -> None:
    """Better at start than by silence later."""
    with pytest.raises(ValueError, match="the directory does not exist"):
        Settings.from_environment({"REEF_REF_EVENTS": str(tmp_path / "missing" / "events")})


def test_a_wrong_value_stops_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang swallows a plugin's exceptions, which would leave an engine unguarded; it cannot swallow an exit."""
    monkeypatch.setattr("reef_ref.sglang.cpu_memory.register", lambda: None)
    monkeypatch.setenv("REEF_REF_PROVENANCE", "enforced")
    with pytest.raises(SystemExit, match="reef-ref: REEF_REF_PROVENANCE='enforced'"):
        plugin.register()


def test_off_registers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No hook, not even one that passes through."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    registered: list[str] = []
    monkeypatch.setattr(HookRegistry, "register", lambda target, *_, **__: registered.append(target))
    monkeypatch.setattr("reef_ref.sglang.cpu_memory.register", lambda: None)
    for name in ("REEF_REF_PROVENANCE", "REEF_REF_ON_STALE", "REEF_REF_IDLE", "REEF_REF_EVENTS"):
        monkeypatch.delenv(name, raising=False)
    plugin.register()
    assert registered == []
