"""The search itself: memory, interrupts, limits, determinism, the cache of compiled code."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import pubmodel
from model_check.evaluate import Space
from model_check.explore import DEAD_END, Interrupted, Progress, Verdict, explore
from model_check.machine import CACHE_VARIABLE, Machine
from model_check.mutate import Fate, mutate
from model_check.record import Claims, switch_numbers
from model_check.search import MemoryShort, Search
from spec.lang import (
    Bool,
    CanReach,
    Fields,
    Index,
    Map,
    Misuse,
    Natural,
    Protocol,
    Scope,
    Step,
    all_of,
    each,
    field,
    forall,
    when,
    wherever,
)

WORLD = pubmodel.scope(2, 3, 3)


def test_the_same_story_whatever_the_workers() -> None:
    stories = set()
    for workers in (1, 2, 3, 5):
        result = explore(pubmodel.build(1), pubmodel.scope(3, 4, 2), symmetry=False, workers=workers)
        assert result.counterexample is not None
        stories.add((result.states, result.steps, result.counterexample.run))
    assert len(stories) == 1


def test_a_cap_is_never_a_pass() -> None:
    result = explore(pubmodel.build(), WORLD, symmetry=False, max_states=1_000)
    assert result.verdict is Verdict.UNDETERMINED
    assert result.reason == "stopped past 1,000 states"
    assert {o.verdict for o in result.outcomes} == {Verdict.UNDETERMINED}


def test_no_time_is_never_a_pass() -> None:
    result = explore(pubmodel.build(), pubmodel.scope(3, 5, 3), symmetry=False, max_seconds=0.0)
    assert result.verdict is Verdict.UNDETERMINED
    assert result.reason == "stopped after 0 seconds"


def test_an_interrupt_gives_what_was_found() -> None:
    def interrupt(progress: Progress) -> None:
        raise Interrupted

    result = explore(pubmodel.build(), pubmodel.scope(3, 5, 3), symmetry=False, progress=interrupt)
    assert result.verdict is Verdict.UNDETERMINED
    assert result.reason == "interrupted"
    assert 0 < result.states < 2_491_930


def whole(search: Search) -> None:
    while search.level():
        pass


def test_too_little_memory_is_said_and_what_was_found_before_stands() -> None:
    search = Search(Space(pubmodel.build(), pubmodel.scope(3, 4, 3)), Claims(), (), 2, memory=1 << 21)
    with pytest.raises(MemoryShort, match="states"):
        whole(search)
    levels = [len(search.packed_states(depth)) for depth in range(len(search.levels))]
    assert search.counts == levels
    assert search.states == sum(levels)
    search.close()


def test_unknown_properties_are_refused() -> None:
    with pytest.raises(Misuse, match="pubmodel has no property 'fresh'; it has cache_fresh, kv_fresh, no_dead_end"):
        explore(pubmodel.build(), WORLD, only=["fresh"])


def test_only_judges_what_was_asked() -> None:
    result = explore(pubmodel.build(1), pubmodel.scope(3, 4, 3), only=["kv_fresh"])
    assert [o.name for o in result.outcomes] == ["kv_fresh"]
    assert result.verdict is Verdict.VIOLATED


class Room(Natural):
    """A number of rooms."""


class Walk(Fields):
    """Somebody walks."""

    room: Room = field("where")
    locked: Bool = field("the door is locked")


def walk() -> Protocol:
    protocol = Protocol("walk", Walk, "a walk through rooms whose door may lock")

    @protocol.initially
    def start() -> Step:
        """In the first room."""
        return when().then(room=0, locked=False)

    @protocol.action(by="walker")
    def go_on(s: Walk) -> Step:
        """To the next room."""
        return when(~s.locked).then(room=s.room + 1)

    @protocol.action(by="walker")
    def go_home(s: Walk) -> Step:
        """To the first room."""
        return when(~s.locked, s.room >= 1).then(room=0)

    @protocol.fault(by="wind")
    def lock(s: Walk) -> Step:
        """The door falls shut in the second room."""
        return when(s.room == 2, ~s.locked).then(locked=True)

    return protocol


def test_a_state_with_nothing_but_faults_left_is_dead() -> None:
    result = explore(walk(), Scope("small", {"Room": 3}, "trial"))
    assert result.counterexample is not None
    assert result.counterexample.claim == DEAD_END
    assert result.counterexample.steps == 3


def test_kept_code_is_not_taken_for_that_of_a_protocol_with_other_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two protocols that differ only in what is a fault have other dead ends, and so other code."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    scope = Scope("small", {"Room": 3}, "trial")
    assert explore(walk(), scope).verdict is Verdict.VIOLATED
    calm = walk()
    calm.change_action("lock", kind="action")

    @calm.action(by="walker")
    def knock(s: Walk) -> Step:
        """Somebody opens."""
        return when(s.locked).then(locked=False)

    assert explore(calm, scope).verdict is Verdict.HOLDS
    calm.change_action("knock", kind="fault")
    assert explore(calm, scope).verdict is Verdict.VIOLATED


def test_what_the_bound_cuts_is_no_dead_end() -> None:
    protocol = walk()
    protocol.remove_action("lock")
    protocol.remove_action("go_home")
    result = explore(protocol, Scope("small", {"Room": 3}, "trial"))
    assert result.verdict is Verdict.HOLDS
    assert result.states == 4
    assert result.cuts == {"Room": 1}


def test_a_bound_on_faults_cuts_them() -> None:
    result = explore(walk(), Scope("calm", {"Room": 3}, "trial", faults=0))
    assert result.verdict is Verdict.HOLDS
    assert result.cuts == {"Faults": 1, "Room": 1}
    assert result.never == ("lock",)


def test_recovery_counts_on_no_fault_and_on_nothing_avoided() -> None:
    protocol = walk()

    @protocol.may_rest
    def anywhere(s: Walk) -> Bool:
        """Dead ends are not the point."""
        return s.room >= 0

    @protocol.recovery()
    def home(s: Walk) -> object:
        """One can go home, unless the door is locked."""
        return wherever(~s.locked).can_reach(s.room == 0)

    @protocol.recovery(avoiding=["go_home"])
    def on_foot(s: Walk) -> object:
        """One can go home without going home."""
        return wherever(s.room == 3).can_reach(s.room == 0)

    @protocol.recovery()
    def free(s: Walk) -> object:
        """One can go home from everywhere."""
        return wherever(s.room >= 0).can_reach(s.room == 0)

    result = explore(protocol, Scope("small", {"Room": 3}, "trial"))
    assert result.outcome("home").verdict is Verdict.HOLDS
    assert result.outcome("on_foot").verdict is Verdict.UNDETERMINED  # through the fifth room, who knows
    assert result.outcome("free").verdict is Verdict.VIOLATED
    assert result.counterexample is not None
    assert result.counterexample.claim == "free"
    assert result.counterexample.steps == 3


def test_a_goal_that_is_not_reached_is_no_pass() -> None:
    protocol = walk()

    @protocol.may_rest
    def anywhere(s: Walk) -> Bool:
        """Dead ends are not the point."""
        return s.room >= 0

    @protocol.goal
    def far(s: Walk) -> Bool:
        """Very far."""
        return s.room == 9

    result = explore(protocol, Scope("small", {"Room": 3}, "trial"))
    assert result.verdict is Verdict.UNDETERMINED
    assert result.reason == "goal far: not reached"


def test_dropping_a_part_is_noticed_or_listed() -> None:
    changes = {change.name: change for change in mutate(pubmodel.build(), WORLD)}
    assert changes["flush: write 1"].by == "cache_fresh"
    assert changes["flush: write 1"].text == "cache[e] := none"
    assert changes["admit: guard 3"].fate is Fate.KILLED
    assert changes["evict: write 1"].fate is Fate.EQUAL
    with pytest.raises(ValueError, match="violates cache_fresh as it is"):
        list(mutate(pubmodel.build(1), pubmodel.scope(2, 2, 2)))


def test_dropping_a_part_by_a_switch_is_dropping_it() -> None:
    """The switch in the compiled search and the protocol without the part have the same states and steps."""
    base = pubmodel.build()
    space = Space(base, pubmodel.scope(2, 2, 2))
    search = Search(space, Claims(), (), 2, switches=True, effort=1)
    for (action, what, part), number in switch_numbers(space).items():
        search.begin()
        search.switch = number
        while search.level():
            pass
        changed = base.variant("changed", base.doc)
        old = base.actions[action]
        parts = old.guard if what == "guard" else old.writes
        kept = tuple(p for n, p in enumerate(parts) if n != part)
        changed.change_action(action, **{"guard" if what == "guard" else "writes": kept})
        other = Search(Space(changed, space.scope), Claims(), (), 2, effort=0)
        while other.level():
            pass
        assert (search.states, search.steps) == (other.states, other.steps), (action, what, part)
        other.close()
    search.close()


def test_compiled_code_is_kept_and_a_torn_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    space = Space(pubmodel.build(), pubmodel.scope(1, 1, 2))

    def machine() -> Machine:
        return Search(space, Claims(), (), 1, effort=0).machine

    assert not machine().from_cache
    assert machine().from_cache
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-40])
    assert not machine().from_cache
    assert machine().from_cache


class Cell(Index):
    """A place on a strip."""


class Ink(Natural):
    """How dark."""


class Strip(Fields):
    """A strip that is painted from anywhere, one cell at a time."""

    ink: Map[Cell, Ink] = field("how dark each cell is")
    dry: Bool = field("nothing more is painted")


def strip() -> Protocol:
    protocol = Protocol("strip", Strip, "a strip of cells, of any number of words")

    @protocol.initially
    def start() -> Step:
        """White."""
        return when().then(ink=each(Cell, lambda c: 0), dry=False)

    @protocol.action(by="brush")
    def paint(s: Strip, c: Cell) -> Step:
        """The only cell that is painted gets darker."""
        others_white = forall(Cell, lambda d: (d == c) | (s.ink[d] == 0))
        return when(others_white, ~s.dry).then(ink={c: s.ink[c] + 1})

    @protocol.action(by="sun")
    def dry(s: Strip) -> Step:
        """It dries."""
        return when(~s.dry).then(dry=True)

    @protocol.may_rest
    def dried(s: Strip) -> Bool:
        """Dry for good."""
        return s.dry

    @protocol.step_property
    def never_lighter(s: Strip, t: Strip) -> Bool:
        """Paint stays."""
        return forall(Cell, lambda c: s.ink[c] <= t.ink[c])

    @protocol.recovery()
    def dries(s: Strip) -> CanReach:
        """It can always dry."""
        return wherever(all_of()).can_reach(s.dry)

    return protocol


@pytest.mark.parametrize("cells", [3, 31, 32, 33, 63, 64, 65, 95, 97, 130])
@pytest.mark.parametrize("symmetry", [False, True])
def test_states_of_any_width(cells: int, symmetry: bool) -> None:
    result = explore(strip(), Scope("strip", {"Cell": cells, "Ink": 3}, "trial"), symmetry=symmetry, orbits=True)
    assert result.bits == 2 * cells + 1
    assert result.verdict is Verdict.HOLDS
    assert result.states == (8 if symmetry else 2 * (3 * cells + 1))
    assert result.orbits == (2 * (3 * cells + 1) if symmetry and cells <= 20 else 0)
