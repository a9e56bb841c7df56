"""Tiny models: reproducible, loadable, and different where their seeds differ."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from reef_ref.testing.tiny_model import ADAPTED_LAYERS, TinyShape, write_adapter, write_checkpoint


def _digest(directory: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(directory.iterdir())}


def test_equal_seeds_write_equal_bytes(tmp_path: Path) -> None:
    """A checkpoint is a function of its seed."""
    first = write_checkpoint(tmp_path / "a", seed=1)
    again = write_checkpoint(tmp_path / "b", seed=1)
    other = write_checkpoint(tmp_path / "c", seed=2)
    assert _digest(first) == _digest(again)
    assert _digest(first)["model.safetensors"] != _digest(other)["model.safetensors"]


def test_transformers_reads_it_and_two_seeds_say_different_things(tmp_path: Path) -> None:
    """The layout is the ordinary one, and the weights decide the greedy output."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    texts = []
    for seed in (1, 2):
        directory = write_checkpoint(tmp_path / f"model-{seed}", seed=seed)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
        tokens = torch.tensor([[20 + 7 * index % 400 for index in range(64)]])
        output = model.generate(tokens, max_new_tokens=16, do_sample=False, attention_mask=torch.ones_like(tokens))
        texts.append(output[0, 64:].tolist())
    assert texts[0] != texts[1]
    assert len(set(texts[0])) > 4, "a model that repeats itself would hide a stale prefix"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model-1")
    text = 'The quick brown fox: {"count": 12} ünïcode'
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == TinyShape().vocabulary


def test_the_output_depends_on_the_far_end_of_the_prompt(tmp_path: Path) -> None:
    """Otherwise a reused prefix of other weights would not change the tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(write_checkpoint(tmp_path / "m", seed=1), dtype=torch.bfloat16)
    tokens = torch.tensor([[20 + 7 * index % 400 for index in range(300)]])
    changed = tokens.clone()
    changed[0, :150] += 1
    with torch.inference_mode():
        assert not torch.equal(model(tokens).logits[0, -1], model(changed).logits[0, -1])


@pytest.mark.parametrize("rank", [4, 8])
def test_an_adapter_covers_the_attention_layers(tmp_path: Path, rank: int) -> None:
    """Two non-zero factors of the given rank for every adapted layer."""
    from safetensors.torch import load_file

    weights = load_file(write_adapter(tmp_path / "a", seed=3, rank=rank) / "adapter_model.safetensors")
    assert len(weights) == 2 * len(ADAPTED_LAYERS) * TinyShape().layers
    for name, weight in weights.items():
        assert weight.shape[0 if ".lora_A." in name else 1] == rank
        assert weight.abs().max() > 0


@pytest.mark.parametrize("write", [write_checkpoint, write_adapter])
def test_a_directory_that_exists_is_refused_and_left_alone(tmp_path: Path, write: object) -> None:
    """One line that says what is there and what to do."""
    (tmp_path / "m").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        write(tmp_path / "m", seed=1)  # type: ignore[operator]
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert list((tmp_path / "m").iterdir()) == []


def test_nothing_is_left_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint appears complete or not at all."""
    import safetensors.torch

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        write_checkpoint(tmp_path / "m", seed=1)
    assert list(tmp_path.iterdir()) == []
