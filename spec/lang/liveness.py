"""What is to happen in the end: what may be assumed of runs, and claims that one condition leads to another.

A *run* begins in a first state and never ends; it may also stay where it is. A step that changes nothing is staying. A
run is *fair* if it has finitely many faults and satisfies every assumption of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from spec.lang.nodes import Node, Var
from spec.lang.terms import Bool

Strength = Literal["weak", "strong"]


class Fair:
    """Actions that a fair run does not pass over for ever."""

    __slots__ = ("actions", "strength", "where")

    def __init__(self, strength: Strength, actions: tuple[str, ...], where: Bool | bool) -> None:
        self.strength = strength
        self.actions = actions
        self.where = where


def weakly_fair(*actions: str, where: Bool | bool = True) -> Fair:
    """What stays possible is done in the end: each action by itself, counted as possible only where a condition holds.

    What the function that answers this takes after the state are parameters of each action, by name: each choice of
    their values is taken by itself, and of the other parameters any will do.
    """
    return Fair("weak", actions, where)


def strongly_fair(*actions: str, where: Bool | bool = True) -> Fair:
    """What is possible again and again is done in the end: each action by itself, as in `weakly_fair`."""
    return Fair("strong", actions, where)


@dataclass(frozen=True)
class Assumption:
    """Fairness of some actions, each by itself, and for every choice of values for `params` by itself.

    A step of the action with such a choice is *possible* in a state where `where` holds, if it changes something. Weak:
    if from some time on one is possible in every state, one is taken there again and again. Strong: if one is possible
    again and again, one is taken there again and again. In TLA+, for every choice: ``WF_vars`` or ``SF_vars`` of
    `where` and the action, its other parameters under an existential quantifier.
    """

    name: str
    doc: str
    strength: Strength
    actions: tuple[str, ...]
    params: tuple[Var, ...]
    where: Node


class LeadsTo:
    """From wherever one condition holds, every fair run comes to another."""

    __slots__ = ("source", "target")

    def __init__(self, source: Bool | bool, target: Bool | bool) -> None:
        self.source = source
        self.target = target


@dataclass(frozen=True)
class Eventuality:
    """From every reachable state of `source`, every fair run comes to a state of `target`, whatever the parameters."""

    name: str
    doc: str
    params: tuple[Var, ...]
    source: Node
    target: Node


__all__ = ["Assumption", "Eventuality", "Fair", "LeadsTo", "Strength", "strongly_fair", "weakly_fair"]
