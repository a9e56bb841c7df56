"""The publication protocol: how new weights reach every engine, and no request ever runs on a prefix of the old ones.

One coordinator trains, publishes, acknowledges or rejects one job at a time and keeps one durable record, the marker.
It pauses every engine, flushes every prefix cache, declares, sends, verifies and, once the service has moved its
commit head, lets engines continue. Anything may fail at any point: the record tells how to go on.

Start reading in `state`; the program order is `coordinator.following`; then `engines` (what requests and caches do),
`service` (who calls), `faults` (what breaks), `properties` (what must be true all the same) and `liveness` (what then
happens in the end).

What is abstracted. One request stands for the work of an engine. Load ids are numbers that grow by one, also over a
restart. A call is one step, and so is a durable write. A service keeps calling: it commits what is ready and repeats
what failed, as a durable record of its own lets it.

Where this departs from the upstream coordinator, as its code was read; `mutants` has the upstream way of each:

* A failed republication is repaired by another one. Upstream's health calls it beyond repair, and tears down engines.
* A republication is allowed wherever it is known what should be served, after a rejection and during one too. Upstream
  refuses, and then nothing but a restart fills the slot of a lost engine.
* Engines continue where there is one. Upstream's continue also reaches for empty slots, and fails on them for ever.
* After a write that raised, the record is read again. Upstream keeps believing the old one, and a restart may not.
* A last write that fails leaves engines that serve alone, in a recovery too. Upstream retires them there, which is
  safe, and no mutant.
* A restart after a rejection sends the parent's bytes, with its memory back, before anything continues. Upstream stamps
  the parent's id on what engines booted with, or continues first.
* The service closes admission before a new coordinator recovers, so that no request meets a replacement that is not
  fenced yet. Upstream leaves this to the service, and nothing read there says so.
"""

from spec.publication import coordinator, engines, faults, liveness, properties, service
from spec.publication.state import publication

__all__ = ["coordinator", "engines", "faults", "liveness", "properties", "publication", "service"]
