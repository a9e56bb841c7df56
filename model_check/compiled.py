"""The compiled search of a protocol in a scope, and the digests of all that it depends on."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from model_check.evaluate import Space
from model_check.graphcode import GraphCode
from model_check.kernel import Kernel
from model_check.layout import Layout
from model_check.linkcode import LinkCode
from model_check.machine import Machine
from model_check.record import Claims
from model_check.runcode import RunCode

GENERATOR = (
    "building",
    "codegen",
    "compiled",
    "graphcode",
    "kernel",
    "layout",
    "linkcode",
    "machine",
    "record",
    "runcode",
    "symmetry",
)
"""The modules that decide how states are packed and what the code does."""


def compiled(
    layout: Layout,
    claims: Claims,
    symmetric: tuple[str, ...],
    effort: int,
    *,
    switches: bool = False,
    beyond: bool = True,
) -> Machine:
    """The functions of a search.

    Args:
        layout: where the cells of a state lie.
        claims: what to judge.
        symmetric: index sorts whose elements are interchangeable.
        effort: how hard LLVM tries.
        switches: make every part of an action removable at run time.
        beyond: also what the graph of the search needs, and a search on disk.
    """
    key = repr((source_digest(), described(layout.space), claims, symmetric, switches, beyond))
    return Machine(key, partial(_module, layout, claims, symmetric, switches, beyond), effort)


def _module(layout: Layout, claims: Claims, symmetric: tuple[str, ...], switches: bool, beyond: bool) -> str:
    kernel = Kernel(layout, claims, symmetric, switches=switches)
    if beyond:
        GraphCode(kernel)
        RunCode(kernel)
        LinkCode(kernel)
    return str(kernel.module)


def described(space: Space) -> object:
    """Everything that the states and steps of a space depend on."""
    protocol = space.protocol
    return (
        sorted(space.scope.sizes.items()),
        space.scope.faults,
        tuple(protocol.fields.values()),
        protocol.initial,
        tuple((a.kind, a.params, a.guard, a.writes) for a in protocol.actions.values()),
    )


def source_digest() -> str:
    """What the generator itself depends on: a changed one must not find the code of an older one."""
    here = Path(__file__).parent
    return hashlib.sha256(b"".join((here / f"{name}.py").read_bytes() for name in GENERATOR)).hexdigest()


__all__ = ["compiled", "described", "source_digest"]
