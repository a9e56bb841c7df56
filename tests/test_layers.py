"""Who may import whom: read from the import statements, wherever in a file they stand."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = {"spec", "model_check", "reef_ref", "benchmarks", "examples", "tests"}
KNOWS_THE_SPECIFICATION = {("reef_ref", "cli"), ("reef_ref", "monitor")}
"""Parts of `reef_ref` that put specification and implementation together; the rest never reads it."""


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(file: Path) -> Iterator[str]:
    """The full names of the modules that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            assert node.module is not None
            yield node.module


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def label(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", modules("spec"), ids=label)
def test_the_specification_needs_only_the_standard_library(file: Path) -> None:
    """And the language nothing of the domain."""
    language = file.is_relative_to(ROOT / "spec" / "lang")
    for name in imported(file):
        allowed = within(name, "spec.lang") if language else within(name, "spec")
        assert allowed or name.split(".")[0] in sys.stdlib_module_names, f"imports {name}"


@pytest.mark.parametrize("file", modules("model_check"), ids=label)
def test_the_checker_knows_no_protocol(file: Path) -> None:
    """It reads the language, and whatever protocol it is given."""
    for name in imported(file):
        if name.split(".")[0] in OURS:
            assert within(name, "spec.lang") or within(name, "model_check"), f"imports {name}"


IMPLEMENTATION = [f for f in modules("reef_ref") if f.relative_to(ROOT).parts[:2] not in KNOWS_THE_SPECIFICATION]


@pytest.mark.parametrize("file", IMPLEMENTATION, ids=label)
def test_the_implementation_does_not_know_the_specification(file: Path) -> None:
    """That the two agree would otherwise be true by definition."""
    for name in imported(file):
        assert not within(name, "spec"), f"imports {name}"
        assert not within(name, "model_check"), f"imports {name}"


def test_a_forbidden_import_is_seen(tmp_path: Path) -> None:
    """Also one inside a function."""
    file = tmp_path / "wrong.py"
    file.write_text("def f():\n    from spec.publication import publication\n    import model_check.explore as e\n")
    assert list(imported(file)) == ["spec.publication", "model_check.explore"]


PACKAGES = ("spec", "model_check", "reef_ref")
HOMES = {
    **dict.fromkeys(("prometheus_client", "starlette", "uvicorn", "structlog", "opentelemetry"), ("reef_ref/monitor",)),
    **dict.fromkeys(("numpy", "scipy", "llvmlite", "networkx", "z3"), ("model_check",)),
    "ray": ("reef_ref/cli/cluster.py", "reef_ref/engines"),
    **dict.fromkeys(
        ("torch", "sglang"),
        ("reef_ref/engines", "reef_ref/sglang", "reef_ref/scenarios", "reef_ref/testing"),
    ),
}
"""Heavy libraries, and where each may be imported, so that the rest starts at once and runs without them."""


@pytest.mark.parametrize("package", PACKAGES)
def test_heavy_libraries_stay_where_they_are_needed(package: str) -> None:
    """A module elsewhere that imports one would load it for everybody."""
    for file in modules(package):
        for name in imported(file):
            homes = HOMES.get(name.split(".")[0])
            at_home = homes is None or any(file.is_relative_to(ROOT / home) for home in homes)
            assert at_home, f"{label(file)} imports {name}, which only {', '.join(homes or ())} may"


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_knows_the_command_line(package: str) -> None:
    """It puts everything together, so that whatever imported it would know everything."""
    command_line = ROOT / "reef_ref" / "cli"
    for file in modules(package):
        if not file.is_relative_to(command_line):
            assert not [name for name in imported(file) if within(name, "reef_ref.cli")], label(file)


DOMAIN = {
    "adapter",
    "cache",
    "checkpoint",
    "coordinator",
    "engine",
    "flush",
    "kv",
    "lora",
    "marker",
    "publication",
    "publish",
    "retract",
    "sglang",
    "token",
    "weight",
}
"""Words of what is specified, singular. The language is as good for any other protocol."""


def words(file: Path) -> set[str]:
    """The words of a file's names and prose, singular and in small letters, but for those of doctest-like examples."""
    text = re.sub(r"``.*?``", "", file.read_text(), flags=re.DOTALL)
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)
    return {word.lower().removesuffix("s") for word in found}


@pytest.mark.parametrize("file", modules("spec/lang"), ids=label)
def test_the_language_has_no_word_of_the_domain(file: Path) -> None:
    """Examples between double backquotes may: they show what a protocol writes."""
    assert DOMAIN & words(file) == set()


def test_a_word_of_the_domain_is_seen(tmp_path: Path) -> None:
    """In names of any style and in prose, but not in an example."""
    file = tmp_path / "wrong.py"
    file.write_text('class KVCache:\n    """Of ``paused[engine]``, all Weights."""\n    flush_all = 1\n')
    assert DOMAIN & words(file) == {"kv", "cache", "weight", "flush"}
