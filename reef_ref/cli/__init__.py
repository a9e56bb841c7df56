"""The command line: the composition root. It may know every part; no part knows it.

Only what parses the arguments is imported here. A command imports what it needs when it runs, so that `--help` answers
at once.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

from reef_ref.cli.app import app
from reef_ref.cli.trouble import Status, Trouble, usage_errors


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and answer its exit status.

    0 holds, 1 violated, 2 bad usage or input, 3 undetermined. Trouble is one line on standard error.
    """
    from typer.main import get_command

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        answer = get_command(app).main(
            args=None if args is None else list(args), prog_name="reef-ref", standalone_mode=False
        )
        sys.stdout.flush()
    except Trouble as trouble:
        print(f"reef-ref: {trouble}", file=sys.stderr)
        return trouble.status
    except usage_errors() as error:
        print(_usage(error), file=sys.stderr)
        return Status.BAD_INPUT
    except BrokenPipeError:
        return _unread()
    except SystemExit as stop:
        # The argument parser makes 1 of a broken pipe, which here would say that something is violated.
        if isinstance(stop.__context__, OSError) and stop.__context__.errno == errno.EPIPE:
            return _unread()
        raise
    return answer if isinstance(answer, int) else Status.HOLDS


def _unread() -> Status:
    """Whoever read the report went away: what is left of it goes somewhere quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    return Status.UNDETERMINED


def _usage(error: BaseException) -> str:
    """A usage error in one line; where no command was given, the help text that stands for it."""
    message: str = getattr(error, "format_message", lambda: str(error))()
    if type(error).__name__ == "NoArgsIsHelpError":
        return message
    return f"reef-ref: {' '.join(message.split())}"


__all__ = ["main"]
