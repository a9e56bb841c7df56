"""What one rank tells decides its properties; what was not seen is never called fresh."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref.monitor.notice import Freshness, Violation
from reef_ref.monitor.ranks import DECIDED, RankWatch
from reef_ref.monitor.watch import Monitor
from reef_ref.rank_events import (
    Beat,
    Continue,
    Flush,
    Label,
    MalformedRankEvent,
    Pause,
    RankEvent,
    StaleAdoption,
    encode,
    read_rank_event,
)
from tests.monitor.deployments import Rank

MANY = settings(max_examples=300, deadline=None, derandomize=True)


def watched(events: list[RankEvent]) -> tuple[RankWatch, list[Violation]]:
    watch = RankWatch(3, "engine:3/rank:0/7")
    return watch, [found for event in events for found in watch.feed(event)]


def test_a_right_publication_is_no_violation() -> None:
    """Pause, flush, load, continue, twice; fresh all the way."""
    rank = Rank()
    watch, found = watched([rank.start(), *rank.publication("a:2"), *rank.publication("a:3")])
    assert found == []
    assert (watch.freshness, watch.load_id, watch.paused, watch.why) == (Freshness.FRESH, "a:3", None, "")


def test_in_place_without_sharing_is_right() -> None:
    """Requests keep their KV, and no tree has any."""
    rank = Rank()
    watch, found = watched(
        [rank.start(sharing=False), rank(Pause, mode="in_place"), rank.load("a:2", mixed=True, paused="in_place")]
    )
    assert found == []
    assert watch.freshness is Freshness.FRESH


WRONG: dict[str, Callable[[Rank], list[RankEvent]]] = {
    "no_stale_hit": lambda r: [r.start(), r.stale()],
    "no_stale_hit, adopted": lambda r: [r.start(), r.stale(kind=StaleAdoption)],
    "adapters_are_apart": lambda r: [r.start(), r.stale(stale=0, foreign=3)],
    "flush_point": lambda r: [r.start(), r(Pause, mode="retract"), r.load("a:2", mixed=True)],
    "sharing_only_with_retract": lambda r: [
        r.start(),
        r(Pause, mode="in_place"),
        r.load("a:2", mixed=True, paused="in_place"),
    ],
    "bytes_arrive_in_a_pause": lambda r: [r.start(), r.load("a:2", paused=None)],
    "label_follows_success": lambda r: [r.start(), r(Label, epoch=0, load_id="a:2")],
    "only_whole_loads_compute": lambda r: [
        r.start(),
        r(Pause, mode="retract"),
        r(Flush, load_id="a:1"),
        r.load(None),
        r(Continue, load_id=None),
    ],
    "provenance_is_watched": lambda r: [r.start(watched=False)],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_each_wrong_is_named(wrong: str) -> None:
    """By the one property that it breaks, with its story."""
    watch, found = watched(WRONG[wrong](Rank()))
    assert [one.property for one in found] == [wrong.partition(",")[0]]
    assert found[0].engine == 3
    assert found[0].story[-1].startswith(f"{found[0].number}. ")
    assert str(found[0]).startswith(f"{found[0].property} violated at engine 3: ")
    assert "\n" not in str(found[0])
    if wrong not in {"bytes_arrive_in_a_pause", "label_follows_success", "only_whole_loads_compute"}:
        assert watch.freshness is not Freshness.FRESH


def test_every_property_that_is_said_to_be_decided_is() -> None:
    """None is listed in vain."""
    assert {wrong.partition(",")[0] for wrong in WRONG} == set(DECIDED)


@pytest.mark.parametrize("action", ["recomputed", "refused"])
def test_what_the_engine_stopped_is_told_as_that(action: str) -> None:
    """No token came of it, so that the engine is as fresh as before."""
    rank = Rank()
    watch, found = watched([rank.start(), rank.stale(action)])
    assert [(one.property, one.stopped) for one in found] == [("no_stale_hit", True)]
    assert watch.freshness is Freshness.FRESH


def test_a_flush_ends_staleness() -> None:
    """What was in the tree is gone."""
    rank = Rank()
    watch, _ = watched([rank.start(), rank.stale(), rank(Flush, load_id="a:2")])
    assert watch.freshness is Freshness.FRESH


def stream(chance: Any) -> Iterator[RankEvent]:
    """What a rank may tell, right and wrong."""
    rank = Rank()
    yield rank.start()
    for number in range(chance.randrange(1, 12)):
        match chance.randrange(5):
            case 0:
                yield from rank.publication(f"a:{number}")
            case 1:
                yield rank.stale()
            case 2:
                yield rank(Flush, load_id="a:1")
            case 3:
                yield rank.load("a:9", mixed=True)
            case _:
                yield rank.beat()


@MANY
@given(st.randoms(use_true_random=False))
def test_never_fresh_where_something_stale_was_not_seen(chance: Any) -> None:
    """Whatever is lost, and in whatever order lines come: who sees all knows at least as much against the engine."""
    told = list(stream(chance))
    whole, partly = Monitor(1, window=4), Monitor(1, window=4)
    for event in told:
        whole.rank(0, event)
    for event in [event for event in told if chance.random() < 0.7 or isinstance(event, Beat)]:
        partly.rank(0, event)
    partly.rank(0, msgspec.structs.replace(Rank().beat(), number=told[-1].number))
    for monitor in (whole, partly):
        monitor.give_up()
    all_seen, some_seen = (m.status().engines[0].freshness for m in (whole, partly))
    assert all_seen is not Freshness.UNKNOWN
    if some_seen is Freshness.FRESH:
        assert all_seen is Freshness.FRESH


def test_a_gap_is_unknown_until_the_next_flush() -> None:
    """And a beat is enough to find it."""
    rank = Rank()
    monitor = Monitor(1)
    monitor.rank(0, rank.start())
    rank(Flush, load_id="a:1")
    monitor.rank(0, rank.beat())
    status = monitor.status()
    assert status.engines[0].freshness is Freshness.UNKNOWN
    assert status.engines[0].why == "event 2 was not seen"
    assert status.counts.lost == 1
    monitor.rank(0, rank(Flush, load_id="a:1"))
    assert monitor.status().engines[0].freshness is Freshness.FRESH


def test_silence_is_unknown_and_ends_with_the_next_word() -> None:
    """Nothing was missing, so that nothing has changed."""
    rank = Rank()
    monitor = Monitor(1)
    monitor.rank(0, rank.start())
    monitor.silent(0, "nothing was heard of it for 30 s")
    assert monitor.status().engines[0].freshness is Freshness.UNKNOWN
    monitor.rank(0, rank.beat())
    assert monitor.status().engines[0].freshness is Freshness.FRESH


def test_an_engine_is_as_fresh_as_its_worst_rank() -> None:
    """One stale rank is enough; ranks that differ have no load in common."""
    first, second = Rank(7, 0), Rank(8, 1)
    monitor = Monitor(1)
    for event in (first.start(), second.start(), second.stale(), *first.publication("a:2")):
        monitor.rank(0, event)
    status = monitor.status().engines[0]
    assert (status.freshness, status.load_id, len(status.sources)) == (Freshness.STALE, None, 2)


def test_a_new_process_begins_anew() -> None:
    """Of the old one nothing is expected any more."""
    found: list[Violation] = []
    monitor = Monitor(1, found.append)
    for event in (Rank(7).start(), Rank(9).start()):
        monitor.rank(0, event)
    assert monitor.status().engines[0].sources == ("engine:0/rank:0/9",)
    assert found == []


@MANY
@given(st.one_of(st.binary(), st.text(), st.randoms(use_true_random=False)))
def test_any_bytes_are_an_event_or_refused_in_one_line(raw: Any) -> None:
    """And what was written is read."""
    if hasattr(raw, "randrange"):
        for event in stream(raw):
            assert read_rank_event(encode(event)) == event
        return
    with pytest.raises(MalformedRankEvent, match=r"^not a rank's event: [^\n]*"):
        read_rank_event(raw)
