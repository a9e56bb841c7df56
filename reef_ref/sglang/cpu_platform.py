"""An SGLang platform for machines without an accelerator (entry point `sglang.srt.platforms`, name `reef_ref_cpu`).

SGLang's own processor mode (`SGLANG_USE_CPU_ENGINE=1`) needs kernels that the published `sgl_kernel` wheel does not
hold. This platform needs none: it declares no Triton and no graph capture, so SGLang 0.5.23 picks its torch-native
allocators, writers and attention (`sglang/srt/platforms/interface.py`). SGLang reads entry points in every process it
starts, so the scheduler gets it as well.

`activate` declines where an accelerator is present, unless the platform is asked for by name with
`SGLANG_PLATFORM=reef_ref_cpu`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NAME = "reef_ref_cpu"
"""Name of the entry point, as `SGLANG_PLATFORM` spells it."""

_CLASS = "reef_ref.sglang.cpu_platform_class.CpuPlatform"

_PINNING_FACTORIES = ("tensor", "zeros", "ones", "empty", "full", "arange")


def activate() -> str | None:
    """The dotted name of the platform class where it applies, else `None`, which leaves SGLang to its own platforms."""
    if accelerator_present():
        return _CLASS if os.environ.get("SGLANG_PLATFORM") == NAME else None
    _neutralise_missing_accelerator()
    return _CLASS


def accelerator_present() -> bool:
    """Whether torch can reach a device that computes faster than the processor.

    A CUDA build of torch without a driver names CUDA as its accelerator but reaches no device; that counts as absent.
    """
    import torch

    return bool(torch.accelerator.is_available())


def _neutralise_missing_accelerator() -> None:
    """Let code written for an accelerator run without one.

    Two calls fail on a build of torch that expects a device which is not there. `torch.get_device_module()` answers
    `torch.cuda`, whose `synchronize` raises and so ends the scheduler on a memory release (`weight_updater.py`).
    Pinned host memory, which LoRA layers and the overlap scheduler ask for unconditionally, needs a driver; pinning
    means nothing here, so the request for it is dropped.
    """
    import torch

    if getattr(torch, "_reef_ref_neutralised", False):
        return
    original = torch.get_device_module

    @functools.wraps(original)
    def get_device_module(device: torch.device | str | None = None) -> Any:
        return torch.cpu if device is None else original(device)

    torch.get_device_module = get_device_module  # type: ignore[assignment]
    for name in _PINNING_FACTORIES:
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = _unpinned  # type: ignore[method-assign,assignment]
    torch._reef_ref_neutralised = True  # type: ignore[attr-defined]


def _without_pinning(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def unpinned(*args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return unpinned


def _unpinned(tensor: torch.Tensor, device: object = None) -> torch.Tensor:
    return tensor
