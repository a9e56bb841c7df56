"""Expressions as people read them."""

from __future__ import annotations

from spec.lang.nodes import (
    And,
    BoolSort,
    Const,
    Count,
    EnumSort,
    Eq,
    Exists,
    Forall,
    Ite,
    Less,
    MaybeSort,
    Node,
    Not,
    Or,
    OrElse,
    Plus,
    Read,
    Some,
    Var,
    Write,
)


def show(node: Node) -> str:
    """An expression in the words of the specification: ``weights[e] == target & ~paused[e]``."""
    match node:
        case Const(sort=BoolSort(), value=value):
            return "true" if value else "false"
        case Const(sort=EnumSort(members=members), value=value):
            return members[value]
        case Const(sort=MaybeSort(), value=0):
            return "none"
        case Const(value=value):
            return str(value)
        case Var(name=name):
            return name
        case Read(field=field, keys=keys, default=default, after=after):
            where = f"[{', '.join(show(k) for k in keys)}]" if keys else ""
            otherwise = f" or {show(default)}" if default is not None else ""
            return f"{field.name}{where}{otherwise}{' after' if after else ''}"
        case Not(arg=Less(left=left, right=right)):
            return f"{show(right)} <= {show(left)}"
        case Not(arg=Eq(left=left, right=right)):
            return f"{show(left)} != {show(right)}"
        case Not(arg=arg):
            return f"~{_tight(arg)}"
        case And(args=args):
            return " & ".join(_tight(a) for a in args) if args else "true"
        case Or(args=(Not(arg=left), right)):
            return f"{_tight(left)} => {_tight(right)}"
        case Or(args=args):
            return " | ".join(_tight(a) for a in args) if args else "false"
        case Eq(left=left, right=right):
            return f"{_tight(left)} == {_tight(right)}"
        case Less(left=left, right=right):
            return f"{_tight(left)} < {_tight(right)}"
        case Plus(arg=arg, amount=amount):
            return f"{_tight(arg)} + {amount}"
        case Ite(cond=cond, then=then, other=other):
            return f"if {_tight(cond)} then {_tight(then)} else {_tight(other)}"
        case Forall(var=var, body=body):
            return f"every {_variable(var)}: {_tight(body)}"
        case Exists(var=var, body=body):
            return f"some {_variable(var)}: {_tight(body)}"
        case Count(var=var, body=body):
            return f"how many {_variable(var)}: {_tight(body)}"
        case Some(arg=arg):
            return show(arg)
        case OrElse(arg=arg, default=default):
            return f"{_tight(arg)} or else {_tight(default)}"


def show_write(write: Write) -> str:
    """One update: ``paused[e] := true``."""
    where = f"[{', '.join(show(k) for k in write.keys)}]" if write.keys else ""
    return f"{write.field.name}{where} := {show(write.value)}"


def _variable(var: Var) -> str:
    return f"{var.sort.name} {var.name}"


def _tight(node: Node) -> str:
    text = show(node)
    loose = isinstance(node, And | Or | Ite | Forall | Exists | Count | OrElse)
    return f"({text})" if loose else text
