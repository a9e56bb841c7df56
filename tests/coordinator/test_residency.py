"""Adapter residency: nothing that is in use goes, and the books never say more than engines hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reef_ref.engines.errors import EngineRefused
from reef_ref.engines.interface import AdapterChange
from reef_ref.engines.simulated import SimulatedEngine, Weights, run_simulated, write_checkpoint
from reef_ref.load_id import LoadId
from reef_ref.residency import (
    Adapter,
    AdapterCapacityExhausted,
    AdapterEvictionFailed,
    AdapterLoadFailed,
    Residency,
)


class Engine(SimulatedEngine):
    """Refuses what it is told to refuse, and counts."""

    def __init__(self, slot: int) -> None:
        super().__init__(slot, Weights(1, "a:1"))
        self.refusing: set[str] = set()
        self.calls: list[str] = []

    @property
    def loaded(self) -> frozenset[str]:
        return frozenset(self._adapters)

    async def load_adapter(self, name: str, path: Path) -> AdapterChange:
        self.calls.append(f"load {name}")
        if "load" in self.refusing:
            raise EngineRefused("load adapter", self.address, 500, "out of memory")
        return await super().load_adapter(name, path)

    async def unload_adapter(self, name: str) -> AdapterChange:
        self.calls.append(f"unload {name}")
        if "unload" in self.refusing:
            raise EngineRefused("unload adapter", self.address, 500, "wedged")
        return await super().unload_adapter(name)


def adapter(scenario: str, revision: int) -> Adapter:
    return Adapter(scenario, LoadId("a", revision))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, 3)


def books(slots: int) -> Residency:
    return Residency(slots, bound_s=5)


async def reconcile(residency: Residency, engines: list[Engine]) -> None:
    await residency.reconcile(engines, [await engine.adapters() for engine in engines])


def agree(residency: Residency, engines: list[Engine]) -> None:
    for engine in engines:
        assert set(residency.held) <= engine.loaded


def test_a_capacity_refusal_asks_no_engine_and_changes_nothing(folder: Path) -> None:
    """Two scenarios need three slots."""

    async def main() -> None:
        residency, engines = books(2), [Engine(0), Engine(1)]
        for scenario in ("x", "y"):
            await residency.activate(engines, adapter(scenario, 1), folder)
        with residency.pinned(adapter("x", 1)):
            before = [list(engine.calls) for engine in engines]
            with pytest.raises(AdapterCapacityExhausted):
                await residency.activate(engines, adapter("x", 2), folder)
            assert [engine.calls for engine in engines] == before
        assert set(residency.held) == {"x@a:1", "y@a:1"}
        await residency.activate(engines, adapter("x", 2), folder)
        assert set(residency.held) == {"y@a:1", "x@a:2"}
        with pytest.raises(AdapterCapacityExhausted):
            await residency.activate(engines, adapter("z", 1), folder)
        agree(residency, engines)

    run_simulated(main())


def test_a_resident_rollback_target_moves_no_bytes(folder: Path) -> None:
    async def main() -> None:
        residency, engines = books(3), [Engine(0)]
        for revision in (1, 2):
            assert await residency.activate(engines, adapter("x", revision), folder)
        assert not await residency.activate(engines, adapter("x", 1), folder)
        assert residency.current("x") == adapter("x", 1)
        assert engines[0].calls == ["load x@a:1", "load x@a:2"]

    run_simulated(main())


def test_a_failed_load_takes_no_slot(folder: Path) -> None:
    """What the other engine had loaded is unloaded again; where that fails too, the name is leaked and goes first."""

    async def main() -> None:
        residency, engines = books(2), [Engine(0), Engine(1)]
        engines[1].refusing.add("load")
        with pytest.raises(AdapterLoadFailed, match="out of memory"):
            await residency.activate(engines, adapter("x", 1), folder)
        assert not residency.held
        assert engines[0].loaded == frozenset()
        assert residency.current("x") is None
        engines[0].refusing.add("unload")
        with pytest.raises(AdapterLoadFailed):
            await residency.activate(engines, adapter("x", 2), folder)
        assert residency.leaked == {"x@a:2"}
        assert not residency.held
        for engine in engines:
            engine.refusing.clear()
        # A slot is free, but the name is still on an engine: it goes before it is loaded again.
        assert await residency.activate(engines, adapter("x", 2), folder)
        assert not residency.leaked
        assert all(engine.loaded == {"x@a:2"} for engine in engines)

    run_simulated(main())


def test_a_failed_eviction_names_its_cause_and_leaks(folder: Path) -> None:
    async def main() -> None:
        residency, engines = books(1), [Engine(0)]
        await residency.activate(engines, adapter("x", 1), folder)
        engines[0].refusing.add("unload")
        with pytest.raises(AdapterEvictionFailed, match="wedged") as caught:
            await residency.activate(engines, adapter("x", 2), folder)
        assert isinstance(caught.value.__cause__, EngineRefused)
        assert residency.leaked == {"x@a:1"}
        assert not residency.held

    run_simulated(main())


def test_after_a_replacement_the_books_follow_the_engines(folder: Path) -> None:
    """A new engine holds nothing: what it lacks is forgotten, and the survivor's strays go."""

    async def main() -> None:
        residency, engines = books(3), [Engine(0), Engine(1)]
        for scenario in ("x", "y"):
            await residency.activate(engines, adapter(scenario, 1), folder)
        engines[1] = Engine(1)
        await reconcile(residency, engines)
        assert not residency.held
        assert engines[0].loaded == frozenset()
        for scenario in ("x", "y"):
            assert residency.current(scenario) is None
            assert await residency.activate(engines, adapter(scenario, 1), folder)
        agree(residency, engines)

    run_simulated(main())


def test_a_new_life_takes_over_what_every_engine_holds(folder: Path) -> None:
    """And unloads what only some hold; what is called otherwise is somebody else's, and stays."""

    async def main() -> None:
        engines = [Engine(0), Engine(1)]
        for engine in engines:
            await engine.load_adapter("somebody's", folder)
            await engine.load_adapter("x@a:1", folder)
        await engines[0].load_adapter("y@a:1", folder)
        residency = books(2)
        await reconcile(residency, engines)
        assert set(residency.held) == {"x@a:1"}
        assert residency.current("x") is None
        assert [engine.loaded for engine in engines] == [{"somebody's", "x@a:1"}] * 2
        assert not await residency.activate(engines, adapter("x", 1), folder)
        replacement = Engine(1)
        await residency.restore(replacement)
        assert replacement.loaded == {"x@a:1"}

    run_simulated(main())


def test_what_does_not_go_is_leaked_and_tried_again(folder: Path) -> None:
    async def main() -> None:
        residency, engines = books(2), [Engine(0), Engine(1)]
        await engines[0].load_adapter("y@a:1", folder)
        engines[0].refusing.add("unload")
        with pytest.raises(AdapterEvictionFailed, match="wedged"):
            await reconcile(residency, engines)
        assert residency.leaked == {"y@a:1"}
        assert not residency.held
        engines[0].refusing.clear()
        await reconcile(residency, engines)
        assert not residency.leaked
        assert engines[0].loaded == frozenset()

    run_simulated(main())


def test_a_name_says_whose_it_is() -> None:
    assert Adapter.named(adapter("a@b", 3).name) == adapter("a@b", 3)
    for other in ("x", "x@", "x@1", "x@a:b", "@"):
        assert Adapter.named(other) is None


def test_nothing_that_is_not_resident_is_pinned() -> None:
    with pytest.raises(KeyError), books(1).pinned(adapter("x", 1)):
        pass


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["activate", "pin", "unpin", "break", "mend", "replace"]),
        st.sampled_from("xyz"),
        st.integers(1, 4),
    ),
    max_size=25,
)


@given(st.integers(1, 4), STEPS)
def test_the_books_never_say_more_than_engines_hold(slots: int, steps: list[tuple[str, str, int]]) -> None:
    """P19, P20 over random histories: and what was pinned or serves another scenario is still there."""

    async def main(folder: Path) -> None:
        residency, engines = books(slots), [Engine(0), Engine(1)]
        pins: list[tuple[Adapter, Any]] = []
        for step, scenario, revision in steps:
            wanted = adapter(scenario, revision)
            protected = {a for a, _ in pins} | {
                current for s in "xyz" if s != scenario and (current := residency.current(s)) is not None
            }
            match step:
                case "activate":
                    try:
                        await residency.activate(engines, wanted, folder)
                    except (AdapterCapacityExhausted, AdapterEvictionFailed, AdapterLoadFailed):
                        pass
                    else:
                        assert residency.current(scenario) == wanted
                    assert protected <= set(residency.held.values())
                case "pin" if wanted.name in residency.held:
                    pin = residency.pinned(wanted)
                    pin.__enter__()
                    pins.append((wanted, pin))
                case "unpin" if pins:
                    pins.pop()[1].__exit__(None, None, None)
                case "break":
                    engines[revision % 2].refusing.add("load" if scenario == "x" else "unload")
                case "mend":
                    engines[revision % 2].refusing.clear()
                case "replace" if not pins:
                    engines[revision % 2] = Engine(revision % 2)
                    for engine in engines:
                        engine.refusing.clear()
                    await reconcile(residency, engines)
            agree(residency, engines)
            assert len(residency.held) + len(residency.leaked) <= slots

    import tempfile

    with tempfile.TemporaryDirectory() as name:
        run_simulated(main(write_checkpoint(Path(name), 3)))
