"""What the tests on real engines share: tiny models, and an engine that a test can publish to."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from reef_ref.testing.tiny_model import write_adapter, write_checkpoint

os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads that spin on a busy machine slow an engine down twentyfold


def pytest_configure(config: pytest.Config) -> None:
    """SGLang's front end leaves sockets to the garbage collector, which warns of them in whatever test it runs."""
    for warning in (
        "ignore:Unclosed socket <zmq:ResourceWarning",
        "ignore:Exception ignored in. <function Socket.__del__:pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", warning)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Remember how it went, for `pytest_unconfigure`."""
    session.config.stash[_STATUS] = int(exitstatus)


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End at once when everything is said and every engine has been ended.

    SGLang and its kernel libraries leave native threads in this process that can crash the interpreter while it takes
    itself apart, after the last test and its result.
    """
    if (status := config.stash.get(_STATUS, None)) is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


_STATUS = pytest.StashKey[int]()
LONG_ENOUGH_S = 240.0
"""Bound for anything a test waits for, in seconds."""


@pytest.fixture(scope="session")
def sglang_imported() -> None:
    """Import SGLang once, silently: it and its kernel libraries warn of devices and names that are not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sglang.srt.entrypoints.engine
        import sglang.srt.managers.scheduler  # noqa: F401


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two checkpoints, `one` and `two`, and two adapters, `A` and `B`."""
    root = tmp_path_factory.mktemp("models")
    checkpoints = {name: write_checkpoint(root / name, seed=seed) for name, seed in (("one", 1), ("two", 2))}
    adapters = {name: write_adapter(root / name, seed=seed) for name, seed in (("A", 11), ("B", 12))}
    return checkpoints | adapters


def prompt(start: int, length: int) -> list[int]:
    """Token ids; prompts with different starts share no prefix."""
    return [20 + (start + 7 * index) % 400 for index in range(length)]


class Running:
    """A real engine in child processes, driven from here, with the plugin's events and counters at hand."""

    def __init__(self, engine: Any, models: dict[str, Path], events: Path) -> None:
        self.engine = engine
        self.models = models
        self._events = events
        self._number = 1

    def run(self, wanted: Awaitable[Any]) -> Any:
        """Wait for `wanted` on the engine's own loop."""
        return self.engine.loop.run_until_complete(asyncio.wait_for(wanted, LONG_ENOUGH_S))

    # ---- requests ----

    def generate(self, tokens: Sequence[int], count: int = 12, **options: Any) -> tuple[list[int], dict[str, Any]]:
        """Greedy tokens and what SGLang says of the request."""
        sampling = {"temperature": 0.0, "max_new_tokens": count, "ignore_eos": True}
        answer = self.engine.generate(input_ids=list(tokens), sampling_params=sampling, **options)
        return answer["output_ids"], answer["meta_info"]

    def in_flight(
        self, prompts: Sequence[Sequence[int]], count: int, *, after: int, do: Callable[[], Awaitable[None]]
    ) -> list[Any]:
        """Send all prompts, `do` something once each has `after` tokens, and return each answer or exception."""

        async def story() -> list[Any]:
            ready = [asyncio.Event() for _ in prompts]

            async def one(tokens: Sequence[int], enough: asyncio.Event) -> Any:
                sampling = {"temperature": 0.0, "max_new_tokens": count, "ignore_eos": True}
                try:
                    stream = await self.engine.async_generate(
                        input_ids=list(tokens), sampling_params=sampling, stream=True
                    )
                    return await last(stream, enough)
                finally:
                    enough.set()

            async def last(stream: AsyncIterator[Any], enough: asyncio.Event) -> Any:
                answer = None
                async for answer in stream:
                    if answer["meta_info"]["completion_tokens"] >= after:
                        enough.set()
                return answer

            tasks = [asyncio.ensure_future(one(tokens, enough)) for tokens, enough in zip(prompts, ready, strict=True)]
            await asyncio.gather(*(enough.wait() for enough in ready))
            assert not any(task.done() for task in tasks), "requests were over before anything was done to them"
            await do()
            return list(await asyncio.gather(*tasks, return_exceptions=True))

        answers: list[Any] = self.run(story())
        return answers

    # ---- control ----

    async def pause(self, mode: str) -> None:
        """Pause generation."""
        from sglang.srt.managers.io_struct import PauseGenerationReqInput

        await self.engine.tokenizer_manager.pause_generation(PauseGenerationReqInput(mode=mode))

    async def resume(self) -> None:
        """Continue generation."""
        from sglang.srt.managers.io_struct import ContinueGenerationReqInput

        await self.engine.tokenizer_manager.continue_generation(ContinueGenerationReqInput())

    async def flush(self) -> bool:
        """Flush; whether it went through.

        SGLang refuses for a moment after an answer, while the batch that ran ahead is still to be delivered.
        """
        for _ in range(100):
            if (await self.engine.tokenizer_manager.flush_cache()).success:
                return True
            await asyncio.sleep(0.05)
        return False

    async def update(self, model: str | Path, *, flush: bool = False) -> tuple[bool, str]:
        """Load a checkpoint under the next load id; success and message."""
        from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput

        self._number += 1
        path = self.models.get(str(model), model)
        request = UpdateWeightFromDiskReqInput(
            model_path=str(path), flush_cache=flush, weight_version=f"engine:{self._number}"
        )
        success, message, _ = await self.engine.tokenizer_manager.update_weights_from_disk(request, None)
        return success, message

    def publish(self, mode: str, model: str, *, flush: bool) -> None:
        """Pause, perhaps flush, update and continue."""

        async def steps() -> None:
            await self.pause(mode)
            if flush:
                assert await self.flush()
            success, message = await self.update(model)
            assert success, message
            await self.resume()

        self.run(steps())

    def clean(self, model: str) -> None:
        """A publication as it should be, on an engine without requests."""
        self.publish("retract", model, flush=True)

    # ---- what the plugin says ----

    def state(self) -> dict[str, Any]:
        """The plugin's part of the internal state of rank 0."""
        found: dict[str, Any] = self.engine.get_server_info()["internal_states"][0]["reef_ref"]
        return found

    def counters(self) -> dict[str, int]:
        """The counters of rank 0."""
        found: dict[str, int] = self.state()["provenance"]["counters"]
        return found

    @contextmanager
    def counting(self) -> Iterator[dict[str, int]]:
        """Fills the dictionary with how much each counter grew inside the block."""
        before, grown = self.counters(), dict[str, int]()
        yield grown
        grown.update({name: value - before[name] for name, value in self.counters().items()})

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of one kind so far, of all ranks."""
        self.counters()  # an answer of the scheduler comes after what it did before
        lines = self._events.read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.fixture(scope="session")
def start(models: dict[str, Path], sglang_imported: None) -> Callable[..., Any]:
    """A context manager that starts an engine under the given `REEF_REF_*` and ends it."""

    @contextmanager
    def started(events: Path, environment: dict[str, str], **arguments: Any) -> Iterator[Running]:
        import sglang

        environment = environment | {"REEF_REF_EVENTS": str(events)}
        others = _children()
        before = {name: os.environ.get(name) for name in environment}
        os.environ.update(environment)
        try:
            engine = sglang.Engine(
                model_path=str(models["one"]),
                device="cpu",
                attention_backend="torch_native",
                sampling_backend="pytorch",
                dtype="bfloat16",
                max_total_tokens=40000,
                mem_fraction_static=0.5,
                weight_version="engine:1",
                log_level="error",
                **arguments,
            )
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        try:
            yield Running(engine, models, events)
        finally:
            _end(engine, _children() - others)

    return started


def _children() -> set[psutil.Process]:
    """Everything this process has started, but for Python's own tracker of shared resources."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if not any("resource_tracker" in word for word in child.cmdline()):
                found.add(child)
    return found


def _end(engine: Any, processes: set[psutil.Process]) -> None:
    """End one engine. Its own `shutdown` would end every child of this process, other engines and the tracker too."""
    engine.tokenizer_manager._subprocess_watchdog.stop()
    atexit.unregister(engine.shutdown)
    waiting = asyncio.all_tasks(engine.loop)
    for task in waiting:
        task.cancel()
    engine.loop.run_until_complete(asyncio.wait(waiting, timeout=10) if waiting else asyncio.sleep(0))
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, left = psutil.wait_procs(processes, timeout=30)
    assert not left, f"processes of the engine are still there: {left}"
    # This one socket SGLang would leave to the collector, which warns of it.
    engine.send_to_rpc.context.destroy(linger=0)
