"""The parts of the soak that need no engine."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.engine.cost import LOADS
from benchmarks.sections import README, between
from benchmarks.soak import injected, overhead
from benchmarks.soak.acts import ACTS
from benchmarks.soak.inject import Outcome
from benchmarks.soak.injected import as_markdown
from benchmarks.soak.memory import Growth, Memory
from benchmarks.soak.overhead import MODES, MONITORED, Round, overheads_of
from benchmarks.soak.plan import Fault, rounds
from benchmarks.soak.relay import Relay
from benchmarks.soak.report import LEAST_S, judged
from benchmarks.soak.run import Soaked
from benchmarks.soak.watcher import Watcher
from benchmarks.spread import Spread
from reef_ref.monitor.notice import CONFORMS
from reef_ref.monitor.policy import PROPERTIES
from reef_ref.outlet import Outlet
from reef_ref.rank_events import encode
from tests.monitor.deployments import Rank


def test_a_plan_is_the_same_every_time_and_leaves_nothing_out() -> None:
    """Each kind comes once before any comes again."""
    once = 2 * (len(Fault) + len(ACTS))
    first, again = (list(itertools.islice(rounds(7, 2), 2 * once)) for _ in range(2))
    assert first == again != list(itertools.islice(rounds(8, 2), 2 * once))
    for deck in (first[:once], first[once:]):
        counts = Counter(one.what.name if hasattr(one.what, "name") else None for one in deck)
        assert set(counts.values()) == {1, once // 2}
        assert counts[None] == once // 2


def test_every_act_names_properties_that_can_be_found() -> None:
    """And no two acts have one name."""
    assert {act.shows for act in ACTS} | {name for act in ACTS for name in act.follows} <= set(PROPERTIES)
    assert CONFORMS in {act.shows for act in ACTS}
    assert len({act.name for act in ACTS}) == len(ACTS)


def good() -> Soaked:
    found = Soaked(seconds=LEAST_S, publications=3)
    found.requests.answered = 5
    found.memory = {"monitor": Growth(10, 10, 9, Spread(0, -1, 1))}
    return found


def test_a_soak_is_judged() -> None:
    """By what went wrong, by what did not happen at all, and by memory that surely grows."""
    assert judged(good()) == []
    wrong = good()
    wrong.wrong.append("a false alarm")
    wrong.requests.answered = wrong.publications = 0
    assert judged(wrong) == ["a false alarm", "no request was answered", "nothing was published"]
    grows = good()
    grows.memory = {"monitor": Growth(10, 90, 9, Spread(80, 70, 90)), "soak": None}
    assert judged(grows) == [
        "monitor grows by 80.0 (70.0 to 90.0) MiB an hour",
        "the memory of soak was never measured",
    ]
    grows.seconds = LEAST_S / 2
    assert judged(grows) == [], "too short to say"


def test_growth_is_that_of_each_life() -> None:
    """A process that begins again with less has not shrunk."""
    memory = Memory({})
    for pid, first in ((1, 100.0), (2, 50.0)):
        memory._samples["monitor", pid] = [(1000.0 * pid + 30 * n, first + n / 120) for n in range(10)]
    growth = memory.growth("monitor")
    assert growth is not None
    assert growth.per_hour is not None
    assert growth.per_hour.median == pytest.approx(1.0)
    assert memory.growth("nobody") is None


def test_overheads_are_those_of_the_same_round() -> None:
    """A slow round is slow for all, and hides nothing."""
    taken = {mode: [Round(s * (1.1 if mode == MONITORED else 1.0), s / 100) for s in (1, 5, 1)] for mode in MODES}
    found = {(one.mode, one.against): one for one in overheads_of("x", LOADS[0], taken)}
    assert found[MONITORED, "report"].time.median == pytest.approx(1.1)
    assert not found[MONITORED, "report"].within_goal
    assert found["report again", "report"].within_goal


def test_what_was_missed_is_told_in_the_table() -> None:
    """And what was amiss."""
    text = as_markdown(
        [Outcome("a", "engine", None, None, 0.0, "none", ("missed",)), Outcome("b", "x", "p", 2, 1, "y")]
    )
    assert "2 kinds" in text
    assert "1 missed, 1 with something amiss" in text
    assert "| a | engine | missed |" in text
    assert "* a: missed" in text


NOT_KEPT = "Not yet kept here: run it."


@pytest.mark.parametrize("part", [injected, overhead])
def test_the_readme_shows_what_is_kept(part: Any) -> None:
    """`make bench-engine` writes both; until then it says so."""
    adapter = {injected: injected.OUTCOMES, overhead: overhead.RESULTS}[part]
    shown = part.as_markdown(adapter.validate_json(part.KEPT.read_bytes())) if part.KEPT.exists() else NOT_KEPT
    assert between(README.read_text(), part.SECTION) == shown


def test_nothing_that_is_kept_was_missed() -> None:
    """Every kind is there, and none was amiss."""
    if injected.KEPT.exists():
        kept = injected.OUTCOMES.validate_json(injected.KEPT.read_bytes())
        assert {act.name for act in ACTS} < {one.act for one in kept}
        assert [one for one in kept if one.property is None or one.faults] == []


def test_a_monitor_is_asked_killed_and_begun_again(tmp_path: Path) -> None:
    """Through a relay that counts what it passes on, and loses what it is told to lose."""
    inner, outer, rank = tmp_path / "monitor", tmp_path / "relay", Rank()

    def line(event: object) -> bytes:
        return json.dumps({**json.loads(encode(event)), "engine": 0}).encode()  # type: ignore[arg-type]

    async def story() -> None:
        watcher = Watcher(1, inner, {}, {})
        await watcher.start()
        try:
            async with Relay.between(outer, inner) as relay:
                outlet: Outlet[bytes] = Outlet(f"unix:{outer}", lambda raw: raw)
                for event in (rank.start(), *rank.publication("a:2")):
                    outlet.put(line(event))
                outlet.put(line(rank.stale()))
                seen = await watcher.found(0.0, {"no_stale_hit"}, 60)
                assert seen is not None
                assert relay.last == {seen.source: seen.number}
                assert await watcher.at_rest(60)
                assert [one.reaction for one in watcher.reactions] == ["report"]
                assert (await watcher.status())["engines"]["0"]["freshness"] == "stale"
                first = watcher.pid
                await watcher.kill()
                assert watcher.pid is None
                await watcher.start()
                assert watcher.pid != first
                assert (await watcher.status())["engines"]["0"]["freshness"] == "unknown"
                relay.loses = lambda told: told["event"] == "stale_prefix"
                outlet.put(line(rank.stale()))
                for event in rank.publication("a:3"):
                    outlet.put(line(event))
                async with asyncio.timeout(60):
                    while relay.last[seen.source] < rank.number:
                        await asyncio.sleep(0.05)
                assert relay.lost == 1
                outlet.close()
        finally:
            assert await watcher.stop() in {0, 1, 3}
        assert watcher.told == 1

    asyncio.run(story())
