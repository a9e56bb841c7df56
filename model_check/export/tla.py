"""A protocol as a TLA+ module, complete for TLC: initial states, steps, properties, and a configuration for each scope.

The module says nothing of how large a world is: index sorts are constants, natural sorts end at a constant, and a step
that would pass such an end is cut off by `InScope`, in `Next` and in no action. Ghost fields are variables like others.

Assumptions are conjuncts of `FairSpec`, eventualities its properties; on a run that is fair, faults end at some time.

What TLA+ says otherwise: a step that changes nothing is none of ``[][...]_vars``, so that a step property is judged
only where something changes. A recovery, that something can still be done, is a claim about branches, which no formula
of TLA+ makes: its two conditions are defined, and what it claims stands beside them in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from model_check.export.tla_formulas import (
    RESERVED,
    Formulas,
    Namer,
    comment,
    set_of,
    stands_alone,
    wrapped,
)
from model_check.record import DEAD_END
from spec.lang import Eventuality
from spec.lang.definitions import Definition, Use, Words, definitions
from spec.lang.nodes import (
    BOOL,
    And,
    BoolSort,
    Const,
    EnumSort,
    Field,
    IndexSort,
    MaybeSort,
    NaturalSort,
    Node,
    Var,
    Write,
    children,
    conjuncts,
    may_pass,
)
from spec.lang.protocol import Action, Goal, Property, Protocol, Recovery
from spec.lang.scope import Scope


def tla(protocol: Protocol, *, faults: bool = False) -> str:
    """The text of the module; with `faults`, those are counted, and end at a constant."""
    return "\n".join(_Module(protocol, faults).lines()) + "\n"


def cfg(protocol: Protocol, scope: Scope, *, faults: bool = False, fair: bool = False) -> str:
    """The configuration with which TLC checks the module in a scope; with `fair`, what happens in the end.

    Raises:
        Misuse: the scope does not bound a sort of the protocol.
    """
    return "\n".join(_Module(protocol, faults or scope.faults is not None).configured(scope, fair)) + "\n"


def files(protocol: Protocol, scopes: Iterable[Scope]) -> dict[str, str]:
    """The module, and a configuration for each scope, by the names of their files."""
    worlds = list(scopes)
    faults = any(scope.faults is not None for scope in worlds)
    name = module_name(protocol)
    found = {f"{name}.tla": tla(protocol, faults=faults)}
    for scope in worlds:
        found[f"{name}_{scope.name}.cfg"] = cfg(protocol, scope, faults=faults)
        if protocol.eventualities:
            found[f"{name}_{scope.name}_fair.cfg"] = cfg(protocol, scope, faults=faults, fair=True)
    return found


def module_name(protocol: Protocol) -> str:
    """What the module is called: TLC wants the file to be called the same."""
    return re.sub(r"\W", "_", protocol.name)


class _Module:
    def __init__(self, protocol: Protocol, faults: bool) -> None:
        self.protocol = protocol
        self.faults = faults and any(action.kind == "fault" for action in protocol.actions.values())
        assert protocol.initial is not None, "a protocol needs its first states"
        self.initial = protocol.initial
        words = Words(definitions(protocol))
        used = set(RESERVED) | {sort.name for sort in protocol.sorts}
        used |= {f"Max{sort.name}" for sort in protocol.sorts if isinstance(sort, NaturalSort)}

        def new(name: str) -> str:
            while name in used:
                name += "_"
            used.add(name)
            return name

        self.fields = {name: new(name) for name in protocol.fields}
        if self.faults:
            self.counter = new("faults")
        self.actions = {name: new(name) for name in protocol.actions}
        self.properties = {name: new(name) for name in (*protocol.properties, DEAD_END)}
        self.goals = {name: new(name) for name in protocol.goals}
        self.rest = {name: new(name) for name in protocol.rest}
        self.assumptions = {name: new(name) for name in protocol.assumptions}
        self.eventualities = {name: new(name) for name in protocol.eventualities}
        self.recoveries = {name: (new(f"{name}_from"), new(f"{name}_to")) for name in protocol.recoveries}
        called = {definition.name: new(definition.name) for definition in words.known}
        self.namer = Namer(self.fields, called, frozenset(used))
        self.known = words
        self.formulas = Formulas(self.namer, words)

    # The text, from the top

    def lines(self) -> Iterator[str]:
        title = f" MODULE {module_name(self.protocol)} "
        yield title.center(80, "-")
        yield from comment(f"{self.protocol.name}. Written by reef-ref export from the protocol: change that.")
        yield "EXTENDS Naturals, FiniteSets"
        yield from self._constants()
        yield from self._variables()
        yield from self._definitions()
        yield from self._init()
        if self.faults:
            yield from self._counting()
        for action in self.protocol.actions.values():
            yield from self._action(action)
        yield from self._next()
        yield from self._claims()
        yield "=" * 80

    def _constants(self) -> Iterator[str]:
        sorts = self.protocol.sorts
        yield ""
        yield "CONSTANTS"
        names = ["None"]
        for sort in sorts:
            if isinstance(sort, IndexSort):
                names.append(sort.name)
            elif isinstance(sort, NaturalSort):
                names.append(f"Max{sort.name}")
        if self.faults:
            names.append("MaxFaults")
        yield from (f"  {name}{',' if name != names[-1] else ''}" for name in names)
        yield ""
        for sort in sorts:
            if isinstance(sort, EnumSort):
                members = ", ".join(f'"{member}"' for member in sort.members)
                yield from wrapped(f"{sort.name} == {{{members}}}", "", "  ")
            elif isinstance(sort, NaturalSort):
                yield f"{sort.name} == 0 .. Max{sort.name}"

    def _variables(self) -> Iterator[str]:
        fields = list(self.protocol.fields.values())
        names = [self.fields[field.name] for field in fields]
        docs = [f"{'ghost: ' if field.ghost else ''}{field.doc}" for field in fields]
        types = [self._type(field) for field in fields]
        if self.faults:
            names.append(self.counter)
            docs.append("how many faults have happened, where they are counted")
            types.append("Nat")
        yield ""
        yield "VARIABLES"
        for name, doc in zip(names, docs, strict=True):
            lines = list(comment(doc, "    "))
            yield f"  {name}{',' if name != names[-1] else ''}"
            yield from lines
        yield ""
        yield from wrapped(f"vars == <<{', '.join(names)}>>", "", "  ")
        yield ""
        yield "TypeOK =="
        yield from (f"  /\\ {name} \\in {kind}" for name, kind in zip(names, types, strict=True))
        bounded = [field for field in fields if _natural(field)]
        yield ""
        yield from comment("What a scope cuts off: steps that lead out of it are not taken.")
        yield "InScope =="
        yield from (f"  /\\ {self.fields[field.name]} \\in {self._type(field)}" for field in bounded)
        if not bounded:
            yield "  TRUE"

    def _type(self, field: Field) -> str:
        kind = set_of(field.sort).removeprefix("(").removesuffix(")")
        if not field.keys:
            return kind
        keys = " \\X ".join(set_of(key) for key in field.keys)
        return f"[{keys} -> {kind}]"

    def _definitions(self) -> Iterator[str]:
        for definition in reversed(self._used_definitions()):
            formulas = Formulas(self.namer, self.known.smaller(definition))
            params = ", ".join(self.namer.bound(param) for param in definition.params)
            name = self.namer.words[definition.name]
            yield ""
            yield from comment(definition.doc)
            yield from self._defined(f"{name}({params})" if params else name, definition.node, formulas)

    def _used_definitions(self) -> list[Definition]:
        """Those that some action, claim or used definition says, the larger ones first."""
        used: set[str] = set()
        for parts in self._spoken():
            used |= _names(self.known, parts)
        result = []
        for definition in self.known.known:
            if definition.name in used:
                result.append(definition)
                used |= _names(self.known.smaller(definition), definition.parts)
        return result

    def _spoken(self) -> Iterator[tuple[Node, ...]]:
        for action in (self.initial, *self.protocol.actions.values()):
            yield action.guard
            for write in action.writes:
                yield from ((part,) for part in (*write.keys, write.value))
        claims: tuple[Property | Goal, ...] = (
            *self.protocol.properties.values(),
            *self.protocol.goals.values(),
            *self.protocol.rest.values(),
        )
        yield from (conjuncts(claim.node) for claim in claims)
        ways: tuple[Recovery | Eventuality, ...] = (
            *self.protocol.recoveries.values(),
            *self.protocol.eventualities.values(),
        )
        for way in ways:
            yield conjuncts(way.source)
            yield conjuncts(way.target)
        for assumption in self.protocol.assumptions.values():
            yield conjuncts(assumption.where)

    def _defined(self, head: str, node: Node, formulas: Formulas | None = None) -> Iterator[str]:
        """A definition: a conjunction as a list of bullets, anything else as it is."""
        texts = (formulas or self.formulas).conjuncts(conjuncts(node))
        if len(texts) > 1:
            yield f"{head} =="
            for text in texts:
                yield from wrapped(text, "  /\\ ", "       ")
        else:
            text = texts[0] if texts else "TRUE"
            if len(head) + len(text) < 90:
                yield f"{head} == {text}"
            else:
                yield f"{head} =="
                yield from wrapped(text, "  ", "    ")

    # Steps

    def _init(self) -> Iterator[str]:
        action = self.initial
        yield ""
        yield from comment(action.doc)
        yield "Init =="
        indent = "  "
        if action.params:
            yield from wrapped(f"\\E {self._elements(action.params)} :", "  ", "     ")
            indent = "    "
        for text in self.formulas.conjuncts(action.guard):
            yield from wrapped(text, f"{indent}/\\ ", f"{indent}     ")
        for name, writes in _by_field(action.writes).items():
            field = self.protocol.fields[name]
            value = self.formulas.updated(field, writes, action.params, self._zero(field))
            yield from wrapped(f"{self.fields[name]} = {value}", f"{indent}/\\ ", f"{indent}     ")
        if self.faults:
            yield f"{indent}/\\ {self.counter} = 0"

    def _zero(self, field: Field) -> str:
        """What a cell holds that the initial step does not write: the first value of its sort."""
        values = {BoolSort: "FALSE", MaybeSort: "None"}
        first = values.get(type(field.sort), "0")
        if isinstance(field.sort, EnumSort):
            first = f'"{field.sort.members[0]}"'
        elements = ", ".join(f"k{n} \\in {set_of(key)}" for n, key in enumerate(field.keys))
        return f"[{elements} |-> {first}]" if field.keys else first

    def _counting(self) -> Iterator[str]:
        yield ""
        yield from comment("A fault is counted, unless any number may happen.")
        yield "a_fault_happens =="
        yield f"  /\\ MaxFaults = None \\/ {self.counter} < MaxFaults"
        yield f"  /\\ {self.counter}' = IF MaxFaults = None THEN {self.counter} ELSE {self.counter} + 1"

    def _action(self, action: Action) -> Iterator[str]:
        params = ", ".join(self.namer.bound(param) for param in action.params)
        name = self.actions[action.name]
        yield ""
        yield from comment(f"{'Fault. ' if action.kind == 'fault' else ''}{action.doc}")
        yield f"{name}({params}) ==" if params else f"{name} =="
        texts = self.formulas.conjuncts(action.guard)
        changed = _by_field(action.writes)
        for name, writes in changed.items():
            field = self.protocol.fields[name]
            texts += self._bounds(writes, len(action.writes))
            value = self.formulas.updated(field, writes, action.params, self.fields[name])
            texts.append(f"{self.fields[name]}' = {value}")
        same = [self.fields[name] for name in self.protocol.fields if name not in changed]
        if self.faults:
            if action.kind == "fault":
                texts.append("a_fault_happens")
            else:
                same.append(self.counter)
        if same:
            texts.append(f"UNCHANGED <<{', '.join(same)}>>")
        for text in texts:
            yield from wrapped(text, "  /\\ ", "       ")

    def _bounds(self, writes: list[Write], among: int) -> Iterator[str]:
        """Bounds of what another write of the same step may cover, so that `InScope` would not see it."""
        if len(writes) > 1 and among > 1:
            for write in writes:
                if may_pass(write.value):
                    inside = f"{self.formulas.tight(write.value)} \\in {set_of(write.field.sort)}"
                    if absent := self.formulas.absent(write.keys):
                        inside = f"{absent} \\/ {inside}"
                    yield f"\\A {self._elements(write.binders)} : {inside}" if write.binders else inside

    def _elements(self, variables: Iterable[Var]) -> str:
        return ", ".join(f"{self.namer.bound(var)} \\in {set_of(var.sort)}" for var in variables)

    def _next(self) -> Iterator[str]:
        kinds = {"Ordinary": ("action", "What is done, and not only suffered."), "Fault": ("fault", "What goes wrong.")}
        names = []
        for name, (kind, doc) in kinds.items():
            chosen = [action for action in self.protocol.actions.values() if action.kind == kind]
            if chosen:
                names.append(name)
                yield ""
                yield from comment(doc)
                yield f"{name} =="
                for action in chosen:
                    yield f"  \\/ {self._call(action)}"
        yield ""
        yield "Next =="
        yield "  /\\ " + " \\/ ".join(names)
        yield "  /\\ InScope'"
        yield ""
        yield "Spec == Init /\\ [][Next]_vars"
        if self.protocol.assumptions:
            yield from self._fairness()

    def _fairness(self) -> Iterator[str]:
        faults = any(action.kind == "fault" for action in self.protocol.actions.values())
        for assumption in self.protocol.assumptions.values():
            yield ""
            yield from comment(assumption.doc)
            name, indent = self.assumptions[assumption.name], "  "
            yield f"{name} =="
            if assumption.params:
                yield f"  \\A {self._elements(assumption.params)} :"
                indent = "    "
            for called in assumption.actions:
                action = self.protocol.actions[called]
                rest = [param for param in action.params if param not in assumption.params]
                args = ", ".join(self.namer.bound(param) for param in action.params)
                call = f"{self.actions[called]}({args})" if args else self.actions[called]
                always = assumption.where == Const(BOOL, 1)
                where = [] if always else self.formulas.conjuncts(conjuncts(assumption.where))
                parts = [*where, call, "InScope'"]
                step = " /\\ ".join(part if stands_alone(part) else f"({part})" for part in parts)
                step = f"\\E {self._elements(rest)} : {step}" if rest else step
                kind = "WF" if assumption.strength == "weak" else "SF"
                yield from wrapped(f"{kind}_vars({step})", f"{indent}/\\ ", f"{indent}     ")
        yield ""
        yield from comment(
            "A run that is fair: it has finitely many faults, and nobody fails for ever to do their part."
        )
        yield "FairSpec =="
        yield "  /\\ Spec"
        if faults:
            yield "  /\\ <>[][Ordinary]_vars"
        yield from (f"  /\\ {name}" for name in self.assumptions.values())

    def _call(self, action: Action) -> str:
        name = self.actions[action.name]
        if not action.params:
            return name
        args = ", ".join(self.namer.bound(param) for param in action.params)
        return f"\\E {self._elements(action.params)} : {name}({args})"

    # Claims

    def _claims(self) -> Iterator[str]:
        for claim in self.protocol.properties.values():
            yield ""
            yield from comment(claim.doc)
            name = self.properties[claim.name]
            if claim.stepwise:
                yield f"{name} =="
                yield from wrapped(f"[][{self.formulas.text(claim.node)}]_vars", "  ", "    ")
            else:
                yield from self._defined(name, claim.node)
        for rest in self.protocol.rest.values():
            yield ""
            yield from comment(f"Here nothing need be possible: {rest.doc}")
            yield from self._defined(self.rest[rest.name], rest.node)
        yield ""
        yield from comment("Where nothing but a fault can happen, the protocol may rest.")
        yield f"{self.properties[DEAD_END]} == " + " \\/ ".join([*self.rest.values(), "ENABLED Ordinary"])
        for goal in self.protocol.goals.values():
            yield ""
            yield from comment(f"Reachable, so that TLC refutes its opposite as an invariant: {goal.doc}")
            yield from self._defined(self.goals[goal.name], goal.node)
        for eventuality in self.protocol.eventualities.values():
            yield ""
            yield from comment(f"On fair runs: {eventuality.doc}")
            yield f"{self.eventualities[eventuality.name]} =="
            source, target = (self.formulas.tight(part) for part in (eventuality.source, eventuality.target))
            whatever = f"\\A {self._elements(eventuality.params)} : " if eventuality.params else ""
            yield from wrapped(f"{whatever}{source} ~> {target}", "  ", "    ")
        for recovery in self.protocol.recoveries.values():
            source, target = self.recoveries[recovery.name]
            without = f", and without {', '.join(sorted(recovery.avoiding))}" if recovery.avoiding else ""
            yield ""
            yield from comment(
                f"From every reachable state of {source}, some run without faults{without} leads to {target}: "
                f"{recovery.doc}"
            )
            yield from self._defined(source, recovery.source)
            yield from self._defined(target, recovery.target)

    # Configurations

    def configured(self, scope: Scope, fair: bool) -> Iterator[str]:
        yield f"\\* {self.protocol.name} in scope {scope.name}{', on fair runs' if fair else ''}."
        yield from wrapped(scope.reason, "\\* ", "\\* ")
        yield "\\* Run TLC with -deadlock: no_dead_end knows where the protocol may rest."
        yield "SPECIFICATION FairSpec" if fair else "SPECIFICATION Spec"
        yield "CONSTANTS"
        yield "  None = None"
        for sort in self.protocol.sorts:
            size = scope.cardinality(sort)
            if isinstance(sort, IndexSort):
                # Only where the protocol names an element is it told from the others, by its number.
                named = sort.name in self.protocol.asymmetric
                elements = (str(n) if named else f"{sort.name.lower()}{n}" for n in range(size))
                yield f"  {sort.name} = {{{', '.join(elements)}}}"
            elif isinstance(sort, NaturalSort):
                yield f"  Max{sort.name} = {size - 1}"
        if self.faults:
            yield f"  MaxFaults = {'None' if scope.faults is None else scope.faults}"
        if fair:
            yield "PROPERTIES"
            yield from (f"  {name}" for name in self.eventualities.values())
            return
        yield "INVARIANTS"
        yield "  TypeOK"
        for claim in self.protocol.properties.values():
            if not claim.stepwise:
                yield f"  {self.properties[claim.name]}"
        yield f"  {self.properties[DEAD_END]}"
        stepwise = [claim.name for claim in self.protocol.properties.values() if claim.stepwise]
        if stepwise:
            yield "PROPERTIES"
            yield from (f"  {self.properties[name]}" for name in stepwise)


def _natural(field: Field) -> bool:
    sort = field.sort.of if isinstance(field.sort, MaybeSort) else field.sort
    return isinstance(sort, NaturalSort)


def _by_field(writes: Iterable[Write]) -> Mapping[str, list[Write]]:
    found: dict[str, list[Write]] = {}
    for write in writes:
        found.setdefault(write.field.name, []).append(write)
    return found


def _names(words: Words, parts: tuple[Node, ...]) -> set[str]:
    """The definitions that are said where these conditions are written."""
    found: set[str] = set()
    for part in words.uses(parts):
        if isinstance(part, Use):
            found |= {part.definition.name}.union(*(_names(words, (arg,)) for arg in part.args))
        elif use := words.use(part):
            found |= {use.definition.name}.union(*(_names(words, (arg,)) for arg in use.args))
        elif isinstance(part, And):
            found |= _names(words, part.args)
        else:
            found = found.union(*(_names(words, (child,)) for child in children(part)))
    return found


__all__ = ["cfg", "files", "module_name", "tla"]
