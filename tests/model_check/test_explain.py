"""Trace validation keeps exactly the states that are possible, and says truly why a trace is none of the protocol's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from model_check.evaluate import Instance, Refused, Space, State
from model_check.explain import Explainer, Held, Observation, Seen, Verdict
from spec.lang import Bool, Fields, Index, Map, Natural, Protocol, Relation, Scope, Step, each, field, forall, when
from spec.lang.protocol import Property
from tests.agreement.drawn import SCOPES, protocols

MOST = 400
Marked = tuple[State, frozenset[str]]
"""A state, and what was violated on the way to it."""


class Reference:
    """The possible states by `evaluate` alone, each with what was violated on the way."""

    def __init__(self, space: Space, hidden: frozenset[str], judged: Iterable[str]) -> None:
        self.space, self.hidden = space, hidden
        claims = [space.protocol.properties[name] for name in judged]
        self.single: list[Property] = [p for p in claims if not p.stepwise]
        self.across: list[Property] = [p for p in claims if p.stepwise]
        self.cut = False
        self.possible = self.closed(self.judged(s, frozenset()) for s in space.initial_states())

    def judged(self, state: State, before: frozenset[str]) -> Marked:
        return state, before | {p.name for p in self.single if not self.space.holds(p.node, state)}

    def taken(self, marked: Marked, instance: Instance) -> Marked | None:
        state, violated = marked
        after = self.space.step(state, instance)
        if isinstance(after, Refused):
            self.cut |= after is Refused.CUT
            return None
        across = {p.name for p in self.across if not self.space.holds(p.node, state, after)}
        return self.judged(after, violated | across)

    def closed(self, states: Iterable[Marked]) -> set[Marked]:
        found: set[Marked] = set()
        todo = list(states)
        hidden = [i for i in self.space.instances if i.action.name in self.hidden]
        while todo:
            marked = todo.pop()
            if marked not in found:
                found.add(marked)
                todo += [after for i in hidden if (after := self.taken(marked, i)) is not None]
        return found

    def feed(self, instance: Instance) -> None:
        after = (self.taken(marked, instance) for marked in self.possible)
        self.possible = self.closed(marked for marked in after if marked is not None)


def states(explainer: Explainer) -> set[Marked]:
    """Every possible state by itself; only for an explainer that keeps every field."""
    boxes, found = explainer.boxes, set()
    for box in explainer.possible:
        violated = frozenset(name for bit, name in enumerate(explainer.judged) if box[-1] >> bit & 1)
        for values in itertools.product(*(boxes.set_of(number) for number in box[:-1])):
            state = [0] * explainer.space.cells
            for cells, part in zip(boxes.blocks, values, strict=True):
                for cell, value in zip(cells, part, strict=True):
                    state[cell] = value
            found.add((tuple(state), violated))
    return found


@settings(
    max_examples=240,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)
@given(
    protocols(),
    SCOPES,
    st.randoms(use_true_random=False),
    st.sets(st.sampled_from(["step0", "step1", "step2"])),
    st.booleans(),
)
def test_the_possible_states_are_those_of_the_definition(
    protocol: Protocol, scope: Scope, chance: random.Random, hidden: set[str], judging: bool
) -> None:
    """On random protocols, after every observation, with what was violated on the way if that is judged."""
    space = Space(protocol, scope)
    assume(space.initial_states())
    judged = tuple(space.protocol.properties) if judging else ()
    explainer = Explainer(space, hidden=hidden, judged=judged, fields=space.protocol.fields)
    reference = Reference(space, frozenset(hidden), judged)
    assert states(explainer) == reference.possible
    for _ in range(6):
        if not 0 < len(reference.possible) <= MOST:
            return
        reference.cut = False
        instance = chance.choice(space.instances)
        reference.feed(instance)
        verdict = explainer.feed(Observation((Seen(instance.action.name, instance.args),)))
        assert states(explainer) == reference.possible
        if not reference.possible:
            assert verdict in (Verdict.INEXPLICABLE, Verdict.UNKNOWN)
            assert verdict is Verdict.INEXPLICABLE or explainer.reason


class Engine(Index):
    """An engine."""


class Turns(Fields):
    """Elements of which one is a value."""

    turn: Engine = field("who may work")
    done: Map[Engine, Bool] = field("has worked")


class Meetings(Fields):
    """Elements that are second keys, too."""

    knows: Relation[Engine, Engine] = field("has met")


class Row(Fields):
    """Elements that can be told apart by name only."""

    done: Map[Engine, Bool] = field("has worked")


def turns() -> Protocol:
    protocol = Protocol("turns", Turns, "whoever has the turn works")

    @protocol.initially
    def start(first: Engine) -> Step:
        """One has the turn."""
        return when().then(turn=first, done=each(Engine, lambda e: False))

    @protocol.action(by="e", on="e")
    def work(s: Turns, e: Engine) -> Step:
        """Whoever has the turn works."""
        return when(s.turn == e).then(done={e: True})

    return protocol


def meetings() -> Protocol:
    protocol = Protocol("meetings", Meetings, "each meets itself")

    @protocol.initially
    def start() -> Step:
        """Nobody knows anybody."""
        return when().then(knows=each(Engine, Engine, lambda e, f: False))

    @protocol.action(by="e", on="e")
    def meet(s: Meetings, e: Engine) -> Step:
        """An element gets to know itself."""
        return when().then(knows={(e, e): True})

    return protocol


def row() -> Protocol:
    protocol = Protocol("row", Row, "the first one works")

    @protocol.initially
    def start() -> Step:
        """Nothing is done."""
        return when().then(done=each(Engine, lambda e: False))

    @protocol.action(by="e", on="e")
    def work(s: Row, e: Engine) -> Step:
        """Only the first works."""
        return when(e == Engine.number(0)).then(done={e: True})

    return protocol


@pytest.mark.parametrize("make", [turns, meetings, row])
def test_elements_that_can_be_told_apart_are_not_taken_for_one_another(make: Callable[[], Protocol]) -> None:
    space = Space(make(), Scope("three", {"Engine": 3}, "small"))
    hidden = frozenset(space.protocol.actions)
    explainer = Explainer(space, hidden=hidden, fields=space.protocol.fields)
    assert states(explainer) == Reference(space, hidden, ()).possible


class Load(Natural):
    """A load."""


class Toy(Fields):
    """A flush that needs quiet engines."""

    paused: Map[Engine, Bool] = field("does not run")
    busy: Map[Engine, Bool] = field("has work")
    load: Load = field("the newest load")


def toy() -> Protocol:
    protocol = Protocol("toy", Toy, "engines are paused, then a load is published")

    @protocol.initially
    def idle() -> Step:
        """Nothing happens yet."""
        return when().then(paused=each(Engine, lambda e: False), busy=each(Engine, lambda e: False), load=0)

    @protocol.action(by="e", on="e")
    def work(s: Toy, e: Engine) -> Step:
        """It gets work."""
        return when(~s.paused[e]).then(busy={e: True})

    @protocol.action(by="e", on="e")
    def rest(s: Toy, e: Engine) -> Step:
        """It is done."""
        return when(s.busy[e]).then(busy={e: False})

    @protocol.action(by="coordinator", on="e")
    def pause(s: Toy, e: Engine) -> Step:
        """It stops."""
        return when(~s.paused[e]).then(paused={e: True})

    @protocol.action(by="coordinator")
    def publish(s: Toy) -> Step:
        """A new load."""
        return when(forall(Engine, lambda e: s.paused[e] & ~s.busy[e])).then(
            load=s.load + 1, paused=each(Engine, lambda e: False)
        )

    @protocol.action(by="coordinator")
    def blunder(s: Toy) -> Step:
        """A new load, ready or not."""
        return when().then(load=s.load + 1)

    @protocol.step_property
    def published_quietly(s: Toy, t: Toy) -> Bool:
        """A load changes only where every engine is paused."""
        return (s.load != t.load).implies(forall(Engine, lambda e: s.paused[e]))

    return protocol


HIDDEN = ("work", "rest")


def explained(*, engines: int = 2, loads: int = 3, judged: tuple[str, ...] = (), most: int = 100) -> Explainer:
    space = Space(toy(), Scope("toy", {"Engine": engines, "Load": loads}, "small"))
    return Explainer(space, hidden=HIDDEN, judged=judged, fields=["load"], most=most)


def see(explainer: Explainer, action: str, *args: int | None) -> Verdict:
    return explainer.feed(Observation((Seen(action, args),)))


def test_hidden_steps_are_taken_where_they_are_needed() -> None:
    explainer = explained()
    for engine in (0, 1):
        assert see(explainer, "pause", engine) is Verdict.EXPLAINED
    assert explainer.values("busy", 0) == {0, 1}
    assert see(explainer, "publish") is Verdict.EXPLAINED
    assert explainer.values("load") == {1}


def test_the_first_inexplicable_observation_is_told_with_the_condition_that_failed() -> None:
    explainer = explained()
    see(explainer, "pause", 0)
    assert see(explainer, "publish") is Verdict.INEXPLICABLE
    problem = explainer.problem
    assert problem is not None
    assert problem.index == 1
    assert str(problem.objections[0]) == "publish: needs paused[engine 1]"
    assert problem.possible == ("pause(engine 1)", "blunder")


def test_a_shown_cell_that_disagrees_is_named() -> None:
    explainer = explained()
    cell = explainer.space.cell(explainer.space.protocol.fields["load"], ())
    verdict = explainer.feed(Observation((Seen("blunder", (), ((cell, frozenset({2})),)),)))
    assert verdict is Verdict.INEXPLICABLE
    assert explainer.problem is not None
    assert str(explainer.problem.objections[0]) == "blunder: needs load to be 2 after it (load is 1)"


def test_an_argument_that_is_not_known_stays_open() -> None:
    explainer = explained()
    see(explainer, "pause", None)
    assert explainer.values("paused", 0) == explainer.values("paused", 1) == {0, 1}
    see(explainer, "pause", None)
    assert explainer.values("paused", 0) == explainer.values("paused", 1) == {1}
    assert see(explainer, "pause", None) is Verdict.INEXPLICABLE


def test_a_property_is_violated_in_some_or_in_all_behaviours() -> None:
    explainer = explained(engines=1, judged=("published_quietly",))
    assert explainer.properties() == {"published_quietly": Held.NONE}
    explainer.feed(Observation((Seen("publish"), Seen("blunder")), unlogged=frozenset({"pause"})))
    assert explainer.properties() == {"published_quietly": Held.SOME}
    explainer = explained(judged=("published_quietly",))
    see(explainer, "blunder")
    assert explainer.properties() == {"published_quietly": Held.ALL}


def test_a_step_past_the_bound_is_unknown() -> None:
    explainer = explained(loads=1)
    assert see(explainer, "blunder") is Verdict.EXPLAINED
    assert see(explainer, "blunder") is Verdict.UNKNOWN
    assert explainer.reason == "a step that may have happened would pass a bound of the scope"


def test_too_many_states_are_unknown() -> None:
    explainer = explained(engines=3, most=2)
    assert see(explainer, "pause", None) is Verdict.UNKNOWN
    assert "are kept" in explainer.reason


def test_an_action_may_be_ahead_of_its_observation() -> None:
    """And may then be observed, once."""
    explainer = explained(engines=1)
    explainer.feed(Observation((Seen("pause", (0,), ahead=True),)))
    assert explainer.values("paused", 0) == {1}
    assert see(explainer, "pause", 0) is Verdict.EXPLAINED
    assert see(explainer, "pause", 0) is Verdict.INEXPLICABLE


def test_what_was_ahead_is_not_observed_after_the_end_of_who_would_tell() -> None:
    explainer = explained(engines=1)
    explainer.feed(Observation((Seen("pause", (0,), ahead=True),)))
    explainer.feed(Observation((Seen(),), ends=True))
    assert see(explainer, "pause", 0) is Verdict.INEXPLICABLE


def test_after_a_gap_nothing_is_claimed_though_a_later_contradiction_is() -> None:
    explainer = explained()
    explainer.lose("something is missing")
    assert see(explainer, "publish") is Verdict.UNKNOWN
    paused = [explainer.space.cell(explainer.space.protocol.fields["paused"], (e,)) for e in (0, 1)]
    assert explainer.resynchronise(dict.fromkeys(paused, (0,)))
    assert see(explainer, "pause", 0) is Verdict.UNKNOWN
    assert see(explainer, "publish") is Verdict.INEXPLICABLE


def test_too_little_to_begin_again_with() -> None:
    explainer = explained(most=3)
    assert not explainer.resynchronise({})
    assert explainer.verdict is Verdict.UNKNOWN
    assert explainer.lost


def test_renumbering_keeps_what_is_possible() -> None:
    explainer = explained()
    see(explainer, "blunder")
    see(explainer, "blunder")
    explainer.renumber({"Load": [0, 0, 1, 1]})
    assert explainer.values("load") == {1}


def test_tables_that_are_begun_anew_change_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_check.explain.ENTRIES", 0)
    explainer = explained()
    for engine in (0, 1):
        see(explainer, "pause", engine)
    assert see(explainer, "publish") is Verdict.EXPLAINED
    explainer.begin()
    assert see(explainer, "publish") is Verdict.INEXPLICABLE


def test_engines_whose_insides_nobody_sees_take_no_product() -> None:
    """Twenty engines have 2 ** 20 states of work between them, in one box."""
    explainer = explained(engines=20)
    assert len(explainer.possible) == 1
    assert explainer.states == 2**20
