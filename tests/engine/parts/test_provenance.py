"""The stamps against a model that keeps, for every slot, the full set of epochs its content came from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref.sglang.provenance import UNWRITTEN, SlotProvenance

SLOTS, ROWS = 40, 6


def _slots(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def _prefill(stamps: SlotProvenance, row: int, new: list[int], prefix: Sequence[int] = (), adapter: int = 0) -> None:
    stamps.stamp_prefill(
        rows=[row], prefixes=[_slots(*prefix)], lengths=[len(new)], slots=_slots(*new), adapters=[adapter]
    )


def _stamps(**options: bool) -> SlotProvenance:
    return SlotProvenance(slots=SLOTS, rows=ROWS, device="cpu", **options)


def test_what_was_just_written_is_fresh_until_the_weights_change() -> None:
    """And what nobody wrote never is."""
    stamps = _stamps()
    _prefill(stamps, 1, [3, 4, 5])
    assert stamps.check(_slots(3, 4, 5)) is None
    assert stamps.check(_slots(3, 4, 6)) is not None
    stamps.open_epoch()
    finding = stamps.check(_slots(3, 4, 5))
    assert finding is not None
    assert (finding.count, finding.epochs, finding.first) == (3, (0,), ((0, 3), (1, 4), (2, 5)))


def test_a_flush_forgets_everything() -> None:
    """An entry that outlived it is unwritten, so stale."""
    stamps = _stamps()
    _prefill(stamps, 1, [3, 4])
    stamps.open_epoch()
    assert stamps.mixed
    stamps.forget()
    assert not stamps.mixed
    finding = stamps.check(_slots(3))
    assert finding is not None
    assert finding.epochs == (UNWRITTEN,)


def test_new_weights_on_an_empty_engine_mix_nothing() -> None:
    """The ordinary order is flush, then update."""
    stamps = _stamps()
    _prefill(stamps, 1, [3])
    stamps.forget()
    stamps.open_epoch()
    assert not stamps.mixed
    _prefill(stamps, 1, [3])
    assert stamps.check(_slots(3)) is None


def test_tokens_that_attend_to_older_kv_are_as_old() -> None:
    """A request runs on across an in-place publication: what it decodes afterwards must not pass for fresh.

    Another request has the same prompt under the new weights. The tree then holds its fresh prompt followed by the
    first request's decoded tokens, so every slot of the chain was written after the publication; the age that the
    tokens carry is what tells.
    """
    stamps = _stamps()
    _prefill(stamps, 1, [3, 4])
    stamps.open_epoch()
    stamps.stamp_decode(rows=_slots(1), slots=_slots(5))
    _prefill(stamps, 2, [6, 7])
    assert stamps.check(_slots(6, 7)) is None
    finding = stamps.check(_slots(6, 7, 5))
    assert finding is not None
    assert finding.first == ((2, 5),)


def test_kv_exchanged_for_the_trees_counts_from_then_on() -> None:
    """A request that was fresh decodes stale tokens once its prompt was replaced with older KV."""
    stamps = _stamps()
    _prefill(stamps, 1, [3, 4])
    stamps.open_epoch()
    _prefill(stamps, 2, [5, 6])
    stamps.stamp_decode(rows=_slots(2), slots=_slots(7))
    stamps.adopt(2, _slots(3))
    stamps.stamp_decode(rows=_slots(2), slots=_slots(8))
    assert stamps.check(_slots(7)) is None
    assert stamps.check(_slots(8)) is not None


def test_another_adapters_kv_is_foreign() -> None:
    """Same weights, same tokens, other adapter."""
    stamps = _stamps(adapters=True)
    _prefill(stamps, 1, [3, 4], adapter=1)
    stamps.stamp_decode(rows=_slots(1), slots=_slots(5))
    assert stamps.check(_slots(3, 4, 5), adapter=1) is None
    for other in (0, 2):
        finding = stamps.check(_slots(3, 4, 5), adapter=other)
        assert finding is not None
        assert finding.foreign_adapter == 3


def test_slots_written_out_of_sight_are_never_fresh() -> None:
    """Members of a beam, for example."""
    stamps = _stamps()
    _prefill(stamps, 1, [3])
    stamps.mark_unwritten(_slots(3))
    assert stamps.check(_slots(3)) is not None


@dataclass
class _Model:
    """For every slot the set of epochs behind its content; for every row the slots its request attends to."""

    epoch: int = 0
    origins: dict[int, frozenset[int]] = field(default_factory=dict)
    rows: dict[int, list[int]] = field(default_factory=dict)

    def write(self, row: int, slot: int) -> None:
        behind = [self.origins.get(other, frozenset({UNWRITTEN})) for other in self.rows.get(row, [])]
        self.origins[slot] = frozenset({self.epoch}).union(*behind)
        self.rows.setdefault(row, []).append(slot)

    def stale(self, slots: list[int]) -> list[int]:
        return [slot for slot in slots if self.origins.get(slot) != frozenset({self.epoch})]


_STEPS = (
    "prefill",
    "prefill",
    "prefill",
    "chunk",
    "decode",
    "decode",
    "decode",
    "finish",
    "publish",
    "flush",
    "check",
    "check",
    "check",
)


def _play(seed: int, length: int) -> tuple[int, int]:
    """Play one random story on both and compare every answer; returns how many checks were fresh and how many stale.

    As in an engine, a slot that a request holds is not handed out again, and every prefix taken from elsewhere is
    checked.
    """
    draw = random.Random(seed)
    stamps, model = _stamps(), _Model()
    answers = [0, 0]

    def compare(slots: list[int]) -> None:
        finding = stamps.check(_slots(*slots))
        expected = model.stale(slots)
        assert (finding.count if finding else 0) == len(expected), (seed, slots, expected)
        answers[bool(expected)] += 1

    def free(count: int) -> list[int]:
        held = {slot for row in model.rows.values() for slot in row}
        left = [slot for slot in range(1, SLOTS) if slot not in held]
        return draw.sample(left, min(count, len(left)))

    def reusable() -> list[int]:
        """The beginning of some request's slots, as a tree would offer it, or any slots."""
        if model.rows and draw.random() < 0.8:
            chain = model.rows[draw.choice(sorted(model.rows))]
            return chain[: draw.randrange(len(chain) + 1)]
        return draw.sample(range(1, SLOTS), draw.randrange(4))

    for _ in range(length):
        match draw.choice(_STEPS):
            case "prefill" if spare := [row for row in range(1, ROWS) if row not in model.rows]:
                row, prefix = draw.choice(spare), reusable()
                if prefix:
                    compare(prefix)
                model.rows[row] = prefix
                _write(stamps, model, row, free(draw.randrange(1, 4)))
            case "chunk" if model.rows:
                _write(stamps, model, draw.choice(sorted(model.rows)), free(2))
            case "decode" if model.rows:
                slots = free(draw.randrange(1, len(model.rows) + 1))
                rows = draw.sample(sorted(model.rows), len(slots))
                stamps.stamp_decode(rows=_slots(*rows), slots=_slots(*slots))
                for row, slot in zip(rows, slots, strict=True):
                    model.write(row, slot)
            case "finish" if model.rows:
                del model.rows[draw.choice(sorted(model.rows))]
            case "publish":
                model.epoch = stamps.open_epoch()
            case "flush":
                stamps.forget()
                model.origins.clear()
                model.rows.clear()
            case _:
                compare(reusable() or free(1))
    return answers[0], answers[1]


def _write(stamps: SlotProvenance, model: _Model, row: int, new: list[int]) -> None:
    _prefill(stamps, row, new, model.rows[row])
    for slot in new:
        model.write(row, slot)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_random_stories_agree_with_the_full_history(seed: int) -> None:
    """Fresh exactly when everything behind the slot is of the current epoch."""
    _play(seed, 60)


def test_the_stories_are_not_vacuous() -> None:
    """Both answers are common."""
    answers = [_play(seed, 60) for seed in range(100)]
    assert sum(fresh for fresh, _ in answers) > 100
    assert sum(stale for _, stale in answers) > 100


@pytest.mark.parametrize("broken", ["oldest", "unwritten"])
def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """The comparison above kills the two simplifications that suggest themselves."""
    if broken == "oldest":  # stamp with the epoch of now, whatever was attended to

        def stamp_decode(self: SlotProvenance, *, rows: torch.Tensor, slots: torch.Tensor) -> None:
            self._written = True
            self._epochs.index_fill_(0, slots, self.epoch)

        monkeypatch.setattr(SlotProvenance, "stamp_decode", stamp_decode)
    else:  # keep the stamps over a flush
        monkeypatch.setattr(SlotProvenance, "forget", lambda self: None)
    assert any(_differs(seed) for seed in range(100))


def _differs(seed: int) -> bool:
    try:
        _play(seed, 60)
    except AssertionError:
        return True
    return False
