"""What a run is: its sizes, and the file that says so in its folder."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from examples.rl_loop.durable import replace_file

__all__ = ["ENGINES", "Break", "Mode", "OtherRun", "Places", "Settings"]

ENGINES = 2
"""Engines that a run starts for itself."""


class Mode(StrEnum):
    """Where training happens."""

    DISJOINT = "disjoint"
    """On devices of its own: engines generate meanwhile, and requests live through a publication."""
    COLOCATED = "colocated"
    """On the engines' devices: they give their memory back while training goes on."""


class Break(StrEnum):
    """What may be left out on purpose."""

    NO_FLUSH = "no-flush"
    """The barrier pauses engines and flushes none."""


class OtherRun(Exception):  # noqa: N818  The name says what was found.
    """A folder holds something else than this run; the text says what would be right."""


class Settings(BaseModel):
    """What has to stay the same when a run goes on. Lengths are in tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode
    max_lag: Annotated[int, Field(ge=0)]
    """How many loads a sample's oldest token may be behind the load that is served when it is learned from."""
    seed: int
    batch: Annotated[int, Field(ge=2)] = 24
    """Samples that one step learns from."""
    shared_prompt: int = 48
    """Every prompt begins with the same tokens, as an agent's prompts do: the prefix cache keeps them."""
    own_prompt: int = 8
    prompts: int = 4
    answer: int = 24
    in_flight: int = 16
    """Requests at all engines together, at any moment."""
    learning_rate: float = 0.02


class Places:
    """Where a run keeps what; everything lies below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = folder / "run.json"
        self.trace = folder / "trace.ndjson"
        self.head = folder / "head.json"
        self.marker = folder / "marker"
        self.checkpoints = folder / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint of a step is."""
        return self.checkpoints / f"step-{step:06}"

    @staticmethod
    def step(checkpoint: Path) -> int:
        """Of which step a checkpoint is, by its name."""
        return int(checkpoint.name.rpartition("-")[2])

    def plugin_events(self, slot: int) -> Path:
        """Where the plugin of the engine in a slot writes what it saw."""
        return self.folder / f"engine-{slot}.ndjson"

    def claim(self, settings: Settings) -> Self:
        """Make the folder this run's, or find that it is. Raises `OtherRun`, and then nothing was changed."""
        if self.settings.exists():
            self._compare(settings)
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            message = f"{self.folder}: is not empty and holds no run; name a new folder"
            raise OtherRun(message)
        else:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.settings, settings.model_dump_json(indent=2).encode() + b"\n")
        self.marker.mkdir(exist_ok=True)
        self.checkpoints.mkdir(exist_ok=True)
        return self

    def _compare(self, settings: Settings) -> None:
        try:
            found = Settings.model_validate_json(self.settings.read_bytes())
        except (ValidationError, OSError) as error:
            message = f"{self.settings}: not the settings of a run; name a new folder"
            raise OtherRun(message) from error
        ours, theirs = json.loads(settings.model_dump_json()), json.loads(found.model_dump_json())
        for name, value in theirs.items():
            if ours[name] != value:
                message = f"{self.folder}: was begun with {name} {value}, not {ours[name]}; name another folder"
                raise OtherRun(message)
