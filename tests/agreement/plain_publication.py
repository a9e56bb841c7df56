"""The publication protocol once more, by hand: objects that are changed, and what may happen to them next.

Written from the prose (the docstrings of `spec.publication` and the reference texts), without its tree and without a
line of it, so that a slip of the pen in either shows as a state that the other does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

UNLOADED, INITIAL = 0, 1

REPAIRS = ("RETRY", "REPUBLISH", "RECOVER")
PARENT_WANTED = ("NONE", "REJECTING", "REJECTED")
"""Statuses in which engines are to hold the parent, and not the job's load."""
VERIFIED = ("READY_TO_COMMIT", "HEAD_COMMITTED", "COMPLETE")
FAN_OUTS = ("PAUSE", "FLUSH", "RELEASE", "RESUME_WEIGHTS", "SEND", "RESUME_KV")
"""Stages in which every handle is called, and a dead one makes the call fail."""


class TooLarge(Exception):  # noqa: N818 - read as words
    """A number passes what this world has."""


T = TypeVar("T")


def twin(thing: T) -> T:
    """Another of the same, that has the same parts: `copy.copy` in a tenth of the time."""
    other = object.__new__(type(thing))
    other.__dict__.update(thing.__dict__)
    return other


@dataclass
class Slot:
    """A slot and the engine in it."""

    holds: str = "LIVE"
    paused: bool = False
    weights: int = INITIAL
    reports: int | None = 0
    kv_out: bool = False
    weights_out: bool = False
    request: str = "NONE"
    cached: bool = False
    kv: frozenset[int] = frozenset()
    made_by: frozenset[int] = frozenset()
    done: bool = False

    def vacate(self, holds: str) -> None:
        """The process ends."""
        self.__init__(holds, weights=UNLOADED, reports=None, done=self.done)  # type: ignore[misc]

    def remember(self, made_by: frozenset[int]) -> None:
        """An entry comes into the tree."""
        self.cached = True
        self.made_by |= made_by

    def drop(self) -> None:
        """The tree is emptied."""
        self.cached = False
        self.made_by = frozenset()


@dataclass
class Record:
    """What the marker says. Without arguments: what a coordinator knows that has read nothing yet."""

    status: str = "NONE"
    parent: int = 0
    parent_content: int = UNLOADED
    content: int = UNLOADED
    target: int | None = None


@dataclass
class World:
    """Everything there is. `ids` and `contents` are the largest numbers that it has."""

    ids: int
    contents: int
    colocated: bool
    mode: str
    sharing: bool
    slots: list[Slot]
    disk: Record = field(default_factory=lambda: Record(parent_content=INITIAL, content=INITIAL))
    memory: Record = field(default_factory=lambda: Record(parent_content=INITIAL, content=INITIAL))
    stage: str = "IDLE"
    errand: str = "NOTHING"
    phase: str = "SERVING"
    latch: bool = False
    full: bool = False
    rebuilt: bool = False
    head: int = 0
    gate: bool = True
    sent: frozenset[tuple[int, int]] = frozenset({(0, INITIAL)})
    undeclared: bool = False
    unpaired: bool = False

    def copy(self) -> World:
        """Another world, that can be changed by itself."""
        other = twin(self)
        other.slots = [twin(slot) for slot in self.slots]
        other.disk, other.memory = twin(self.disk), twin(self.memory)
        return other

    # What can be told

    @property
    def up(self) -> bool:
        """A coordinator runs that has read the record."""
        return self.stage not in ("DOWN", "REFUSED")

    @property
    def idle(self) -> bool:
        """It takes calls, and nothing has failed."""
        return self.stage == "IDLE" and self.phase == "SERVING"

    @property
    def handles(self) -> list[Slot]:
        """Slots that hold a process, or what is left of one."""
        return [slot for slot in self.slots if slot.holds != "EMPTY"]

    @property
    def wanted(self) -> tuple[int, int]:
        """The id and the bytes that engines are to have when the errand is done."""
        memory = self.memory
        if memory.status in PARENT_WANTED:
            return memory.parent, memory.parent_content
        return memory.target or 0, memory.content

    @property
    def repairable(self) -> bool:
        """A failure that trying again repairs."""
        known = self.memory.status in (*VERIFIED, *PARENT_WANTED, "UPDATING_WEIGHTS")
        return self.phase == "WEIGHT_SYNC_FAILED" and known

    @property
    def verified(self) -> bool:
        """There are engines, and all have what they are to have."""
        return bool(self.handles) and all(
            slot.holds == "LIVE" and (slot.reports, slot.weights) == self.wanted for slot in self.handles
        )

    # Going on

    def enter(self, stage: str) -> None:
        """Go on with a stage."""
        self.stage = stage
        if stage == "IDLE":
            self.errand, self.full, self.rebuilt = "NOTHING", False, False
        if stage in ("PAUSE", "RETIRE"):
            self.latch = True

    def unanswered(self) -> None:
        """The answers of a fan-out are counted no more."""
        for slot in self.slots:
            slot.done = False

    def give_up(self) -> None:
        """Nobody can say what engines hold."""
        self.unanswered()
        self.enter("RETIRE")

    def retired(self) -> None:
        """As many engines are gone as will go."""
        self.phase = "TRAINING_FAILED" if self.errand == "TRAIN" else "WEIGHT_SYNC_FAILED"
        self.enter("DECLARE_RETIRED" if self.memory.status == "CHECKPOINT" else "IDLE")

    def forget(self) -> None:
        """The coordinator's process ends."""
        self.memory = Record()
        self.unanswered()
        self.enter("IDLE")
        self.stage = "DOWN"
        self.phase, self.latch, self.undeclared = "SERVING", False, False

    def after_barrier(self) -> None:
        """Every engine is paused, and under retract flushed."""
        if self.errand == "TRAIN":
            self.enter("RELEASE")
        elif self.memory.status == "CHECKPOINT":
            self.enter("DECLARE")
        elif self.errand == "PUBLISH" or self.rebuilt:
            self.move_bytes()
        else:
            self.enter("REBUILD")

    def move_bytes(self) -> None:
        """An id first, if there is none yet."""
        unnamed = self.memory.target is None and self.memory.status not in PARENT_WANTED
        self.enter("RECORD_TARGET" if unnamed else "RELEASE" if self.colocated else "SEND")

    def after_continue(self) -> None:
        """Every engine schedules again."""
        last = {"HEAD_COMMITTED": "RECORD_COMPLETE", "REJECTING": "RECORD_REJECTED"}
        self.enter(last.get(self.memory.status, "IDLE"))

    def restore_parent(self) -> None:
        """What a rejection does after its record: disjoint engines never stopped."""
        self.enter("RESUME_WEIGHTS" if self.colocated else "RECORD_REJECTED")

    # The marker

    def new_record(self) -> Record:
        """What the write of this stage puts on disk."""
        new = twin(self.memory)
        match self.stage:
            case "RECORD_RUNNING":
                if new.status == "COMPLETE":
                    new.parent, new.parent_content = new.target or 0, new.content
                new.status, new.content, new.target = "RUNNING", self.memory.content + 1, None
            case "RECORD_TARGET":
                new.target = new.parent + 1
            case "DECLARE" | "DECLARE_RETIRED":
                new.status = "UPDATING_WEIGHTS"
            case "RECORD_READY":
                new.status = "READY_TO_COMMIT"
            case "RECORD_HEAD":
                new.status = "HEAD_COMMITTED"
            case stage:
                new.status = stage.removeprefix("RECORD_")
        if new.content > self.contents or (new.target or 0) > self.ids:
            raise TooLarge
        return new


WRITES = (
    *("RECORD_RUNNING", "RECORD_CHECKPOINT", "DECLARE", "RECORD_TARGET", "RECORD_READY", "RECORD_HEAD"),
    *("RECORD_COMPLETE", "RECORD_REJECTING", "RECORD_REJECTED", "DECLARE_RETIRED"),
)
Move = Callable[[World], bool]
"""Something that may happen: changes a world, and answers whether it could."""


# The coordinator


def answer(world: World, number: int) -> bool:
    """An engine answers the call that is made to all."""
    slot = world.slots[number]
    if slot.holds != "LIVE" or (slot.done and world.stage not in ("RELEASE", "RESUME_WEIGHTS", "RESUME_KV")):
        return False
    match world.stage:
        case "PAUSE":
            slot.paused = True
        case "FLUSH" if slot.request != "RUNNING":
            slot.drop()
        case "RELEASE" if slot.request != "RUNNING" and not (slot.kv_out and slot.weights_out):
            slot.kv_out = slot.weights_out = True
            slot.drop()
            return True
        case "RESUME_WEIGHTS" if slot.weights_out:
            slot.weights_out = False
            return True
        case "RESUME_KV" if slot.kv_out:
            slot.kv_out = False
            return True
        case "SEND":
            load, content = world.wanted
            right = world.full or slot.weights == world.memory.parent_content
            slot.weights, slot.reports = content if right else UNLOADED, load
            world.sent |= {world.wanted}
        case "CONTINUE":
            slot.paused = False
            if slot.request == "RUNNING":
                # What was frozen in place keeps its KV, and adds to it under the weights that are there now.
                slot.kv |= {slot.weights}
        case _:
            return False
    slot.done = True
    return True


def all_answered(world: World) -> bool:
    """Every handle has answered: the errand goes on."""
    handles, stage = world.handles, world.stage
    alive = all(slot.holds == "LIVE" for slot in handles)
    match stage:
        case "PAUSE" | "FLUSH" | "SEND" | "CONTINUE" if all(slot.done for slot in handles):
            world.unanswered()
        case "RELEASE" if alive and all(slot.kv_out and slot.weights_out for slot in handles):
            world.enter("TRAIN" if world.errand == "TRAIN" else "RESUME_WEIGHTS")
        case "RESUME_WEIGHTS" if alive and not any(slot.weights_out for slot in handles):
            world.enter("RESUME_KV" if world.errand == "REJECT" else "SEND")
        case "RESUME_KV" if alive and not any(slot.kv_out for slot in handles):
            world.enter("CONTINUE" if world.errand == "REJECT" else "VERIFY")
        case _:
            return False
    match stage:
        case "PAUSE" if world.mode == "RETRACT":
            world.enter("FLUSH")
        case "PAUSE" | "FLUSH":
            world.after_barrier()
        case "SEND":
            world.enter("RESUME_KV" if world.colocated else "VERIFY")
        case "CONTINUE":
            world.latch = False
            world.after_continue()
    return True


def reach_a_dead_handle(world: World) -> bool:
    """A call fails, since the process that it is made to is gone."""
    if not any(slot.holds == "DEAD" for slot in world.slots):
        return False
    if world.stage in FAN_OUTS:
        world.give_up()
        return True
    return world.stage == "CONTINUE" and cannot_continue(world)


def cannot_continue(world: World) -> bool:
    """Engines stay paused: a repair gives them up, anything else can be called again."""
    if world.stage != "CONTINUE":
        return False
    if world.errand in REPAIRS:
        world.give_up()
    else:
        world.unanswered()
        world.enter("IDLE")
    return True


def verify(world: World) -> bool:
    """Every engine is asked what it holds."""
    if world.stage != "VERIFY":
        return False
    if not world.verified:
        world.give_up()
    elif world.memory.status == "UPDATING_WEIGHTS":
        world.enter("RECORD_READY")
    else:
        world.enter("IDLE" if world.memory.status == "READY_TO_COMMIT" else "CONTINUE")
    return True


def rebuild(world: World, number: int) -> bool:
    """An empty slot gets a process, and that a warm-up request."""
    slot = world.slots[number]
    if world.stage != "REBUILD" or slot.holds != "EMPTY":
        return False
    slot.holds = "LIVE"
    if world.sharing:
        slot.remember(frozenset({UNLOADED}))
    return True


def all_rebuilt(world: World) -> bool:
    """The barrier is passed again, by all."""
    if world.stage != "REBUILD" or len(world.handles) < len(world.slots):
        return False
    world.rebuilt = True
    world.enter("PAUSE")
    return True


def train(world: World) -> bool:
    """The checkpoint is made."""
    if world.stage != "TRAIN":
        return False
    world.enter("RECORD_CHECKPOINT")
    return True


def decline_job(world: World) -> bool:
    """No job, after all."""
    if world.stage != "RECORD_RUNNING":
        return False
    world.enter("IDLE")
    return True


def retire(world: World, number: int) -> bool:
    """A slot is emptied."""
    slot = world.slots[number]
    if world.stage != "RETIRE" or slot.holds == "EMPTY":
        return False
    slot.vacate("EMPTY")
    return True


def all_retired(world: World) -> bool:
    """Nothing is left to be retired."""
    if world.stage != "RETIRE" or world.handles:
        return False
    world.retired()
    return True


def write_record(world: World) -> bool:
    """The record of this stage becomes durable, and the errand goes on."""
    if world.stage not in WRITES:
        return False
    stage, new = world.stage, world.new_record()
    world.disk, world.memory = new, twin(new)
    match stage:
        case "RECORD_RUNNING":
            world.enter("PAUSE" if world.colocated else "TRAIN")
        case "DECLARE" if world.errand == "PUBLISH" or world.rebuilt:
            world.move_bytes()
        case "DECLARE":
            world.enter("REBUILD")
        case "RECORD_TARGET":
            world.enter("RELEASE" if world.colocated else "SEND")
        case "RECORD_HEAD":
            world.enter("CONTINUE")
        case "RECORD_REJECTING":
            world.restore_parent()
        case _:
            world.enter("IDLE")
    return True


# Engines


def admit(world: World, number: int) -> bool:
    """A request comes."""
    slot = world.slots[number]
    if not world.gate or slot.holds != "LIVE" or slot.request != "NONE":
        return False
    slot.request = "WAITING"
    return True


def start(world: World, number: int, hit: bool) -> bool:
    """A request is prefilled, on what is cached or without it."""
    slot = world.slots[number]
    if slot.request != "WAITING" or slot.paused or (hit and not slot.cached):
        return False
    slot.request = "RUNNING"
    slot.kv = frozenset({slot.weights}) | (slot.made_by if hit else frozenset())
    if world.sharing:
        slot.remember(slot.kv)
    return True


def finish(world: World, number: int) -> bool:
    """A request is answered."""
    slot = world.slots[number]
    if slot.request != "RUNNING" or (slot.paused and world.mode == "IN_PLACE"):
        return False
    if world.sharing:
        slot.remember(slot.kv)
    slot.request, slot.kv = "NONE", frozenset()
    return True


def retract(world: World, number: int) -> bool:
    """A request goes back to the queue."""
    slot = world.slots[number]
    if slot.request != "RUNNING" or not slot.paused or world.mode != "RETRACT":
        return False
    slot.request, slot.kv = "WAITING", frozenset()
    return True


def migrate(world: World, source: int, sink: int) -> bool:
    """A prefix reaches another engine's tree."""
    running, other = world.slots[source], world.slots[sink]
    runs = running.request == "RUNNING" and not running.paused
    if source == sink or not runs or other.holds != "LIVE" or not world.sharing:
        return False
    other.remember(running.kv)
    return True


# Service, monitor, supervisor, operator


def call(world: World, errand: str, stage: str, *, closing: bool = True, full: bool = False) -> bool:
    """The coordinator takes an errand."""
    world.errand, world.full, world.phase = errand, full, "SERVING"
    world.gate = world.gate and not closing
    world.enter(stage)
    return True


def begin_training(world: World) -> bool:
    """A job comes when nothing is in flight."""
    settled = world.memory.status in ("NONE", "COMPLETE", "REJECTED")
    return world.idle and settled and call(world, "TRAIN", "RECORD_RUNNING", closing=world.colocated)


def begin_publish(world: World, full: bool) -> bool:
    """A checkpoint is published."""
    return world.idle and world.memory.status == "CHECKPOINT" and call(world, "PUBLISH", "PAUSE", full=full)


def begin_retry(world: World) -> bool:
    """A publication is tried again."""
    half_done = world.stage == "IDLE" and world.memory.status == "UPDATING_WEIGHTS"
    return half_done and call(world, "RETRY", "PAUSE", closing=False, full=True)


def begin_republish(world: World) -> bool:
    """What is known to be wanted is established again."""
    known = world.memory.status in (*VERIFIED, *PARENT_WANTED)
    able = world.stage == "IDLE" and (world.phase == "SERVING" or world.repairable)
    return able and known and call(world, "REPUBLISH", "PAUSE", full=True)


def begin_reject(world: World) -> bool:
    """A checkpoint is refused."""
    if not world.idle or world.memory.status not in ("CHECKPOINT", "REJECTING"):
        return False
    call(world, "REJECT", "RECORD_REJECTING")
    if world.memory.status == "REJECTING":
        world.restore_parent()
    return True


def commit_head(world: World) -> bool:
    """The head moves."""
    if world.memory.status != "READY_TO_COMMIT" or world.memory.target in (None, world.head):
        return False
    world.head = world.memory.target or 0
    return True


def acknowledge(world: World) -> bool:
    """The coordinator is told so."""
    if not world.idle or world.memory.target != world.head:
        return False
    stages = {"READY_TO_COMMIT": "RECORD_HEAD", "HEAD_COMMITTED": "CONTINUE"}
    stage = stages.get(world.memory.status)
    return stage is not None and call(world, "ACKNOWLEDGE", stage, closing=False)


def open_gate(world: World) -> bool:
    """Admission opens."""
    status = world.memory.status
    untouched = not world.colocated and status in ("RUNNING", "CHECKPOINT")
    if not world.idle or world.gate or not (status in ("NONE", "COMPLETE", "REJECTED") or untouched):
        return False
    world.gate = True
    return True


def empty_slot(world: World, number: int) -> bool:
    """The monitor clears away a dead handle."""
    slot = world.slots[number]
    if not world.up or world.latch or slot.holds != "DEAD":
        return False
    slot.holds = "EMPTY"
    return True


def restart(world: World) -> bool:
    """A new coordinator comes up."""
    if world.stage != "DOWN":
        return False
    world.gate = False
    if world.disk.status == "RUNNING":
        world.stage = "REFUSED"
        return True
    world.memory = twin(world.disk)
    return call(world, "RECOVER", "PAUSE", full=True)


def tear_down(world: World) -> bool:
    """Everything is killed."""
    if world.phase == "SERVING" or world.repairable:
        return False
    world.forget()
    for slot in world.slots:
        slot.vacate("EMPTY")
    return True


def restore_previous_record(world: World) -> bool:
    """An operator goes back to the last committed record."""
    if world.stage != "REFUSED":
        return False
    disk = world.disk
    disk.content = disk.parent_content
    if disk.parent == 0:
        disk.status = "NONE"
    else:
        disk.status, disk.target = "COMPLETE", disk.parent
    world.stage = "DOWN"
    return True


# Faults


def call_fails(world: World) -> bool:
    """A fan-out fails, whatever engines have done."""
    if world.stage not in (*FAN_OUTS, "REBUILD", "VERIFY"):
        return False
    world.give_up()
    return True


def lie(world: World, number: int, bytes_right: bool | None, stamped: bool) -> bool:
    """A transfer answers success, and is none: of the bytes, of the id, or of both. None of the bytes: none left."""
    slot = world.slots[number]
    if world.stage != "SEND" or slot.holds != "LIVE" or slot.done:
        return False
    load, content = world.wanted
    if bytes_right is not None:
        right = bytes_right and (world.full or slot.weights == world.memory.parent_content)
        slot.weights = content if right else UNLOADED
        world.sent |= {world.wanted}
    if stamped:
        slot.reports = load
    slot.done = True
    return True


def train_fails(world: World) -> bool:
    """No checkpoint."""
    if world.stage != "TRAIN":
        return False
    world.enter("IDLE")
    world.phase = "TRAINING_FAILED"
    return True


def retire_fails(world: World) -> bool:
    """Some engines do not go."""
    if world.stage != "RETIRE":
        return False
    world.retired()
    return True


def write_fails(world: World, renamed: bool) -> bool:
    """A write raises, before or after the record is there. Whatever is there is read again."""
    stage = world.stage
    if stage not in WRITES:
        return False
    attempted = world.new_record()
    if renamed:
        world.disk = attempted
    world.memory = twin(world.disk)
    world.enter("RETIRE" if stage in ("DECLARE", "RECORD_TARGET", "RECORD_READY") else "IDLE")
    if stage == "RECORD_CHECKPOINT" or (stage == "RECORD_RUNNING" and renamed):
        world.phase = "TRAINING_FAILED"
    world.undeclared = stage == "DECLARE_RETIRED" and not renamed
    return True


def crash(world: World) -> bool:
    """The coordinator is gone."""
    if not world.up:
        return False
    world.forget()
    return True


def die(world: World, number: int) -> bool:
    """An engine is gone."""
    slot = world.slots[number]
    if slot.holds != "LIVE":
        return False
    slot.vacate("DEAD")
    return True


ONCE: tuple[Move, ...] = (
    *(all_answered, reach_a_dead_handle, cannot_continue, verify, all_rebuilt, train, decline_job, all_retired),
    *(write_record, begin_training, begin_retry, begin_republish, begin_reject, commit_head, acknowledge, open_gate),
    *(restart, tear_down, restore_previous_record, call_fails, train_fails, retire_fails, crash),
)
EACH: tuple[Callable[[World, int], bool], ...] = (
    *(answer, rebuild, retire, admit, finish, retract, empty_slot, die),
    *(lambda w, n: start(w, n, False), lambda w, n: start(w, n, True)),
    *(lambda w, n: lie(w, n, False, False), lambda w, n: lie(w, n, False, True)),
    *(lambda w, n: lie(w, n, True, False), lambda w, n: lie(w, n, None, True)),
)


def moves(size: int) -> Iterator[Move]:
    """Everything that may happen in a world of so many slots."""
    yield from ONCE
    for choice in (False, True):
        yield lambda world, choice=choice: begin_publish(world, choice)  # type: ignore[misc]
        yield lambda world, choice=choice: write_fails(world, choice)  # type: ignore[misc]
    for number in range(size):
        for act in EACH:
            yield lambda world, act=act, number=number: act(world, number)  # type: ignore[misc]
        for other in range(size):
            yield lambda world, n=number, o=other: migrate(world, n, o)  # type: ignore[misc]


def beginnings(size: int, ids: int, contents: int) -> Iterator[World]:
    """Every deployment that may be: what shares a cache or gives memory away must flush, and so retract."""
    for colocated in (False, True):
        for sharing in (False, True):
            for mode in ("IN_PLACE", "RETRACT"):
                if mode == "RETRACT" or not (colocated or sharing):
                    yield World(ids, contents, colocated, mode, sharing, [Slot() for _ in range(size)])


def successors(world: World, possible: tuple[Move, ...]) -> Iterator[World]:
    """Every world that one move leads to."""
    for move in possible:
        other = world.copy()
        try:
            if move(other):
                yield other
        except TooLarge:
            continue
