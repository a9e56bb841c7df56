"""Adapters beside publications: loaded while engines generate, kept over publications, given to every new engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from reef_ref.coordinator import Coordinator
from reef_ref.engines.errors import GenerationFailed
from reef_ref.engines.interface import Request
from reef_ref.engines.simulated import Fault, expected_tokens, run_simulated, write_checkpoint
from reef_ref.load_id import LoadId
from reef_ref.publication import Phase, Refused
from reef_ref.residency import Adapter, AdapterCapacityExhausted, AdapterEvictionFailed
from reef_ref.training import Job
from tests.conformance.world import INITIAL_SEED, PROMPT, Checkpoints, Layout, Wish, World

BYTES = {1: 301, 2: 302, 3: 303}
"""The content of each revision."""


def adapter(scenario: str, revision: int = 1) -> Adapter:
    return Adapter(scenario, LoadId("a", revision))


class Service(World):
    """A world whose service activates adapters."""

    @property
    def life(self) -> Coordinator:
        assert self.coordinator is not None
        return self.coordinator

    async def activate(self, wanted: Adapter) -> bool:
        seed = BYTES[wanted.revision.sequence]
        path = write_checkpoint(self.checkpoints(INITIAL_SEED).parent / f"adapter-{seed}", seed)
        return await self.life.activate_adapter(wanted, path)

    async def answers(self, wanted: Adapter, base: int) -> None:
        """Every engine answers a request for the adapter as nothing but its content and the base explain."""
        request = Request(input_ids=PROMPT, max_new_tokens=3, adapter=wanted.name)
        expected = expected_tokens(PROMPT, [base] * 3, BYTES[wanted.revision.sequence])
        engines = list(self.in_slots())
        assert len(engines) == self.layout.engines
        for engine in engines:
            for _ in range(2):  # The second reuses what the first has cached.
                assert (await engine.generate(request)).output_ids == expected

    async def holds_none(self, wanted: Adapter) -> None:
        """No engine answers a request for the adapter."""
        for engine in self.in_slots():
            with pytest.raises(GenerationFailed, match="not loaded"):
                await engine.generate(Request(input_ids=PROMPT, max_new_tokens=1, adapter=wanted.name))


def serving(test: Callable[[Service], Awaitable[None]], *, slots: int = 2) -> Callable[[Path], None]:
    """Run a test on a deployment of two engines that serves."""

    def run(tmp_path: Path) -> None:
        async def main() -> None:
            service = Service(Checkpoints(tmp_path), Layout(engines=2, adapter_slots=slots))
            await service.restart()
            try:
                await test(service)
            finally:
                await service.close()

        run_simulated(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@serving
async def test_a_new_revision_takes_the_old_ones_place_when_it_is_needed(service: Service) -> None:
    """The old one goes when its slot is wanted, and not while a request uses it."""
    assert await service.activate(adapter("x", 1))
    assert await service.activate(adapter("x", 2))
    for revision in (1, 2):
        await service.answers(adapter("x", revision), INITIAL_SEED)
    with service.life.adapter_in_use(adapter("x", 1)), service.life.adapter_in_use(adapter("x", 2)):
        with pytest.raises(AdapterCapacityExhausted):
            await service.activate(adapter("x", 3))
        await service.answers(adapter("x", 1), INITIAL_SEED)
    assert await service.activate(adapter("x", 3))
    await service.holds_none(adapter("x", 1))
    for revision in (2, 3):
        await service.answers(adapter("x", revision), INITIAL_SEED)
    assert not await service.activate(adapter("x", 2)), "a rollback moves no bytes"
    assert service.life.adapter("x") == adapter("x", 2)


@serving
async def test_a_capacity_refusal_harms_nobody(service: Service) -> None:
    """P18: engines live and serve, the other scenarios' adapters are there, and the coordinator is well."""
    for scenario in ("x", "y"):
        await service.activate(adapter(scenario))
    calls = len(service.plan.reached)
    with pytest.raises(AdapterCapacityExhausted):
        await service.activate(adapter("z"))
    assert {point.call for point in service.plan.reached[calls:]} == {"adapters"}, "they are asked, and nothing else"
    health = service.life.health()
    assert (health.ok, health.phase, health.empty_slots) == (True, Phase.SERVING, ())
    for scenario in ("x", "y"):
        await service.answers(adapter(scenario), INITIAL_SEED)


@serving
async def test_a_publication_keeps_adapters_and_empties_what_was_cached_under_them(service: Service) -> None:
    await service.activate(adapter("x"))
    await service.answers(adapter("x"), INITIAL_SEED)
    assert await service.settle(Wish(1)) == "settled"
    await service.answers(adapter("x"), Wish(1).seed)
    service.check_settled()


@serving
async def test_nothing_is_activated_behind_the_latch(service: Service) -> None:
    """An unload would wait for requests that cannot end; and after the commit it goes."""
    await service.activate(adapter("x", 1))
    await service.life.train(Job(job=Wish(1).job, rollout=1))
    assert await service.publish(Wish(1).job) is None
    calls = len(service.plan.reached)
    with pytest.raises(Refused, match="fenced"):
        await service.activate(adapter("x", 2))
    assert len(service.plan.reached) == calls
    assert await service.commit(Wish(1).job) is None
    assert await service.activate(adapter("x", 2))
    await service.answers(adapter("x", 2), Wish(1).seed)


@serving
async def test_a_new_engine_is_given_what_the_others_hold(service: Service) -> None:
    """P20: after the loss of one engine, and after a publication that retired all of them."""
    for scenario in ("x", "y"):
        await service.activate(adapter(scenario))
    next(service.in_slots()).die()
    assert service.monitor is not None
    await service.monitor.look()
    with pytest.raises(Refused, match="one is missing"):
        await service.activate(adapter("x", 2))
    await service.life.republish(service.life.served.load_id)
    for scenario in ("x", "y"):
        await service.answers(adapter(scenario), INITIAL_SEED)

    await service.life.train(Job(job=Wish(1).job, rollout=1))
    service.plan.arm(0, Fault.FAILS_BEFORE)
    assert await service.publish(Wish(1).job) is not None
    assert list(service.in_slots()) == []
    assert await service.settle(Wish(1)) == "settled"
    for scenario in ("x", "y"):
        await service.answers(adapter(scenario), Wish(1).seed)


@serving
async def test_a_new_engine_that_takes_no_adapter_is_no_engine(service: Service) -> None:
    """The rebuild fails, as if the engine had not started; the next one succeeds."""
    await service.activate(adapter("x"))
    next(service.in_slots()).die()
    assert service.monitor is not None
    await service.monitor.look()
    # A republication pauses and flushes the survivor, starts an engine, and has it load the adapter.
    service.plan.arm(3, Fault.FAILS_BEFORE)
    before = len(service.plan.reached)
    error = await service.call(lambda c: c.republish(c.served.load_id))
    assert str(service.plan.reached[before + 3]) == "load adapter at engine 0"
    assert error is not None
    assert "rebuild failed" in error
    assert list(service.in_slots()) == []
    assert await service.settle(None) == "settled"
    await service.answers(adapter("x"), INITIAL_SEED)


@serving
async def test_a_new_life_finds_what_engines_hold(service: Service) -> None:
    """reef#37: what every engine holds is taken over, and what the last life gave to one engine only is begun anew."""
    await service.activate(adapter("y", 2))
    service.plan.arm(3, Fault.CRASH_BEFORE)
    path = write_checkpoint(service.checkpoints(INITIAL_SEED).parent / "adapter-301", BYTES[1])
    assert await service.call(lambda c: c.activate_adapter(adapter("x"), path)) == "the coordinator died"
    await service.restart()
    assert service.life.adapter("x") is None
    assert await service.call(lambda c: c.activate_adapter(adapter("x"), path)) is None
    await service.answers(adapter("x"), INITIAL_SEED)
    calls = len(service.plan.reached)
    assert not await service.activate(adapter("y", 2))
    assert {point.call for point in service.plan.reached[calls:]} == {"adapters"}
    await service.answers(adapter("y", 2), INITIAL_SEED)


@serving
async def test_an_activation_that_is_given_up_is_owned_up_to(service: Service) -> None:
    """What may be loaded somewhere keeps its slot, is not current, and goes first."""
    await service.activate(adapter("x", 1))
    service.plan.arm(3, Fault.HANGS_AFTER)
    task = asyncio.ensure_future(service.activate(adapter("x", 2)))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert service.life.adapter("x") == adapter("x", 1)
    assert await service.activate(adapter("y", 3))
    await service.holds_none(adapter("x", 2))
    for kept in (adapter("x", 1), adapter("y", 3)):
        await service.answers(kept, INITIAL_SEED)


@serving
async def test_an_eviction_that_is_given_up_leaves_no_adapter_that_is_only_in_the_books(service: Service) -> None:
    for revision in (1, 2):
        await service.activate(adapter("x", revision))
    service.plan.arm(3, Fault.HANGS_BEFORE)
    task = asyncio.ensure_future(service.activate(adapter("x", 3)))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(KeyError), service.life.adapter_in_use(adapter("x", 1)):
        pass
    assert await service.activate(adapter("x", 1)), "it is loaded again where it had gone"
    await service.answers(adapter("x", 1), INITIAL_SEED)


@serving
async def test_a_failed_eviction_leaves_engines_serving_and_is_tried_again(service: Service) -> None:
    for revision in (1, 2):
        await service.activate(adapter("x", revision))
    service.plan.arm(2, Fault.FAILS_BEFORE)
    with pytest.raises(AdapterEvictionFailed, match="refused by the plan"):
        await service.activate(adapter("x", 3))
    assert service.life.health().ok
    assert await service.activate(adapter("x", 3))
    await service.holds_none(adapter("x", 1))
    await service.answers(adapter("x", 3), INITIAL_SEED)


def test_a_deployment_without_slots_says_so(tmp_path: Path) -> None:
    async def ask(service: Service) -> None:
        with pytest.raises(Refused, match="no adapter slots"):
            await service.activate(adapter("x"))
        with pytest.raises(KeyError), service.life.adapter_in_use(adapter("x")):
            pass
        assert service.life.adapter("x") is None

    serving(ask, slots=0)(tmp_path)
