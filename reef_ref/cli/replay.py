"""`reef-ref replay`."""

from __future__ import annotations

from pathlib import Path

from model_check.itf import BadTrace, read_itf, violations
from reef_ref.cli.catalogue import build_mutant, find_mutant, find_protocol, find_scope
from reef_ref.cli.trouble import Status, Trouble


def run_replay(trace: Path, protocol: str, scope: str | None, *, mutant: str | None) -> Status:
    """Replay a trace, and answer 0 where it is a run that violates nothing, and 1 where it is one that does."""
    found = find_protocol(protocol)
    world = None if scope is None else find_scope(protocol, scope, found)
    if mutant is not None:
        found = build_mutant(find_mutant(protocol, mutant))
    try:
        space, run = read_itf(trace.read_bytes().decode(), found, world)
    except OSError as error:
        raise Trouble(f"{trace}: {error.strerror or error}") from error
    except (BadTrace, UnicodeDecodeError) as error:
        raise Trouble(f"{trace}: {error}") from error
    steps = len(run) - 1
    print(f"{steps:,} step{'' if steps == 1 else 's'} of {found.name} in scope {space.scope.name}, each as it must be")
    violated = violations(space, run)
    for name, number in violated.items():
        print(f"violated: {name}, after step {number}" if number else f"violated: {name}, at first")
    return Status.VIOLATED if violated else Status.HOLDS


__all__ = ["run_replay"]
