"""Coordinators that are wrong in one way for as long as a block lasts: what the monitor must notice.

Each alteration *does* the wrong thing, at engines and on disk, and goes on telling what it does. None of them needs to
know what kind of engines there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reef_ref import events
from reef_ref.control import Control
from reef_ref.coordinator import Coordinator
from reef_ref.engines.interface import PauseMode
from reef_ref.journal import Journal
from reef_ref.load_id import LoadId
from reef_ref.markers import Load, Record, Status
from reef_ref.publication import Publication

__all__ = ["ALTERATIONS", "Alteration"]

Alteration = Callable[[Coordinator], AbstractContextManager[None]]


@contextlib.contextmanager
def _with(owner: object, **methods: Any) -> Iterator[None]:
    """Methods of one object exchanged; afterwards they are those of its class again."""
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(owner, name)


def _parts(coordinator: Coordinator) -> tuple[Control, Publication, Journal, events.Teller]:
    return coordinator._control, coordinator._publication, coordinator._journal, coordinator._tell


def _barrier(
    coordinator: Coordinator, flushed: Callable[[tuple[int, ...]], tuple[int, ...]], *, all_flushed: bool
) -> Any:
    control, _, _, tell = _parts(coordinator)

    async def barrier() -> None:
        control._latched, control._verified = True, None
        await control.exclude_monitor()
        bounds, mode = control.settings.bounds, PauseMode.RETRACT
        await control._all("pause", bounds.pause_s, lambda e: e.pause(mode), lambda n, _: tell(events.Pause, n, mode))
        tell(events.AllPaused)
        for slot in flushed(control._slots.live):
            engine = control._slots[slot]
            assert engine is not None
            await engine.flush()
            tell(events.Flush, slot)
        if all_flushed:
            tell(events.AllFlushed)

    return barrier


def no_flush(coordinator: Coordinator) -> AbstractContextManager[None]:
    """The barrier pauses and flushes nobody."""
    return _with(coordinator._control, barrier=_barrier(coordinator, lambda _: (), all_flushed=False))


def flush_of_one(coordinator: Coordinator) -> AbstractContextManager[None]:
    """The barrier flushes one engine only, and calls it passed."""
    return _with(coordinator._control, barrier=_barrier(coordinator, lambda live: live[:1], all_flushed=True))


def bytes_before_the_declaration(coordinator: Coordinator) -> AbstractContextManager[None]:
    """Engines get bytes before UPDATING_WEIGHTS is durable."""
    control, publication, journal, _ = _parts(coordinator)
    declare = publication.declare

    async def early() -> None:
        record = journal.record
        assert record is not None
        assert record.checkpoint is not None
        await control.send(Path(record.checkpoint), publication.identity.current.next())
        await declare()

    return _with(publication, declare=early)


def bytes_before_their_id(coordinator: Coordinator) -> AbstractContextManager[None]:
    """Engines get bytes under an id that is not durable yet."""
    control, _, journal, _ = _parts(coordinator)
    write = journal.write

    async def late(record: Record, told: Callable[[], None]) -> Record:
        if record.status is Status.UPDATING_WEIGHTS and record.target is not None:
            assert record.checkpoint is not None
            await control.send(Path(record.checkpoint), record.target)
        return await write(record, told)

    return _with(journal, write=late)


def ready_before_verification(coordinator: Coordinator) -> AbstractContextManager[None]:
    """READY_TO_COMMIT is recorded of engines that nobody has asked what they hold."""
    control, publication, _, _ = _parts(coordinator)

    async def transfer(load: Load) -> Load:
        await control.send(Path(load.checkpoint), load.load_id)
        control._verified = load.load_id
        return load

    return _with(publication, transfer=transfer)


def one_left_out_of_the_transfer(coordinator: Coordinator) -> AbstractContextManager[None]:
    """One engine gets no bytes, and nobody asks it."""
    control, publication, _, tell = _parts(coordinator)

    async def transfer(load: Load) -> Load:
        slot = control._slots.live[0]
        engine = control._slots[slot]
        assert engine is not None
        await engine.update(Path(load.checkpoint), str(load.load_id))
        tell(events.Send, slot, str(load.load_id), load.checkpoint)
        tell(events.AllSent)
        tell(events.Verify, str(load.load_id), None)
        control._verified = load.load_id
        return load

    return _with(publication, transfer=transfer)


def the_parents_bytes_under_the_new_id(coordinator: Coordinator) -> AbstractContextManager[None]:
    """The candidate's id is given to the bytes of its parent."""
    control, _, journal, _ = _parts(coordinator)
    send = control.send

    async def wrong(checkpoint: Path, load_id: LoadId) -> None:
        record = journal.record
        assert record is not None
        await send(Path(record.parent.checkpoint) if record.target == load_id else checkpoint, load_id)

    return _with(control, send=wrong)


def continued_before_the_bytes(coordinator: Coordinator) -> AbstractContextManager[None]:
    """An engine generates again between the barrier and the transfer, and is paused once more."""
    control, _, _, tell = _parts(coordinator)
    send = control.send

    async def early(checkpoint: Path, load_id: LoadId) -> None:
        slot = control._slots.live[0]
        engine = control._slots[slot]
        assert engine is not None
        await engine.continue_generation()
        tell(events.ContinueGeneration, slot)
        await engine.pause(PauseMode.RETRACT)
        await engine.flush()
        await send(checkpoint, load_id)

    return _with(control, send=early)


def continued_before_the_head(coordinator: Coordinator) -> AbstractContextManager[None]:
    """Engines generate the new load before the service's head is durable."""
    control, _, journal, _ = _parts(coordinator)
    write = journal.write

    async def early(record: Record, told: Callable[[], None]) -> Record:
        if record.status is Status.HEAD_COMMITTED:
            assert record.load_id is not None
            await control.continue_all(record.load_id)
        return await write(record, told)

    return _with(journal, write=early)


def complete_before_the_engines_continue(coordinator: Coordinator) -> AbstractContextManager[None]:
    """COMPLETE is recorded while engines still wait."""
    _, publication, _, _ = _parts(coordinator)

    async def finish() -> None:
        await publication.record_complete()
        await publication.continue_serving()

    return _with(publication, finish_acknowledged=finish)


def no_second_barrier(coordinator: Coordinator) -> AbstractContextManager[None]:
    """An engine that replaces another gets bytes without having been fenced."""
    control, publication, _, _ = _parts(coordinator)

    async def once(*, declare: bool = False) -> None:
        await publication._fence()
        if declare:
            await publication.declare()
        await control.rebuild()

    return _with(publication, fence_and_rebuild=once)


ALTERATIONS: dict[str, Alteration] = {
    alteration.__name__: alteration
    for alteration in (
        no_flush,
        flush_of_one,
        bytes_before_the_declaration,
        bytes_before_their_id,
        ready_before_verification,
        one_left_out_of_the_transfer,
        the_parents_bytes_under_the_new_id,
        continued_before_the_bytes,
        continued_before_the_head,
        complete_before_the_engines_continue,
    )
}
"""What a coordinator may do wrong in a publication; the docstring of each says what it is."""
REBUILDING: dict[str, Alteration] = {no_second_barrier.__name__: no_second_barrier}
"""The same where an engine has to be rebuilt."""
