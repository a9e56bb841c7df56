"""What a guard is for, as stories: one for each thing that goes wrong, and the one in which nothing does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from reef_ref import events
from reef_ref.engines.interface import LoadReport, PauseMode, Request
from reef_ref.engines.simulated import CoordinatorDied, Fault, Weights
from reef_ref.monitor.validate import Verdict
from tests.guard.guarded import PROMPT, Deployment, GuardedEngine, refused

Story = Callable[[ModuleType, Path], Awaitable[None]]
LONG = Request(input_ids=PROMPT, max_new_tokens=400)


async def publications_follow_each_other(adapter: ModuleType, folder: Path) -> None:
    """Requests in flight are answered, nothing stale is reused, ids differ, and the protocol explains the trace."""
    d = Deployment(adapter, folder)
    ids = []
    for seed in (1, 2, 3):
        task = asyncio.ensure_future(d.engines[0].generate(LONG))
        await asyncio.sleep(0.2)
        ids.append(await d.publish(seed))
        answer = await task
        assert len(answer.output_ids) == LONG.max_new_tokens
        assert answer.spans[-1].load_id == ids[-1]
        await d.serves(seed, ids[-1])
    assert len(set(ids)) == 3
    assert all(report.stale == 0 for report in await d.guard.check_async())
    report = d.validated()
    assert (report.verdict, report.finding) == (Verdict.EXPLAINED, None)
    assert [event.name() for event in d.told if isinstance(event, events.Verify)] == ["verify"] * 3


async def all_are_paused_in_retract_mode_and_flushed_before_the_block(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    await d.ask(0, 77)
    async with d.guard.publication() as publication:
        for engine in d.engines:
            assert engine.scheduler.paused is PauseMode.RETRACT
            assert len(engine.scheduler.tree) == 0
        await d.send(publication, 1)
    assert {mode for engine in d.engines for mode in engine.modes} == {PauseMode.RETRACT}


async def a_flush_that_is_refused_lets_nobody_in(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    d.engines[1].scheduler.busy_with = lambda: "a prompt between two chunks"  # type: ignore[method-assign]
    entered = []

    async def publish() -> None:
        async with d.guard.publication():
            entered.append(True)

    words = ("flush failed", "simulated://1", "a prompt between two chunks", "no engine is continued")
    await refused(publish(), adapter.PublicationFailed, *words)
    assert not entered
    d.fenced()


async def an_engine_that_is_dead_lets_nobody_in(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    d.engines[1].die()
    await refused(d.publish(1), adapter.PublicationFailed, "pause failed", "simulated://1", "no engine is continued")
    d.fenced()


async def an_engine_dies_in_the_block(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1)
            d.engines[1].die()

    await refused(publish(), adapter.PublicationFailed, "simulated://1", "no engine is continued")
    d.fenced()


async def an_engine_that_was_missed_reports_another_id(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1, 0)

    await refused(publish(), adapter.PublicationFailed, "engine 1 reports boot", "no engine is continued")
    d.fenced()


async def a_front_end_that_kept_its_label_is_found(adapter: ModuleType, folder: Path) -> None:
    """As after an update of SGLang's whose flush was refused: only the scheduler has the new label."""
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1)
            d.engines[0].reports_instead = LoadReport(publication.load_id, "boot")

    await refused(publish(), adapter.PublicationFailed, "its front end boot", "no engine is continued")
    d.fenced()


async def contents_that_differ_are_found(adapter: ModuleType, folder: Path) -> None:
    """Though the labels are those of the load."""
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1, 0)
            await d.send(publication, 2, 1)

    await refused(publish(), adapter.PublicationFailed, "contents differ", "no engine is continued")
    d.fenced()


async def a_session_that_was_left_open_is_a_partial_update(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def publish(*, end: bool) -> str:
        async with d.guard.publication() as publication:
            for engine in d.engines:
                await engine.begin_update_session()
            await d.send(publication, 1)
            if end:
                for engine in d.engines:
                    await engine.end_update_session()
        load_id: str = publication.load_id
        return load_id

    await refused(publish(end=False), adapter.PublicationFailed, "session was not ended", "no engine is continued")
    d.fenced()
    await d.serves(1, await publish(end=True))


async def a_session_of_a_try_that_failed_is_ended_for_the_next(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def publish(*, fail: bool) -> str:
        async with d.guard.publication() as publication:
            for engine in d.engines:
                await engine.begin_update_session()
            if fail:
                raise LookupError("no bucket 3")
            await d.send(publication, 1)
            for engine in d.engines:
                await engine.end_update_session()
        load_id: str = publication.load_id
        return load_id

    await refused(publish(fail=True), LookupError, "no bucket 3", "no engine is continued")
    d.fenced()
    await d.serves(1, await publish(fail=False))


async def what_the_plugin_calls_no_complete_load_is_none(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1)
            d.engines[1].complete = False

    await refused(publish(), adapter.PublicationFailed, "engine 1", "no complete load", "no engine is continued")
    d.fenced()


async def an_exception_of_the_block_goes_on_and_engines_stay_fenced(adapter: ModuleType, folder: Path) -> None:
    """Also where it continued one of them, between two updates."""
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1, 0)
            await d.engines[0].continue_generation()
            raise LookupError("no bucket 3")

    await refused(publish(), LookupError, "no bucket 3", "no engine is continued")
    d.fenced()
    await d.serves(2, await d.publish(2))


async def an_engine_that_the_block_continued_is_found_by_what_it_computed(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.engines[0].continue_generation()
            await d.ask(0, 77)
            await d.engines[0].pause(PauseMode.RETRACT)
            await d.send(publication, 1)

    await refused(
        publish(), adapter.PublicationFailed, "engine 0 computed while weights changed", "no engine is continued"
    )
    d.fenced()


async def what_a_continued_engine_left_in_its_cache_does_not_outlive_the_block(
    adapter: ModuleType, folder: Path
) -> None:
    """Without a plugin nobody can say that it computed; no later request reuses what it made all the same."""
    d = Deployment(adapter, folder)
    for engine in d.engines:
        engine.has_plugin = False
    async with d.guard.publication() as publication:
        await d.engines[0].continue_generation()
        await d.ask(0, 77)
        await d.engines[0].pause(PauseMode.RETRACT)
        await d.send(publication, 1)
    await d.serves(1, publication.load_id)


async def nobody_continues_before_all_are_verified(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    await d.publish(1)
    last = {type(event): at for at, event in enumerate(d.told)}
    first = {type(event): at for at, event in reversed(list(enumerate(d.told)))}
    assert first[events.ContinueGeneration] > last[events.Verify] > last[events.AllSent]


async def an_engine_that_does_not_continue_is_told(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)

    async def never() -> Any:
        await asyncio.sleep(1e6)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 1)
            d.engines[1].continue_generation = never  # type: ignore[method-assign]

    await refused(publish(), adapter.PublicationFailed, "continue failed: engine 1", "those that were continued")
    assert d.record is not None
    assert not d.record.finished
    assert d.engines[1].scheduler.paused is PauseMode.RETRACT


async def a_failed_publication_is_followed_by_another_id(adapter: ModuleType, folder: Path) -> None:
    """An engine that the second try misses reports the first one's id."""
    d = Deployment(adapter, folder)
    seen = []

    async def publish(*engines: int, fail: bool) -> None:
        async with d.guard.publication() as publication:
            seen.append(publication.load_id)
            await d.send(publication, 1, *engines)
            if fail:
                raise LookupError("the optimizer diverged")

    await refused(publish(fail=True), LookupError, "no engine is continued")
    await refused(publish(0, fail=False), adapter.PublicationFailed, f"engine 1 reports {seen[0]}")
    await publish(fail=False)
    assert len(set(seen)) == 3
    await d.serves(1, seen[-1])


async def the_trace_says_unknown_after_a_failure_and_is_explained_again(adapter: ModuleType, folder: Path) -> None:
    """What a failed publication sent to whom nobody tells: that is a gap, never a finding."""
    d = Deployment(adapter, folder)
    await d.publish(1)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 2, 0)
            raise LookupError("no bucket 3")

    await refused(publish(), LookupError)
    before = len(d.trace)
    await d.publish(3)
    await d.publish(2)
    report = d.validated()
    assert report.finding is None
    assert (report.verdict, report.gaps, report.resynchronised) == (Verdict.UNKNOWN, 1, 1)
    assert d.trace[before].number == d.trace[before - 1].number + 2


async def a_killed_process_leaves_engines_fenced_and_says_so(adapter: ModuleType, folder: Path) -> None:
    """In the block, and the next guard publishes in full before anybody generates."""
    d = Deployment(adapter, folder)
    await d.publish(1)

    async def publish() -> None:
        async with d.guard.publication() as publication:
            await d.send(publication, 2, 0)
            d.plan.crash()

    with contextlib.suppress(CoordinatorDied, BaseExceptionGroup):
        await publish()
    d.plan.revive()
    d.fenced()
    d.guard = d.new_guard()
    await refused(d.guard.check_async(), adapter.CheckFailed, "has not ended", "no engine is continued")
    await d.serves(3, await d.publish(3))
    await d.guard.check_async()
    assert d.validated().finding is None


async def whoever_is_killed_in_the_barrier_has_said_that_engines_are_paused(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    await d.publish(1)
    d.plan.arm(next(n for n, point in enumerate(d.plan.reached) if point.call == "flush"), Fault.CRASH_BEFORE)
    with contextlib.suppress(CoordinatorDied, BaseExceptionGroup):
        await d.publish(2)
    assert d.plan.dead
    d.plan.revive()
    d.fenced()


async def one_publication_at_a_time(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    async with d.guard.publication() as publication:
        await refused(d.publish(2), adapter.PublicationFailed, "another publication of this guard is under way")
        await d.send(publication, 1)
    await d.serves(1, publication.load_id)


async def an_engine_without_the_plugin_is_refused_where_it_is_required(adapter: ModuleType, folder: Path) -> None:
    """Before anything is asked of any engine."""
    d = Deployment(adapter, folder, require_plugin=True)
    d.engines[1].has_plugin = False
    await refused(d.publish(1), adapter.PublicationFailed, "engine 1 runs without the plugin", "no engine was asked")
    assert d.record is None
    d.engines[1].has_plugin, d.engines[1].able_to_share = True, False
    await refused(d.publish(1), adapter.PublicationFailed, "engine 1", "a hook is missing", "no engine was asked")
    assert all(engine.scheduler.paused is None for engine in d.engines)
    d.engines[1].able_to_share = True
    await d.publish(1)
    d.engines[0].able_to_share = False
    await refused(d.guard.check_async(), adapter.CheckFailed, "engine 0", "a hook is missing")


async def a_check_finds_another_load_and_a_gone_engine(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    await refused(d.guard.check_async(), adapter.CheckFailed, "nothing was published yet")
    await d.publish(1)
    await d.guard.check_async()
    d.engines[0].scheduler.weights = Weights(1, "boot")
    d.engines[1].die()
    await refused(d.guard.check_async(), adapter.CheckFailed, "engine 0 reports boot", "simulated://1")


async def a_check_tells_every_stale_prefix_once(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    load_id = await d.publish(1)
    await d.ask(0, 1)
    d.engines[0].scheduler.weights = Weights(2, load_id + "x")
    await d.engines[0].generate(Request(input_ids=PROMPT, max_new_tokens=1))
    d.engines[0].scheduler.weights = Weights(1, load_id)
    await refused(d.guard.check_async(), adapter.CheckFailed, "engine 0 reused 1 stale prefixes")
    await d.guard.check_async()
    d.guard = d.new_guard()
    load_id = await d.publish(1)
    await d.guard.check_async()
    d.engines[0] = GuardedEngine(0, d.plan, [])
    d.engines[0].scheduler.weights = Weights(1, load_id)
    await d.guard.check_async()


async def a_record_that_cannot_be_written_lets_nobody_in(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    d.plan.arm(1, Fault.FAILS_BEFORE)
    words = ("could not be written", "no space left", "no engine was asked")
    await refused(d.publish(1), adapter.PublicationFailed, *words)
    assert all(engine.scheduler.paused is None for engine in d.engines)


async def a_block_is_entered_once(adapter: ModuleType, folder: Path) -> None:
    d = Deployment(adapter, folder)
    publication = d.guard.publication()
    async with publication:
        await d.send(publication, 1)
    await refused(publication.__aenter__(), RuntimeError, "entered once")
    await d.serves(1, publication.load_id)


STORIES: tuple[Story, ...] = tuple(
    story for story in list(globals().values()) if asyncio.iscoroutinefunction(story) and story.__module__ == __name__
)
