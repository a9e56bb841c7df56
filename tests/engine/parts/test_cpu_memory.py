"""The memory saver: releases for real, poisons what comes back, and keeps every alias."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import torch

from reef_ref.sglang.cpu_memory import CpuMemorySaver, poison

KV = "kv_cache"
MIB = 1 << 20


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def test_a_released_region_is_memory_given_back() -> None:
    """The process shrinks by what the region held and grows again on resume."""
    saver = CpuMemorySaver()
    with saver.region(KV):
        cache = torch.ones(64 * MIB, dtype=torch.uint8)
    full = _resident()
    assert saver.release(KV) == 64 * MIB
    assert full - _resident() > 60 * MIB
    assert saver.resident_bytes(KV) == 0
    assert saver.resume(KV) == 64 * MIB
    assert full - _resident() < 4 * MIB
    assert cache.numel() == 64 * MIB


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_comes_back_is_nan(dtype: torch.dtype) -> None:
    """A cache entry that outlived a release spoils what it takes part in."""
    saver = CpuMemorySaver()
    with saver.region(KV):
        cache = torch.zeros(8, 4, dtype=dtype)
    row = cache[3]
    saver.release(KV)
    saver.resume(KV)
    assert torch.isnan(cache).all()
    assert torch.isnan(row).all(), "a view must see the same memory as before"
    row.fill_(1)
    assert cache[3].eq(1).all()


def test_integers_come_back_out_of_range() -> None:
    """A slot number from released memory cannot be mistaken for a slot."""
    saver = CpuMemorySaver()
    with saver.region(KV):
        table = torch.zeros(4, 4, dtype=torch.int32)
    saver.release(KV)
    saver.resume(KV)
    with pytest.raises(IndexError):
        torch.zeros(10)[table[0]]
    assert poison(torch.bool) is True
    assert math.isnan(poison(torch.bfloat16))


def test_parameters_made_in_a_region_are_found_through_the_module() -> None:
    """A parameter is another tensor over the storage that was made, and both share its fate."""
    saver = CpuMemorySaver()
    with saver.region("weights"):
        layer = torch.nn.Linear(32, 32)
    with saver.region(KV):
        cache = torch.zeros(5)
    size = 4 * (32 * 32 + 32)
    assert saver.release("weights") == size
    assert cache.eq(0).all(), "another region is left alone"
    saver.resume("weights")
    assert torch.isnan(layer.weight).all()


def test_a_backup_brings_the_content_back() -> None:
    """`--enable-weights-cpu-backup`."""
    saver = CpuMemorySaver()
    with saver.region("weights", enable_cpu_backup=True):
        weight = torch.arange(100.0)
    expected = weight.clone()
    saver.release("weights")
    saver.resume("weights")
    assert torch.equal(weight, expected)


def test_only_what_was_made_inside_is_recorded() -> None:
    """Tensors from outside, temporaries and disabled blocks are none of the region's."""
    saver = CpuMemorySaver()
    outside = torch.zeros(100)
    with saver.region(KV):
        outside.add_(1)
        inside = torch.ones(50, dtype=torch.float32)
        outside[:50].copy_(inside + 1)
        with saver.disabled(), saver.region(KV):
            hidden = torch.ones(7)
    assert saver.resident_bytes(KV) == 200
    saver.release(KV)
    assert outside[:50].eq(2).all()
    assert hidden.eq(1).all()


def test_pairing_is_checked() -> None:
    """Release twice and resume without release are refused with a reason."""
    saver = CpuMemorySaver()
    with saver.region(KV):
        cache = torch.ones(4)
    with pytest.raises(RuntimeError, match="not released"):
        saver.resume(KV)
    saver.release(KV)
    with pytest.raises(RuntimeError, match="released already"):
        saver.release(KV)
    saver.resume(KV)
    assert cache.numel() == 4


def test_touching_released_memory_ends_the_process(tmp_path: Path) -> None:
    """As on a device, where the page is not mapped; a silent zero would hide the fault."""
    script = tmp_path / "touch.py"
    script.write_text(
        "import torch\n"
        "from reef_ref.sglang.cpu_memory import CpuMemorySaver\n"
        "saver = CpuMemorySaver()\n"
        "with saver.region('kv_cache'):\n"
        "    cache = torch.ones(1 << 20)\n"
        "saver.release('kv_cache')\n"
        "print('released', flush=True)\n"
        "print(float(cache.sum()))\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout == "released\n"
    assert ended.returncode != 0
