"""Reading a checkpoint before any engine hears of it.

SGLang 0.5.23 answers a truncated safetensors file with a roll-back that reads the same file, and its scheduler dies.
Only headers are read here, so the check costs milliseconds: for every shard the length of the header, its JSON, the
byte ranges of the tensors and the size of the file must agree; an index must name every shard and every tensor; names,
shapes and types must be those of the checkpoint that the engine serves.

The format: eight bytes, little endian, hold the length of a JSON header; then the header; then the tensors' bytes
(https://github.com/huggingface/safetensors, section "Format").
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reef_ref.engines.errors import AdapterRejected, CheckpointRejected

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CheckpointLayout", "TensorLayout", "check_adapter", "check_same_layout", "read_layout"]

INDEX_NAME = "model.safetensors.index.json"
LONGEST_HEADER = 100 * 1024 * 1024  # The limit of the safetensors library itself.
LISTED = 3

BYTES_PER_ELEMENT: Mapping[str, int] = MappingProxyType(
    {
        "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
        "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
        "U32": 4, "I32": 4, "F32": 4,
        "U64": 8, "I64": 8, "F64": 8,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor's element type, in safetensors' spelling, and its shape."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class CheckpointLayout:
    """The tensors of a checkpoint, by name; `size` is the size of all its shards in bytes."""

    path: Path
    tensors: Mapping[str, TensorLayout]
    size: int


def read_layout(path: Path) -> CheckpointLayout:
    """Read and check the headers of a checkpoint folder in the Hugging Face layout.

    Raises `CheckpointRejected` with the file and the reason.
    """
    if not path.is_dir():
        raise CheckpointRejected(path, "is not a folder; expected one with config.json and *.safetensors")
    if not (path / "config.json").is_file():
        raise CheckpointRejected(path, "has no config.json")
    index = path / INDEX_NAME
    expected = _read_index(path, index) if index.is_file() else None
    shards = sorted(set(expected.values())) if expected is not None else _shard_names(path)
    tensors: dict[str, TensorLayout] = {}
    found_in: dict[str, str] = {}
    size = 0
    for shard in shards:
        header, shard_size = _read_shard(path, path / shard)
        size += shard_size
        for name, tensor in header.items():
            if name in tensors:
                raise CheckpointRejected(path, f"tensor {name} is in both {found_in[name]} and {shard}")
            tensors[name] = tensor
            found_in[name] = shard
    if expected is not None and expected != found_in:
        differing = sorted({name for name, _ in expected.items() ^ found_in.items()})
        raise CheckpointRejected(path, f"{INDEX_NAME} and the shards disagree on {_listed(differing)}")
    if not tensors:
        raise CheckpointRejected(path, "holds no tensor")
    return CheckpointLayout(path, MappingProxyType(tensors), size)


def check_same_layout(candidate: CheckpointLayout, serving: CheckpointLayout) -> None:
    """Raise `CheckpointRejected` unless the candidate has exactly the serving checkpoint's names, shapes and types."""
    missing = sorted(serving.tensors.keys() - candidate.tensors.keys())
    if missing:
        raise CheckpointRejected(candidate.path, f"lacks {_listed(missing)}, which the engine serves")
    extra = sorted(candidate.tensors.keys() - serving.tensors.keys())
    if extra:
        raise CheckpointRejected(candidate.path, f"has {_listed(extra)}, which the engine does not know")
    for name, tensor in candidate.tensors.items():
        if tensor != serving.tensors[name]:
            raise CheckpointRejected(candidate.path, f"{name} is {tensor}, the engine serves {serving.tensors[name]}")


def check_adapter(path: Path) -> None:
    """Raise `AdapterRejected` unless the folder holds a whole LoRA adapter in the PEFT layout."""
    if not (path / "adapter_config.json").is_file():
        raise AdapterRejected(path, "has no adapter_config.json")
    weights = path / "adapter_model.safetensors"
    try:
        tensors, _ = _read_shard(path, weights)
    except CheckpointRejected as error:
        raise AdapterRejected(path, error.reason) from error
    if not tensors:
        raise AdapterRejected(path, f"{weights.name} holds no tensor")


def _shard_names(path: Path) -> list[str]:
    shards = sorted(file.name for file in path.glob("*.safetensors"))
    if not shards:
        raise CheckpointRejected(path, "has no *.safetensors file")
    return shards


def _read_index(path: Path, index: Path) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointRejected(path, f"{index.name} is not an index with a weight_map ({error!r})") from error
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointRejected(path, f"{index.name}: weight_map does not map tensor names to file names")
    if outside := sorted(shard for shard in set(weight_map.values()) if Path(shard).name != shard):
        raise CheckpointRejected(path, f"{index.name} names files outside the folder: {_listed(outside)}")
    return weight_map


def _read_shard(path: Path, shard: Path) -> tuple[dict[str, TensorLayout], int]:
    try:
        with shard.open("rb") as file:
            size = shard.stat().st_size
            prefix = file.read(8)
            if len(prefix) < 8:
                raise CheckpointRejected(path, f"{shard.name} is truncated: {size} bytes hold no header")
            (length,) = struct.unpack("<Q", prefix)
            if length > LONGEST_HEADER:
                raise CheckpointRejected(path, f"{shard.name} is not a safetensors file: header of {length} bytes")
            header = file.read(length)
    except OSError as error:
        raise CheckpointRejected(path, f"{shard.name} cannot be read: {error.strerror or error}") from error
    if len(header) < length:
        raise CheckpointRejected(path, f"{shard.name} is truncated inside its header: {8 + length} bytes, got {size}")
    try:
        entries = json.loads(header)
    except ValueError as error:
        raise CheckpointRejected(path, f"{shard.name} is not a safetensors file: header is not JSON") from error
    if not isinstance(entries, dict):
        raise CheckpointRejected(path, f"{shard.name} is not a safetensors file: header is not an object")
    entries.pop("__metadata__", None)
    tensors: dict[str, TensorLayout] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, entry in entries.items():
        tensor, begin, end = _read_entry(path, shard, name, entry)
        tensors[name] = tensor
        ranges.append((begin, end, name))
    position = 0
    for begin, end, name in sorted(ranges):
        if begin != position:
            raise CheckpointRejected(path, f"{shard.name}: {name} starts at byte {begin}, expected {position}")
        position = end
    if 8 + length + position != size:
        kind = "truncated" if size < 8 + length + position else "longer than its header says"
        raise CheckpointRejected(path, f"{shard.name} is {kind}: expected {8 + length + position} bytes, got {size}")
    return tensors, size


def _read_entry(path: Path, shard: Path, name: str, entry: Any) -> tuple[TensorLayout, int, int]:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        width = BYTES_PER_ELEMENT[dtype]
        expected = width * math.prod(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointRejected(path, f"{shard.name}: the entry of {name} is not understood ({error!r})") from error
    if end - begin != expected:
        raise CheckpointRejected(path, f"{shard.name}: {name} has {end - begin} bytes, its shape needs {expected}")
    return TensorLayout(dtype, shape), begin, end


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
