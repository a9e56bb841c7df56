"""What went wrong at an engine survives the way from another process."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

from reef_ref.engines import errors
from reef_ref.engines.interface import CacheState, Update, WeightState

UNKNOWN = Update(weights=WeightState.UNKNOWN, cache=CacheState.KEPT, load_id=None)
HOLDING_MORE: dict[type[errors.EngineError], tuple[object, ...]] = {
    errors.CheckpointRejected: (Path("there"), "is no folder"),
    errors.AdapterRejected: (Path("there"), "is no folder"),
    errors.EngineRefused: ("pause", "here", 400, "no"),
    errors.GenerationFailed: ("generate", "here", 400, "no"),
    errors.FlushRefused: ("here", 400, "busy", errors.FlushAttempts(3, 1.5)),
    errors.UpdateFailed: ("here", 0, "no answer", UNKNOWN),
}
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.EngineError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_pickled_whole(kind: type[errors.EngineError]) -> None:
    """With its class, its text and all that it holds."""
    error = kind(*HOLDING_MORE.get(kind, ("in one line",)))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert vars(again) == vars(error)
