"""What the service remembers: the steps that are committed, and the load that its head names.

Moving the head is replacing one file. It comes before the acknowledgement, so that engines never generate with a load
that the service could forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from examples.rl_loop.durable import replace_file
from examples.rl_loop.learning import Figures
from examples.rl_loop.settings import OtherRun

__all__ = ["Head", "Learned", "Step"]


class Learned(BaseModel):
    """What a step was learned from.

    `across` of its samples have tokens of more than one load; `dropped` counts samples that were not admitted, by
    reason. `cached_tokens` of `prompt_tokens` came from prefix caches, as engines report it. Since the step before,
    plugins compared `slots_checked` reused KV slots with the load that was served: all were of it, or the step was not
    begun.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rewards: Figures
    across: int
    dropped: dict[str, int]
    cached_tokens: int
    prompt_tokens: int
    slots_checked: int


class Step(BaseModel):
    """A committed step, and the id of the load that it became."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    load_id: str
    learned: Learned


_STEPS = TypeAdapter(list[Step])


class Head:
    """The committed steps, in one file. Raises `OtherRun` if it holds something else."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._steps = _STEPS.validate_json(path.read_bytes()) if path.exists() else []
        except ValidationError as error:
            message = f"{path}: not the steps of a run; it cannot go on, name a new folder"
            raise OtherRun(message) from error

    @property
    def steps(self) -> Sequence[Step]:
        """Every committed step, in order."""
        return tuple(self._steps)

    def commit(self, step: Step) -> bool:
        """Move the head to a step; one that is committed already stays as it is. Whether the head has moved."""
        if self._steps and self._steps[-1].number >= step.number:
            return False
        steps = [*self._steps, step]
        replace_file(self._path, _STEPS.dump_json(steps, indent=2) + b"\n")
        self._steps = steps
        return True
