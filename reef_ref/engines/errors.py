"""What can go wrong between a caller and an engine.

Every error says which engine, which call, and what is known of the effect. The classes differ in what the caller may
conclude, because that is what a coordinator has to decide on:

* the engine never heard of the call: `EngineUnreachable`, `CallRefused`, `CheckpointRejected`;
* the engine heard it and said no: `EngineRefused` and its subclasses;
* nobody knows: `EngineLost`, `EngineTimeout`. The effect may or may not have happened.

All of them can be pickled, for an engine may be asked in another process. Python rebuilds an exception from its text
alone unless it says otherwise, which those that hold more do.
"""

# ruff: noqa: N818  The names say what happened to the call, which is what a reader of an `except` wants to know.

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from reef_ref.engines.interface import Update

    Rebuilt = tuple[type["EngineError"], tuple[object, ...]]

__all__ = [
    "AdapterRejected",
    "CallRefused",
    "CheckpointRejected",
    "EngineError",
    "EngineLost",
    "EngineNotSupported",
    "EngineRefused",
    "EngineStartFailed",
    "EngineTimeout",
    "EngineUnreachable",
    "FlushRefused",
    "GenerationFailed",
    "UpdateFailed",
]


class EngineError(Exception):
    """Any failure of a call to an engine; its text is one line that says what, where and what is known."""


class EngineUnreachable(EngineError):
    """Nothing listens at the engine's address: the call had no effect, and repeating it at once is useless."""


class EngineLost(EngineError):
    """The connection broke while the call was under way: its effect is unknown."""


class EngineTimeout(EngineError):
    """The engine did not answer within the bound: its effect is unknown."""


class EngineNotSupported(EngineError):
    """The engine answers, but is of a kind whose answers would not mean what this interface promises."""


class EngineStartFailed(EngineError):
    """A server process did not come up; the text ends with the last lines of its log."""


class CallRefused(EngineError):
    """The call was out of order and was never sent, because the engine would not survive it or would answer wrongly."""


class CheckpointRejected(EngineError):
    """A checkpoint on disk is missing, truncated, or does not have the tensors that the engine serves."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"checkpoint {path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> Rebuilt:
        return type(self), (self.path, self.reason)


class AdapterRejected(CheckpointRejected):
    """An adapter on disk is missing or broken."""


class EngineRefused(EngineError):
    """The engine answered no."""

    def __init__(self, call: str, address: str, status: int, message: str) -> None:
        super().__init__(f"{call} at {address}: refused with status {status}: {message}")
        self.call = call
        self.address = address
        self.status = status
        self.message = message

    def __reduce__(self) -> Rebuilt:
        return type(self), (self.call, self.address, self.status, self.message)


class GenerationFailed(EngineRefused):
    """A request was answered with an error instead of tokens."""


@dataclass(frozen=True, slots=True)
class FlushAttempts:
    """How a flush was tried: number of tries and the seconds from the first to the last."""

    tries: int
    seconds: float


class FlushRefused(EngineRefused):
    """The cache could not be cleared within the bound: the last refusal's text is part of the error."""

    def __init__(self, address: str, status: int, message: str, attempts: FlushAttempts) -> None:
        super().__init__("flush", address, status, message)
        self.attempts = attempts

    def __reduce__(self) -> Rebuilt:
        return type(self), (self.address, self.status, self.message, self.attempts)

    def __str__(self) -> str:
        return (
            f"flush at {self.address}: refused {self.attempts.tries} times in {self.attempts.seconds:.1f} s, "
            f"last with status {self.status}: {self.message}"
        )


class UpdateFailed(EngineRefused):
    """A weight update did not succeed; `result` says what is known of the weights and, separately, of the cache."""

    def __init__(self, address: str, status: int, message: str, result: Update) -> None:
        super().__init__("update", address, status, message)
        self.result = result

    def __reduce__(self) -> Rebuilt:
        return type(self), (self.address, self.status, self.message, self.result)
