"""The search loop as machine code: one LLVM module for a protocol in a scope.

Functions of the module (all counts and positions are 64-bit):

* ``generate``: every step from one state.
* ``judge``: which properties fail and which goals hold in one state.
* ``canonical``: the representative of a state under exchange of interchangeable elements; ``orbit``: how many states
  share it.
* ``expand``: a worker's share of one level of breadth-first search.
* ``rehash``, ``parent``: fill a larger table; find who leads to a state.
* ``held``: which goals hold in each state.
* ``edges``, ``reverse``, ``spread``: the explored graph, seen from where its steps lead, and who can reach a set.

States found are kept in order of depth in the *arena*, in blocks that a worker fills alone. The *table* is open
addressing over 64-bit slots: the state itself if it has one word, else 32 bits of its hash and its place in the arena.
A slot is claimed by compare-and-swap, so workers need no locks, and which states a level holds does not depend on them.
Look-ups are done in batches whose slots were prefetched, since a search is bound by the memory it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from llvmlite import ir

from model_check.building import I1, I8, I16, I32, I64, Code, i64
from model_check.codegen import Emitter
from model_check.evaluate import Env
from model_check.layout import Layout
from model_check.record import (
    BATCH,
    BLOCK,
    CUT,
    LINE,
    POSSIBLE,
    RECENT,
    TOP,
    UNIT,
    Claims,
    Ctx,
    Shape,
    Stat,
    switch_numbers,
)
from model_check.symmetry import Exchange
from spec.lang.nodes import Node


class Kernel:
    """Builds the module. `switches` makes every part of every guard and every write removable at run time."""

    def __init__(self, layout: Layout, claims: Claims, symmetric: Sequence[str], *, switches: bool = False) -> None:
        self.layout = layout
        self.space = layout.space
        self.claims = claims
        self.symmetric = tuple(symmetric)
        self.switches = switches
        self.state = ir.IntType(64 * layout.words)
        self.shape = Shape.of(layout, claims)
        self.module = ir.Module("search")
        self.module.triple = ""
        self.prefetch = ir.Function(
            self.module, ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32]), "llvm.prefetch.p0"
        )
        pointer, state = I64.as_pointer(), self.state.as_pointer()
        self.note = self._note()
        self.across = self._across(state)
        self.generate = self._generate(state, pointer)
        self.judge = self._judge(state, pointer)
        self.promise = self._promise(state)
        self.exchange = Exchange(layout, self.symmetric)
        self.canonical = self._canonical(state)
        self.orbit = self._orbit(state)
        self.insert = self._insert(state, pointer)
        self._expand(pointer)
        self._rehash(pointer)
        self._parent(state, pointer)
        self.find = self._find(state, pointer)
        self._orbits(pointer)

    def function(self, name: str, result: ir.Type, *args: ir.Type, external: bool = False) -> tuple[ir.Function, Code]:
        """Begin a function of the module; Python can call it if it is external."""
        function = ir.Function(self.module, ir.FunctionType(result, list(args)), name)
        if not external:
            function.linkage = "internal"
        return function, Code(function)

    def _field(self, code: Code, ctx: ir.Value, word: int) -> ir.Value:
        return code.b.gep(ctx, [i64(word)])

    def _load(self, code: Code, ctx: ir.Value, word: int) -> ir.Value:
        return code.b.load(self._field(code, ctx, word))

    def _states(self, code: Code, ctx: ir.Value) -> ir.Value:
        return code.b.inttoptr(self._load(code, ctx, Ctx.ARENA), self.state.as_pointer())

    def get(self, code: Code, pointer: ir.Value) -> ir.Value:
        """Read a state. The arena aligns states to words, whatever their size."""
        loaded = code.b.load(pointer)
        loaded.align = 8
        return loaded

    def set(self, code: Code, value: ir.Value, pointer: ir.Value) -> None:
        """Write a state."""
        code.b.store(value, pointer).align = 8

    # One state

    def _note(self) -> ir.Function:
        """Keep the least violation: by property, then state, then instance. The same one whatever the workers do."""
        pointer = I64.as_pointer()
        function, c = self.function("note", ir.VoidType(), pointer, I64, I64, self.state.as_pointer())
        function.attributes.add("noinline")
        record, prop, instance, at = function.args
        b = c.b
        state = self.get(c, at)
        kept = b.bitcast(b.gep(record, [i64(3)]), self.state.as_pointer())
        old = self.get(c, kept)
        old_prop, old_instance = b.load(b.gep(record, [i64(1)])), b.load(b.gep(record, [i64(2)]))
        same_prop = b.icmp_unsigned("==", prop, old_prop)
        less = b.or_(
            b.icmp_unsigned("<", prop, old_prop),
            b.and_(
                same_prop,
                b.or_(
                    b.icmp_unsigned("<", state, old),
                    b.and_(b.icmp_unsigned("==", state, old), b.icmp_unsigned("<", instance, old_instance)),
                ),
            ),
        )
        absent = b.icmp_unsigned("==", b.load(record), i64(0))
        with c.when(b.or_(absent, less)):
            b.store(i64(1), record)
            b.store(prop, b.gep(record, [i64(1)]))
            b.store(instance, b.gep(record, [i64(2)]))
            self.set(c, state, kept)
        b.ret_void()
        return function

    def _generate(self, state: ir.Type, pointer: ir.Type) -> ir.Function:
        """``generate(state, out, instances, cuts, step violation, switch) -> steps | flags``.

        Flags, of steps that are no faults: bit 32, a bound cut one; bit 33, one is possible.
        """
        function, c = self.function(
            "generate", I64, state, state, I16.as_pointer(), pointer, pointer, I32, external=True
        )
        for arg in function.args[:5]:
            arg.add_attribute("noalias")
        source, out, numbers, cuts, violation, switch = function.args
        b, emit = c.b, Emitter(c.b, self.layout)
        before = self.get(c, source)
        count = c.local(i64(0))
        flags = c.local(i64(0))
        for number, instance in enumerate(self.space.instances):
            action = instance.action
            guard = emit.all_of(
                partial(self._part, emit, node, before, instance.env, self._off(c, switch, action.name, "guard", n))
                for n, node in enumerate(action.guard)
            )
            if isinstance(guard, int) and not guard:
                continue
            with c.when(emit.bit(guard)):
                after, limits = emit.apply(
                    action.writes, before, instance.env, partial(self._off, c, switch, action.name, "write")
                )
                fine: ir.Value = ir.Constant(I1, 1)
                for name, cut in limits:
                    if isinstance(cut, int) and not cut:
                        continue
                    place = b.gep(cuts, [i64(self.shape.cuts.index(name))])
                    b.store(b.add(b.load(place), b.zext(emit.bit(cut), I64)), place)
                    fine = b.and_(fine, b.not_(emit.bit(cut)))
                ordinary = action.kind != "fault"
                if ordinary and not isinstance(fine, ir.Constant):
                    b.store(b.or_(b.load(flags), b.shl(b.zext(b.not_(fine), I64), i64(CUT))), flags)
                with c.when(fine):
                    if ordinary:
                        b.store(b.or_(b.load(flags), i64(1 << POSSIBLE)), flags)
                    at = b.load(count)
                    self.set(c, after, b.gep(out, [at]))
                    b.store(ir.Constant(I16, number), b.gep(numbers, [at]))
                    b.store(b.add(at, i64(1)), count)
                    if self.claims.steps:
                        bad = b.call(self.across, [source, b.gep(out, [at])])
                        with c.when(b.icmp_unsigned("!=", bad, i64(0)), likely=False):
                            first = b.cttz(bad, ir.Constant(I1, 1))
                            b.call(self.note, [violation, first, i64(number), source])
        b.ret(b.or_(b.load(count), b.load(flags)))
        return function

    def _across(self, state: ir.Type) -> ir.Function:
        """``across(before, after) -> step properties that fail``."""
        function, c = self.function("across", I64, state, state)
        function.attributes.add("noinline")
        before, after = (self.get(c, arg) for arg in function.args)
        c.b.ret(self._mask(c, self.claims.steps, before, negate=True, after=after))
        return function

    def _off(self, c: Code, switch: ir.Value, action: str, what: str, number: int) -> Any:
        """Whether a part of an action is switched off."""
        if not self.switches:
            return 0
        code = switch_numbers(self.space)[action, what, number]
        return c.b.icmp_unsigned("==", switch, ir.Constant(I32, code))

    def _part(self, emit: Emitter, node: Node, state: ir.Value, env: Env, off: Any) -> Any:
        held = emit.condition(node, state, env)
        return held if isinstance(off, int) else emit.b.or_(emit.bit(held), off)

    def _mask(self, c: Code, nodes: Sequence[Node], state: ir.Value, *, negate: bool, after: Any = None) -> ir.Value:
        emit = Emitter(c.b, self.layout)
        mask: ir.Value = i64(0)
        for number, node in enumerate(nodes):
            code = emit.condition(node, state, {}, after)
            bit = emit.bit(emit.negated(code) if negate else code)
            mask = c.b.or_(mask, c.b.shl(c.b.zext(bit, I64), i64(number)))
        return mask

    def _judge(self, state: ir.Type, pointer: ir.Type) -> ir.Function:
        """``judge(state, goals held) -> properties that fail``; bit 63: the state may rest."""
        function, c = self.function("judge", I64, state, pointer, external=True)
        source, goals = function.args
        value = self.get(c, source)
        c.b.store(self._mask(c, self.claims.goals, value, negate=False), goals)
        bad = self._mask(c, self.claims.invariants, value, negate=True)
        rest = self._mask(c, self.claims.rest, value, negate=False)
        resting = c.b.zext(c.b.icmp_unsigned("!=", rest, i64(0)), I64)
        c.b.ret(c.b.or_(bad, c.b.shl(resting, i64(63))))
        return function

    def _promise(self, state: ir.Type) -> ir.Function:
        """``promise(state) -> bits``: for recovery n, bit 2n if a source, bit 2n + 1 if a target."""
        function, c = self.function("promise", I64, state, external=True)
        nodes = [node for pair in self.claims.recoveries for node in pair]
        c.b.ret(self._mask(c, nodes, self.get(c, function.args[0]), negate=False))
        return function

    def _canonical(self, state: ir.Type) -> ir.Function:
        """``canonical(state)``: replaces a state by its representative."""
        function, c = self.function("canonical", ir.VoidType(), state, external=True)
        self.set(c, self.exchange.least(c, self.get(c, function.args[0])), function.args[0])
        c.b.ret_void()
        return function

    def _orbit(self, state: ir.Type) -> ir.Function:
        """``orbit(representative) -> states``."""
        function, c = self.function("orbit", I64, state, external=True)
        c.b.ret(self.exchange.orbit(c, self.get(c, function.args[0])))
        return function

    # The table

    def _mix(self, c: Code, value: ir.Value) -> ir.Value:
        b = c.b

        def stir(x: ir.Value) -> ir.Value:
            for shift, factor in ((32, 0xD6E8FEB86659FD93), (29, 0xA0761D6478BD642F)):
                x = b.mul(b.xor(x, b.lshr(x, i64(shift))), i64(factor))
            return b.xor(x, b.lshr(x, i64(32)))

        if self.layout.words == 1:
            return stir(value)
        result: ir.Value = i64(0x9E3779B97F4A7C15)
        for word in range(self.layout.words):
            part = b.trunc(b.lshr(value, ir.Constant(self.state, 64 * word)), I64)
            result = stir(b.xor(result, part))
        return result

    def _home(self, c: Code, mixed: ir.Value, mask: ir.Value) -> ir.Value:
        """The slot where looking for a state begins."""
        home = c.b.and_(mixed, mask)
        return c.b.and_(home, i64(-LINE)) if self.layout.words == 1 else home

    def _insert(self, state: ir.Type, pointer: ir.Type) -> ir.Function:
        """``insert(ctx, stats, states, instances, count)``: look a batch up, keep what is new, judge it."""
        function, c = self.function("insert", ir.VoidType(), pointer, pointer, state, I16.as_pointer(), I64)
        function.attributes.add("noinline")
        ctx, stats, batch, numbers, count = function.args
        b, one = c.b, self.layout.words == 1
        hashes = c.slot(I64, BATCH + self.shape.instances)
        table = b.inttoptr(self._load(c, ctx, Ctx.TABLE), pointer)
        mask, arena = self._load(c, ctx, Ctx.MASK), self._states(c, ctx)
        fills = b.inttoptr(self._load(c, ctx, Ctx.FILLS), pointer)
        block, used = self._field(c, stats, Stat.BLOCK), self._field(c, stats, Stat.USED)
        recent = b.inttoptr(self._load(c, stats, Stat.RECENT), state)
        kept = c.local(i64(0))
        with c.times(i64(0), count) as at:
            number = b.zext(b.load(b.gep(numbers, [at])), I64)
            c.add(b.gep(stats, [b.add(i64(self.shape.coverage), number)]), 1)
            raw = self.get(c, b.gep(batch, [at]))
            mixed = self._mix(c, raw)
            memory = b.gep(recent, [b.and_(b.lshr(mixed, i64(40)), i64(RECENT - 1))])
            old = self.get(c, memory)
            self.set(c, raw, memory)
            next_kept = b.load(kept)
            place = b.gep(batch, [next_kept])
            self.set(c, raw, place)
            if self.symmetric:
                # Sorting columns costs more than it is worth for a state that is known.
                with c.when(b.icmp_unsigned("!=", old, raw)):
                    b.call(self.canonical, [place])
                mixed = self._mix(c, self.get(c, place))
            b.store(mixed, b.gep(hashes, [next_kept]))
            b.store(b.add(next_kept, b.zext(b.icmp_unsigned("!=", old, raw), I64)), kept)
            slot = b.bitcast(b.gep(table, [self._home(c, mixed, mask)]), I8.as_pointer())
            b.call(self.prefetch, [slot, ir.Constant(I32, 0), ir.Constant(I32, 3), ir.Constant(I32, 1)])
        count = b.load(kept)
        if not one:
            with c.times(i64(0), count) as at:
                mixed = b.load(b.gep(hashes, [at]))
                found = b.load(b.gep(table, [b.and_(mixed, mask)]))
                alike = b.icmp_unsigned("==", b.lshr(found, i64(32)), b.lshr(mixed, i64(32)))
                with c.when(b.and_(alike, b.icmp_unsigned("!=", found, i64(0)))):
                    where = b.sub(b.and_(found, i64(0xFFFFFFFF)), i64(1))
                    b.call(
                        self.prefetch,
                        [
                            b.bitcast(b.gep(arena, [where]), I8.as_pointer()),
                            ir.Constant(I32, 0),
                            ir.Constant(I32, 3),
                            ir.Constant(I32, 1),
                        ],
                    )
        goals, fresh_states = c.slot(I64), c.local(i64(0))
        with c.times(i64(0), count) as at:
            value, mixed = self.get(c, b.gep(batch, [at])), b.load(b.gep(hashes, [at]))
            home = self._home(c, mixed, mask)
            where, new = c.local(home), c.local(ir.Constant(I1, 0))
            position = b.add(b.mul(b.load(block), i64(BLOCK)), b.load(used))
            known: ir.Value = ir.Constant(I1, 0)
            if one:
                key = b.or_(value, i64(TOP))
                for near in range(LINE):
                    there = b.load_atomic(b.gep(table, [b.add(home, i64(near))]), "monotonic", 8)
                    known = b.or_(known, b.icmp_unsigned("==", there, key))
            else:
                self.set(c, value, b.gep(arena, [position]))
                tag = b.shl(b.lshr(mixed, i64(32)), i64(32))
                key = b.or_(tag, b.add(position, i64(1)))
            looking = c.local(b.not_(known))
            with c.loop(partial(b.load, looking)):
                slot = b.gep(table, [b.load(where)])
                found = c.local(b.load_atomic(slot, "acquire", 8))
                with c.when(b.icmp_unsigned("==", b.load(found), i64(0)), likely=False):
                    swapped = b.cmpxchg(slot, i64(0), key, "acq_rel", "acquire")
                    with b.if_else(b.extract_value(swapped, 1)) as (won, lost):
                        with won:
                            b.store(ir.Constant(I1, 0), looking)
                            b.store(ir.Constant(I1, 1), new)
                        with lost:
                            b.store(b.extract_value(swapped, 0), found)
                with c.when(b.load(looking)):
                    same = c.local(b.icmp_unsigned("==", b.load(found), key))
                    if not one:
                        alike = b.icmp_unsigned("==", b.lshr(b.load(found), i64(32)), b.lshr(mixed, i64(32)))
                        b.store(ir.Constant(I1, 0), same)
                        with c.when(alike):
                            other = self.get(c, b.gep(arena, [b.sub(b.and_(b.load(found), i64(0xFFFFFFFF)), i64(1))]))
                            b.store(b.icmp_unsigned("==", other, value), same)
                    b.store(b.not_(b.load(same)), looking)
                    b.store(b.and_(b.add(b.load(where), i64(1)), mask), where)
            with c.when(b.load(new), likely=False):
                self.set(c, value, b.gep(arena, [position]))
                c.add(fresh_states, 1)
                held = b.call(self.judge, [b.gep(arena, [position]), goals])
                bad = b.and_(held, i64(TOP - 1))
                with c.when(b.icmp_unsigned("!=", bad, i64(0)), likely=False):
                    first = b.cttz(bad, ir.Constant(I1, 1))
                    record = b.gep(stats, [i64(self.shape.violation(0))])
                    b.call(self.note, [record, first, i64(0), b.gep(arena, [position])])
                for number in range(self.shape.goals):
                    yes = b.and_(b.lshr(b.load(goals), i64(number)), i64(1))
                    c.add(b.gep(stats, [i64(Stat.GOALS + number)]), yes)
                full = b.icmp_unsigned("==", c.add(used, 1), i64(BLOCK))
                with c.when(full, likely=False):
                    b.store(i64(BLOCK), b.gep(fills, [b.load(block)]))
                    fresh = b.atomic_rmw("add", self._field(c, ctx, Ctx.NEXT_BLOCK), i64(1), "monotonic")
                    b.store(fresh, block)
                    b.store(i64(0), used)
        c.add(self._field(c, stats, Stat.STATES), b.load(fresh_states))
        b.atomic_rmw("add", self._field(c, ctx, Ctx.FOUND), b.load(fresh_states), "monotonic")
        b.ret_void()
        return function

    def _expand(self, pointer: ir.Type) -> None:
        """``expand(ctx, worker, switch)``: take units of the level until none is left or the table is short."""
        function, c = self.function("expand", ir.VoidType(), pointer, I64, I32, external=True)
        ctx, worker, switch = function.args
        b = c.b
        room = BATCH + self.shape.instances
        batch, numbers = c.slot(self.state, room), c.slot(I16, room)
        goals = c.slot(I64)
        stats = b.inttoptr(self._load(c, ctx, Ctx.STATS), pointer)
        stats = b.gep(stats, [b.mul(worker, self._load(c, ctx, Ctx.STRIDE))])
        arena = self._states(c, ctx)
        fills = b.inttoptr(self._load(c, ctx, Ctx.FILLS), pointer)
        first, last = self._load(c, ctx, Ctx.FIRST), self._load(c, ctx, Ctx.LAST)
        cuts = b.gep(stats, [i64(self.shape.cut)])
        steps = b.gep(stats, [i64(self.shape.violation(1))])
        count, going = c.local(i64(0)), c.local(ir.Constant(I1, 1))
        units = BLOCK // UNIT
        with c.loop(lambda: b.load(going)) as done:
            halted = b.load_atomic(self._field(c, ctx, Ctx.STOP), "monotonic", 8)
            with c.when(b.icmp_unsigned("!=", halted, i64(0)), likely=False):
                c.jump(done)
            for count_of, limit, raised in (
                (Ctx.FOUND, Ctx.LIMIT, Ctx.GROW),
                (Ctx.NEXT_BLOCK, Ctx.LAST_BLOCK, Ctx.FULL),
            ):
                so_far = b.load_atomic(self._field(c, ctx, count_of), "monotonic", 8)
                with c.when(b.icmp_unsigned(">", so_far, self._load(c, ctx, limit)), likely=False):
                    b.store_atomic(i64(1), self._field(c, ctx, raised), "monotonic", 8)
                    c.jump(done)
            unit = b.atomic_rmw("add", self._field(c, ctx, Ctx.NEXT_UNIT), i64(1), "monotonic")
            block = b.add(first, b.udiv(unit, i64(units)))
            with c.when(b.icmp_unsigned(">=", block, last), likely=False):
                c.jump(done)
            start = b.mul(b.urem(unit, i64(units)), i64(UNIT))
            fill = b.load(b.gep(fills, [block]))
            end = b.add(start, i64(UNIT))
            end = b.select(b.icmp_unsigned("<", end, fill), end, fill)
            with c.times(start, end) as at:
                source = b.gep(arena, [b.add(b.mul(block, i64(BLOCK)), at)])
                filled = b.load(count)
                out, number = b.gep(batch, [filled]), b.gep(numbers, [filled])
                answer = b.call(self.generate, [source, out, number, cuts, steps, switch])
                new = b.and_(answer, i64(0xFFFFFFFF))
                c.add(b.gep(stats, [i64(Stat.STEPS)]), new)
                with c.when(b.icmp_unsigned("<", answer, i64(1 << CUT)), likely=False):
                    held = b.call(self.judge, [source, goals])
                    with c.when(b.icmp_signed(">=", held, i64(0))):
                        record = b.gep(stats, [i64(self.shape.violation(2))])
                        b.call(self.note, [record, i64(0), i64(0), source])
                with c.when(b.icmp_unsigned(">=", c.add(count, new), i64(BATCH)), likely=False):
                    b.call(self.insert, [ctx, stats, batch, numbers, b.load(count)])
                    b.store(i64(0), count)
        b.call(self.insert, [ctx, stats, batch, numbers, b.load(count)])
        block, used = b.load(self._field(c, stats, Stat.BLOCK)), b.load(self._field(c, stats, Stat.USED))
        b.store(used, b.gep(fills, [block]))
        b.ret_void()

    def each_state(
        self, c: Code, ctx: ir.Value, first: ir.Value, last: ir.Value
    ) -> AbstractContextManager[tuple[ir.Value, ir.Value]]:
        """For every state of the blocks from the first up to but not with the last: its place and its position."""
        arena = self._states(c, ctx)
        fills = c.b.inttoptr(self._load(c, ctx, Ctx.FILLS), I64.as_pointer())

        @contextmanager
        def states() -> Iterator[tuple[ir.Value, ir.Value]]:
            with c.times(first, last) as block, c.times(i64(0), c.b.load(c.b.gep(fills, [block]))) as at:
                position = c.b.add(c.b.mul(block, i64(BLOCK)), at)
                yield c.b.gep(arena, [position]), position

        return states()

    def _rehash(self, pointer: ir.Type) -> None:
        """``rehash(ctx, first, last)``: put the states of some blocks into an empty table."""
        function, c = self.function("rehash", ir.VoidType(), pointer, I64, I64, external=True)
        ctx, first, last = function.args
        b = c.b
        table = b.inttoptr(self._load(c, ctx, Ctx.TABLE), pointer)
        mask = self._load(c, ctx, Ctx.MASK)
        with self.each_state(c, ctx, first, last) as (place, position):
            value = self.get(c, place)
            mixed = self._mix(c, value)
            where, looking = c.local(self._home(c, mixed, mask)), c.local(ir.Constant(I1, 1))
            if self.layout.words == 1:
                key = b.or_(value, i64(TOP))
            else:
                key = b.or_(b.shl(b.lshr(mixed, i64(32)), i64(32)), b.add(position, i64(1)))
            with c.loop(lambda: b.load(looking)):
                slot = b.gep(table, [b.load(where)])
                with c.when(b.icmp_unsigned("==", b.load(slot), i64(0))):
                    swapped = b.cmpxchg(slot, i64(0), key, "monotonic", "monotonic")
                    b.store(b.not_(b.extract_value(swapped, 1)), looking)
                b.store(b.and_(b.add(b.load(where), i64(1)), mask), where)
        b.ret_void()

    def _parent(self, state: ir.Type, pointer: ir.Type) -> None:
        """``parent(ctx, target, first, last, best, switch) -> found``: the least state with a step to the target."""
        function, c = self.function("parent", I64, pointer, state, I64, I64, state, I32, external=True)
        ctx, target, first, last, best, switch = function.args
        b = c.b
        batch, numbers = c.slot(self.state, self.shape.instances), c.slot(I16, self.shape.instances)
        idle = c.slot(I64, self.shape.size)
        found, wanted = c.local(i64(0)), self.get(c, target)
        with self.each_state(c, ctx, first, last) as (place, _):
            count = b.and_(b.call(self.generate, [place, batch, numbers, idle, idle, switch]), i64(0xFFFFFFFF))
            with c.times(i64(0), count) as at:
                out = b.gep(batch, [at])
                if self.symmetric:
                    b.call(self.canonical, [out])
                with c.when(b.icmp_unsigned("==", self.get(c, out), wanted), likely=False):
                    value = self.get(c, place)
                    better = b.icmp_unsigned("<", value, self.get(c, best))
                    with c.when(b.or_(better, b.icmp_unsigned("==", b.load(found), i64(0)))):
                        self.set(c, value, best)
                        b.store(i64(1), found)
        b.ret(b.load(found))

    def _find(self, state: ir.Type, pointer: ir.Type) -> ir.Function:
        """``find(ctx, state) -> position``: of a state that is there; its slot for one word, its place for more."""
        function, c = self.function("find", I64, pointer, state, external=True)
        ctx, place = function.args
        b = c.b
        table = b.inttoptr(self._load(c, ctx, Ctx.TABLE), pointer)
        mask, arena = self._load(c, ctx, Ctx.MASK), self._states(c, ctx)
        value = self.get(c, place)
        mixed = self._mix(c, value)
        where = c.local(self._home(c, mixed, mask))
        with c.loop(lambda: ir.Constant(I1, 1)):
            found = b.load(b.gep(table, [b.load(where)]))
            with c.when(b.icmp_unsigned("==", found, i64(0)), likely=False):
                b.ret(i64(-1))
            if self.layout.words == 1:
                with c.when(b.icmp_unsigned("==", found, b.or_(value, i64(TOP)))):
                    b.ret(b.load(where))
            else:
                with c.when(b.icmp_unsigned("==", b.lshr(found, i64(32)), b.lshr(mixed, i64(32)))):
                    at = b.sub(b.and_(found, i64(0xFFFFFFFF)), i64(1))
                    with c.when(b.icmp_unsigned("==", self.get(c, b.gep(arena, [at])), value)):
                        b.ret(at)
            b.store(b.and_(b.add(b.load(where), i64(1)), mask), where)
        b.unreachable()
        return function

    def _orbits(self, pointer: ir.Type) -> None:
        """``orbits(ctx, first, last) -> states``: how many states the representatives of some blocks stand for."""
        function, c = self.function("orbits", I64, pointer, I64, I64, external=True)
        ctx, first, last = function.args
        total = c.local(i64(0))
        with self.each_state(c, ctx, first, last) as (place, _):
            c.add(total, c.b.call(self.orbit, [place]))
        c.b.ret(c.b.load(total))
