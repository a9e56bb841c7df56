"""Structured forms for writing LLVM code: variables, loops, conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))


class Code:
    """A builder with the few structured forms that the kernel is written in."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.entry = self.b.block

    def slot(self, kind: ir.Type, count: int = 1) -> ir.Value:
        """Room on the stack."""
        with self.b.goto_block(self.entry):
            if self.entry.instructions:
                self.b.position_before(self.entry.instructions[0])
            room = self.b.alloca(kind, count)
            room.align = 16
            return room

    def local(self, value: ir.Value) -> ir.Value:
        """A variable with its first value."""
        room = self.slot(value.type)
        self.b.store(value, room)
        return room

    def add(self, room: ir.Value, amount: ir.Value | int) -> ir.Value:
        """Add to a variable; the new value."""
        old = self.b.load(room)
        new = self.b.add(old, ir.Constant(old.type, amount) if isinstance(amount, int) else amount)
        self.b.store(new, room)
        return new

    @contextmanager
    def loop(self, test: Callable[[], ir.Value]) -> Iterator[ir.Block]:
        """While the test holds. The block yielded is where a jump leaves the loop."""
        head, body, done = (self.function.append_basic_block(name) for name in ("while", "do", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(test(), body, done)
        self.b.position_at_end(body)
        yield done
        if not self.b.block.is_terminated:
            self.b.branch(head)
        self.b.position_at_end(done)

    @contextmanager
    def times(self, first: ir.Value, last: ir.Value) -> Iterator[ir.Value]:
        """For a number from the first up to but not with the last."""
        at = self.local(first)
        with self.loop(lambda: self.b.icmp_unsigned("<", self.b.load(at), last)):
            number = self.b.load(at)
            yield number
            self.add(at, 1)

    @contextmanager
    def when(self, cond: ir.Value, likely: bool | None = None) -> Iterator[None]:
        """If."""
        with self.b.if_then(cond, likely=likely):
            yield

    def jump(self, block: ir.Block) -> None:
        """Leave; what follows is never reached."""
        self.b.branch(block)
        self.b.position_at_end(self.function.append_basic_block("after"))


def i64(value: int) -> ir.Constant:
    """A 64-bit constant."""
    return ir.Constant(I64, value)
