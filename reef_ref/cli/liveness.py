"""`reef-ref liveness`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from model_check.liveness import judge
from reef_ref.cli.catalogue import asked, awaited
from reef_ref.cli.check import STATUS, processors, report
from reef_ref.cli.output import check_writable, progress
from reef_ref.cli.trouble import Status, Trouble
from spec.lang import Misuse


def run_liveness(
    protocol: str,
    scope: str,
    *,
    mutant: str | None,
    only: Collection[str] | None,
    symmetry: bool,
    workers: int | None,
    max_states: int | None,
    max_seconds: float | None,
    memory: int | None,
    report_format: str,
    output: Path | None,
) -> Status:
    """Judge every eventuality on all fair runs, report, and answer the verdict's exit status."""
    check_writable(output)
    question = asked(protocol, scope, mutant, only, told=True, claims=awaited)
    name = question.protocol.name
    try:
        with progress(f"getting {name} ready for scope {question.scope.name}") as update:
            found = judge(
                question.protocol,
                question.scope,
                symmetry=symmetry,
                only=question.only,
                workers=workers or processors(),
                max_states=max_states,
                max_seconds=max_seconds,
                memory=memory,
                progress=update,
            )
    except Misuse as error:
        raise Trouble(str(error)) from error
    except MemoryError as error:
        raise Trouble(
            f"undetermined: {name} in scope {question.scope.name} does not fit in memory: {error}; a smaller scope may",
            Status.UNDETERMINED,
        ) from error
    except KeyboardInterrupt:
        raise Trouble(f"undetermined: interrupted before {name} was ready", Status.UNDETERMINED) from None
    report(found, report_format, output)
    return STATUS[found.verdict]


__all__ = ["run_liveness"]
