"""z3's formulas of a world and the definition: the same first states, the same steps, the same verdicts."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest
import z3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model_check.evaluate import Refused, Space, State
from model_check.prove.connectives import Expr
from model_check.prove.ground import Cells, Ground, ground
from model_check.prove.translate import Translator
from model_check.prove.views import Functions
from model_check.prove.worlds import Unbounded, Untranslatable
from spec.lang import Protocol, Scope
from spec.lang.nodes import And, Const, Count, CountSort, Eq, IndexSort, Less, Node, Not, Var
from tests.agreement.drawn import SCOPES, protocols

SLOW = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def put(formula: Expr, cells: Cells, state: State) -> Expr:
    """The formula with a state in place of its cells."""
    values = [
        (cell, z3.BoolVal(bool(value)) if z3.is_bool(cell) else z3.BitVecVal(value, cell.size()))
        for cell, value in zip(cells.constants, state, strict=True)
    ]
    return z3.simplify(z3.substitute(formula, *values))


def drawn_state(space: Space, random: Random) -> State:
    """Any state, reachable or not."""
    return tuple(
        random.randrange(space.scope.cardinality(field.sort))
        for field in space.protocol.fields.values()
        for _ in range(math.prod(space.shapes[field.name]))
    )


def models(formulas: Ground, formula: Expr, cells: Cells) -> set[State]:
    """Every state of the world that satisfies a formula."""
    solver, found = z3.Solver(), set()
    solver.add(formula, cells.domain())
    while solver.check() == z3.sat:
        state = cells.state(solver.model())
        found.add(state)
        solver.add(z3.Not(cells.given(state)))
    return found


@SLOW
@given(protocols(), SCOPES, st.randoms(use_true_random=False))
def test_a_world_is_that_of_the_definition(protocol: Protocol, scope: Scope, random: Random) -> None:
    """From any state, in any action: enabled alike, and leading to the same state; every property judged alike."""
    formulas = ground(protocol, scope)
    space = formulas.space
    assert models(formulas, formulas.initial(), formulas.before) == set(space.initial_states())
    for _ in range(2):
        state, other = drawn_state(space, random), drawn_state(space, random)
        for name, formula in formulas.properties().items():
            claim = space.protocol.properties[name]
            told = put(put(formula, formulas.before, state), formulas.after, other)
            assert z3.is_true(told) == space.holds(claim.node, state, other if claim.stepwise else None)
            assert z3.is_true(told) or z3.is_false(told)
        for instance in space.instances:
            after = space.step(state, instance)
            step = put(formulas.step(instance), formulas.before, state)
            found = models(formulas, step, formulas.after)
            assert found == (set() if isinstance(after, Refused) else {after}), space.instance_name(instance)


EVERY = tuple(itertools.product(range(1, 4), range(4), (True, False)))


@pytest.mark.parametrize(("size", "number", "equal"), EVERY)
def test_counts_of_any_number_of_elements(size: int, number: int, equal: bool) -> None:
    """A count without end, compared with a number on either side, is what it is in a world of that many elements."""
    world = Unbounded()
    translator = Translator(world)
    sort = IndexSort("Engine")
    counted = Count(Var(sort, "e"), And(()))
    const = Const(CountSort(), number)
    nodes: list[tuple[Node, bool]] = (
        [(Eq(counted, const), size == number), (Eq(const, counted), size == number)]
        if equal
        else [(Less(counted, const), size < number), (Less(const, counted), number < size)]
    )
    elements = [world.constant(sort, value) for value in range(size)]
    x = z3.Const("x", world.sort(sort))
    exactly = z3.ForAll([x], z3.Or(*(x == e for e in elements)))
    for node, expected in nodes:
        formula = translator.condition(node if expected else Not(node), Functions(world), None, {})
        solver = z3.Solver()
        solver.add(exactly, *world.distinct(), z3.Not(formula))
        assert solver.check() == z3.unsat


def test_counts_of_two_sorts_are_not_compared() -> None:
    """They are refused with a reason, and not left out."""
    counted = [Count(Var(IndexSort(name), "x"), And(())) for name in ("Engine", "Request")]
    world = Unbounded()
    with pytest.raises(Untranslatable, match="count"):
        Translator(world).condition(Less(*counted), Functions(world), None, {})
