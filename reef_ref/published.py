"""The guard's durable record: which load was published last, or which publication was begun and has not ended.

It lies in the file of the marker, under the same lock (`reef_ref.markers.MarkerFile`): a folder is a coordinator's or a
guard's, and neither reads what the other wrote. It has two of the marker's statuses, for a guard trains nothing and
commits no head. Ids are never used twice, so the record selects none: it says whether engines may generate.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from reef_ref.load_id import LoadId
from reef_ref.markers import InvalidRecord, Status

__all__ = ["Published", "decode", "encode"]

SCHEMA = 1
STATUSES = (Status.UPDATING_WEIGHTS, Status.COMPLETE)


@dataclass(frozen=True, slots=True)
class Published:
    """A publication: UPDATING_WEIGHTS (engines are fenced and may hold anything) or COMPLETE (they serve it).

    `checksum` is that of the content, as engines report it; none if not every one can tell.
    """

    status: Status
    load_id: LoadId
    checksum: str | None = None

    @property
    def finished(self) -> bool:
        """Whether engines serve it."""
        return self.status is Status.COMPLETE


class _Publication(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    status: Status
    load_id: str
    checksum: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    publication: _Publication


_DECODE = msgspec.json.Decoder(_File).decode


def encode(published: Published) -> bytes:
    """The record as the file holds it: one JSON object with its schema version, and a newline."""
    body = _Publication(published.status, str(published.load_id), published.checksum)
    return msgspec.json.encode(_File(SCHEMA, body)) + b"\n"


def decode(data: bytes) -> Published:
    """Read what `encode` wrote; `InvalidRecord` says why it cannot be read."""
    try:
        file = _DECODE(data)
        load_id = LoadId.parse(file.publication.load_id)
    except (ValueError, RecursionError) as error:
        message = f"not the record of a guard ({error}); give the guard a folder of its own"
        raise InvalidRecord(message) from error
    if file.schema != SCHEMA or file.publication.status not in STATUSES:
        found = f"schema {file.schema}, status {file.publication.status}"
        message = f"{found}: this release reads schema {SCHEMA} with {' or '.join(STATUSES)}"
        raise InvalidRecord(message)
    return Published(file.publication.status, load_id, file.publication.checksum)
