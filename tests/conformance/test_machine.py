"""Random histories: calls in any order, faults, deaths, crashes, restarts; and what is not possible is refused.

The world checks its invariants on the way (see `world`). Here every call is judged as well: a call that the record does
not allow changes nothing, on no engine and not on disk. The publication protocol has to explain all that is told of a
history.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from model_check.explain import Verdict
from reef_ref.coordinator import Coordinator
from reef_ref.engines.simulated.clock import VirtualTimeLoop
from reef_ref.engines.simulated.faults import Fault
from reef_ref.load_id import LoadId
from reef_ref.training import Job
from tests.conformance.explore import judge, kind_of
from tests.conformance.world import Broken, Checkpoints, Layout, Wish, World, told

T = TypeVar("T")
LAYOUTS = st.builds(
    Layout,
    engines=st.integers(1, 3),
    colocated=st.booleans(),
    survive=st.booleans(),
)
FAULTS = st.sampled_from([fault for fault in Fault if fault is not Fault.ONLY_LABELS])
INCUMBENT = {None, "REJECTING", "REJECTED"}
PUBLISHED = {"READY_TO_COMMIT", "HEAD_COMMITTED", "COMPLETE"}


class Deployment(RuleBasedStateMachine):
    """One deployment over many jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.folder = Path(tempfile.mkdtemp(prefix="reef-ref-machine-"))
        self.number = 1

    def do(self, operation: Coroutine[Any, Any, T]) -> T:
        with told(self.world, "a random history"):
            return self.loop.run_until_complete(operation)

    @initialize(layout=LAYOUTS)
    def begin(self, layout: Layout) -> None:
        async def main() -> World:
            world = World(Checkpoints(self.folder), layout)
            await world.restart()
            return world

        self.world = self.loop.run_until_complete(main())

    # What may happen at any time.

    @rule(distance=st.integers(0, 12), fault=FAULTS)
    def arm_a_fault(self, distance: int, fault: Fault) -> None:
        self.world.plan.arm(distance, fault)

    @rule(which=st.integers(0, 2))
    def kill_an_engine(self, which: int) -> None:
        engines = list(self.world.in_slots())
        if engines:
            engines[which % len(engines)].die()

    @rule()
    def look_at_health(self) -> None:
        async def main() -> None:
            if self.world.monitor is not None and self.world.coordinator is not None:
                await self.world.monitor.look()

        self.do(main())

    @rule(tear_down=st.booleans())
    def restart(self, tear_down: bool) -> None:
        if not self.world.ambiguous():
            self.do(self.world.restart(tear_down=tear_down))

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.1]))
    def wait(self, seconds: float) -> None:
        self.do(asyncio.sleep(seconds))

    @rule(tokens=st.integers(1, 12))
    def serve(self, tokens: int) -> None:
        async def main() -> None:
            coordinator = self.world.coordinator
            if coordinator is not None and not coordinator.latched and self.world.open_gate():
                self.world.send_requests(tokens)

        self.do(main())

    # Calls. `call` makes one and holds it to the record: what is not possible is refused and changes nothing.

    def call(self, operation: Callable[[Coordinator], Coroutine[Any, Any, Any]], *, possible: bool) -> None:
        world = self.world
        if world.coordinator is None:
            return
        known, before = self.health_ok_to_judge(), self.snapshot()
        error = self.do(world.call(operation))
        refused = error is not None and error.startswith(("Refused", "NotVerified"))
        if refused or (known and not possible):
            with told(world, "a call that is not possible"):
                if self.snapshot() != before:
                    raise Broken(f"disabled: {error} changed {before} to {self.snapshot()}")

    def health_ok_to_judge(self) -> bool:
        """Whether the coordinator works and knows its record: otherwise a call may first have to read it."""
        coordinator = self.world.coordinator
        return coordinator is not None and coordinator.knows_record

    def snapshot(self) -> tuple[object, ...]:
        """The disk, how often it was written and engines were asked, and what every engine is."""
        world = self.world
        engines = tuple(
            (e.alive, e.scheduler.weights, e.scheduler.paused, frozenset(e.scheduler.released)) for e in world.made
        )
        return world.disk.data, sum(point.call != "read" for point in world.plan.reached), engines

    def status(self) -> str | None:
        return self.world.record_status()

    def job(self) -> str:
        record = self.world.record()
        return "nobody" if record is None else record.job

    @rule(fresh=st.booleans())
    def train(self, fresh: bool) -> None:
        if fresh and self.status() in {None, "COMPLETE", "REJECTED"}:
            self.number += 1
        job = Job(job=Wish(self.number).job, rollout=self.number)
        possible = self.status() in {None, "COMPLETE", "REJECTED"}
        self.call(lambda c: c.train(job), possible=possible)

    @rule(wrong=st.booleans())
    def publish(self, wrong: bool) -> None:
        job = "nobody" if wrong else self.job()
        possible = not wrong and self.status() in {"CHECKPOINT", "UPDATING_WEIGHTS"}
        self.call(lambda c: c.publish(job), possible=possible)

    @rule(wrong=st.booleans())
    def acknowledge(self, wrong: bool) -> None:
        job = "nobody" if wrong else self.job()
        record = self.world.record()
        possible = not wrong and self.status() in {"READY_TO_COMMIT", "HEAD_COMMITTED"}
        if possible and record is not None:
            self.world.committed.add(str(record.load_id))
            self.world.head = str(record.load_id)
        self.call(lambda c: c.acknowledge(job), possible=possible)

    @rule(wrong=st.booleans())
    def reject(self, wrong: bool) -> None:
        job = "nobody" if wrong else self.job()
        possible = not wrong and self.status() in {"CHECKPOINT", "REJECTING"}
        self.call(lambda c: c.reject(job), possible=possible)

    @rule(wrong=st.booleans())
    def republish(self, wrong: bool) -> None:
        coordinator = self.world.coordinator
        if coordinator is not None:
            load_id = LoadId("nowhere", 1) if wrong else coordinator.served.load_id
            possible = not wrong and (self.status() in INCUMBENT or self.status() in PUBLISHED)
            self.call(lambda c: c.republish(load_id), possible=possible)

    @precondition(lambda self: self.world.coordinator is not None)
    @rule(accept=st.booleans())
    def settle(self, accept: bool) -> None:
        """A patient service, without further faults, reaches the end of the job."""
        self.world.plan.disarm()
        self.finish(accept)

    def finish(self, accept: bool) -> None:
        async def main() -> None:
            world = self.world
            wish = Wish(self.number, accept)
            end = await world.settle(wish if world.record() is not None else None)
            if end == "settled":
                world.check_settled()
            elif end == "RUNNING":
                await world.check_ambiguous()
            else:
                raise Broken(f"L3: {end}")

        self.do(main())

    def check_trace(self) -> None:
        """The protocol explains the whole history."""
        with told(self.world, "a random history"):
            report = judge(self.world.lines, self.world.layout.engines)
            if report.verdict is not Verdict.EXPLAINED:
                raise Broken(f"{report.verdict.value}: {kind_of(report)}")

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.plan.disarm()

            async def main() -> None:
                await self.world.check_clients()
                self.world.check_history()
                await self.world.close()

            try:
                self.finish(True)
                self.do(main())
                self.check_trace()
            finally:
                self.loop.close()
                shutil.rmtree(self.folder)


Deployment.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestDeployment = Deployment.TestCase
