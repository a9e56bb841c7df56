"""Lives of the training loop that kill themselves, one after the other.

    python -m tests.engine.rl_loop_life FOLDER STEPS ENGINES WHEN:COUNT...

`WHEN` is the name of an event, "event" for any, or "saving": a checkpoint whose folder has no name yet. At the
`COUNT`-th time in its life, counted from 1, a life sends itself SIGKILL. `ENGINES` is a file of running engines; "-":
its own. How each life ended is printed, and how many steps were committed then.

Every life is a process of its own, forked from one that has only imported what they need: that takes most of the time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from pathlib import Path

from examples.rl_loop import policy
from examples.rl_loop.engines import read_attached
from examples.rl_loop.head import Head
from examples.rl_loop.loop import run
from examples.rl_loop.settings import Places, Settings
from reef_ref import events

LIFE_S = 300
"""Bound of a life, in seconds; SIGALRM ends it."""
SURVIVED, FAILED = 0, 70


class Death:
    """Comes at the `count`-th time that it is called for."""

    def __init__(self, when: str, count: int) -> None:
        self.when = when
        self._left = count

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def listen(self, line: events.Line) -> None:
        if self.when in ("event", line.event.name()):
            self()


def live(places: Places, steps: int, engines: str, death: Death) -> None:
    """One life."""
    settings = Settings.model_validate_json(places.settings.read_bytes())
    attached = () if engines == "-" else read_attached(Path(engines))
    if death.when == "saving":
        write = policy.save_file

        def write_and_die(*args: object) -> None:
            write(*args)
            death()

        policy.save_file = write_and_die

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    asyncio.run(run(settings, places, steps, engines=attached, listener=death.listen, say=say))


def forked(places: Places, steps: int, engines: str, death: Death) -> int:
    """One life in a process of its own; how it ended, as `subprocess` tells it."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)
    signal.alarm(LIFE_S)
    ended = FAILED
    try:
        live(places, steps, engines, death)
        ended = SURVIVED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(ended)


if __name__ == "__main__":
    where = Places(Path(sys.argv[1]))
    for argument in sys.argv[4:]:
        name, _, number = argument.partition(":")
        status = forked(where, int(sys.argv[2]), sys.argv[3], Death(name, int(number)))
        print(argument, status, len(Head(where.head).steps), flush=True)
