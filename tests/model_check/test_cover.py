"""A cover takes every kind of step that there is, by runs of the definition."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from benchmarks import pubmodel
from model_check.cover import Cover, Look, View, cover, reduced
from model_check.evaluate import Instance, Space, State
from spec.lang.nodes import IndexSort

SCOPE = pubmodel.scope(2, 1, 2)
SEEN = View(("phase", "paused"), {}, frozenset())


def never(instance: Instance, before: Look, after: Look) -> str:
    """No step is excused."""
    return ""


def look(space: Space, state: State, order: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """What is seen of a state after an exchange of engines."""
    seen = []
    for name in SEEN.fields:
        field = space.protocol.fields[name]
        keys = list(product(*map(range, space.shapes[name])))
        back = {tuple(order[k] for k in at): at for at in keys}
        seen.append(tuple(state[space.cell(field, back[at])] for at in keys))
    return tuple(seen)


def kinds(space: Space) -> set[object]:
    """Every kind of step, by evaluate."""
    found: set[object] = set()
    seen, queue = set(space.initial_states()), list(space.initial_states())
    engines = space.scope.sizes["Engine"]
    while queue:
        state = queue.pop()
        for instance, after in space.successors(state):
            images = []
            for order in permutations(range(engines)):
                args = tuple(
                    order[v] if isinstance(p.sort, IndexSort) and p.sort.name == "Engine" else v
                    for p, v in zip(instance.action.params, instance.args, strict=True)
                )
                images.append((look(space, state, order), instance.action.name, args, look(space, after, order)))
            if look(space, state, tuple(range(engines))) != look(space, after, tuple(range(engines))):
                found.add(min(images))
            if after not in seen:
                seen.add(after)
                queue.append(after)
    return found


@pytest.fixture(scope="module")
def found() -> Cover:
    return cover(pubmodel.build(), SCOPE, SEEN, never, longest=30)


def test_every_kind_is_taken(found: Cover) -> None:
    wanted = kinds(Space(reduced(pubmodel.build(), SCOPE, SEEN), SCOPE))
    assert found.kinds.total() == len(wanted) == found.taken > 10
    assert (found.excused.total(), found.beyond.total()) == (0, 0)


def test_runs_are_runs(found: Cover) -> None:
    """Each starts at first, goes step by step, and none is much longer than was asked for."""
    for run in found.runs:
        assert run[0].before in found.space.initial_states()
        for step, following in zip(run, (*run[1:], None), strict=True):
            assert found.space.step(step.before, step.instance) == step.after
            assert following is None or following.before == step.after
        assert len(run) < 60


def test_what_is_excused_is_not_taken_and_what_lies_behind_it_is_told() -> None:
    """Without the first step of a publication there is no other."""

    def no_start(instance: Instance, before: Look, after: Look) -> str:
        return "nobody publishes" if instance.action.name == "begin" else ""

    found = cover(pubmodel.build(), SCOPE, SEEN, no_start)
    assert found.taken == 0
    assert set(found.excused) == {("begin", "nobody publishes")}
    assert found.beyond.total() + found.excused.total() == found.kinds.total()


def test_values_that_look_alike_are_one_kind() -> None:
    """Where every phase looks the same, only the pauses of engines show."""
    blind = View(SEEN.fields, {"phase": dict.fromkeys(range(10), 0)}, frozenset())
    assert (
        0
        < cover(pubmodel.build(), SCOPE, blind, never).kinds.total()
        < len(kinds(Space(reduced(pubmodel.build(), SCOPE, SEEN), SCOPE)))
    )
