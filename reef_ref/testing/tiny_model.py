"""Small random Qwen2 checkpoints, a tokenizer and LoRA adapters, written in the ordinary Hugging Face layout.

A real SGLang engine loads them in seconds on a processor. Nothing is downloaded: the weights come from a seeded
generator, the tokenizer is trained on text that stands in this file. Equal seeds give equal bytes; different seeds
give different greedy outputs.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

END_OF_TEXT = "<|endoftext|>"

_CORPUS = (
    "The quick brown fox jumps over the lazy dog while seventeen engines wait for new weights.",
    "A publication pauses every engine, flushes every cache, loads the bytes and lets generation continue.",
    '{"name": "value", "count": 12, "items": [true, false, null, 3.5], "nested": {"key": "text"}}',
    "def prefix(tokens): return tokens[:-1]  # an ordinary line of code with (brackets) and = signs",
    "0 1 2 3 4 5 6 7 8 9 10 20 30 40 50 60 70 80 90 100 200 300 400 500 1000 2000",
)
"""Text for the tokenizer: prose, JSON, code and numbers, so that constrained output has tokens to choose from."""


@dataclass(frozen=True)
class TinyShape:
    """Sizes of a tiny Qwen2 model, in elements."""

    hidden_size: int = 64
    intermediate_size: int = 128
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    vocabulary: int = 512
    context_length: int = 8192

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.heads

    def projections(self) -> dict[str, tuple[int, int]]:
        """Linear layers of one decoder block: name below the block, (outputs, inputs)."""
        attention = self.heads * self.head_size
        shared = self.key_value_heads * self.head_size
        return {
            "self_attn.q_proj": (attention, self.hidden_size),
            "self_attn.k_proj": (shared, self.hidden_size),
            "self_attn.v_proj": (shared, self.hidden_size),
            "self_attn.o_proj": (self.hidden_size, attention),
            "mlp.gate_proj": (self.intermediate_size, self.hidden_size),
            "mlp.up_proj": (self.intermediate_size, self.hidden_size),
            "mlp.down_proj": (self.hidden_size, self.intermediate_size),
        }


ADAPTED_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj")
"""The layers that a tiny LoRA adapter changes."""


def write_checkpoint(directory: Path | str, *, seed: int, shape: TinyShape | None = None) -> Path:
    """Write a random bfloat16 Qwen2 checkpoint with its tokenizer and return its directory.

    The directory appears complete or not at all. Weights are drawn wide enough that the greedy output depends on the
    whole prompt, so that a reused prefix from other weights changes the tokens.

    Raises:
        FileExistsError: `directory` exists already.
    """
    import torch
    from safetensors.torch import save_file

    shape = shape or TinyShape()
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int, scale: float) -> torch.Tensor:
        return (torch.randn(*size, generator=generator) * scale).to(torch.bfloat16)

    weights: dict[str, torch.Tensor] = {
        "model.embed_tokens.weight": normal(shape.vocabulary, shape.hidden_size, scale=1.0),
        "lm_head.weight": normal(shape.vocabulary, shape.hidden_size, scale=1.0 / math.sqrt(shape.hidden_size)),
        "model.norm.weight": torch.ones(shape.hidden_size, dtype=torch.bfloat16),
    }
    for layer in range(shape.layers):
        block = f"model.layers.{layer}"
        for name, (outputs, inputs) in shape.projections().items():
            weights[f"{block}.{name}.weight"] = normal(outputs, inputs, scale=2.0 / math.sqrt(inputs))
            if name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
                weights[f"{block}.{name}.bias"] = normal(outputs, scale=0.1)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{block}.{norm}.weight"] = torch.ones(shape.hidden_size, dtype=torch.bfloat16)

    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": shape.context_length,
        "max_window_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.key_value_heads,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": shape.vocabulary,
    }
    with _complete_or_absent(Path(directory)) as unfinished:
        _write_json(unfinished / "config.json", config)
        _write_json(unfinished / "generation_config.json", {"eos_token_id": 0, "pad_token_id": 0, "do_sample": False})
        _write_tokenizer(unfinished, shape)
        save_file(weights, unfinished / "model.safetensors", metadata={"format": "pt"})
    return Path(directory)


def write_adapter(
    directory: Path | str, *, seed: int, rank: int = 8, base: Path | str | None = None, shape: TinyShape | None = None
) -> Path:
    """Write a random LoRA adapter over the attention layers in PEFT's layout and return its directory.

    Unlike a freshly initialised adapter both factors are non-zero, so that the adapter changes the output. `base` is
    recorded as the name of the base model; it is not read.

    Raises:
        FileExistsError: `directory` exists already.
    """
    import torch
    from safetensors.torch import save_file

    shape = shape or TinyShape()
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for layer in range(shape.layers):
        for name, (outputs, inputs) in shape.projections().items():
            if name.rpartition(".")[2] not in ADAPTED_LAYERS:
                continue
            stem = f"base_model.model.model.layers.{layer}.{name}"
            down = torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs)
            up = torch.randn(outputs, rank, generator=generator) / math.sqrt(rank)
            weights[f"{stem}.lora_A.weight"] = down.to(torch.bfloat16)
            weights[f"{stem}.lora_B.weight"] = up.to(torch.bfloat16)
    config = {
        "base_model_name_or_path": None if base is None else str(base),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(ADAPTED_LAYERS),
        "task_type": "CAUSAL_LM",
    }
    with _complete_or_absent(Path(directory)) as unfinished:
        _write_json(unfinished / "adapter_config.json", config)
        save_file(weights, unfinished / "adapter_model.safetensors", metadata={"format": "pt"})
    return Path(directory)


def _write_tokenizer(directory: Path, shape: TinyShape) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    # The text above is short: fill up to the size of the embedding, so that every id the model can produce has a text.
    missing = shape.vocabulary - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"<filler{index}>" for index in range(missing)])
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": END_OF_TEXT,
            "pad_token": END_OF_TEXT,
            "clean_up_tokenization_spaces": False,
            "model_max_length": shape.context_length,
        },
    )


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _complete_or_absent(directory: Path) -> Iterator[Path]:
    """A directory beside the wanted one, renamed to it when the block ends well and removed otherwise."""
    if directory.exists():
        raise FileExistsError(f"{directory}: exists already; remove it or choose another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    unfinished.chmod(0o755)
    try:
        yield unfinished
        os.rename(unfinished, directory)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
