"""What each event of a deployment says in the words of the publication protocol; what an event leaves out stays open.

A coordinator tells what it did and what it was told, not what is so: a transfer that answered success may have torn,
and a call that failed may have acted. Every such reading is an alternative here. What engines do with requests, what
dies, and what the service does at its own side need not be told at all (`UNLOGGED`).

Of an engine the protocol knows one request that stands for all, so an event about one request is taken as a look at the
engine: whether it may run, on which load, and whose KV was there to be reused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from model_check.evaluate import Space
from model_check.explain import Explainer, Observation, Seen, Shown
from reef_ref import events
from reef_ref.events import Event
from spec.lang import Scope
from spec.lang.nodes import MaybeSort
from spec.publication import publication
from spec.publication.state import INCUMBENT, Marker, Mode, Slot, Stage

UNLOGGED = frozenset(
    (
        *("admit", "start", "start_on_hit", "finish", "retract", "migrate", "die"),
        *("commit_head", "open_gate"),
        *("all_retired", "retire_fails"),
    )
)
"""Actions that happen whether or not anybody tells. Of a retirement each engine is told, and not that it has ended."""
GUARD = "guard:"
"""How the sources of guards begin (`reef_ref.adapter`)."""
UNLOGGED_BY_GUARDS = UNLOGGED | {
    *("begin_training", "record_running", "train", "record_checkpoint", "begin_publish"),
    *("record_ready", "acknowledge", "record_head"),
}
"""A guard neither trains nor commits a head, and keeps no record of either: its trainer may do so at any time."""
GIVING_UP = frozenset({"barrier_fails", "transfer_fails", "continue_fails"})
"""What may have gone before engines are retired: a cancelled call is told by nobody."""
TOLD_LATER: Mapping[type[Event], tuple[str, ...]] = MappingProxyType(
    {
        events.Admit: ("rebuild",),
        events.Start: ("continue_generation", "rebuild"),
        events.StartOnHit: ("continue_generation", "rebuild"),
        events.Finish: (),
        events.Retract: ("pause",),
    }
)
"""Calls that must have had their effect when an engine tells of a request, though the answer may not be told yet."""
ANSWERS = frozenset(
    (
        *("pause", "flush", "release", "rebuild", "resume_weights", "resume_kv", "continue_generation"),
        *("send", "send_tears", "send_without_stamp", "stamp_without_bytes"),
    )
)
"""Calls that may have had their effect though their answer was lost: before a failure is told, or a life ends."""
WRITES = frozenset(
    (
        *("record_running", "record_checkpoint", "declare", "record_target", "record_ready", "record_head"),
        *("record_complete", "record_rejecting", "record_rejected", "declare_retired", "restore_previous_record"),
    )
)
"""Writes that may be durable though the life that made them ended before it could tell."""
WATCHED = ("made_by",)
"""Fields that no step depends on, and that events show all the same."""
MOST_READ = 50_000
"""Different events whose reading is kept."""
LOADS, CONTENTS = 5, 5
"""Load ids and checkpoints, by number, that are told apart at a time: those in the record, and what engines have."""
OLDER = 1
"""The number of every load, and of every content, that nothing can be compared with any more."""

MARKERS = {"none": Marker.NONE, **{str(m.name).lower(): m for m in Marker}}
FAILED = {
    "pause": ("barrier_fails", "find_dead"),
    "flush": ("barrier_fails", "find_dead"),
    "release": ("barrier_fails", "find_dead"),
    "rebuild": ("transfer_fails",),
    "resume weights": ("transfer_fails", "find_dead"),
    "send": ("transfer_fails", "find_dead"),
    "resume kv": ("transfer_fails", "find_dead"),
    "report": ("transfer_fails", "find_mismatch", "continue_fails", "find_dead_at_continue"),
    "checksum": ("transfer_fails", "find_mismatch", "continue_fails", "find_dead_at_continue"),
    "continue": ("continue_fails", "find_dead_at_continue"),
}
"""For each kind of call that failed, what that was. After a rejection engines are asked before they are continued."""
PLAIN = frozenset(
    (
        *("all_paused", "all_flushed", "all_released", "all_rebuilt", "all_weights_back", "all_sent", "all_kv_back"),
        *("all_continued", "find_mismatch", "record_checkpoint", "declare", "declare_retired", "record_head"),
        *("record_complete", "record_rejecting", "record_rejected", "restore_previous_record", "train", "decline_job"),
        *("begin_training", "begin_retry", "begin_reject", "acknowledge", "train_fails", "tear_down"),
    )
)
"""Events that are an action of the same name, without arguments."""


class Unreadable(ValueError):  # noqa: N818 - read as a word
    """An event says something that cannot be meant: an engine that the deployment does not have."""


def unlogged_by(sources: Iterable[str]) -> frozenset[str]:
    """Actions that nobody tells where these sources do."""
    return UNLOGGED_BY_GUARDS if any(source.startswith(GUARD) for source in sources) else UNLOGGED


def world(engines: int, loads: int = LOADS, contents: int = CONTENTS) -> Scope:
    """A world for a trace of so many engines."""
    return Scope("trace", {"Engine": engines, "Load": loads, "Content": contents}, "as many as the trace has")


@dataclass
class Names:
    """Which number a load id or a checkpoint has at present. A trace has many, and only a few matter at a time."""

    loads: dict[str, int] = field(default_factory=dict)
    contents: dict[str, int] = field(default_factory=dict)

    def bind(self, table: dict[str, int], name: str, number: int) -> None:
        """Give a name to a number, that of whatever had it before taken away. A name for two numbers is none."""
        for other in [other for other, had in table.items() if had == number]:
            del table[other]
        if table.pop(name, number) == number:
            table[name] = number

    def renumber(self, loads: Sequence[int], contents: Sequence[int]) -> None:
        """The numbers have become others; what has fallen among the older ones has no name any more."""
        for table, after in ((self.loads, loads), (self.contents, contents)):
            kept = {name: after[number] for name, number in table.items() if after[number] != OLDER}
            table.clear()
            table.update(kept)


class Reader:
    """Turns events into observations.

    Args:
        space: the publication protocol, in the trace's world.
        explainer: the possible states; what an id means is looked up there where an event does not say it.
    """

    def __init__(self, space: Space, explainer: Explainer) -> None:
        self.space = space
        self.explainer = explainer
        self.names = Names()
        self._fresh = True
        self._going_on = False
        self._known: dict[object, Observation] = {}

    def read(self, event: Event) -> Observation:
        """What an event says.

        Raises:
            Unreadable: it speaks of an engine that the world does not have.
        """
        if not self.explainer.lost:
            self._name_what_was_there(event)
        key = (self._going_on, *_telling(event), *self._numbers(event))
        known = self._known.get(key)
        if known is None:
            if len(self._known) > MOST_READ:
                self._known.clear()
            known = self._known[key] = self._observation(event)
        if isinstance(event, events.RestorePreviousRecord):
            self._going_on = True
        elif self._going_on and not isinstance(event, events.OfRequest | events.Die):
            self._going_on = False
        return known

    def after(self, event: Event) -> None:
        """Learn names from an event that was explained, and keep numbers small."""
        match event:
            case events.RecordTarget(target=load):
                self._learn(self.names.loads, load, "disk_target", optional=True)
            case events.RecordCheckpoint(checkpoint=checkpoint):
                self._learn(self.names.contents, checkpoint, "disk_content", optional=False)
            case events.RecordRunning() | events.RecordComplete():
                self._renumber()

    def lose(self) -> None:
        """Something was not observed: names that were learned may mean something else by now."""
        self.names = Names()

    # Names

    def _numbers(self, event: Event) -> tuple[object, ...]:
        """What its names mean at present, and where it has one that means nothing, what the others mean."""
        load = _load_of(event)
        if load is None:
            return ()
        number = self.names.loads.get(load)
        known = () if number is not None else tuple(sorted(self.names.loads.values()))
        if isinstance(event, events.Send):
            content = self.names.contents.get(event.checkpoint)
            return number, known, content, () if content is not None else tuple(sorted(self.names.contents.values()))
        return number, known, *(self._content_of(maker) for maker in _foreign(event))

    def _learn(self, table: dict[str, int], name: str, cell: str, *, optional: bool) -> None:
        values = self.explainer.values(cell)
        if len(values) == 1 and (number := next(iter(values)) - optional) >= 0:
            self.names.bind(table, name, number)

    def _name_what_was_there(self, event: Event) -> None:
        """A load without a name may get one: the first is in no record, and what was written may not be told."""
        if isinstance(event, events.Restart):
            self._fresh = True
        load = _load_of(event)
        if load is None or load in self.names.loads or isinstance(event, events.RecordTarget | events.OfRequest):
            return
        number = self._established()
        if number == 0 and self._fresh and self.explainer.values("memory_status") == {_value(Marker.NONE)}:
            # Without a record, every life calls the first load by an id of its own.
            self._fresh = False
            self.names.bind(self.names.loads, load, number)
        elif number is not None and number not in self.names.loads.values():
            self.names.loads[load] = number

    def _established(self) -> int | None:
        """The load that is to be established or served now, if that is certain."""
        incumbent = {_value(m) for m in INCUMBENT}
        status = self.explainer.values("memory_status")
        if status <= incumbent:
            found = self.explainer.values("memory_parent")
        elif not status & incumbent:
            found = {n - 1 for n in self.explainer.values("memory_target")}
        else:
            return None
        return next(iter(found)) if len(found) == 1 and min(found) >= 0 else None

    def _renumber(self) -> None:
        """Let the numbers of loads and contents that nothing speaks of any more be used again.

        What is older than all that the record can speak of is only ever compared with newer things, and differs from
        them: one number does for all of it.
        """
        record = ("disk", "memory")
        values = self.explainer.values
        loads = {n for r in record for n in values(f"{r}_parent")} | values("head")
        loads |= {n - 1 for r in record for n in values(f"{r}_target") if n}
        contents = {n for r in record for f in ("content", "parent_content") for n in values(f"{r}_{f}")}
        for engine in range(self.space.scope.sizes["Engine"]):
            loads |= {n - 1 for n in values("reports", engine) if n}
            contents |= values("weights", engine)
        maps = {
            "Load": _packed(loads, self.space.scope.sizes["Load"]),
            "Content": _packed(contents, self.space.scope.sizes["Content"]),
        }
        if any(new != old for table in maps.values() for old, new in enumerate(table)):
            self.explainer.renumber(maps)
            self.names.renumber(maps["Load"], maps["Content"])

    # Observations

    def _observation(self, event: Event) -> Observation:
        name = event.name()
        engine = getattr(event, "engine", None)
        if engine is not None and not 0 <= engine < self.space.scope.sizes["Engine"]:
            raise Unreadable(f"engine {engine} of {self.space.scope.sizes['Engine']}")
        seen = (Seen(name),) if name in PLAIN else tuple(self._seen(event))
        unlogged = self._unlogged(event)
        return Observation(seen, unlogged, ends=unlogged >= ANSWERS)

    def _unlogged(self, event: Event) -> frozenset[str]:
        if self._going_on:
            # A life that puts the record of before back goes on at once; in the protocol the next one does.
            return self._untold(event) | {"restart"}
        return self._untold(event)

    def _untold(self, event: Event) -> frozenset[str]:
        match event:
            case events.Crash():
                return ANSWERS | WRITES | {"retire"}
            case events.Restart():
                return ANSWERS | WRITES | {"retire", "crash", "empty_slot"}
            case events.Retire() | events.RetireFails() | events.DeclareRetired():
                return ANSWERS | GIVING_UP
            case events.CallsFail() | events.FindDead():
                return ANSWERS
            case _:
                return frozenset()

    def _seen(self, event: Event) -> Iterable[Seen]:
        match event:
            case events.Pause(engine=e, mode=mode):
                shown = self._shown("mode", _value(Mode[mode.upper()])) if mode.upper() in Mode.__members__ else ()
                return [Seen("pause", (e,), shown)]
            case (
                events.Flush(engine=e) | events.Rebuild(engine=e) | events.EmptySlot(engine=e) | events.Retire(engine=e)
            ):
                return [Seen(event.name(), (e,))]
            case events.ContinueGeneration(engine=e):
                return [Seen("continue_generation", (e,))]
            case events.Release(engine=e):
                given = (*self._shown("kv_out", 1, e), *self._shown("weights_out", 1, e))
                return [Seen("release", (e,)), Seen(shown=(*self._stage(Stage.RELEASE), *given))]
            case events.ResumeWeights(engine=e):
                back = (*self._stage(Stage.RESUME_WEIGHTS), *self._shown("weights_out", 0, e))
                return [Seen("resume_weights", (e,)), Seen(shown=back)]
            case events.ResumeKv(engine=e):
                back = (*self._stage(Stage.RESUME_KV), *self._shown("kv_out", 0, e))
                return [Seen("resume_kv", (e,)), Seen(shown=back)]
            case events.Send(engine=e, load_id=load, checkpoint=checkpoint):
                ways = (("send", (e,)), ("send_tears", (e, None)), ("send_without_stamp", (e,)))
                return self._sending(checkpoint, self._establishing(load, *ways, ("stamp_without_bytes", (e,))))
            case events.Verify(load_id=load):
                return self._establishing(load, ("verify", ()))
            case events.FindDead(call=call) | events.BarrierFails(call=call):
                return [Seen(action) for action in FAILED.get(call, ("barrier_fails", "transfer_fails"))]
            case events.TransferFails(call=call) | events.ContinueFails(call=call):
                return [Seen(action) for action in FAILED.get(call, ("transfer_fails", "continue_fails"))]
            case events.RetireFails(engine=e):
                return [Seen(shown=self._shown("slot", (_value(Slot.LIVE), _value(Slot.DEAD)), e))]
            case events.RecordRunning(parent=load):
                return [Seen("record_running", (), self._load("disk_parent", load))]
            case events.RecordTarget(target=load):
                known = load in self.names.loads
                return [Seen("record_target", (), self._load("disk_target", load) if known else ())]
            case events.RecordReady(load_id=load):
                return [Seen("record_ready", (), self._load("disk_target", load))]
            case events.WriteFails(found=found):
                marker = MARKERS.get(found.lower())
                shown = () if marker is None else self._shown("disk_status", _value(marker))
                return [Seen("write_fails", (None,), shown)]
            case events.BeginPublish():
                return [Seen("begin_publish", (None,))]
            case events.BeginRepublish(load_id=load):
                return self._establishing(load, ("begin_republish", ()))
            case events.CommitHead(load_id=load):
                return [Seen("commit_head", (), self._load("head", load))]
            case events.OpenGate():
                return [Seen("open_gate"), Seen(shown=self._shown("gate", 1))]
            case events.Crash():
                return [Seen("crash")]
            case events.Restart(survivors=survivors):
                return [Seen("restart", (), self._survivors(survivors))]
            case events.Migrate():
                # It shows nothing of either engine, and may be told after the request has gone on.
                return [Seen()]
            case events.OfRequest():
                shown = self._looks(event)
                calls = (Seen(action, (event.engine,), shown, ahead=True) for action in TOLD_LATER[type(event)])
                return [Seen(shown=shown), *calls]
            case _:
                # A death needs no telling, and an answer that was under way may still be told after it.
                return [Seen()]

    def _looks(self, event: events.OfRequest) -> Shown:
        """What an engine's own event shows of it."""
        engine = event.engine
        match event:
            case events.StartOnHit(load_id=load):
                made = (cell for maker in _foreign(event) for cell in self._maker(engine, maker))
                return (*self._running_on(engine, load), *self._shown("cached", 1, engine), *made)
            case events.Start(load_id=load):
                return self._running_on(engine, load)
            case events.Retract():
                return (*self._shown("paused", 1, engine), *self._shown("mode", _value(Mode.RETRACT)))
            case _:
                return self._shown("slot", _value(Slot.LIVE), engine)

    def _running_on(self, engine: int, load: str) -> Shown:
        live = (*self._shown("slot", _value(Slot.LIVE), engine), *self._shown("paused", 0, engine))
        return (*live, *self._load("reports", load, engine))

    def _maker(self, engine: int, load: str) -> Shown:
        """That a tree had KV of another load than its engine's; of a load that nobody knows any more, none can have."""
        content = self._content_of(load)
        return self._shown("cached", (), engine) if content is None else self._shown("made_by", 1, engine, content)

    def _content_of(self, load: str) -> int | None:
        number, values = self.names.loads.get(load), self.explainer.values
        if number is not None:
            for named, content in (("disk_target", "disk_content"), ("disk_parent", "disk_parent_content")):
                if values(named) == {number + (named == "disk_target")} and len(found := values(content)) == 1:
                    return next(iter(found))
        return None

    def _establishing(self, load: str, *ways: tuple[str, tuple[int | None, ...]]) -> Iterable[Seen]:
        """Steps that are about the load to be established: the parent where the job is not wanted, else the target."""
        incumbent = tuple(_value(m) for m in INCUMBENT)
        others = tuple(_value(m) for m in Marker if m not in INCUMBENT)
        parent = (*self._shown("memory_status", incumbent), *self._load("memory_parent", load))
        target = (*self._shown("memory_status", others), *self._load("memory_target", load))
        return [Seen(action, args, shown) for action, args in ways for shown in (parent, target)]

    def _sending(self, checkpoint: str, ways: Iterable[Seen]) -> Iterable[Seen]:
        """The bytes are those to be established: the parent's, or the job's. Of each pair of ways one is for each."""
        number, taken = self.names.contents.get(checkpoint), set(self.names.contents.values())
        free = tuple(n for n in range(self.space.scope.sizes["Content"] + 1) if n not in taken)
        names = itertools.cycle(("memory_parent_content", "memory_content"))
        for way, name in zip(ways, names, strict=False):
            yield replace(way, shown=(*way.shown, *self._shown(name, free if number is None else number)))

    def _survivors(self, survivors: tuple[int, ...]) -> Shown:
        there = (_value(Slot.LIVE), _value(Slot.DEAD))
        return tuple(
            cell
            for e in range(self.space.scope.sizes["Engine"])
            for cell in self._shown("slot", there if e in survivors else _value(Slot.EMPTY), e)
        )

    # Cells

    def _shown(self, name: str, values: int | tuple[int, ...], *keys: int) -> Shown:
        allowed = frozenset(values if isinstance(values, tuple) else (values,))
        return ((self.space.cell(publication.fields[name], keys), allowed),)

    def _stage(self, stage: Stage) -> Shown:
        return self._shown("stage", _value(stage))

    def _load(self, name: str, load: str, *keys: int) -> Shown:
        """That a cell has a load: its number, or for one without a number, none that another load has."""
        number, optional = self.names.loads.get(load), isinstance(publication.fields[name].sort, MaybeSort)
        if number is not None:
            return self._shown(name, number + optional, *keys)
        taken = set(self.names.loads.values())
        free = [n + optional for n in range(self.space.scope.sizes["Load"] + 1) if n not in taken]
        return self._shown(name, (*free, 0) if optional else tuple(free), *keys)


_SAYING = ("engine", "mode", "call", "found", "survivors")
_FIELDS = {kind: [n for n in _SAYING if n in kind.__dataclass_fields__] for kind in events.EVENTS.values()}
_LOADS = {
    kind: next((n for n in ("load_id", "parent", "target") if n in kind.__dataclass_fields__), None)
    for kind in events.EVENTS.values()
}


def _telling(event: Event) -> tuple[object, ...]:
    """What an event says but for names of jobs, requests and loads."""
    return type(event), *[getattr(event, name) for name in _FIELDS[type(event)]]


def _load_of(event: Event) -> str | None:
    name = _LOADS[type(event)]
    return None if name is None else getattr(event, name)


def _foreign(event: Event) -> tuple[str, ...]:
    """The loads of another name than the engine's that made what a request reuses."""
    if not isinstance(event, events.StartOnHit):
        return ()
    return tuple(maker for maker in event.made_by if maker != event.load_id)


def _value(member: Marker | Mode | Slot | Stage) -> int:
    """The number of a member of an enumeration, as states have it."""
    return list(type(member)).index(member)


def _packed(kept: Iterable[int], largest: int) -> list[int]:
    """New numbers in the old order: 0 for 0, `OLDER` for what need not be told apart, and one each for others."""
    names, last = [0], OLDER
    wanted = set(kept)
    for old in range(1, largest + 1):
        last += old in wanted
        names.append(last if old in wanted else OLDER)
    return names if last <= largest else list(range(largest + 1))


__all__ = ["CONTENTS", "GUARD", "LOADS", "UNLOGGED", "WATCHED", "Names", "Reader", "Unreadable", "unlogged_by", "world"]
