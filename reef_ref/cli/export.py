"""`reef-ref export`."""

from __future__ import annotations

import sys
from pathlib import Path

from model_check.evaluate import Space
from model_check.export.promela import promela
from reef_ref.cli.catalogue import asked
from reef_ref.cli.output import check_writable, write
from reef_ref.cli.trouble import Status, Trouble
from spec.lang import Misuse


def run_export(protocol: str, scope: str, *, mutant: str | None, output: Path | None) -> Status:
    """Write the text of a protocol for another checker."""
    check_writable(output)
    question = asked(protocol, scope, mutant, None)
    try:
        text = promela(Space(question.protocol, question.scope))
    except Misuse as error:
        raise Trouble(str(error)) from error
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text)
    return Status.HOLDS
