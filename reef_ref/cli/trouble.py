"""What ends a command early, and what its exit status says."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable

import typer


class Status(enum.IntEnum):
    """Exit statuses."""

    HOLDS = 0
    VIOLATED = 1
    BAD_INPUT = 2
    UNDETERMINED = 3


class Trouble(Exception):  # noqa: N818 - read as a word
    """Why a command cannot go on, in one line: what, where, and what would be right."""

    def __init__(self, message: str, status: Status = Status.BAD_INPUT) -> None:
        super().__init__(" ".join(message.split()))
        self.status = status


def unknown(what: str, given: str, known: Iterable[str], where: str = "") -> Trouble:
    """Trouble with a name that nothing has, and the names that it may have been meant for."""
    names = list(known)
    close = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    if not names:
        hint = "there is none"
    elif close:
        hint = f"did you mean {' or '.join(close)}?"
    else:
        hint = f"there {'is' if len(names) == 1 else 'are'} {', '.join(names)}"
    return Trouble(f"no {what} {given!r}{f' of {where}' if where else ''}: {hint}")


def usage_errors() -> type[Exception]:
    """What the argument parser raises: it is not exported under one name by every version of typer."""
    return next(
        base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException" and issubclass(base, Exception)
    )


__all__ = ["Status", "Trouble", "unknown", "usage_errors"]
