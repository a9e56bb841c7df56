"""Reads a configuration from a YAML file: data only, no key twice, nothing that surprises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 1 << 20
"""Longest file that is read, in bytes."""

MAX_DEPTH = 40
"""Most levels of nesting. A configuration has seven."""


class UnreadableError(Exception):
    """Why a file gave no configuration, in one line."""


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which refuses a key that a mapping gives twice: the last one would win in silence."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, if it is not nested too deeply."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"is nested deeper than {MAX_DEPTH} levels", parent.start_mark if parent else None
            )
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node, whose own keys differ. Merged ones may be overridden."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                name = (key.tag, key.value)
                if name in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value!r} is given twice; keep one", key.start_mark
                    )
                seen.add(name)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str | bytes) -> object:
    """The value that one YAML document describes.

    Raises:
        UnreadableError: it is not one document of plain YAML.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise UnreadableError(f"{where}{error.problem or error.context or 'is no YAML'}") from error
    except yaml.YAMLError as error:
        raise UnreadableError(f"is no YAML: {_one_line(error)}") from error
    except Exception as error:  # Explicitly tagged scalars fail in many ways: !!bool maybe, !!timestamp x, !!int ''.
        raise UnreadableError(f"has a value that does not fit its tag: {_one_line(error)}") from error


def read_yaml(path: Path) -> object:
    """The value in a file.

    Raises:
        UnreadableError: it cannot be read, is longer than `MAX_BYTES`, or is not one document of plain YAML.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(text) > MAX_BYTES:
        raise UnreadableError(f"is longer than {MAX_BYTES:,} bytes, and no configuration is")
    return parse_yaml(text)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:117] + "..."


__all__ = ["MAX_BYTES", "MAX_DEPTH", "UnreadableError", "parse_yaml", "read_yaml"]
