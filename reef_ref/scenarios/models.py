"""The checkpoints and adapters of the scenarios: seeded, written once a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reef_ref.testing.tiny_model import TinyShape

__all__ = ["Models"]


class Models:
    """Writes the tiny checkpoints and adapters on demand, below one folder; all have one shape."""

    def __init__(self, folder: Path, shape: TinyShape | None = None) -> None:
        self._folder = folder
        self._shape = shape

    def checkpoint(self, number: int) -> Path:
        """The folder of checkpoint number `number`; different numbers give different greedy outputs."""
        from reef_ref.testing.tiny_model import write_checkpoint

        path = self._folder / f"checkpoint-{number}"
        return path if path.exists() else write_checkpoint(path, seed=number, shape=self._shape)

    def other_shape(self, name: str, **sizes: int) -> Path:
        """The folder of a checkpoint whose sizes differ from those of the others (see `TinyShape`)."""
        from reef_ref.testing.tiny_model import TinyShape, write_checkpoint

        path = self._folder / name
        return path if path.exists() else write_checkpoint(path, seed=1, shape=TinyShape(**sizes))

    def adapter(self, name: str) -> Path:
        """The folder of the rank-8 adapter of this name; different names give different adapters."""
        from reef_ref.testing.tiny_model import write_adapter

        path = self._folder / f"adapter-{name}"
        return (
            path if path.exists() else write_adapter(path, seed=int.from_bytes(name.encode(), "big"), shape=self._shape)
        )
