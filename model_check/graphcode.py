"""Code for the explored graph: its steps, the same from where they lead, and who can reach a set."""

from __future__ import annotations

from llvmlite import ir

from model_check.building import I8, I16, I32, I64, i64
from model_check.kernel import Kernel
from model_check.record import CUT


class GraphCode:
    """Adds the functions on the graph to a kernel's module."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        pointer = I64.as_pointer()
        self._places(pointer)
        self._held(pointer)
        self._seed(pointer)
        self._edges(pointer)
        self._reverse(pointer)
        self._spread(pointer)

    def _places(self, pointer: ir.Type) -> None:
        """``places(ctx, out, first, last)``: where in the arena the state of each slot lies (one word only)."""
        function, c = self.kernel.function("places", ir.VoidType(), pointer, I32.as_pointer(), I64, I64, external=True)
        ctx, out, first, last = function.args
        if self.kernel.layout.words == 1:
            with self.kernel.each_state(c, ctx, first, last) as (place, position):
                slot = c.b.call(self.kernel.find, [ctx, place])
                c.b.store(c.b.trunc(position, I32), c.b.gep(out, [slot]))
        c.b.ret_void()

    def _held(self, pointer: ir.Type) -> None:
        """``held(ctx, out, first, last)``: which goals hold in each state, a bit for each, into ``out[position]``."""
        function, c = self.kernel.function("held", ir.VoidType(), pointer, pointer, I64, I64, external=True)
        ctx, out, first, last = function.args
        with self.kernel.each_state(c, ctx, first, last) as (place, position):
            c.b.call(self.kernel.judge, [place, c.b.gep(out, [position])])
        c.b.ret_void()

    def _seed(self, pointer: ir.Type) -> None:
        """``seed(ctx, marks, first, last, recovery, unmarked, best) -> count``.

        With `unmarked` 0: mark the targets. With 1: count the sources that have no mark, and keep the least in `best`.
        """
        function, c = self.kernel.function(
            "seed", I64, pointer, I8.as_pointer(), I64, I64, I64, I64, self.kernel.state.as_pointer(), external=True
        )
        ctx, marks, first, last, recovery, unmarked, best = function.args
        b, total = c.b, c.local(i64(0))
        with self.kernel.each_state(c, ctx, first, last) as (place, position):
            bits = b.lshr(b.call(self.kernel.promise, [place]), b.shl(recovery, i64(1)))
            mark = b.gep(marks, [position])
            with b.if_else(b.icmp_unsigned("==", unmarked, i64(0))) as (mark_targets, count_sources):
                with mark_targets, c.when(b.icmp_unsigned("!=", b.and_(bits, i64(2)), i64(0))):
                    b.store(ir.Constant(I8, 1), mark)
                    c.add(total, 1)
                with count_sources:
                    free = b.icmp_unsigned("==", b.load(mark), ir.Constant(I8, 0))
                    source = b.icmp_unsigned("!=", b.and_(bits, i64(1)), i64(0))
                    with c.when(b.and_(free, source)):
                        value = self.kernel.get(c, place)
                        better = b.icmp_unsigned("<", value, self.kernel.get(c, best))
                        with c.when(b.or_(better, b.icmp_unsigned("==", b.load(total), i64(0)))):
                            self.kernel.set(c, value, best)
                        c.add(total, 1)
        b.ret(b.load(total))

    def _edges(self, pointer: ir.Type) -> None:
        """``edges(ctx, first, last, wanted, places, offsets, targets, via, cut, fill, switch)``: the explored graph.

        With `fill` 0: how many wanted steps each state has, into ``offsets[position]``, and into ``cut[position]``
        whether a bound cut one. With 1: where they lead and by which instance, from ``offsets[position]`` on.
        """
        bytes_, shorts, words = I8.as_pointer(), I16.as_pointer(), I32.as_pointer()
        function, c = self.kernel.function(
            "edges",
            ir.VoidType(),
            pointer,
            I64,
            I64,
            bytes_,
            words,
            pointer,
            words,
            shorts,
            bytes_,
            I64,
            I32,
            external=True,
        )
        ctx, first, last, wanted, places, offsets, targets, via, cut, fill, switch = function.args
        b = c.b
        batch, numbers = (
            c.slot(self.kernel.state, self.kernel.shape.instances),
            c.slot(I16, self.kernel.shape.instances),
        )
        idle = c.slot(I64, self.kernel.shape.size)
        with self.kernel.each_state(c, ctx, first, last) as (place, position):
            answer = b.call(self.kernel.generate, [place, batch, numbers, idle, idle, switch])
            at = c.local(b.select(b.icmp_unsigned("==", fill, i64(0)), i64(0), b.load(b.gep(offsets, [position]))))
            with c.times(i64(0), b.and_(answer, i64(0xFFFFFFFF))) as step:
                number = b.load(b.gep(numbers, [step]))
                with c.when(b.icmp_unsigned("!=", b.load(b.gep(wanted, [b.zext(number, I64)])), ir.Constant(I8, 0))):
                    with c.when(b.icmp_unsigned("!=", fill, i64(0))):
                        out = b.gep(batch, [step])
                        if self.kernel.symmetric:
                            b.call(self.kernel.canonical, [out])
                        there = b.call(self.kernel.find, [ctx, out])
                        if self.kernel.layout.words == 1:
                            there = b.zext(b.load(b.gep(places, [there])), I64)
                        b.store(b.trunc(there, I32), b.gep(targets, [b.load(at)]))
                        b.store(number, b.gep(via, [b.load(at)]))
                    c.add(at, 1)
            with c.when(b.icmp_unsigned("==", fill, i64(0))):
                b.store(b.load(at), b.gep(offsets, [position]))
                b.store(b.trunc(b.and_(b.lshr(answer, i64(CUT)), i64(1)), I8), b.gep(cut, [position]))
        b.ret_void()

    def _reverse(self, pointer: ir.Type) -> None:
        """``reverse(positions, offsets, targets, via, ends, sources, by)``: every step from its target's side.

        ``ends`` holds where the steps to each state end, and afterwards where they begin.
        """
        words, shorts = I32.as_pointer(), I16.as_pointer()
        function, c = self.kernel.function(
            "reverse", ir.VoidType(), I64, pointer, words, shorts, pointer, words, shorts, external=True
        )
        positions, offsets, targets, via, ends, sources, by = function.args
        b = c.b
        with c.times(i64(0), positions) as source:
            last = b.load(b.gep(offsets, [b.add(source, i64(1))]))
            with c.times(b.load(b.gep(offsets, [source])), last) as step:
                end = b.gep(ends, [b.zext(b.load(b.gep(targets, [step])), I64)])
                at = c.add(end, -1)
                b.store(b.trunc(source, I32), b.gep(sources, [at]))
                b.store(b.load(b.gep(via, [step])), b.gep(by, [at]))
        b.ret_void()

    def _spread(self, pointer: ir.Type) -> None:
        """``spread(starts, sources, by, allowed, marks, queue, count)``: mark all that leads to the queue."""
        words, shorts, bytes_ = I32.as_pointer(), I16.as_pointer(), I8.as_pointer()
        function, c = self.kernel.function(
            "spread", ir.VoidType(), pointer, words, shorts, bytes_, bytes_, words, I64, external=True
        )
        starts, sources, by, allowed, marks, queue, count = function.args
        b = c.b
        last, at = c.local(count), c.local(i64(0))
        with c.loop(lambda: b.icmp_unsigned("<", b.load(at), b.load(last))):
            state = b.zext(b.load(b.gep(queue, [b.load(at)])), I64)
            c.add(at, 1)
            end = b.load(b.gep(starts, [b.add(state, i64(1))]))
            with c.times(b.load(b.gep(starts, [state])), end) as step:
                source = b.load(b.gep(sources, [step]))
                mark = b.gep(marks, [b.zext(source, I64)])
                may = b.load(b.gep(allowed, [b.zext(b.load(b.gep(by, [step])), I64)]))
                free = b.icmp_unsigned("==", b.load(mark), ir.Constant(I8, 0))
                with c.when(b.and_(free, b.icmp_unsigned("!=", may, ir.Constant(I8, 0)))):
                    b.store(ir.Constant(I8, 1), mark)
                    b.store(source, b.gep(queue, [b.load(last)]))
                    c.add(last, 1)
        b.ret_void()
