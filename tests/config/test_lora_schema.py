"""The question about adapter keys: a clean yes, and every way to fail answers no."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import pytest

from reef_ref import lora_schema
from reef_ref.lora_schema import PAGE, Keys, ask_adapter_keys

MakeKey = Callable[[Sequence[int], str | None], Hashable]


class Made(Keys):
    """Keys as a function says, with a note of what was asked."""

    def __init__(self, make: MakeKey) -> None:
        self._make = make
        self.asked: list[tuple[int, str | None]] = []

    def first_page(self, prompt: Sequence[int], adapter: str | None) -> Hashable:
        self.asked.append((len(prompt), adapter))
        return self._make(prompt, adapter)


def right(prompt: Sequence[int], adapter: str | None) -> Hashable:
    return (adapter, tuple(prompt))


def test_right_keys_are_a_yes_and_all_are_asked_for() -> None:
    """Adapters a, a, b and none, for one token and for a page."""
    keys = Made(right)
    assert ask_adapter_keys(keys).scoped
    lengths = [length for length, _ in keys.asked]
    a, again, b, none = (adapter for _, adapter in keys.asked[:4])
    assert a == again != b
    assert none is None
    assert a is not None
    assert b is not None
    assert lengths == [1] * 4 + [PAGE] * 4


def per_request() -> MakeKey:
    count = iter(range(1000))
    return lambda prompt, adapter: (next(count), adapter, tuple(prompt))


def only_for_one_token(prompt: Sequence[int], adapter: str | None) -> Hashable:
    return right(prompt, adapter if len(prompt) == 1 else None)


def only_for_a_page(prompt: Sequence[int], adapter: str | None) -> Hashable:
    return right(prompt, adapter if len(prompt) > 1 else None)


@pytest.mark.parametrize(
    ("make", "because"),
    [
        (lambda prompt, _: tuple(prompt), "two adapters"),
        (per_request(), "do not share"),
        (only_for_one_token, f"prompt of {PAGE} tokens"),
        (only_for_a_page, "prompt of 1 token)"),
        (lambda prompt, adapter: (adapter or "adapter-b", tuple(prompt)), "base model"),
        (lambda prompt, adapter: (adapter or "adapter-a", tuple(prompt)), "base model"),
        (lambda _prompt, _adapter: None, "two adapters"),
    ],
)
def test_keys_that_confuse_are_a_no(make: MakeKey, because: str) -> None:
    answer = ask_adapter_keys(Made(make))
    assert not answer.scoped
    assert because in answer.because


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Panic(BaseException):
    """As extension modules raise: no Exception."""


class Unequal:
    """A key that is not itself."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'sglang'", name="sglang"),
        ImportError("cannot import name 'Req'"),
        TypeError("__init__() got an unexpected keyword argument 'lora_id'"),
        AttributeError("extra_key"),
        NotImplementedError(),
        AssertionError("no GPU"),
        SystemExit(1),
        Panic("rust"),
        UnspeakableError(),
        MemoryError(),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("at", range(8))
def test_any_failure_at_any_key_is_a_no(error: BaseException, at: int) -> None:
    left = iter(range(8))

    def make(prompt: Sequence[int], adapter: str | None) -> Hashable:
        if next(left) == at:
            raise error
        return right(prompt, adapter)

    answer = ask_adapter_keys(Made(make))
    assert not answer.scoped
    assert "\n" not in answer.because


@pytest.mark.parametrize("key", [[], {}, Unequal()], ids=["list", "dict", "unequal"])
def test_keys_of_another_kind_are_a_no(key: Hashable) -> None:
    assert not ask_adapter_keys(Made(lambda _prompt, _adapter: key)).scoped


def test_an_interrupt_gets_through() -> None:
    def make(_prompt: Sequence[int], _adapter: str | None) -> Hashable:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_adapter_keys(Made(make))


def test_without_sglang_the_answer_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when something else goes by that name."""
    monkeypatch.setitem(__import__("sys").modules, "sglang", None)
    assert not ask_adapter_keys().scoped


def test_the_installed_one_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made(right)
    monkeypatch.setattr(lora_schema, "_sglang_keys", lambda: made)
    lora_schema.installed_adapter_keys.cache_clear()
    try:
        assert lora_schema.adapter_scoped_prefix_cache_supported()
        assert lora_schema.adapter_scoped_prefix_cache_supported()
        assert len(made.asked) == 8
    finally:
        lora_schema.installed_adapter_keys.cache_clear()
