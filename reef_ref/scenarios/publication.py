"""One publication on one engine, by hand: the calls in the order that the protocol asks for, and what each answered."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from reef_ref.engines.interface import ALL_REGIONS, Engine, Flush, Health, LoadReport, PauseMode, Region, Update

__all__ = ["Publication", "publish"]

WEIGHTS = frozenset({Region.WEIGHTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The answers, and the seconds from the pause to the end of the continue."""

    health_while_paused: Health
    flush: Flush | None
    update: Update
    report: LoadReport
    seconds: float


async def publish(
    engine: Engine,
    checkpoint: Path,
    load_id: str,
    *,
    mode: PauseMode = PauseMode.RETRACT,
    flush: bool = True,
    release: bool = False,
) -> Publication:
    """Pause, flush, [release all, resume weights], update from disk, [resume the rest], continue.

    `flush=False` leaves the barrier half done, which is what the negative controls are about.
    """
    started = time.monotonic()
    await engine.pause(mode)
    health = await engine.health()
    flushed = await engine.flush() if flush else None
    if release:
        await engine.release(ALL_REGIONS)
        await engine.resume(WEIGHTS)
    updated = await engine.update(checkpoint, load_id)
    if release:
        await engine.resume(ALL_REGIONS)
    report = await engine.report()
    await engine.continue_generation()
    return Publication(
        health_while_paused=health,
        flush=flushed,
        update=updated,
        report=report,
        seconds=time.monotonic() - started,
    )
