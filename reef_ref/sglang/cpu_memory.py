"""A memory saver for the processor: releases weights and KV for real, and poisons what comes back.

SGLang frees device memory through `torch_memory_saver`, which needs CUDA; without it `/release_memory_occupation`
answers 200 and frees nothing. This one stands in through SGLang's hook registry
(`sglang/srt/utils/torch_memory_saver_adapter.py` of 0.5.23) wherever `--enable-memory-saver` is given and no
accelerator is present.

Between release and resume a region has no memory at all: touching it ends the process, as an unmapped page does on a
device. After a resume its content is NaN (the largest integer for integers): a cache entry that outlived a release
spoils every token it takes part in.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

TARGET = "sglang.srt.utils.torch_memory_saver_adapter.TorchMemorySaverAdapter.create"
"""The factory that every part of SGLang gets its saver from."""


def register() -> None:
    """Hook the factory, unless an accelerator is present: there `torch_memory_saver` works."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from reef_ref.sglang.cpu_platform import accelerator_present

    if accelerator_present():
        return
    saver = CpuMemorySaver()

    def create(original: Any, enable: bool) -> Any:
        return CpuMemorySaverAdapter(saver) if enable else original(enable)

    HookRegistry.register(TARGET, create, HookType.AROUND)


class CpuMemorySaver:
    """Remembers which storages were made inside each region and releases or restores them. One per process."""

    def __init__(self) -> None:
        self._regions: dict[str, dict[int, _Allocation]] = {}
        self._released: dict[str, list[_Released]] = {}
        self._disabled = 0

    @contextmanager
    def region(self, tag: str, enable_cpu_backup: bool = False) -> Iterator[None]:
        """Record what is allocated inside the block under `tag`; with a backup its content survives a release."""
        region = self._regions.setdefault(tag, {})
        with _record_storages(region, enable_cpu_backup, lambda: not self._disabled):
            yield
        for key in [key for key, allocation in region.items() if allocation.expired()]:
            del region[key]

    @contextmanager
    def disabled(self) -> Iterator[None]:
        """Record nothing inside the block."""
        self._disabled += 1
        try:
            yield
        finally:
            self._disabled -= 1

    def release(self, tag: str) -> int:
        """Give the memory of `tag` back to the machine and return how many bytes that was.

        Raises:
            RuntimeError: the region is released already.
        """
        if tag in self._released:
            raise RuntimeError(f"memory region {tag!r} is released already; resume it first")
        gc.collect()
        released = [gone for allocation in self._regions.get(tag, {}).values() if (gone := allocation.release())]
        self._released[tag] = released
        return sum(gone.nbytes for gone in released)

    def resume(self, tag: str) -> int:
        """Allocate the memory of `tag` again, poisoned or from its backup, and return how many bytes that was.

        Raises:
            RuntimeError: the region is not released.
        """
        if tag not in self._released:
            raise RuntimeError(f"memory region {tag!r} is not released; there is nothing to resume")
        released = self._released.pop(tag)
        for gone in released:
            gone.restore()
        return sum(gone.nbytes for gone in released)

    def resident_bytes(self, tag: str) -> int:
        """Bytes that the region holds now."""
        return sum(allocation.nbytes() for allocation in self._regions.get(tag, {}).values())


class CpuMemorySaverAdapter:
    """The face of `CpuMemorySaver` that SGLang's `TorchMemorySaverAdapter` prescribes."""

    enabled = True

    def __init__(self, saver: CpuMemorySaver) -> None:
        self._saver = saver

    def check_validity(self, caller_name: str) -> None:
        """Nothing to warn about: this saver works."""

    @contextmanager
    def configure_subprocess(self) -> Iterator[None]:
        """Child processes need no preparation."""
        yield

    def region(self, tag: str, enable_cpu_backup: bool = False) -> Any:
        """See `CpuMemorySaver.region`."""
        return self._saver.region(tag, enable_cpu_backup)

    @contextmanager
    def cuda_graph(self, **kwargs: object) -> Iterator[None]:
        """There are no graphs to capture."""
        yield

    def disable(self) -> Any:
        """See `CpuMemorySaver.disabled`."""
        return self._saver.disabled()

    def pause(self, tag: str) -> None:
        """Release the region; see `CpuMemorySaver.release`."""
        self._saver.release(tag)

    def resume(self, tag: str) -> None:
        """Bring the region back; see `CpuMemorySaver.resume`."""
        self._saver.resume(tag)


class _Allocation:
    """One storage, held weakly so that recording it does not keep it alive."""

    def __init__(self, storage: torch.UntypedStorage, dtype: torch.dtype, backup: bool) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self._reference = StorageWeakRef(storage)
        self._dtype = dtype
        self._backup = backup

    def expired(self) -> bool:
        return bool(self._reference.expired())

    def storage(self) -> torch.UntypedStorage | None:
        import torch

        found: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self._reference.cdata)
        return found

    def nbytes(self) -> int:
        storage = self.storage()
        return 0 if storage is None else storage.nbytes()

    def release(self) -> _Released | None:
        storage = self.storage()
        if storage is None or storage.nbytes() == 0 or not storage.resizable():
            return None
        gone = _Released(storage, storage.nbytes(), self._dtype, storage.clone() if self._backup else None)
        storage.resize_(0)
        return gone


class _Released:
    """A storage without memory, and what is needed to give it memory again."""

    def __init__(
        self, storage: torch.UntypedStorage, nbytes: int, dtype: torch.dtype, backup: torch.UntypedStorage | None
    ) -> None:
        self.nbytes = nbytes
        self._storage = storage
        self._dtype = dtype
        self._backup = backup

    def restore(self) -> None:
        import torch

        self._storage.resize_(self.nbytes)
        if self._backup is not None:
            self._storage.copy_(self._backup)
            return
        items = self.nbytes // self._dtype.itemsize
        content = torch.empty(0, dtype=self._dtype).set_(self._storage, 0, (items,), (1,))
        content.fill_(poison(self._dtype))


def poison(dtype: torch.dtype) -> float | int | bool:
    """The value that released memory comes back with: NaN, or the largest value where there is no NaN."""
    import torch

    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def _record_storages(region: dict[int, _Allocation], backup: bool, recording: Callable[[], bool]) -> Any:
    """A context in which every storage that an operator makes anew is entered in `region` while `recording` holds."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_iter

    def storages(values: object) -> Iterator[tuple[torch.UntypedStorage, torch.dtype]]:
        for value in tree_iter(values):
            if type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu":
                yield value.untyped_storage(), value.dtype

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            if not recording():
                return made
            given = {storage._cdata for storage, _ in storages((args, kwargs))}
            for storage, dtype in storages(made):
                if storage._cdata not in given and storage.nbytes() and storage._cdata not in region:
                    region[storage._cdata] = _Allocation(storage, dtype, backup)
            return made

    return Recorder()
