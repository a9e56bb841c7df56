"""The soak itself: publications under load, with what the plan says coming to them, for so many minutes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from benchmarks.soak.acts import POLICY, Act, Field
from benchmarks.soak.clients import Answers, Clients, Tally
from benchmarks.soak.inject import Injector, Outcome, known_again
from benchmarks.soak.injected import learnt
from benchmarks.soak.meddling import Rule, fail, hang, refuse
from benchmarks.soak.memory import Growth, Memory, own
from benchmarks.soak.plan import Fault, Round, rounds
from benchmarks.soak.stage import CHECKPOINTS, ENGINES, Stage, Unsettled, client, fixed_ports, staged
from benchmarks.soak.watcher import Watcher
from reef_ref.engines.checkpoint import read_layout
from reef_ref.engines.errors import EngineError
from reef_ref.engines.wire import Answer, Route

__all__ = ["Soaked", "soak"]

CLIENTS = 4
BETWEEN_S = 1.0
REFUSALS = 6
LAST_S = 180.0
HURRY_S = 5.0
"""How long requests may still take at the end, and where somebody waits to be done."""


@dataclass
class Soaked:
    """What came of a soak; `wrong` names what was not as it must be."""

    seconds: float = 0.0
    interrupted: bool = False
    requests: Tally = field(default_factory=Tally)
    publications: int = 0
    attempts: int = 0
    survived: Counter[str] = field(default_factory=Counter)
    injected: list[Outcome] = field(default_factory=list)
    false_alarms: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    memory: dict[str, Growth | None] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class _Soak:
    def __init__(self, watcher: Watcher, field_: Field, injector: Injector, found: Soaked) -> None:
        self.watcher = watcher
        self.field = field_
        self.stage: Stage = field_.stage
        self.injector = injector
        self.found = found
        self.windows = 0
        """Odd while something is injected."""
        self._judged = 0
        """Violations that are accounted for."""

    async def round(self, plan: Round) -> None:
        """One publication, one fault or one violation; any other that is told meanwhile is a false alarm."""
        match plan.what:
            case None:
                await self.stage.publish()
                self.alarms("a publication")
            case Act():
                self.alarms("before a violation")
                self.windows += 1
                outcome = await self.injector.inject(plan.what, in_flight=False)
                self.windows += 1
                self._judged = self.watcher.told
                self.found.injected.append(outcome)
                self.found.wrong += [f"{outcome.act}: {fault}" for fault in outcome.faults]
            case fault:
                await self._survive(fault, plan)
                if faults := await known_again(self.watcher, self.field):
                    self.found.wrong += [f"{fault}: {one}" for one in faults]
                else:
                    self.found.survived[fault] += 1
                self.alarms(str(fault))

    def alarms(self, when: str) -> None:
        """Whatever is not accounted for is a false alarm."""
        new = self.watcher.told - self._judged
        self._judged += new
        for seen in list(self.watcher.violations)[-new:] if new else ():
            self.found.false_alarms.append(f"{when}: {seen.why}")

    async def _survive(self, fault: Fault, plan: Round) -> None:
        stage = self.stage
        match fault:
            case Fault.ENGINE_KILLED:
                with stage.after(plan.at, lambda: stage.kill(plan.slot)):
                    await stage.publish()
            case Fault.COORDINATOR_DIES:
                with stage.after(plan.at, stage.die):
                    await stage.publish()
            case Fault.CALL_HANGS:
                with self._meddled(plan.slot, Route(plan.at), _once(hang)):
                    await stage.publish()
            case Fault.CALL_FAILS:
                with self._meddled(plan.slot, Route(plan.at), _once(fail)):
                    await stage.publish()
            case Fault.FLUSH_REFUSED:
                with self._meddled(plan.slot, Route.FLUSH, refuse(REFUSALS)):
                    await stage.publish()
            case Fault.MONITOR_KILLED:
                await self.watcher.kill()
                await stage.publish()
                await self.watcher.start()
                status = await self.watcher.status()
                if any(engine["freshness"] == "fresh" for engine in status["engines"].values()):
                    self.found.wrong.append("a monitor that has just begun calls an engine fresh")

    @contextlib.contextmanager
    def _meddled(self, slot: int, route: Route, rule: Rule) -> Iterator[None]:
        rules = self.stage.meddling[slot].rules
        rules[route] = rule
        try:
            yield
        finally:
            rules.clear()


def _once(rule: Rule) -> Rule:
    """The first call only: the retry is to succeed."""
    used = False

    async def once(call: Callable[[], Awaitable[Answer]], bound_s: float) -> Answer:
        nonlocal used
        if used:
            return await call()
        used = True
        return await rule(call, bound_s)

    return once


async def soak(folder: Path, seconds: float, seed: int, say: Callable[[str], None]) -> Soaked:
    """Run for so many seconds; what is under way then is brought to its end. Interrupted, it says what there is."""
    ports = fixed_ports(ENGINES)
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    socket, found = folder / "monitor", Soaked()
    async with AsyncExitStack() as stack:
        watcher = Watcher(ENGINES, socket, dict(enumerate(addresses)), POLICY)
        say("starting the monitor and two engines")
        stack.push_async_callback(watcher.stop)
        await watcher.start()
        stage = await stack.enter_async_context(staged(folder, socket, ports))
        field_ = await stack.enter_async_context(Field.over(stage, addresses))
        layout = await asyncio.to_thread(read_layout, stage.models.checkpoint(CHECKPOINTS[0]))
        engines = [client(address, layout) for address in addresses]
        for engine in engines:
            stack.push_async_callback(engine.shut_down)
        answers = Answers()
        await learnt(field_, answers, engines)
        run = _Soak(watcher, field_, Injector(field_, watcher, engines, answers), found)
        clients = Clients(stage, engines, answers, lambda: run.windows, seed)
        memory = Memory({"monitor": lambda: watcher.pid, "soak": own})
        sampling = asyncio.create_task(memory.run())
        clients.start(CLIENTS)
        began, first = time.monotonic(), stage.published
        plan = rounds(seed, ENGINES)
        try:
            while (passed := time.monotonic() - began) < seconds:
                one = next(plan)
                name = "a publication" if one.what is None else one.what.name if isinstance(one.what, Act) else one.what
                say(f"{passed:.0f} of {seconds:.0f} s, {stage.published - first} publications: {name}")
                await run.round(one)
                await asyncio.sleep(BETWEEN_S)
        except asyncio.CancelledError:
            found.interrupted = True
        except (Unsettled, EngineError, httpx.HTTPError, TimeoutError, RuntimeError, OSError) as error:
            found.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                found.wrong += await clients.stop(HURRY_S if found.interrupted else LAST_S)
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
        found.seconds = time.monotonic() - began
        found.requests = clients.tally
        found.publications, found.attempts = stage.published - first, stage.attempts
        found.failures = dict(stage.failures)
        found.memory = {name: memory.growth(name) for name in memory.pids}
        if clients.first_wrong:
            found.wrong.append(f"{clients.tally.wrong} wrong answers, the first: {clients.first_wrong}")
        run.alarms("at the end")
        if clients.tally.lost and not found.interrupted:
            found.wrong.append(f"{clients.tally.lost} requests were lost")
        found.wrong += [f"false alarm: {one}" for one in found.false_alarms]
    return found
