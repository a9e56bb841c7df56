"""What the tests on real engines share."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that spin on a busy machine slow an engine down twentyfold
