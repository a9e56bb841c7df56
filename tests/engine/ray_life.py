"""A coordinator in a process of its own, over engines that it finds by their names in a Ray cluster.

    python -m tests.engine.ray_life FOLDER INCARNATION DIE_AT ADDRESS NAMESPACE

Otherwise like `coordinator_life`; but it owns the engines, and would start those that it does not find.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from reef_ref.engines.interface import Limits
from reef_ref.engines.ray import ActorSettings, RayLauncher
from reef_ref.health import Slots
from reef_ref.scenarios.models import Models
from tests.engine.coordinator_life import live
from tests.engine.deployment import ENGINES, IN_PROCESS

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "REEF_REF_PROVENANCE": "report", "REEF_REF_IDLE": "retract"}


def settings(models: Models) -> Callable[[int], ActorSettings]:
    """Every engine on checkpoint 1, with adapter A."""
    paths = {"model_path": str(models.checkpoint(1)), "lora_paths": [f"A={models.adapter('A')}"]}
    one = ActorSettings(
        arguments=IN_PROCESS | paths, environment=ENVIRONMENT, limits=Limits(flush_total_s=10.0, health_s=2.0)
    )
    return lambda _: one


async def main(folder: str, incarnation: str, die_at: str, address: str, namespace: str) -> None:
    """One life."""
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    launcher = RayLauncher(settings(Models(Path(folder).parent / "models")), namespace=namespace)
    slots = Slots([await launcher.find(slot) for slot in range(ENGINES)])
    assert slots.empty == (), "the engines were not found"
    await live(Path(folder), incarnation, die_at, slots, launcher)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
