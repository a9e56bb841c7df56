"""TLC, the checker of TLA+, on an exported protocol."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from model_check.export.tla import files, module_name
from model_check.process import Failed, run, tool
from spec.lang import Protocol, Scope

VIOLATED = 12
"""The exit status of TLC where an invariant is violated; where a property of steps is, one more."""

EVENTUALITY = "an eventuality"
"""What is violated where TLC says no more than that one of the temporal properties is."""
QUICK = ("-Xmx1g", "-XX:+UseParallelGC", "-XX:TieredStopAtLevel=1")
"""Java's options for small worlds, where compiling well takes longer than running."""


@dataclass(frozen=True)
class Checked:
    """What TLC found: distinct states, as far as it went, and the first claim that fails, if any does."""

    states: int
    violated: str


def check(protocol: Protocol, scope: Scope, jar: Path, *, fair: bool = False, limit: float = 600.0) -> Checked:
    """Export a protocol, and let TLC check it in a scope.

    Args:
        protocol: the protocol.
        scope: the world.
        jar: tla2tools.jar.
        fair: look at what happens in the end on fair runs, and at nothing else.
        limit: seconds.

    Raises:
        Missing: Java is not installed.
        Failed: TLC cannot read the module, or is not done in time.
    """
    name = module_name(protocol)
    with tempfile.TemporaryDirectory(prefix="tlc-") as place:
        folder = Path(place)
        for file, text in files(protocol, [scope]).items():
            (folder / file).write_text(text)
        options = [
            "-deadlock",
            "-workers",
            "1",
            "-metadir",
            place,
            "-config",
            f"{name}_{scope.name}{'_fair' if fair else ''}.cfg",
        ]
        java = [tool("java", "default-jre-headless"), f"-Djava.io.tmpdir={place}", *QUICK]
        finished = run(
            [*java, "-cp", jar, "tlc2.TLC", *options, f"{name}.tla"],
            limit=limit,
            folder=folder,
            codes=(0, VIOLATED, VIOLATED + 1),
        )
    states = re.findall(r"(\d+) distinct states found", finished.output.replace(",", ""))
    broken = re.search(r"(?:Invariant|Action property) (\w+)|(Temporal) properties were violated", finished.output)
    if not states:
        raise Failed("TLC: counts no states")
    return Checked(int(states[-1]), (broken[1] or EVENTUALITY) if broken else "")
