"""The loop: sample, admit, train, checkpoint, publish, verify, commit, acknowledge, look; and again.

Disjoint or colocated is a setting of the coordinator (which memory is given back while training goes on) and of the
gate. The order of things is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from examples.rl_loop.admission import refusal
from examples.rl_loop.engines import Attached, Deployment, attached, owned
from examples.rl_loop.head import Head, Learned, Step
from examples.rl_loop.learning import Figures, chosen_tokens, reward
from examples.rl_loop.resume import (
    clear_unnamed,
    first_checkpoint,
    give_up_first_job,
    read_record,
    tell_end_of_last_life,
)
from examples.rl_loop.rollout import Rollouts, Sample, prompts
from examples.rl_loop.settings import ENGINES, Break, Mode, Places, Settings
from examples.rl_loop.trainer import PolicyTrainer
from examples.rl_loop.watch import Caught, Provenance, Watch
from reef_ref import events
from reef_ref.control import CallsFailed, ControlSettings, Mismatch
from reef_ref.coordinator import Coordinator, gate_may_open
from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import ALL_REGIONS, PauseMode
from reef_ref.load_id import new_incarnation
from reef_ref.markers import MarkerError, MarkerFile, Status
from reef_ref.monitor.validate import Report, validate
from reef_ref.publication import Refused
from reef_ref.recovery import AmbiguousTraining
from reef_ref.training import Disposition, Job, Trained

__all__ = ["FAILURES", "NotBegun", "Outcome", "run"]

Say = Callable[[str], None]


class NotBegun(Exception):  # noqa: N818  The name says what became of a step.
    """The trainer declined a step; the text says why."""


FAILURES = (Caught, NotBegun, EngineError, CallsFailed, Mismatch, MarkerError, Refused, AmbiguousTraining, TimeoutError)
"""What ends a life with one line; anything else is a defect."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that has all its steps: what was committed, and what its trace is, read once more as a whole."""

    steps: Sequence[Step]
    trace: Report


async def run(
    settings: Settings,
    places: Places,
    steps: int,
    *,
    broken: Break | None = None,
    engines: Sequence[Attached] = (),
    listener: events.Listener | None = None,
    say: Say = print,
) -> Outcome:
    """Go on until so many steps are committed, wherever an earlier life of this run has ended.

    Args:
        broken: what to leave out on purpose.
        engines: engines of somebody else; none: the loop starts its own.
        listener: whoever else wants to be told every event.

    Raises:
        FAILURES: this life cannot go on. What `Caught` says stays so; after anything else the next life may.
    """
    watch = Watch(places.trace, len(engines) or ENGINES)
    with contextlib.closing(watch), MarkerFile(places.marker) as marker:
        head, record = Head(places.head), read_record(marker)
        watch.raise_if_violated()
        done = record is not None and record.status is Status.COMPLETE and len(head.steps) >= steps
        if not done:
            life = _Life(
                settings=settings, places=places, marker=marker, head=head, watch=watch, listener=listener, say=say
            )
            async with life.deployed(engines, broken) as deployment:
                await life.until(steps, deployment)
    with places.trace.open("rb") as trace:
        return Outcome(head.steps[:steps], validate(trace, engines=len(engines) or ENGINES))


class _Life:
    """One life of the loop: a coordinator, the service beside it, and the trainer."""

    def __init__(
        self,
        *,
        settings: Settings,
        places: Places,
        marker: MarkerFile,
        head: Head,
        watch: Watch,
        listener: events.Listener | None,
        say: Say,
    ) -> None:
        self._settings = settings
        self._places = places
        self._marker = marker
        self._head = head
        self._watch = watch
        self._listener = listener
        self._say = say
        self._name = new_incarnation()
        self._gate = asyncio.Event()
        self._trainer = PolicyTrainer(places)
        self._coordinator: Coordinator | None = None
        self._tell_service = self._source("service")
        self._chosen = chosen_tokens(settings.seed)
        self._initial = first_checkpoint(settings, places)

    @property
    def coordinator(self) -> Coordinator:
        """The coordinator, once there is one."""
        assert self._coordinator is not None
        return self._coordinator

    def _source(self, name: str) -> events.Teller:
        return events.Teller(f"{name}:{self._name}", self._listen, clock=time.monotonic)

    def _listen(self, line: events.Line) -> None:
        """Everything that anybody tells comes by here."""
        self._watch(line)
        if self._listener is not None:
            self._listener(line)
        if self._coordinator is None:
            return
        if gate_may_open(self.coordinator.record, colocated=self._settings.mode is Mode.COLOCATED):
            self._gate.set()
        else:
            self._gate.clear()

    # Beginning

    @contextlib.asynccontextmanager
    async def deployed(self, engines: Sequence[Attached], broken: Break | None) -> AsyncIterator[Deployment]:
        """Engines that serve what the record says, whatever the last life left."""
        goes_on = self._watch.last is not None
        if goes_on:
            tell_end_of_last_life(self._watch.last, self._source("deployment"), owned=not engines)
        if engines:
            whose = attached(engines, broken)
        else:
            self._say(f"starting {ENGINES} engines" + (", and recovering" if goes_on else ""))
            whose = owned(self._settings, self._places, self._initial, broken, goes_on=goes_on)
        async with whose as deployment:
            await self._recover(deployment)
            yield deployment

    async def _recover(self, deployment: Deployment) -> None:
        self._watch.attach(deployment.events)
        record = read_record(self._marker)
        evidence = clear_unnamed(self._places, record)
        try:
            await self._coordinate(deployment).start(evidence)
        except AmbiguousTraining:
            if record is None or record.previous is not None or evidence.job_left_files:
                raise
            self._say(f"{record.job} left nothing, and nothing was published before it: beginning again")
            give_up_first_job(self._places.marker, record.job, self._source("operator"))
            await self._coordinate(deployment).start()
        if self.coordinator.record is not None and self.coordinator.record.status is Status.READY_TO_COMMIT:
            await self._commit(self.coordinator.record.job)

    def _coordinate(self, deployment: Deployment) -> Coordinator:
        colocated = self._settings.mode is Mode.COLOCATED
        self._coordinator = Coordinator(
            slots=deployment.slots,
            settings=ControlSettings(
                pause_mode=PauseMode.RETRACT,
                released=ALL_REGIONS if colocated else frozenset(),
                owned=deployment.launcher is not None,
            ),
            marker=self._marker,
            trainer=self._trainer,
            initial=Trained(self._initial),
            launcher=deployment.launcher,
            listener=self._listen,
        )
        return self._coordinator

    # Going on

    async def until(self, steps: int, deployment: Deployment) -> None:
        """Do steps until so many are committed."""
        from examples.rl_loop.policy import Policy

        served = self.coordinator.served
        self._trainer.begin(Policy.read(Path(served.checkpoint), self._settings.learning_rate))
        self._say(f"serving {served.load_id}, {len(self._head.steps)} steps done")
        provenance = Provenance(
            deployment,
            self._watch,
            prompts(self._settings)[0],
            self._name,
            [self._source(f"engine-{slot}") for slot in range(len(deployment.slots))],
        )
        await provenance.begin()
        rollouts = Rollouts(deployment.engines, self._gate, self._settings, self._name)
        self._gate.set()
        async with asyncio.TaskGroup() as group:
            sampling = group.create_task(rollouts.run())
            while len(self._head.steps) < steps:
                await self._step(len(self._head.steps) + 1, rollouts, provenance)
            sampling.cancel()
        await provenance.slots_checked()
        await self.coordinator.stop()
        self._watch.raise_if_violated()
        known = (f"engine {slot} {one.freshness.value}" for slot, one in self._watch.status().engines.items())
        self._say(f"the monitor is silent: {', '.join(known)}")

    async def _step(self, number: int, rollouts: Rollouts, provenance: Provenance) -> None:
        samples, dropped = await self._admitted(rollouts)
        # No gradient comes from a sample of which it is not known that its prefix was fresh.
        checked = await provenance.slots_checked()
        rewards = [reward(sample.output, self._chosen) for sample in samples]
        learned = Learned(
            rewards=Figures.of(rewards),
            across=sum(len(sample.spans) > 1 for sample in samples),
            dropped=dropped,
            cached_tokens=sum(sample.cached for sample in samples),
            prompt_tokens=sum(len(sample.prompt) for sample in samples),
            slots_checked=checked,
        )
        self._trainer.offer(samples, rewards, learned)
        job = f"step-{number}"
        answer = await self.coordinator.train(Job(job=job, rollout=number, scenario_step=number))
        if answer is not Disposition.FRESH:
            message = f"{job}: {answer}"
            raise NotBegun(message)
        load_id = await self.coordinator.publish(job)
        await self._commit(job)
        clear_unnamed(self._places, self.coordinator.record)
        await provenance.look(str(load_id), number)
        self._watch.raise_if_violated()
        self._say(f"step {number}: reward {learned.rewards.mean:.3f}, serving {load_id}")

    async def _admitted(self, rollouts: Rollouts) -> tuple[Sequence[Sample], dict[str, int]]:
        """A batch of samples that may be learned from, and how many were dropped for which reason meanwhile."""
        served, admitted = self.coordinator.served.load_id, list[Sample]()
        dropped: Counter[str] = Counter()
        while len(admitted) < self._settings.batch:
            sample = await rollouts.take()
            reason = refusal(sample.spans, len(sample.output), served, self._settings.max_lag)
            if reason is None:
                admitted.append(sample)
            else:
                dropped[reason] += 1
        return admitted, dict(dropped)

    async def _commit(self, job: str) -> None:
        """Be the service: move the head to a verified load, then say so."""
        from examples.rl_loop.policy import read_notes

        record = self.coordinator.record
        assert record is not None
        assert record.checkpoint is not None
        notes = read_notes(Path(record.checkpoint))
        learned = Learned.model_validate(notes["learned"])
        if self._head.commit(Step(number=notes["step"], load_id=str(record.load_id), learned=learned)):
            self._tell_service(events.CommitHead, str(record.load_id))
        await self.coordinator.acknowledge(job)
