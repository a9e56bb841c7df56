"""Parts of the README that are never typed by hand: each stands between ``<!-- name -->`` and ``<!-- /name -->``."""

from __future__ import annotations

import re
from pathlib import Path

from reef_ref.cli.output import write

__all__ = ["README", "between", "put", "replaced"]

README = Path(__file__).resolve().parent.parent / "README.md"


def replaced(text: str, name: str, content: str) -> str:
    """A text with what stands between two markers exchanged."""
    changed, count = re.subn(
        rf"(?s)(<!-- {name} -->\n).*?(<!-- /{name} -->)", lambda m: f"{m[1]}{content}\n{m[2]}", text
    )
    if count != 1:
        raise ValueError(f"{README.name}: needs the markers <!-- {name} --> and <!-- /{name} -->, once")
    return changed


def between(text: str, name: str) -> str:
    """What stands between two markers."""
    found = re.search(rf"(?s)<!-- {name} -->\n(.*?)\n<!-- /{name} -->", text)
    if found is None:
        raise ValueError(f"{README.name}: needs the markers <!-- {name} --> and <!-- /{name} -->")
    return found[1]


def put(name: str, content: str) -> None:
    """Exchange a part of the README, as it is now: whoever measures for long must not bring an older one back."""
    write(README, replaced(README.read_text(), name, content))
