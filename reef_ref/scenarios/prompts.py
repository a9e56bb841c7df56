"""Prompts and schemas, the same in every run."""

from __future__ import annotations

import json
import random
from typing import Any

__all__ = ["LONG_PROMPT", "conforms", "pending_schema", "prompt", "small_schema"]

FIRST_ORDINARY_TOKEN = 3
VOCABULARY = 512
LONG_PROMPT = 2189
"""Length of the long prompt, in tokens."""


def prompt(seed: int, length: int) -> tuple[int, ...]:
    """`length` random token ids; different seeds share no prefix worth speaking of."""
    draw = random.Random(seed)
    return tuple(draw.randrange(FIRST_ORDINARY_TOKEN, VOCABULARY) for _ in range(length))


def small_schema(fields: int, tag: str) -> str:
    """A JSON schema of required booleans, so that even a random model has to close the object."""
    names = [f"{tag}{number}" for number in range(fields)]
    return _object({name: {"type": "boolean"} for name in names}, required=names)


def conforms(text: str, schema: str) -> bool:
    """Whether `text` is an object with exactly the booleans that `small_schema` asks for."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    names = json.loads(schema)["required"]
    return isinstance(value, dict) and list(value) == names and all(isinstance(item, bool) for item in value.values())


def pending_schema(fields: int, tag: str) -> str:
    """A JSON schema of optional integers: its compilation time grows with the square of the fields (xgrammar)."""
    return _object({f"{tag}{number}": {"type": "integer"} for number in range(fields)}, required=[])


def _object(properties: dict[str, Any], required: list[str]) -> str:
    return json.dumps({"type": "object", "properties": properties, "required": required, "additionalProperties": False})
