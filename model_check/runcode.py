"""Code for sorted runs of states: sort one, merge several without what others hold, count goals in one."""

from __future__ import annotations

from llvmlite import ir

from model_check.building import I1, I64, i64
from model_check.kernel import Kernel

FEW = 16
"""Rows that are sorted by insertion."""


class RunCode:
    """Adds the functions on runs to a kernel's module. A row is a packed state, and nothing is above all ones."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.row = kernel.state.as_pointer()
        pointer = I64.as_pointer()
        self._sort()
        self._sift(pointer)
        self._tally(pointer)

    def _sort(self) -> None:
        """``sort(rows, count)``: in place, by radix exchange.

        A range is divided by the highest bit in which any two of its rows differ. So every range that waits differs in
        a lower bit than the one that waits below it, and no more than one for each bit ever waits.
        """
        function, c = self.kernel.function("sort", ir.VoidType(), self.row, I64, external=True)
        rows, count = function.args
        b, kind = c.b, self.kernel.state
        waiting = c.slot(I64, 2 * (kind.width + 1))
        depth = c.local(i64(1))
        b.store(i64(0), waiting)
        b.store(count, b.gep(waiting, [i64(1)]))
        one = ir.Constant(kind, 1)

        def row(at: ir.Value) -> ir.Value:
            return self.kernel.get(c, b.gep(rows, [at]))

        with c.loop(lambda: b.icmp_unsigned("!=", b.load(depth), i64(0))):
            top = b.shl(c.add(depth, -1), i64(1))
            low = b.load(b.gep(waiting, [top]))
            high = c.local(b.load(b.gep(waiting, [b.add(top, i64(1))])))
            with c.loop(lambda: b.icmp_unsigned(">", b.sub(b.load(high), low), i64(FEW))):
                first, differ = row(low), c.local(ir.Constant(kind, 0))
                with c.times(low, b.load(high)) as at:
                    b.store(b.or_(b.load(differ), b.xor(row(at), first)), differ)
                zeros = b.ctlz(b.load(differ), ir.Constant(I1, 0))
                alike = b.icmp_unsigned("==", b.load(differ), ir.Constant(kind, 0))
                bit = b.shl(one, b.sub(ir.Constant(kind, kind.width - 1), b.select(alike, ir.Constant(kind, 0), zeros)))
                middle = c.local(low)
                with c.times(low, b.load(high)) as at:
                    here = b.load(middle)
                    value, other = row(at), row(here)
                    self.kernel.set(c, other, b.gep(rows, [at]))
                    self.kernel.set(c, value, b.gep(rows, [here]))
                    lower = b.icmp_unsigned("==", b.and_(value, bit), ir.Constant(kind, 0))
                    c.add(middle, b.zext(lower, I64))
                place = b.shl(b.load(depth), i64(1))
                b.store(b.load(middle), b.gep(waiting, [place]))
                b.store(b.load(high), b.gep(waiting, [b.add(place, i64(1))]))
                c.add(depth, b.zext(b.not_(alike), I64))
                b.store(b.select(alike, low, b.load(middle)), high)
            with c.times(b.add(low, i64(1)), b.load(high)) as at:
                value, hole = row(at), c.local(at)

                def greater_before() -> ir.Value:
                    inside = b.icmp_unsigned(">", b.load(hole), low)
                    before = row(b.sub(b.load(hole), b.zext(inside, I64)))
                    return b.and_(inside, b.icmp_unsigned(">", before, value))

                with c.loop(greater_before):
                    self.kernel.set(c, row(b.sub(b.load(hole), i64(1))), b.gep(rows, [b.load(hole)]))
                    c.add(hole, -1)
                self.kernel.set(c, value, b.gep(rows, [b.load(hole)]))
        b.ret_void()

    def _sift(self, pointer: ir.Type) -> None:
        """``sift(heads, candidates, known, out, room) -> rows``: what is among the candidates and not known.

        ``heads`` holds two words for each stream, the candidates' first: its next row, and the end of its rows. None is
        empty at first; a row of all ones stands behind the last, and is the only one of a stream that is at its end. It
        stops where a stream has become empty, ``out`` is full, or all candidates are at their end.
        """
        function, c = self.kernel.function("sift", I64, pointer, I64, I64, self.row, I64, external=True)
        heads, candidates, known, out, room = function.args
        b, kind = c.b, self.kernel.state
        written, short = c.local(i64(0)), c.local(ir.Constant(I1, 0))
        streams, last = b.add(candidates, known), ir.Constant(kind, (1 << kind.width) - 1)

        def head(stream: ir.Value) -> ir.Value:
            return b.gep(heads, [b.shl(stream, i64(1))])

        def row(stream: ir.Value) -> ir.Value:
            return b.inttoptr(b.load(head(stream)), self.row)

        def end(stream: ir.Value) -> ir.Value:
            return b.load(b.gep(head(stream), [i64(1)]))

        def going() -> ir.Value:
            return b.and_(b.not_(b.load(short)), b.icmp_unsigned("<", b.load(written), room))

        with c.loop(going) as done:
            least = c.local(last)
            with c.times(i64(0), candidates) as stream:
                value = self.kernel.get(c, row(stream))
                b.store(b.select(b.icmp_unsigned("<", value, b.load(least)), value, b.load(least)), least)
            wanted, seen = b.load(least), c.local(ir.Constant(I1, 0))
            with c.when(b.icmp_unsigned("==", wanted, last), likely=False):
                c.jump(done)
            with c.times(candidates, streams) as stream:
                at = c.local(row(stream))
                with c.loop(lambda: b.icmp_unsigned("<", self.kernel.get(c, b.load(at)), wanted)):
                    b.store(b.gep(b.load(at), [i64(1)]), at)
                place = b.ptrtoint(b.load(at), I64)
                b.store(place, head(stream))
                b.store(b.or_(b.load(short), b.icmp_unsigned("==", place, end(stream))), short)
                same = b.icmp_unsigned("==", self.kernel.get(c, b.load(at)), wanted)
                b.store(b.or_(b.load(seen), same), seen)
            with c.when(b.not_(b.load(short)), likely=True):
                self.kernel.set(c, wanted, b.gep(out, [b.load(written)]))
                c.add(written, b.zext(b.not_(b.load(seen)), I64))
                with c.times(i64(0), candidates) as stream:
                    place = row(stream)
                    same = b.icmp_unsigned("==", self.kernel.get(c, place), wanted)
                    after = b.ptrtoint(b.gep(place, [b.zext(same, I64)]), I64)
                    b.store(after, head(stream))
                    b.store(b.or_(b.load(short), b.icmp_unsigned("==", after, end(stream))), short)
        b.ret(b.load(written))

    def _tally(self, pointer: ir.Type) -> None:
        """``tally(rows, count, goals)``: add up in how many rows each goal holds."""
        function, c = self.kernel.function("tally", ir.VoidType(), self.row, I64, pointer, external=True)
        rows, count, goals = function.args
        b, held = c.b, c.slot(I64)
        with c.times(i64(0), count) as at:
            b.call(self.kernel.judge, [b.gep(rows, [at]), held])
            for number in range(self.kernel.shape.goals):
                yes = b.and_(b.lshr(b.load(held), i64(number)), i64(1))
                c.add(b.gep(goals, [i64(number)]), yes)
        b.ret_void()
