"""A deterministic engine in a few pages: read `model`, `radix`, `scheduler`, `engine`, in this order.

It does what matters about SGLang for a publication: a radix tree of cached prefixes that knows nothing of weights, an
overlap scheduler, chunked prefill, two ways to pause, a flush that refuses while anything holds KV, memory that comes
and goes. Its "model" mixes every load that made the KV into each token, so that a stale prefix shows in the answer.
Time is whatever the event loop says (`clock` has one that jumps), and things fail where a plan says so (`faults`).

Source: sglang-semantics sections 1 to 9.
"""

from reef_ref.engines.simulated.clock import run_simulated
from reef_ref.engines.simulated.disk import SimulatedDisk
from reef_ref.engines.simulated.engine import SimulatedEngine, SimulatedSettings
from reef_ref.engines.simulated.faults import CoordinatorDied, Fault, Plan, Point
from reef_ref.engines.simulated.model import Weights, expected_tokens, read_checkpoint, write_checkpoint

__all__ = [
    "CoordinatorDied",
    "Fault",
    "Plan",
    "Point",
    "SimulatedDisk",
    "SimulatedEngine",
    "SimulatedSettings",
    "Weights",
    "expected_tokens",
    "read_checkpoint",
    "run_simulated",
    "write_checkpoint",
]
