"""Trace validation: is there a behaviour of a protocol that looks like what was observed?

An observation says which steps it may have been, and what some cells show right after. Steps of *hidden* actions may
happen unobserved at any time. What is kept is the exact set of states that the system may be in; it is fed one
observation at a time, and its size depends on what is unknown, never on how long the trace is.

The answer is never a guess. Where the set would grow past a bound, where the scope's bound cut a possibility, or after
a gap, it is *unknown*, with the reason.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from model_check.boxes import Box, Boxes, Condition, TooMany, Writes, cone, put_in
from model_check.evaluate import Instance, Refused, Space
from model_check.reasons import reasons
from spec.lang.nodes import Var, renamed
from spec.lang.protocol import Property
from spec.lang.text import show

MOST = 20_000
"""Values of one element's part of the state, and groups of states, that are kept by default."""
ENTRIES = 400_000
"""Entries that the tables may have before they are begun anew: they only save time."""


class Verdict(enum.Enum):
    """What a trace is, as far as it was fed."""

    EXPLAINED = "explained"
    INEXPLICABLE = "inexplicable"
    UNKNOWN = "unknown"


class Held(enum.Enum):
    """In how many of the behaviours that explain a trace a property was violated on the way."""

    NONE = "violated in none"
    SOME = "violated in some"
    ALL = "violated in all"


Shown = tuple[tuple[int, frozenset[int]], ...]
"""Cells, by position (`Space.cell`), and the values that each may have."""


@dataclass(frozen=True)
class Seen:
    """Something that an observation may have been.

    Attributes:
        action: the action that happened; none: no step, only a look at the state.
        args: its arguments, None for each that is not known.
        shown: what cells show right after it.
        ahead: the action has had its effect, but will itself be observed only later: who acted and who was acted on
            tell of it each in their own time.
    """

    action: str = ""
    args: tuple[int | None, ...] = ()
    shown: Shown = ()
    ahead: bool = False


@dataclass(frozen=True)
class Observation:
    """One of several things that may have been seen, and what may have happened unobserved just before.

    `unlogged` names such actions, besides the hidden ones. `ends` says that whatever was ahead of its own observation
    will not be observed any more.
    """

    seen: tuple[Seen, ...]
    unlogged: frozenset[str] = frozenset()
    ends: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.seen, self.unlogged, self.ends))


@dataclass(frozen=True)
class Objection:
    """Why an observation was not one of its steps.

    Attributes:
        step: the step, with its arguments; empty where only the state was looked at.
        wanted: the first part of the guard that holds in no state that fits the parts before it, or what a cell
            should show.
        facts: what it is in such a state.
    """

    step: str
    wanted: str
    facts: tuple[str, ...]

    def __str__(self) -> str:
        facts = f" ({', '.join(self.facts)})" if self.facts else ""
        return f"{self.step}: needs {self.wanted}{facts}" if self.step else f"needs {self.wanted}{facts}"


@dataclass(frozen=True)
class Inexplicable:
    """The first observation that no behaviour explains.

    `index` counts observations from 0, `possible` names the steps that could have been observed there instead.
    """

    index: int
    objections: tuple[Objection, ...]
    possible: tuple[str, ...]


@dataclass(frozen=True)
class _Next:
    """What an observation makes of a set of states: another set, or an objection, or neither for a reason."""

    boxes: int = -1
    cut: bool = False
    problem: tuple[tuple[Objection, ...], tuple[str, ...]] | None = None
    reason: str = ""


@dataclass(frozen=True)
class _Effect:
    """What a step makes of a box, in the blocks that it touches.

    `beyond` is the part that the box does not have, each with those states of the box that differ from it in one block
    only. `cut` says that the scope's bound cut some of it.
    """

    after: tuple[tuple[int, ...], ...]
    beyond: tuple[tuple[int, ...], ...]
    cut: bool


@dataclass
class _Tables:
    """What was found before: sets of states by number, and what followed from each."""

    sets: list[tuple[Box, ...]] = field(default_factory=list)
    numbers: dict[tuple[Box, ...], int] = field(default_factory=dict)
    after: dict[tuple[int, Observation], _Next] = field(default_factory=dict)
    steps: dict[tuple[object, ...], _Effect] = field(default_factory=dict)
    renumbered: dict[tuple[int, object], int] = field(default_factory=dict)


class Explainer:
    """The states that a protocol may be in, given what was observed so far.

    Args:
        space: the protocol in its scope.
        hidden: actions that may happen unobserved.
        judged: properties that are judged on the way, by name.
        fields: fields that observations will show, besides those that steps depend on.
        most: a bound on what is kept; past it the answer is unknown.
    """

    def __init__(
        self,
        space: Space,
        *,
        hidden: Collection[str] = (),
        judged: Collection[str] = (),
        fields: Collection[str] = (),
        most: int = MOST,
    ) -> None:
        self.space = space
        claims = [space.protocol.properties[name] for name in judged]
        self.judged = tuple(claim.name for claim in claims)
        self.boxes = Boxes(space, cone(space, fields, [claim.node for claim in claims]), most)
        self._by_action: dict[str, list[Instance]] = {name: [] for name in space.protocol.actions}
        for instance in space.instances:
            self._by_action[instance.action.name].append(instance)
        self.hidden = frozenset(hidden)
        self._guards = {
            (i.action.name, i.args): tuple(c for part in i.action.guard for c in self.boxes.conditions(part, i.env))
            for i in space.instances
        }
        families = {(i.action.name, i.args): self.boxes.family(i) for i in space.instances}
        self._family = {key: family for key, (family, _) in families.items()}
        self._touched = {key: touched for key, (_, touched) in families.items()}
        self._claims = (1 << len(claims)) - 1
        self._owed = {key: 1 << len(claims) + n for n, key in enumerate(self._guards)}
        self._invariants = self._claimed(claims, stepwise=False)
        self._stepwise = self._claimed(claims, stepwise=True)
        self._tables = _Tables()
        self._cut = False
        first = [part for s in space.initial_states() for part in self._marked(self.boxes.of_state(s))]
        self._first = self.boxes.explicit(self._closed(first, self.hidden))
        self.begin()

    def begin(self) -> None:
        """Be at the beginning of a trace. What was found before is kept, and makes the next trace faster."""
        self.index = 0
        self.problem: Inexplicable | None = None
        self.reason = ""
        self._was_cut = False
        self._current = self._number(self.boxes.merged(self.boxes.numbered(self._first)))

    def _claimed(self, claims: Sequence[Property], *, stepwise: bool) -> list[tuple[int, Condition]]:
        return [
            (1 << bit, condition)
            for bit, claim in enumerate(claims)
            if claim.stepwise is stepwise
            for condition in self.boxes.conditions(claim.node)
        ]

    # What is known

    @property
    def verdict(self) -> Verdict:
        """Of everything that was fed."""
        if self.problem is not None:
            return Verdict.INEXPLICABLE
        return Verdict.UNKNOWN if self.reason else Verdict.EXPLAINED

    @property
    def lost(self) -> bool:
        """No set of possible states is at hand; `resynchronise` finds one again."""
        return self._current < 0

    @property
    def possible(self) -> tuple[Box, ...]:
        """The possible states."""
        return () if self.lost else self._tables.sets[self._current]

    @property
    def states(self) -> int:
        """How many states are possible, at most."""
        return self.boxes.count(self.possible)

    def values(self, name: str, *keys: int) -> set[int]:
        """Which values a cell may have now."""
        return self.boxes.values(self.possible, self.space.cell(self.space.protocol.fields[name], keys))

    def properties(self) -> dict[str, Held]:
        """For each judged property, whether it was violated on the way. Nothing where no state is at hand."""
        masks = [box[-1] for box in self.possible]
        if not masks:
            return {}
        held = {}
        for bit, name in enumerate(self.judged):
            violated = [mask >> bit & 1 for mask in masks]
            held[name] = Held.ALL if all(violated) else Held.SOME if any(violated) else Held.NONE
        return held

    def steps(self) -> tuple[str, ...]:
        """The steps that could be observed now."""
        return self._open(self.possible)

    # What is fed

    def feed(self, observation: Observation) -> Verdict:
        """Take one observation. While no set of states is at hand it changes nothing."""
        index, self.index = self.index, self.index + 1
        if self._current < 0:
            return self.verdict
        key = (self._current, observation)
        found = self._tables.after.get(key)
        if found is None:
            if self.boxes.size + len(self._tables.after) + len(self._tables.steps) > ENTRIES:
                self._begin_tables()
                key = (self._current, observation)
            found = self._tables.after[key] = self._find(self._tables.sets[self._current], observation)
        self._was_cut |= found.cut
        self._current = found.boxes
        if found.problem is not None:
            if self._was_cut:
                self.reason = self.reason or "a step that may have happened would pass a bound of the scope"
            elif self.problem is None:
                self.problem = Inexplicable(index, *found.problem)
        elif found.reason:
            self.reason = self.reason or found.reason
        return self.verdict

    def lose(self, reason: str) -> None:
        """Forget the possible states: something happened that was not observed."""
        self.reason = self.reason or reason
        self._current = -1

    def resynchronise(self, shown: Mapping[int, Collection[int]], assuming: Iterable[str] = ()) -> bool:
        """Begin again, with every state that shows these values and satisfies these properties.

        The verdict stays what it was: what happened in between was not seen.

        Args:
            shown: for cells by position, the values that each may have; any other cell may have any value.
            assuming: properties of single states, by name.

        Returns:
            Whether the states are few enough to be kept.
        """
        self.reason = self.reason or "something was not observed"
        self._current = -1
        try:
            sets = []
            for cells in self.boxes.blocks:
                options = [sorted(set(shown.get(cell, range(self._cardinality(cell))))) for cell in cells]
                size = 1
                for option in options:
                    size *= len(option)
                if size > self.boxes.most:
                    raise TooMany(f"{size:,} possible values of one part of the state")
                sets.append(frozenset(itertools.product(*options)))
            if not all(sets):
                return False
            found = tuple(self.boxes.numbered([(sets, 0)]))
            for name in assuming:
                for condition in self.boxes.conditions(self.space.protocol.properties[name].node):
                    found = self.boxes.merged(b for box in found for b in self.boxes.select(condition, box))
            if not found:
                return False
            self._current = self._number(self._closed(found, self.hidden))
        except TooMany:
            return False
        return True

    def renumber(self, maps: Mapping[str, Sequence[int]]) -> None:
        """Give the values of natural sorts other numbers, in every possible state."""
        if self.lost:
            return
        key = (self._current, tuple((name, tuple(table)) for name, table in maps.items()))
        known = self._tables.renumbered.get(key)
        if known is None:
            renamed = (self.boxes.renumbered(box, maps) for box in self.possible)
            known = self._tables.renumbered[key] = self._number(self.boxes.merged(renamed))
        self._current = known

    # How it is found

    def _cardinality(self, cell: int) -> int:
        owner, _ = self.space.cell_name(cell)
        return self.space.scope.cardinality(owner.sort)

    def _number(self, boxes: tuple[Box, ...]) -> int:
        known = self._tables.numbers.get(boxes)
        if known is None:
            known = self._tables.numbers[boxes] = len(self._tables.sets)
            self._tables.sets.append(boxes)
        return known

    def _begin_tables(self) -> None:
        """Forget what was found before, but for the states that are possible now."""
        kept = self.boxes.explicit(self.possible)
        self.boxes.forget()
        self._tables = _Tables()
        self._current = self._number(self.boxes.merged(self.boxes.numbered(kept)))

    def _find(self, before: tuple[Box, ...], observation: Observation) -> _Next:
        self._cut = False
        try:
            if observation.unlogged - self.hidden:
                before = self._closed(before, self.hidden | observation.unlogged)
            if observation.ends:
                before = self.boxes.merged((*box[:-1], box[-1] & self._claims) for box in before)
            shown = [box for seen in observation.seen for box in self._what_follows(seen, before)]
            if shown:
                return _Next(self._number(self._closed(shown, self.hidden)), self._cut)
            if self._cut:
                return _Next(cut=True, reason="a step that may have happened would pass a bound of the scope")
            return _Next(problem=(tuple(self._object(before, observation)), self._open(before)))
        except TooMany as error:
            return _Next(reason=str(error))

    def _what_follows(self, seen: Seen, before: tuple[Box, ...]) -> Iterator[Box]:
        for box in self._happened(seen, before) if seen.action else before:
            kept: Box | None = box
            for cell, allowed in seen.shown:
                if kept is not None:
                    kept = self.boxes.show(kept, cell, allowed)
            if kept is not None:
                yield kept

    def _happened(self, seen: Seen, before: tuple[Box, ...]) -> Iterator[Box]:
        """A step that happens now; that is ahead of its observation; or that was, and is observed now."""
        for instance in self._meant(seen):
            owed = self._owed[instance.action.name, instance.args]
            for box in self._after(instance, before):
                if not seen.ahead:
                    yield box
                elif not box[-1] & owed:
                    yield (*box[:-1], box[-1] | owed)
            if not seen.ahead:
                yield from ((*box[:-1], box[-1] & ~owed) for box in before if box[-1] & owed)

    def _meant(self, seen: Seen) -> Iterator[Instance]:
        """The instances that a step may have been."""
        for instance in self._by_action.get(seen.action, ()):
            if len(seen.args) == len(instance.args) and all(
                wanted is None or wanted == had for wanted, had in zip(seen.args, instance.args, strict=True)
            ):
                yield instance

    def _after(self, instance: Instance, before: Iterable[Box]) -> Iterator[Box]:
        """What a step makes of boxes, with what it violates."""
        if self.judged:
            yield from self._judged_after(instance, before)
            return
        blocks = self._touched[instance.action.name, instance.args]
        for box in before:
            yield from (put_in(box, blocks, numbers) for numbers in self._effect(instance, box).after)

    def _beyond(self, instance: Instance, box: Box) -> Iterable[Box]:
        """What a step adds to a box, each part with those states of the box that differ from it in one block only."""
        if self.judged:
            return self._parts_beyond(box, self._judged_after(instance, (box,)))
        blocks = self._touched[instance.action.name, instance.args]
        return [put_in(box, blocks, numbers) for numbers in self._effect(instance, box).beyond]

    def _parts_beyond(self, box: Box, parts: Iterable[Box]) -> list[Box]:
        joined = dict.fromkeys(self.boxes.joined(box, part) for part in parts)
        return [part for part in joined if not self.boxes.covers(box, part)]

    def _effect(self, instance: Instance, box: Box) -> _Effect:
        """Found once for each combination of what the blocks have that a step of its family touches."""
        blocks = self._touched[instance.action.name, instance.args]
        key = (self._family[instance.action.name, instance.args], *[box[block] for block in blocks])
        found = self._tables.steps.get(key)
        if found is None:
            was_cut, self._cut = self._cut, False
            after = self.boxes.merged(self._judged_after(instance, (box,)))
            both = (after, self._parts_beyond(box, after))
            some, beyond = (tuple(tuple(b[block] for block in blocks) for b in boxes) for boxes in both)
            found = self._tables.steps[key] = _Effect(some, beyond, self._cut)
            self._cut = was_cut
        self._cut |= found.cut
        return found

    def _judged_after(self, instance: Instance, before: Iterable[Box]) -> Iterator[Box]:
        for box in self._enabled(instance, before):
            for part, writes in self.boxes.effects(instance, box):
                if isinstance(writes, Refused):
                    self._cut = True
                    continue
                for judged in self._crossed(part, writes):
                    yield from self._marked(self.boxes.write(judged, writes))

    def _enabled(self, instance: Instance, boxes: Iterable[Box]) -> tuple[Box, ...]:
        """The states of boxes in which a step's guard holds."""
        found = tuple(boxes)
        for condition in self._guards[instance.action.name, instance.args]:
            found = self._where(condition, found)
            if not found:
                break
        return found

    def _where(self, condition: Condition, boxes: tuple[Box, ...]) -> tuple[Box, ...]:
        if len(boxes) == 1:
            return self.boxes.select(condition, boxes[0])
        return self.boxes.merged(part for box in boxes for part in self.boxes.select(condition, box))

    def _crossed(self, box: Box, writes: Writes) -> list[Box]:
        """A box before a step in parts, each with the step properties marked that the step violates there."""
        pieces = [box]
        for bit, condition in self._stepwise:
            for piece in pieces[:]:
                if not piece[-1] & bit and not self.boxes.holds_across(condition, piece, writes):
                    judged = self.boxes.judged(condition, piece, writes)
                    pieces.remove(piece)
                    pieces += [part if holds else (*part[:-1], part[-1] | bit) for part, holds in judged]
        return pieces

    def _marked(self, box: Box) -> list[Box]:
        """A box in parts, each with the properties marked that it violates."""
        pieces = [box]
        for bit, condition in self._invariants:
            for piece in pieces[:]:
                if not piece[-1] & bit and self.boxes.select(condition, piece) != (piece,):
                    pieces.remove(piece)
                    judged = self.boxes.judged(condition, piece)
                    pieces += [part if holds else (*part[:-1], part[-1] | bit) for part, holds in judged]
        return pieces

    def _closed(self, boxes: Iterable[Box], hidden: Collection[str]) -> tuple[Box, ...]:
        """What may be after any number of hidden steps."""
        steps = [i for name in self.space.protocol.actions if name in hidden for i in self._by_action[name]]
        todo, done = list(self.boxes.merged(boxes)), set[Box]()
        closed: tuple[Box, ...] = ()
        while todo:
            box = todo.pop()
            if box in done or any(self.boxes.covers(other, box) for other in closed):
                continue
            swollen, others = self._swollen(box, steps)
            done |= {box, swollen}
            closed = self.boxes.merged((*closed, swollen))
            todo += others
        return closed

    def _swollen(self, box: Box, steps: Sequence[Instance]) -> tuple[Box, list[Box]]:
        """A box with everything that hidden steps can do within one of its blocks, and what else they lead to.

        First those that join several blocks, for the narrower a box is, the more of what they do lies within one block;
        what they leave out here has to be found as a box of its own, once for each set of elements. Then steps that
        touch few blocks before others, until they add nothing: sets grow in few stages, and what a step makes of each
        stage is found once.
        """
        ordered = sorted(steps, key=lambda i: len(self._touched[i.action.name, i.args]))
        for instance in reversed(ordered):
            box = self._widened(box, instance)
        seen: dict[int, tuple[int, ...]] = {}
        number = 0
        while number < len(ordered):
            instance, before = ordered[number], box
            touched = self._touched[instance.action.name, instance.args]
            number += 1
            key = tuple(box[block] for block in touched)
            if not self.judged and seen.get(number) == key:
                continue
            seen[number] = key
            box = self._widened(box, instance)
            if box != before:
                number = 0
        return box, [part for step in ordered for part in self._beyond(step, box)]

    def _widened(self, box: Box, instance: Instance) -> Box:
        """A box with what a step makes of it, as far as that differs in one block only."""
        for grown in self._beyond(instance, box):
            if self.boxes.covers(grown, box):
                box = grown
        return box

    # Why not

    def _open(self, boxes: tuple[Box, ...]) -> tuple[str, ...]:
        """The steps that could be observed, those that differ only in arguments as one where all are possible."""
        names: list[str] = []
        for name, instances in self._by_action.items():
            if name in self.hidden:
                continue
            enabled = [i for i in instances if self._enabled(i, boxes)]
            if len(enabled) == len(instances) > 1:
                names.append(f"{name}(any)")
            else:
                names += map(self.space.instance_name, enabled)
        return tuple(names)

    def _object(self, before: tuple[Box, ...], observation: Observation) -> Iterator[Objection]:
        """For each step that it may have been, the objection of the instance that came furthest."""
        for seen in observation.seen:
            if seen.ahead:
                continue
            if not seen.action:
                yield self._disagreement("", before, seen.shown)
                continue
            best: tuple[int, Objection] | None = None
            for instance in self._meant(seen):
                reached, objection = self._against(instance, before, seen.shown)
                if best is None or reached > best[0]:
                    best = reached, objection
            if best is None:
                yield Objection(seen.action, "an action of the protocol with such arguments", ())
            else:
                yield best[1]

    def _against(self, instance: Instance, before: tuple[Box, ...], shown: Shown) -> tuple[int, Objection]:
        name, boxes = self.space.instance_name(instance), before
        guard = self._guards[instance.action.name, instance.args]
        for reached, condition in enumerate(guard):
            remaining = self._where(condition, boxes)
            if not remaining:
                state = self.boxes.some_state(boxes[0])
                why = reasons(self.space, condition.node, state, None, condition.env)
                facts = dict.fromkeys(fact for reason in why for fact in reason.facts)
                return reached, Objection(name, self._told(condition), tuple(facts))
            boxes = remaining
        after = tuple(self._after(instance, before))
        return len(guard), self._disagreement(name, after, shown)

    def _told(self, condition: Condition) -> str:
        names = {var: Var(var.sort, self.space.value_name(var.sort, n)) for var, n in condition.env.items()}
        return show(renamed(condition.node, names))

    def _disagreement(self, name: str, after: tuple[Box, ...], shown: Shown) -> Objection:
        """The first cell whose shown values no state has that agrees on those before it."""
        for cell, allowed in shown:
            kept = [box for b in after if (box := self.boxes.show(b, cell, allowed)) is not None]
            if not kept:
                owner, called = self.space.cell_name(cell)
                wanted = " or ".join(self.space.value_name(owner.sort, v) for v in sorted(allowed))
                had = " or ".join(self.space.value_name(owner.sort, v) for v in sorted(self.boxes.values(after, cell)))
                return Objection(name, f"{called} to be {wanted or 'something else'} after it", (f"{called} is {had}",))
            after = tuple(kept)
        return Objection(name, "nothing more", ())


__all__ = ["Explainer", "Held", "Inexplicable", "Objection", "Observation", "Seen", "Shown", "Verdict"]
