"""How much memory a process holds, standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def resident() -> int:
    """Bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
