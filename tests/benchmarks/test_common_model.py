"""The common benchmark model in this project's language means what its definition in plain Python says."""

from __future__ import annotations

import pytest

from benchmarks.expected import EXPECTED, VIOLATION_STEPS, World
from benchmarks.peers import plain
from benchmarks.peers.reference import State, canonical, initial, safe, successors
from benchmarks.pubmodel import build, scope
from model_check import evaluate
from model_check.evaluate import Space
from model_check.explore import Verdict, explore

SMALL: World = (2, 3, 3)


def translated(state: State, space: Space) -> evaluate.State:
    """A state of the definition as the cells of this project's form: loads are counted from 0, none is 0."""
    target, phase, done, weights, cache, paused, requests = state
    engines, loads = range(len(weights)), space.scope.sizes["Load"] + 1
    cells = {
        "target": (target - 1,),
        "phase": (phase,),
        "done": tuple(done >> e & 1 for e in engines),
        "weights": tuple(w - 1 for w in weights),
        "cache": cache,
        "paused": paused,
        "status": tuple(status for status, _, _ in requests),
        "at": tuple(at for _, at, _ in requests),
        "kv": tuple(kv >> v & 1 for _, _, kv in requests for v in range(loads)),
    }
    return tuple(value for name in space.protocol.fields for value in cells[name])


@pytest.mark.parametrize(("bug", "world"), [(0, SMALL), (1, (2, 2, 2)), (2, (2, 2, 2))])
def test_every_step_and_every_verdict_agrees_with_the_definition(bug: int, world: World) -> None:
    """From every state of a small world, the same steps to the same states; the properties say the same."""
    engines, requests, loads = world
    space = Space(build(bug), scope(*world))
    first = initial(engines, requests)
    assert space.initial_states() == [translated(first, space)]
    properties = [p.node for p in space.protocol.properties.values()]
    seen, waiting, broken = {first}, [first], 0
    while waiting:
        state = waiting.pop()
        cells = translated(state, space)
        assert all(space.holds(node, cells) for node in properties) == safe(state)
        broken += not safe(state)
        after = list(successors(state, loads, bug))
        assert sorted((name.split("(")[0], translated(s, space)) for name, s in after) == sorted(
            (instance.action.name, s) for instance, s in space.successors(cells)
        )
        for _, found in after:
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    assert broken > 0 if bug else len(seen) == EXPECTED[world].states


@pytest.mark.parametrize("bug", [1, 2])
@pytest.mark.parametrize("symmetry", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_is_found_by_the_shortest_way(bug: int, symmetry: bool, workers: int) -> None:
    """Bug 1 takes 14 steps and bug 2 takes 13, with symmetry and without, whatever the threads."""
    found = explore(build(bug), scope(3, 4, 3), symmetry=symmetry, workers=workers)
    assert found.verdict is Verdict.VIOLATED
    assert found.counterexample is not None
    assert found.counterexample.steps == VIOLATION_STEPS[bug]


@pytest.mark.parametrize("symmetry", [False, True])
def test_a_bug_is_told_the_same_way_whatever_the_threads(symmetry: bool) -> None:
    """One, two or three workers find the same run, step for step."""
    runs = []
    for workers in (1, 2, 3):
        found = explore(build(1), scope(3, 4, 3), symmetry=symmetry, workers=workers)
        assert found.counterexample is not None
        runs.append(found.counterexample.run)
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("world", [SMALL, (3, 4, 3)])
def test_the_counts_are_the_published_ones(world: World) -> None:
    """States, transitions and depth without symmetry; orbits with it, and their sizes add up to the states."""
    known = EXPECTED[world]
    whole = explore(build(), scope(*world), symmetry=False)
    assert whole.verdict is Verdict.HOLDS
    assert (whole.states, whole.steps, whole.depth) == (known.states, known.transitions, known.depth)
    orbits = explore(build(), scope(*world), orbits=True)
    assert orbits.verdict is Verdict.HOLDS
    assert orbits.symmetric == ("Engine", "Request")
    assert (orbits.states, orbits.steps, orbits.depth) == (known.orbits, known.orbit_transitions, known.depth)
    assert orbits.orbits == known.states


def test_plain_python_finds_the_published_counts() -> None:
    """The definition itself, without symmetry and with it, in the small world."""
    known = EXPECTED[SMALL]
    whole = plain.search(SMALL)
    assert (whole["states"], whole["transitions"], whole["depth"]) == (known.states, known.transitions, known.depth)
    orbits = plain.search(SMALL, symmetry=True)
    assert (orbits["states"], orbits["transitions"]) == (known.orbits, known.orbit_transitions)


def test_a_representative_stands_for_its_whole_orbit() -> None:
    """Exchanging engines or requests changes a state, and not its representative."""
    state: State = (2, 1, 0b01, (1, 2), (0, 2), (0, 1), ((1, 1, 0b1), (0, 2, 0), (2, 0, 0)))
    exchanged: State = (2, 1, 0b10, (2, 1), (2, 0), (1, 0), ((0, 1, 0), (1, 2, 0b1), (2, 0, 0)))
    assert state != exchanged
    assert canonical(state) == canonical(exchanged)
