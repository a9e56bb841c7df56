"""`report` on a real engine: every stale prefix is found, and nothing that is legal alarms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Running, prompt

PREFIX = prompt(0, 300)
PROMPTS = [prompt(11 * index + 1, 300) for index in range(4)]


@pytest.fixture(scope="module")
def engine(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Sharing on, prefill in chunks of 256 tokens."""
    events = tmp_path_factory.mktemp("report") / "events"
    environment = {"REEF_REF_PROVENANCE": "report", "REEF_REF_IDLE": "retract"}
    with start(events, environment, chunked_prefill_size=256) as running:
        yield running


@pytest.fixture(autouse=True)
def _clean(engine: Running) -> None:
    engine.clean("one")


def test_every_hook_was_verified_and_the_exercise_left_no_trace(engine: Running) -> None:
    """The first event of the engine says so."""
    (started,) = engine.events("start")
    assert started["able_to_share"], started["problems"]
    assert len(started["verdicts"]) > 10
    assert set(started["provenance"]["counters"].values()) == {0}


def test_reuse_under_one_load_is_fresh(engine: Running) -> None:
    """Repeats, samples of one prompt, and prompts that grow, through chunks."""
    with engine.counting() as grown:
        long = prompt(3, 900)
        first, missed = engine.generate(long)
        again, hit = engine.generate(long)
        assert (missed["cached_tokens"], hit["cached_tokens"]) == (0, 899)
        assert first == again
        engine.generate([*long, *first, *prompt(5, 600)])
        engine.engine.generate(input_ids=PREFIX, sampling_params={"n": 3, "max_new_tokens": 4})
    assert grown["prefixes_checked"] >= 4
    assert grown["slots_checked"] >= 899 + 899
    assert grown["stale_prefixes"] == grown["stale_adoptions"] == 0


def test_after_a_flushed_publication_reuse_is_fresh_again(engine: Running) -> None:
    """And the tokens are those of the new weights alone."""
    with engine.counting() as grown:
        old, _ = engine.generate(PREFIX)
        engine.clean("two")
        new, missed = engine.generate(PREFIX)
        again, hit = engine.generate(PREFIX)
    assert old != new == again
    assert (missed["cached_tokens"], hit["cached_tokens"]) == (0, 299)
    assert grown["stale_prefixes"] == grown["stale_adoptions"] == 0
    assert grown["loads"] == 1


def test_a_repeat_after_an_unflushed_publication_is_named(engine: Running) -> None:
    """The request, its slots, the load that wrote them and the one that is served."""
    engine.generate(PREFIX)
    before = len(engine.events("stale_prefix"))
    with engine.counting() as grown:
        engine.publish("in_place", "two", flush=False)
        stale, hit = engine.generate(PREFIX)
    assert hit["cached_tokens"] == 299, "the control must in fact reuse"
    assert grown["stale_prefixes"] == 1
    assert grown["stale_slots"] == 299
    (event,) = engine.events("stale_prefix")[before:]
    assert event["request"] == hit["id"]
    assert event["reused"] == event["stale"] == 299
    assert len(event["slots"]) == 8
    label = int(hit["weight_version"].split(":")[1])
    assert [f"load engine:{label - 1} " in name for name in event["written_by"]] == [True]
    assert f"load engine:{label} " in event["serving"]
    engine.clean("two")
    assert engine.generate(PREFIX)[0] != stale, "the control must in fact go wrong"


def test_a_request_keeps_its_own_kv_across_an_in_place_publication(engine: Running) -> None:
    """Decoding and half-way through a chunked prefill: legal, no alarm. What they leave in the tree is not."""
    long = prompt(200, 6000)
    publication: list[tuple[bool, str]] = []

    async def publish() -> None:
        import asyncio

        sampling = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True}
        chunked = asyncio.ensure_future(engine.engine.async_generate(input_ids=long, sampling_params=sampling))
        await asyncio.sleep(0.1)
        await engine.pause("in_place")
        publication.append(await engine.update("two"))
        await engine.resume()
        await chunked

    with engine.counting() as grown:
        answers = engine.in_flight(PROMPTS, 200, after=20, do=publish)
    assert [success for success, _ in publication] == [True]
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [200] * 4
    spans = [[span["version"] for span in answer["meta_info"]["weight_versions"]] for answer in answers]
    assert {len(span) for span in spans} == {2}, "the publication must fall into the requests"
    assert grown["stale_prefixes"] == grown["stale_adoptions"] == 0
    with engine.counting() as grown:
        for tokens in PROMPTS:
            engine.generate(tokens, 2)
    assert grown["stale_prefixes"] == 4


def test_re_prefills_of_retracted_requests_are_seen(engine: Running) -> None:
    """`cached_tokens` stays at what the first prefill found, and hides every one of them."""

    async def publish() -> None:
        await engine.pause("retract")
        success, message = await engine.update("two")
        assert success, message
        await engine.resume()

    before = len(engine.events("stale_prefix"))
    with engine.counting() as grown:
        answers = engine.in_flight(PROMPTS, 200, after=20, do=publish)
    assert {answer["meta_info"]["cached_tokens"] for answer in answers} == {0}
    assert grown["stale_prefixes"] == 4
    events = engine.events("stale_prefix")[before:]
    assert sorted(event["request"] for event in events) == sorted(answer["meta_info"]["id"] for answer in answers)
    assert {event["retractions"] for event in events} == {1}
    assert min(event["stale"] for event in events) >= 300


def test_a_flush_before_the_update_leaves_nothing_to_find(engine: Running) -> None:
    """The same with the flush, which the queue of retracted requests does not block."""

    async def publish() -> None:
        await engine.pause("retract")
        assert await engine.flush()
        success, message = await engine.update("two")
        assert success, message
        await engine.resume()

    with engine.counting() as grown:
        answers = engine.in_flight(PROMPTS, 200, after=20, do=publish)
    assert [answer["meta_info"]["completion_tokens"] for answer in answers] == [200] * 4
    assert grown["stale_prefixes"] == grown["stale_adoptions"] == 0
    assert grown["flushes"] == 1


def test_a_missing_checkpoint_changes_nothing(engine: Running, tmp_path: Path) -> None:
    """The load stays, and so does the worth of what it computed."""
    tokens, _ = engine.generate(PREFIX)
    epoch = engine.state()["provenance"]["epoch"]
    with engine.counting() as grown:
        success, message = engine.run(engine.update(tmp_path / "missing"))
        assert not success
        assert "Failed to get weights iterator" in message
        again, hit = engine.generate(PREFIX)
    assert hit["cached_tokens"] == 299
    assert again == tokens
    assert grown["stale_prefixes"] == grown["loads"] == grown["incomplete_loads"] == 0
    assert engine.state()["provenance"]["epoch"] == epoch


def test_a_refused_flush_inside_the_update_is_a_load_all_the_same(engine: Running) -> None:
    """SGLang answers with failure, the weights are new, and a new request reuses old KV under the new label."""
    refusals: list[str] = []

    async def publish() -> None:
        await engine.pause("in_place")
        success, message = await engine.update("two", flush=True)
        assert not success
        refusals.append(message)
        await engine.resume()

    with engine.counting() as grown:
        engine.in_flight(PROMPTS[:2], 200, after=20, do=publish)
        _, hit = engine.generate(PROMPTS[0], 2)
    assert "not flushed" in refusals[0]
    assert hit["cached_tokens"] > 0
    assert grown["loads"] == 1
    assert grown["stale_prefixes"] == 1
