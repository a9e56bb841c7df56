"""Two ranks and adapters, on an SGLang whose cache keys were altered to forget the adapter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Running, prompt

from reef_ref.testing.altered import FORGETFUL, altered

PREFIX = prompt(0, 300)


@pytest.fixture(scope="module")
def engine(
    start: Callable[..., Any], models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Tensor parallel 2 with two adapters."""
    root = tmp_path_factory.mktemp("ranks")
    environment = {"REEF_REF_PROVENANCE": "report", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    environment |= altered(root / "altered", "sglang.srt.managers.schedule_batch", FORGETFUL)
    adapters = [f"{name}={models[name]}" for name in ("A", "B")]
    options = {"tp_size": 2, "enable_lora": True, "lora_backend": "torch_native", "lora_paths": adapters}
    with start(root / "events", environment, **options) as running:
        yield running


def test_both_ranks_verified_their_hooks(engine: Running) -> None:
    """Each scheduler exercises its own."""
    started = engine.events("start")
    assert sorted(event["rank"] for event in started) == [0, 1]
    assert [event["problems"] for event in started] == [[], []]


def test_another_adapters_prefix_is_found_on_both_ranks(engine: Running) -> None:
    """Reuse under one adapter is fresh; the same KV under another adapter, or none, is foreign."""
    for adapter in ("A", "A"):
        engine.generate(PREFIX, 2, lora_path=adapter)
    assert engine.events("stale_prefix") == []
    _, hit = engine.generate(PREFIX, 2, lora_path="B")
    assert hit["cached_tokens"] == 299, "the control must in fact reuse"
    engine.generate(PREFIX, 2)
    found = engine.events("stale_prefix")
    assert sorted((event["rank"], event["foreign_adapter"]) for event in found) == [(0, 299)] * 2 + [(1, 299)] * 2
    assert engine.counters()["foreign_adapter_slots"] == 2 * 299


def test_a_publication_is_seen_by_both_ranks(engine: Running) -> None:
    """Unflushed: both alarm; flushed: neither does."""
    engine.clean("one")
    engine.generate(PREFIX, 2, lora_path="A")
    before = len(engine.events("stale_prefix"))
    engine.publish("retract", "two", flush=False)
    engine.generate(PREFIX, 2, lora_path="A")
    found = engine.events("stale_prefix")[before:]
    assert sorted((event["rank"], event["stale"], event["foreign_adapter"]) for event in found) == [
        (0, 299, 0),
        (1, 299, 0),
    ]
    engine.clean("two")
    engine.generate(PREFIX, 2, lora_path="A")
    engine.generate(PREFIX, 2, lora_path="A")
    assert len(engine.events("stale_prefix")) == before + 2
    loads = engine.events("load")
    assert {event["rank"] for event in loads} == {0, 1}
    assert len({event["load_id"] for event in loads}) * 2 == len(loads)
