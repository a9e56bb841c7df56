"""Refinement: what is declared wrongly, what is judged, what is vacuous; and the formula says what evaluate says."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from model_check.evaluate import Space
from model_check.explore import Verdict
from model_check.refine import View, refine
from spec.lang import (
    Bool,
    Fields,
    Index,
    Map,
    Misuse,
    Natural,
    Protocol,
    Scope,
    Step,
    each,
    field,
    forall,
    ite,
    when,
)
from spec.lang.refinement import BEGINS, REFINES, Refinement, never_name
from spec.publication.mutants import MUTANTS
from spec.publication.scopes import SCOPES
from spec.refinement import publication_is_atomic


class Engine(Index):
    """An engine."""


class Load(Natural):
    """A load."""


class Whole(Fields):
    """What the ideal knows."""

    load: Load = field("what every engine serves")
    busy: Map[Engine, Bool] = field("works")


class Parts(Fields):
    """What there is."""

    target: Load = field("what is being loaded")
    released: Load = field("what every engine had last")
    loaded: Map[Engine, Load] = field("what the engine has")
    runs: Map[Engine, Bool] = field("works")


def ideal(*, leaps: bool = False) -> Protocol:
    """Every engine changes at once, while none works."""
    whole = Protocol("whole", Whole, ideal.__doc__ or "")

    @whole.initially
    def first() -> Step:
        """Nothing is loaded."""
        return when().then(load=0, busy=each(Engine, lambda e: False))

    @whole.action(by="coordinator")
    def publish(s: Whole) -> Step:
        """The next load, everywhere."""
        return when(forall(Engine, lambda e: ~s.busy[e])).then(load=s.load + 1)

    @whole.action(by="e")
    def work(s: Whole, e: Engine) -> Step:
        """An engine begins or ends."""
        return when().then(busy={e: ~s.busy[e]})

    if leaps:

        @whole.action(by="coordinator")
        def leap(s: Whole) -> Step:
            """A load is left out."""
            return when().then(load=s.load + 2)

    return whole


def detailed(*, overtakes: bool = False, begins_at: int = 0) -> Protocol:
    """Engines load one by one, and work where all have the same."""
    parts = Protocol("parts", Parts, detailed.__doc__ or "")

    @parts.initially
    def nothing() -> Step:
        """Nothing is loaded."""
        return when().then(
            target=begins_at,
            released=begins_at,
            loaded=each(Engine, lambda e: begins_at),
            runs=each(Engine, lambda e: begins_at > 0),
        )

    @parts.action(by="coordinator")
    def name(s: Parts) -> Step:
        """The next load is named."""
        return when(forall(Engine, lambda e: (s.loaded[e] == s.target) & ~s.runs[e])).then(target=s.target + 1)

    @parts.action(by="coordinator", on="e")
    def send(s: Parts, e: Engine) -> Step:
        """An engine receives the load."""
        last = forall(Engine, lambda f: (e == f) | (s.loaded[f] == s.target))
        return when(s.loaded[e] != s.target).then(loaded={e: s.target}, released=ite(last, s.target, s.released))

    @parts.action(by="e", on="e")
    def work(s: Parts, e: Engine) -> Step:
        """An engine begins or ends."""
        return when(forall(Engine, lambda f: s.loaded[f] == s.target) | overtakes).then(runs={e: ~s.runs[e]})

    return parts


def seen(parts: Protocol, whole: Protocol) -> Refinement:
    """The load is released when the last engine has it."""
    found = Refinement(parts, whole, seen.__doc__ or "")

    @found.field
    def load(s: Parts) -> Load:
        """What every engine has, or had before the load that is under way."""
        return s.released

    @found.field
    def busy(s: Parts, e: Engine) -> Bool:
        """As it is."""
        return s.runs[e]

    return found


WORLD = Scope("small", {"Engine": 2, "Load": 1}, "two engines, one load after the first")


def test_a_protocol_that_refines() -> None:
    """Steps that the ideal does not see are no steps of it, and each of the ideal's is shown to happen."""
    found = refine(seen(detailed(), ideal()), WORLD)
    assert (found.verdict, found.story) == (Verdict.HOLDS, None)
    assert found.taken == {"publish": 3, "work": 1}
    assert found.name == "parts refines whole"


def test_a_protocol_that_does_not() -> None:
    """The story ends with the step that the ideal has not, in the ideal's words."""
    found = refine(seen(detailed(overtakes=True), ideal()), WORLD)
    assert found.verdict is Verdict.VIOLATED
    assert found.story is not None
    assert found.story.claim == REFINES
    assert [step.action for step in found.story.steps][-1] == "send"
    assert found.story.formula == "To whole this step changes load from 0 to 1; no step of it does just that."
    assert {reason.text for reason in found.story.why} == {"work(engine 0)", "work(engine 1)"}
    assert dict(found.story.ending)["load"] == "1"


def test_first_states_that_are_not_the_ideals() -> None:
    found = refine(seen(detailed(begins_at=1), ideal()), WORLD)
    assert found.verdict is Verdict.VIOLATED
    assert found.story is not None
    assert (found.story.claim, found.story.steps) == (BEGINS, ())


def test_a_step_of_the_ideal_that_never_happens_leaves_it_open() -> None:
    """An ideal that can do more than what is held to it has perhaps not been refined at all."""
    found = refine(seen(detailed(), ideal(leaps=True)), WORLD)
    assert found.verdict is Verdict.UNDETERMINED
    assert found.reason == "the ideal's leap never happens here"
    assert found.taken["leap"] is None


def test_what_was_not_seen_whole_is_undetermined() -> None:
    found = refine(publication_is_atomic, SCOPES["smoke"], max_seconds=0)
    assert (found.verdict, found.reason) == (Verdict.UNDETERMINED, "stopped after 0 seconds")


def of_no_field(found: Refinement) -> None:
    def speed(s: Parts) -> Load:
        return s.target

    found.field(speed)


def of_other_keys(found: Refinement) -> None:
    def load(s: Parts, e: Engine) -> Load:
        return s.loaded[e]

    found.field(load)


def of_another_sort(found: Refinement) -> None:
    def load(s: Parts) -> Bool:
        return forall(Engine, lambda e: s.runs[e])

    found.field(load)
    found.steps()


def without_a_field(found: Refinement) -> None:
    found.steps()


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (of_no_field, "parts refines whole: the ideal has no field 'speed'; it has load, busy"),
        (of_other_keys, "parts refines whole: load is over no key, not over Engine"),
        (of_another_sort, f"parts: step property {REFINES}: Load is needed here, not Bool"),
        (without_a_field, f"parts: step property {REFINES}: parts refines whole: nothing says what load is"),
    ],
)
def test_misuse_is_told_in_one_line(declare: Callable[[Refinement], None], message: str) -> None:
    found = Refinement(detailed(), ideal(), "Wrongly declared.")
    with pytest.raises(Misuse) as error:
        declare(found)
    assert str(error.value) == message


@pytest.mark.parametrize("mutant", [None, "no-flush", "in-place-poisons-the-tree", "somebody-else-continues"])
def test_the_formula_says_what_evaluate_says(mutant: str | None) -> None:
    """On random runs, a step breaks the formula just where the ideal, stepped by evaluate, has no such step."""
    wrong = None if mutant is None else MUTANTS[mutant].build()
    claimed = publication_is_atomic.steps(wrong)
    space = Space(claimed, SCOPES["smoke"])
    view = View(publication_is_atomic, space)
    refines = claimed.properties[REFINES].node
    actions = publication_is_atomic.abstract.actions
    random_ = random.Random(7)
    judged = 0
    for _ in range(10):
        state = random_.choice(space.initial_states())
        for _ in range(60):
            faulty = random_.random() < 0.05
            steps = [t for i, t in space.successors(state) if (i.action.kind == "fault") == faulty]
            after = random_.choice(steps or [t for _, t in space.successors(state)])
            before, now = view.of(state), view.of(after)
            taken = {step.action.name for step in view.steps(state, after)}
            assert space.holds(refines, state, after) == (before == now or bool(taken))
            for name in actions:
                never = claimed.properties[never_name(name)].node
                assert space.holds(never, state, after) == (before == now or name not in taken)
            judged += before != now
            state = after
    assert judged > 30
