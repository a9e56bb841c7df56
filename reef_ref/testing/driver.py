"""The contract of an engine, as one callable: `await check_driver(make_driver)`.

Whoever speaks to another kind of engine shows with it that a coordinator may rely on the answers. Every clause runs on
an engine of its own, and says what it looked at; a clause that needs what the engine does not have is skipped by name.

Source: sglang-semantics sections 2 to 10; `reef_ref.engines.interface`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from reef_ref.control import ChecksContent
from reef_ref.engines.errors import CallRefused, CheckpointRejected, EngineError, FlushRefused
from reef_ref.engines.interface import (
    ALL_REGIONS,
    CacheState,
    Engine,
    Generation,
    PauseMode,
    Region,
    Request,
    WeightState,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CLAUSES", "ContractBroken", "Driver", "DriverReport", "check_driver"]


class ContractBroken(AssertionError):  # noqa: N818  The name says what was found.
    """The engine does not do what the interface promises."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """An engine to be checked, freshly started on `checkpoints[0]`, with nobody else using it.

    `checkpoints` are two contents of one layout whose greedy answers to `prompt` differ; `prompt` is long enough for a
    prefix of it to be reused. `adapter` is a LoRA adapter's folder, if adapters can be loaded. `in_flight_tokens` is
    the length of an answer that has begun after a fifth of `quiet_s` seconds and ends within `quiet_s` after that: so
    an engine that is said to be paused and still answers is caught.
    """

    engine: Engine
    checkpoints: tuple[Path, Path]
    prompt: tuple[int, ...]
    adapter: Path | None = None
    shares_prefixes: bool = True
    has_memory: bool = True
    in_flight_tokens: int = 200
    tokens: int = 8
    quiet_s: float = 0.5
    bound_s: float = 120.0


MakeDriver = Callable[[], AbstractAsyncContextManager[Driver]]
Clause = Callable[[Driver], Awaitable[str | None]]


@dataclass(frozen=True)
class DriverReport:
    """The clauses that hold, and those that were skipped with the reason."""

    held: tuple[str, ...]
    skipped: Mapping[str, str]


def _need(truth: bool, message: str) -> None:
    if not truth:
        raise ContractBroken(message)


async def _refuses(call: Awaitable[object], kind: type[EngineError], what: str) -> EngineError:
    try:
        answer = await call
    except kind as error:
        return error
    except EngineError as error:
        message = f"{what}: expected {kind.__name__}, got {error!r}"
        raise ContractBroken(message) from error
    message = f"{what}: expected {kind.__name__}, got {answer!r}"
    raise ContractBroken(message)


async def _ask(driver: Driver, adapter: str | None = None) -> Generation:
    request = Request(input_ids=driver.prompt, max_new_tokens=driver.tokens, adapter=adapter)
    return await driver.engine.generate(request)


async def _in_flight(driver: Driver) -> asyncio.Task[Generation]:
    """Begin a long request, and give it the time to begin answering."""
    task = _begin(driver, driver.in_flight_tokens)
    await asyncio.sleep(driver.quiet_s / 5)
    _need(not task.done(), f"{driver.in_flight_tokens} tokens came within {driver.quiet_s / 5:g} s; ask for more")
    return task


def _begin(driver: Driver, tokens: int) -> asyncio.Task[Generation]:
    task = asyncio.ensure_future(driver.engine.generate(Request(input_ids=driver.prompt, max_new_tokens=tokens)))
    # A clause that fails before it waits for its request leaves one whose own failure says nothing new.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task


async def _quiet(driver: Driver, task: asyncio.Task[Generation], what: str) -> None:
    done, _ = await asyncio.wait({task}, timeout=driver.quiet_s)
    _need(not done, f"{what}: the request was answered although the engine is paused")


async def _publish(driver: Driver, checkpoint: Path, load_id: str) -> None:
    engine = driver.engine
    await engine.pause(PauseMode.RETRACT)
    await engine.flush()
    await engine.update(checkpoint, load_id)
    await engine.continue_generation()


async def answers_repeat(driver: Driver) -> str | None:
    """Greedy answers have the length asked for and repeat; a repeated prompt is reused where prefixes are shared."""
    first, second = await _ask(driver), await _ask(driver)
    _need(len(first.output_ids) == driver.tokens, f"asked for {driver.tokens} tokens, got {first.output_ids}")
    _need(first.output_ids == second.output_ids, f"{first.output_ids} became {second.output_ids}")
    _need(first.prompt_tokens == len(driver.prompt), f"the prompt has {len(driver.prompt)} tokens, not {first}")
    reused = second.cached_tokens > 0
    _need(reused == driver.shares_prefixes, f"{second.cached_tokens} tokens reused, sharing {driver.shares_prefixes}")
    return None


async def a_retract_pause_keeps_requests(driver: Driver) -> str | None:
    """Under a retract pause nothing is answered; afterwards everything is, as if nothing had been."""
    alone = await driver.engine.generate(Request(input_ids=driver.prompt, max_new_tokens=driver.in_flight_tokens))
    task = await _in_flight(driver)
    pause = await driver.engine.pause(PauseMode.RETRACT)
    _need(pause.mode is PauseMode.RETRACT, f"asked for retract, got {pause}")
    await driver.engine.pause(PauseMode.RETRACT)
    late = _begin(driver, driver.tokens)
    await _quiet(driver, task, "retract")
    await _quiet(driver, late, "retract, sent under the pause")
    flush = await driver.engine.flush()
    _need(flush.cache is CacheState.CLEARED, f"flushed, and the cache is {flush.cache}")
    await driver.engine.continue_generation()
    await driver.engine.continue_generation()
    answer = await task
    _need(answer.output_ids == alone.output_ids, "the retracted request's answer differs from the undisturbed one")
    _need((await late).output_ids == alone.output_ids[: driver.tokens], "the late request's answer differs")
    return None


async def an_in_place_pause_keeps_requests(driver: Driver) -> str | None:
    """Under an in-place pause nothing is answered; afterwards the request goes on where it was."""
    alone = await driver.engine.generate(Request(input_ids=driver.prompt, max_new_tokens=driver.in_flight_tokens))
    task = await _in_flight(driver)
    pause = await driver.engine.pause(PauseMode.IN_PLACE)
    _need(pause.mode is PauseMode.IN_PLACE, f"asked for in place, got {pause}")
    await _quiet(driver, task, "in place")
    await driver.engine.continue_generation()
    answer = await task
    _need(answer.output_ids == alone.output_ids, "the frozen request's answer differs from the undisturbed one")
    _need(answer.retractions == 0, f"in place, and {answer.retractions} retractions")
    return None


async def a_flush_empties_the_cache(driver: Driver) -> str | None:
    """After a flush nothing is reused; a flush in front of a running request is refused within its bound."""
    await _ask(driver)
    await driver.engine.pause(PauseMode.RETRACT)
    await driver.engine.flush()
    await driver.engine.continue_generation()
    _need((await _ask(driver)).cached_tokens == 0, "a prefix was reused after the flush")
    task = await _in_flight(driver)
    await driver.engine.pause(PauseMode.IN_PLACE)
    try:
        error = await _refuses(driver.engine.flush(), FlushRefused, "flush while a request keeps its KV")
        _need(bool(str(error)), "a refusal says why")
    finally:
        await driver.engine.continue_generation()
        await task
    return None


async def an_update_needs_a_pause_and_a_checkpoint(driver: Driver) -> str | None:
    """An update without a pause is not sent; one of nothing is rejected; both leave answers and labels alone."""
    before, label = await _ask(driver), await driver.engine.report()
    await _refuses(driver.engine.update(driver.checkpoints[1], "check:1"), CallRefused, "update without a pause")
    await driver.engine.pause(PauseMode.RETRACT)
    nowhere = driver.checkpoints[1] / "nothing-is-here"
    await _refuses(driver.engine.update(nowhere, "check:1"), CheckpointRejected, "update from nothing")
    await driver.engine.continue_generation()
    _need(await driver.engine.report() == label, "a refused update changed the label")
    _need((await _ask(driver)).output_ids == before.output_ids, "a refused update changed the answer")
    return None


async def a_publication_changes_everything(driver: Driver) -> str | None:
    """Pause, flush, update, continue: new label, new answers, nothing reused; and back again, the old answers."""
    old = await _ask(driver)
    await driver.engine.pause(PauseMode.RETRACT)
    await driver.engine.flush()
    update = await driver.engine.update(driver.checkpoints[1], "check:1")
    _need(update.weights is WeightState.CHANGED, f"updated, and the weights are {update.weights}")
    _need(update.load_id == "check:1", f"updated under check:1, the answer says {update.load_id}")
    report = await driver.engine.report()
    _need({report.load_id, report.front_end_load_id} == {"check:1"}, f"updated under check:1, reported {report}")
    await driver.engine.continue_generation()
    new = await _ask(driver)
    _need(new.output_ids != old.output_ids, "the answer did not change with the weights")
    _need(new.cached_tokens == 0, "a prefix of the old weights was reused")
    _need({span.load_id for span in new.spans} == {"check:1"}, f"tokens of check:1 are labelled {new.spans}")
    await _publish(driver, driver.checkpoints[0], "check:2")
    _need((await _ask(driver)).output_ids == old.output_ids, "the old weights give another answer now")
    return None


async def a_request_in_flight_over_a_publication_is_whole(driver: Driver) -> str | None:
    """It is answered in full; its spans cover it without gaps, and the new load comes last."""
    task = await _in_flight(driver)
    await _publish(driver, driver.checkpoints[1], "check:1")
    answer = await task
    _need(len(answer.output_ids) == driver.in_flight_tokens, f"{len(answer.output_ids)} tokens came back")
    edges = [edge for span in answer.spans for edge in (span.start, span.end)]
    inner = edges[1:-1]
    _need(inner[::2] == inner[1::2], f"spans leave gaps: {answer.spans}")
    _need([edges[0], edges[-1]] == [0, driver.in_flight_tokens], f"spans do not cover the answer: {answer.spans}")
    _need(answer.spans[0].load_id != "check:1", f"the first token is labelled {answer.spans[0]}")
    _need(answer.spans[-1].load_id == "check:1", f"the last token is labelled {answer.spans[-1]}")
    return None


async def memory_comes_and_goes_in_pairs(driver: Driver) -> str | None:
    """A release out of order is not sent; repeats are skipped; nothing runs and nothing is written without memory."""
    if not driver.has_memory:
        return "the engine does not give memory back"
    engine = driver.engine
    before = await _ask(driver)
    await _refuses(engine.release(ALL_REGIONS), CallRefused, "release without a pause")
    await engine.pause(PauseMode.RETRACT)
    await _refuses(engine.release(ALL_REGIONS), CallRefused, "release without a flush")
    await engine.flush()
    _need((await engine.release(ALL_REGIONS)).released == ALL_REGIONS, "not everything was released")
    _need((await engine.release(ALL_REGIONS)).changed == frozenset(), "a repeated release changed something")
    await _refuses(engine.continue_generation(), CallRefused, "continue without memory")
    await _refuses(engine.update(driver.checkpoints[1], "check:1"), CallRefused, "update without memory")
    weights = frozenset({Region.WEIGHTS})
    _need((await engine.resume(weights)).changed == weights, "the weights' memory did not come back")
    _need((await engine.resume(weights)).changed == frozenset(), "a repeated resume changed something")
    await engine.update(driver.checkpoints[0], "check:1")
    _need((await engine.resume(ALL_REGIONS)).released == frozenset(), "not everything came back")
    await engine.continue_generation()
    after = await _ask(driver)
    _need(after.output_ids == before.output_ids, "the same weights answer otherwise after memory came back")
    _need(after.cached_tokens == 0, "a prefix was reused from memory that was given away")
    return None


async def adapters_are_apart(driver: Driver) -> str | None:
    """An adapter shares nothing with the base model; its name is loaded once, and not unloaded under a pause."""
    if driver.adapter is None:
        return "no adapter was given"
    engine = driver.engine
    base = await _ask(driver)
    before = await engine.adapters()
    _need("check" in (await engine.load_adapter("check", driver.adapter)).loaded, "the adapter is not loaded")
    _need(await engine.adapters() == {**before, "check": driver.adapter}, "the adapter is not listed, with its folder")
    await _refuses(engine.load_adapter("check", driver.adapter), EngineError, "another load under a name that is held")
    adapted = await _ask(driver, adapter="check")
    _need(adapted.cached_tokens == 0, "the adapter reused KV of the base model")
    await engine.pause(PauseMode.RETRACT)
    await _refuses(engine.unload_adapter("check"), CallRefused, "unload under a pause")
    await engine.continue_generation()
    _need("check" not in (await engine.unload_adapter("check")).loaded, "the adapter is still loaded")
    _need(await engine.adapters() == before, "the adapter is still listed")
    await _refuses(_ask(driver, adapter="check"), EngineError, "a request for an adapter that is gone")
    _need((await _ask(driver)).output_ids == base.output_ids, "the base model's answer changed")
    return None


async def checksums_are_of_the_content(driver: Driver) -> str | None:
    """Equal contents have equal checksums under any label, different ones different checksums."""
    engine = driver.engine
    if not isinstance(engine, ChecksContent):
        return "the engine tells no checksum"
    sums = []
    for index, load_id in ((0, "check:1"), (1, "check:2"), (0, "check:3")):
        await _publish(driver, driver.checkpoints[index], load_id)
        sums.append(await engine.checksum())
    _need(sums[0] == sums[2] != sums[1], f"contents 0, 1, 0 have checksums {sums}")
    return None


async def it_says_whether_it_lives(driver: Driver) -> str | None:
    """Health is good, paused or not; shutting down twice is allowed."""
    _need((await driver.engine.health()).alive, "the engine says that it is not alive")
    await driver.engine.pause(PauseMode.RETRACT)
    _need((await driver.engine.health()).alive, "a paused engine says that it is not alive")
    await driver.engine.continue_generation()
    await driver.engine.shut_down()
    await driver.engine.shut_down()
    return None


CLAUSES: Mapping[str, Clause] = MappingProxyType(
    {
        clause.__name__: clause
        for clause in (
            answers_repeat,
            a_retract_pause_keeps_requests,
            an_in_place_pause_keeps_requests,
            a_flush_empties_the_cache,
            an_update_needs_a_pause_and_a_checkpoint,
            a_publication_changes_everything,
            a_request_in_flight_over_a_publication_is_whole,
            memory_comes_and_goes_in_pairs,
            adapters_are_apart,
            checksums_are_of_the_content,
            it_says_whether_it_lives,
        )
    }
)
"""The contract, clause by clause; each takes a driver and answers why it was skipped, or nothing."""


async def check_driver(make_driver: MakeDriver) -> DriverReport:
    """Hold an engine to the contract. `make_driver` answers a context manager that starts one engine and ends it.

    Raises `ContractBroken` with the clause and what was seen; also when a clause takes longer than the driver's bound.
    """
    held: list[str] = []
    skipped: dict[str, str] = {}
    for name, clause in CLAUSES.items():
        async with make_driver() as driver:
            try:
                async with asyncio.timeout(driver.bound_s):
                    reason = await clause(driver)
            except ContractBroken as error:
                message = f"{name}: {error}"
                raise ContractBroken(message) from error
            except (EngineError, TimeoutError) as error:
                message = f"{name}: {error!r}"
                raise ContractBroken(message) from error
        if reason is None:
            held.append(name)
        else:
            skipped[name] = reason
    return DriverReport(tuple(held), MappingProxyType(skipped))
