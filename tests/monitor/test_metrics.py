"""Metrics: each says what was told, none goes back, the table is the documentation, and series are bounded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from reef_ref import events
from reef_ref.control import CallsFailed, Control, ControlSettings
from reef_ref.engines.blockers import Blocker, blocker_of
from reef_ref.engines.interface import CacheState, Flush, PauseMode, Request
from reef_ref.engines.simulated import Fault, SimulatedEngine, SimulatedSettings, Weights, run_simulated
from reef_ref.engines.simulated.scheduler import SchedulerSettings
from reef_ref.events import Event, Line
from reef_ref.health import Slots
from reef_ref.monitor.metrics import TABLE, Kind, Metrics, table
from reef_ref.monitor.notice import CONFORMS, Violation
from reef_ref.monitor.policy import PROPERTIES, Reaction
from reef_ref.monitor.respond import Response
from reef_ref.monitor.sidecar import Inputs, Sidecar
from reef_ref.rank_events import RankEvent, encode
from tests.conformance.world import Layout
from tests.monitor.deployments import Rank, trace

DOCS = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


class Watched:
    """A sidecar that is fed by hand, and its metrics; `now` is the monitor's clock."""

    def __init__(self, engines: int = 2) -> None:
        self.now = 100.0
        self.observers: list[Metrics] = []
        self.sidecar = Sidecar(engines, Inputs(), observers=self.observers)
        self.metrics = Metrics(engines, self.sidecar.status, clock=lambda: self.now)
        self.observers.append(self.metrics)

    def feed(self, *lines: Line | RankEvent, engine: int = 0) -> None:
        async def take() -> None:
            for line in lines:
                if isinstance(line, Line):
                    self.sidecar.take("test", line.to_json().encode())
                else:
                    self.sidecar.take("test", encode(line), engine)

        asyncio.run(take())

    def tell(self, *told: Event) -> None:
        """As a coordinator tells it, without a monitor that judges it."""
        for number, event in enumerate(told, start=1):
            self.metrics.line(Line("coordinator:a", number, float(number), event))

    def samples(self) -> dict[str, float]:
        """What is exposed, by its name and labels as Prometheus writes them."""
        found = {}
        for family in text_string_to_metric_families(generate_latest(self.metrics.registry).decode()):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
        return found

    def counted(self) -> dict[str, float]:
        """What is not zero, of our own counters."""
        return {k: v for k, v in self.samples().items() if k.startswith("reef_ref_") and "_total" in k and v}


def test_the_documentation_has_the_table_as_it_is() -> None:
    assert table() in DOCS.read_text()


def test_what_is_exposed_is_what_the_table_says(tmp_path: Path) -> None:
    """Every metric, under its name, of its kind, with its labels; and no other of ours."""
    watched = Watched()
    watched.feed(*trace(tmp_path, Layout(engines=2), (True, False)))
    watched.feed(Rank(1).start())
    families = {
        family.name: family
        for family in text_string_to_metric_families(generate_latest(watched.metrics.registry).decode())
        if family.name.startswith("reef_ref_")
    }
    assert {name: family.type for name, family in families.items()} == {one.name: one.kind for one in TABLE}
    for one in TABLE:
        family = families[one.name]
        assert family.documentation == one.about
        endings = ("_bucket", "_sum", "_count") if one.kind is Kind.HISTOGRAM else ("",)
        assert {sample.name for sample in family.samples} == {one.exposed + ending for ending in endings}
        assert {frozenset(sample.labels) - {"le"} for sample in family.samples} == {frozenset(one.labels)}


def test_names_follow_the_conventions() -> None:
    """Base units, `_total` for counters only, and something said of each."""
    for one in TABLE:
        assert re.fullmatch(r"reef_ref_[a-z]+(_[a-z]+)*", one.name)
        assert not one.name.endswith("_total")
        assert not re.search(r"_(ms|milliseconds|minutes|percent|ratio)(_|$)", one.name)
        assert one.about.endswith(".")


def test_a_life_is_counted(tmp_path: Path) -> None:
    watched = Watched()
    lines = trace(tmp_path, Layout(engines=2), (True, False, True))
    watched.feed(*lines)
    counted = watched.counted()
    assert counted['reef_ref_publications_total{errand="recover",outcome="served"}'] == 1
    assert counted['reef_ref_publications_total{errand="publish",outcome="served"}'] == 2
    assert counted["reef_ref_rejections_total"] == 1
    assert [counted[f'reef_ref_engines_rebuilt_total{{engine="{e}"}}'] for e in (0, 1)] == [1, 1]
    of_coordinator = sum(line.source.startswith("coordinator") for line in lines)
    assert counted['reef_ref_events_total{source="coordinator"}'] == of_coordinator
    samples = watched.samples()
    assert samples["reef_ref_barrier_seconds_count"] == 3
    assert samples["reef_ref_latched"] == 0
    assert samples["reef_ref_deployment_known"] == 1
    assert samples["reef_ref_possible_states"] >= 1
    assert not any("violations" in name for name in counted)


def test_what_was_retired_and_rebuilt_is_counted(tmp_path: Path) -> None:
    """A flush that fails at one engine ends every engine of a deployment that owns them."""
    watched = Watched()
    lines = trace(tmp_path, Layout(engines=2), (True,), {20: Fault.FAILS_BEFORE})
    watched.feed(*lines)
    counted = watched.counted()
    retired = sum(isinstance(line.event, events.Retire) for line in lines)
    rebuilt = sum(isinstance(line.event, events.Rebuild) for line in lines)
    assert retired > 0
    assert sum(v for k, v in counted.items() if "engines_retired" in k and 'by="coordinator"' in k) == retired
    assert sum(v for k, v in counted.items() if "engines_rebuilt" in k) == rebuilt
    assert counted['reef_ref_publications_total{errand="publish",outcome="barrier_failed"}'] == 1
    assert counted['reef_ref_publications_total{errand="retry",outcome="served"}'] == 1


def test_a_publication_that_is_pending_grows_old_and_is_done() -> None:
    watched = Watched()
    watched.tell(events.BeginPublish("j"), events.BarrierFails("pause", (0,), ("none",), "no"))
    watched.now += 700
    assert watched.samples()["reef_ref_publication_pending_seconds"] == 700
    watched.metrics.line(Line("coordinator:a", 3, 9.0, events.AllContinued()))
    assert watched.samples()["reef_ref_publication_pending_seconds"] == 0


TEXTS = {
    "Flush cache failed.": Blocker.UNNAMED,
    "Cache not flushed because there are pending requests. #queue-req: 3, #running-req: 2": Blocker.RUNNING,
    "Cache not flushed because there are pending requests. #queue-req: 3, #running-req: 0": Blocker.WAITING,
    "Cache not flushed because there are pending requests. #queue-req: 0, #running-req: 0": Blocker.UNNAMED,
    "Another flush_cache is already in progress.": Blocker.ANOTHER_FLUSH,
    "Timed out waiting for idle state.": Blocker.ANOTHER_FLUSH,
    "flush at http://x:1: no answer within 5 s": Blocker.NO_ANSWER,
    "2 running": Blocker.RUNNING,
    "1 waiting": Blocker.WAITING,
    "1 compiling": Blocker.GRAMMAR,
    "": Blocker.UNNAMED,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_refusal_is_called_by_what_it_names(text: str) -> None:
    """SGLang's texts (its own answer, and its log's line, 0.5.23), and those of the simulated engine."""
    assert blocker_of(text) is TEXTS[text]


class Refuses(SimulatedEngine):
    """An engine that refuses a flush twice, for a request that runs."""

    async def flush(self) -> Flush:
        await super().flush()
        return Flush(CacheState.CLEARED, 2, 0.3, "1 running")


def test_refusals_are_told_by_the_coordinator_and_counted() -> None:
    watched = Watched(1)

    async def story() -> None:
        tell = events.Teller("coordinator:a", watched.metrics.line, clock=lambda: 0.0)
        slots = Slots([Refuses(0, Weights(77, "boot"))])
        settings = ControlSettings(pause_mode=PauseMode.RETRACT)
        await Control(slots, settings, launcher=None, monitor=None, tell=tell).barrier()

    run_simulated(story())
    assert watched.counted()['reef_ref_flush_refusals_total{blocker="running"}'] == 2


def test_a_flush_that_is_given_up_is_counted_by_what_was_in_its_way() -> None:
    """A grammar that compiles keeps a paused engine from flushing for as long as the pause lasts."""
    watched = Watched(1)

    async def story() -> None:
        tell = events.Teller("coordinator:a", watched.metrics.line, clock=lambda: 0.0)
        scheduler = SchedulerSettings(grammar_blocks_flush=True, grammar_steps=10**9)
        engine = SimulatedEngine(0, Weights(77, "boot"), settings=SimulatedSettings(scheduler=scheduler))
        request = Request(input_ids=(1, 2), max_new_tokens=4, json_schema="{}")
        task = asyncio.create_task(engine.generate(request))
        await asyncio.sleep(0.05)
        control = Control(
            Slots([engine]), ControlSettings(pause_mode=PauseMode.RETRACT), launcher=None, monitor=None, tell=tell
        )
        with pytest.raises(CallsFailed) as caught:
            await control.barrier()
        tell(events.BarrierFails, caught.value.call, (0,), ("none",), str(caught.value))
        engine.end("the test is over")
        await asyncio.gather(task, return_exceptions=True)

    run_simulated(story())
    assert watched.counted()['reef_ref_flushes_given_up_total{blocker="grammar"}'] == 1


def test_a_name_that_nobody_knows_makes_no_series() -> None:
    """Labels come from fixed sets, whatever is told."""
    watched = Watched(1)
    before = set(watched.samples())
    watched.tell(events.Flush(0, 3, "the moon"), events.BarrierFails("flush", (0,), ("none",), "the moon"))
    for number, source in enumerate(("rank:1", "x", "", "coordinator"), start=1):
        watched.metrics.line(Line(source, number, 0.0, events.AllPaused()))
    assert set(watched.samples()) == before
    assert watched.counted()['reef_ref_events_total{source="other"}'] == 3


# Ranks.


def test_what_ranks_count_comes_with_their_beats() -> None:
    watched = Watched()
    one, other = Rank(11, rank=0), Rank(12, rank=1)
    watched.feed(one.start(), one.beat(prefixes_checked=3, slots_checked=40), other.start())
    watched.feed(other.beat(prefixes_checked=1, slots_checked=2), one.beat(prefixes_checked=5, slots_checked=60))
    counted = watched.counted()
    assert counted['reef_ref_prefixes_checked_total{engine="0"}'] == 6
    assert counted['reef_ref_prefix_slots_checked_total{engine="0"}'] == 62
    assert 'reef_ref_prefixes_checked_total{engine="1"}' not in counted


def test_a_rank_that_starts_again_goes_on_from_where_the_last_one_was() -> None:
    """With another process number, and with the same one, as in a container."""
    watched = Watched()
    for pid in (11, 12, 12):
        rank = Rank(pid)
        watched.feed(rank.start(), rank.beat(slots_checked=10), rank.beat(slots_checked=25))
    assert watched.counted()['reef_ref_prefix_slots_checked_total{engine="0"}'] == 75


def test_an_old_process_that_is_heard_late_is_not_counted_twice() -> None:
    watched = Watched()
    old, new = Rank(11), Rank(12)
    watched.feed(old.start(), old.beat(slots_checked=10), new.start(), new.beat(slots_checked=4))
    watched.feed(old.beat(slots_checked=12))
    assert watched.counted()['reef_ref_prefix_slots_checked_total{engine="0"}'] == 16


def test_stale_slots_are_counted_at_once_and_once() -> None:
    """The event comes first, the beat that counts the same later."""
    watched = Watched()
    rank = Rank(11)
    watched.feed(rank.start(), rank.stale(stale=4), rank.stale("refused", stale=3))
    stale = 'reef_ref_stale_slots_total{engine="0"}'
    assert watched.counted()[stale] == 7
    watched.feed(rank.beat(stale_slots=7, refused=1), rank.stale("recomputed", stale=9), rank.stale(stale=1))
    counted = watched.counted()
    assert counted[stale] == 8
    assert counted['reef_ref_stale_prefixes_stopped_total{by="refused",engine="0"}'] == 1
    assert counted['reef_ref_stale_prefixes_stopped_total{by="recomputed",engine="0"}'] == 1
    assert counted['reef_ref_violations_total{engine="0",property="no_stale_hit",stopped="no"}'] == 2
    assert counted['reef_ref_violations_total{engine="0",property="no_stale_hit",stopped="yes"}'] == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([(0, 5), (0, 6), (1, 5)]),
            st.sampled_from(["start", "beat", "stale", "recomputed", "refused"]),
            st.integers(0, 50),
        ),
        max_size=40,
    )
)
def test_no_counter_goes_back_whatever_ranks_tell(told: list[tuple[tuple[int, int], str, int]]) -> None:
    watched, ranks, last = Watched(1), {}, {}
    for (rank, pid), what, number in told:
        if what == "start":
            ranks[pid, rank] = Rank(pid, rank)
        teller = ranks.setdefault((pid, rank), Rank(pid, rank))
        match what:
            case "start":
                watched.metrics.rank(0, teller.start())
            case "beat":
                watched.metrics.rank(0, teller.beat(slots_checked=number, stale_slots=number, refused=number))
            case _:
                watched.metrics.rank(0, teller.stale("reported" if what == "stale" else what, stale=number))
        counted = watched.counted()
        assert all(counted.get(name, 0) >= value for name, value in last.items())
        last = counted


def test_freshness_is_a_set_of_states_and_sharing_is_absent_until_it_is_heard() -> None:
    watched = Watched(2)
    samples = watched.samples()
    state = 'reef_ref_engine_freshness{{engine="{}",freshness="{}"}}'.format
    assert [samples[state(0, name)] for name in ("fresh", "stale", "unknown")] == [0, 0, 1]
    assert not any("engine_sharing" in name for name in samples)
    rank = Rank(7)
    watched.feed(rank.start())
    samples = watched.samples()
    assert [samples[state(0, name)] for name in ("fresh", "stale", "unknown")] == [1, 0, 0]
    assert {k: v for k, v in samples.items() if "engine_sharing" in k} == {'reef_ref_engine_sharing{engine="0"}': 1}
    watched.feed(rank.stale())
    samples = watched.samples()
    assert [samples[state(0, name)] for name in ("fresh", "stale", "unknown")] == [0, 1, 0]


def test_sharing_follows_the_engine() -> None:
    watched = Watched(1)
    watched.feed(Rank(7).start(sharing=False))
    assert watched.samples()['reef_ref_engine_sharing{engine="0"}'] == 0


def test_silence_is_counted_from_the_last_word_or_the_beginning() -> None:
    watched = Watched(2)
    watched.now += 5
    rank = Rank(7)
    watched.feed(rank.start(), rank.beat())
    watched.now += 2
    samples = watched.samples()
    assert [samples[f'reef_ref_engine_silence_seconds{{engine="{e}"}}'] for e in (0, 1)] == [2, 7]


def test_what_did_not_come_right_is_counted() -> None:
    """Late, repeated, lost, waiting; and lines that are none."""
    watched = Watched(1)
    rank = Rank(7)
    told = [rank.start(), *rank.publication("a:2")]
    watched.feed(told[0], told[2])
    assert watched.samples()["reef_ref_events_waiting"] == 1
    watched.feed(told[1], told[1])
    counted = watched.counted()
    assert (counted["reef_ref_events_late_total"], counted["reef_ref_events_repeated_total"]) == (1, 1)
    rank.number += 1  # It has told another one, and nobody has seen it.
    watched.feed(told[4], rank.beat())
    counted = watched.counted()
    assert counted["reef_ref_events_lost_total"] == 2
    assert counted['reef_ref_events_total{source="rank"}'] == 4, "what is lost was not taken, and what is repeated once"

    async def garbage() -> None:
        watched.sidecar.take("test", b"{")

    asyncio.run(garbage())
    assert watched.counted()["reef_ref_lines_unreadable_total"] == 1


@pytest.mark.parametrize(
    "event", [events.Retire(9), events.Die(-1, ()), events.EmptySlot(2), events.Flush(7)], ids=repr
)
def test_an_event_of_an_engine_that_there_is_not_is_unreadable(event: Event) -> None:
    """And no more than that: the monitor goes on, and the event is in no other count."""
    watched = Watched(2)
    watched.feed(Line("coordinator:a", 1, 0.0, events.Restart((0, 1))), Line("coordinator:a", 2, 1.0, event))
    watched.feed(Line("coordinator:a", 3, 2.0, events.AllPaused()))
    counted = watched.counted()
    assert counted["reef_ref_lines_unreadable_total"] == 1
    assert counted['reef_ref_events_total{source="coordinator"}'] == 2


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_has_its_series_from_the_beginning(name: str) -> None:
    """So that its first violation is an increase."""
    watched = Watched(2)
    engine = None if name == CONFORMS else 1
    label = "" if engine is None else "1"
    series = f'reef_ref_violations_total{{engine="{label}",property="{name}",stopped="no"}}'
    assert watched.samples()[series] == 0
    watched.metrics.violation(Violation(name, engine, "s", 1, "because", ()))
    assert watched.samples()[series] == 1


def test_reactions_are_counted_with_what_came_of_them() -> None:
    watched = Watched(1)
    violation = Violation(CONFORMS, None, "s", 1, "because", ())
    for reaction, done in ((Reaction.FENCE, True), (Reaction.FENCE, False), (Reaction.HALT, True)):
        watched.metrics.response(Response(violation, reaction, done, "so", 0.1))
    assert {k: v for k, v in watched.counted().items() if "reactions" in k} == {
        'reef_ref_reactions_total{outcome="done",reaction="fence"}': 1,
        'reef_ref_reactions_total{outcome="failed",reaction="fence"}': 1,
        'reef_ref_reactions_total{outcome="done",reaction="halt"}': 1,
    }


def all_kinds() -> Iterator[Event]:
    """Every event that there is, of engine 0."""
    values = {"int": 0, "str": "x", "str | None": None, "tuple[str, ...]": (), "tuple[int, ...]": (0,)}
    for kind in events.EVENTS.values():
        yield kind(*(values[str(f.type)] for f in kind.__dataclass_fields__.values()))


def names(metrics: Iterable[str]) -> set[str]:
    return {name.partition("{")[0] for name in metrics}


def test_series_do_not_grow() -> None:
    """Whatever is told, there are as many as at the beginning, but for what was not heard then."""
    watched = Watched(3)
    before = set(watched.samples())
    watched.tell(*all_kinds())
    rank = Rank(9)
    watched.feed(rank.start(), rank.stale(), *rank.publication("a:2"), engine=2)
    for name in PROPERTIES:
        watched.metrics.violation(Violation(name, 2, "s", 1, "because", ()))
    assert names(set(watched.samples()) - before) <= {"reef_ref_engine_sharing", "reef_ref_latched"}
