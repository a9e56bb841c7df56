"""Ending whole process trees, by id.

A killed parent leaves children behind that no walk over descendants finds any more. A server started here therefore
leads a session of its own, and every process of that session belongs to it, whoever its parent is now. The kernel gives
a session's number to nobody else while a member lives, so no stranger is ever hit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["end_processes", "end_session", "session_members"]

LAST_WAIT_S = 10.0
ROUNDS = 5


def session_members(session: int) -> list[psutil.Process]:
    """The live processes of a session, zombies excepted."""
    members = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return members


def end_session(session: int) -> list[int]:
    """Kill every process of a session and wait for their end; the ids that are still there after the bound."""
    for _ in range(ROUNDS):  # A process may have been born while the list was made.
        members = session_members(session)
        if not members:
            return []
        _kill(members)
    return [process.pid for process in session_members(session)]


def end_processes(pids: Iterable[int]) -> list[int]:
    """Kill processes and their descendants and wait for their end; the ids that are still there after the bound."""
    victims: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            process = psutil.Process(pid)
            victims.update({child.pid: child for child in process.children(recursive=True)})
            victims[pid] = process
        except psutil.NoSuchProcess:
            continue
    return [process.pid for process in _kill(list(victims.values()))]


def _kill(processes: list[psutil.Process]) -> list[psutil.Process]:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=LAST_WAIT_S)
    return list(alive)
