"""The pages in `docs/adopting`: the Python of each is taken out and run on a real engine, before and after."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from reef_ref.adapter import CheckFailed, GuardSettings, PublicationFailed, PublicationGuard
from reef_ref.engines.process import serve
from reef_ref.events import Line
from reef_ref.monitor.validate import Verdict, validate
from reef_ref.scenarios.configuration import EngineConfiguration
from reef_ref.scenarios.models import Models
from reef_ref.scenarios.prompts import prompt

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "adopting"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
START_S, ANSWER_S = 280.0, 240.0
PROBE, ACROSS = list(prompt(1, 300)), list(prompt(2, 100))
ACROSS_TOKENS = 600
REQUIRED = GuardSettings(require_plugin=True)


def code_of(page: str) -> dict[str, Any]:
    """What the Python of a page defines; its blocks are one program."""
    blocks = PYTHON.findall((PAGES / page).read_text())
    assert blocks, f"{page} has no Python"
    names: dict[str, Any] = {}
    exec(compile("\n\n".join(blocks), page, "exec"), names)
    return names


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("checkpoints"))


def tensors(checkpoint: Path) -> list[tuple[str, Any]]:
    """A trainer's weights: named tensors in memory."""
    from safetensors.torch import load_file

    return sorted(load_file(checkpoint / "model.safetensors").items())


def halves(checkpoint: Path) -> list[list[tuple[str, Any]]]:
    """In two buckets."""
    named = tensors(checkpoint)
    return [named[: len(named) // 2], named[len(named) // 2 :]]


@pytest.fixture
def serialized() -> Callable[[Path], list[str]]:
    """Buckets as they go over HTTP: SGLang's own serialization. On a processor, memory has to have a name for it."""
    import torch.multiprocessing
    from sglang.srt.utils import MultiprocessingSerializer

    torch.multiprocessing.set_sharing_strategy("file_system")
    return lambda checkpoint: [
        MultiprocessingSerializer.serialize(half, output_str=True) for half in halves(checkpoint)
    ]


@pytest.fixture(scope="module")
def address(checkpoints: Models) -> Iterator[str]:
    """One server for all pages that speak HTTP."""
    with asyncio.Runner() as runner:
        life = contextlib.AsyncExitStack()
        settings = EngineConfiguration().settings(checkpoints, None)
        server = runner.run(asyncio.wait_for(life.enter_async_context(serve(settings)), START_S))
        try:
            yield server.engine.address
        finally:
            runner.run(life.aclose())


def ask(address: str, tokens: list[int], count: int) -> dict[str, Any]:
    sampling = {"temperature": 0.0, "max_new_tokens": count, "ignore_eos": True}
    body = {"input_ids": tokens, "sampling_params": sampling}
    answer: dict[str, Any] = httpx.post(f"{address}/generate", json=body, timeout=ANSWER_S).raise_for_status().json()
    return answer


class InFlight:
    """A long request that has begun before the block, and is over after it."""

    def __init__(self, address: str) -> None:
        self.answer: dict[str, Any] = {}
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(address,))

    def _run(self, address: str) -> None:
        sampling = {"temperature": 0.0, "max_new_tokens": ACROSS_TOKENS, "ignore_eos": True}
        body = {"input_ids": ACROSS, "sampling_params": sampling, "stream": True}
        last: dict[str, Any] = {}
        with httpx.stream("POST", f"{address}/generate", json=body, timeout=ANSWER_S) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    last = json.loads(line.removeprefix("data: "))
                    self._begun.set()
        self.answer = last

    def __enter__(self) -> InFlight:
        self._thread.start()
        assert self._begun.wait(ANSWER_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(ANSWER_S)
        assert not self._thread.is_alive()


def stale(address: str) -> int:
    state = httpx.get(f"{address}/server_info", timeout=60).json()["internal_states"][0]["reef_ref"]
    return int(state["provenance"]["counters"]["stale_prefixes"])


@pytest.fixture
def told() -> list[Line]:
    return []


@pytest.fixture
def guard(address: str, tmp_path: Path, told: list[Line]) -> Iterator[PublicationGuard]:
    guard = PublicationGuard.over_http([address], folder=tmp_path, settings=REQUIRED, listener=told.append)
    with contextlib.closing(guard):
        yield guard


def explained(told: list[Line]) -> None:
    report = validate([line.to_json().encode() + b"\n" for line in told], engines=1)
    assert (report.verdict, report.finding) == (Verdict.EXPLAINED, None)


def a_page_publishes(
    address: str, guard: PublicationGuard, told: list[Line], publish: Callable[[int], str], *, aborts: bool = False
) -> None:
    """`publish` makes a checkpoint the engine's, by its number, and answers the load id: 1, then 2, then 1 again."""
    before = stale(address)
    answers, ids = [], []
    for number in (1, 2, 1):
        with InFlight(address) as across:
            ids.append(publish(number))
        answer = ask(address, PROBE, 12)
        assert answer["meta_info"]["cached_tokens"] == 0, "a prefix of the old weights was reused"
        assert answer["meta_info"]["weight_version"] == ids[-1]
        answers.append(answer["output_ids"])
        assert ask(address, PROBE, 12)["meta_info"]["cached_tokens"] == len(PROBE) - 1
        if not aborts:
            assert len(across.answer["output_ids"]) == ACROSS_TOKENS
            spans = across.answer["meta_info"]["weight_versions"]
            assert spans[0]["version"] != spans[-1]["version"] == ids[-1]
    assert answers[0] == answers[2] != answers[1]
    assert len(set(ids)) == 3
    assert stale(address) == before
    guard.check()
    explained(told)


def test_as_slime(
    address: str, guard: PublicationGuard, told: list[Line], checkpoints: Models, serialized: Any
) -> None:
    code = code_of("slime.md")
    code["publish_before"]([address], serialized(checkpoints.checkpoint(1)), 7)
    assert ask(address, PROBE, 4)["meta_info"]["weight_version"] == "7"
    a_page_publishes(
        address, guard, told, lambda n: code["publish"](guard, [address], serialized(checkpoints.checkpoint(n)))
    )


def test_as_miles(
    address: str, guard: PublicationGuard, told: list[Line], checkpoints: Models, serialized: Any
) -> None:
    code = code_of("miles.md")
    code["publish_before"]([address], serialized(checkpoints.checkpoint(1)), 8)
    assert ask(address, PROBE, 4)["meta_info"]["weight_version"] == "8"
    a_page_publishes(
        address, guard, told, lambda n: code["publish"](guard, [address], serialized(checkpoints.checkpoint(n)))
    )


def test_as_miles_in_place_reuses_what_the_old_weights_made(
    address: str, guard: PublicationGuard, checkpoints: Models, serialized: Any
) -> None:
    """What the page calls unsafe is: the check finds it, and a publication puts it right."""
    code = code_of("miles.md")
    code["publish"](guard, [address], serialized(checkpoints.checkpoint(1)))
    ask(address, PROBE, 12)
    before = stale(address)
    code["publish_before"]([address], serialized(checkpoints.checkpoint(2)), 9, mode="in_place")
    assert ask(address, PROBE, 12)["meta_info"]["cached_tokens"] == len(PROBE) - 1
    assert stale(address) == before + 1
    with pytest.raises(CheckFailed, match=r"engine 0 reports 9, its front end 9.*reused \d+ stale prefixes"):
        guard.check()
    code["publish"](guard, [address], serialized(checkpoints.checkpoint(2)))
    assert ask(address, PROBE, 12)["meta_info"]["cached_tokens"] == 0
    guard.check()


def test_as_areal(address: str, guard: PublicationGuard, told: list[Line], checkpoints: Models) -> None:
    code = code_of("areal.md")
    code["publish"](guard, [address], str(checkpoints.checkpoint(2)))
    ask(address, PROBE, 4)
    before = stale(address)
    code["publish_before"]([address], str(checkpoints.checkpoint(1)), 10)
    assert ask(address, PROBE, 4)["meta_info"]["weight_version"] == "10"
    assert stale(address) == before + 1, "nothing flushes, and a prefix of the old weights was reused"
    with pytest.raises(CheckFailed, match=r"reused \d+ stale prefixes"):
        guard.check()
    publish = lambda n: code["publish"](guard, [address], str(checkpoints.checkpoint(n)))  # noqa: E731
    a_page_publishes(address, guard, told, publish, aborts=True)


def test_what_goes_wrong_leaves_a_real_engine_fenced(
    address: str, guard: PublicationGuard, told: list[Line], checkpoints: Models, serialized: Any
) -> None:
    """A session left open, a forgotten label: nobody generates, until a publication in full."""
    code = code_of("miles.md")
    call = code["call"]
    buckets = serialized(checkpoints.checkpoint(2))

    def publish(*, label: bool, end: bool) -> None:
        with guard.publication() as publication:
            call(address, "begin_weight_update")
            for bucket in buckets:
                call(address, "update_weights_from_tensor", serialized_named_tensors=[bucket], flush_cache=False)
            if label:
                new = publication.load_id
                call(address, "update_weight_version", new_version=new, abort_all_requests=False)
            if end:
                call(address, "end_weight_update")

    with InFlight(address) as across:
        with pytest.raises(PublicationFailed, match="engine 0: the update session was not ended"):
            publish(label=True, end=False)
        buckets = serialized(checkpoints.checkpoint(2))
        with pytest.raises(PublicationFailed, match="engine 0 reports"):
            publish(label=False, end=True)
        with pytest.raises(CheckFailed, match="has not ended"):
            guard.check()
        assert not across.answer, "the engine generates"
        code["publish"](guard, [address], serialized(checkpoints.checkpoint(2)))
    assert len(across.answer["output_ids"]) == ACROSS_TOKENS
    guard.check()
    assert validate([line.to_json().encode() + b"\n" for line in told], engines=1).finding is None


def test_the_index_and_the_readme(address: str, tmp_path: Path, checkpoints: Models) -> None:
    """The same few lines in both, run once from each."""
    readme = (ROOT / "README.md").read_text().split("## Without Reef")[1].split("\n## ")[0]
    names: dict[str, Any] = {}
    (block,) = PYTHON.findall(readme)

    class Trainer:
        """Sends by way of the disk."""

        def update_weights(self, addresses: list[str], *, weight_version: str) -> None:
            send = code_of("areal.md")["send"]
            for engine in addresses:
                send(engine, str(checkpoints.checkpoint(2)), weight_version)

    (tmp_path / "publications").mkdir()
    names |= {"addresses": [address], "folder": tmp_path / "publications", "trainer": Trainer()}
    exec(compile(block, "README.md", "exec"), names)
    assert names["publication"].load_id == ask(address, PROBE, 4)["meta_info"]["weight_version"]
    names["guard"].close()
    code = code_of("README.md")
    guard = code["guarded"]([address], tmp_path / "publications")
    with contextlib.closing(guard):
        load_id = code["publish"](guard, lambda label: Trainer().update_weights([address], weight_version=label))
        code["before_rollouts"](guard)
    assert load_id == ask(address, PROBE, 4)["meta_info"]["weight_version"] != names["publication"].load_id


def test_as_verl(start: Any, models: dict[str, Path], tmp_path: Path) -> None:
    """With an engine in this process, whose memory comes and goes."""
    code = code_of("verl.md")
    environment = {"REEF_REF_PROVENANCE": "report", "REEF_REF_IDLE": "retract"}
    told: list[Line] = []
    with start(tmp_path / "events", environment, enable_memory_saver=True) as running:
        engine = running.engine
        running.run(settled(running))
        code["step_before"](engine, partial(halves, models["one"]))
        first, _ = running.generate(PROBE)
        guard = PublicationGuard.over_engines([engine], folder=tmp_path, settings=REQUIRED, listener=told.append)
        with contextlib.closing(guard):
            for name in ("two", "one"):
                load_id = code["step"](guard, engine, partial(halves, models[name]))
                tokens, meta = running.generate(PROBE)
                assert (tokens == first) == (name == "one")
                assert (meta["cached_tokens"], meta["weight_version"]) == (0, load_id)
                assert running.generate(PROBE)[1]["cached_tokens"] == len(PROBE) - 1
            guard.check()
            with pytest.raises(LookupError, match="the optimizer diverged"):
                code["step"](guard, engine, diverge)
            with pytest.raises(CheckFailed, match="has not ended"):
                guard.check()
        assert running.counters()["stale_prefixes"] == 0
    assert validate([line.to_json().encode() + b"\n" for line in told], engines=1).finding is None


def diverge() -> Any:
    raise LookupError("the optimizer diverged")


async def settled(running: Any) -> None:
    """The engine is idle: what its warm-up request left is delivered."""
    assert await running.flush()
