"""Load ids: the name of one complete act of making bytes the serving weights.

`incarnation:sequence`. An incarnation is one life of a coordinator, or of the one whose record it adopted; sequences
grow inside it. Ids of different incarnations cannot be ordered, and asking for it is an error, not a guess. On SGLang's
wire the id is called `weight_version`.

Source: reef-semantics section 1.7.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

__all__ = ["DifferentIncarnations", "LoadId", "MalformedLoadId", "new_incarnation"]

_SEQUENCE = re.compile(r"[0-9]+", re.ASCII)
LONGEST_SEQUENCE = 18
"""Decimal digits of a sequence; more than any life can use, and few enough for a 64-bit integer elsewhere."""


class MalformedLoadId(ValueError):  # noqa: N818  The name says what is wrong with the text.
    """A text is not a load id."""


class DifferentIncarnations(ValueError):  # noqa: N818  As above.
    """Two load ids of different incarnations were to be ordered."""


@dataclass(frozen=True, slots=True)
class LoadId:
    """One load: the incarnation that minted it, and its number there."""

    incarnation: str
    sequence: int

    def __post_init__(self) -> None:
        if not self.incarnation or not self.incarnation.isprintable() or self.incarnation != self.incarnation.strip():
            message = f"incarnation must be printable text without blanks at its ends, got {self.incarnation!r}"
            raise MalformedLoadId(message)
        if ":" in self.incarnation:
            message = f"incarnation must not hold a colon, got {self.incarnation!r}"
            raise MalformedLoadId(message)
        if not 0 <= self.sequence < 10**LONGEST_SEQUENCE:
            message = f"sequence must have at most {LONGEST_SEQUENCE} digits and no sign, got {self.sequence}"
            raise MalformedLoadId(message)

    @classmethod
    def parse(cls, text: str) -> LoadId:
        """Read `incarnation:sequence`, split at the last colon; `MalformedLoadId` says what is wrong.

        There is one spelling: a sequence with leading zeros is refused, or two texts would name one load.
        """
        incarnation, colon, sequence = text.rpartition(":")
        if not colon:
            message = f"load id {text!r} has no colon; expected incarnation:sequence"
            raise MalformedLoadId(message)
        if not _SEQUENCE.fullmatch(sequence) or (len(sequence) > 1 and sequence.startswith("0")):
            message = f"load id {text!r}: sequence {sequence!r} is not a plain decimal number"
            raise MalformedLoadId(message)
        if len(sequence) > LONGEST_SEQUENCE:
            message = f"load id {text!r}: sequence has more than {LONGEST_SEQUENCE} digits"
            raise MalformedLoadId(message)
        return cls(incarnation, int(sequence))

    def next(self) -> LoadId:
        """The load after this one, in the same incarnation."""
        return LoadId(self.incarnation, self.sequence + 1)

    def precedes(self, other: LoadId) -> bool:
        """Whether this load is older; `DifferentIncarnations` if that cannot be said."""
        if self.incarnation != other.incarnation:
            message = f"{self} and {other} are of different incarnations and have no order"
            raise DifferentIncarnations(message)
        return self.sequence < other.sequence

    def __str__(self) -> str:
        return f"{self.incarnation}:{self.sequence}"


def new_incarnation() -> str:
    """A name for this life of the coordinator that no other life has."""
    return uuid.uuid4().hex
