"""Misuse of the language fails where it is declared, in one line that names the action."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest

from spec.lang import (
    Bool,
    Fair,
    Fields,
    Index,
    LeadsTo,
    Map,
    Maybe,
    Misuse,
    Natural,
    Protocol,
    Relation,
    Scope,
    Step,
    Value,
    all_of,
    count,
    each,
    field,
    forall,
    ghost,
    ite,
    strongly_fair,
    weakly_fair,
    when,
    wherever,
)


class Engine(Index):
    """An engine."""


class Load(Natural):
    """A load."""


class Phase(enum.Enum):
    """Two members."""

    IDLE = enum.auto()
    BUSY = enum.auto()


class State(Fields):
    """A little of everything."""

    phase: Value[Phase] = field("what happens")
    target: Load = field("a load")
    last: Maybe[Load] = field("perhaps a load")
    paused: Map[Engine, Bool] = field("who is paused")
    knows: Relation[Engine, Load] = field("who knows what")
    made_by: Map[Engine, Maybe[Load]] = ghost("which load made the cache")
    stale: Bool = ghost("something stale was used")


@pytest.fixture
def protocol() -> Protocol:
    return Protocol("trial", State, "a protocol to misuse")


def declare(protocol: Protocol, body: Callable[..., Any], **hints: Any) -> None:
    body.__name__ = "load"
    body.__doc__ = "Load."
    body.__annotations__ = hints
    protocol.action(by="coordinator")(body)


MISUSES: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "and": (
        lambda s: when(s.phase == Phase.IDLE and s.target == 0).then(),
        {},
        "a symbol has no truth value: use &, |, ~ and ite",
    ),
    "if": (lambda s: when().then(target=1 if s.paused else s.target + 1) if s.stale else None, {}, "no truth value"),
    "chained comparison": (lambda s: when(0 < s.target < 2).then(), {}, "no truth value"),
    "membership": (lambda s: when(s.phase in (Phase.BUSY, Phase.IDLE)).then(), {}, "no truth value"),
    "misspelt field read": (lambda s: when(s.pased).then(), {}, "the state has no field 'pased'; it has phase, target"),
    "misspelt field written": (lambda s: when().then(targt=0), {}, "the state has no field 'targt'"),
    "assignment": (
        lambda s: setattr(s, "target", 1),
        {},
        "the state is not assigned to: say when(...).then(target=...)",
    ),
    "no step": (lambda s: None, {}, "must answer when(...).then(...)"),
    "a guard without then": (lambda s: when(s.stale), {}, "must answer when(...).then(...)"),
    "wrong sort compared": (
        lambda s: when(s.target == Phase.IDLE).then(),
        {},
        "Load is needed here, not <Phase.IDLE",
    ),
    "wrong sort written": (lambda s: when().then(phase=s.target), {}, "Phase is needed here, not Load"),
    "wrong enumeration": (lambda s: when().then(target=True), {}, "Load is needed here, not True"),
    "negative": (lambda s: when().then(target=-1), {}, "Load is needed here, not -1"),
    "a map as a value": (lambda s: when().then(paused=True), {}, "paused is a map: give each(...) or a dictionary"),
    "a number for an element": (lambda s: when(s.paused[0]).then(), {}, "Engine is needed here, not 0"),
    "too many keys": (lambda s, e: when(s.paused[e, e]).then(), {"e": Engine}, "Engine is needed here"),
    "too few keys": (lambda s, e: when(s.knows[e]).then(), {"e": Engine}, "knows takes 2 key(s), not 1"),
    "a row without each": (lambda s, e: when().then(knows={e: True}), {"e": Engine}, "after 1 of 2 keys an each(...)"),
    "each over another sort": (
        lambda s: when().then(paused=each(Load, lambda v: True)),
        {},
        "each over Engine is needed, not over Load",
    ),
    "an optional key in brackets": (lambda s, e: when(s.knows[e, s.last]).then(), {"e": Engine}, "use knows.get(key"),
    "a sum as a key": (lambda s, e: when(s.knows[e, s.target + 1]).then(), {"e": Engine}, "a sum as key"),
    "a sum of symbols": (
        lambda s: when().then(target=s.target + s.target),
        {},
        "only a constant from 0 up can be added",
    ),
    "an untyped parameter": (lambda s, e: when().then(), {}, "parameter e has no sort: annotate it"),
    "a parameter of no sort": (lambda s, e: when().then(), {"e": int}, "<class 'int'> is not a sort"),
    "iteration": (lambda s: when(all_of(*s.paused)).then(), {}, "paused cannot be iterated: use forall"),
    "a stored count": (
        lambda s: when().then(target=count(Engine, lambda e: s.paused[e])),
        {},
        "Load is needed here, not count",
    ),
    "ite without a sort": (lambda s: when().then(target=ite(s.target == 0, 1, 2)), {}, "ite needs at least one symbol"),
    "a guard that reads a ghost": (
        lambda s, e: when(s.made_by[e].is_none).then(),
        {"e": Engine},
        "the guard reads the ghost field made_by, which no real component knows",
    ),
    "a real field set from a ghost": (
        lambda s, e: when().then(last=s.made_by[e]),
        {"e": Engine},
        "the real field last reads the ghost field made_by",
    ),
    "a real map keyed by a ghost": (
        lambda s, e: when().then(knows={(e, s.made_by[e]): True}),
        {"e": Engine},
        "the real field knows reads the ghost field made_by",
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_one_line_that_names_the_action(protocol: Protocol, name: str) -> None:
    body, hints, message = MISUSES[name]
    with pytest.raises(Misuse) as caught:
        declare(protocol, body, **hints)
    text = str(caught.value)
    assert text.startswith("trial: action load: "), text
    assert message in text
    assert "\n" not in text
    assert "load" not in protocol.actions


def test_a_variable_does_not_leave_its_quantifier(protocol: Protocol) -> None:
    kept: list[Engine] = []
    with pytest.raises(Misuse, match="used outside of where it is bound"):
        declare(
            protocol,
            lambda s: when(forall(Engine, lambda e: bool(kept.append(e)) or s.paused[e]), s.paused[kept[0]]).then(),
        )


def test_ghosts_may_read_anything(protocol: Protocol) -> None:
    declare(
        protocol,
        lambda s, e: when(s.paused[e]).then(made_by={e: s.target}, stale=s.stale | (s.made_by[e] == s.target)),
        e=Engine,
    )
    assert protocol.actions["load"].written == {"made_by", "stale"}


def test_a_docstring_is_needed(protocol: Protocol) -> None:
    def load(s: State) -> Step:
        return when().then(target=0)

    with pytest.raises(Misuse, match="trial: action load: say in a docstring what it means"):
        protocol.action(by="coordinator")(load)


def test_names_are_declared_once(protocol: Protocol) -> None:
    declare(protocol, lambda s: when().then(target=0))
    with pytest.raises(Misuse, match="action load is declared twice"):
        declare(protocol, lambda s: when().then(target=0))


def test_the_initial_state_sets_every_field(protocol: Protocol) -> None:
    with pytest.raises(Misuse, match="does not set last, paused, knows, made_by, stale"):

        @protocol.initially
        def start() -> Step:
            """Too little."""
            return when().then(phase=Phase.IDLE, target=0)


def test_a_recovery_avoids_what_exists(protocol: Protocol) -> None:
    with pytest.raises(Misuse, match="recovery back: no action 'restart' to avoid"):

        @protocol.recovery(avoiding=["restart"])
        def back(s: State) -> Any:
            """Back."""
            return wherever(True).can_reach(s.phase == Phase.IDLE)


@pytest.mark.parametrize(
    ("answer", "hints", "message"),
    [
        (lambda s: weakly_fair("laod"), {}, "no action 'laod' to be fair to"),
        (lambda s: weakly_fair("load", "break_down"), {}, "break_down is a fault: nobody counts on it"),
        (lambda s, f: strongly_fair("load"), {"f": Engine}, "load takes no f: Engine, but e: Engine"),
        (lambda s, e: strongly_fair("load"), {"e": Load}, "load takes no e: Load, but e: Engine"),
        (lambda s, e: strongly_fair("load"), {}, "parameter e has no sort: annotate it"),
        (
            lambda s: weakly_fair(where=s.stale),
            {},
            "must answer weakly_fair(...) or strongly_fair(...) of some actions",
        ),
        (lambda s: None, {}, "must answer weakly_fair(...) or strongly_fair(...) of some actions"),
        (lambda: weakly_fair("load"), {}, "takes the state as its first parameter"),
        (lambda s: weakly_fair("load", where=s.target), {}, "Bool is needed here, not Load"),
    ],
)
def test_fairness_is_of_actions_that_exist(
    protocol: Protocol, answer: Callable[..., Any], hints: dict[str, Any], message: str
) -> None:
    declare(protocol, lambda s, e: when(s.paused[e]).then(target=0), e=Engine)

    @protocol.fault(by="e")
    def break_down(s: State, e: Engine) -> Step:
        """An engine breaks down."""
        return when().then(paused={e: True})

    answer.__name__, answer.__doc__, answer.__annotations__ = "loads", "Loads.", hints
    with pytest.raises(Misuse) as caught:
        protocol.assumption(answer)
    assert str(caught.value).startswith("trial: assumption loads: ")
    assert message in str(caught.value)
    assert not protocol.assumptions


def test_fairness_follows_the_actions_of_a_variant(protocol: Protocol) -> None:
    declare(protocol, lambda s, e: when(s.paused[e]).then(target=0), e=Engine)

    @protocol.assumption
    def loads(s: State, e: Engine) -> Fair:
        """Loads."""
        return weakly_fair("load", where=s.paused[e])

    def load(s: State) -> Step:
        return when().then(target=0)

    changed, smaller = protocol.variant("changed", ""), protocol.variant("smaller", "")
    changed.replace_action(load)
    with pytest.raises(Misuse, match="changed: assumption loads: load takes no e: Engine, but nothing"):
        changed.check_assumption(changed.assumptions["loads"])
    smaller.remove_action("load")
    assert not smaller.assumptions
    assert protocol.assumptions["loads"].actions == ("load",)


@pytest.mark.parametrize(
    ("claim", "hints", "message"),
    [
        (lambda s: wherever(True).can_reach(s.stale), {}, "must answer wherever(...).leads_to(...)"),
        (lambda s: s.stale, {}, "must answer wherever(...).leads_to(...)"),
        (lambda s: wherever(s.stale).leads_to(s.target), {}, "Bool is needed here, not Load"),
        (lambda s, e: wherever(s.paused[e]).leads_to(s.stale), {}, "parameter e has no sort: annotate it"),
        (lambda: wherever(True).leads_to(False), {}, "takes the state as its first parameter"),
    ],
)
def test_an_eventuality_leads_from_one_condition_to_another(
    protocol: Protocol, claim: Callable[..., Any], hints: dict[str, Any], message: str
) -> None:
    claim.__name__, claim.__doc__, claim.__annotations__ = "ends", "Ends.", hints
    with pytest.raises(Misuse) as caught:
        protocol.eventuality(claim)
    assert str(caught.value).startswith("trial: eventuality ends: ")
    assert message in str(caught.value)
    assert not protocol.eventualities


def test_an_eventuality_may_be_claimed_of_every_element(protocol: Protocol) -> None:
    @protocol.eventuality
    def wakes(s: State, e: Engine) -> LeadsTo:
        """Wakes."""
        return wherever(s.paused[e]).leads_to(~s.paused[e])

    claim = protocol.eventualities["wakes"]
    assert [var.name for var in claim.params] == ["e"]
    with pytest.raises(Misuse, match="eventuality wakes is declared twice"):
        protocol.eventuality(wakes)


def test_a_step_property_takes_two_states(protocol: Protocol) -> None:
    with pytest.raises(Misuse, match=r"step property forward: takes 2 state\(s\)"):

        @protocol.step_property
        def forward(s: State) -> Bool:
            """Forward."""
            return s.target == 0


def test_a_scope_bounds_every_sort() -> None:
    scope = Scope("small", {"Engine": 0}, "trial")
    with pytest.raises(Misuse, match="scope small: Engine is 0, and must be 1 or more"):
        scope.cardinality(State_sorts()["paused"])
    with pytest.raises(Misuse, match="scope small: says nothing about Load"):
        scope.cardinality(State_sorts()["target"])


def State_sorts() -> dict[str, Any]:  # noqa: N802 - reads as what it is: the sorts of State
    fields = Protocol("trial", State, "").fields
    return {"paused": fields["paused"].keys[0], "target": fields["target"].sort}


def test_naming_one_element_ends_the_symmetry(protocol: Protocol) -> None:
    declare(protocol, lambda s: when().then(paused={Engine.number(0): True}))
    assert protocol.asymmetric == {"Engine"}


def test_the_same_text_gives_the_same_tree() -> None:
    def build() -> Protocol:
        protocol = Protocol("trial", State, "")
        declare(
            protocol,
            lambda s, e: when(forall(Engine, lambda f: (f == e) | s.paused[f])).then(
                knows=each(Engine, Load, lambda f, v: s.knows[f, v] & (f == e))
            ),
            e=Engine,
        )
        return protocol

    assert build().actions == build().actions
