"""Which weights wrote each KV slot: one integer per slot, exact whatever tree keeps the slots.

Every change of the weights' bytes opens a new *epoch*. A slot bears the oldest epoch of anything its content was
computed from: a token that attends to older KV carries that age on. So a prefix is fresh exactly when all its slots
bear the current epoch, even where a request that ran across an in-place publication left KV of both loads behind.

A slot nobody has stamped since the last flush is *unwritten*; reusing one counts as stale, never as fresh.

Nothing here knows SGLang: slots and rows are integers, as its `token_to_kv_pool_allocator` and `req_to_token_pool`
number them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

UNWRITTEN = -1
"""Epoch of a slot that nobody has stamped since the last flush."""

SHOWN = 8
"""How many slots of a finding are named one by one."""


@dataclass(frozen=True)
class Finding:
    """Slots of one reused prefix that must not be reused."""

    count: int
    """How many of them."""
    first: tuple[tuple[int, int], ...]
    """The first few as (position in the prefix, slot)."""
    epochs: tuple[int, ...]
    """Epochs that wrote them, ascending."""
    foreign_adapter: int = 0
    """How many were computed with another adapter than the request's."""


class SlotProvenance:
    """Stamps of all KV slots of one engine rank.

    Args:
        slots: number of slots, the padding slot included.
        rows: number of request rows, the padding row included.
        device: where slot indices live.
        adapters: keep the adapter of each slot as well.
    """

    def __init__(self, *, slots: int, rows: int, device: torch.device | str, adapters: bool = False) -> None:
        import torch

        self.epoch = 0
        """The current epoch."""
        self.mixed = False
        """Whether KV of an older epoch may still be held by a request or a cache."""
        self._written = False
        self._epochs = torch.full((slots,), UNWRITTEN, dtype=torch.int32, device=device)
        self._oldest_of_row = torch.zeros(rows, dtype=torch.int32, device=device)
        self._adapters = torch.zeros(slots, dtype=torch.int32, device=device) if adapters else None
        self._adapter_of_row = torch.zeros(rows, dtype=torch.int32, device=device) if adapters else None

    @property
    def keeps_adapters(self) -> bool:
        """Whether the adapter of each slot is kept."""
        return self._adapters is not None

    def open_epoch(self) -> int:
        """The weights' bytes changed: what is written from now on is of a new epoch, whose number is returned."""
        if self._written and not self.mixed:
            # Until here every slot bore the one epoch, so no row needed an age of its own.
            self._oldest_of_row.fill_(self.epoch)
            self.mixed = True
        self.epoch += 1
        return self.epoch

    def forget(self) -> None:
        """All slots were given up (a flush, or their memory was released)."""
        self._epochs.fill_(UNWRITTEN)
        self._written = False
        self.mixed = False

    def check(self, slots: torch.Tensor, *, adapter: int = 0) -> Finding | None:
        """What is wrong with reusing `slots` (1-D) as a prefix now, or `None` where every one is fresh."""
        import torch

        epochs = self._epochs[slots]
        wrong = epochs != self.epoch
        foreign = 0
        if self._adapters is not None:
            other = self._adapters[slots] != adapter
            wrong = wrong | other
        if not bool(wrong.any()):
            return None
        if not self.mixed:
            # Something old is reachable although every path to it is thought to be closed. Trust the stamps.
            self._oldest_of_row.fill_(self.epoch)
            self.mixed = True
        if self._adapters is not None:
            foreign = int(other.sum())
        positions = torch.nonzero(wrong).flatten()
        named = [(int(position), int(slots[position])) for position in positions[:SHOWN]]
        found = tuple(int(epoch) for epoch in torch.unique(epochs[wrong]))
        return Finding(count=int(positions.numel()), first=tuple(named), epochs=found, foreign_adapter=foreign)

    def stamp_prefill(
        self,
        *,
        rows: Sequence[int],
        prefixes: Sequence[torch.Tensor | None],
        lengths: Sequence[int],
        slots: torch.Tensor,
        adapters: Sequence[int] = (),
    ) -> None:
        """A prefill batch is about to write `slots`.

        Args:
            rows: row of each request; needed while `mixed` or where adapters are kept. prefixes: slots each request
            attends to besides its new ones, own or reused, or `None`; needed while `mixed`. lengths: how many of
            `slots` belong to each request, in order. slots: 1-D, the new slots of all requests. adapters: number of
            each request's adapter; used only when adapters are kept.
        """
        import torch

        self._written = True
        slots = slots.long()
        if not self.mixed:
            self._epochs.index_fill_(0, slots, self.epoch)
        else:
            now = torch.tensor(self.epoch, dtype=torch.int32, device=self._epochs.device)
            oldest = torch.stack(
                [
                    now if prefix is None or prefix.numel() == 0 else torch.minimum(now, self._epochs[prefix].min())
                    for prefix in prefixes
                ]
            )
            row = torch.tensor(rows, dtype=torch.int64, device=self._epochs.device)
            self._oldest_of_row[row] = oldest
            repeats = torch.tensor(lengths, dtype=torch.int64, device=self._epochs.device)
            self._epochs[slots] = torch.repeat_interleave(oldest, repeats, output_size=slots.numel())
        if self._adapters is not None and self._adapter_of_row is not None:
            device = self._epochs.device
            row = torch.tensor(rows, dtype=torch.int64, device=device)
            number = torch.tensor(adapters, dtype=torch.int32, device=device)
            repeats = torch.tensor(lengths, dtype=torch.int64, device=device)
            self._adapter_of_row[row] = number
            self._adapters[slots] = torch.repeat_interleave(number, repeats, output_size=slots.numel())

    def stamp_decode(self, *, rows: torch.Tensor, slots: torch.Tensor) -> None:
        """A decode step is about to write one slot for each row; both 1-D and equally long."""
        self._written = True
        slots = slots.long()
        if self.mixed:
            self._epochs[slots] = self._oldest_of_row[rows]
        else:
            self._epochs.index_fill_(0, slots, self.epoch)
        if self._adapters is not None and self._adapter_of_row is not None:
            self._adapters[slots] = self._adapter_of_row[rows]

    def mark_unwritten(self, slots: torch.Tensor) -> None:
        """These slots are written in a way that is not followed; reusing them counts as stale."""
        self._epochs.index_fill_(0, slots.long(), UNWRITTEN)

    def adopt(self, row: int, slots: torch.Tensor) -> None:
        """The request of `row` reads `slots` from now on instead of its own copies."""
        if self.mixed and slots.numel():
            import torch

            self._oldest_of_row[row] = torch.minimum(self._oldest_of_row[row], self._epochs[slots].min())

    def epochs_of(self, slots: torch.Tensor) -> list[int]:
        """Epoch of each of `slots`."""
        return [int(epoch) for epoch in self._epochs[slots]]
