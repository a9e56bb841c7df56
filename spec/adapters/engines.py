"""What engines do by themselves: admit, run, reuse prefixes of the same adapter, retract."""

from __future__ import annotations

from spec.adapters.state import Adapter, Bytes, Engine, Request, Scenario, State, adapters, has, joined
from spec.lang import Bool, Step, when


@adapters.action(by="service", on="e")
def admit(s: State, e: Engine, x: Scenario) -> Step:
    """The service admits a request, names the scenario's current adapter in it and routes it to a live engine."""
    return when(s.gate[x], s.alive[e], s.request[e] == Request.NONE, ~s.current[x].is_none).then(
        request={e: Request.WAITING}, uses={e: s.current[x]}
    )


def can_start(s: State, e: Engine, n: Adapter) -> Bool:
    """The scheduler runs, and has a request for the adapter."""
    return (s.request[e] == Request.WAITING) & ~s.paused & (s.uses[e] == n)


def run_on(s: State, e: Engine, n: Adapter, key: Adapter) -> dict[str, object]:
    """A request for an adapter runs on what the tree has under a key, and on what it adds under its own."""
    return {
        "request": {e: Request.RUNNING},
        "kv": {e: joined(s.made_by[e, key], s.bytes[e, n])},
        "cached": {(e, n): True},
        "made_by": {(e, n): joined(s.made_by[e, n], s.bytes[e, n])},
    }


@adapters.action(by="e", on="e")
def start(s: State, e: Engine, n: Adapter) -> Step:
    """A request starts without a hit; its prompt enters the tree, under a key that names its adapter."""
    return when(can_start(s, e, n)).then(**{**run_on(s, e, n, n), "kv": {e: s.bytes[e, n]}})


@adapters.action(by="e", on="e")
def start_on_hit(s: State, e: Engine, n: Adapter) -> Step:
    """A request starts on a cached prefix whose key names its adapter.

    The entry may be older than what is loaded: unloading an adapter empties no tree, and a name that comes back, comes
    back with the same bytes.
    """
    return when(can_start(s, e, n), s.cached[e, n]).then(**run_on(s, e, n, n))


@adapters.action(by="e", on="e")
def finish(s: State, e: Engine) -> Step:
    """A request is answered."""
    return when(s.request[e] == Request.RUNNING, ~s.paused).then(
        request={e: Request.NONE}, uses={e: None}, kv={e: Bytes.NONE}
    )


@adapters.action(by="e", on="e")
def retract(s: State, e: Engine) -> Step:
    """A paused engine may send its request back to the queue without its KV: it still names the adapter."""
    return when(s.request[e] == Request.RUNNING, s.paused).then(request={e: Request.WAITING}, kv={e: Bytes.NONE})


@adapters.action(by="coordinator", on="e")
def unload(s: State, e: Engine) -> Step:
    """An engine unloads an adapter. It waits until no request names it, also where none can end for a pause."""
    return when(s.alive[e], has(s, e, s.victim) != Bytes.NONE, s.uses[e] != s.victim).then(
        bytes={(e, s.victim): Bytes.NONE}
    )
