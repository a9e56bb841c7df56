"""`enforce` that recomputes, on a real engine with the memory saver, under the overlap scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from conftest import Running, prompt

PREFIX = prompt(0, 300)
PROMPTS = [prompt(11 * index + 1, 300) for index in range(4)]


@pytest.fixture(scope="module")
def recomputing(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Stale matches count as misses."""
    events = tmp_path_factory.mktemp("recompute") / "events"
    environment = {"REEF_REF_PROVENANCE": "enforce", "REEF_REF_IDLE": "retract"}
    with start(events, environment, chunked_prefill_size=256, enable_memory_saver=True) as running:
        yield running


async def _retract_without_flush(engine: Running) -> None:
    await engine.pause("retract")
    success, message = await engine.update("two")
    assert success, message
    await engine.resume()


def _truth(engine: Running, tokens: list[int]) -> list[int]:
    """What checkpoint `two` says on an empty cache."""
    engine.clean("two")
    return engine.generate(tokens)[0]


def test_every_hook_of_recompute_was_verified(recomputing: Running) -> None:
    """Otherwise the engine would not share at all, and the tests below would show nothing."""
    assert recomputing.state()["able_to_share"], recomputing.state()["problems"]


def test_in_place_without_flush_is_recomputed(recomputing: Running) -> None:
    """The tokens are those of a clean engine, each time, until the flush; then sharing goes on."""
    engine = recomputing
    truth = _truth(engine, PREFIX)
    engine.clean("one")
    engine.generate(PREFIX)
    with engine.counting() as grown:
        engine.publish("in_place", "two", flush=False)
        for _ in range(2):
            tokens, said = engine.generate(PREFIX)
            assert (tokens, said["cached_tokens"]) == (truth, 0)
    assert grown["recomputed"] == 2
    assert grown["stale_prefixes"] == 0
    assert engine.run(engine.flush())
    assert [engine.generate(PREFIX)[1]["cached_tokens"] for _ in range(2)] == [0, 299]


def test_growing_prompts_never_take_up_older_kv(recomputing: Running) -> None:
    """Longer than a chunk: after each chunk the tree could hand back its old copy of the beginning."""
    engine = recomputing
    long = prompt(3, 900)
    truth = _truth(engine, long)
    engine.clean("one")
    engine.generate(long[:600])
    engine.publish("in_place", "two", flush=False)
    assert engine.generate(long)[0] == truth
    assert engine.generate(long)[0] == truth


def test_retracted_requests_are_prefilled_afresh(recomputing: Running) -> None:
    """All of them, and what they leave behind is not reused either."""
    engine = recomputing
    truth = _truth(engine, PROMPTS[0])
    engine.clean("one")
    with engine.counting() as grown:
        answers = engine.in_flight(PROMPTS, 200, after=20, do=lambda: _retract_without_flush(engine))
        assert engine.generate(PROMPTS[0])[0] == truth
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [200] * 4
    assert grown["recomputed"] >= 4
    assert grown["stale_prefixes"] == 0


def test_kv_that_was_kept_in_place_does_not_enter_the_tree(recomputing: Running) -> None:
    """Requests run on across an in-place publication; the same prompts afterwards are computed anew, and right."""
    engine = recomputing
    truth = _truth(engine, PROMPTS[0])
    engine.clean("one")

    async def publish() -> None:
        await engine.pause("in_place")
        success, message = await engine.update("two")
        assert success, message
        await engine.resume()

    with engine.counting() as grown:
        answers = engine.in_flight(PROMPTS, 200, after=20, do=publish)
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [200] * 4
    assert grown["kept_out_of_tree"] >= 4
    assert grown["stale_prefixes"] == grown["recomputed"] == 0, "a request's own KV is legal"
    assert engine.generate(PROMPTS[0])[0] == truth


def test_memory_is_released_and_comes_back_for_the_new_weights(recomputing: Running) -> None:
    """Pause, flush, release all, weights back, update, KV back: right tokens, nothing cached, nothing left mixed."""
    engine = recomputing
    truth = _truth(engine, PREFIX)
    engine.clean("one")
    engine.generate(PREFIX)
    scheduler = max(psutil.Process().children(recursive=True), key=lambda child: child.memory_info().rss)
    sizes: list[int] = []

    async def steps() -> None:
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqInput, ResumeMemoryOccupationReqInput

        manager = engine.engine.tokenizer_manager
        await engine.pause("retract")
        assert await engine.flush()
        sizes.append(scheduler.memory_info().rss)
        await manager.release_memory_occupation(ReleaseMemoryOccupationReqInput(), None)
        sizes.append(scheduler.memory_info().rss)
        await manager.resume_memory_occupation(ResumeMemoryOccupationReqInput(tags=["weights"]), None)
        success, message = await engine.update("two")
        assert success, message
        await manager.resume_memory_occupation(ResumeMemoryOccupationReqInput(tags=["kv_cache", "cuda_graph"]), None)
        await engine.resume()

    with engine.counting() as grown:
        engine.run(steps())
        assert sizes[0] - sizes[1] > 15 << 20, f"{sizes[0] - sizes[1]} bytes were given back"
        assert engine.generate(PREFIX)[0] == truth
        assert engine.generate(PREFIX)[1]["cached_tokens"] == 299
    assert grown["loads"] == 1
    assert grown["incomplete_loads"] == 1, "weights that came back empty are no load"
    assert grown["recomputed"] == 0
    assert not engine.state()["provenance"]["mixed"]
