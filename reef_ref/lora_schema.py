"""Does the installed SGLang keep the KV of different adapters apart? Asked of its own types, never of a signature.

A prefix cache may be shared under LoRA only where an entry made under one adapter can be found by requests of that
adapter alone. The question is put to SGLang's own requests and radix keys: requests with the same prompt under the
adapters a, a, b and none must get three different keys, the two of adapter a the same one. Whatever goes wrong on the
way answers no.

What a yes does not show: that every tier of the cache honours the key, or that an engine elsewhere runs the same SGLang
as this process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

PAGE = 64
"""Tokens of the page-sized prompt. SGLang's trees compare a page at a time where `page_size` is above 1."""

_A, _B = "adapter-a", "adapter-b"


class Keys(Protocol):
    """Makes the key under which the prefix tree would file a prompt's first page."""

    def first_page(self, prompt: Sequence[int], adapter: str | None) -> Hashable:
        """The key of a page as long as the prompt, for a request under an adapter (`None`: the base model)."""
        ...


@dataclass(frozen=True, slots=True)
class AdapterKeys:
    """Whether keys are scoped by adapter, and what showed it. It is true only of a yes."""

    scoped: bool
    because: str

    def __bool__(self) -> bool:
        return self.scoped


AskAdapterKeys = Callable[[], AdapterKeys]
"""Answers whether keys are scoped by adapter; asked only where a decision hangs on it."""


def ask_adapter_keys(keys: Keys | None = None, *, page: int = PAGE) -> AdapterKeys:
    """Make the keys of adapters a, a, b and none for one token and for a page, and compare them.

    Anything but a clean yes is a no; only the user's interrupt gets through.
    """
    try:
        source = _sglang_keys() if keys is None else keys
        for length in (1, page):
            prompt = tuple(range(1, length + 1))
            problem = _problem(*(source.first_page(prompt, adapter) for adapter in (_A, _A, _B, None)))
            if problem:
                return AdapterKeys(False, f"{problem} (prompt of {length} token{'s' if length > 1 else ''})")
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # Also what an extension module raises beside Exception.
        return AdapterKeys(False, _failure(error))
    return AdapterKeys(True, f"adapters a, a, b and none were told apart, by one token and by {page}")


def _sglang_keys() -> Keys:
    from reef_ref.sglang.adapter_keys import SGLangKeys

    return SGLangKeys()


def _problem(first: Hashable, second: Hashable, other: Hashable, base: Hashable) -> str | None:
    """What is wrong with the keys of adapters a, a, b and none, used as the tree uses them: in a dictionary."""
    if second not in {first: None}:
        return "one adapter's requests do not share a key"
    if other in {first: None} or first in {other: None}:
        return "two adapters share a key"
    if base in {first: None, other: None} or first in {base: None} or other in {base: None}:
        return "an adapter and the base model share a key"
    return None


def _failure(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "sglang":
        return "SGLang is not installed here"
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return f"SGLang could not be asked: {type(error).__name__}{f': {text[:160]}' if text else ''}"


@cache
def installed_adapter_keys() -> AdapterKeys:
    """The answer of the installed SGLang, asked once in this process. The first call imports SGLang and torch."""
    return ask_adapter_keys()


def adapter_scoped_prefix_cache_supported() -> bool:
    """Whether the installed SGLang's prefix cache keeps adapters apart and still shares within one. Fails closed."""
    return installed_adapter_keys().scoped


__all__ = [
    "PAGE",
    "AdapterKeys",
    "AskAdapterKeys",
    "Keys",
    "adapter_scoped_prefix_cache_supported",
    "ask_adapter_keys",
    "installed_adapter_keys",
]
