"""Code for the explored graph where states are on disk: its steps as links between positions, and a pass over links."""

from __future__ import annotations

from llvmlite import ir

from model_check.building import I8, I16, I32, I64, Code, i64
from model_check.kernel import Kernel
from model_check.record import CUT


class LinkCode:
    """Adds the functions on links to a kernel's module. A link is three numbers: source, target, who may take it."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.rows = kernel.state.as_pointer()
        self._ask()
        self._link()
        self._sweep()

    def _ask(self) -> None:
        """``ask(rows, count, recovery, answers)``: by row, bit 0 if a source of the recovery, bit 1 if a target."""
        function, c = self.kernel.function("ask", ir.VoidType(), self.rows, I64, I64, I8.as_pointer(), external=True)
        rows, count, recovery, answers = function.args
        b = c.b
        with c.times(i64(0), count) as at:
            bits = b.lshr(b.call(self.kernel.promise, [b.gep(rows, [at])]), b.shl(recovery, i64(1)))
            b.store(b.trunc(b.and_(bits, i64(3)), I8), b.gep(answers, [at]))
        b.ret_void()

    def _link(self) -> None:
        """``link(rows, count, first, part, size, base, wanted, cut, out, switch) -> links``.

        Of the states in ``rows``, whose positions begin with ``first``: every wanted step to a state of ``part``, which
        is sorted, not empty, and whose positions begin with ``base``. In ``cut[position]``: whether a bound cut one.
        """
        numbers_ = I32.as_pointer()
        function, c = self.kernel.function(
            "link",
            I64,
            self.rows,
            I64,
            I64,
            self.rows,
            I64,
            I64,
            numbers_,
            I8.as_pointer(),
            numbers_,
            I32,
            external=True,
        )
        rows, count, first, part, size, base, wanted, cut, out, switch = function.args
        b, instances = c.b, self.kernel.shape.instances
        batch, numbers = c.slot(self.kernel.state, instances), c.slot(I16, instances)
        idle, written = c.slot(I64, self.kernel.shape.size), c.local(i64(0))
        least = self.kernel.get(c, part)
        greatest = self.kernel.get(c, b.gep(part, [b.sub(size, i64(1))]))
        with c.times(i64(0), count) as at:
            position = b.add(first, at)
            answer = b.call(self.kernel.generate, [b.gep(rows, [at]), batch, numbers, idle, idle, switch])
            b.store(b.trunc(b.and_(b.lshr(answer, i64(CUT)), i64(1)), I8), b.gep(cut, [position]))
            with c.times(i64(0), b.and_(answer, i64(0xFFFFFFFF))) as step:
                takers = b.load(b.gep(wanted, [b.zext(b.load(b.gep(numbers, [step])), I64)]))
                with c.when(b.icmp_unsigned("!=", takers, ir.Constant(I32, 0))):
                    after = b.gep(batch, [step])
                    if self.kernel.symmetric:
                        b.call(self.kernel.canonical, [after])
                    value = self.kernel.get(c, after)
                    inside = b.and_(b.icmp_unsigned(">=", value, least), b.icmp_unsigned("<=", value, greatest))
                    with c.when(inside):
                        place = self._place(c, part, size, value)
                        found = self.kernel.get(c, b.gep(part, [place]))
                        with c.when(b.icmp_unsigned("==", found, value)):
                            link = b.gep(out, [b.mul(b.load(written), i64(3))])
                            b.store(b.trunc(position, I32), link)
                            b.store(b.trunc(b.add(base, place), I32), b.gep(link, [i64(1)]))
                            b.store(takers, b.gep(link, [i64(2)]))
                            c.add(written, 1)
        b.ret(b.load(written))

    def _place(self, c: Code, part: ir.Value, size: ir.Value, value: ir.Value) -> ir.Value:
        """Where in a sorted part the last row is that is not greater."""
        b, low, left = c.b, c.local(i64(0)), c.local(size)
        with c.loop(lambda: b.icmp_unsigned(">", b.load(left), i64(1))):
            half = b.lshr(b.load(left), i64(1))
            middle = b.add(b.load(low), half)
            beyond = b.icmp_unsigned(">", self.kernel.get(c, b.gep(part, [middle])), value)
            b.store(b.select(beyond, b.load(low), middle), low)
            b.store(b.sub(b.load(left), half), left)
        return b.load(low)

    def _sweep(self) -> None:
        """``sweep(links, count, taker, marks) -> new marks``: mark what one link of the taker leads to a mark from."""
        function, c = self.kernel.function("sweep", I64, I32.as_pointer(), I64, I32, I8.as_pointer(), external=True)
        links, count, taker, marks = function.args
        b, marked = c.b, c.local(i64(0))

        def word(link: ir.Value, number: int) -> ir.Value:
            return b.load(b.gep(link, [i64(number)]))

        with c.times(i64(0), count) as at:
            link = b.gep(links, [b.mul(at, i64(3))])
            mark = b.gep(marks, [b.zext(word(link, 0), I64)])
            reaches = b.load(b.gep(marks, [b.zext(word(link, 1), I64)]))
            takes = b.and_(word(link, 2), taker)
            free = b.icmp_unsigned("==", b.load(mark), ir.Constant(I8, 0))
            conditions = [
                free,
                b.icmp_unsigned("!=", reaches, ir.Constant(I8, 0)),
                b.icmp_unsigned("!=", takes, ir.Constant(I32, 0)),
            ]
            with c.when(b.and_(b.and_(conditions[0], conditions[1]), conditions[2])):
                b.store(ir.Constant(I8, 1), mark)
                c.add(marked, 1)
        b.ret(b.load(marked))
