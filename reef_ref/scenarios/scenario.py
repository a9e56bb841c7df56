"""What a scenario is, and what running one leaves behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reef_ref.scenarios.stage import Stage

__all__ = ["Check", "Outcome", "Scenario"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing seen, what it must be, and whether it is; `required` is None for a figure that is only shown."""

    label: str
    seen: Any
    required: str | None
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A named story on real engines.

    `shows` says in one sentence what must be seen, `cases` names the public reports that it covers. `engines` is the
    number of scheduler processes that it runs at once; the runner never exceeds the machine's.
    """

    name: str
    shows: str
    run: Callable[[Stage], Awaitable[None]]
    cases: tuple[str, ...] = ()
    engines: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one run of a scenario saw; `error` is the reason why it could not be carried through."""

    scenario: Scenario
    checks: Sequence[Check]
    seconds: float
    error: str | None = None

    @property
    def holds(self) -> bool:
        """Whether the scenario was carried through and everything was as it must be; nothing seen is not enough."""
        return self.error is None and bool(self.checks) and all(check.holds for check in self.checks)
