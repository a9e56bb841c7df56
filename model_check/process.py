"""One program run as a child: its output, its time, its peak memory, and a bound on all of it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class Failed(Exception):  # noqa: N818 - read as a word
    """A program ended badly, or did not end in time; the message is one line."""


class Missing(Exception):  # noqa: N818 - read as a word
    """A tool is not here; the message says what to install."""


def tool(name: str, package: str = "") -> str:
    """Where a program is. Debian's package is called `package`, or as it is.

    Raises:
        Missing: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise Missing(f"apt-get install {package or name}")
    return found


@dataclass(frozen=True)
class Finished:
    """What a program did. `seconds` is wall time, `peak` the most memory it held at once in bytes.

    A child starts with the memory of the process that starts it, which is forgotten when its program is loaded except
    for the peak: below this process's own peak, a child's is not known, and `peak` is none.
    """

    output: str
    errors: str
    seconds: float
    peak: int | None


def run(
    command: Sequence[str | Path],
    *,
    limit: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    codes: Sequence[int] = (0,),
) -> Finished:
    """Run a program to its end.

    Raises:
        Failed: it could not be started, took more than `limit` seconds, or ended with a code not among `codes`.
    """
    words = [str(word) for word in command]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(environment or {})},
            )
        except OSError as error:
            raise Failed(f"{words[0]}: {error.strerror}") from None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            timer.cancel()
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output, errors = _text(out), _text(err)
    if late.is_set():
        raise Failed(f"{words[0]}: not done after {limit:g} seconds")
    if process.returncode not in codes:
        last = (errors.strip() or output.strip() or "no message").splitlines()[-1]
        raise Failed(f"{words[0]}: ended with {process.returncode}: {last}")
    return Finished(output, errors, seconds, usage.ru_maxrss * 1024 if usage.ru_maxrss > _own_peak() else None)


def _own_peak() -> int:
    """The most memory of this program, in KiB; `getrusage` may say that of the one that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return bytes(file.read()).decode(errors="replace")  # type: ignore[attr-defined]
