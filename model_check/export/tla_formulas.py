"""Expressions and updates of a protocol as TLA+."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spec.lang.definitions import Use, Words
from spec.lang.nodes import (
    And,
    BoolSort,
    Const,
    Count,
    CountSort,
    EnumSort,
    Eq,
    Exists,
    Field,
    Forall,
    IndexSort,
    Ite,
    Less,
    MaybeSort,
    NaturalSort,
    Node,
    Not,
    Or,
    OrElse,
    Plus,
    Read,
    Some,
    Sort,
    Var,
    Write,
    conjuncts,
    named_after,
    sort_of,
)

_WORDS = (
    "ACTION ASSUME ASSUMPTION AXIOM BOOLEAN BY CASE CHOOSE CONSTANT CONSTANTS CONSTRAINT DEFINE DOMAIN ELSE ENABLED",
    "EXCEPT EXTENDS FALSE HAVE IF IN INSTANCE INVARIANT LAMBDA LET LOCAL MODULE NEW OBVIOUS OMITTED OTHER PICK PROOF",
    "PROPERTY PROVE QED RECURSIVE SF_ SPECIFICATION STATE STRING SUBSET SUFFICES TAKE TEMPORAL THEN THEOREM TRUE",
    "UNCHANGED UNION USE VARIABLE VARIABLES WF_ WITH WITNESS",
    # What the modules that are extended define, and the text around a protocol.
    "Cardinality FairSpec Fault Init InScope IsFiniteSet MaxFaults Nat Next None Ordinary Spec TypeOK",
    "a_fault_happens vars",
)
RESERVED = frozenset(word for line in _WORDS for word in line.split())
"""Words of TLA+, of its standard modules, and of the text around a protocol."""
WIDTH = 110
"""Columns of a line, where it can be broken."""


@dataclass(frozen=True)
class Namer:
    """What everything is called: `fields`, `words`, and what is bound inside may not be called, `taken`."""

    fields: Mapping[str, str]
    words: Mapping[str, str]
    taken: frozenset[str]

    def bound(self, var: Var) -> str:
        """A variable that is bound: TLA+ lets no name mean two things."""
        name = var.name
        while name in self.taken or name in RESERVED:
            name += "_"
        return name


class Formulas:
    """Writes expressions, with the words of the specification where they are meant."""

    def __init__(self, namer: Namer, words: Words) -> None:
        self.namer = namer
        self.words = words

    def text(self, node: Node) -> str:
        """An expression; what is longer than a name or a call needs brackets beside anything else."""
        if use := self.words.use(node):
            return self._use(use)
        match node:
            case Const(sort=sort, value=value):
                return _constant(sort, value)
            case Var():
                return self.namer.bound(node)
            case Read():
                return self._read(node)
            case Not(arg=arg):
                return self._opposite(arg)
            case And(args=args):
                return self._joined(" /\\ ", self.words.uses(conjuncts(node)), "TRUE")
            case Or(args=args):
                return self._either(args)
            case Eq(left=left, right=right):
                return f"{self.tight(left)} = {self.tight(right)}"
            case Less(left=left, right=right):
                return f"{self.tight(left)} < {self.tight(right)}"
            case Plus(arg=arg, amount=amount):
                return f"{self.tight(arg)} + {amount}"
            case Ite(cond=cond, then=then, other=other):
                return f"IF {self.text(cond)} THEN {self._branch(then)} ELSE {self.text(other)}"
            case Forall(var=var, body=body):
                return f"\\A {self._element(var)} : {self.text(body)}"
            case Exists(var=var, body=body):
                return f"\\E {self._element(var)} : {self.text(body)}"
            case Count(var=var, body=body):
                return f"Cardinality({{{self._element(var)} : {self.text(body)}}})"
            case Some(arg=arg):
                return self.text(arg)
            case OrElse(arg=arg, default=default):
                optional = self.tight(arg)
                return f"IF {optional} = None THEN {self._branch(default)} ELSE {optional}"

    def tight(self, node: Node) -> str:
        """An expression that can stand beside an operator."""
        text = self.text(node)
        return text if stands_alone(text) else f"({text})"

    def _branch(self, node: Node) -> str:
        text = self.text(node)
        return f"({text})" if text.startswith("IF ") else text

    def _element(self, var: Var) -> str:
        return f"{self.namer.bound(var)} \\in {set_of(var.sort)}"

    def _use(self, use: Use) -> str:
        args = ", ".join(self.text(arg) for arg in use.args)
        name = self.namer.words[use.definition.name]
        return f"{name}({args}){_prime(use.after)}" if args else f"{name}{_prime(use.after)}"

    def _read(self, node: Read) -> str:
        cell = self.namer.fields[node.field.name] + _prime(node.after)
        if node.keys:
            cell += f"[{', '.join(self.text(key) for key in node.keys)}]"
        absent = self.absent(node.keys)
        if not absent:
            return cell
        assert node.default is not None
        return f"IF {absent} THEN {self._branch(node.default)} ELSE {cell}"

    def absent(self, keys: Sequence[Node]) -> str:
        """That some key is none; nothing where no key can be."""
        return " \\/ ".join(f"{self.tight(key)} = None" for key in keys if isinstance(sort_of(key), MaybeSort))

    def _operand(self, part: Node | Use) -> str:
        """A condition beside a logical operator, which binds looser than a comparison."""
        if isinstance(part, Use):
            return self._use(part)
        text = self.text(part)
        binds = isinstance(part, Not | Eq | Less) or self._is_among(part) or stands_alone(text)
        return text if binds else f"({text})"

    def _opposite(self, arg: Node) -> str:
        if self.words.use(arg) is None:
            match arg:
                case Eq(left=left, right=right):
                    return f"{self.tight(left)} # {self.tight(right)}"
                case Less(left=left, right=right):
                    return f"{self.tight(left)} >= {self.tight(right)}"
                case Or(args=args) if (among := self._among(args)) is not None:
                    return f"{among[0]} \\notin {among[1]}"
        return f"~{self.tight(arg)}"

    def _either(self, args: Sequence[Node]) -> str:
        among = self._among(args)
        if among is not None:
            return f"{among[0]} \\in {among[1]}"
        match args:
            case (Not(arg=left), right):
                return f"{self._operand(left)} => {self._operand(right)}"
            case _:
                return self._joined(" \\/ ", args, "FALSE")

    def _is_among(self, part: Node) -> bool:
        return isinstance(part, Or) and self.words.use(part) is None and self._among(part.args) is not None

    def _among(self, args: Sequence[Node]) -> tuple[str, str] | None:
        """A value, and a set of constants that it is one of, if that is what a disjunction says."""
        lefts = {arg.left for arg in args if isinstance(arg, Eq) and isinstance(arg.right, Const)}
        if len(args) > 1 and len(lefts) == 1 and all(isinstance(a, Eq) and isinstance(a.right, Const) for a in args):
            members = ", ".join(self.text(arg.right) for arg in args if isinstance(arg, Eq))
            return self.tight(lefts.pop()), f"{{{members}}}"
        return None

    def _joined(self, operator: str, parts: Sequence[Node | Use], empty: str) -> str:
        texts = [self._operand(part) for part in parts]
        if len(texts) == 1:
            return texts[0]
        return operator.join(texts) if texts else empty

    def conjuncts(self, parts: Sequence[Node]) -> list[str]:
        """Conditions that all hold, each to stand behind its own bullet."""
        return [self._use(p) if isinstance(p, Use) else self.text(p) for p in self.words.uses(parts)]

    # Updates

    def updated(self, field: Field, writes: Sequence[Write], params: Collection[Var], base: str) -> str:
        """What a field is after the writes to it, the later ones standing where two meet."""
        for write in writes:
            base = self._written(field, write, params, base)
        return base

    def _written(self, field: Field, write: Write, params: Collection[Var], base: str) -> str:
        value = self.text(write.value)
        if not field.keys:
            # Beside the equals sign that this stands behind, nothing else binds looser.
            return value if value.startswith("IF ") else self.tight(write.value)
        absent = self.absent(write.keys)
        if tuple(write.binders) == write.keys:
            # Every cell has a new value, whatever the field was.
            return f"[{', '.join(self._element(var) for var in write.binders)} |-> {value}]"
        keys = [self.text(key) for key in write.keys]
        if not write.binders:
            change = f"![{', '.join(keys)}] = {value}"
            if base.endswith("]") and " EXCEPT !" in base and not absent:
                return f"{base[:-1]}, {change}]"
            update = f"[{base} EXCEPT {change}]"
        else:
            update = self._row(field, write, params, base, value)
        return f"IF {absent} THEN {base} ELSE {update}" if absent else update

    def _row(self, field: Field, write: Write, params: Collection[Var], base: str, value: str) -> str:
        """The cells of one key, for every other: a function that differs from the old one there."""
        cell: list[Var] = []
        tests = []
        for key, sort in zip(write.keys, field.keys, strict=True):
            if isinstance(key, Var) and key in write.binders:
                cell.append(key)
            else:
                var = named_after(Var(sort, sort.name), [*params, *write.binders, *cell])
                cell.append(var)
                tests.append(f"{self.namer.bound(var)} = {self.tight(key)}")
        elements = ", ".join(self._element(var) for var in cell)
        names = ", ".join(self.namer.bound(var) for var in cell)
        old = base if stands_alone(base) else f"({base})"
        here = " /\\ ".join(tests)
        return f"[{elements} |-> IF {here} THEN {value} ELSE {old}[{names}]]"


def set_of(sort: Sort) -> str:
    """The set of the values of a sort."""
    match sort:
        case BoolSort():
            return "BOOLEAN"
        case MaybeSort(of=of):
            return f"({set_of(of)} \\cup {{None}})"
        case _:
            return sort.name


def _constant(sort: Sort, value: int) -> str:
    match sort:
        case BoolSort():
            return "TRUE" if value else "FALSE"
        case EnumSort(members=members):
            return f'"{members[value]}"'
        case MaybeSort():
            assert value == 0, "of optional values, only none is a constant"
            return "None"
        case IndexSort() | NaturalSort() | CountSort():
            return str(value)


def _prime(after: bool) -> str:
    return "'" if after else ""


def stands_alone(text: str) -> bool:
    """A name, a number, a call, a cell, or something in brackets of its own."""
    depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and letter == " ":
            return False
    return not text.startswith("~")


def wrapped(text: str, first: str, rest: str) -> list[str]:
    """A text in lines that are not too long; those after the first further in, so that they continue it.

    A chain of choices that needs more than one line has one for each.
    """
    if len(first) + len(text) <= WIDTH:
        return [first + text]
    start = max(text.find("IF "), 0)
    choices = _choices(text[start:])
    if len(choices) == 1 or "(" in text[:start]:
        return _filled(text, first, rest)
    head = [first + text[:start].rstrip()] if start else []
    lines = [
        line for n, part in enumerate(choices) for line in _filled(part, rest if n or head else first, f"{rest}  ")
    ]
    return head + lines


def _choices(text: str) -> list[str]:
    """A text before each ``ELSE`` that is in no brackets."""
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and text.startswith(" ELSE ", position):
            parts.append(text[begin:position])
            begin = position + 1
    return [*parts, text[begin:]]


def _filled(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )


def comment(text: str, indent: str = "") -> Iterator[str]:
    """A comment in lines that are not too long."""
    lines = _filled(text.replace("*)", "* )"), f"{indent}(* ", f"{indent}   ")
    yield from (*lines[:-1], f"{lines[-1]} *)")


__all__ = ["RESERVED", "Formulas", "Namer", "comment", "set_of", "stands_alone", "wrapped"]
