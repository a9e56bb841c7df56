"""How the scheduler of this process is paused: what SGLang's own flag does not say.

SGLang 0.5.23 keeps whether it is paused (`Scheduler._engine_paused`), not in which mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RETRACT = "retract"


class PauseHooks:
    """Remembers the mode of the pause, from after it has succeeded until generation is to go on.

    Args:
        paused: called with the mode after a pause.
        continued: called after generation went on.
    """

    def __init__(self, paused: Callable[[str], None], continued: Callable[[], None]) -> None:
        self.mode: str | None = None
        """The mode of the pause; none outside one."""
        self._paused = paused
        self._continued = continued

    def hooks(self) -> dict[str, Any]:
        """Method of `Scheduler` to the hook around it."""
        return {"pause_generation": self.pause_generation, "continue_generation": self.continue_generation}

    def pause_generation(self, original: Any, scheduler: Any, request: Any) -> Any:
        """Remember the mode once the pause has succeeded."""
        answer = original(scheduler, request)
        self.mode = request.mode
        self._paused(request.mode)
        return answer

    def continue_generation(self, original: Any, scheduler: Any, request: Any) -> Any:
        """Forget the mode, even where SGLang's own part fails: the strict idle check is the safe one."""
        self.mode = None
        answer = original(scheduler, request)
        self._continued()
        return answer
