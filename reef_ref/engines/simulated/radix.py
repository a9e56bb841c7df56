"""A radix tree of cached prefixes, one per adapter, in whole pages.

Nothing in a key says which weights made the KV: that is why a publication must empty the tree. An edge holds a run of
KV; two prefixes that part in the middle of an edge split it at a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reef_ref.engines.simulated.model import Kv

__all__ = ["RadixTree"]

Page = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """The KV on the edge that leads here, a whole number of pages, and what may follow, by its first page."""

    edge: list[Kv] = field(default_factory=list)
    children: dict[Page, Node] = field(default_factory=dict)
    used: int = 0
    """When the edge was last walked, as a number of walks."""


class RadixTree:
    """Prefixes by adapter; `capacity` bounds the KV entries that it keeps, the least recently used leaves go first."""

    def __init__(self, page_size: int, capacity: int) -> None:
        self._page_size = page_size
        self._capacity = capacity
        self._roots: dict[str | None, Node] = {}
        self._walks = 0

    def match(self, adapter: str | None, tokens: Sequence[int]) -> list[Kv]:
        """The KV of the longest cached prefix of `tokens`, in whole pages."""
        found: list[Kv] = []
        for node, shared in self._walk(adapter, tokens):
            found += node.edge[:shared]
        return found

    def insert(self, adapter: str | None, entries: Sequence[Kv]) -> None:
        """Keep the KV of a prefix; where the tree has a token's KV already, it keeps its own."""
        size = self._page_size
        entries = entries[: len(entries) // size * size]
        tokens = [entry.token for entry in entries]
        node, depth = self._roots.setdefault(adapter, Node()), 0
        for child, shared in self._walk(adapter, tokens):
            if shared < len(child.edge):
                self._split(child, shared)
            node, depth = child, depth + shared
        if depth < len(entries):
            rest = list(entries[depth:])
            node.children[_page(rest, 0, size)] = Node(rest, used=self._walks)
        self._evict()

    def clear(self) -> None:
        """Forget everything."""
        self._roots.clear()

    def entries(self) -> Iterator[Kv]:
        """All KV in the tree."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            yield from node.edge
            stack += node.children.values()

    def __len__(self) -> int:
        return sum(1 for _ in self.entries())

    def _walk(self, adapter: str | None, tokens: Sequence[int]) -> list[tuple[Node, int]]:
        """The nodes on the way of `tokens`, each with how much of its edge agrees: all of it, but for the last."""
        size, depth, way = self._page_size, 0, []
        self._walks += 1
        node = self._roots.get(adapter)
        while node is not None:
            child = node.children.get(tuple(tokens[depth : depth + size]))
            if child is None:
                break
            shared = size
            while shared < len(child.edge) and _page(child.edge, shared, size) == tuple(
                tokens[depth + shared : depth + shared + size]
            ):
                shared += size
            child.used = self._walks
            way.append((child, shared))
            if shared < len(child.edge):
                break
            node, depth = child, depth + shared
        return way

    def _split(self, node: Node, at: int) -> None:
        below = Node(node.edge[at:], node.children, node.used)
        node.edge = node.edge[:at]
        node.children = {_page(below.edge, 0, self._page_size): below}

    def _evict(self) -> None:
        excess = len(self) - self._capacity
        while excess > 0:
            parent, page, leaf = min(self._leaves(), key=lambda found: (found[2].used, found[1]))
            del parent.children[page]
            excess -= len(leaf.edge)

    def _leaves(self) -> Iterator[tuple[Node, Page, Node]]:
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            for page, child in node.children.items():
                if child.children:
                    stack.append(child)
                else:
                    yield node, page, child


def _page(entries: Sequence[Kv], start: int, size: int) -> Page:
    return tuple(entry.token for entry in entries[start : start + size])
