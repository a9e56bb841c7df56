"""The policy: a tiny Qwen2 in torch, its optimizer, and checkpoints that hold both.

A checkpoint is a folder in the Hugging Face layout, which engines load as it is, with a folder `trainer` inside that
only the trainer reads: the optimizer's moments, and which step this is. They appear together or not at all, so that
weights and moments are always of one step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from examples.rl_loop.durable import whole_folder
from examples.rl_loop.rollout import Sample

__all__ = ["Policy", "read_moments", "read_notes"]

BETAS = (0.9, 0.95)
LONGEST_GRADIENT = 1.0
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
MOMENTS = Path("trainer", "optimizer.safetensors")
NOTES = Path("trainer", "step.json")


def read_notes(checkpoint: Path) -> dict[str, Any]:
    """What was noted beside a checkpoint's weights: at least its `step`."""
    return dict(json.loads((checkpoint / NOTES).read_bytes()))


def read_moments(checkpoint: Path) -> dict[str, Any]:
    """The optimizer's state at a checkpoint: Adam's `exp_avg`, `exp_avg_sq` and `step` of every parameter."""
    return dict(load_file(checkpoint / MOMENTS))


class Policy:
    """Weights and optimizer of one step, read from a folder.

    float32 throughout: what engines serve is exactly what the next step begins from.
    """

    def __init__(self, folder: Path, step: int, learning_rate: float) -> None:
        torch.set_num_threads(1)  # Engines want the other cores.
        logging.disable_progress_bar()
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        self.step = step
        self._model: Any = model
        self._tokenizer = {name: (folder / name).read_bytes() for name in TOKENIZER}
        self._optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, betas=BETAS)

    @classmethod
    def new(cls, weights: Path, learning_rate: float) -> Self:
        """Step 0, from a folder of weights alone."""
        return cls(weights, 0, learning_rate)

    @classmethod
    def read(cls, checkpoint: Path, learning_rate: float) -> Self:
        """Go on from a checkpoint that `save` wrote."""
        policy = cls(checkpoint, int(read_notes(checkpoint)["step"]), learning_rate)
        moments = read_moments(checkpoint)
        for name, parameter in policy._model.named_parameters():
            found = {key: moments[f"{key}.{name}"] for key in ("exp_avg", "exp_avg_sq", "step") if moments}
            if found:
                policy._optimizer.state[parameter] = found
        return policy

    def learn(self, samples: Sequence[Sample], advantages: Sequence[float]) -> None:
        """One step of REINFORCE: make the tokens of samples with an advantage likelier. All are of one length."""
        tokens = torch.tensor([sample.prompt + sample.output for sample in samples])
        answer = len(samples[0].output)
        # The scores at a position are those of the token after it.
        scores = self._model(tokens).logits[:, -answer - 1 : -1]
        likelihood = scores.log_softmax(-1).gather(2, tokens[:, -answer:, None])[..., 0]
        loss = -(torch.tensor(advantages)[:, None] * likelihood).mean()
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), LONGEST_GRADIENT)
        self._optimizer.step()
        self.step += 1

    def save(self, checkpoint: Path, notes: Mapping[str, Any]) -> None:
        """Write the checkpoint of this step, with notes about it."""
        moments: dict[str, Any] = {}
        for name, parameter in self._model.named_parameters():
            for key, value in self._optimizer.state[parameter].items():
                moments[f"{key}.{name}"] = value
        with whole_folder(checkpoint) as unfinished:
            self._model.save_pretrained(unfinished)
            for name, data in self._tokenizer.items():
                (unfinished / name).write_bytes(data)
            (unfinished / MOMENTS).parent.mkdir()
            save_file(moments, unfinished / MOMENTS)
            (unfinished / NOTES).write_text(json.dumps({"step": self.step, **notes}, indent=2) + "\n")
