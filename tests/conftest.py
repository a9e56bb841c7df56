"""What every test shares."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest

from model_check.machine import CACHE_VARIABLE


def pytest_configure(config: pytest.Config) -> None:
    """Keep code that tests compile away from the user's own: for one run, shared by its workers, then gone."""
    if CACHE_VARIABLE not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="reef-ref-tests-", ignore_cleanup_errors=True)
        os.environ[CACHE_VARIABLE] = folder.name
        config.add_cleanup(folder.cleanup)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has what it starts in the background ignore interrupts, and whatever tests start inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
