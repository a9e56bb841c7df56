"""Files and folders that are there whole or not at all, whenever the process is killed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["remove_file", "replace_file", "whole_folder"]

_UNFINISHED = ".unfinished"
"""How names end of what is not there yet."""


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file's bytes; they are on the disk when this returns."""
    temporary = path.with_name(path.name + _UNFINISHED)
    temporary.write_bytes(data)
    _sync(temporary)
    os.replace(temporary, path)
    _sync(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file; it is gone from the disk when this returns."""
    path.unlink()
    _sync(path.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A new folder to write to, which gets its name when the block ends well, with all its bytes on the disk.

    What an earlier try left unfinished is removed. A failure leaves nothing under the name.
    """
    temporary = path.with_name(path.name + _UNFINISHED)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    yield temporary
    for file in sorted(temporary.rglob("*"), reverse=True):
        _sync(file)
    _sync(temporary)
    os.rename(temporary, path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
