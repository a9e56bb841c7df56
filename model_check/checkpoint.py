"""A folder that keeps a search on disk between two runs.

A manifest names the runs of states and holds the counters; it is replaced whole, after everything that it names is on
disk. Whenever the search is stopped, or the machine fails, the folder holds the last level that was finished.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model_check.runs import SUFFIX, DiskShort, Run, checksum

MANIFEST = "checkpoint.json"
NEW = f"{MANIFEST}.new"
LOCK = "lock"
FORMAT, VERSION = "reef-ref.checkpoint", 1


class Unfit(ValueError):  # noqa: N818 - read as a word
    """A folder holds no checkpoint that this search could go on from; the message is one line."""


@dataclass(frozen=True)
class Identity:
    """What has to be the same for a search to go on.

    `claims` and `world` are digests of what is judged and of all that states and steps depend on, `source` is one of
    the program that packs states.
    """

    source: str
    protocol: str
    scope: str
    symmetric: tuple[str, ...]
    claims: str
    world: str

    def objection(self, kept: Identity) -> str:
        """Why a search of this identity cannot go on from what another one kept; empty: it can."""
        if kept.source != self.source:
            return "was made by another version of this program; remove it, or go on with that version"
        if kept.protocol != self.protocol:
            return f"is of protocol {kept.protocol}, not of {self.protocol}"
        if kept.scope != self.scope:
            return f"is of scope {kept.scope}, not of {self.scope}"
        if kept.symmetric != self.symmetric:
            return f"was made with{'' if kept.symmetric else 'out'} symmetry"
        if kept.claims != self.claims:
            return "was made for other properties"
        return "" if kept.world == self.world else f"was made before protocol {self.protocol} was changed"


@dataclass(frozen=True)
class Kept:
    """A search after a level was finished.

    `counters` are the counts of one worker's record, `found` the violations in it (kind, property, instance, packed
    state), `levels` the runs of all levels, and `known` the runs that together hold the same states.
    """

    counters: tuple[int, ...]
    found: tuple[tuple[int, int, int, int], ...]
    levels: tuple[Run, ...]
    known: tuple[Run, ...]
    serial: int


class Checkpoint:
    """The checkpoint in a folder, which is made if need be and is this process's own until it is closed.

    Raises:
        Unfit: the folder cannot be had, or holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            strangers = [f for f in folder.iterdir() if f.suffix != SUFFIX and f.name not in (MANIFEST, NEW, LOCK)]
            if strangers and not (folder / MANIFEST).exists():
                raise Unfit(f"{folder}: is no checkpoint, and not empty; name a folder of its own")
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise Unfit(f"{folder}: cannot be written to: {error.strerror or error}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise Unfit(f"{folder}: another process goes on from this checkpoint; wait for it, or stop it") from None

    def read(self, identity: Identity, words: int) -> Kept | None:
        """What an earlier run kept, none if there was none. Runs that it does not name are deleted.

        Raises:
            Unfit: it is of another search, or not whole.
        """
        manifest = self.folder / MANIFEST
        kept = None
        if manifest.exists():
            kept = self._parsed(manifest, identity)
            for run in {*kept.levels, *kept.known}:
                path = self.folder / run.name
                if not path.is_file() or checksum(path) != (run.rows * 8 * words, run.check):
                    raise self._torn(f"{run.name} is not what was written")
        self._clear(kept)
        return kept

    def _parsed(self, manifest: Path, identity: Identity) -> Kept:
        try:
            document = json.loads(manifest.read_bytes())
            form = document["format"], document["version"], document["byteorder"]
            if form != (FORMAT, VERSION, sys.byteorder):
                raise Unfit(f"{self.folder}: the checkpoint has form {' '.join(map(str, form))}, unknown here")
            about = document["identity"]
            if objection := identity.objection(Identity(**{**about, "symmetric": tuple(about["symmetric"])})):
                raise Unfit(f"{self.folder}: the checkpoint {objection}")
            return Kept(
                counters=tuple(map(int, document["counters"])),
                found=tuple((int(k), int(p), int(i), int(s, 16)) for k, p, i, s in document["found"]),
                levels=tuple(Run(**run) for run in document["levels"]),
                known=tuple(Run(**run) for run in document["known"]),
                serial=int(document["serial"]),
            )
        except (OSError, KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise self._torn(f"{MANIFEST} cannot be read") from error

    def _torn(self, what: str) -> Unfit:
        return Unfit(f"{self.folder}: the checkpoint is torn: {what}; remove the folder, and begin again")

    def keep(self, identity: Identity, kept: Kept) -> None:
        """Replace the manifest. What it no longer names may be deleted then.

        Raises:
            DiskShort: it cannot be written; the old one still stands.
        """
        document: Mapping[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "byteorder": sys.byteorder,
            "identity": asdict(identity),
            "serial": kept.serial,
            "counters": kept.counters,
            "found": [(kind, prop, instance, f"{packed:x}") for kind, prop, instance, packed in kept.found],
            "levels": [asdict(run) for run in kept.levels],
            "known": [asdict(run) for run in kept.known],
        }
        new = self.folder / NEW
        try:
            self._sync_folder()
            with new.open("w", encoding="utf-8") as file:
                json.dump(document, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.folder / MANIFEST)
            self._sync_folder()
        except OSError as error:
            raise DiskShort(f"{self.folder}: the checkpoint cannot be written: {error.strerror or error}") from error

    def _sync_folder(self) -> None:
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _clear(self, kept: Kept | None) -> None:
        """Delete runs that are not kept."""
        wanted = {run.name for run in (*kept.levels, *kept.known)} if kept else set()
        for file in self.folder.glob(f"*{SUFFIX}"):
            if file.name not in wanted:
                file.unlink()

    def close(self) -> None:
        """Let the folder go."""
        os.close(self._lock)


__all__ = ["Checkpoint", "Identity", "Kept", "Unfit"]
