"""A run as a table, and what its end says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.table import Table

from examples.rl_loop.head import Step
from examples.rl_loop.learning import LEAST_STEPS, Judgement
from reef_ref.load_id import LoadId
from reef_ref.monitor.validate import Report

__all__ = ["conclusion", "table"]

BAR = 16


def table(steps: Sequence[Step]) -> Table:
    """One row a step."""
    shown = Table(title="steps", title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in ("step", "load", "reward", "± s.e.", "samples", "across", "dropped", "cached"):
        shown.add_column(column, justify="right")
    shown.add_column("")
    for step in steps:
        learned = step.learned
        rewards = learned.rewards
        shown.add_row(
            str(step.number),
            str(LoadId.parse(step.load_id).sequence),
            f"{rewards.mean:.3f}",
            f"{rewards.deviation / rewards.count**0.5:.3f}",
            str(rewards.count),
            str(learned.across),
            str(sum(learned.dropped.values())),
            f"{learned.cached_tokens / learned.prompt_tokens:.0%}",
            "█" * round(BAR * rewards.mean),
        )
    return shown


def conclusion(steps: Sequence[Step], trace: Report, judgement: Judgement | None) -> Sequence[str]:
    """What a whole run says, in lines."""
    learned = [step.learned for step in steps]
    samples, across = sum(one.rewards.count for one in learned), sum(one.across for one in learned)
    dropped = sum((Counter(one.dropped) for one in learned), Counter[str]())
    reasons = "".join(f", {count} {reason}" for reason, count in sorted(dropped.items()))
    lives = len({LoadId.parse(step.load_id).incarnation for step in steps})
    ids = f"{steps[0].load_id} to {LoadId.parse(steps[-1].load_id).sequence}" if lives == 1 else f"{lives} incarnations"
    return (
        f"publications: {len(steps)}, load ids {ids}",
        f"samples: {samples} learned from, {across} of them across a publication; {dropped.total()} dropped{reasons}",
        f"stale slots: 0 of {sum(one.slots_checked for one in learned):,} reused KV slots compared",
        f"trace: {trace.verdict.value}, {trace.events:,} events of {trace.engines} engines",
        str(judgement) if judgement else f"reward: not judged, of fewer than {LEAST_STEPS} steps nothing is concluded",
    )
