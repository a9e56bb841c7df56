"""`enforce` that refuses, on a real engine without overlap: a clear error, and the engine serves on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Running, prompt

PREFIX = prompt(0, 300)
PROMPTS = [prompt(11 * index + 1, 300) for index in range(4)]


@pytest.fixture(scope="module")
def refusing(start: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Stale requests are answered with an error."""
    events = tmp_path_factory.mktemp("refuse") / "events"
    environment = {"REEF_REF_PROVENANCE": "enforce", "REEF_REF_ON_STALE": "refuse", "REEF_REF_IDLE": "retract"}
    with start(events, environment, chunked_prefill_size=256, disable_overlap_schedule=True) as running:
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


def _refusal(engine: Running, tokens: list[int]) -> str:
    from fastapi import HTTPException

    with pytest.raises(HTTPException) as refused:
        engine.generate(tokens)
    assert refused.value.status_code == 409
    return str(refused.value.detail)


def test_every_hook_of_refuse_was_verified(refusing: Running) -> None:
    """As above."""
    assert refusing.state()["able_to_share"], refusing.state()["problems"]


def test_in_place_without_flush_is_refused_with_a_clear_error(refusing: Running) -> None:
    """The error names how much, whose it was and what to do; a flush ends it."""
    engine = refusing
    truth = _truth(engine, PREFIX)
    engine.clean("one")
    engine.generate(PREFIX)
    engine.publish("in_place", "two", flush=False)
    message = _refusal(engine, PREFIX)
    assert message.startswith("stale prefix refused: 299 of 299 reused KV slots were computed by load engine:")
    assert message.endswith("flush the cache after a publication")
    assert engine.generate(prompt(77, 300))[1]["completion_tokens"] == 12, "others are served"
    assert engine.run(engine.flush())
    assert engine.generate(PREFIX)[0] == truth


def test_a_request_of_many_chunks_is_refused_as_a_whole(refusing: Running) -> None:
    """It is cut off after the chunk that would have used the prefix, and gives everything back."""
    engine = refusing
    engine.clean("one")
    engine.generate(PREFIX)
    engine.publish("in_place", "two", flush=False)
    with engine.counting() as grown:
        assert "stale prefix refused" in _refusal(engine, [*PREFIX, *prompt(9, 2000)])
    assert grown["refused"] == 1
    assert engine.run(engine.flush()), "a refused request must hold nothing"
    assert engine.generate(PREFIX)[1]["cached_tokens"] == 0


def test_retracted_requests_are_refused_and_the_engine_serves_on(refusing: Running) -> None:
    """Each of them, with its own prefix."""
    engine = refusing
    truth = _truth(engine, PROMPTS[0])
    engine.clean("one")
    with engine.counting() as grown:
        answers = engine.in_flight(PROMPTS, 200, after=20, do=lambda: _retract_without_flush(engine))
    said = [getattr(answer, "detail", None) or answer["meta_info"]["finish_reason"]["message"] for answer in answers]
    assert all("stale prefix refused" in message for message in said), said
    assert grown["refused"] == 4
    assert engine.run(engine.flush())
    assert engine.generate(PROMPTS[0])[0] == truth


def test_a_refused_request_was_given_no_token_after_the_publication(refusing: Running) -> None:
    """What it said before the pause stands, and is what the old weights say; nothing is added."""
    engine = refusing
    engine.clean("one")
    expected, _ = engine.generate(PROMPTS[0], 400)
    engine.clean("one")
    (answer,) = engine.in_flight(PROMPTS[:1], 400, after=20, do=lambda: _retract_without_flush(engine))
    assert engine.events("stale_prefix")[-1]["action"] == "refused"
    said = answer["output_ids"]
    assert 20 <= len(said) < 400
    assert said == expected[: len(said)]
