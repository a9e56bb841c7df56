"""A life of the training loop that kills itself.

    python -m tests.engine.rl_loop_life FOLDER STEPS ENGINES WHEN COUNT

`WHEN` is the name of an event, "event" for any, or "saving": a checkpoint whose folder has no name yet. At the
`COUNT`-th time, counted from 1, the process sends itself SIGKILL. `ENGINES` is a file of running engines; "-": its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from examples.rl_loop import policy
from examples.rl_loop.engines import read_attached
from examples.rl_loop.loop import run
from examples.rl_loop.settings import Places, Settings
from reef_ref import events


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


def main(folder: Path, steps: int, engines: str, death: Death) -> None:
    places = Places(folder)
    settings = Settings.model_validate_json(places.settings.read_bytes())
    attached = () if engines == "-" else read_attached(Path(engines))
    if death.when == "saving":
        write = policy.save_file

        def write_and_die(*args: object) -> None:
            write(*args)
            death()

        policy.save_file = write_and_die
    asyncio.run(run(settings, places, steps, engines=attached, listener=death.listen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Death(sys.argv[4], int(sys.argv[5])))
