"""Events come out in the order that they prove, whatever way they come in; what is missing is known exactly."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from reef_ref.monitor.order import Lost, Numbered, Sequencer

MANY = settings(max_examples=300, deadline=None, derandomize=True)
Item = Numbered[str]


def item(source: str, number: int) -> Item:
    return Numbered(source, number, f"{source}{number}")


def everything(sequencer: Sequencer[str], items: list[Item]) -> list[Item | Lost]:
    found = [out for one in items for out in sequencer.put(one)]
    return [*found, *sequencer.give_up()]


def in_order(sizes: dict[str, int]) -> list[Item]:
    return [item(source, number) for source, size in sizes.items() for number in range(1, size + 1)]


SIZES = st.dictionaries(st.sampled_from("abc"), st.integers(1, 8), min_size=1)


@MANY
@given(SIZES, st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_each_source_in_its_own(sizes: dict[str, int], chance: object) -> None:
    """Nothing is lost or repeated while there is room to wait."""
    items = in_order(sizes)
    chance.shuffle(items)  # type: ignore[attr-defined]
    sequencer: Sequencer[str] = Sequencer(window=100)
    # A source begins with 1: what comes before it waits.
    found = everything(sequencer, items)
    assert not any(isinstance(one, Lost) for one in found)
    for source, size in sizes.items():
        assert [one.number for one in found if one.source == source] == list(range(1, size + 1))  # type: ignore[union-attr]
    assert sequencer.lost == sequencer.repeated == 0


@MANY
@given(SIZES, st.data())
def test_what_is_missing_is_said_and_nothing_else(sizes: dict[str, int], data: st.DataObject) -> None:
    """Each number comes out as itself, or as lost; what came last may be missing without anybody knowing."""
    items = in_order(sizes)
    kept = data.draw(st.lists(st.sampled_from(items), unique=True)) if items else []
    kept.sort(key=items.index)
    sequencer: Sequencer[str] = Sequencer(window=data.draw(st.integers(0, 5)))
    found = everything(sequencer, kept)
    for source in sizes:
        numbers: list[int] = []
        for one in found:
            if one.source == source:
                numbers += range(one.first, one.last + 1) if isinstance(one, Lost) else [one.number]
        last = max((one.number for one in kept if one.source == source), default=0)
        assert numbers == list(range(1, last + 1))
    assert sequencer.lost == sum(max((k.number for k in kept if k.source == s), default=0) for s in sizes) - len(kept)


@MANY
@given(SIZES, st.data())
def test_what_comes_again_changes_nothing(sizes: dict[str, int], data: st.DataObject) -> None:
    """But for number 1, which begins a new life of its source."""
    items = in_order(sizes)
    copies = data.draw(st.lists(st.sampled_from(items)))
    stream = list(items)
    for copy in copies:
        if copy.number > 1:
            stream.insert(data.draw(st.integers(items.index(copy) + 1, len(stream))), copy)
    sequencer: Sequencer[str] = Sequencer()
    assert everything(sequencer, stream) == items
    assert sequencer.repeated == len(stream) - len(items)


def test_nothing_is_read_before_what_it_may_rest_on() -> None:
    """While something of one source is missing, the others wait as well."""
    sequencer: Sequencer[str] = Sequencer()
    assert [*sequencer.put(item("a", 1))] == [item("a", 1)]
    assert [*sequencer.put(item("a", 3))] == []
    assert [*sequencer.put(item("b", 1))] == []
    assert [*sequencer.put(item("a", 2))] == [item("a", 2), item("a", 3), item("b", 1)]
    assert (sequencer.late, sequencer.lost) == (1, 0)


def test_the_window_bounds_what_waits() -> None:
    """A missing event is taken for lost when too much waits for it."""
    sequencer: Sequencer[str] = Sequencer(window=2)
    found = [out for number in (2, 3, 4) for out in sequencer.put(item("a", number))]
    assert found == [Lost("a", 1, 1), item("a", 2), item("a", 3), item("a", 4)]
    assert sequencer.waiting == 0


def test_a_new_life_counts_from_one_again() -> None:
    """What the old one told and nobody saw is lost first."""
    sequencer: Sequencer[str] = Sequencer()
    assert [*sequencer.put(item("a", 1)), *sequencer.put(item("a", 3))] == [item("a", 1)]
    assert [*sequencer.put(item("a", 1))] == [Lost("a", 2, 2), item("a", 3), item("a", 1)]
    assert [*sequencer.put(item("a", 2))] == [item("a", 2)]


def test_a_source_that_says_how_far_it_is_leaves_no_doubt() -> None:
    """Nothing need come after what is missing."""
    sequencer: Sequencer[str] = Sequencer()
    assert [*sequencer.put(item("a", 1)), *sequencer.reached("a", 1)] == [item("a", 1)]
    assert [*sequencer.reached("a", 4)] == [Lost("a", 2, 4)]
    assert [*sequencer.put(item("a", 5))] == [item("a", 5)]
    assert [*sequencer.put(item("a", 7)), *sequencer.reached("a", 7)] == [Lost("a", 6, 6), item("a", 7)]
