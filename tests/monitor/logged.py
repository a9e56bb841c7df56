"""What a deployment would tell of a run of the publication protocol, or of a wrong one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from model_check.evaluate import Instance, Refused, Space, State
from reef_ref import events
from reef_ref.events import Event, Line
from spec.publication import publication
from spec.publication.state import INCUMBENT, Marker, Mode

Step = tuple[Instance, State, State]
"""An action with the states before and after it."""
JOB = "job"


def load(number: int) -> str:
    return f"life:{number}"


def checkpoint(number: int) -> str:
    return f"/checkpoints/{number}"


class Teller:
    """Makes events of steps; one source, numbered from 1."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.number = 0

    def tell(self, steps: Iterable[Step], told: Callable[[Instance], bool] = lambda _: True) -> list[Line]:
        """The lines of a run, of those steps that are told."""
        lines = []
        for instance, before, after in steps:
            if told(instance):
                for event in self.events(instance, before, after):
                    self.number += 1
                    lines.append(Line("run", self.number, 0.0, event))
        return lines

    def cell(self, state: State, name: str, *keys: int) -> int:
        return state[self.space.cell(publication.fields[name], keys)]

    def established(self, state: State) -> int:
        incumbent = list(Marker)[self.cell(state, "memory_status")] in INCUMBENT
        return self.cell(state, "memory_parent") if incumbent else self.cell(state, "memory_target") - 1

    def events(self, instance: Instance, before: State, after: State) -> Sequence[Event]:
        """What is told of one step; nothing of what has no event."""
        name, args = instance.action.name, instance.args
        content = (
            "disk_parent_content" if self.established(before) == self.cell(before, "disk_parent") else "disk_content"
        )
        match name:
            case "pause":
                return [events.Pause(args[0], list(Mode)[self.cell(before, "mode")].name.lower())]
            case "release":
                return [events.Release(args[0], ("kv_cache", "weights"))]
            case "send" | "send_tears" | "send_without_stamp" | "stamp_without_bytes":
                sent = checkpoint(self.cell(before, content))
                return [events.Send(args[0], load(self.established(before)), sent)]
            case "verify":
                return [events.Verify(load(self.established(before)), None)]
            case "find_mismatch":
                return [events.FindMismatch(load(self.established(before)), "")]
            case "find_dead" | "find_dead_at_continue":
                return [events.FindDead(0, "continue" if name == "find_dead_at_continue" else "send")]
            case "barrier_fails":
                return [events.BarrierFails("flush", (0,), ("unknown",), "")]
            case "transfer_fails":
                return [events.TransferFails("send", (0,), ("unknown",), "")]
            case "continue_fails":
                return [events.ContinueFails("continue", (0,), ("unknown",), "")]
            case "retire_fails":
                kept = (e for e in range(self.space.scope.sizes["Engine"]) if self.cell(before, "slot", e))
                return [events.RetireFails(e, "") for e in kept]
            case "replace_engine":
                return []
            case "record_running":
                return [events.RecordRunning(JOB, load(self.cell(after, "disk_parent")))]
            case "record_checkpoint":
                return [events.RecordCheckpoint(JOB, checkpoint(self.cell(after, "disk_content")))]
            case "record_target":
                return [events.RecordTarget(JOB, load(self.cell(after, "disk_target") - 1))]
            case "record_ready":
                return [events.RecordReady(JOB, load(self.cell(after, "disk_target") - 1))]
            case "commit_head":
                return [events.CommitHead(load(self.cell(after, "head")))]
            case "begin_republish":
                return [events.BeginRepublish(load(self.established(before)))]
            case "write_fails":
                found = list(Marker)[self.cell(after, "disk_status")].name
                return [events.WriteFails("", "none" if found == "NONE" else found, "")]
            case "restart":
                slots = range(self.space.scope.sizes["Engine"])
                return [events.Restart(tuple(e for e in slots if self.cell(after, "slot", e)))]
            case "die":
                return [events.Die(args[0], ())]
            case "start":
                return [events.Start(args[0], "r", self.reported(before, args[0]))]
            case "start_on_hit":
                return [self.hit(args[0], before)]
            case "migrate":
                return [events.Migrate(args[0], "r", args[1])]
            case "admit" | "finish" | "retract":
                kinds = {"admit": events.Admit, "retract": events.Retract}
                return [events.Finish(args[0], "r", ())] if name == "finish" else [kinds[name](args[0], "r")]
            case _ if name in events.EVENTS:
                kind = events.EVENTS[name]
                extra = {"job": JOB, "reason": ""}
                wanted = {f: extra[f] for f in kind.__dataclass_fields__ if f in extra}
                return [kind(*args, **wanted)] if issubclass(kind, events.OfEngine) else [kind(**wanted)]
            case _:
                return []

    def reported(self, state: State, engine: int) -> str:
        number = self.cell(state, "reports", engine)
        return load(number - 1) if number else "boot"

    def hit(self, engine: int, state: State) -> Event:
        """A hit on everything that the tree holds, its makers told by a load that had their bytes."""
        makers = []
        for number in range(self.space.scope.sizes["Content"] + 1):
            if self.cell(state, "made_by", engine, number):
                sizes = range(self.space.scope.sizes["Load"] + 1)
                loads = [load(v) for v in sizes if self.cell(state, "sent", v, number)]
                own = self.reported(state, engine)
                makers.append("boot" if not loads else own if own in loads else loads[0])
        return events.StartOnHit(engine, "r", self.reported(state, engine), 1, tuple(dict.fromkeys(makers)))


def walk(space: Space, chance: random.Random, length: int, faults: float = 0.1) -> list[Step]:
    """A random run; a fault is taken up only now and then."""
    by_action: dict[str, list[Instance]] = {}
    for instance in space.instances:
        by_action.setdefault(instance.action.name, []).append(instance)
    state, steps = chance.choice(space.initial_states()), []
    while len(steps) < length:
        for name in chance.sample(list(by_action), len(by_action)):
            if by_action[name][0].action.kind == "fault" and chance.random() > faults:
                continue
            options = [(i, a) for i in by_action[name] if not isinstance(a := space.step(state, i), Refused)]
            if options:
                instance, after = chance.choice(options)
                steps.append((instance, state, after))
                state = after
                break
        else:
            break
    return steps


def text(lines: Iterable[Line]) -> list[bytes]:
    """Lines as a file has them."""
    return [f"{line.to_json()}\n".encode() for line in lines]
