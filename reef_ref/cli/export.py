"""`reef-ref export`."""

from __future__ import annotations

import sys
from pathlib import Path

from model_check.evaluate import Space
from model_check.export.promela import promela
from model_check.export.tla import cfg, files, tla
from reef_ref.cli.catalogue import PROTOCOLS, asked, find_protocol, known_scopes
from reef_ref.cli.output import check_writable, write
from reef_ref.cli.trouble import Status, Trouble
from spec.lang import Misuse

EVERYTHING = "all"


def run_export(protocol: str, scope: str, language: str, *, mutant: str | None, output: Path | None) -> Status:
    """Write the text of a protocol for another checker; of all of them as TLA+, into a folder."""
    if protocol == EVERYTHING:
        return _all(language, mutant, output)
    check_writable(output)
    question = asked(protocol, scope, mutant, None)
    faults = question.scope.faults is not None
    try:
        match language:
            case "promela":
                text = promela(Space(question.protocol, question.scope))
            case "tla":
                text = tla(question.protocol, faults=faults)
            case _:
                text = cfg(question.protocol, question.scope, faults=faults)
    except Misuse as error:
        raise Trouble(str(error)) from error
    if output is None:
        sys.stdout.write(text)
    else:
        write(output, text)
    return Status.HOLDS


def _all(language: str, mutant: str | None, folder: Path | None) -> Status:
    if language != "tla" or mutant is not None:
        raise Trouble(f"export {EVERYTHING}: only --to tla, whose modules serve all scopes, and no --mutant")
    if folder is None:
        raise Trouble(f"export {EVERYTHING}: --output FOLDER is needed, for a module and its configurations each")
    if not folder.is_dir():
        raise Trouble(f"--output {folder}: is no folder; export {EVERYTHING} writes several files into one")
    for name in PROTOCOLS:
        for file, text in files(find_protocol(name), known_scopes(name).values()).items():
            write(folder / file, text)
    return Status.HOLDS
