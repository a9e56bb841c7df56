"""Load ids: one spelling, an order only inside one incarnation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef_ref.load_id import DifferentIncarnations, LoadId, MalformedLoadId, new_incarnation

INCARNATIONS = st.text(st.characters(codec="ascii", exclude_characters=":", categories=("L", "N", "P")), min_size=1)
IDS = st.builds(LoadId, INCARNATIONS, st.integers(0, 10**18 - 1))


@given(IDS)
def test_what_is_written_is_read(load_id: LoadId) -> None:
    assert LoadId.parse(str(load_id)) == load_id


@given(st.text())
def test_any_text_is_read_back_or_refused(text: str) -> None:
    """Never another spelling of the same id, never another error."""
    try:
        load_id = LoadId.parse(text)
    except MalformedLoadId:
        return
    assert str(load_id) == text


MALFORMED = (
    *("", ":", "a:", ":1", "a", "a:-1", "a:+1", "a:01", "a:1 ", " a:1", "a:１", "a:b:1", "a:1e3"),
    "a:" + "9" * 19,
)


@pytest.mark.parametrize("text", MALFORMED)
def test_these_are_refused(text: str) -> None:
    with pytest.raises(MalformedLoadId):
        LoadId.parse(text)


@given(IDS)
def test_the_next_one_follows(load_id: LoadId) -> None:
    if load_id.sequence < 10**18 - 1:
        assert load_id.precedes(load_id.next())
        assert not load_id.next().precedes(load_id)
    assert not load_id.precedes(load_id)


def test_different_lives_have_no_order() -> None:
    a, b = LoadId(new_incarnation(), 1), LoadId(new_incarnation(), 2)
    with pytest.raises(DifferentIncarnations):
        a.precedes(b)
