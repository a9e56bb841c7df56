"""LoRA adapters in the slots of engines: which may be loaded, which may go, and why no prefix is ever stale.

Base weights stay as they are. A publication loads a new revision beside the old one, under a name that nothing ever
had, and then makes it its scenario's current adapter. Prefixes are keyed by the name, so no tree is flushed: what a key
names never changes.

Start reading in `state`; then `coordinator` (how a job gets its slot, and what it leaves alone), `engines` (requests
and prefixes), `faults` (what breaks) and `properties` (what must be true all the same).

What is abstracted. A record and its acknowledgement are one step here (`commit`): `spec.publication` has the order of
durable writes. A pause of all engines is one step, and so is its end. The oldest of several adapters that nobody needs
is any of them. Requests without an adapter are left out.

Where this departs from upstream, as its code was read; `mutants` has the upstream way of each:

* Room is made before engines are paused, so that no unload waits for what a pause holds.
* Where there is no room, engines go on, and a retry does not take living engines for new ones.
* A repair that finds no room leaves admission closed. Upstream's health is good then.
* A restart makes the job's adapter current like any publication. Upstream's history may miss it.
"""

from spec.adapters import coordinator, engines, faults, properties
from spec.adapters.state import adapters

__all__ = ["adapters", "coordinator", "engines", "faults", "properties"]
