"""From a module of code to functions that Python can call; compiled once, then kept on disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

CACHE_VARIABLE = "REEF_REF_CACHE"
"""Names the folder of compiled searches; empty: keep none. Default: ``reef-ref`` in the user's cache folder."""

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "generate": (ctypes.c_uint64, *[ctypes.c_void_p] * 5, ctypes.c_uint32),
    "judge": (ctypes.c_uint64, *[ctypes.c_void_p] * 2),
    "promise": (ctypes.c_uint64, ctypes.c_void_p),
    "canonical": (None, ctypes.c_void_p),
    "orbit": (ctypes.c_uint64, ctypes.c_void_p),
    "expand": (None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32),
    "rehash": (None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64),
    "parent": (ctypes.c_uint64, *[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 2, ctypes.c_void_p, ctypes.c_uint32),
    "find": (ctypes.c_uint64, *[ctypes.c_void_p] * 2),
    "seed": (ctypes.c_uint64, *[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 4, ctypes.c_void_p),
    "held": (None, *[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 2),
    "places": (None, *[ctypes.c_void_p] * 2, *[ctypes.c_uint64] * 2),
    "edges": (
        None,
        ctypes.c_void_p,
        *[ctypes.c_uint64] * 2,
        *[ctypes.c_void_p] * 6,
        ctypes.c_uint64,
        ctypes.c_uint32,
    ),
    "reverse": (None, ctypes.c_uint64, *[ctypes.c_void_p] * 6),
    "spread": (None, *[ctypes.c_void_p] * 6, ctypes.c_uint64),
    "orbits": (ctypes.c_uint64, ctypes.c_void_p, *[ctypes.c_uint64] * 2),
    "sort": (None, ctypes.c_void_p, ctypes.c_uint64),
    "sift": (ctypes.c_uint64, ctypes.c_void_p, *[ctypes.c_uint64] * 2, ctypes.c_void_p, ctypes.c_uint64),
    "tally": (None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p),
    "ask": (None, ctypes.c_void_p, *[ctypes.c_uint64] * 2, ctypes.c_void_p),
    "link": (
        ctypes.c_uint64,
        ctypes.c_void_p,
        *[ctypes.c_uint64] * 2,
        ctypes.c_void_p,
        *[ctypes.c_uint64] * 2,
        *[ctypes.c_void_p] * 3,
        ctypes.c_uint32,
    ),
    "sweep": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p),
}


class Machine:
    """The compiled functions of one module, as attributes, and how long they took to make ready.

    A module need not have all of them: what it lacks is no attribute.

    `key` names everything the code depends on; `build` writes the module when no compiled one is kept under that name.
    """

    generate: Callable[..., int]
    judge: Callable[..., int]
    promise: Callable[..., int]
    canonical: Callable[..., None]
    orbit: Callable[..., int]
    expand: Callable[..., None]
    rehash: Callable[..., None]
    parent: Callable[..., int]
    find: Callable[..., int]
    seed: Callable[..., int]
    held: Callable[..., None]
    places: Callable[..., None]
    edges: Callable[..., None]
    reverse: Callable[..., None]
    spread: Callable[..., None]
    orbits: Callable[..., int]
    sort: Callable[..., None]
    sift: Callable[..., int]
    tally: Callable[..., None]
    ask: Callable[..., None]
    link: Callable[..., int]
    sweep: Callable[..., int]

    def __init__(self, key: str, build: Callable[[], str], effort: int) -> None:
        start = time.perf_counter()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        host, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=host, features=features, opt=effort, reloc="pic", codemodel="default"
        )
        version = ".".join(map(str, llvm.llvm_version_info))
        digest = hashlib.sha256("\0".join((key, host, features, version, str(effort))).encode()).hexdigest()
        folder = cache_folder()
        kept = folder / f"{digest}.o" if folder else None
        code = _read(kept)
        self.from_cache = code is not None
        if code is None:
            code = _compile(build(), target, effort)
            _keep(kept, code)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        for name, (result, *args) in _SIGNATURES.items():
            if address := self._engine.get_function_address(name):
                setattr(self, name, ctypes.CFUNCTYPE(result, *args)(address))
        self.seconds = time.perf_counter() - start


def _compile(text: str, target: llvm.TargetMachine, effort: int) -> bytes:
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=effort)
    options.loop_unrolling = options.slp_vectorization = options.loop_vectorization = False
    llvm.create_pass_builder(target, options).getModulePassManager().run(
        module, llvm.create_pass_builder(target, options)
    )
    return bytes(target.emit_object(module))


def cache_folder() -> Path | None:
    """Where compiled searches are kept, or none."""
    named = os.environ.get(CACHE_VARIABLE)
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "reef-ref"


def _read(path: Path | None) -> bytes | None:
    """A kept object, if its digest says that it is whole: a torn file would run as code."""
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    code, digest = data[:-32], data[-32:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _keep(path: Path | None, code: bytes) -> None:
    """Keep an object for the next run; not being able to is no error."""
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code + hashlib.sha256(code).digest())
        Path(file.name).replace(path)
    except OSError:
        return
