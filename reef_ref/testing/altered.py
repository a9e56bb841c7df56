"""Alter a module in every process that an engine starts, as another release of it would be.

A `sitecustomize.py` on `PYTHONPATH` runs code right after the module has been imported.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["FORGETFUL", "altered"]

FORGETFUL = """
_init = Req.__init__
def __init__(self, *args, **kwargs):
    _init(self, *args, **kwargs)
    self.extra_key = None
Req.__init__ = __init__
"""
"""For `sglang.srt.managers.schedule_batch`: a request's key without its adapter, so that all adapters share one
namespace."""

_TEMPLATE = """
import importlib.abc
import importlib.machinery
import sys

MODULE = {module!r}
CODE = {code!r}


class Loader(importlib.abc.Loader):
    def __init__(self, real):
        self.real = real

    def create_module(self, spec):
        return self.real.create_module(spec)

    def exec_module(self, module):
        self.real.exec_module(module)
        exec(CODE, vars(module))


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        spec.loader = Loader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder())
"""


def altered(directory: Path, module: str, code: str) -> dict[str, str]:
    """Write the alteration to `directory` and return the environment under which processes see it."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(_TEMPLATE.format(module=module, code=code))
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(directory), os.environ.get("PYTHONPATH")]))}
