"""The serving protocol: one SGLang engine from inside, while publications pause it, empty its tree and change it.

Requests are queued, prefilled in chunks, decoded and answered; what they compute enters a prefix tree that others
reuse. One result runs ahead of the scheduler. A driver pauses in place, to retract or to abort, flushes, releases
memory, sends a load in one part or in several, and continues. No request may ever run on what another load left.

Start reading in `state`; then `scheduler` (what happens to requests), `control` (what a driver asks for), `properties`
(what must be true all the same) and `liveness` (what then happens in the end).

What is abstracted. Every prompt is the same, so that an adapter alone is the key of its one entry. A batch is one
request. A control call is one step, but for a pause, which lasts until the scheduler is through with it. The queue's
limit, where there is one, is one request. Provenance is a set of loads: what one token in an entry was made by counts
for all of it.

Source: SGLang 0.5.23, ``managers/scheduler.py`` and what it calls, on one rank, not disaggregated, with a tree on the
device only; and the idle test as `reef_ref.sglang` relaxes it. The driver is the one of `spec.publication`: it flushes
before it sends, never by the update itself.
"""

from spec.serving import control, liveness, properties, scheduler
from spec.serving.state import serving

__all__ = ["control", "liveness", "properties", "scheduler", "serving"]
