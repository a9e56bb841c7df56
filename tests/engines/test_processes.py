"""Ending whole process groups."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

from reef_ref.engines.processes import end_group

PARENT = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
sys.stdin.read()
"""


def family() -> tuple[subprocess.Popen[bytes], int, float]:
    """A process that leads a group, the id of its child, and when it was started."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline()), psutil.Process(parent.pid).create_time()


def closed(parent: subprocess.Popen[bytes]) -> None:
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.wait(timeout=10)
    parent.stdin.close()
    parent.stdout.close()


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_group_ends_with_its_leader() -> None:
    parent, child, started = family()
    assert end_group(parent.pid, started) == []
    closed(parent)
    assert not lives(child)
    assert not lives(parent.pid)


def test_what_a_dead_leader_left_behind_is_found() -> None:
    """No walk over descendants would, and the leader is not there to be asked."""
    parent, child, started = family()
    os.kill(parent.pid, signal.SIGKILL)
    closed(parent)
    assert lives(child)
    assert end_group(parent.pid, started) == []
    assert not lives(child)


def test_a_stranger_who_was_given_the_number_is_left_alone() -> None:
    """A process started at another time is another process."""
    parent, child, started = family()
    assert end_group(parent.pid, started - 3600.0) == []
    assert lives(child)
    end_group(parent.pid, started)
    closed(parent)
