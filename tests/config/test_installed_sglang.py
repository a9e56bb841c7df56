"""The question about adapter keys, put to the SGLang that is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

INSTALLED = importlib.util.find_spec("sglang") is not None


QUESTIONS = """
import contextlib, json
from reef_ref.lora_schema import ask_adapter_keys

answers = {"as it is": ask_adapter_keys().because if not ask_adapter_keys() else True}
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.mem_cache.radix_cache import RadixKey

@contextlib.contextmanager
def broken(owner, name, replacement):
    kept = owner.__dict__[name]
    if replacement is None:
        delattr(owner, name)
    else:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, kept)

make = Req.__init__

def forgets_the_adapter(self, *args, lora_id=None, **more):
    make(self, *args, **more)

def takes_no_adapter(self, rid, origin_input_text, origin_input_ids, sampling_params):
    make(self, rid, origin_input_text, origin_input_ids, sampling_params)

for name, owner, attribute, replacement in (
    ("request forgets the adapter", Req, "__init__", forgets_the_adapter),
    ("request takes no adapter", Req, "__init__", takes_no_adapter),
    ("no child key", RadixKey, "child_key", None),
    ("child key of tokens alone", RadixKey, "child_key", lambda self, page_size=1: tuple(self.token_ids[:page_size])),
    ("child key of another kind", RadixKey, "child_key", lambda self, page_size=1: [self.extra_key]),
):
    with broken(owner, attribute, replacement):
        answers[name] = ask_adapter_keys().scoped
answers["mended"] = ask_adapter_keys().scoped
print("answers:" + json.dumps(answers))
"""


@pytest.mark.skipif(not INSTALLED, reason="SGLang is not installed in this environment")
def test_its_keys_name_the_adapter_and_its_failures_answer_no() -> None:
    """In a process of its own, where SGLang's warnings are not errors."""
    done = subprocess.run([sys.executable, "-c", QUESTIONS], check=False, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("answers:")]
    answers = json.loads(line.removeprefix("answers:"))
    assert answers.pop("as it is") is True
    assert answers.pop("mended") is True
    assert set(answers.values()) == {False}, answers
