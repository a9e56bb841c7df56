"""Sizes of memory as people write them."""

from __future__ import annotations

import re

import typer

UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
LEAST = 64 << 20
"""Bytes that a search needs for its buffers in any world worth exploring."""


def size(text: str) -> int:
    """Bytes of ``512MiB`` or ``1.5GiB``.

    Raises:
        BadParameter: the text is no size, or one too small to work with.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?([MGT]iB)", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a size; 2GiB and 512MiB are")
    number = int(float(found[1]) * UNITS[found[2]])
    if number < LEAST:
        raise typer.BadParameter(f"{text} is too little; 64MiB is the least")
    return number


__all__ = ["size"]
