"""What was measured, as a file, and as the README shows it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.engine import cost, publishing
from benchmarks.engine.cost import Cost
from benchmarks.engine.gain import Gain
from benchmarks.engine.publishing import Publishing
from reef_ref.cli.output import write

__all__ = ["SECTION", "Machine", "Results", "as_markdown", "keep", "read", "this_machine"]

SECTION = "engine"
"""The name of the README's section."""


@dataclass(frozen=True)
class Machine:
    """Where it was measured."""

    cores: int
    architecture: str
    sglang: str
    torch: str


@dataclass(frozen=True)
class Results:
    """Everything that one run measured; a part that was not asked for is empty."""

    machine: Machine
    rounds: int
    costs: tuple[Cost, ...] = ()
    gains: tuple[Gain, ...] = ()
    publishing: Publishing | None = None


_ADAPTER = TypeAdapter(Results)


def this_machine() -> Machine:
    """The machine and what is installed on it."""
    return Machine(os.cpu_count() or 1, platform.machine(), version("sglang"), version("torch"))


def read(path: Path) -> Results:
    """Results from a file. Raises `pydantic.ValidationError`."""
    return _ADAPTER.validate_json(path.read_bytes())


def keep(path: Path, results: Results) -> None:
    """Put results into a file, whole or not at all."""
    write(path, _ADAPTER.dump_json(results, indent=2).decode() + "\n")


def as_markdown(results: Results) -> str:
    """Tables of what was measured, with whether it keeps to its goal."""
    machine = results.machine
    where = f"{machine.cores} cores ({machine.architecture}), SGLang {machine.sglang}, torch {machine.torch}"
    parts = [f"Measured on {where}, in one run, in {results.rounds} pairs: median (quartiles)."]
    if results.costs:
        parts.append("\n".join(_cost_rows(results)))
    if results.gains:
        parts.append("\n".join(_gain_rows(results)))
    if (found := results.publishing) is not None:
        verdict = "within" if found.within_goal else "not within"
        times = f"{found.coordinator_ms:.0f} ms and {found.bare_ms:.0f} ms"
        parts.append(
            f"A publication of {found.megabytes:.0f} MB by the coordinator takes {found.of_bare.text(3)} times as long "
            f"as the bare {found.calls} SGLang calls that it makes ({times}): {verdict} the goal of {publishing.GOAL}."
        )
    return "\n\n".join(parts)


def _cost_rows(results: Results) -> Iterator[str]:
    yield f"| load | provenance | requests/s | tokens/s | times as long as off | within {cost.GOAL:.0%} |"
    yield "|---|---|--:|--:|--:|---|"
    for found in results.costs:
        speed = f"{found.requests_per_second:.2f} | {found.tokens_per_second:,.0f}"
        off = found.mode == "off"
        verdict = "" if off else "yes" if found.within_goal else "no"
        yield f"| {found.load} | {found.mode} | {speed} | {'' if off else found.of_off.text(3)} | {verdict} |"


def _gain_rows(results: Results) -> Iterator[str]:
    yield "| conversations of agents | first token, median | 90th percentile | prompt tokens computed |"
    yield "|---|--:|--:|--:|"
    for found in results.gains:
        share = found.computed_tokens / found.prompt_tokens
        yield (
            f"| {found.variant} | {found.first_token_ms_median:.0f} ms | {found.first_token_ms_p90:.0f} ms "
            f"| {found.computed_tokens:,} of {found.prompt_tokens:,} ({share:.0%}) |"
        )
