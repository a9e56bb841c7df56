"""Runs of the publication protocol, taken step by step by the coordinator over simulated engines.

The runs together take every kind of step that the coordinator can see or do (`model_check.cover`). Each step is brought
about in a paced world: by a call of the service, by letting a call have its turn, by a fault, or by nothing, where the
coordinator goes on by itself. What is told has to be the run's steps, in their order; the record, the latch and the
slots have to be as the run has them after each step at which the coordinator waits.

`python -m tests.conformance.replay` prints how many kinds of steps there are, were taken, and were not, and why.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from model_check.cover import Cover, Taken, reduced
from model_check.evaluate import Space, State
from model_check.explain import Verdict
from reef_ref import events
from reef_ref.engines.simulated.clock import VirtualTimeLoop
from reef_ref.health import Slots
from reef_ref.load_id import LoadId
from reef_ref.training import Job
from spec.publication import publication
from spec.publication.scopes import SMOKE
from spec.publication.state import Errand, Marker, Mode, Stage
from tests.conformance.explore import judge
from tests.conformance.kinds import CALLS_FAIL, DEAD, EMPTY, LIVE, SEEN, runs, value
from tests.conformance.paced import PacedWorld, Turn, Way
from tests.conformance.world import Checkpoints, Layout


class Astray(AssertionError):  # noqa: N818  The name says what became of the coordinator.
    """The coordinator did not go where the run goes."""


SENDING = {
    ("send", ()): Way.WELL,
    ("send_tears", (0,)): Way.TORN,
    ("send_tears", (1,)): Way.TORN_AND_STAMPED,
    ("send_without_stamp", ()): Way.NOT_STAMPED,
    ("stamp_without_bytes", ()): Way.ONLY_STAMPED,
}
CALLS = {"retire": "shut down", **{name: "send" for name, _ in SENDING}}
"""The call that an action is the answer of, where it has another name."""
ASKED = ("pause", "flush", "release", "rebuild", "resume_weights", "resume_kv", "continue_generation", "retire")
AGAIN = events.Release | events.ResumeWeights | events.ResumeKv
"""What may be told of an engine where it is no step: it had given its memory, or had it back."""
REPAIRED_BY_HEALTH = "the coordinator is killed with its engines"


@dataclass(frozen=True)
class Place:
    """The state before or after a step, by names."""

    space: Space
    state: State

    def __call__(self, name: str, engine: int | None = None) -> int:
        keys = () if engine is None else (engine,)
        return self.state[self.space.cell(publication.fields[name], keys)]

    @property
    def engines(self) -> range:
        return range(self.space.scope.sizes["Engine"])

    def slots(self) -> list[int]:
        return [self("slot", e) for e in self.engines]

    def answered(self) -> bool:
        """Whether every engine has answered the call of this stage."""
        there = [e for e in self.engines if self("slot", e) != EMPTY]
        match list(Stage)[self("stage")]:
            case Stage.RELEASE:
                return all(self("kv_out", e) and self("weights_out", e) for e in there)
            case Stage.RESUME_WEIGHTS:
                return not any(self("weights_out", e) for e in there)
            case Stage.RESUME_KV:
                return not any(self("kv_out", e) for e in there)
            case _:
                return all(self("done", e) for e in there)


class Replay:
    """One run, in one world."""

    def __init__(self, world: PacedWorld, space: Space, run: Sequence[Taken]) -> None:
        self.world = world
        self.space = space
        self.run = run
        self.at = 0
        self.job = 0
        self.call: asyncio.Task[Any] | None = None
        self.kept = 0
        self.astray = ""

    @property
    def step(self) -> Taken:
        """The next step."""
        return self.run[self.at]

    @property
    def name(self) -> str:
        """The next step's action; empty at the end."""
        return self.run[self.at].instance.action.name if self.at < len(self.run) else ""

    @property
    def here(self) -> Place:
        """Where the run is."""
        return Place(self.space, self.step.before if self.at < len(self.run) else self.run[-1].after)

    @property
    def busy(self) -> bool:
        """Whether the coordinator works on a call."""
        return self.call is not None and not self.call.done()

    async def play(self) -> None:
        """Take every step. Raises `Astray`."""
        await self.world.restart()
        self.world.free = False
        self.world.on_line = self.hear
        try:
            while self.at < len(self.run):
                await self.settle()
                self.compare()
                number = self.at
                await self.take()
                await self.settle()
                if self.at == number and not self.astray:
                    self.astray = f"nothing is told; waiting: {sorted(map(str, self.world.waiting))}"
                if self.astray:
                    raise Astray(f"step {self.at}, {self.told()}: {self.astray}")
        finally:
            self.world.on_line = lambda _: None
            await self.end()

    def told(self) -> str:
        """The next step and what comes before it, for messages."""
        near = self.run[max(0, self.at - 6) : self.at + 1]
        return ", ".join(self.space.instance_name(step.instance) for step in near)

    async def end(self) -> None:
        """End what is under way."""
        if self.busy:
            self.world.plan.dead = True
        await self.settle()
        await self.world.close()

    async def settle(self) -> None:
        """Let everything go on until it waits for its turn."""
        await asyncio.sleep(0.01)
        if self.world.plan.dead:
            await self._let_die()

    async def _let_die(self) -> None:
        while self.busy:
            for turn in list(self.world.waiting):
                self.world.let(turn)
            await asyncio.sleep(0.01)
        self.world.plan.revive()

    def compare(self) -> None:
        """Hold what can be looked at to the state that the run has here."""
        here, world = self.here, self.world
        record = world.record()
        status = Marker.NONE if record is None else Marker[record.status.name]
        slots = [
            EMPTY if engine is None else LIVE if getattr(engine, "alive", False) else DEAD
            for engine in (world.slots[e] for e in here.engines)
        ]
        found = [value(status), record is not None and record.target is not None, slots]
        wanted = [here("disk_status"), here("disk_target") > 0, here.slots()]
        if world.coordinator is not None and here("stage") not in (value(Stage.DOWN), value(Stage.REFUSED)):
            found.append(world.coordinator.latched)
            wanted.append(bool(here("latch")))
        if found != wanted:
            raise Astray(
                f"before step {self.at}, {self.told()}: status, target, slots, latch are {found}, not {wanted}"
            )

    # What is told

    def hear(self, event: events.Event) -> None:
        """Take one event for the next step, and whatever has to happen at once after it."""
        if isinstance(event, events.OfRequest | events.Die | events.Crash) or self.astray or not self.name:
            return
        if isinstance(event, events.RetireFails) and self.name == "retire_fails":
            self.kept -= 1
            if self.kept:
                return
        elif not self.fits(event):
            if not isinstance(event, AGAIN):
                self.astray = f"the coordinator tells {event}"
            return
        self.at += 1
        self.at_once()

    def fits(self, event: events.Event) -> bool:
        """Whether an event tells the next step."""
        name, args = self.name, self.step.instance.args
        match event:
            case events.FindDead():
                return name in ("find_dead", "find_dead_at_continue", "find_mismatch")
            case events.CallsFail():
                return name in CALLS_FAIL
            case events.Send(engine=engine):
                return CALLS.get(name) == "send" and engine == args[0]
            case events.OfEngine(engine=engine):
                return name == event.name() and engine == args[0]
            case _:
                return name == event.name()

    def at_once(self) -> None:
        """Whatever comes next that needs no call to wait for its turn."""
        while self.at < len(self.run):
            match self.name:
                case "die":
                    engine = self.world.slots[self.step.instance.args[0]]
                    assert engine is not None
                    engine.die()  # type: ignore[attr-defined]
                case "crash" if self.busy:
                    self.world.plan.dead = True
                    self.at += 1
                    return
                case "retire_fails" if self.here("errand") == value(Errand.TRAIN):
                    pass  # Nobody tries: see `kinds.BEFORE_TRAINING`.
                case "commit_head" | "open_gate":
                    return
                case name if name in CALLS_FAIL and self.busy and not self.world.waiting and self.here.answered():
                    assert self.world.plan.cancel is not None
                    self.world.plan.cancel()
                    return
                case _:
                    return
            self.at += 1

    # What is done

    async def take(self) -> None:
        """Bring the next step about, or wait until it comes about."""
        self.at_once()
        if self.at == len(self.run) or self.world.plan.dead:
            return
        name, args, world = self.name, self.step.instance.args, self.world
        match name:
            case "crash":
                world.coordinator = None
                world.tell_deployment(events.Crash)
                self.at += 1
                self.at_once()
            case "all_retired":
                self.at += 1
                self.at_once()
            case "retire_fails":
                self.kept = sum(slot != EMPTY for slot in self.here.slots())
                self.let_all(Way.FAILS, "shut down")
            case "commit_head":
                record = world.record()
                assert record is not None
                world.head = str(record.target)
                world.committed.add(world.head)
                world.tell_service(events.CommitHead, world.head)
            case "open_gate":
                world.tell_service(events.OpenGate)
            case "empty_slot":
                await self.look(args[0])
            case "restart":
                self.begin(world.restart())
            case "tear_down":
                await self.tear_down()
            case "restore_previous_record":
                record = world.record()
                assert record is not None
                world.disk.data = None
                world.tell_deployment(events.RestorePreviousRecord, record.job)
            case "decline_job":
                world.let(("prepare", None), Way.DECLINED)
            case "train":
                world.let(("train", None))
            case "train_fails":
                world.let(("train", None), Way.FAILS)
            case "write_fails":
                await self.prepared()
                self.turn(("write", None), Way.FAILS_AFTER if args[0] else Way.FAILS)
            case "verify" | "find_mismatch":
                self.let_all(Way.WELL, "report")
            case "barrier_fails" | "transfer_fails" | "continue_fails":
                self.fail()
            case "find_dead" | "find_dead_at_continue":
                for turn in list(world.waiting):
                    dead = turn[1] is not None and self.here("slot", turn[1]) == DEAD
                    world.let(turn, Way.WELL if dead else Way.FAILS)
            case _ if (name, args[1:]) in SENDING:
                self.turn(("send", args[0]), SENDING[name, args[1:]])
            case _ if name in ASKED:
                if name == "continue_generation":
                    self.let_all(Way.WELL, "report")
                    await self.settle()
                self.turn((CALLS.get(name, name), args[0]), Way.WELL)
            case _ if name.startswith(("record_", "declare")):
                await self.prepared()
                self.turn(("write", None), Way.WELL)
            case _ if name.startswith("begin_") or name == "acknowledge":
                self.ask(name)
            case _:
                self.let_all(Way.WELL, "release", "resume_weights", "resume_kv", "report")

    def turn(self, turn: Turn, way: Way) -> None:
        """It is the turn of a call, which has to wait for it."""
        if turn in self.world.waiting:
            self.world.let(turn, way)
        else:
            self.astray = f"{turn} is not asked for; waiting: {sorted(map(str, self.world.waiting))}"

    def let_all(self, way: Way, *calls: str) -> None:
        """It is the turn of all calls of some kinds."""
        for turn in list(self.world.waiting):
            if turn[0] in calls:
                self.world.let(turn, way)

    async def prepared(self) -> None:
        """A job that is about to begin is not declined."""
        if ("prepare", None) in self.world.waiting:
            self.world.let(("prepare", None))
            await self.settle()

    def fail(self) -> None:
        """Let the calls of this stage fail; where one of them finds nobody, that would be told: cancel them instead."""
        waiting = [turn for turn in self.world.waiting if turn[1] is not None]
        if any(self.here("slot", turn[1]) == DEAD for turn in waiting):
            assert self.world.plan.cancel is not None
            self.world.plan.cancel()
        else:
            for turn in waiting:
                self.world.let(turn, Way.FAILS)

    async def look(self, slot: int) -> None:
        """The health monitor finds one slot without anybody behind it."""
        world = self.world
        assert world.monitor is not None
        world.looked_at = {slot}
        look = asyncio.ensure_future(world.monitor.look())
        await self.settle()
        self.let_all(Way.WELL, "shut down")
        await look
        world.looked_at = set()

    async def tear_down(self) -> None:
        """The coordinator is killed, and every engine."""
        world = self.world
        if self.busy:
            world.plan.dead = True
            await self.settle()
        world.coordinator = None
        for engine in world.made:
            engine.end(REPAIRED_BY_HEALTH)
        world.slots = Slots([None] * len(world.slots))
        world.tell_deployment(events.TearDown)

    def begin(self, operation: Coroutine[Any, Any, object]) -> None:
        """The coordinator works on a call."""
        assert not self.busy, "one call at a time"
        self.call = asyncio.ensure_future(operation)

    def ask(self, name: str) -> None:
        """The service calls."""
        world = self.world
        record = world.record()
        job = "" if record is None else record.job
        match name:
            case "begin_training":
                self.job += 1
                wanted = Job(job=f"job-{self.job}", rollout=self.job)
                self.begin(world.call(lambda c: c.train(wanted)))
            case "begin_publish" | "begin_retry":
                self.begin(world.call(lambda c: c.publish(job)))
            case "begin_republish":
                assert world.coordinator is not None
                load: LoadId = world.coordinator.served.load_id
                self.begin(world.call(lambda c: c.republish(load)))
            case "begin_reject":
                self.begin(world.call(lambda c: c.reject(job)))
            case "acknowledge":
                self.begin(world.call(lambda c: c.acknowledge(job)))


@dataclass(frozen=True)
class Played:
    """What came of one run: the events that it told, how many of its steps were taken, and what went wrong."""

    events: int
    taken: int
    problem: str


def play(folder: Path, space: Space, run: Sequence[Taken]) -> Played:
    """Replay one run, and let the protocol explain what was told."""
    start = Place(space, run[0].before)
    layout = Layout(
        engines=len(start.engines),
        colocated=bool(start("colocated")),
        in_place=start("mode") == value(Mode.IN_PLACE),
    )

    async def main() -> tuple[PacedWorld, Replay, str]:
        world = PacedWorld(Checkpoints(folder), layout)
        replay = Replay(world, space, run)
        try:
            await replay.play()
        except Astray as error:
            return world, replay, str(error)
        return world, replay, ""

    loop = VirtualTimeLoop()
    try:
        world, replay, problem = loop.run_until_complete(main())
    finally:
        loop.close()
    report = judge(world.lines, layout.engines)
    if not problem and report.verdict is not Verdict.EXPLAINED:
        problem = f"{report.verdict.value}: {report.finding or report.reason}"
    return Played(len(world.lines), replay.at, problem)


@cache
def _space() -> Space:
    """The space of the runs at scope smoke, made once in each process: it cannot be sent to another one."""
    return Space(reduced(publication, SMOKE, SEEN), SMOKE)


def _play(arguments: tuple[str, list[tuple[int, State, State]]]) -> Played:
    folder, run = arguments
    space = _space()
    steps = [Taken(space.instances[number], before, after, 0) for number, before, after in run]
    return play(Path(folder), space, steps)


def lines(found: Cover, played: Mapping[int, Played]) -> list[str]:
    """What there is to tell, a line each."""
    taken = {step.kind for n, run in enumerate(found.runs) for step in run[: played[n].taken]} - {-1}
    excused: Counter[str] = Counter()
    for (_, why), times in found.excused.items():
        excused[why] += times
    told = sum(one.events for one in played.values())
    steps = sum(map(len, found.runs))
    return [
        f"{found.kinds.total()} kinds of steps, {len(taken)} taken",
        *(f"{times} not taken: {why}" for why, times in excused.most_common()),
        *(f"{times} not taken: {name}, possible only after such a step" for name, times in found.beyond.most_common()),
        f"{len(found.runs)} runs, {steps} steps, {told} events told and explained",
    ]


def main() -> int:
    """Replay every run; 1 if the coordinator went astray, or the protocol does not explain what was told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    started = time.monotonic()
    found = runs()
    print(f"{len(found.runs)} runs found in {time.monotonic() - started:.0f} s", file=sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="reef-ref-replay-") as folder,
        ProcessPoolExecutor(options.processes) as pool,
    ):
        numbers = {instance: number for number, instance in enumerate(found.space.instances)}
        work = [(folder, [(numbers[s.instance], s.before, s.after) for s in run]) for run in found.runs]
        played = dict(enumerate(pool.map(_play, work, chunksize=4)))
    print("\n".join(lines(found, played)))
    problems = [one.problem for one in played.values() if one.problem]
    for problem in problems[:10]:
        print(problem)
    print(f"{len(problems)} of {len(played)} runs went astray; in {time.monotonic() - started:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
