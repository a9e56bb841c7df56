"""A protocol in a scope as Promela, whose verification by SPIN visits the same states.

One process, in one place between steps. A step is the choice of an action with its parameters, which tests and writes
in one `d_step`, and the judgement of what it did; both are one `atomic`, so that SPIN stores the states of the protocol
and none between. The process starts in one state more, in which nothing is chosen yet.

Writes happen at once in the protocol and one after another in Promela: what a later one, or a step property, needs of
the state before is first copied to `hidden` variables. They are no part of SPIN's state, and no later step reads them.

Properties, step properties and dead ends are assertions after every step. A recovery speaks of what can still be done
from every state, which neither an assertion nor a never claim can say; an eventuality speaks of fair runs, where SPIN's
fairness is that of processes, and there is only one here. Both are left out, and named in the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial

from model_check.evaluate import Space
from model_check.export.formulas import (
    Code,
    Formulas,
    Reading,
    all_of,
    any_of,
    bare,
    broken,
    comment,
    compared,
)
from model_check.record import DEAD_END
from spec.lang.nodes import BoolSort, EnumSort, Field, KeySort, Read, Var, Write, may_pass, walk
from spec.lang.protocol import Action

INLINE = 1 << 15
"""Characters of an inline, where it can be broken. SPIN takes twice as many."""


def promela(space: Space) -> str:
    """The text of the model.

    With ``-DREPORT``, the verifier goes on past violations, and prints ``violated NAME`` or ``reached NAME`` once for
    every claim that fails somewhere and every goal. With ``-DSTATES`` it also prints every state that a step leads to:
    ``state`` and the numbers of its cells, in the order of `Space`.
    """
    return "\n".join(_Model(space).lines()) + "\n"


class _Model:
    def __init__(self, space: Space) -> None:
        self.space = space
        self.scope = space.scope
        self.protocol = space.protocol
        self.formulas = Formulas(space)

    def lines(self) -> Iterator[str]:
        initial = self.protocol.initial
        assert initial is not None, "a protocol needs its first states"
        yield from self._heading()
        yield from self._enumerations()
        yield from self._variables()
        yield from self._reporting()
        yield from self._remembering()
        yield from self._action(initial, self.formulas.start)
        for action in self.protocol.actions.values():
            yield from self._action(action, self.formulas.actions[action.name])
        yield from self._judgement()
        yield from self._process(initial)

    # What comes before the actions

    def _heading(self) -> Iterator[str]:
        sizes = ", ".join(f"{name} {size}" for name, size in self.scope.sizes.items())
        faults = "" if self.scope.faults is None else f", at most {self.scope.faults} faults"
        yield f"/* {self.protocol.name} in scope {self.scope.name}: {sizes}{faults}."
        yield " * Written by reef-ref export from the protocol: change that, and write this anew."
        yield " *"
        yield " *   spin -o2 -a FILE && gcc -O2 -DSAFETY -DNOREDUCE -DVECTORSZ=4096 -o pan pan.c && ./pan -E -m10000000"
        yield " *"
        yield " * stores one state for every state of the protocol, and one before the first choice. Without -o2, SPIN"
        yield " * forgets what no step reads; with -E, it leaves dead ends to the assertion here, which knows where the"
        yield " * protocol may rest."
        beyond = [*self.protocol.recoveries, *self.protocol.eventualities]
        if beyond:
            yield " *"
            missing = f"Not here, since no assertion can say it: {', '.join(beyond)}."
            yield from (f" * {line}" for line in broken(missing, ""))
        yield " */"

    def _enumerations(self) -> Iterator[str]:
        for sort in self.protocol.sorts:
            if isinstance(sort, EnumSort):
                yield ""
                for number, member in enumerate(sort.members):
                    yield f"#define {self.formulas.members[sort.name, member]} {number}"

    def _variables(self) -> Iterator[str]:
        fields = self.protocol.fields.values()
        yield ""
        for field in fields:
            bit = isinstance(field.sort, BoolSort) and not field.keys
            kind = "bool" if bit else self._type(field)
            yield f"{kind} {self._declared(field, self.formulas.fields[field.name])} /* {self._means(field)} */"
        copied = [field for field in fields if field.name in self._ever_copied]
        if copied:
            yield ""
            yield "/* What these held before a step, while it is taken. */"
            # SPIN hides no single bits.
            for field in copied:
                yield f"hidden {self._type(field)} {self._declared(field, self.formulas.copies[field.name])}"

    def _type(self, field: Field) -> str:
        values = self.scope.cardinality(field.sort)
        return "byte" if values <= 1 << 8 else "short" if values <= 1 << 15 else "int"

    def _declared(self, field: Field, name: str) -> str:
        return f"{name}[{self.formulas.cells(field)}];" if field.keys else f"{name};"

    def _means(self, field: Field) -> str:
        by = f" by {' and '.join(key.name for key in field.keys)}" if field.keys else ""
        return f"{'ghost, ' if field.ghost else ''}{field.sort.name}{by}: {field.doc.replace('*/', '* /')}"

    def _reporting(self) -> Iterator[str]:
        claims = len(self.protocol.properties) + len(self.protocol.goals) + 1
        tell = 'c_code {{ tell(number, "{} " name); }}'
        yield ""
        yield "#ifdef REPORT"
        yield "c_decl {"
        yield f"static int told[{claims}];"
        yield 'static void tell(int number, const char *what) { if (!told[number]++) printf("%s\\n", what); }'
        yield "}"
        yield f"#define claim(number, name, holds) if :: holds -> skip :: else -> {tell.format('violated')} fi"
        yield f"#define goal(number, name, holds) if :: holds -> {tell.format('reached')} :: else -> skip fi"
        yield "#else"
        yield "#define claim(number, name, holds) assert(holds)"
        yield "#define goal(number, name, holds) skip"
        yield "#endif"

    def _remembering(self) -> Iterator[str]:
        if self._judged_before:
            yield ""
            yield "/* What a step is judged by. */"
            yield "inline remember() {"
            yield from self._copies(self._judged_before, "  ")
            yield "}"

    # Actions

    def _action(self, action: Action, name: str) -> Iterator[str]:
        params = self._params(action)
        assignments, copied = self._assignments(action, params)
        conditions = (partial(self.formulas.value, part, Reading(params)) for part in action.guard)
        guard = all_of([*conditions, *self._bounds(action, params)])
        yield ""
        yield from comment(f"{'Fault. ' if action.kind == 'fault' else ''}{action.doc}")
        yield f"inline {name}({', '.join(map(str, params.values()))}) {{"
        yield from broken(f"d_step {{ {bare(guard)} ->", "  ")
        if self._judged_before and action is not self.protocol.initial:
            yield "    remember();"
        yield from self._copies(copied - self._judged_before, "    ")
        for assignment in assignments or ["skip;"]:
            yield from broken(assignment, "    ")
        yield "  }"
        yield "}"

    def _params(self, action: Action) -> dict[Var, Code]:
        """What the parameters are called: SPIN puts the argument wherever such a word stands in the text."""
        found: dict[Var, Code] = {}
        for param in action.params:
            found[param] = self.formulas.unused(param.name, map(str, found.values()))
        return found

    def _bounds(self, action: Action, params: Mapping[Var, Code]) -> Iterator[partial[Code]]:
        """What keeps a step within the scope."""
        for write in action.writes:
            if may_pass(write.value):
                for env in self._choices(write.binders, params):
                    yield partial(self._within, write, Reading(env))

    def _within(self, write: Write, reading: Reading) -> Code:
        _, missing = self.formulas.index(write.field, write.keys, reading)
        bound = self.scope.cardinality(write.field.sort)
        inside = compared("<", self.formulas.value(write.value, reading), bound)
        return missing if inside == 0 else inside if missing == 0 else f"({missing} || {inside})"

    def _assignments(self, action: Action, params: Mapping[Var, Code]) -> tuple[list[str], frozenset[str]]:
        """The writes in their order, and the fields of which some need the value before the step."""
        assigned: set[str] = set()
        late: set[str] = set()
        for write in action.writes:
            reads = {n.field.name for part in (*write.keys, write.value) for n in walk(part) if isinstance(n, Read)}
            many = any(self.scope.cardinality(binder.sort) > 1 for binder in write.binders)
            late |= reads & (assigned | ({write.field.name} if many else set()))
            assigned.add(write.field.name)
        before = frozenset(late)
        texts = []
        for write in action.writes:
            for env in self._choices(write.binders, params):
                reading = Reading(env, before)
                index, missing = self.formulas.index(write.field, write.keys, reading)
                text = f"{self.formulas.fields[write.field.name]}{index} = "
                text += bare(self.formulas.value(write.value, reading))
                if missing == 0:
                    texts.append(f"{text};")
                elif missing != 1:
                    texts.append(f"if :: {missing} -> skip :: else -> {text} fi;")
        return texts, before

    def _choices(self, binders: tuple[Var, ...], env: Mapping[Var, Code]) -> Iterator[Mapping[Var, Code]]:
        for values in itertools.product(*(range(self.scope.cardinality(b.sort)) for b in binders)):
            yield {**env, **dict(zip(binders, values, strict=True))}

    def _copies(self, names: Collection[str], indent: str) -> Iterator[str]:
        for name, field in self.protocol.fields.items():
            if name in names:
                here, there = self.formulas.fields[name], self.formulas.copies[name]
                indices = [f"[{n}]" for n in range(self.formulas.cells(field))] if field.keys else [""]
                yield from broken(" ".join(f"{there}{index} = {here}{index};" for index in indices), indent)

    @cached_property
    def _judged_before(self) -> frozenset[str]:
        """The fields whose value before the step some step property reads."""
        claims = [claim.node for claim in self.protocol.properties.values() if claim.stepwise]
        reads = (node for claim in claims for node in walk(claim) if isinstance(node, Read))
        return frozenset(read.field.name for read in reads if not read.after)

    @cached_property
    def _ever_copied(self) -> frozenset[str]:
        actions = self.protocol.actions.values()
        return self._judged_before.union(*(self._assignments(a, self._params(a))[1] for a in actions))

    # Judgement

    def _judgement(self) -> Iterator[str]:
        numbers = itertools.count()
        states, steps = ([c for c in self.protocol.properties.values() if c.stepwise is kind] for kind in (False, True))
        goals = self.protocol.goals.values()
        here, across = Reading({}), Reading({}, self._judged_before)
        doc = "Where nothing but a fault can happen, the protocol may rest."
        parts = [
            *(self._claim("claim", numbers, c.name, c.doc, self.formulas.value(c.node, here)) for c in states),
            self._claim("claim", numbers, DEAD_END, doc, self._going_on()),
            *(self._claim("goal", numbers, g.name, g.doc, self.formulas.value(g.node, here)) for g in goals),
            ["#ifdef STATES", "  c_code {", *self._print_state(), "  };", "#endif"],
        ]
        yield from self._inlines("judge", "What is true in every state, and which states are reached.", parts)
        parts = [self._claim("claim", numbers, c.name, c.doc, self.formulas.value(c.node, across)) for c in steps]
        yield from self._inlines("judge_step", "What is true of every step.", parts)

    def _inlines(self, name: str, doc: str, parts: Iterable[list[str]]) -> Iterator[str]:
        """Statements as one inline, of several others where there is more text than SPIN takes for one."""
        groups: list[list[str]] = [[]]
        length = 0
        for part in parts:
            more = sum(len(line) + 1 for line in part)
            if groups[-1] and length + more > INLINE:
                groups.append([])
                length = 0
            groups[-1] += part
            length += more
        names = [self.formulas.unused(f"{name}_{number}", ()) for number in range(len(groups))]
        if len(groups) > 1:
            for one, lines in zip(names, groups, strict=True):
                yield from ("", f"inline {one}() {{", *lines, "  skip", "}")
            groups = [[f"  {one}();" for one in names]]
        yield from ("", f"/* {doc} */", f"inline {name}() {{", *groups[0], "  skip", "}")

    def _claim(self, kind: str, numbers: Iterator[int], name: str, doc: str, holds: Code) -> list[str]:
        return [*comment(doc, "  "), *broken(f'{kind}({next(numbers)}, "{name}", ({bare(holds)}));', "  ")]

    def _going_on(self) -> Code:
        """The protocol may rest, or some action's guard holds; a step that the scope cuts off counts."""
        rest = (partial(self.formulas.value, rest.node, Reading({})) for rest in self.protocol.rest.values())
        ordinary = (i for i in self.space.instances if i.action.kind != "fault")
        return any_of([*rest, *(partial(self._enabled, i.action, dict(i.env)) for i in ordinary)])

    def _enabled(self, action: Action, env: Mapping[Var, Code]) -> Code:
        return all_of(partial(self.formulas.value, part, Reading(env)) for part in action.guard)

    def _print_state(self) -> Iterator[str]:
        yield '    printf("state");'
        for field in self.protocol.fields.values():
            name = f"now.{self.formulas.fields[field.name]}"
            if field.keys:
                cells = self.formulas.cells(field)
                yield f'    for (int n = 0; n < {cells}; n++) printf(" %d", {name}[n]);'
            else:
                yield f'    printf(" %d", {name});'
        yield '    printf("\\n");'

    # The process

    def _process(self, initial: Action) -> Iterator[str]:
        actions = self.protocol.actions.values()
        steps = [call for action in actions for call in self._calls(action, self.formulas.actions[action.name])]
        yield ""
        yield "active proctype protocol() {"
        yield "  atomic {"
        yield "    if"
        yield from (f"    :: {call}" for call in self._calls(initial, self.formulas.start))
        yield "    fi;"
        yield "    d_step { judge() }"
        yield "  };"
        yield "  do"
        yield "  :: atomic {"
        yield "      if"
        yield from (f"      :: {call}" for call in steps or ["false"])
        yield "      fi;"
        yield "      d_step { judge_step(); judge() }"
        yield "    }"
        yield "  od"
        yield "}"

    def _calls(self, action: Action, name: str) -> Iterator[str]:
        for args in itertools.product(*(range(self.scope.cardinality(p.sort)) for p in action.params)):
            words = (self._word(p.sort, value) for p, value in zip(action.params, args, strict=True))
            yield f"{name}({', '.join(words)})"

    def _word(self, sort: KeySort, value: int) -> str:
        match sort:
            case BoolSort():
                return "true" if value else "false"
            case EnumSort(name=name, members=members):
                return self.formulas.members[name, members[value]]
            case _:
                return str(value)
