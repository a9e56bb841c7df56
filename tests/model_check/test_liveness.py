"""What happens in the end: weak and strong fairness, bounds, lassos as they are told."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from model_check.diagram import as_mermaid
from model_check.evaluate import Space
from model_check.explore import Exploration, Interrupted, Progress, Verdict, explore
from model_check.fairness import FairGraph, obligations
from model_check.itf import BadTrace, as_itf, read_itf
from model_check.liveness import CUT, VACUOUS, cases, judge
from model_check.record import Claims
from model_check.report import as_json, as_junit, as_markdown, as_text
from model_check.search import Search
from model_check.story import as_text as story_text
from model_check.story import tell
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
    Scope,
    Step,
    each,
    exists,
    field,
    strongly_fair,
    weakly_fair,
    when,
    wherever,
)


class Guest(Index):
    """Somebody who may be served."""


class Round(Natural):
    """How often something happened."""


class Table(Fields):
    """Guests, one waiter, and a door."""

    hungry: Map[Guest, Bool] = field("waits for a meal")
    served: Maybe[Guest] = field("whom the waiter serves")
    closed: Bool = field("the kitchen is closed")
    rounds: Round = field("how often the waiter went round")


EVERY = Scope("table", {"Guest": 2, "Round": 2}, "two guests")
Declare = Callable[[Protocol], None]


def table(*declare: Declare) -> Protocol:
    """Guests get hungry, the waiter turns to one and serves, the kitchen closes and opens."""
    protocol = Protocol("table", Table, "guests and a waiter")

    @protocol.initially
    def begin() -> Step:
        """Nobody is hungry."""
        return when().then(hungry=each(Guest, lambda g: False), served=None, closed=False, rounds=0)

    @protocol.action(by="g", on="g")
    def order(s: Table, g: Guest) -> Step:
        """A guest is hungry."""
        return when(~s.hungry[g]).then(hungry={g: True})

    @protocol.action(by="waiter", on="g")
    def turn_to(s: Table, g: Guest) -> Step:
        """The waiter turns to a hungry guest."""
        return when(s.served.is_none, s.hungry[g]).then(served=g)

    @protocol.action(by="waiter", on="g")
    def serve(s: Table, g: Guest) -> Step:
        """The guest gets a meal, while the kitchen is open."""
        return when(s.served == g, ~s.closed).then(hungry={g: False}, served=None)

    @protocol.action(by="cook")
    def close(s: Table) -> Step:
        """The kitchen closes for a while."""
        return when(~s.closed).then(closed=True)

    @protocol.action(by="cook")
    def open_again(s: Table) -> Step:
        """The kitchen opens again."""
        return when(s.closed).then(closed=False)

    @protocol.fault(by="waiter")
    def stumble(s: Table) -> Step:
        """The waiter forgets whom to serve."""
        return when(~s.served.is_none).then(served=None)

    @protocol.eventuality
    def everybody_eats(s: Table, g: Guest) -> LeadsTo:
        """A hungry guest gets a meal."""
        return wherever(s.hungry[g]).leads_to(~s.hungry[g])

    @protocol.eventuality
    def somebody_eats(s: Table) -> LeadsTo:
        """Where somebody is served, there is soon nobody to be."""
        return wherever(~s.served.is_none).leads_to(s.served.is_none)

    for fn in declare:
        fn(protocol)
    return protocol


def the_cook_opens(protocol: Protocol) -> None:
    @protocol.assumption
    def opening(s: Table) -> Fair:
        """The kitchen opens again."""
        return weakly_fair("open_again")


def some_are_served(protocol: Protocol) -> None:
    @protocol.assumption
    def serving(s: Table) -> Fair:
        """The waiter serves whom the waiter has turned to, if the kitchen stays open."""
        return weakly_fair("serve")


def all_are_served(protocol: Protocol) -> None:
    @protocol.assumption
    def serving(s: Table, g: Guest) -> Fair:
        """The waiter serves whoever can be served again and again."""
        return strongly_fair("serve")


def some_are_seen(protocol: Protocol) -> None:
    @protocol.assumption
    def seeing(s: Table) -> Fair:
        """The waiter turns to some guest."""
        return strongly_fair("turn_to")


def all_are_seen(protocol: Protocol) -> None:
    @protocol.assumption
    def seeing(s: Table, g: Guest) -> Fair:
        """The waiter turns to every guest."""
        return strongly_fair("turn_to")


def judged(*declare: Declare, scope: Scope = EVERY, only: str | None = None) -> Exploration:
    return judge(table(*declare), scope, only=None if only is None else [only], memory=1 << 26)


def verdicts(found: Exploration) -> dict[str, str]:
    return {outcome.name: outcome.verdict.value for outcome in found.outcomes}


def names(found: Exploration) -> tuple[list[str], list[str]]:
    """The actions of the way and of the loop."""
    told = found.counterexample
    assert told is not None
    assert told.loop is not None
    steps = [told.space.instance_name(i) for i, _ in told.run if i is not None]
    return steps[: told.loop.begins], steps[told.loop.begins :]


def test_nothing_need_happen_where_nothing_is_assumed() -> None:
    """A run may stay where it is, and that is the shortest story."""
    found = judged()
    assert verdicts(found) == {"everybody_eats": "violated", "somebody_eats": "violated"}
    assert names(found) == (["order(guest 0)"], [])


def test_weak_fairness_is_not_enough_where_the_kitchen_closes_again_and_again() -> None:
    found = judged(the_cook_opens, some_are_served, only="somebody_eats")
    assert verdicts(found) == {"somebody_eats": "violated"}
    assert names(found) == (["order(guest 0)", "turn_to(guest 0)"], ["close", "open_again"])
    assert found.counterexample is not None
    assert found.counterexample.loop is not None
    assert found.counterexample.loop.kept == (
        ("open_again", "is done in the loop"),
        ("serve", "is possible in the loop, but not all along"),
    )


def test_strong_fairness_is() -> None:
    assert verdicts(judged(the_cook_opens, all_are_served, only="somebody_eats")) == {"somebody_eats": "holds"}


def test_fair_to_somebody_is_not_fair_to_everybody() -> None:
    found = judged(the_cook_opens, all_are_served, some_are_seen)
    assert verdicts(found) == {"everybody_eats": "violated", "somebody_eats": "holds"}
    assert names(found) == (["order(guest 0)"], ["order(guest 1)", "turn_to(guest 1)", "serve(guest 1)"])
    found = judged(the_cook_opens, all_are_served, all_are_seen)
    assert verdicts(found) == {"everybody_eats": "holds", "somebody_eats": "holds"}


def test_faults_end() -> None:
    """A waiter who stumbled again and again would serve nobody: no loop has a fault, and a way may have some."""
    found = judged(the_cook_opens, all_are_served, all_are_seen)
    assert found.coverage["stumble"] > 0
    assert found.verdict is Verdict.HOLDS
    assert found.reason == "every run in this scope whose faults end, and that is fair as assumed"


def test_a_condition_narrows_what_is_counted_on() -> None:
    def while_open(protocol: Protocol) -> None:
        @protocol.assumption
        def serving(s: Table, g: Guest) -> Fair:
            """The waiter serves where nobody else waits."""
            return strongly_fair("serve", where=~exists(Guest, lambda h: s.hungry[h] & (h != g)))

    found = judged(the_cook_opens, while_open, all_are_seen)
    assert verdicts(found) == {"everybody_eats": "violated", "somebody_eats": "violated"}


def test_a_claim_that_never_begins_is_undetermined() -> None:
    def beyond(protocol: Protocol) -> None:
        @protocol.eventuality
        def walks_home(s: Table) -> LeadsTo:
            """The waiter who has gone round goes home."""
            return wherever(s.rounds == 1).leads_to(s.rounds == 0)

    found = judged(beyond, only="walks_home")
    assert found.verdict is Verdict.UNDETERMINED
    assert found.outcomes[0].note == VACUOUS


def going_round(protocol: Protocol) -> None:
    @protocol.action(by="waiter")
    def go_round(s: Table) -> Step:
        """The waiter goes round."""
        return when().then(rounds=s.rounds + 1)

    @protocol.assumption
    def going(s: Table) -> Fair:
        """The waiter goes round."""
        return weakly_fair("go_round")

    @protocol.eventuality
    def goes_far(s: Table) -> LeadsTo:
        """The waiter goes round often."""
        return wherever(True).leads_to(s.rounds > 2)


def test_where_only_the_bound_stops_a_run_nothing_is_concluded() -> None:
    """The waiter would go on: that it cannot in this world is no bug."""
    found = judged(going_round, only="goes_far")
    assert found.verdict is Verdict.UNDETERMINED
    assert found.outcomes[0].note == CUT
    assert found.counterexample is None


def test_a_run_that_stops_short_of_the_bound_is_told() -> None:
    """Beside one that only the bound stops: the told one stays where everything that is counted on goes on."""

    def resting(protocol: Protocol) -> None:
        going_round(protocol)

        @protocol.action(by="waiter")
        def sit_down(s: Table) -> Step:
            """The waiter goes back to the start."""
            return when(s.rounds >= 1).then(rounds=0)

    found = judged(resting, only="goes_far")
    assert found.verdict is Verdict.VIOLATED
    assert names(found) == ([], ["go_round", "sit_down"])


def test_a_step_that_changes_nothing_keeps_nothing() -> None:
    """As in TLA+: it is staying."""

    def polishing(protocol: Protocol) -> None:
        @protocol.action(by="waiter")
        def wait(s: Table, done: Bool) -> Step:
            """The waiter closes the kitchen, or waits."""
            return when(~s.closed).then(closed=done)

        @protocol.assumption
        def waiting(s: Table) -> Fair:
            """The waiter does something."""
            return weakly_fair("wait")

        @protocol.eventuality
        def closes(s: Table) -> LeadsTo:
            """The kitchen closes."""
            return wherever(True).leads_to(s.closed)

    assert judged(polishing, only="closes").verdict is Verdict.HOLDS


def test_one_choice_of_interchangeable_guests_answers_for_all() -> None:
    space = Space(table(), EVERY)
    assert [case.values for case in cases(space, space.protocol.eventualities["everybody_eats"])] == [
        {space.protocol.eventualities["everybody_eats"].params[0]: 0}
    ]

    def first_guest(protocol: Protocol) -> None:
        @protocol.eventuality
        def the_first_eats(s: Table, g: Guest) -> LeadsTo:
            """Guests are told apart."""
            return wherever(s.hungry[Guest.number(0)]).leads_to(~s.hungry[g])

    space = Space(table(first_guest), EVERY)
    assert len(list(cases(space, space.protocol.eventualities["the_first_eats"]))) == 2


def test_obligations_are_of_each_action_and_each_choice() -> None:
    space = Space(table(all_are_served, some_are_seen), EVERY)
    assert [(o.action, o.choice, o.strong) for o in obligations(space)] == [
        ("serve", (0,), True),
        ("serve", (1,), True),
        ("turn_to", (), True),
    ]


# What cannot be judged


def test_symmetry_is_refused() -> None:
    """A loop of representatives need not be a loop of states."""
    with pytest.raises(Misuse, match="liveness is not judged up to symmetry"):
        judge(table(), EVERY, symmetry=True)
    space = Space(table(), EVERY)
    search = Search(space, Claims(), ("Guest",), 1, memory=1 << 26)
    while search.level():
        pass
    with pytest.raises(Misuse, match="liveness is not judged up to symmetry"):
        FairGraph(search, (), ())
    search.close()


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(Misuse, match="table has no eventuality 'sleeps'; it has everybody_eats, somebody_eats"):
        judge(table(), EVERY, only=["sleeps"])
    mute = table()
    mute.eventualities.clear()
    with pytest.raises(Misuse, match="table claims no eventuality"):
        judge(mute, EVERY)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_states": 3}, "stopped past 3 states"), ({"max_seconds": 0.0}, "stopped after 0 seconds")],
)
def test_what_was_not_seen_is_undetermined(limits: dict[str, float], reason: str) -> None:
    found = judge(table(), EVERY, **limits)  # type: ignore[arg-type]
    assert (found.verdict, found.reason) == (Verdict.UNDETERMINED, reason)
    assert {outcome.note for outcome in found.outcomes} == {"not every state was seen"}


def test_an_interrupt_ends_in_order() -> None:
    def stop(progress: Progress) -> None:
        raise Interrupted

    found = judge(table(), EVERY, progress=stop)
    assert (found.verdict, found.reason) == (Verdict.UNDETERMINED, "interrupted")


# How it is told


@pytest.fixture(scope="module")
def lasso() -> Exploration:
    return judged(the_cook_opens, some_are_served, only="somebody_eats")


def test_a_story_has_a_way_and_a_loop(lasso: Exploration) -> None:
    assert lasso.counterexample is not None
    text = story_text(tell(lasso.counterexample))
    assert text.startswith("How table comes to violate somebody_eats, in 2 steps and then 2 again and again\n")
    before, _, loop = text.partition("\nAgain and again\n")
    assert "  2. waiter → guest 0  turn_to(guest 0)\n" in before
    assert loop.startswith("  3. cook  close\n")
    assert (
        "     and all is as after step 2.\n"
        "     This is fair. What is counted on and possible here\n"
        "       is done in the loop: open_again\n"
        "       is possible in the loop, but not all along: serve\n"
    ) in loop
    assert "    wherever served != none, in the end: served == none\n" in loop
    assert "      false  served == none  served is guest 0\n" in loop


def test_a_story_may_end_where_nothing_more_happens() -> None:
    told = judged().counterexample
    assert told is not None
    text = story_text(tell(told))
    assert text.startswith("How table comes to violate everybody_eats, in 1 step, and nothing more\n")
    assert "\nFor ever\n     Nothing more happens, and nothing that is counted on is possible.\n" in text
    assert "; here g is guest 0\n" in text


def test_a_diagram_has_a_loop(lasso: Exploration) -> None:
    assert lasso.counterexample is not None
    lines = as_mermaid(tell(lasso.counterexample)).splitlines()
    begins = lines.index("    loop again and again")
    assert "2. turn_to" in lines[begins - 2]
    assert "3. close" in lines[begins + 1]
    assert lines[-2] == "    end"


def test_a_trace_says_where_its_loop_begins(lasso: Exploration) -> None:
    told = lasso.counterexample
    assert told is not None
    trace = as_itf(told)
    assert trace["loop"] == 2
    assert read_itf(json.dumps(trace), table())[1] == told.run
    with pytest.raises(BadTrace, match=r"loop: the last state is not states\[1\] again"):
        read_itf(json.dumps({**trace, "loop": 1}), table())
    with pytest.raises(BadTrace, match="loop: 7 is not the index of a state, 0 to 4"):
        read_itf(json.dumps({**trace, "loop": 7}), table())


def test_every_report_says_what_was_assumed(lasso: Exploration) -> None:
    text = as_text(lasso)
    assert "\nAssumed\n  Faults happen finitely often: no loop has one\n  weak  The kitchen opens again.\n" in text
    assert text.endswith("violated: somebody_eats, on a run that never ends\n")
    document = json.loads(as_json(lasso))
    assert document["assumed"][1] == {
        "name": "serving",
        "doc": "The waiter serves whom the waiter has turned to, if the kitchen stays open.",
        "strength": "weak",
        "actions": ["serve"],
        "each": [],
        "where": "true",
    }
    assert document["counterexample"]["loop"]["begins"] == document["counterexample"]["itf"]["loop"] == 2
    assert "| weak | opening | The kitchen opens again. | open_again |" in as_markdown(lasso)
    assert '<testcase classname="table.eventuality" name="somebody_eats" time="0">' in as_junit(lasso)


def test_an_exploration_assumes_nothing() -> None:
    found = explore(table(), EVERY)
    assert found.assumed == ()
    assert "Assumed" not in as_text(found)
    assert json.loads(as_json(found))["assumed"] == []
