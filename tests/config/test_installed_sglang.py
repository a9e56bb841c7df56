"""The question about adapter keys, put to the SGLang that is installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

INSTALLED = importlib.util.find_spec("sglang") is not None


@pytest.mark.skipif(not INSTALLED, reason="SGLang is not installed in this environment")
def test_its_keys_name_the_adapter() -> None:
    """In a process of its own, where its warnings are not errors."""
    code = (
        "import sys; from reef_ref.lora_schema import installed_adapter_keys as ask;"
        "print(ask()); sys.exit(not ask().scoped)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
