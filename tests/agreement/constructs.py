"""Which constructs of the language a protocol has, and how evenly drawn protocols have them.

``python -m tests.agreement.constructs [--protocols N]`` draws protocols and prints the table.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator

from hypothesis import HealthCheck, Phase, given, settings

from spec.lang import Protocol
from spec.lang.nodes import (
    And,
    Const,
    CountSort,
    EnumSort,
    Eq,
    Exists,
    Forall,
    IndexSort,
    Less,
    MaybeSort,
    NaturalSort,
    Node,
    Or,
    Read,
    Sort,
    Var,
    Write,
    sort_of,
    walk,
)
from tests.agreement.drawn import protocols
from tests.agreement.shares import Shares

SORTS = ("truth value", "member", "element", "natural")
KINDS = (
    *(f"Const: {sort}" for sort in (*SORTS, "none", "count")),
    *(f"Var: {sort}" for sort in SORTS),
    *("Read", "Read: one key", "Read: two keys", "Read: optional key", "Read: after a step"),
    *("Not", "And", "And: of nothing", "Or", "Or: of nothing"),
    *(f"Eq: {sort}" for sort in (*SORTS, "optional", "count")),
    *("Less: natural", "Less: count"),
    *("Plus: natural", "Plus: count", "Ite", "Count", "Some", "OrElse"),
    *(f"Forall: {sort}" for sort in SORTS),
    *(f"Exists: {sort}" for sort in SORTS),
    *("write: no key", "write: one key", "write: two keys", "write: optional key", "write: row", "write: whole map"),
    *("write: optional value", "write: ghost", "write: a field again"),
    *(f"parameter: {sort}" for sort in SORTS),
    *("action", "fault", "guard", "property", "step property"),
)
"""Every construct, by the node that makes it, and what of it readers treat differently."""


def name_of(sort: Sort) -> str:
    """What the table calls a sort."""
    match sort:
        case MaybeSort():
            return "optional"
        case CountSort():
            return "count"
        case EnumSort():
            return "member"
        case IndexSort():
            return "element"
        case NaturalSort():
            return "natural"
        case _:
            return "truth value"


def constructs(protocol: Protocol) -> Counter[str]:
    """How often a protocol has each construct, its first states left out: those are the same in all."""
    found: Counter[str] = Counter()
    for action in protocol.actions.values():
        found[action.kind] += 1
        found.update(f"parameter: {name_of(param.sort)}" for param in action.params)
        fields = [write.field.name for write in action.writes]
        found["write: a field again"] += len(fields) - len(set(fields))
        for part in action.guard:
            found["guard"] += 1
            found.update(_nodes(part))
        for write in action.writes:
            found.update(_write(write))
            for part in (*write.keys, write.value):
                found.update(_nodes(part))
    for claim in protocol.properties.values():
        found["step property" if claim.stepwise else "property"] += 1
        found.update(_nodes(claim.node))
    for goal in (*protocol.goals.values(), *protocol.rest.values()):
        found.update(_nodes(goal.node))
    for recovery in protocol.recoveries.values():
        found.update(_nodes(recovery.source))
        found.update(_nodes(recovery.target))
    return +found


def _nodes(root: Node) -> Iterator[str]:
    for node in walk(root):
        kind = type(node).__name__
        match node:
            case Const(sort=MaybeSort()):
                yield "Const: none"
            case Const(sort=sort) | Var(sort=sort):
                yield f"{kind}: {name_of(sort)}"
            case Read(keys=keys, default=default, after=after):
                yield kind
                yield from ([], ["Read: one key"], ["Read: two keys"])[len(keys)]
                yield from ["Read: optional key"] * (default is not None) + ["Read: after a step"] * after
            case And(args=()) | Or(args=()):
                yield f"{kind}: of nothing"
            case Eq(left=left):
                yield f"{kind}: {name_of(sort_of(left))}"
            case Less(left=left):
                yield f"{kind}: {name_of(sort_of(left))}"
            case Forall(var=var) | Exists(var=var):
                yield f"{kind}: {name_of(var.sort)}"
            case _ if kind == "Plus":
                yield f"{kind}: {name_of(sort_of(node))}"
            case _:
                yield kind


def _write(write: Write) -> Iterator[str]:
    known = len(write.keys) - len(write.binders)
    if write.binders:
        yield "write: row" if known else "write: whole map"
    else:
        yield ("write: no key", "write: one key", "write: two keys")[known]
    if any(isinstance(sort_of(key), MaybeSort) for key in write.keys):
        yield "write: optional key"
    if isinstance(write.field.sort, MaybeSort):
        yield "write: optional value"
    if write.field.ghost:
        yield "write: ghost"


def table(counts: Counter[str], having: Counter[str], total: int) -> str:
    """For every construct, how many of the protocols have it, and how often they do."""
    width = max(map(len, KINDS))
    lines = [f"{'construct':{width}}  protocols  share      times", "-" * (width + 34)]
    lines += [f"{k:{width}}  {having[k]:9,}  {having[k] / total:5.0%}  {counts[k]:9,}" for k in KINDS]
    return "\n".join(lines)


def main() -> None:
    """Draw, count, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.agreement.constructs", description=__doc__.splitlines()[0])
    parser.add_argument("--protocols", type=int, default=500, metavar="N", help="how many to draw  [default: 500]")
    wanted = parser.parse_args().protocols
    counts: Counter[str] = Counter()
    having: Counter[str] = Counter()
    shares = Shares()

    @settings(
        max_examples=wanted,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(protocols())
    def draw(protocol: Protocol) -> None:
        found = constructs(protocol)
        counts.update(found)
        having.update(found.keys())
        for share in shares.values():
            share.takes(found)

    draw()
    print(table(counts, having, wanted))
    print(f"\nWhat each reader would be given of them:\n{shares.told(KINDS)}")


if __name__ == "__main__":
    main()
