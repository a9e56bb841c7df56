"""The platform class that `cpu_platform.activate` names. Kept apart because importing it imports SGLang."""

from __future__ import annotations

import psutil
import torch
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform


class CpuPlatform(SRTPlatform):  # type: ignore[misc]  # SGLang ships no type information
    """SGLang on the processor, with torch's own operators only."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_device_total_memory(self, device_id: int = 0) -> int:
        """Memory of the machine in bytes."""
        return int(psutil.virtual_memory().total)

    def get_current_memory_usage(self, device: torch.device | None = None) -> float:
        """Memory in use on the whole machine in bytes, so that total minus usage is what is really free."""
        memory = psutil.virtual_memory()
        return float(memory.total - memory.available)

    def get_available_memory(self, device_id: int = 0) -> tuple[int, int]:
        """Free and total memory of the machine in bytes."""
        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    def get_device(self, device_id: int = 0) -> torch.device:
        """The one processor device, whatever the rank."""
        return torch.device("cpu")

    def get_device_name(self, device_id: int = 0) -> str:
        """Name for logs."""
        return "cpu"

    def get_default_attention_backend(self) -> str:
        """The attention that needs no compiled kernel."""
        return "torch_native"

    def get_torch_distributed_backend_str(self) -> str:
        """Collectives between ranks go over gloo."""
        return "gloo"

    def get_dispatch_key_name(self) -> str:
        """Fused operators take their `forward_native`."""
        return "native"

    def is_pin_memory_available(self, device: object = None) -> bool:
        """There is no device to pin memory for."""
        return False
