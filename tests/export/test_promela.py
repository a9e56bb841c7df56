"""SPIN, on the exported text, finds the states, steps, goals and violations that are found here."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from benchmarks import pubmodel
from model_check.evaluate import Space
from model_check.explore import explore
from model_check.export import promela
from model_check.export.formulas import WIDTH
from model_check.export.spin import verify
from model_check.process import run, tool
from model_check.record import DEAD_END, Claims
from model_check.search import Search
from reef_ref.cli.catalogue import PROTOCOLS, find_protocol, find_scope, known_mutants
from spec.lang import Protocol
from spec.lang.nodes import And, Exists, Node, Not, Or

MISSING = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
with_spin = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

ONE_ENGINE = "Engine=1,Scenario=2,Adapter=2,Slot=2"
SMALL = {
    "publication": "Engine=1,Load=2,Content=2",
    "serving": "Request=1,Adapter=2,Load=2",
    "adapters": ONE_ENGINE,
}
"""Worlds for mutants, where the scope ``smoke`` would take long."""
CROWDED = {"upsert": "Engine=1,Scenario=2,Adapter=2,Slot=1"}
"""Smaller worlds for mutants of which there are millions of states in the others."""
WHOLE = {"serving": "Request=2,Adapter=1,Load=2", "adapters": ONE_ENGINE}
"""Worlds for protocols, where ``smoke`` has many states for each that symmetry leaves, and SPIN meets them all."""
EVERY = 10
"""Of so many mutants, one is exported: each takes seconds to compile, here and for SPIN."""


def found_here(space: Space) -> tuple[int, frozenset[str]]:
    """All states, and the claims that SPIN can judge that fail somewhere, far beyond the first violation."""
    protocol = space.protocol
    stepwise = [claim for claim in protocol.properties.values() if claim.stepwise]
    failing: dict[str, Node] = {p.name: Not(p.node) for p in protocol.properties.values() if not p.stepwise}
    failing[DEAD_END] = Not(going_on(protocol))
    failed: set[str] = set()
    while True:
        claims = Claims(goals=tuple(failing.values()), steps=tuple(claim.node for claim in stepwise))
        search = Search(space, claims, (), workers=1, memory=1 << 28, effort=0, beyond=False)
        while search.level():
            continue
        search.close()
        failed |= {name for name, count in zip(failing, search.goals, strict=True) if count}
        # Of the step properties that fail, a search tells the first.
        steps = [found.prop for found in search.found() if found.kind == 1]
        if not steps:
            return search.states, frozenset(failed)
        failed.add(stepwise.pop(steps[0]).name)


def going_on(protocol: Protocol) -> Node:
    """The protocol may rest, or some action is possible."""
    possible: list[Node] = [rest.node for rest in protocol.rest.values()]
    for action in protocol.actions.values():
        if action.kind != "fault":
            node: Node = And(action.guard)
            for param in action.params:
                node = Exists(param, node)
            possible.append(node)
    return Or(tuple(possible))


@with_spin
@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_has_the_same_states_and_steps(name: str) -> None:
    """At scope smoke, or a smaller one: nothing is violated, and the same goals are reached."""
    protocol = find_protocol(name)
    scope = find_scope(name, WHOLE.get(name, "smoke"), protocol)
    found = verify(Space(protocol, scope))
    ours = explore(protocol, scope, symmetry=False, workers=2)
    assert (found.states, found.steps) == (ours.states, ours.steps)
    assert found.violated == frozenset()
    assert found.reached == frozenset(name for name, count in ours.goals.items() if count)


MUTANTS = [(name, mutant) for name in PROTOCOLS for mutant in list(known_mutants(name))[::EVERY]]


@with_spin
@pytest.mark.parametrize(("name", "mutant"), MUTANTS)
def test_mutants_violate_the_same_properties(name: str, mutant: str) -> None:
    wrong = known_mutants(name)[mutant].build()
    scope = find_scope(name, CROWDED.get(mutant, SMALL[name]), wrong)
    found = verify(Space(wrong, scope), quick=True)
    assert (found.states, found.violated) == found_here(Space(wrong, scope))


@with_spin
def test_mutants_that_are_exported_are_not_all_harmless() -> None:
    """Comparing nothing with nothing would prove little."""
    name, mutant = "publication", "no-flush"
    wrong = known_mutants(name)[mutant].build()
    found = verify(Space(wrong, find_scope(name, SMALL[name], wrong)), quick=True)
    assert known_mutants(name)[mutant].breaks in found.violated


@with_spin
@pytest.mark.parametrize("bug", [0, 1, 2])
def test_the_common_model(bug: int) -> None:
    """Which also has a text written by hand."""
    model, scope = pubmodel.build(bug), pubmodel.scope(2, 3, 3)
    found = verify(Space(model, scope), quick=True)
    states, violated = found_here(Space(model, scope))
    assert (found.states, found.violated) == (states, violated)
    assert bool(violated) == bool(bug)
    if not bug:
        assert (found.states, found.steps) == (7_944, 38_028)


@with_spin
def test_faults_are_counted() -> None:
    """A scope's bound on faults cuts the same steps."""
    protocol = find_protocol("publication")
    scope = find_scope("publication", "Engine=1,Load=1,Content=1,faults=1", protocol)
    found = verify(Space(protocol, scope), quick=True)
    ours = explore(protocol, scope, symmetry=False, workers=1)
    assert (found.states, found.steps) == (ours.states, ours.steps)


MANY = "Engine=6,Load=8,Content=9"
"""A world in which what is true in every state is more text than SPIN takes for one inline."""


@with_spin
@pytest.mark.parametrize(("name", "scope"), [*itertools.product(PROTOCOLS, ("pr", "nightly")), ("publication", MANY)])
def test_spin_reads_larger_worlds_as_well(name: str, scope: str, tmp_path: Path) -> None:
    """No line is so long, and none ends so, that SPIN takes it for something else."""
    protocol = find_protocol(name)
    text = promela.promela(Space(protocol, find_scope(name, scope, protocol)))
    assert max(map(len, text.splitlines())) <= 2 * WIDTH
    (tmp_path / "model.pml").write_text(text)
    run([tool("spin"), "-o2", "-DREPORT", "-DSTATES", "-a", "model.pml"], limit=60, folder=tmp_path)


def test_words_of_promela_get_another_name() -> None:
    """A field called ``full`` would be a syntax error."""
    protocol = find_protocol("publication")
    assert "full" in protocol.fields
    text = promela.promela(Space(protocol, find_scope("publication", "smoke", protocol)))
    assert "bool full_;" in text
    assert "bool full;" not in text


def test_what_cannot_be_said_is_named() -> None:
    """Recoveries are no assertions: the text says which are not in it."""
    protocol = find_protocol("publication")
    text = promela.promela(Space(protocol, find_scope("publication", "smoke", protocol)))
    heading = " ".join(text[: text.index("*/")].replace("*", " ").split())
    assert (
        f"Not here, since no assertion can say it: {', '.join([*protocol.recoveries, *protocol.eventualities])}."
        in heading
    )
