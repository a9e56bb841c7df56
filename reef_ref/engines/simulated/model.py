"""A model so small that its answer can be computed by hand, and so honest that it shows whose KV it used.

The KV of a token depends on the token, on the weights, and on the KV of everything before it. The next token depends
on the last KV, and so on every load that made any of it: reuse one entry of an old load and all that follows differs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reef_ref.engines.errors import CheckpointRejected

__all__ = ["Kv", "Weights", "expected_tokens", "forward", "next_token", "read_checkpoint", "write_checkpoint"]

VOCABULARY = 50_021
WORD = (1 << 64) - 1
FILE = "weights.json"


def mix(*parts: int) -> int:
    """Numbers into one 64-bit number that depends on each of them and on their order."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = ((state ^ (part & WORD)) * 0xBF58476D1CE4E5B9) & WORD
        state ^= state >> 29
    return state


@dataclass(frozen=True, slots=True)
class Weights:
    """The content that an engine computes with (`seed`), and what it is called (`load_id`): two different things."""

    seed: int
    load_id: str

    @property
    def checksum(self) -> str:
        """A digest of the content alone."""
        return f"{mix(self.seed):016x}"


@dataclass(frozen=True, slots=True)
class Kv:
    """The KV of one token. `made_by` is its provenance: the loads that made it and everything that it builds on."""

    token: int
    value: int
    made_by: frozenset[str]


def forward(before: Kv | None, token: int, weights: Weights, adapter: int = 0) -> Kv:
    """The KV of a token after the KV of its predecessor."""
    value = mix(0 if before is None else before.value, token, weights.seed, adapter)
    loads = frozenset({weights.load_id})
    return Kv(token, value, loads if before is None else before.made_by | loads)


def next_token(last: Kv) -> int:
    """The token that follows, greedily."""
    return last.value % VOCABULARY


def expected_tokens(prompt: Sequence[int], seeds: Sequence[int], adapter: int = 0) -> tuple[int, ...]:
    """The answer of an engine that never reuses anything: token number k is sampled by weights `seeds[k]`.

    Everything before it is computed again with those weights, as after a retraction and a flush.
    """
    output: list[int] = []
    for seed in seeds:
        last: Kv | None = None
        for token in (*prompt, *output):
            last = forward(last, token, Weights(seed, ""), adapter)
        assert last is not None
        output.append(next_token(last))
    return tuple(output)


def write_checkpoint(folder: Path, seed: int) -> Path:
    """Make a checkpoint folder with this content; answers the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(json.dumps({"seed": seed}))
    return folder


def read_checkpoint(folder: Path) -> int:
    """The seed in a checkpoint folder; `CheckpointRejected` says what is wrong with it."""
    try:
        seed = json.loads((folder / FILE).read_bytes())["seed"]
    except OSError as error:
        raise CheckpointRejected(folder, f"{FILE} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointRejected(folder, f'{FILE} is not {{"seed": number}}') from error
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise CheckpointRejected(folder, f"{FILE}: seed is not a whole number")
    return seed
