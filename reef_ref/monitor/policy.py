"""What is done about a violation: a reaction for each property."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from reef_ref.monitor.notice import CONFORMS, Violation
from reef_ref.monitor.ranks import DECIDED

__all__ = ["PROPERTIES", "BadPolicy", "Policy", "Reaction"]

LARGEST_FILE = 1 << 16
"""Bytes; a longer file is no policy."""


class Reaction(StrEnum):
    """From the least to the most that can be done."""

    REPORT = "report"
    """Say it."""
    FENCE = "fence"
    """Pause the engine and empty its cache, then let it generate again."""
    RETIRE = "retire"
    """Take the engine out of service."""
    HALT = "halt"
    """Pause every engine and leave it so, for a person to look."""


PROPERTIES = (*DECIDED, CONFORMS)
"""What can be found violated."""


class BadPolicy(ValueError):  # noqa: N818  The name says what was found.
    """A policy cannot be read; the message says what is wrong and what would be right."""


class _File(BaseModel):
    """`reactions` by property; `otherwise` for those that are not named."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reactions: dict[str, Reaction] = {}
    otherwise: Reaction = Reaction.REPORT


class Policy:
    """A reaction for each property: fence for a stale hit, report for the rest, unless told otherwise."""

    def __init__(self, reactions: Mapping[str, Reaction] | None = None, otherwise: Reaction = Reaction.REPORT) -> None:
        reactions = reactions or {}
        for name in reactions:
            if name not in PROPERTIES:
                raise BadPolicy(f"unknown property {name!r}: one of {', '.join(PROPERTIES)}")
        self._otherwise = otherwise
        self.reactions = MappingProxyType({"no_stale_hit": Reaction.FENCE, **reactions})
        """Where it is not `otherwise`."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a YAML file: `reactions`, a mapping of properties, and `otherwise`.

        Raises:
            BadPolicy: it is none.
            OSError: it cannot be read.
        """
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_FILE + 1)
        if len(raw) > LARGEST_FILE:
            raise BadPolicy(f"longer than {LARGEST_FILE:,} bytes")
        try:
            found = _File.model_validate(yaml.safe_load(raw) or {})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise BadPolicy(f"{where}: {first['msg']}") from error
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise BadPolicy(" ".join(str(error).split())) from error
        return cls(found.reactions, found.otherwise)

    @classmethod
    def of(cls, sayings: list[str], base: Policy | None = None) -> Self:
        """From `property=reaction`, over `base`.

        Raises:
            BadPolicy: one of them is not of that form.
        """
        reactions = dict(base.reactions) if base else {}
        for saying in sayings:
            name, _, reaction = saying.partition("=")
            try:
                reactions[name] = Reaction(reaction)
            except ValueError:
                raise BadPolicy(f"{saying!r}: write PROPERTY={'|'.join(Reaction)}") from None
        return cls(reactions, base._otherwise if base else Reaction.REPORT)

    def reaction(self, violation: Violation) -> Reaction:
        """What to do about a violation. What the engine has stopped itself is only reported."""
        if violation.stopped:
            return Reaction.REPORT
        return self.reactions.get(violation.property, self._otherwise)
