"""Sets of states as unions of boxes: exact, and small where the parts of a state vary alone.

The cells of a state fall into *blocks*: one for every element of an index sort, one for all the rest. A *box* has, for
each block, a set of values that the block may have, in any combination with those of the others. What happens inside
one element stays inside its block, so that n elements whose insides nobody sees take n small sets and not their
product.

A condition is evaluated by `Space`, on a state of which nothing is known at first. Where it asks for a cell, the box is
parted by the values of that cell. What was asked, in which order and with which answer, is kept as a tree, so that no
condition is evaluated twice on the same answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from model_check.evaluate import Env, Instance, Refused, Space, State
from spec.lang.nodes import (
    And,
    Count,
    Exists,
    Field,
    Forall,
    IndexSort,
    NaturalSort,
    Node,
    Not,
    Or,
    Read,
    Var,
    children,
    walk,
)

Box = tuple[int, ...]
"""For each block the number of its set of values; last, bits that tell how it came about, for whoever sets them."""
Writes = tuple[tuple[int, int], ...]
"""Cells and their new values."""
UNKNOWN = -1


class TooMany(Exception):  # noqa: N818 - read as a word
    """A set of states has become larger than may be kept."""


class _Asked(Exception):  # noqa: N818 - read as a word
    """A condition needs a cell that is not known."""

    def __init__(self, cell: int) -> None:
        self.cell = cell


class _Partial(tuple[int, ...]):
    """A state of which some cells are known."""

    __slots__ = ()

    def __getitem__(self, cell: object) -> int:  # type: ignore[override] # only ever one cell
        assert isinstance(cell, int)
        value = tuple.__getitem__(self, cell)
        if value == UNKNOWN:
            raise _Asked(cell)
        return value


@dataclass
class _Ask:
    """Inner node of a tree: which cell is asked for next, and what follows from each value."""

    cell: int
    children: dict[int, _Ask | _Answer] = field(default_factory=dict)


@dataclass(frozen=True)
class _Answer:
    """Leaf of a tree: a truth value, what a step writes, or that the bound cuts it."""

    value: bool | Writes | Refused


@dataclass(frozen=True, eq=False)
class Condition:
    """A condition with values for its free variables. Each is itself alone: what is known of it is kept under it."""

    node: Node
    env: Env
    blocks: tuple[int, ...]
    """The blocks that it may read."""


def parts(space: Space, node: Node, env: Env) -> Iterator[tuple[Node, Env]]:
    """Conditions that together are equivalent to one: conjunctions and quantifiers over all are taken apart."""
    match node:
        case And(args=args):
            for arg in args:
                yield from parts(space, arg, env)
        # A variable that is bound already may be meant beside the quantifier, too.
        case Forall(var=var, body=body) if var not in env:
            for value in range(space.scope.cardinality(var.sort)):
                yield from parts(space, body, {**env, var: value})
        case Not(arg=Not(arg=arg)):
            yield from parts(space, arg, env)
        case Not(arg=Or(args=args)):
            for arg in args:
                yield from parts(space, Not(arg), env)
        case Not(arg=Exists(var=var, body=body)) if var not in env:
            yield from parts(space, Forall(var, Not(body)), env)
        case Or(args=args):
            for at, arg in enumerate(args):
                inner = list(parts(space, arg, env))
                if len(inner) != 1:
                    for part, values in inner:
                        yield Or((*args[:at], part, *args[at + 1 :])), values
                    return
            yield node, env
        case _:
            yield node, env


def cone(space: Space, seen: Collection[str], nodes: Iterable[Node]) -> frozenset[str]:
    """The fields that guards, these fields or these conditions can ever depend on."""
    actions = space.protocol.actions.values()
    found = set(seen) | _fields(part for a in actions for part in a.guard) | _fields(nodes)
    while True:
        more = _fields(part for a in actions for w in a.writes if w.field.name in found for part in (*w.keys, w.value))
        if more <= found:
            return frozenset(found)
        found |= more


def _fields(nodes: Iterable[Node]) -> set[str]:
    return {part.field.name for node in nodes for part in walk(node) if isinstance(part, Read)}


Path: TypeAlias = "tuple[()] | tuple[Path, int, int]"
"""What is known on the way to a place in a tree: what was known before, and a cell with its value."""
Find = Callable[[dict[int, int]], _Answer]


class Boxes:
    """Sets of states of a space, of which only some fields are kept; see `cone`.

    Every set of values of a block has a number, and a box is a tuple of those. `most` bounds the values of one block
    and the boxes of one set.
    """

    def __init__(self, space: Space, fields: Collection[str], most: int) -> None:
        self.space = space
        self.most = most
        self.blocks: list[list[int]] = [[]]
        self.place: dict[int, tuple[int, int]] = {}
        self._owners: dict[tuple[str, int], int] = {}
        for name, shape in space.shapes.items():
            if name not in fields:
                continue
            keys = space.protocol.fields[name].keys
            owner = next((at for at, key in enumerate(keys) if isinstance(key, IndexSort)), None)
            for number, values in enumerate(itertools.product(*map(range, shape))):
                block = 0
                if owner is not None:
                    block = self._owners.setdefault((keys[owner].name, values[owner]), len(self.blocks))
                    if block == len(self.blocks):
                        self.blocks.append([])
                cell = space.offsets[name] + number
                self.place[cell] = (block, len(self.blocks[block]))
                self.blocks[block].append(cell)
        self.fields = frozenset(fields)
        self._alike = alike(space)
        self.forget()

    def forget(self) -> None:
        """Empty every table. Boxes made before mean nothing after; see `explicit` and `numbered`."""
        self._sets: list[frozenset[State]] = []
        self._ids: dict[frozenset[State], int] = {}
        self._parted: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
        self._written: dict[tuple[int, Writes], int] = {}
        self._united: dict[tuple[int, ...], int] = {}
        self._within: dict[tuple[int, int], bool] = {}
        self._trees: dict[object, _Ask | _Answer] = {}
        self._selected: dict[tuple[object, ...], tuple[tuple[int, ...], ...]] = {}
        self._across: dict[tuple[object, ...], bool] = {}

    @property
    def size(self) -> int:
        """About how many entries the tables hold."""
        tables = (self._sets, self._parted, self._written, self._united, self._within, self._selected, self._across)
        return sum(map(len, tables))

    # Numbered sets

    def number(self, values: frozenset[State]) -> int:
        """The number of a set of values of a block."""
        known = self._ids.get(values)
        if known is None:
            if len(values) > self.most:
                raise TooMany(f"one part of the state may have {len(values):,} values, and {self.most:,} are kept")
            known = self._ids[values] = len(self._sets)
            self._sets.append(values)
        return known

    def set_of(self, number: int) -> frozenset[State]:
        """The set with a number."""
        return self._sets[number]

    def explicit(self, boxes: Iterable[Box]) -> list[tuple[tuple[frozenset[State], ...], int]]:
        """Boxes without numbers, each with its mask."""
        return [(tuple(map(self.set_of, box[:-1])), box[-1]) for box in boxes]

    def numbered(self, explicit: Iterable[tuple[Sequence[frozenset[State]], int]]) -> list[Box]:
        """The opposite of `explicit`."""
        return [(*map(self.number, sets), mask) for sets, mask in explicit]

    def of_state(self, state: State) -> Box:
        """One state."""
        return (*(self.number(frozenset([tuple(state[cell] for cell in cells)])) for cells in self.blocks), 0)

    def some_state(self, box: Box) -> State:
        """The least state of a box; cells that are not kept are 0."""
        state = [0] * self.space.cells
        for cells, number in zip(self.blocks, box, strict=False):
            for cell, value in zip(cells, min(self._sets[number]), strict=True):
                state[cell] = value
        return tuple(state)

    def count(self, boxes: Iterable[Box]) -> int:
        """How many states boxes have, those that several have counted for each."""
        total = 0
        for box in boxes:
            product = 1
            for number in box[:-1]:
                product *= len(self._sets[number])
            total += product
        return total

    def values(self, boxes: Iterable[Box], cell: int) -> set[int]:
        """Which values a cell may have."""
        block, _ = self.place[cell]
        return {value for box in boxes for value, _ in self._part(box[block], cell)}

    def _part(self, number: int, cell: int) -> tuple[tuple[int, int], ...]:
        """A set of values parted by one cell: the cell's values, each with the number of its part."""
        known = self._parted.get((number, cell))
        if known is None:
            at = self.place[cell][1]
            groups: dict[int, list[State]] = {}
            for value in self._sets[number]:
                groups.setdefault(value[at], []).append(value)
            known = tuple((value, self.number(frozenset(group))) for value, group in sorted(groups.items()))
            self._parted[number, cell] = known
        return known

    def _put(self, number: int, writes: Writes) -> int:
        """A set of values with some cells overwritten."""
        known = self._written.get((number, writes))
        if known is None:
            changed = []
            for value in self._sets[number]:
                after = list(value)
                for cell, new in writes:
                    after[self.place[cell][1]] = new
                changed.append(tuple(after))
            known = self._written[number, writes] = self.number(frozenset(changed))
        return known

    def _unite(self, numbers: Iterable[int]) -> int:
        several = tuple(sorted(set(numbers)))
        if len(several) == 1:
            return several[0]
        known = self._united.get(several)
        if known is None:
            known = self._united[several] = self.number(frozenset().union(*(self._sets[n] for n in several)))
        return known

    def _in(self, small: int, large: int) -> bool:
        if small == large:
            return True
        known = self._within.get((small, large))
        if known is None:
            known = self._within[small, large] = self._sets[small] <= self._sets[large]
        return known

    def covers(self, large: Box, small: Box) -> bool:
        """Every state of one box is in another, with the same bits."""
        return large[-1] == small[-1] and all(map(self._in, small[:-1], large[:-1]))

    def joined(self, box: Box, other: Box) -> Box:
        """The second box, with those states of the first that would differ from it in one block only."""
        beyond = [n for n, (a, b) in enumerate(zip(other[:-1], box[:-1], strict=True)) if not self._in(a, b)]
        if len(beyond) != 1 or other[-1] != box[-1]:
            return other
        return put_in(other, beyond, [self._unite((box[beyond[0]], other[beyond[0]]))])

    def merged(self, boxes: Iterable[Box]) -> tuple[Box, ...]:
        """The same states in fewer boxes: those that differ in one block become one."""
        found = set(boxes)
        changing = len(found) > 1
        while changing:
            changing = False
            for axis in range(len(self.blocks)):
                groups: dict[Box, list[int]] = {}
                for box in found:
                    groups.setdefault(box[:axis] + box[axis + 1 :], []).append(box[axis])
                if len(groups) < len(found):
                    found = {(*rest[:axis], self._unite(ids), *rest[axis:]) for rest, ids in groups.items()}
                    changing = True
        ordered = sorted(found)
        if len(ordered) > self.most:
            raise TooMany(f"the possible states lie in {len(ordered):,} separate groups, and {self.most:,} are kept")
        if len(ordered) == 1:
            return tuple(ordered)
        return tuple(b for b in ordered if not any(b != c and self.covers(c, b) for c in ordered))

    # Conditions and steps

    def conditions(self, node: Node, env: Env | None = None) -> tuple[Condition, ...]:
        """A condition in parts that can be asked one after the other."""
        return tuple(
            Condition(part, values, tuple(sorted({self.place[cell][0] for cell in self._read(part, values)})))
            for part, values in parts(self.space, node, env or {})
        )

    def _read(self, node: Node, env: Env) -> Iterator[int]:
        """The cells that a condition may read, more than once each."""
        match node:
            case Read(field=owner, keys=keys, default=default):
                if default is not None:
                    yield from self._read(default, env)
                options: list[Iterable[int]] = []
                for key, size in zip(keys, self.space.shapes[owner.name], strict=True):
                    yield from self._read(key, env)
                    options.append((env[key],) if isinstance(key, Var) and key in env else range(size))
                yield from (self.space.cell(owner, found) for found in itertools.product(*options))
            case Forall(var=var, body=body) | Exists(var=var, body=body) | Count(var=var, body=body):
                for value in range(self.space.scope.cardinality(var.sort)):
                    yield from self._read(body, {**env, var: value})
            case _:
                for child in children(node):
                    yield from self._read(child, env)

    def touched(self, instance: Instance) -> tuple[int, ...]:
        """The blocks that a step may read or write."""
        cells = {cell for part in instance.action.guard for cell in self._read(part, instance.env)}
        for write in instance.action.writes:
            if write.field.name in self.fields:
                owner: Node = Read(write.field, write.keys, None, after=False)
                for values in itertools.product(*(range(self.space.scope.cardinality(b.sort)) for b in write.binders)):
                    env = {**instance.env, **dict(zip(write.binders, values, strict=True))}
                    cells.update(self._read(owner, env), self._read(write.value, env))
        return tuple(sorted({self.place[cell][0] for cell in cells if cell in self.place}))

    def family(self, instance: Instance) -> tuple[tuple[object, ...], tuple[int, ...]]:
        """What instances have in common that do the same to the same sets of values, and the blocks that this touches.

        Such instances differ only in elements that the protocol cannot tell apart, and touch no blocks but those of
        these, and of what belongs to no element: exchanging elements exchanges their blocks.
        """
        touched = self.touched(instance)
        names = [var.sort.name for var in instance.action.params]
        own = [self._owners.get((name, value), 0) for name, value in zip(names, instance.args, strict=True)]
        own = [block if name in self._alike else 0 for name, block in zip(names, own, strict=True)]
        if not {0, *own} >= set(touched):
            return (instance.action.name, instance.args), touched
        pattern = (own.index(block) if block else value for block, value in zip(own, instance.args, strict=True))
        order = tuple(block for block in dict.fromkeys((0, *own)) if block in touched)
        return (instance.action.name, *pattern), order

    def select(self, condition: Condition, box: Box) -> tuple[Box, ...]:
        """The states of a box where a condition holds."""
        blocks = condition.blocks
        key = (condition, *(box[block] for block in blocks))
        known = self._selected.get(key)
        if known is None:
            found = self.merged(b for b, holds in self.judged(condition, box) if holds)
            known = self._selected[key] = tuple(tuple(b[block] for block in blocks) for b in found)
        if len(known) == 1 and known[0] == key[1:]:
            return (box,)
        return tuple(put_in(box, blocks, numbers) for numbers in known)

    def holds_across(self, condition: Condition, box: Box, writes: Writes) -> bool:
        """A condition on a step holds wherever in a box the step is taken."""
        key = (condition, writes, *(box[block] for block in condition.blocks))
        known = self._across.get(key)
        if known is None:
            known = self._across[key] = all(holds for _, holds in self.judged(condition, box, writes))
        return known

    def judged(self, condition: Condition, box: Box, writes: Writes | None = None) -> Iterator[tuple[Box, bool]]:
        """A box in parts, and whether a condition holds in each; with `writes`, a condition on a step."""

        changed = dict(writes or ())

        def find(known: dict[int, int]) -> _Answer:
            after = None if writes is None else self._state({**known, **changed})
            return _Answer(bool(self.space.value(condition.node, self._state(known), condition.env, after)))

        for part, answer in self._follow((condition, writes), find, box):
            assert isinstance(answer, bool)
            yield part, answer

    def effects(self, instance: Instance, box: Box) -> Iterator[tuple[Box, Writes | Refused]]:
        """A box in parts, and what the step writes in each, its guard taken for granted; or that the bound cuts it."""

        def find(known: dict[int, int]) -> _Answer:
            kept = tuple(w for w in instance.action.writes if w.field.name in self.fields)
            free = Instance(replace(instance.action, guard=(), writes=kept), instance.args)
            after = self.space.step(self._state(known), free)
            if isinstance(after, Refused):
                return _Answer(after)
            return _Answer(tuple((c, v) for c, v in enumerate(after) if v != known.get(c, UNKNOWN)))

        for part, answer in self._follow((instance.action.name, instance.args), find, box):
            assert not isinstance(answer, bool)
            yield part, answer

    def write(self, box: Box, writes: Writes) -> Box:
        """A box with some cells overwritten."""
        by_block: dict[int, list[tuple[int, int]]] = {}
        for cell, value in writes:
            by_block.setdefault(self.place[cell][0], []).append((cell, value))
        after = list(box)
        for block, some in by_block.items():
            after[block] = self._put(box[block], tuple(some))
        return tuple(after)

    def show(self, box: Box, cell: int, allowed: frozenset[int]) -> Box | None:
        """The states of a box in which a cell has one of some values."""
        block, _ = self.place[cell]
        numbers = [number for value, number in self._part(box[block], cell) if value in allowed]
        return (*box[:block], self._unite(numbers), *box[block + 1 :]) if numbers else None

    def _state(self, known: Mapping[int, int]) -> _Partial:
        return _Partial(tuple(known.get(cell, UNKNOWN) for cell in range(self.space.cells)))

    def _follow(self, key: object, find: Find, box: Box) -> Iterator[tuple[Box, bool | Writes | Refused]]:
        """Walk the tree of a question with a box, parting it wherever the tree asks; grow the tree where it ends."""
        root = self._trees.get(key)
        if root is None:
            root = self._trees[key] = _grow(find, ())
        if isinstance(root, _Answer):
            yield box, root.value
        else:
            yield from self._descend(root, find, box, ())

    def _descend(self, tree: _Ask, find: Find, box: Box, known: Path) -> Iterator[tuple[Box, bool | Writes | Refused]]:
        block, _ = self.place[tree.cell]
        for value, number in self._part(box[block], tree.cell):
            path = (known, tree.cell, value)
            child = tree.children.get(value)
            if child is None:
                child = tree.children[value] = _grow(find, path)
            part = box if number == box[block] else (*box[:block], number, *box[block + 1 :])
            if isinstance(child, _Answer):
                yield part, child.value
            else:
                yield from self._descend(child, find, part, path)

    # Renaming

    def renumbered(self, box: Box, maps: Mapping[str, Sequence[int]]) -> Box:
        """A box after the values of some natural sorts were given other numbers.

        Where several keys of a relation get one number, the new key has what any of them had.
        """
        sets = []
        for cells, number in zip(self.blocks, box[:-1], strict=True):
            moves = [self._moved(cell, maps) for cell in cells]
            position = {cell: at for at, cell in enumerate(cells)}
            changed = set()
            for value in self._sets[number]:
                after = [0] * len(cells)
                for old, (cell, names) in zip(value, moves, strict=True):
                    new = names[old] if names else old
                    if cell in position:
                        after[position[cell]] = max(after[position[cell]], new)
                changed.add(tuple(after))
            sets.append(self.number(frozenset(changed)))
        return (*sets, box[-1])

    def _moved(self, cell: int, maps: Mapping[str, Sequence[int]]) -> tuple[int, Sequence[int]]:
        """Where a cell goes, and what its values become."""
        owner, _ = self.space.cell_name(cell)
        rest, keys = cell - self.space.offsets[owner.name], []
        for size in reversed(self.space.shapes[owner.name]):
            rest, key = divmod(rest, size)
            keys.append(key)
        moved = tuple(
            maps[sort.name][key] if isinstance(sort, NaturalSort) and sort.name in maps else key
            for sort, key in zip(owner.keys, reversed(keys), strict=True)
        )
        return self.space.cell(owner, moved), value_names(owner, maps)


def alike(space: Space) -> frozenset[str]:
    """The index sorts whose elements have each a block and nothing refers to: no value, no further key, no name."""
    fields = space.protocol.fields.values()
    values = {getattr(f.sort, "of", f.sort).name for f in fields}
    further = {key.name for f in fields for key in [k for k in f.keys if isinstance(k, IndexSort)][1:]}
    sorts = {s.name for s in space.protocol.sorts if isinstance(s, IndexSort)}
    return frozenset(sorts - values - further - space.protocol.asymmetric)


def put_in(box: Box, blocks: Iterable[int], numbers: Iterable[int]) -> Box:
    """A box with other sets of values in some blocks."""
    part = list(box)
    for block, number in zip(blocks, numbers, strict=True):
        part[block] = number
    return tuple(part)


def value_names(owner: Field, maps: Mapping[str, Sequence[int]]) -> Sequence[int]:
    """What the values of a field become; nothing where they stay."""
    inner = getattr(owner.sort, "of", owner.sort)
    if not isinstance(inner, NaturalSort) or inner.name not in maps:
        return ()
    names = maps[inner.name]
    return names if inner is owner.sort else (0, *(name + 1 for name in names))


def _grow(find: Find, path: Path) -> _Ask | _Answer:
    known = {}
    while path:
        path, cell, value = path
        known[cell] = value
    try:
        return find(known)
    except _Asked as asked:
        return _Ask(asked.cell)


__all__ = ["UNKNOWN", "Box", "Boxes", "Condition", "TooMany", "Writes", "alike", "cone", "put_in"]
