"""The simulated engine: its answers are the model's, and it shows a stale prefix where one is reused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reef_ref import events
from reef_ref.engines.errors import CallRefused, CheckpointRejected, EngineLost, FlushRefused
from reef_ref.engines.interface import ALL_REGIONS, Generation, Limits, PauseMode, Region, Request
from reef_ref.engines.simulated import (
    SimulatedEngine,
    SimulatedSettings,
    Weights,
    expected_tokens,
    run_simulated,
    write_checkpoint,
)
from reef_ref.engines.simulated.scheduler import SchedulerSettings

PROMPT = tuple(range(100, 121))
OLD, NEW = Weights(1, "a:1"), Weights(2, "a:2")


def request(tokens: int = 6, prompt: tuple[int, ...] = PROMPT, **more: Any) -> Request:
    return Request(input_ids=prompt, max_new_tokens=tokens, **more)


def engine(listener: events.Listener | None = None, **scheduler: Any) -> SimulatedEngine:
    settings = SimulatedSettings(limits=Limits(flush_total_s=1.0), scheduler=SchedulerSettings(**scheduler))
    return SimulatedEngine(0, OLD, settings=settings, tell=events.Teller("engine:0", listener, clock=lambda: 0.0))


def test_answers_are_the_models_with_and_without_reuse() -> None:
    """Four at once, chunked, overlapped; then again from the cache."""

    async def main() -> None:
        one = engine(page_size=4, chunk=5, max_running=2)
        prompts = [(*PROMPT[:n], 7, 8, 9) for n in (3, 9, 18, 21)]
        first = await asyncio.gather(*(one.generate(request(prompt=p)) for p in prompts))
        again = await asyncio.gather(*(one.generate(request(prompt=p)) for p in prompts))
        for prompt, a, b in zip(prompts, first, again, strict=True):
            assert a.output_ids == b.output_ids == expected_tokens(prompt, [1] * 6)
            assert b.cached_tokens == (len(prompt) - 1) // 4 * 4

    run_simulated(main())


async def publish(one: SimulatedEngine, folder: Path, *, mode: PauseMode = PauseMode.RETRACT, flush: bool) -> None:
    await one.pause(mode)
    if flush:
        await one.flush()
    await one.update(write_checkpoint(folder / "new", NEW.seed), NEW.load_id)
    await one.continue_generation()


def judged(generation: Generation, prompt: tuple[int, ...]) -> tuple[bool, list[int]]:
    """Whether an answer is that of an engine that reuses nothing, and the seeds of the loads of its tokens."""
    seeds = [
        {OLD.load_id: OLD.seed, NEW.load_id: NEW.seed}[s.load_id]
        for s in generation.spans
        for _ in range(s.start, s.end)
    ]
    return generation.output_ids == expected_tokens(prompt, seeds), seeds


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.015, 0.025, 0.035, 0.045, 0.055, 0.075])
def test_a_publication_in_flight_keeps_every_request_and_mixes_nothing(tmp_path: Path, after_s: float) -> None:
    """Wherever the pause falls: before the first chunk, between chunks, in the middle of decoding."""

    async def main() -> None:
        one = engine(chunk=8, max_running=2)
        tasks = [asyncio.create_task(one.generate(request(8, PROMPT[: 15 + n]))) for n in range(4)]
        await asyncio.sleep(after_s)
        await publish(one, tmp_path, flush=True)
        for n, task in enumerate(tasks):
            fresh, seeds = judged(await task, PROMPT[: 15 + n])
            assert fresh
            assert seeds == sorted(seeds)

    run_simulated(main())


def test_without_the_flush_the_answer_shows_the_stale_prefix(tmp_path: Path) -> None:
    """Retract alone invalidates nothing; the engine's own event says whose KV was reused."""

    async def main() -> None:
        heard: list[events.Line] = []
        one = engine(heard.append)
        await one.generate(request())
        await publish(one, tmp_path, flush=False)
        answer = await one.generate(request())
        assert answer.cached_tokens > 0
        assert not judged(answer, PROMPT)[0]
        hit = [line.event for line in heard if isinstance(line.event, events.StartOnHit)][-1]
        assert (hit.load_id, hit.made_by) == ("a:2", ("a:1",))

    run_simulated(main())


def test_in_place_goes_on_with_its_own_kv(tmp_path: Path) -> None:
    """The request mixes loads, which is accepted there; its tokens are not those of an engine that starts again."""

    async def main() -> None:
        one = engine(share_prefixes=False)
        task = asyncio.create_task(one.generate(request(8)))
        await asyncio.sleep(0.055)
        await publish(one, tmp_path, mode=PauseMode.IN_PLACE, flush=False)
        answer = await task
        assert answer.retractions == 0
        assert {span.load_id for span in answer.spans} == {"a:1", "a:2"}
        assert not judged(answer, PROMPT)[0]

    run_simulated(main())


def test_adapters_share_nothing(tmp_path: Path) -> None:
    """Same prompt, other adapter or none: other tokens, and no reuse."""

    async def main(folder: Path) -> None:
        one = engine()
        for name, seed in (("x", 5), ("y", 6)):
            await one.load_adapter(name, write_checkpoint(folder / name, seed))
        answers = [await one.generate(request(adapter=name)) for name in ("x", "y")]
        answers.append(await one.generate(request()))
        assert [a.cached_tokens for a in answers] == [0, 0, 0]
        assert [a.output_ids for a in answers] == [expected_tokens(PROMPT, [1] * 6, n) for n in (5, 6, 0)]
        assert (await one.generate(request(adapter="x"))).cached_tokens > 0

    run_simulated(main(tmp_path))


async def refused(call: Callable[[], Awaitable[object]], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        await call()
    return str(caught.value)


def test_a_flush_names_what_is_in_its_way() -> None:
    """Running, waiting, compiling: one at a time; and what waits under a retract pause is in nobody's way."""

    async def main() -> None:
        busy = engine()
        tasks = [asyncio.create_task(busy.generate(request(2000)))]
        await asyncio.sleep(0.05)
        assert "running" in await refused(busy.flush, FlushRefused)
        await busy.pause(PauseMode.RETRACT)
        assert (await busy.flush()).refusals == 0

        plain = engine(grammar_blocks_flush=True, grammar_steps=10**9)
        tasks.append(asyncio.create_task(plain.generate(request(json_schema="{}"))))
        await asyncio.sleep(0.05)
        await plain.pause(PauseMode.RETRACT)
        assert "compiling" in await refused(plain.flush, FlushRefused)

        lifted = engine(grammar_steps=9)
        tasks.append(asyncio.create_task(lifted.generate(request(json_schema="{}"))))
        await asyncio.sleep(0.05)
        await lifted.pause(PauseMode.RETRACT)
        await lifted.flush()
        await lifted.continue_generation()
        assert (await tasks.pop()).output_ids == expected_tokens(PROMPT, [1] * 6)
        for task in tasks:
            task.cancel()

    run_simulated(main())


def test_memory_comes_and_goes_in_pairs(tmp_path: Path) -> None:
    """Out of order is refused and changes nothing."""

    async def main() -> None:
        one = engine()
        await one.generate(request())
        await refused(lambda: one.release(ALL_REGIONS), CallRefused)
        await one.pause(PauseMode.RETRACT)
        await refused(lambda: one.release(ALL_REGIONS), CallRefused)
        await one.flush()
        await one.release(ALL_REGIONS)
        await refused(lambda: one.update(tmp_path, "a:2"), CallRefused)
        await refused(one.continue_generation, CallRefused)
        assert (await one.resume(frozenset({Region.WEIGHTS}))).released == ALL_REGIONS - {Region.WEIGHTS}
        assert (await one.resume(frozenset({Region.WEIGHTS}))).changed == frozenset()
        await refused(lambda: one.update(tmp_path, "a:2"), CheckpointRejected)
        await one.resume(ALL_REGIONS)
        await one.continue_generation()
        assert (await one.generate(request())).cached_tokens == 0

    run_simulated(main())


def test_the_end_of_an_engine_is_told_to_every_request() -> None:
    """Nothing is lost in silence."""

    async def main() -> None:
        heard: list[events.Line] = []
        one = engine(heard.append)
        tasks = [asyncio.create_task(one.generate(request(50, request_id=f"r{n}"))) for n in range(6)]
        await asyncio.sleep(0.05)
        one.die()
        assert all(isinstance(r, EngineLost) for r in await asyncio.gather(*tasks, return_exceptions=True))
        (death,) = [line.event for line in heard if isinstance(line.event, events.Die)]
        assert sorted(death.lost) == [f"r{n}" for n in range(6)]

    run_simulated(main())


def test_the_tree_forgets_the_least_used_first() -> None:
    """A bound on the cache, and prefixes that part inside an edge."""

    async def main() -> None:
        one = engine(page_size=2, cache_capacity=40)
        for n in range(12):
            await one.generate(request(4, PROMPT[:6] + (n,) * 8))
            assert len(one.scheduler.tree) <= 40
        assert (await one.generate(request(4, PROMPT[:6] + (11,) * 8))).cached_tokens == 12

    run_simulated(main())
