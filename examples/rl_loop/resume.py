"""Going on after a kill: what the record says was done is done, and nothing else is.

The trainer's whole state is one folder, which has its name or does not, and the record names the one that counts. A
folder that no record names is of a step that was never finished: it is removed, and the step is done again, on other
samples. So a record that says RUNNING is no riddle here. The coordinator still does not judge it by itself: it is shown
that the job left nothing, and where there is no record to go back to, somebody else has to decide. That is this file.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from examples.rl_loop.durable import remove_file
from examples.rl_loop.settings import Places, Settings
from reef_ref import events
from reef_ref.markers import MARKER_NAME, MarkerFile, Record, decode
from reef_ref.recovery import TrainerEvidence

__all__ = ["clear_unnamed", "first_checkpoint", "give_up_first_job", "read_record", "tell_end_of_last_life"]


def read_record(marker: MarkerFile) -> Record | None:
    """The record that the last life left. Raises `MarkerError`."""
    data = marker.read_now()
    return None if data is None else decode(data)


def first_checkpoint(settings: Settings, places: Places) -> Path:
    """The checkpoint of step 0, written if it is not there yet: what engines boot with and are told to serve first."""
    from examples.rl_loop.policy import Policy
    from reef_ref.scenarios.models import Models

    path = places.checkpoint(0)
    if not path.exists():
        weights = Models(places.folder / "models").checkpoint(1)
        Policy.new(weights, settings.learning_rate).save(path, {})
    return path


def clear_unnamed(places: Places, record: Record | None) -> TrainerEvidence:
    """Remove what no record names, and say what is left.

    Kept are the first checkpoint, which engines boot with, and those of the newest load and its parent.
    """
    named = {places.checkpoint(0)}
    for one in (record, None if record is None else record.previous):
        if one is not None:
            named |= {Path(one.parent.checkpoint)} | ({Path(one.checkpoint)} if one.checkpoint else set())
    for folder in places.checkpoints.iterdir():
        if folder not in named:
            shutil.rmtree(folder)
    left = {places.step(folder) for folder in places.checkpoints.iterdir()}
    return TrainerEvidence(iteration=max(left), job_left_files=record is not None and record.rollout in left)


def give_up_first_job(marker: Path, job: str, tell: events.Teller) -> None:
    """An operator's decision: the very first job left nothing, so there is no job."""
    remove_file(marker / MARKER_NAME)
    tell(events.RestorePreviousRecord, job)


def tell_end_of_last_life(last: events.Event | None, tell: events.Teller, *, owned: bool) -> None:
    """What the dead could not tell: that the coordinator is gone and, with it, the engines that were its own."""
    if not isinstance(last, events.Crash | events.TearDown):
        tell(events.Crash)
    if owned:
        tell(events.TearDown)
