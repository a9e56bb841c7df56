"""Reactions on simulated engines: what is done, what is left to others, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from reef_ref.control import ControlSettings
from reef_ref.coordinator import Coordinator
from reef_ref.engines.interface import Engine, PauseMode, Request
from reef_ref.engines.simulated import (
    Fault,
    Plan,
    SimulatedDisk,
    SimulatedEngine,
    Weights,
    run_simulated,
    write_checkpoint,
)
from reef_ref.engines.simulated.model import Kv, forward
from reef_ref.health import Slots
from reef_ref.monitor.policy import Policy, Reaction
from reef_ref.monitor.respond import ByCalls, ByCoordinator, Response, Responses
from reef_ref.training import Job, Trained
from tests.monitor.test_policy import violation

PROMPT = (1, 2, 3, 4)


def engine(slot: int, plan: Plan | None = None) -> SimulatedEngine:
    """With something in its tree."""
    made = SimulatedEngine(slot, Weights(7, "boot"), plan=plan or Plan({}))
    entries: list[Kv] = []
    for token in PROMPT:
        entries.append(forward(entries[-1] if entries else None, token, Weights(7, "boot")))
    made.scheduler.tree.insert(None, entries)
    return made


class Deployment:
    """Engines beside a monitor."""

    def __init__(self, *engines: SimulatedEngine, held: frozenset[int] = frozenset()) -> None:
        self.engines = engines
        self.told: list[Response] = []
        self.calls = ByCalls(self._attach, range(len(engines)), lambda slot: slot in held)

    async def _attach(self, slot: int) -> Engine:
        return _Handle(self.engines[slot])

    async def react(self, policy: Policy, *violations: Any) -> list[Response]:
        responses = Responses(policy, self.calls, self.told.append, bound_s=5.0)
        for one in violations:
            responses.take(one)
        await drain(responses)
        return self.told


class _Handle:
    """Somebody's own handle on an engine: letting go of it ends nothing."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def shut_down(self) -> None:
        pass


async def drain(responses: Responses) -> None:
    task = asyncio.create_task(responses.run())
    async with asyncio.timeout(60):
        while not responses.idle:
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def simulated(story: Coroutine[Any, Any, None]) -> None:
    run_simulated(story)


def cached(one: SimulatedEngine) -> int:
    return len(one.scheduler.tree.match(None, PROMPT))


def test_a_fence_empties_the_cache_and_lets_the_engine_go_on() -> None:
    """Of this engine only."""

    async def story() -> None:
        d = Deployment(engine(0), engine(1))
        (told,) = await d.react(Policy(), violation("no_stale_hit", 0))
        assert (told.reaction, told.done) == (Reaction.FENCE, True)
        assert str(told).startswith("fence: engine 0 was paused, flushed and continued (because no_stale_hit violated")
        assert [cached(e) for e in d.engines] == [0, len(PROMPT)]
        assert [e.scheduler.paused for e in d.engines] == [None, None]

    simulated(story())


def test_what_was_thought_to_be_held_is_looked_at_again() -> None:
    """An engine that generates all the same refuses the flush; once nobody holds it, it is fenced."""

    async def story() -> None:
        one, looks = engine(0), iter((True, True, False))

        async def attach(slot: int) -> Engine:
            return _Handle(one)

        asked = asyncio.create_task(one.generate(Request(input_ids=PROMPT, max_new_tokens=2000)))
        await asyncio.sleep(0.1)
        done = await ByCalls(attach, [0], lambda _: next(looks)).fence(0)
        assert done == "engine 0 was paused, flushed and continued"
        assert list(looks) == []
        assert cached(one) == 0
        await asked

    simulated(story())


def test_a_fence_that_a_publication_overtakes_waits_for_its_end() -> None:
    """Nothing is continued while a coordinator fences the engines; afterwards nothing stays paused by the monitor."""

    async def story() -> None:
        one, fenced = engine(0), True

        async def attach(slot: int) -> Engine:
            return _Handle(one)

        fence = asyncio.create_task(ByCalls(attach, [0], lambda _: False, lambda: fenced).fence(0))
        await asyncio.sleep(20)
        assert not fence.done()
        assert one.scheduler.paused is PauseMode.RETRACT
        fenced = False
        assert await fence == "engine 0 was paused, flushed and continued"
        assert one.scheduler.paused is None

    simulated(story())


def test_what_somebody_else_holds_is_not_continued() -> None:
    """Nobody but whoever paused an engine lets it generate."""

    async def story() -> None:
        d = Deployment(engine(0), held=frozenset({0}))
        await d.engines[0].pause(PauseMode.RETRACT)
        (told,) = await d.react(Policy(), violation("no_stale_hit", 0))
        assert told.done
        assert "stays paused" in told.outcome
        assert cached(d.engines[0]) == 0
        assert d.engines[0].scheduler.paused is not None

    simulated(story())


@pytest.mark.parametrize(("reaction", "paused"), [("retire", [0]), ("halt", [0, 1])])
def test_retired_and_halted_engines_generate_no_more(reaction: str, paused: list[int]) -> None:
    """One, or all."""

    async def story() -> None:
        d = Deployment(engine(0), engine(1))
        (told,) = await d.react(Policy.of([f"no_stale_hit={reaction}"]), violation("no_stale_hit", 0))
        assert told.done
        assert [e.slot for e in d.engines if e.scheduler.paused is not None] == paused

    simulated(story())


def test_many_violations_of_one_engine_are_one_reaction() -> None:
    """The strongest that is asked for."""

    async def story() -> None:
        d = Deployment(engine(0), engine(1))
        policy = Policy.of(["flush_point=retire"])
        found = [violation("no_stale_hit", 0)] * 5 + [violation("flush_point", 0), violation("no_stale_hit", 0)]
        told = await d.react(policy, *found, violation("no_stale_hit", 1))
        assert [(one.reaction, one.violation.engine) for one in told] == [(Reaction.RETIRE, 0), (Reaction.FENCE, 1)]

    simulated(story())


def test_a_reaction_that_fails_is_told(tmp_path: Path) -> None:
    """With why; the engine stays paused, and the next reaction is tried all the same."""

    async def story() -> None:
        d = Deployment(engine(0, Plan({1: Fault.FAILS_BEFORE})), engine(1))
        told = await d.react(Policy(), violation("no_stale_hit", 0), violation("no_stale_hit", 1))
        assert [one.done for one in told] == [False, True]
        assert str(told[0]).startswith("fence FAILED: ")
        assert d.engines[0].scheduler.paused is not None

    simulated(story())


def test_an_engine_without_an_address_is_told() -> None:
    """Nothing can be done to it."""

    async def story() -> None:
        d = Deployment(engine(0))
        (told,) = await d.react(Policy(), violation("no_stale_hit", 3))
        assert (told.done, told.outcome) == (False, "engine 3: its address is not known")

    simulated(story())


def test_without_a_responder_everything_is_reported() -> None:
    """Nothing is claimed to have been done."""

    async def story() -> None:
        told: list[Response] = []
        Responses(Policy(), None, told.append).take(violation("no_stale_hit", 0))
        assert [one.reaction for one in told] == [Reaction.REPORT]

    simulated(story())


class _Trainer:
    async def prepare(self, job: Job) -> str | None:
        return None

    async def train(self, job: Job) -> Trained:
        raise AssertionError("nobody trains here")


@pytest.mark.parametrize("reaction", ["fence", "retire", "halt"])
def test_through_the_coordinator(tmp_path: Path, reaction: str) -> None:
    """A fence is a republication, a retired engine is replaced, and after a halt nobody does anything."""

    async def story() -> None:
        plan, made = Plan({}), list[SimulatedEngine]()

        class Launcher:
            async def start(self, slot: int) -> SimulatedEngine:
                made.append(engine(slot, plan))
                return made[-1]

        slots = Slots([None, None])
        coordinator = Coordinator(
            slots=slots,
            settings=ControlSettings(pause_mode=PauseMode.RETRACT),
            marker=SimulatedDisk(plan, hang_s=1.0),
            trainer=_Trainer(),
            initial=Trained(write_checkpoint(tmp_path / "initial", 3), Weights(3, "").checksum),
            launcher=Launcher(),
        )
        await coordinator.start()
        told: list[Response] = []
        policy = Policy.of([f"no_stale_hit={reaction}"])
        responses = Responses(policy, ByCoordinator(coordinator, slots), told.append)
        responses.take(violation("no_stale_hit", 1))
        await drain(responses)
        assert [one.done for one in told] == [True], told
        held = [e for slot in slots.live if (e := slots[slot]) is not None]
        match reaction:
            case "fence":
                assert len(made) == 2
                assert "was republished behind a barrier" in told[0].outcome
            case "retire":
                assert len(made) == 3
                assert slots[1] is made[2]
            case _:
                assert not coordinator.health().ok or coordinator.health().phase.name == "STOPPED"
        assert len(held) == 2
        for one in held:
            assert isinstance(one, SimulatedEngine)
            assert (one.scheduler.paused is not None) == (reaction == "halt")
            assert reaction == "halt" or cached(one) == 0

    simulated(story())
