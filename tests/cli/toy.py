"""A protocol of one's own with scopes and mutants beside it, as `--help` says that there may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spec.lang import (
    Bool,
    CanReach,
    Fair,
    Fields,
    Index,
    LeadsTo,
    Map,
    Natural,
    Protocol,
    Scope,
    Step,
    each,
    field,
    forall,
    weakly_fair,
    when,
    wherever,
)


class Engine(Index):
    """An engine."""


class Load(Natural):
    """A load."""


class State(Fields):
    """The whole state."""

    target: Load = field("the load being published")
    loaded: Map[Engine, Load] = field("the load of its weights")


def build() -> Protocol:
    """A coordinator names a load, and engines receive it."""
    toy = Protocol("toy", State, build.__doc__ or "")

    @toy.initially
    def start() -> Step:
        """Nothing is loaded."""
        return when().then(target=0, loaded=each(Engine, lambda e: 0))

    @toy.action(by="coordinator")
    def publish(s: State) -> Step:
        """The next load is named."""
        return when(forall(Engine, lambda e: s.loaded[e] == s.target)).then(target=s.target + 1)

    @toy.action(by="coordinator", on="e")
    def send(s: State, e: Engine) -> Step:
        """An engine receives the load."""
        return when(s.loaded[e] != s.target).then(loaded={e: s.target})

    @toy.fault(by="e")
    def die(s: State, e: Engine) -> Step:
        """An engine starts again, without weights."""
        return when().then(loaded={e: 0})

    @toy.property
    def loaded_was_named(s: State) -> Bool:
        """No engine has a load that was never named."""
        return forall(Engine, lambda e: s.loaded[e] <= s.target)

    @toy.step_property
    def target_grows(s: State, t: State) -> Bool:
        """The named load never goes back."""
        return s.target <= t.target

    @toy.recovery()
    def engines_catch_up(s: State) -> CanReach:
        """Every engine can still receive the load."""
        return wherever(True).can_reach(forall(Engine, lambda e: s.loaded[e] == s.target))

    @toy.assumption
    def sending(s: State, e: Engine) -> Fair:
        """Whatever is named is sent."""
        return weakly_fair("send")

    @toy.eventuality
    def everybody_catches_up(s: State, e: Engine) -> LeadsTo:
        """An engine that is behind receives the load."""
        return wherever(s.loaded[e] != s.target).leads_to(s.loaded[e] == s.target)

    @toy.goal
    def published(s: State) -> Bool:
        """Every engine has load 1."""
        return forall(Engine, lambda e: s.loaded[e] == 1)

    return toy


def _ahead(toy: Protocol) -> None:
    def send(s: State, e: Engine) -> Step:
        return when(s.loaded[e] != s.target).then(loaded={e: s.target + 1})

    toy.replace_action(send)


def _still(toy: Protocol) -> None:
    toy.remove_action("die")


def _idle(toy: Protocol) -> None:
    toy.remove_assumption("sending")


def another() -> Protocol:
    """The same under another name, where a second protocol is wanted."""
    return build().variant("another", "The same again.")


@dataclass(frozen=True)
class Mutant:
    """One wrong protocol."""

    name: str
    breaks: str
    report: tuple[str, ...]
    doc: str
    edit: Callable[[Protocol], None]

    def build(self) -> Protocol:
        """Make it."""
        wrong = build().variant(f"toy:{self.name}", self.doc)
        self.edit(wrong)
        return wrong


MUTANTS = (
    Mutant("runs-ahead", "loaded_was_named", ("T1",), "An engine receives the load after the named one.", _ahead),
    Mutant(
        "misnamed", "target_grows", ("T2", "T3"), "The same, and it names a property that it does not break.", _ahead
    ),
    Mutant("harmless", "target_grows", ("T4",), "Engines never die: nothing is wrong.", _still),
    Mutant("idle", "everybody_catches_up", ("T5",), "Nobody sends what is named.", _idle),
)
SCOPES = (
    Scope("smoke", {"Engine": 2, "Load": 2}, "two engines, two loads", faults=1),
    Scope("pr", {"Engine": 3, "Load": 3}, "three of each", faults=2),
)
