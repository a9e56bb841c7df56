"""The publication protocol: how new weights reach every engine, and no request ever runs on a prefix of the old ones.

One coordinator trains, publishes, acknowledges or rejects one job at a time and keeps one durable record, the marker.
It pauses every engine, flushes every prefix cache, declares, sends, verifies and, once the service has moved its
commit head, lets engines continue. Anything may fail at any point: the record tells how to go on.

Start reading in `state`; the program order is `coordinator.following`; then `engines` (what requests and caches do),
`service` (who calls), `faults` (what breaks) and `properties` (what must be true all the same).
"""

from spec.publication import coordinator, engines, faults, properties, service
from spec.publication.state import publication

__all__ = ["coordinator", "engines", "faults", "properties", "publication", "service"]
