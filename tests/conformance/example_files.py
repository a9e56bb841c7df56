"""An example file for every row of the sharing table: `python -m tests.conformance.example_files` writes them anew.

Each is the plainest configuration that the row decides.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from spec.sharing import (
    TABLE,
    Accepted,
    Case,
    Engines,
    Flag,
    Keys,
    Lora,
    Memory,
    Pause,
    Refused,
    Role,
    Row,
    Trouble,
    cases,
)
from tests.conformance.configurations import configuration

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "configs"

PLAIN = (
    ("engines", Engines.OWNED),
    ("role", Role.REGULAR),
    ("pause", Pause.RETRACT),
    ("memory", Memory.KEPT),
    ("lora", Lora.OFF),
    ("flag", Flag.UNSET),
    ("group_flag", Flag.UNSET),
    ("group_lora", Lora.UNSET),
    ("keys", Keys.SCOPED),
)

LOUD = 7
"""No row needs a case with more than this that is not plain."""


def _noise(case: Case) -> int:
    return sum(1 for column, value in PLAIN if getattr(case, column) is not value) + 3 * len(case.troubles)


@cache
def plainest() -> tuple[tuple[Row, Case], ...]:
    """Every row with the plainest case that it decides."""
    found: dict[int, Case] = {}
    for case in cases([frozenset(), *(frozenset({trouble}) for trouble in Trouble)]):
        if _noise(case) > LOUD:
            continue
        number = next(i for i, row in enumerate(TABLE) if row.fits(case))
        if number not in found or _noise(case) < _noise(found[number]):
            found[number] = case
    return tuple((row, found[number]) for number, row in enumerate(TABLE))


def examples() -> dict[Path, tuple[Row, Case]]:
    """Every example's path within `FOLDER`, with its row and case."""
    taken: Counter[str] = Counter()
    paths = {}
    for row, case in plainest():
        match row.outcome:
            case Refused(rule):
                name = f"bad/{rule.value}"
            case Accepted(everybody, None):
                name = f"good/{everybody.rule.value}-bare"
            case Accepted(everybody, group) if group is not None:
                name = f"good/{everybody.rule.value}-group-{group.rule.value}"
        taken[name] += 1
        paths[Path(f"{name}{f'-{taken[name]}' if taken[name] > 1 else ''}.yaml")] = (row, case)
    return paths


def text(row: Row, case: Case) -> str:
    """The file of an example."""
    match row.outcome:
        case Refused(rule):
            says = f"Refused by {rule.value}."
        case Accepted(everybody, group):
            says = (
                f"Accepted: disable_radix_cache is {_word(everybody.disabled)} for all engines ({everybody.rule.value})"
            )
            if group is not None:
                says += f"\n# and {_word(group.disabled)} for the group ({group.rule.value})"
            says += "."
    keys = "yes" if case.keys is Keys.SCOPED else "no"
    asked = f"# Judged with --adapter-keys {keys}.\n" if Lora.ON in (case.lora, case.group_lora) else ""
    return f"# {says}\n{asked}{yaml.safe_dump(_said(configuration(case)), sort_keys=False)}"


def _word(value: bool) -> str:
    return str(value).lower()


def _said(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what is so anyway."""
    settings = {name: value for name, value in settings.items() if value is not False and value != {}}
    settings["models"] = [
        model | {"groups": [{name: value for name, value in group.items() if value != {}} for group in model["groups"]]}
        for model in settings.get("models", [])
    ]
    if not settings["models"]:
        del settings["models"]
    return settings


def main() -> None:
    """Write every example; remove none."""
    for path, (row, case) in examples().items():
        (FOLDER / path).write_text(text(row, case), encoding="utf-8")


if __name__ == "__main__":
    main()
