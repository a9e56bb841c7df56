"""Wrong protocols, told by how each differs from the right one, and the usual ways to edit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spec.lang.nodes import Node, Read, walk
from spec.lang.protocol import Protocol, Step, when
from spec.lang.terms import Bool

Edit = Callable[[Protocol], None]


@dataclass(frozen=True)
class Mutant:
    """One wrong protocol. `build` makes it anew on every call; `report` says where it was seen or foretold."""

    name: str
    breaks: str
    report: tuple[str, ...]
    doc: str
    build: Callable[[], Protocol]


class Mutants(Mapping[str, Mutant]):
    """The mutants of a protocol by name, in the order in which they are registered."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._found: dict[str, Mutant] = {}

    def __getitem__(self, name: str) -> Mutant:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def register(self, breaks: str, *report: str) -> Callable[[Edit], Edit]:
        """Register what makes a wrong protocol of the right one. Its name is the function's, its meaning the docstring.

        Args:
            breaks: the property or recovery that must notice.
            report: where the mistake was seen or foretold.
        """

        def register(edit: Edit) -> Edit:
            name = edit.__name__.replace("_", "-")
            doc = " ".join((edit.__doc__ or "").split())

            def build() -> Protocol:
                wrong = self._protocol.variant(f"{self._protocol.name}:{name}", doc)
                edit(wrong)
                return wrong

            self._found[name] = Mutant(name, breaks, report, doc, build)
            return edit

        return register


def not_writing(p: Protocol, action: str, *fields: str) -> None:
    """The action leaves these fields as they are."""
    old = p.actions[action]
    p.change_action(action, writes=tuple(w for w in old.writes if w.field.name not in fields))


def not_asking(p: Protocol, action: str, *fields: str) -> None:
    """The action is possible whatever these fields say."""
    old = p.actions[action]
    p.change_action(action, guard=tuple(part for part in old.guard if not _reads(part) & set(fields)))


def _reads(node: Node) -> set[str]:
    return {part.field.name for part in walk(node) if isinstance(part, Read)}


def also_writing(p: Protocol, action: str, updates: Callable[[Any], dict[str, object]]) -> None:
    """An action without parameters makes these updates too, in place of its own to the same fields."""
    old = p.actions[action]

    def fn(s: Any) -> Step:
        return when().then(**updates(s))

    fn.__name__ = action
    p.replace_action(fn)
    new = p.actions[action]
    kept = tuple(w for w in old.writes if w.field.name not in new.written)
    p.change_action(action, guard=old.guard, writes=(*kept, *new.writes))


def amend(p: Protocol, fn: Callable[..., Step]) -> None:
    """The action of the same name also asks what this one asks, and makes its updates in place of its own."""
    old = p.actions[fn.__name__]
    p.replace_action(fn)
    new = p.actions[old.name]
    kept = tuple(w for w in old.writes if w.field.name not in new.written)
    p.change_action(old.name, guard=(*old.guard, *new.guard), writes=(*kept, *new.writes))


def only_where(p: Protocol, action: str, condition: Callable[[Any], Bool]) -> None:
    """The action needs one more condition on the state."""

    def fn(s: Any) -> Step:
        return when(condition(s)).then()

    fn.__name__ = action
    aside = p.variant(p.name, p.doc)
    aside.assumptions = {}
    aside.replace_action(fn)
    p.change_action(action, guard=(*p.actions[action].guard, *aside.actions[action].guard))


__all__ = ["Edit", "Mutant", "Mutants", "also_writing", "amend", "not_asking", "not_writing", "only_where"]
