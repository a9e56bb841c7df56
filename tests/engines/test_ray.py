"""What of engines as Ray actors needs neither Ray nor an engine."""

from __future__ import annotations

import asyncio
import sys

import pytest

from reef_ref.engines.errors import EngineNotSupported
from reef_ref.engines.ray import ActorSettings, RayLauncher, alone


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    launcher = RayLauncher(lambda _: ActorSettings(arguments={}))
    for call in (launcher.start, launcher.find, launcher.end):
        with pytest.raises(EngineNotSupported, match=r"install reef-ref\[engine,ray\]"):
            asyncio.run(call(0))


def test_a_cluster_of_this_machine_has_a_token_of_its_own() -> None:
    assert alone()["RAY_AUTH_TOKEN"] != alone()["RAY_AUTH_TOKEN"]
