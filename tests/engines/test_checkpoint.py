"""A checkpoint is read and checked before any engine hears of it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from reef_ref.engines.checkpoint import TensorLayout, check_adapter, check_same_layout, read_layout
from reef_ref.engines.errors import AdapterRejected, CheckpointRejected

Entries = dict[str, Any]


def shard_bytes(entries: Entries, payload: int) -> bytes:
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(payload)


def two_tensors() -> Entries:
    return {
        "__metadata__": {"format": "pt"},
        "embed.weight": {"dtype": "BF16", "shape": [4, 2], "data_offsets": [0, 16]},
        "norm.weight": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]},
    }


def write(folder: Path, content: bytes, name: str = "model.safetensors") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / name).write_bytes(content)
    return folder


def test_whole_checkpoint_is_read(tmp_path: Path) -> None:
    """Names, types, shapes and the size in bytes come from the header."""
    layout = read_layout(write(tmp_path / "good", shard_bytes(two_tensors(), 24)))
    assert layout.tensors == {"embed.weight": TensorLayout("BF16", (4, 2)), "norm.weight": TensorLayout("F32", (2,))}
    assert layout.size == (tmp_path / "good" / "model.safetensors").stat().st_size


def changed(name: str, **fields: Any) -> Entries:
    entries = two_tensors()
    entries[name] = {**entries[name], **fields}
    return entries


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "hold no header", id="empty"),
        pytest.param(b"\x01\x00", "hold no header", id="two bytes"),
        pytest.param(struct.pack("<Q", 500) + b"{", "truncated inside its header", id="cut in the header"),
        pytest.param(struct.pack("<Q", 1 << 60), "not a safetensors file", id="absurd header length"),
        pytest.param(struct.pack("<Q", 4) + b"oops", "not JSON", id="garbled header"),
        pytest.param(struct.pack("<Q", 2) + b"[]", "not an object", id="header of another kind"),
        pytest.param(shard_bytes(two_tensors(), 23), "is truncated: expected", id="one byte short"),
        pytest.param(shard_bytes(two_tensors(), 25), "longer than its header says", id="one byte long"),
        pytest.param(
            shard_bytes(changed("norm.weight", data_offsets=[17, 25]), 25), "expected 16", id="a hole between tensors"
        ),
        pytest.param(shard_bytes(changed("norm.weight", shape=[3]), 24), "its shape needs 12", id="shape and bytes"),
        pytest.param(shard_bytes(changed("norm.weight", dtype="F17"), 24), "not understood", id="unknown type"),
        pytest.param(shard_bytes({}, 0), "holds no tensor", id="no tensor"),
    ],
)
def test_broken_shard_is_rejected_with_file_and_reason(tmp_path: Path, content: bytes, reason: str) -> None:
    """Every way to be broken has its own reason, and the message names the folder."""
    folder = write(tmp_path / "bad", content)
    with pytest.raises(CheckpointRejected, match=reason) as caught:
        read_layout(folder)
    assert str(folder) in str(caught.value)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    """Cut at any length, a shard is rejected."""
    whole = shard_bytes(two_tensors(), 24)
    for length in range(len(whole)):
        with pytest.raises(CheckpointRejected):
            read_layout(write(tmp_path / "cut", whole[:length]))


def test_missing_things_are_named(tmp_path: Path) -> None:
    """A missing folder, config or shard is said to be missing."""
    with pytest.raises(CheckpointRejected, match="is not a folder"):
        read_layout(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointRejected, match=r"no config\.json"):
        read_layout(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text("{}")
    with pytest.raises(CheckpointRejected, match=r"no \*\.safetensors"):
        read_layout(tmp_path / "empty")


def test_index_and_shards_must_agree(tmp_path: Path) -> None:
    """An index that names a missing shard, a missing tensor or a file elsewhere is rejected."""
    folder = write(tmp_path / "sharded", shard_bytes(two_tensors(), 24), "one.safetensors")
    index = folder / "model.safetensors.index.json"
    names = {"embed.weight": "one.safetensors", "norm.weight": "one.safetensors"}
    index.write_text(json.dumps({"weight_map": names}))
    assert len(read_layout(folder).tensors) == 2
    for weight_map, reason in (
        ({**names, "head.weight": "one.safetensors"}, r"disagree on head\.weight"),
        ({**names, "head.weight": "two.safetensors"}, "cannot be read"),
        ({"embed.weight": "one.safetensors"}, r"disagree on norm\.weight"),
        ({**names, "head.weight": "../elsewhere.safetensors"}, "outside the folder"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(CheckpointRejected, match=reason):
            read_layout(folder)
    index.write_text("{")
    with pytest.raises(CheckpointRejected, match="not an index"):
        read_layout(folder)


def test_layouts_must_be_the_same(tmp_path: Path) -> None:
    """A checkpoint of another model is rejected by name, shape or type before an engine hears of it."""
    serving = read_layout(write(tmp_path / "serving", shard_bytes(two_tensors(), 24)))
    check_same_layout(read_layout(write(tmp_path / "same", shard_bytes(two_tensors(), 24))), serving)
    fewer = two_tensors()
    del fewer["norm.weight"]
    more = {**two_tensors(), "head.weight": {"dtype": "F32", "shape": [1], "data_offsets": [24, 28]}}
    for entries, payload, reason in (
        (fewer, 16, r"lacks norm\.weight"),
        (more, 28, r"has head\.weight"),
        (changed("embed.weight", shape=[2, 4]), 24, r"is BF16\[2, 4\], the engine serves BF16\[4, 2\]"),
        (changed("embed.weight", dtype="F16"), 24, "is F16"),
    ):
        candidate = read_layout(write(tmp_path / "candidate", shard_bytes(entries, payload)))
        with pytest.raises(CheckpointRejected, match=reason):
            check_same_layout(candidate, serving)


def test_adapter_is_checked(tmp_path: Path) -> None:
    """A missing or truncated adapter is rejected."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    with pytest.raises(AdapterRejected, match=r"no adapter_config\.json"):
        check_adapter(folder)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(AdapterRejected, match="cannot be read"):
        check_adapter(folder)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(shard_bytes(two_tensors(), 20))
    with pytest.raises(AdapterRejected, match="is truncated"):
        check_adapter(folder)
    weights.write_bytes(shard_bytes(two_tensors(), 24))
    check_adapter(folder)
