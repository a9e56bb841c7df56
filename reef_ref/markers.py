"""The marker: the one durable record of the newest training job.

One JSON file. It is replaced whole (temporary file, fsync, rename, fsync of the folder), so that a reader finds either
the old record or the new one. Symbolic links are refused at every name. A record that cannot be understood is an error
that names the file and the reason; nothing is guessed from it. A lock keeps a second coordinator out, and the kernel
lets go of it when its holder dies.

Source: reef-semantics sections 2.1 to 2.3.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator, ValidationError, model_validator

from reef_ref.load_id import LoadId

__all__ = [
    "EDGES",
    "ForbiddenEdge",
    "InvalidRecord",
    "Load",
    "MarkerError",
    "MarkerFile",
    "MarkerInUse",
    "Record",
    "RecordFile",
    "Status",
    "check_checkpoint_folder",
    "check_edge",
    "decode",
    "encode",
]

SCHEMA = 1
MARKER_NAME = ".reef-latest-job.json"
LOCK_NAME = ".reef-latest-job.lock"
LARGEST_RECORD = 1 << 20
"""Bytes; a longer file is not a record."""

T = TypeVar("T")


class MarkerError(Exception):
    """Something is wrong with the marker; the text says where, what, and what would be right."""


class InvalidRecord(MarkerError):  # noqa: N818  The name says what was found.
    """The marker's file does not hold a record: torn, of another schema, or not valid."""


class MarkerInUse(MarkerError):  # noqa: N818  The name says why it cannot be opened.
    """Another coordinator holds the marker."""


class ForbiddenEdge(MarkerError):  # noqa: N818  The name says what was asked for.
    """One status does not lead to the other."""


class Status(StrEnum):
    """How far the newest job has come; the names are upstream's."""

    RUNNING = "RUNNING"
    """The optimizer may have moved."""
    CHECKPOINT = "CHECKPOINT"
    """The candidate's bytes are on disk; no engine has seen any."""
    UPDATING_WEIGHTS = "UPDATING_WEIGHTS"
    """Engines may hold anything."""
    READY_TO_COMMIT = "READY_TO_COMMIT"
    """Every engine was verified, and is paused."""
    HEAD_COMMITTED = "HEAD_COMMITTED"
    """The service's head has moved; engines may generate."""
    COMPLETE = "COMPLETE"
    """The load is served."""
    REJECTING = "REJECTING"
    """The candidate was refused; the parent is being restored."""
    REJECTED = "REJECTED"
    """The parent is served."""

    @property
    def published(self) -> bool:
        """Whether engines were verified to hold the job's load."""
        return self in {Status.READY_TO_COMMIT, Status.HEAD_COMMITTED, Status.COMPLETE}

    @property
    def settled(self) -> bool:
        """Whether a new job may begin."""
        return self in {Status.COMPLETE, Status.REJECTED}


EDGES: frozenset[tuple[Status, Status]] = frozenset(
    {
        (Status.RUNNING, Status.CHECKPOINT),
        (Status.CHECKPOINT, Status.UPDATING_WEIGHTS),
        (Status.CHECKPOINT, Status.REJECTING),
        (Status.UPDATING_WEIGHTS, Status.READY_TO_COMMIT),
        (Status.READY_TO_COMMIT, Status.HEAD_COMMITTED),
        (Status.HEAD_COMMITTED, Status.COMPLETE),
        (Status.REJECTING, Status.REJECTED),
    }
)
"""Where a job may go from each status; `check_edge` knows the writes that are no edge."""


def _load_id(value: object) -> LoadId:
    if isinstance(value, LoadId):
        return value
    if isinstance(value, str):
        return LoadId.parse(value)
    message = "a load id is text: incarnation:sequence"
    raise ValueError(message)


StoredLoadId = Annotated[LoadId, PlainValidator(_load_id), PlainSerializer(str, return_type=str)]
NonEmpty = Annotated[str, Field(min_length=1)]


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, arbitrary_types_allowed=True)


class Load(_Stored):
    """A load and its bytes: its id, and the folder that holds the checkpoint."""

    load_id: StoredLoadId
    checkpoint: NonEmpty
    checksum: NonEmpty | None = None
    """Of the content, as engines report it; none if it was never learnt."""


class Record(_Stored):
    """What is durably known of the newest job.

    `checkpoint` is the folder with the candidate's bytes; `target` the id under which they are sent, written before
    the first byte leaves; `load_id` the id under which every engine was verified; `parent` the load that was served
    when the job began. `previous` is the settled record that this job replaced, for the case that training left
    nothing behind.
    """

    status: Status = Field(strict=False)
    job: NonEmpty
    rollout: Annotated[int, Field(ge=0)]
    scenario: NonEmpty = "default"
    scenario_step: Annotated[int, Field(ge=0)] | None = None
    parent: Load
    checkpoint: NonEmpty | None = None
    checksum: NonEmpty | None = None
    target: StoredLoadId | None = None
    load_id: StoredLoadId | None = None
    acknowledged: bool = False
    previous: Record | None = None
    metrics: Mapping[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fields_fit_the_status(self) -> Self:
        status = self.status
        if not status.settled and self.scenario_step is None:
            message = f"scenario_step is required while {status}"
            raise ValueError(message)
        if status is not Status.RUNNING and self.checkpoint is None:
            message = f"checkpoint is required in {status}"
            raise ValueError(message)
        if status is Status.RUNNING and self.checkpoint is not None:
            message = "checkpoint must be absent while RUNNING"
            raise ValueError(message)
        if status.published != (self.load_id is not None):
            message = f"load_id must be {'present' if status.published else 'absent'} in {status}"
            raise ValueError(message)
        if self.target is not None and not (status.published or status is Status.UPDATING_WEIGHTS):
            message = f"target must be absent in {status}"
            raise ValueError(message)
        if self.load_id is not None and self.target != self.load_id:
            message = f"load_id {self.load_id} is not the target {self.target} under which the bytes were sent"
            raise ValueError(message)
        if self.acknowledged != (status in {Status.HEAD_COMMITTED, Status.COMPLETE}):
            message = f"acknowledged must be {not self.acknowledged} in {status}"
            raise ValueError(message)
        if self.previous is not None and (not self.previous.status.settled or self.previous.previous is not None):
            message = "previous must be a settled record without a previous one of its own"
            raise ValueError(message)
        return self

    def becoming(self, status: Status, **changes: Any) -> Record:
        """This record in another status, with other fields changed; validated, and nothing is written."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return Record.model_validate({**fields, "status": status, **changes})

    @property
    def served_after_settling(self) -> Load:
        """The load that engines serve once this job is settled: its own, or its parent if it was rejected."""
        if self.load_id is not None and self.checkpoint is not None:
            return Load(load_id=self.load_id, checkpoint=self.checkpoint, checksum=self.checksum)
        return self.parent


def check_edge(old: Record | None, new: Record) -> None:
    """Raise `ForbiddenEdge` unless `new` may replace `old`.

    Besides the edges: RUNNING begins a job from nothing or from a settled record; the target is added while
    UPDATING_WEIGHTS, once; the settled record that a RUNNING job replaced may be restored.
    """
    if new.status is Status.RUNNING:
        if old is None or old.status.settled:
            return
    elif old is not None:
        same_job = old.job == new.job
        if same_job and (old.status, new.status) in EDGES and _keeps(old, new):
            return
        if old.status is Status.RUNNING and new == old.previous:
            return
        adds_target = old.target is None and new == old.model_copy(update={"target": new.target})
        if old.status is Status.UPDATING_WEIGHTS and new.target is not None and adds_target:
            return
    before = "no record" if old is None else f"{old.status} of job {old.job}"
    message = f"{before} does not lead to {new.status} of job {new.job}"
    raise ForbiddenEdge(message)


def _keeps(old: Record, new: Record) -> bool:
    """Whether what was once recorded stays: an edge adds facts and changes none."""
    kept = ("rollout", "scenario", "parent", "checkpoint", "checksum", "target", "load_id")
    return all(getattr(old, name) in (None, getattr(new, name)) for name in kept)


def encode(record: Record) -> bytes:
    """The record as the file holds it: one JSON object with its schema version, and a newline."""
    body = {"schema": SCHEMA, "record": record.model_dump(mode="json", exclude_none=True)}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(data: bytes, where: object = "marker") -> Record:
    """Read what `encode` wrote; `InvalidRecord` says where and why for anything else."""
    try:
        body = json.loads(data, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except RecursionError:
        message = f"{where}: not a record: nested too deeply"
        raise InvalidRecord(message) from None
    except ValueError as error:
        message = f"{where}: not a record, torn or not JSON ({error})"
        raise InvalidRecord(message) from error
    if not isinstance(body, dict) or set(body) != {"schema", "record"}:
        message = f'{where}: not a record; expected {{"schema": {SCHEMA}, "record": ...}}'
        raise InvalidRecord(message)
    if body["schema"] != SCHEMA or isinstance(body["schema"], bool):
        message = f"{where}: schema {body['schema']!r} is unknown; this release reads schema {SCHEMA}"
        raise InvalidRecord(message)
    try:
        return Record.model_validate(body["record"])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "record"
        message = f"{where}: {place}: {first['msg']}"
        raise InvalidRecord(message) from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        message = "an object names one key twice"
        raise ValueError(message)
    return found


def _no_constant(name: str) -> Any:
    message = f"{name} is no number"
    raise ValueError(message)


def check_checkpoint_folder(path: Path) -> None:
    """Raise `MarkerError` unless `path` is a folder and no symbolic link."""
    try:
        mode = path.lstat().st_mode
    except OSError as error:
        message = f"checkpoint {path}: {error.strerror}"
        raise MarkerError(message) from error
    if stat.S_ISLNK(mode):
        message = f"checkpoint {path}: is a symbolic link; expected the folder itself"
        raise MarkerError(message)
    if not stat.S_ISDIR(mode):
        message = f"checkpoint {path}: is no folder"
        raise MarkerError(message)


class RecordFile(Protocol):
    """Where a record is kept. After a replace that raised, the file holds the old bytes or the new ones."""

    async def read(self) -> bytes | None:
        """The bytes, or none if there never were any."""

    async def replace(self, data: bytes) -> None:
        """Replace the bytes, durably: they are on the disk when this returns."""


class MarkerFile:
    """The marker in a folder of a real file system; at most one at a time, on this machine, per folder.

    One thread does the reading and writing, in order. A call that is abandoned by its caller still runs to its end
    there, before any later one begins: what is read afterwards is what it left.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / MARKER_NAME
        try:
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            message = f"{folder}: {error.strerror}; expected a folder, not a symbolic link"
            raise MarkerError(message) from error
        try:
            self._lock = self._take_lock()
        except BaseException:
            os.close(self._folder)
            raise
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reef-ref-marker")

    def _take_lock(self) -> int:
        path = self._path.with_name(LOCK_NAME)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            lock = os.open(LOCK_NAME, flags, 0o600, dir_fd=self._folder)
        except OSError as error:
            message = f"{path}: {error.strerror}; expected a plain file or nothing"
            raise MarkerError(message) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(lock, 32, 0).decode(errors="replace").strip()
            os.close(lock)
            message = f"{path}: another coordinator holds the marker" + (f" (process {holder})" if holder else "")
            raise MarkerInUse(message) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        return lock

    @property
    def path(self) -> Path:
        """The marker's file."""
        return self._path

    def read_now(self) -> bytes | None:
        """The bytes, or none if there is no file; `MarkerError` if there is something else, or too much."""
        try:
            file = os.open(MARKER_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            what = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            message = f"{self._path}: {what}; expected a plain file"
            raise MarkerError(message) from error
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                message = f"{self._path}: expected a plain file"
                raise MarkerError(message)
            data = stream.read(LARGEST_RECORD + 1)
        if len(data) > LARGEST_RECORD:
            message = f"{self._path}: longer than {LARGEST_RECORD} bytes; that is no record"
            raise InvalidRecord(message)
        return data

    def replace_now(self, data: bytes) -> None:
        """Replace the file's bytes, durably."""
        # One name for the temporary file: the lock leaves no second writer, and what a crash left is written over.
        temporary = f"{MARKER_NAME}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=self._folder), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, MARKER_NAME, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    async def read(self) -> bytes | None:
        """As `read_now`, in the marker's thread."""
        return await self._in_thread(self.read_now)

    async def replace(self, data: bytes) -> None:
        """As `replace_now`, in the marker's thread."""
        await self._in_thread(lambda: self.replace_now(data))

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, call))

    def close(self) -> None:
        """Let go of the folder and of the lock, once what was begun has ended."""
        self._thread.shutdown(wait=True)
        os.close(self._lock)
        os.close(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
