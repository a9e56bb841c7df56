"""Eventualities of random protocols are judged as by trying every way in which a run can be fair."""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from model_check.evaluate import Space
from model_check.explore import Verdict
from model_check.liveness import VACUOUS, judge
from spec.lang import (
    Fair,
    Fields,
    LeadsTo,
    Protocol,
    Scope,
    Step,
    Value,
    field,
    ite,
    strongly_fair,
    weakly_fair,
    when,
    wherever,
)
from tests.agreement.drawn import SCOPES, anonymous, lively_protocols
from tests.agreement.every_way import Plain, check_told


def compared(protocol: Protocol, scope: Scope) -> str:
    """The verdict on the one eventuality, held to every way of being fair; none where the world is too large."""
    plain = Plain(Space(protocol, scope))
    if not plain.complete or len(plain.duties) > 7:
        return ""
    (claim,) = protocol.eventualities.values()
    past, within = (
        any(plain.stays(claim.source, claim.target, values, past_cuts=cuts) for values in plain.choices(claim.params))
        for cuts in (True, False)
    )
    assert within or not past
    found = judge(protocol, scope, memory=1 << 26)
    outcome = found.outcome(claim.name)
    if outcome.note == VACUOUS:
        assert not within
        return "idle"
    if not within:
        assert outcome.verdict is Verdict.HOLDS
    elif outcome.verdict is Verdict.VIOLATED:
        assert past
        assert found.counterexample is not None
        check_told(plain, found.counterexample)
    else:
        assert outcome.verdict is Verdict.UNDETERMINED
        assert not past
    return outcome.verdict.value


def test_over_the_whole_language() -> None:
    """And each verdict comes often enough for that to mean something."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(lively_protocols(), SCOPES)
    def agree(protocol: Protocol, scope: Scope) -> None:
        seen[compared(anonymous(protocol), scope)] += 1

    agree()
    assert seen["holds"] >= 5
    assert seen["violated"] >= 10


class Place(enum.Enum):
    """Six places."""

    A = enum.auto()
    B = enum.auto()
    C = enum.auto()
    D = enum.auto()
    E = enum.auto()
    F = enum.auto()


class Board(Fields):
    """A token on a board."""

    at: Value[Place] = field("where the token lies")


def arrows(protocol: Protocol, name: str, ends: dict[Place, Place], *, broken: bool) -> None:
    """An action, or a fault, that moves the token along arrows of one colour."""

    def move(s: Board) -> Step:
        """Along an arrow."""
        to: Value[Place] | Place = s.at
        for start, end in ends.items():
            to = ite(s.at == start, end, to)
        return when(s.at.is_in(*ends)).then(at=to)

    move.__name__ = name
    (protocol.fault if broken else protocol.action)(by="hand")(move)


def counted_on(protocol: Protocol, action: str, fair: Callable[..., Fair], places: list[Place]) -> None:
    """An assumption on one action."""

    def assumed(s: Board) -> Fair:
        """It is counted on at some places."""
        return fair(action, where=s.at.is_in(*places))

    assumed.__name__ = f"{action}_is_made"
    protocol.assumption(assumed)


def board(seed: int) -> Protocol:
    """A token on arrows of several colours, some of which may be counted on: all drawn."""
    rng, places = random.Random(seed), tuple(Place)
    protocol = Protocol("board", Board, "a token moves")

    @protocol.initially
    def begin() -> Step:
        """At the first place."""
        return when().then(at=Place.A)

    for number in range(rng.randint(3, 6)):
        ends = {place: rng.choice(places) for place in rng.sample(places, rng.randint(2, 4))}
        arrows(protocol, f"move{number}", ends, broken=rng.random() < 0.3)
    for action in protocol.actions.values():
        fair = rng.choice((weakly_fair, strongly_fair, strongly_fair, strongly_fair, None))
        if fair is not None and action.kind == "action":
            counted_on(protocol, action.name, fair, rng.sample(places, rng.choice((3, 6, 6))))
    begins, aims = [Place.A, *rng.sample(places, 2)], rng.sample(places[1:], rng.randint(1, 3))

    @protocol.eventuality
    def arrives(s: Board) -> LeadsTo:
        """The token gets there."""
        return wherever(s.at.is_in(*begins)).leads_to(s.at.is_in(*aims))

    return protocol


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_on_random_graphs(first: int) -> None:
    """Small and dense, so that strong fairness cuts components into smaller ones."""
    seen = Counter(compared(board(seed), Scope("board", {}, "one token")) for seed in range(first, first + 50))
    assert seen["holds"] >= 5
    assert seen["violated"] >= 5
