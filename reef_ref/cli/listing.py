"""`reef-ref list`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from model_check.story import bounds
from reef_ref.cli.catalogue import PROTOCOLS, find_protocol, known_mutants, known_scopes
from reef_ref.cli.output import display
from reef_ref.cli.trouble import Status
from spec.lang import Protocol

if TYPE_CHECKING:
    from rich.console import Console

Section = tuple[str, list[tuple[str, str]]]


def run_list(protocol: str | None) -> Status:
    """Print what there is."""
    if protocol is None:
        sections = [("Protocols", [(name, _first(find_protocol(name).doc)) for name in PROTOCOLS])]
        sections += [(f"Scopes of {name}", _scopes(name)) for name in PROTOCOLS]
        sections += [
            (f"Mutants of {name}", [(m.name, m.doc) for m in known_mutants(name).values()]) for name in PROTOCOLS
        ]
    else:
        sections = list(_sections(protocol, find_protocol(protocol)))
    display(partial(_show, sections))
    return Status.HOLDS


def _sections(name: str, protocol: Protocol) -> Iterator[Section]:
    yield protocol.name, [("", _first(protocol.doc))]
    yield "Scopes", _scopes(name)
    invariants = [p for p in protocol.properties.values() if not p.stepwise]
    steps = [p for p in protocol.properties.values() if p.stepwise]
    yield "Properties", _docs(invariants)
    yield "Step properties", _docs(steps)
    yield "Recoveries", _docs(protocol.recoveries.values())
    yield "Eventualities", _docs(protocol.eventualities.values())
    yield "Assumptions", _docs(protocol.assumptions.values())
    yield "Goals", _docs(protocol.goals.values())
    yield "Rest states", _docs(protocol.rest.values())
    actions = protocol.actions.values()
    yield "Actions", _docs(a for a in actions if a.kind == "action")
    yield "Faults", _docs(a for a in actions if a.kind == "fault")
    yield "Fields", [(f.name, ("ghost: " if f.ghost else "") + f.doc) for f in protocol.fields.values()]
    mutants = known_mutants(name).values()
    yield "Mutants", [(m.name, f"{_first(m.doc)}  ({', '.join(m.report)}; breaks {m.breaks})") for m in mutants]


def _scopes(name: str) -> list[tuple[str, str]]:
    return [(scope.name, f"{', '.join(bounds(scope))}: {scope.reason}") for scope in known_scopes(name).values()]


def _docs(things: Iterable[object]) -> list[tuple[str, str]]:
    return [(str(getattr(thing, "name", "")), _first(str(getattr(thing, "doc", "")))) for thing in things]


def _first(doc: str) -> str:
    return " ".join(doc.split("\n\n", 1)[0].split())


def _show(sections: Iterable[Section], console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    first = True
    for title, rows in sections:
        if not rows:
            continue
        if not first:
            console.print()
        first = False
        console.print(Text(title, style="bold underline"))
        table = Table.grid(padding=(0, 2))
        named = any(name for name, _ in rows)
        if named:
            table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for name, words in rows:
            table.add_row(*([Text(name)] if named else []), Text(words))
        console.print(Padding(table, (0, 0, 0, 2)))


__all__ = ["run_list"]
