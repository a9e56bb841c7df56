"""Which LoRA adapters engines hold, and which may go to make room for another.

An adapter's name is made of its scenario and its revision and is never used for other content: with keys that know the
adapter, a cached prefix then cannot outlive its content. The books never say more than engines hold: a load that failed
takes no slot, an unload that failed leaves the slot *leaked*, a new engine is given what others hold (`restore`), and
where engines tell what they hold the books are reconciled with it.

With S scenarios, S + 1 slots are needed to publish any of them without taking one out of service.

Source: reef-semantics section 1.8, P18 to P20; sglang-semantics section 10 (an unload under a pause never returns, so
room is made while engines generate).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reef_ref.engines.errors import EngineError
from reef_ref.engines.interface import Engine
from reef_ref.load_id import LoadId

__all__ = ["Adapter", "AdapterCapacityExhausted", "AdapterEvictionFailed", "AdapterLoadFailed", "Residency"]


@dataclass(frozen=True, slots=True)
class Adapter:
    """One revision of one scenario's adapter."""

    scenario: str
    revision: LoadId

    @property
    def name(self) -> str:
        """The name on engines: one for each content, and one content for each."""
        return f"{self.scenario}@{self.revision}"

    @classmethod
    def named(cls, name: str) -> Adapter | None:
        """The adapter of a name; none for a name that somebody else has given."""
        scenario, at, revision = name.rpartition("@")
        with suppress(ValueError):
            return cls(scenario, LoadId.parse(revision)) if at else None
        return None


class AdapterCapacityExhausted(Exception):  # noqa: N818  The name says what there is none of.
    """Every slot is in legitimate use: no engine was asked, and nothing has changed. Not a failure of any engine."""


class AdapterEvictionFailed(Exception):  # noqa: N818  The name says what happened.
    """An engine did not unload. The adapter's slot counts as leaked, and is the first to be tried again."""


class AdapterLoadFailed(Exception):  # noqa: N818  The name says what happened.
    """An engine did not load: no slot is taken, and what other engines had loaded was unloaded again."""


class Residency:
    """The books over the adapter slots of engines that all hold the same adapters; not for use from several tasks."""

    def __init__(self, slots: int, *, bound_s: float) -> None:
        if slots < 1:
            message = f"at least one adapter slot is needed, got {slots}"
            raise ValueError(message)
        self._slots = slots
        self._bound_s = bound_s
        self._held: dict[str, Adapter] = {}  # Oldest first.
        self._paths: dict[str, Path] = {}
        self._current: dict[str, str] = {}
        self._leaked: set[str] = set()
        self._pins: dict[str, int] = {}

    @property
    def held(self) -> Mapping[str, Adapter]:
        """The adapters that every engine holds, by name, oldest first; leaked ones are not among them."""
        return {name: adapter for name, adapter in self._held.items() if name not in self._leaked}

    @property
    def leaked(self) -> frozenset[str]:
        """Names that may or may not be loaded somewhere, and keep their slot until unloaded or reconciled."""
        return frozenset(self._leaked)

    def current(self, scenario: str) -> Adapter | None:
        """The adapter that serves a scenario."""
        name = self._current.get(scenario)
        return None if name is None else self._held[name]

    @contextmanager
    def pinned(self, adapter: Adapter) -> Iterator[None]:
        """Keep an adapter while something uses it: a request in flight, a rollback that is being decided."""
        name = adapter.name
        if name not in self.held:
            message = f"adapter {name} is not resident"
            raise KeyError(message)
        self._pins[name] = self._pins.get(name, 0) + 1
        try:
            yield
        finally:
            self._pins[name] -= 1
            if not self._pins[name]:
                del self._pins[name]

    def victim(self, scenario: str) -> str | None:
        """What would go next for a new adapter of `scenario`: none if nothing has leaked and a slot is free.

        Leaked ones first, for engines may hold them still, under the very name that is wanted; then the oldest that
        nothing protects; the scenario's own current one last, for it is about to be superseded. Raises
        `AdapterCapacityExhausted`.
        """
        if self._leaked:
            return next(name for name in self._held if name in self._leaked)
        if len(self._held) < self._slots:
            return None
        serving = set(self._current.values())
        unused = [name for name in self._held if name not in self._pins]
        for name in unused:
            if name not in serving:
                return name
        own = self._current.get(scenario)
        if own in unused:
            return own
        message = f"all {self._slots} adapter slots serve other scenarios or requests: {', '.join(self._held)}"
        raise AdapterCapacityExhausted(message)

    async def activate(self, engines: Sequence[Engine], adapter: Adapter, path: Path) -> bool:
        """Have every engine hold the adapter and make it its scenario's current one; whether bytes were sent.

        One that is still resident is only pointed at. Raises `AdapterCapacityExhausted` (nothing has changed),
        `AdapterEvictionFailed`, `AdapterLoadFailed`.
        """
        name = adapter.name
        if name in self.held:
            self._current[adapter.scenario] = name
            return False
        while (gone := self.victim(adapter.scenario)) is not None:
            await self._evict(engines, gone)
        # Whoever is cancelled from here on has perhaps loaded it somewhere.
        self._held[name], self._paths[name] = adapter, path
        self._leaked.add(name)
        failures = await self._each(engines, lambda engine: engine.load_adapter(name, path))
        if failures:
            if not await self._each(engines, lambda engine: _unload(engine, name)):
                self._forget(name)
            message = f"adapter {name} was not loaded: {failures[0]}"
            raise AdapterLoadFailed(message) from failures[0]
        self._leaked.discard(name)
        self._current[adapter.scenario] = name
        return True

    async def restore(self, engine: Engine) -> None:
        """Have a new engine hold what all others hold. Raises `EngineError` or `TimeoutError`."""
        for name in self.held:
            async with asyncio.timeout(self._bound_s):
                await engine.load_adapter(name, self._paths[name])

    async def _evict(self, engines: Sequence[Engine], name: str) -> None:
        for scenario in [scenario for scenario, current in self._current.items() if current == name]:
            del self._current[scenario]
        self._leaked.add(name)
        failures = await self._each(engines, lambda engine: _unload(engine, name))
        if failures:
            message = f"adapter {name} was not unloaded: {failures[0]}"
            raise AdapterEvictionFailed(message) from failures[0]
        self._forget(name)

    def _forget(self, name: str) -> None:
        self._leaked.discard(name)
        del self._held[name], self._paths[name]

    async def reconcile(self, engines: Sequence[Engine], loaded: Sequence[Mapping[str, Path]]) -> None:
        """Have the books say what engines hold: `loaded` is what each of them tells.

        What not every engine holds is no longer resident, and what every engine holds of an earlier life is again, as
        far as there are slots. The rest is unloaded, but for names that somebody else has given. Raises
        `AdapterEvictionFailed` if an engine keeps what is to go; it counts as leaked.
        """
        everywhere = {name: path for name, path in loaded[0].items() if all(name in names for names in loaded)}
        going = self._leaked | {name for name in self._held if name not in everywhere}
        for name in going & self._held.keys():
            self._forget(name)
        for name, path in everywhere.items():
            if name not in going and len(self._held) < self._slots:
                self._count(name, path)
        self._current = {scenario: name for scenario, name in self._current.items() if name in self._held}
        strays: list[BaseException] = []
        for name, path in sorted({item for names in loaded for item in names.items()}):
            if name not in self._held and Adapter.named(name) is not None:
                holders = [engine for engine, names in zip(engines, loaded, strict=True) if name in names]
                failures = await self._each(holders, lambda engine, name=name: _unload(engine, name))  # type: ignore[misc]
                if failures:
                    self._count(name, path)
                    self._leaked.add(name)
                strays += failures
        if strays:
            message = f"a stray adapter was not unloaded: {strays[0]}"
            raise AdapterEvictionFailed(message) from strays[0]

    def _count(self, name: str, path: Path) -> None:
        """Take a name into the books, if it is an adapter's."""
        adapter = Adapter.named(name)
        if adapter is not None:
            self._held.setdefault(name, adapter)
            self._paths.setdefault(name, path)

    async def _each(
        self, engines: Sequence[Engine], call: Callable[[Engine], Awaitable[object]]
    ) -> list[BaseException]:
        """Ask all engines at once, wait for all, and answer what failed."""

        async def one(engine: Engine) -> None:
            async with asyncio.timeout(self._bound_s):
                await call(engine)

        results = await asyncio.gather(*(one(engine) for engine in engines), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, EngineError | TimeoutError | OSError):
                raise failure
        return failures


async def _unload(engine: Engine, name: str) -> None:
    """Unload, and take it well that an engine does not hold the name: that is what was wanted.

    Engines say so only in words. One that says it otherwise makes the name count as leaked: that errs on the safe side.
    """
    try:
        await engine.unload_adapter(name)
    except EngineError as error:
        if "not loaded" not in str(error):
            raise
