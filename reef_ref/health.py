"""Slots of engines, and the monitor that empties those whose engine does not answer.

A slot is refilled by the next recovering publication, never by the monitor: a new engine holds whatever it booted with.
The monitor works only while no publication does. What it began before it was excluded it finishes first, and a probe
that was started before has no power afterwards: it retires exactly the engine that it probed, or nothing.

Source: reef-semantics sections 6 and 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from reef_ref import events
from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import Engine

__all__ = ["HealthMonitor", "MonitorSettings", "Slots"]


class Slots:
    """A fixed number of places for engines, by number; a place may be empty."""

    def __init__(self, engines: Sequence[Engine | None]) -> None:
        self._engines = list(engines)

    def __len__(self) -> int:
        return len(self._engines)

    def __getitem__(self, slot: int) -> Engine | None:
        return self._engines[slot]

    @property
    def live(self) -> tuple[int, ...]:
        """The slots that hold an engine."""
        return tuple(slot for slot, engine in enumerate(self._engines) if engine is not None)

    @property
    def empty(self) -> tuple[int, ...]:
        """The slots that hold none."""
        return tuple(slot for slot, engine in enumerate(self._engines) if engine is None)

    def fill(self, slot: int, engine: Engine) -> None:
        """Put an engine into an empty slot."""
        if self._engines[slot] is not None:
            message = f"slot {slot} holds an engine already"
            raise ValueError(message)
        self._engines[slot] = engine

    def clear(self, slot: int, engine: Engine) -> bool:
        """Empty a slot if it holds this very engine; whether it did."""
        if self._engines[slot] is not engine:
            return False
        self._engines[slot] = None
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """When to look, in seconds, and after how many failed looks in a row an engine is given up."""

    interval_s: float = 30.0
    probe_s: float = 30.0
    retire_s: float = 30.0
    failures: int = 1


class HealthMonitor:
    """Looks at every live engine now and then; run it as a task (`run`), or a round at a time (`look`)."""

    def __init__(self, slots: Slots, settings: MonitorSettings, *, tell: events.Teller) -> None:
        self._slots = slots
        self._settings = settings
        self._tell = tell
        self._excluded = False
        self._epoch = 0
        self._retiring = asyncio.Lock()
        self._failed: dict[int, int] = {}

    @property
    def excluded(self) -> bool:
        """Whether a publication is under way, so that nothing is retired."""
        return self._excluded

    async def exclude(self) -> None:
        """Stop retiring, once what was begun has ended; what is probed at this moment will have no effect."""
        self._excluded = True
        self._epoch += 1
        async with self._retiring:
            pass

    def admit(self) -> None:
        """Work again."""
        self._excluded = False
        self._failed.clear()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.interval_s)
            await self.look()

    async def look(self) -> None:
        """Probe every live engine once, all at once, and retire those that failed often enough."""
        if self._excluded:
            return
        async with asyncio.TaskGroup() as group:
            for slot in self._slots.live:
                engine = self._slots[slot]
                assert engine is not None
                group.create_task(self._look_at(slot, engine, self._epoch))

    async def _look_at(self, slot: int, engine: Engine, epoch: int) -> None:
        try:
            async with asyncio.timeout(self._settings.probe_s):
                alive = (await engine.health()).alive
        except (TimeoutError, EngineError):
            alive = False
        if epoch != self._epoch:
            return
        self._failed[slot] = 0 if alive else self._failed.get(slot, 0) + 1
        if self._failed[slot] < self._settings.failures:
            return
        async with self._retiring:
            if epoch != self._epoch or self._slots[slot] is not engine:
                return
            try:
                async with asyncio.timeout(self._settings.retire_s):
                    await engine.shut_down()
            except (TimeoutError, EngineError, OSError):
                return  # It keeps its slot and is looked at again.
            if self._slots.clear(slot, engine):
                self._failed.pop(slot, None)
                self._tell(events.EmptySlot, slot)
