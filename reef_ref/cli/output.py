"""Where reports and progress go: a file all at once or not at all, progress to a terminal or nowhere."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from reef_ref.cli.trouble import Trouble

if TYPE_CHECKING:
    from rich.console import Console

    from model_check.explore import Progress

WIDTH = 100
"""Columns of text that goes to no terminal."""


def check_writable(path: Path | None, option: str = "--output") -> None:
    """Find out before long work whether a report can be written; `option` is what names the file.

    Raises:
        Trouble: it cannot.
    """
    if path is None or _special(path):
        return
    if path.is_dir():
        raise Trouble(f"{option} {path}: is a folder; name a file in it")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise Trouble(f"{option} {path}: the folder {folder} does not exist; make it first")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(path, option, error) from error


def write(path: Path, text: str, option: str = "--output") -> None:
    """Put a text in place of a file, whole: a reader sees the old one or the new one.

    Raises:
        Trouble: it cannot be written.
    """
    try:
        if _special(path):
            path.write_text(text, encoding="utf-8")
            return
        target = path.resolve()
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, _mode(target))
            os.replace(name, target)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise _unwritable(path, option, error) from error


def _special(path: Path) -> bool:
    """A device or a pipe, which cannot be put in place of."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _mode(target: Path) -> int:
    """The permissions that the file has, or that a new one would get."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritable(path: Path, option: str, error: OSError) -> Trouble:
    return Trouble(f"{option} {path}: cannot be written: {error.strerror or error}")


def plain(draw: Callable[[Console], None]) -> str:
    """What `draw` prints, as text for no terminal."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False)
    draw(console)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def display(draw: Callable[[Console], None]) -> None:
    """Print to standard output, in the terminal's width and colours if it is one."""
    if sys.stdout.isatty():
        from rich.console import Console

        draw(Console(highlight=False))
    else:
        sys.stdout.write(plain(draw))


@contextmanager
def progress(first: str) -> Iterator[Callable[[Progress], None] | None]:
    """A status line on a terminal's standard error, and what updates it; none where nobody looks."""
    with status(first) as update:
        yield None if update is None else lambda now: update(_line(now))


@contextmanager
def status(first: str) -> Iterator[Callable[[str], None] | None]:
    """A status line on a terminal's standard error, and what changes its text; none where nobody looks."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    with console.status(escape(first)) as line:
        yield lambda text: line.update(escape(text))


def _line(now: Progress) -> str:
    speed = now.states / now.seconds / 1e6 if now.seconds > 0.2 else 0.0
    rate = f", {speed:.1f} M states/s" if speed >= 0.1 else ""
    fringe = f" ({now.frontier:,} at it)" if now.frontier else ""
    return f"{now.doing}: {now.states:,} states, depth {now.depth}{fringe}{rate}"


__all__ = ["check_writable", "display", "plain", "progress", "status", "write"]
