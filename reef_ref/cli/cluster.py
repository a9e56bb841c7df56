"""Calls spread over a Ray cluster: the one that ``RAY_ADDRESS`` names, or one of this machine for as long as it takes.

The only part of the command line that knows Ray. A cluster of this machine listens on loopback alone, to nobody without
its token, and reports to nobody. On other machines, reef-ref must be installed in the same version.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from reef_ref.cli.trouble import Status, Trouble
from reef_ref.engines.ray import alone

T = TypeVar("T")
STORE = 96 << 20
"""Bytes of memory that a cluster of this machine shares between processes: results are small."""
ADDRESS = "RAY_ADDRESS"
PATIENCE = 10.0
"""Seconds for a cluster to accept a connection."""


def spread(function: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, T]]:
    """What the calls answer, each with its number, in the order in which they are done.

    Args:
        function: of a module that every machine of the cluster has.
        calls: its arguments.

    Raises:
        Trouble: Ray is not installed, cannot be reached, or lost a call for good.
    """
    address = os.environ.get(ADDRESS, "")
    if not address:
        os.environ.update(alone() | os.environ)
    try:
        import ray
    except ModuleNotFoundError:
        raise Trouble("--ray needs ray: install reef-ref[ray]") from None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not address:
        options |= {"include_dashboard": False, "object_store_memory": STORE}
    try:
        _answers(address)
        ray.init(**options)
    except Exception as error:  # Ray has no class of its own for a node that does not start
        where = address or "this machine"
        raise Trouble(f"--ray: no cluster on {where}: {error}", Status.UNDETERMINED) from error
    try:
        task = ray.remote(num_cpus=1, max_retries=1)(function)
        waiting = {task.remote(*call): number for number, call in enumerate(calls)}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            for call in done:
                yield waiting.pop(call), ray.get(call)
    except ray.exceptions.RayError as error:
        reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
        raise Trouble(f"undetermined: Ray lost a part of the work: {reason}", Status.UNDETERMINED) from error
    finally:
        ray.shutdown()


def _answers(address: str) -> None:
    """Find out soon whether anybody listens: Ray itself would try for minutes.

    Raises:
        OSError: nobody does.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


__all__ = ["spread"]
