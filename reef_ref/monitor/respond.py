"""What is done about a violation, in a deployment's own terms: through its coordinator, or by calls to its engines.

Nobody but the coordinator makes an engine generate while a publication is under way (`only_owner_resumes`), so that a
fence by calls leaves an engine paused that somebody else had paused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from reef_ref.control import CallsFailed, Mismatch
from reef_ref.coordinator import Coordinator
from reef_ref.engines.errors import EngineError, FlushRefused
from reef_ref.engines.interface import Engine, PauseMode
from reef_ref.health import Slots
from reef_ref.markers import MarkerError
from reef_ref.monitor.notice import Violation
from reef_ref.monitor.policy import Policy, Reaction
from reef_ref.publication import Refused

__all__ = ["ByCalls", "ByCoordinator", "Responder", "Response", "Responses"]

FAILURES = (EngineError, CallsFailed, Mismatch, Refused, MarkerError, OSError)
"""What a reaction may fail with: it is told, never raised."""


HELD_S = 2.0
"""How long a flush of an engine that somebody else holds is tried, before it is looked again whether it is held."""


LOOK_S = 0.1
"""How often it is looked whether a publication is over."""


class Responder(Protocol):
    """How a deployment is acted on. Each method says in a few words what was done."""

    async def fence(self, engine: int | None) -> str:
        """Empty the cache of an engine, or of all, before it generates again."""

    async def retire(self, engine: int | None) -> str:
        """Take an engine, or all, out of service."""

    async def halt(self) -> str:
        """Pause every engine and leave it so."""


class ByCalls:
    """Acts on engines directly: for a monitor beside a deployment.

    A fence that a publication overtakes waits for its end before it lets the engine go on. What somebody pauses in the
    very moment between that look and the continue is continued too early. Where there is a coordinator, it is the one
    to ask (`ByCoordinator`).

    Args:
        attach: attaches to the engine in a slot, for one reaction.
        slots: those whose engine can be reached.
        held: whether somebody else keeps an engine from generating, as far as is known.
        fenced: whether a coordinator keeps all engines from generating, as far as is known.
    """

    def __init__(
        self,
        attach: Callable[[int], Awaitable[Engine]],
        slots: Collection[int],
        held: Callable[[int], bool],
        fenced: Callable[[], bool] = lambda: False,
    ) -> None:
        self._attach = attach
        self._slots = slots
        self._held = held
        self._fenced = fenced

    async def fence(self, engine: int | None) -> str:
        """Pause, flush, continue; an engine that somebody else holds is only flushed.

        One that is thought to be held may generate all the same, and then refuses to be flushed: so it is asked again,
        and who holds it is looked up again, now and then.
        """

        async def one(slot: int, target: Engine) -> str:
            while self._held(slot):
                with contextlib.suppress(FlushRefused, TimeoutError):
                    async with asyncio.timeout(HELD_S):
                        await target.flush()
                        return f"engine {slot} was flushed, and stays paused: whoever paused it continues it"
            await target.pause(PauseMode.RETRACT)
            await target.flush()
            while self._fenced():
                # A publication has begun since. When it is over its owner has continued the engine, perhaps before it
                # was paused here: so it is continued once more then, and not before.
                await asyncio.sleep(LOOK_S)
            await target.continue_generation()
            return f"engine {slot} was paused, flushed and continued"

        return await self._each(engine, one)

    async def retire(self, engine: int | None) -> str:
        """Pause the engine and leave it so: its process is its owner's to end."""

        async def one(slot: int, target: Engine) -> str:
            await target.pause(PauseMode.RETRACT)
            return f"engine {slot} is paused and stays so; replace it"

        return await self._each(engine, one)

    async def halt(self) -> str:
        """Pause all."""
        await self.retire(None)
        return "every engine is paused and stays so"

    async def _each(self, engine: int | None, act: Callable[[int, Engine], Awaitable[str]]) -> str:
        slots = self._slots if engine is None else [engine]
        if missing := [slot for slot in slots if slot not in self._slots]:
            message = f"engine {missing[0]}: its address is not known"
            raise Refused(message)

        async def attached(slot: int) -> str:
            target = await self._attach(slot)
            try:
                return await act(slot, target)
            finally:
                await target.shut_down()  # Of an engine that is not ours, this lets go of the connection.

        return "; ".join(await asyncio.gather(*map(attached, slots)))


class ByCoordinator:
    """Acts through the coordinator of this process, which fences all engines at once and rebuilds what is missing."""

    def __init__(self, coordinator: Coordinator, slots: Slots) -> None:
        self._coordinator = coordinator
        self._slots = slots

    async def fence(self, engine: int | None) -> str:
        """Establish what is served again: a barrier over all engines, every byte, verified."""
        load_id = self._coordinator.served.load_id
        await self._coordinator.republish(load_id)
        return f"{load_id} was republished behind a barrier"

    async def retire(self, engine: int | None) -> str:
        """End the engine and have its slot filled again."""
        ended = []
        for slot in self._slots.live if engine is None else (engine,):
            if (target := self._slots[slot]) is not None:
                await target.shut_down()
                self._slots.clear(slot, target)
                ended.append(slot)
        done = await self.fence(None)
        return f"engine {', '.join(map(str, ended)) or engine} was ended and replaced; {done}"

    async def halt(self) -> str:
        """Stop the coordinator, and pause every engine."""
        await self._coordinator.stop()
        engines = [engine for slot in self._slots.live if (engine := self._slots[slot]) is not None]
        await asyncio.gather(*(engine.pause(PauseMode.RETRACT) for engine in engines))
        return "the coordinator has stopped and every engine is paused"


@dataclass(frozen=True, slots=True)
class Response:
    """What was done about a violation: `outcome` in words; `done` is false where that failed."""

    violation: Violation
    reaction: Reaction
    done: bool
    outcome: str
    seconds: float

    def __str__(self) -> str:
        failed = "" if self.done else " FAILED"
        return f"{self.reaction}{failed}: {self.outcome} (because {self.violation})"


class Responses:
    """Reacts to violations, one reaction at a time; run it as a task (`run`).

    A violation of an engine for which as much or more is waiting to be done already is answered by that.

    Args:
        on_response: called with each.
        bound_s: how long one reaction may take.
    """

    def __init__(
        self,
        policy: Policy,
        responder: Responder | None,
        on_response: Callable[[Response], None],
        *,
        bound_s: float = 120.0,
    ) -> None:
        self._policy = policy
        self._responder = responder
        self._on_response = on_response
        self._bound_s = bound_s
        self._clock = asyncio.get_running_loop().time
        self._waiting: dict[int | None, tuple[Reaction, Violation]] = {}
        self._woken = asyncio.Event()
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be done or is being done."""
        return not self._waiting and not self._busy

    def take(self, violation: Violation) -> None:
        """React to a violation, soon; call it in the event loop's thread."""
        reaction = self._policy.reaction(violation)
        if reaction is Reaction.REPORT or self._responder is None:
            self._on_response(Response(violation, Reaction.REPORT, True, "reported", 0.0))
            return
        known = self._waiting.get(violation.engine)
        if known is None or _strength(known[0]) < _strength(reaction):
            self._waiting[violation.engine] = (reaction, violation)
            self._woken.set()

    async def run(self) -> None:
        """React until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                engine = next(iter(self._waiting))
                reaction, violation = self._waiting.pop(engine)
                self._busy = True
                try:
                    await self._react(reaction, violation)
                finally:
                    self._busy = False

    async def _react(self, reaction: Reaction, violation: Violation) -> None:
        assert self._responder is not None
        began = self._clock()
        try:
            async with asyncio.timeout(self._bound_s):
                match reaction:
                    case Reaction.FENCE:
                        outcome = await self._responder.fence(violation.engine)
                    case Reaction.RETIRE:
                        outcome = await self._responder.retire(violation.engine)
                    case _:
                        outcome = await self._responder.halt()
        except TimeoutError:
            done, outcome = False, f"not done within {self._bound_s:g} s"
        except FAILURES as error:
            done, outcome = False, str(error) or type(error).__name__
        else:
            done = True
        self._on_response(Response(violation, reaction, done, outcome, self._clock() - began))


def _strength(reaction: Reaction) -> int:
    return list(Reaction).index(reaction)
