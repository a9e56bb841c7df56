"""Ending whole process trees, by id.

A killed parent leaves children behind that no walk over descendants finds any more. A server started here therefore
leads a session of its own, and every process of that session belongs to it, whoever its parent is now. The kernel gives
a session's number to nobody else while a member lives, so no stranger is ever hit. The same holds of a process group,
which is what a process leads that somebody else has started.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["end_group", "end_processes", "end_session", "session_members"]

LAST_WAIT_S = 10.0
ROUNDS = 5
SAME_START_S = 1.0
"""Two readings of one process's start differ by less: the kernel counts from a boot whose time is an estimate."""


def session_members(session: int) -> list[psutil.Process]:
    """The live processes of a session, zombies excepted."""
    return _members(session, os.getsid)


def end_session(session: int) -> list[int]:
    """Kill every process of a session and wait for their end; the ids that are still there after the bound."""
    return _end_all(session, os.getsid)


def end_group(group: int, leader_started: float) -> list[int]:
    """Kill every process of a group and wait for their end; the ids that are still there after the bound.

    Args:
        group: the group's number, which is the id of the process that led it.
        leader_started: when that process was started, in seconds since the epoch. A process of this id that was started
            at another time shows that the group has ended and its number been given away: then nobody is killed.
    """
    try:
        started = psutil.Process(group).create_time()
    except psutil.NoSuchProcess:
        pass  # It may have left children.
    else:
        if abs(started - leader_started) > SAME_START_S:
            return []
    return _end_all(group, os.getpgid)


def _members(number: int, of: Callable[[int], int]) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        try:
            if of(process.pid) == number and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return members


def _end_all(number: int, of: Callable[[int], int]) -> list[int]:
    for _ in range(ROUNDS):  # A process may have been born while the list was made.
        members = _members(number, of)
        if not members:
            return []
        _kill(members)
    return [process.pid for process in _members(number, of)]


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
