"""The platform: where it applies, what it neutralises, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reef_ref.sglang import cpu_platform


@pytest.mark.parametrize(
    ("present", "asked", "applies"),
    [(False, None, True), (True, None, False), (True, cpu_platform.NAME, True), (True, "other", False)],
)
def test_it_declines_where_an_accelerator_is_unless_asked_by_name(
    monkeypatch: pytest.MonkeyPatch, present: bool, asked: str | None, applies: bool
) -> None:
    """A machine with a device keeps SGLang's own platform."""
    touched: list[bool] = []
    monkeypatch.setattr(cpu_platform, "accelerator_present", lambda: present)
    monkeypatch.setattr(cpu_platform, "_neutralise_missing_accelerator", lambda: touched.append(True))
    if asked is None:
        monkeypatch.delenv("SGLANG_PLATFORM", raising=False)
    else:
        monkeypatch.setenv("SGLANG_PLATFORM", asked)
    assert (cpu_platform.activate() is not None) == applies
    assert bool(touched) == (not present), "torch is left alone where an accelerator works"


def test_calls_that_need_a_device_work_without_one() -> None:
    """Pinned memory and the current device's module, in a process of its own because torch is changed."""
    program = (
        "import torch\n"
        "from reef_ref.sglang import cpu_platform\n"
        "assert cpu_platform.activate(), 'an accelerator is present'\n"
        "cpu_platform.activate()\n"
        "assert torch.zeros(2, pin_memory=True).pin_memory().tolist() == [0, 0]\n"
        "assert torch.tensor([1], pin_memory=True).tolist() == [1]\n"
        "torch.get_device_module().synchronize()\n"
        "assert torch.get_device_module() is torch.cpu\n"
        "from sglang.srt.platforms import current_platform\n"
        "assert type(current_platform).__name__ == 'CpuPlatform', current_platform\n"
        "assert current_platform.is_out_of_tree() and not current_platform.capabilities.supports_triton\n"
        "assert 0 < current_platform.get_current_memory_usage() < current_platform.get_device_total_memory()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=180)


@pytest.mark.parametrize(
    "module",
    [
        "reef_ref",
        "reef_ref.sglang",
        "reef_ref.sglang.settings",
        "reef_ref.sglang.events",
        "reef_ref.sglang.plugin",
        "reef_ref.sglang.provenance",
        "reef_ref.sglang.doctor",
        "reef_ref.sglang.cpu_platform",
        "reef_ref.testing.tiny_model",
    ],
)
def test_importing_brings_in_neither_torch_nor_sglang(module: str) -> None:
    """What is not asked to act costs nothing."""
    program = f"import sys, {module}; heavy = {{'torch', 'sglang'}} & set(sys.modules); assert not heavy, heavy"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
