"""A thousand coordinators are killed in the middle of writing: never is a record torn, lost or regressed.

Real processes, a real file, SIGKILL at random instants. Each child writes one record after the other, as fast as it
can, and says on a pipe which one it *begins* to write and which one is *durable*. What the file holds after the kill is
the last durable record or the one that was begun; and the lock of the dead is free.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from pathlib import Path

from reef_ref.load_id import LoadId
from reef_ref.markers import Load, MarkerFile, Record, Status, decode, encode

KILLS = 1000
SEED = 20_260_901
WORD = struct.Struct("<cI")
BEGUN, DURABLE, READY = b"b", b"d", b"r"
LONGEST_LIFE_S = 0.006
STEPS = (
    Status.RUNNING,
    Status.CHECKPOINT,
    Status.UPDATING_WEIGHTS,
    Status.READY_TO_COMMIT,
    Status.HEAD_COMMITTED,
    Status.COMPLETE,
)


def record_number(number: int) -> Record:
    """Record `number` of an endless legal sequence; its `rollout` is the number."""
    job, step = divmod(number, len(STEPS))
    load_id = LoadId("a", job + 1) if STEPS[step].published else None
    return Record(
        status=STEPS[step],
        job=f"job-{job}",
        rollout=number,
        scenario_step=job,
        parent=Load(load_id=LoadId("a", job), checkpoint="/parent"),
        checkpoint=None if step == 0 else f"/candidate/{'x' * (number % 3000)}",
        target=load_id,
        load_id=load_id,
        acknowledged=step >= STEPS.index(Status.HEAD_COMMITTED),
    )


def number_of(data: bytes | None) -> int:
    """Which record the file holds; -1 is none. Raises if it is torn or not the one that was written."""
    if data is None:
        return -1
    record = decode(data)
    assert data == encode(record_number(record.rollout))
    return record.rollout


def live(folder: Path, pipe: int) -> None:
    """A life: take the lock, find what is there, and write on from it until killed."""
    with MarkerFile(folder) as marker:
        number = number_of(marker.read_now())
        os.write(pipe, WORD.pack(READY, 0))
        while True:
            number += 1
            data = encode(record_number(number))
            os.write(pipe, WORD.pack(BEGUN, number))
            marker.replace_now(data)
            os.write(pipe, WORD.pack(DURABLE, number))


def killed_after(folder: Path, seconds: float) -> tuple[int, int]:
    """Kill a life `seconds` after it is ready; the last number begun and the last durable one, -1 for none."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            live(folder, writer)
        finally:
            os._exit(1)
    try:
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as pipe:
            first = pipe.read(WORD.size)
            assert first is not None
            assert WORD.unpack(first)[0] == READY
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
            words = pipe.readall() or b""
    finally:
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    last = dict(WORD.iter_unpack(words[: len(words) // WORD.size * WORD.size]))
    return last.get(BEGUN, -1), last.get(DURABLE, -1)


def test_a_thousand_kills_leave_no_torn_and_no_regressed_record(tmp_path: Path) -> None:
    """Each life goes on where the last one was killed."""
    chance = random.Random(SEED)
    held, in_flight = -1, 0
    for _ in range(KILLS):
        begun, durable = killed_after(tmp_path, chance.uniform(0, LONGEST_LIFE_S))
        with MarkerFile(tmp_path) as marker:
            found = number_of(marker.read_now())
        least = max(held, durable)
        assert least <= found <= max(least, begun)
        in_flight += begun > durable
        held = found
    assert held > KILLS / 10, "the lives wrote too little for the kills to mean anything"
    assert in_flight > KILLS / 10, "too few kills hit a write"
