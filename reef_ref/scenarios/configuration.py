"""How an engine of a scenario is started: SGLang flags and environment, nothing hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reef_ref.engines.interface import Limits
from reef_ref.engines.process import ServerSettings

if TYPE_CHECKING:
    from reef_ref.scenarios.models import Models

__all__ = ["FIRST", "SECOND", "THIRD", "EngineConfiguration", "Fresh", "Load"]

BASE_FLAGS = (
    "--device", "cpu",
    "--attention-backend", "torch_native",
    "--sampling-backend", "pytorch",
    "--dtype", "float32",  # Tokens are compared exactly: in bfloat16, chunks of another size round near ties otherwise.
    "--max-total-tokens", "60000",
    "--mem-fraction-static", "0.05",
    "--constrained-json-disable-any-whitespace",  # A random model would fill its budget with white space.
    "--skip-server-warmup",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Load:
    """Checkpoint number `checkpoint`, published under a load id."""

    checkpoint: int
    load_id: str


FIRST = Load(1, "engine:1")
SECOND = Load(2, "engine:2")
THIRD = Load(1, "engine:3")
"""The first checkpoint's bytes again, under a new load id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfiguration:
    """An engine on the load `FIRST` or another, as a scenario wants it.

    `sharing` keeps SGLang's prefix cache on; `provenance` (`off`, `report`, `enforce`), `on_stale` (`recompute`,
    `refuse`) and `idle` (whether its idle check is in) are the plugin's settings; `adapters` are the names of LoRA
    adapters loaded at the start.
    """

    load: Load = FIRST
    sharing: bool = True
    overlap: bool = True
    ranks: int = 1
    memory_saver: bool = False
    adapters: tuple[str, ...] = ()
    provenance: str = "report"
    on_stale: str = "recompute"
    idle: bool = True
    extra: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def settings(self, models: Models, events: Path | None) -> ServerSettings:
        """The server to start; provenance events go to the file `events`."""
        flags = [*BASE_FLAGS, "--weight-version", self.load.load_id]
        if not self.sharing:
            flags.append("--disable-radix-cache")
        if not self.overlap:
            flags.append("--disable-overlap-schedule")
        if self.ranks > 1:
            flags += ["--tp-size", str(self.ranks)]
        if self.memory_saver:
            flags.append("--enable-memory-saver")
        if self.adapters:
            flags += ["--enable-lora", "--lora-backend", "torch_native", "--lora-paths"]
            flags += [f"{name}={models.adapter(name)}" for name in self.adapters]
        return ServerSettings(
            model_path=models.checkpoint(self.load.checkpoint),
            flags=(*flags, *self.extra),
            environment=self._environment(events),
            limits=self.limits,
        )

    def _environment(self, events: Path | None) -> Mapping[str, str]:
        environment = {
            "OMP_NUM_THREADS": "1",  # Spinning threads of several engines would take each other's cores.
            "REEF_REF_PROVENANCE": self.provenance,
            "REEF_REF_ON_STALE": self.on_stale,
            "REEF_REF_IDLE": "retract" if self.idle else "sglang",
        }
        if events is not None:
            environment["REEF_REF_EVENTS"] = str(events)
        if self.ranks > 1:
            environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(rank) for rank in range(self.ranks))
        return environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A plain engine, freshly started on a checkpoint, without sharing and without the plugin's checks."""

    checkpoint: int
    ranks: int = 1
    adapters: tuple[str, ...] = ()

    def configuration(self) -> EngineConfiguration:
        """Its settings."""
        return EngineConfiguration(
            load=Load(self.checkpoint, "fresh:1"),
            ranks=self.ranks,
            adapters=self.adapters,
            sharing=False,
            provenance="off",
            idle=False,
        )

    def __str__(self) -> str:
        ranks = f", {self.ranks} ranks" if self.ranks > 1 else ""
        adapters = f", adapters {' '.join(self.adapters)}" if self.adapters else ""
        return f"fresh engine on checkpoint {self.checkpoint}{ranks}{adapters}"
