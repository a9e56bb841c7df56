"""A Ray cluster of this machine, in a process of its own: drivers come and go, and it stays.

    python -m tests.engine.ray_cluster CPUS FOLDER

It writes its address, and ends when its standard input does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reef_ref.engines.processes import end_session, session_members

STORE = 80 << 20
"""Bytes that processes share: what engines answer is small."""
END_S = 30.0


@dataclass(frozen=True)
class Cluster:
    """Where a cluster is, and the session that all its processes are of."""

    address: str
    session: int

    def engines(self) -> list[str]:
        """The live processes of engines, in words."""
        lines = [" ".join(process.cmdline()) for process in session_members(self.session)]
        return [line for line in lines if "sglang" in line or "_Host" in line]


@contextmanager
def cluster(cpus: int) -> Iterator[Cluster]:
    """A cluster in the environment of this process, which has `alone`; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # The paths of sockets in it have to be short.
    command = [sys.executable, "-m", "tests.engine.ray_cluster", str(cpus), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            address = child.stdout.readline().decode().strip()
            assert address.startswith("127.0.0.1:"), address
            yield Cluster(address, child.pid)
        finally:
            child.stdin.close()
            try:
                child.wait(timeout=END_S)
            finally:
                left = end_session(child.pid)
                shutil.rmtree(folder)
    assert left == []


def main(cpus: int, folder: str) -> None:
    import ray

    context = ray.init(
        num_cpus=cpus,
        include_dashboard=False,
        object_store_memory=STORE,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=folder,
    )
    print(context.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
