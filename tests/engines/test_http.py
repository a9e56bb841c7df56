"""Bounds, retries and order of an HTTP engine, where no real engine is needed to show them.

What SGLang itself does is shown on SGLang, in `tests/engine` and in the scenarios.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx", reason="needs the extra 'engine': httpx is not installed")

from reef_ref.control import ChecksContent  # noqa: E402  They need httpx.
from reef_ref.engines.checkpoint import read_layout  # noqa: E402
from reef_ref.engines.errors import (  # noqa: E402
    CallRefused,
    CheckpointRejected,
    EngineNotSupported,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    FlushRefused,
    GenerationFailed,
    UpdateFailed,
)
from reef_ref.engines.http import connect  # noqa: E402
from reef_ref.engines.interface import (  # noqa: E402
    ALL_REGIONS,
    CacheState,
    Engine,
    Limits,
    PauseMode,
    PluginReport,
    Region,
    Request,
    WeightState,
)
from reef_ref.engines.sglang_engine import SGLangEngine  # noqa: E402
from reef_ref.engines.simulated import run_simulated  # noqa: E402

ADDRESS = "http://127.0.0.1:30000"
QUICK = Limits(
    connect_s=0.2, control_s=0.3, health_s=0.2, generate_s=0.3, update_s=0.3, memory_s=0.3,
    flush_try_s=0.2, flush_total_s=0.4, flush_first_wait_s=0.02, flush_longest_wait_s=0.1,
)  # fmt: skip


def checkpoint(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return folder


class Script:
    """A server that answers by route from a table, and remembers what it was asked."""

    def __init__(self, model_path: Path, **answers: Callable[[Any], Any]) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.info: dict[str, Any] = {"model_path": str(model_path), "internal_states": [{"weight_version": "a:1"}]}
        self.answers = answers

    async def __call__(self, request: Any) -> Any:
        route = request.url.path.strip("/")
        body = json.loads(request.content) if request.content else None
        self.asked.append((route, body))
        if route in self.answers:
            answer = self.answers[route](body)
            return await answer if asyncio.iscoroutine(answer) else answer
        if route == "server_info":
            return httpx.Response(200, json=self.info)
        return httpx.Response(200, json={"status": "ok"})

    def routes(self) -> list[str]:
        return [route for route, _ in self.asked]


async def engine_of(script: Script) -> SGLangEngine:
    layout = read_layout(Path(script.info["model_path"]))  # Virtual time waits for no thread, which would read it.
    return await connect(ADDRESS, limits=QUICK, layout=layout, transport=httpx.MockTransport(script))


def answer(status: int, **body: Any) -> Callable[[Any], Any]:
    return lambda _: httpx.Response(status, json=body)


async def never(_: Any) -> Any:
    await asyncio.sleep(60)


def test_the_engine_is_an_engine(tmp_path: Path) -> None:
    """The HTTP engine has every method of the interface."""

    async def story() -> None:
        assert isinstance(await engine_of(Script(checkpoint(tmp_path / "m"))), Engine)

    asyncio.run(story())


def test_flush_backs_off_and_succeeds(tmp_path: Path) -> None:
    """A transient refusal is retried; the result says how often and why."""
    replies = iter([(400, "busy: 3 running"), (400, "busy: 1 running"), (200, "flushed")])

    def flush(_: Any) -> Any:
        status, text = next(replies)
        return httpx.Response(status, text=text)

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), flush_cache=flush))
        result = await engine.flush()
        assert (result.cache, result.refusals, result.last_refusal) == (CacheState.CLEARED, 2, "busy: 1 running")
        assert result.seconds == pytest.approx(QUICK.flush_first_wait_s * 3)

    run_simulated(story())


def test_flush_gives_up_with_the_last_refusal(tmp_path: Path) -> None:
    """Refusals are waited on, bounded, and the last one's text is in the error."""
    times: list[float] = []

    def flush(_: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return httpx.Response(400, text=f"refusal number {len(times)}")

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), flush_cache=flush))
        with pytest.raises(FlushRefused, match=r"last with status 400: refusal number") as caught:
            await engine.flush()
        assert times[-1] - times[0] <= QUICK.flush_total_s
        assert caught.value.attempts.tries == len(times)
        assert caught.value.message == f"refusal number {len(times)}"
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert gaps == pytest.approx([0.02, 0.04, 0.08, 0.1, 0.1])

    run_simulated(story())


def test_a_flush_never_asks_sglang_to_wait(tmp_path: Path) -> None:
    """A time-out of SGLang's own would count what waits, and always expire under a retract pause."""
    queries: list[bytes] = []

    def flush(_: Any) -> Any:
        return httpx.Response(200, text="flushed")

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), flush_cache=flush)

        async def listen(request: Any) -> Any:
            queries.append(request.url.query)
            return await script(request)

        engine = await connect(ADDRESS, limits=QUICK, transport=httpx.MockTransport(listen))
        await engine.flush()
        assert script.asked[-1] == ("flush_cache", None)
        assert queries[-1] == b""

    asyncio.run(story())


def test_flush_that_hangs_is_bounded(tmp_path: Path) -> None:
    """A try without an answer counts as a refusal, and the error says so."""

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), flush_cache=never))
        with pytest.raises(FlushRefused, match=r"no answer within 0\.2 s"):
            await asyncio.wait_for(engine.flush(), 3)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("route", "call"),
    [
        ("pause_generation", lambda engine: engine.pause(PauseMode.RETRACT)),
        ("continue_generation", lambda engine: engine.continue_generation()),
        ("generate", lambda engine: engine.generate(Request(input_ids=(1,), max_new_tokens=1))),
        ("load_lora_adapter", lambda engine: engine.unload_adapter("a")),
    ],
)
def test_every_call_is_bounded(tmp_path: Path, route: str, call: Callable[[SGLangEngine], Any]) -> None:
    """An engine that never answers costs the bound and no more; the effect is unknown, and the error is a time-out."""
    routes = {route: never, "unload_lora_adapter": never}

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), **routes))
        with pytest.raises(EngineTimeout, match=r"no answer within 0\.3 s"):
            await asyncio.wait_for(call(engine), 3)

    asyncio.run(story())


def test_connection_refused_fails_at_once(tmp_path: Path) -> None:
    """Nothing listens: every call, a flush with its retries too, fails without waiting."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def attach() -> None:
        with pytest.raises(EngineUnreachable, match="nothing listens"):
            await connect(f"http://127.0.0.1:{port}")

    asyncio.run(attach())

    async def flush_the_dead() -> None:
        script = Script(checkpoint(tmp_path / "m"))
        engine = await engine_of(script)

        def refused(_: Any) -> Any:
            raise httpx.ConnectError("refused")

        script.answers = {"flush_cache": refused, "server_info": refused}
        with pytest.raises(EngineUnreachable):
            await engine.flush()
        assert script.routes().count("flush_cache") == 1
        assert not (await engine.health()).alive

    asyncio.run(flush_the_dead())


def test_something_else_on_the_port_is_noticed() -> None:
    """A server that is not SGLang, and one that speaks no HTTP at all, get one clear error each."""

    async def story() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(404, text="not here"))
        with pytest.raises(EngineNotSupported, match="no SGLang server"):
            await connect(ADDRESS, limits=QUICK, transport=transport)
        with pytest.raises(EngineUnreachable, match="not an http address"):
            await connect("127.0.0.1:30000", limits=QUICK)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("node_rank", 1, "node rank 0 speaks for the whole engine"),
        ("dp_size", 2, "only one is supported"),
        ("pp_size", 2, "only one is supported"),
        ("tokenizer_worker_num", 4, "only one is supported"),
    ],
)
def test_a_part_of_an_engine_is_refused(tmp_path: Path, field: str, value: int, reason: str) -> None:
    """An address whose answers would be those of a part of an engine is not accepted as an engine."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"))
        script.info[field] = value
        with pytest.raises(EngineNotSupported, match=reason):
            await engine_of(script)

    asyncio.run(story())


def test_pause_is_confirmed_by_the_scheduler(tmp_path: Path) -> None:
    """After the pause is sent, a question that the scheduler answers is asked before the pause counts."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"))
        engine = await engine_of(script)
        script.asked.clear()
        await engine.pause(PauseMode.RETRACT)
        assert script.asked == [("pause_generation", {"mode": "retract"}), ("server_info", None)]

    asyncio.run(story())


def test_an_update_never_asks_for_the_implicit_flush(tmp_path: Path) -> None:
    """The update says flush_cache=false, carries the new load id, and reports weights and cache separately."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"))
        engine = await engine_of(script)
        await engine.pause(PauseMode.RETRACT)
        result = await engine.update(checkpoint(tmp_path / "n"), "a:2")
        assert (result.weights, result.cache, result.load_id) == (WeightState.CHANGED, CacheState.KEPT, "a:2")
        route, body = script.asked[-1]
        assert route == "update_weights_from_disk"
        assert (body["flush_cache"], body["abort_all_requests"], body["weight_version"]) == (False, False, "a:2")

    asyncio.run(story())


@pytest.mark.parametrize("reply", [answer(400, success=False, message="cannot load"), never])
def test_a_failed_update_leaves_the_weights_unknown(tmp_path: Path, reply: Callable[[Any], Any]) -> None:
    """Refused or unanswered, an update may have changed some weights: the error says unknown."""

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), update_weights_from_disk=reply))
        await engine.pause(PauseMode.RETRACT)
        with pytest.raises(UpdateFailed) as caught:
            await engine.update(checkpoint(tmp_path / "n"), "a:2")
        assert (caught.value.result.weights, caught.value.result.cache) == (WeightState.UNKNOWN, CacheState.KEPT)

    asyncio.run(story())


def test_out_of_order_calls_are_never_sent(tmp_path: Path) -> None:
    """What SGLang would not survive is refused with the reason, and the engine hears nothing."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"))
        engine = await engine_of(script)
        heard = len(script.asked)
        with pytest.raises(CallRefused, match="pause and flush first"):
            await engine.release(ALL_REGIONS)
        with pytest.raises(CallRefused, match="pause first"):
            await engine.update(checkpoint(tmp_path / "n"), "a:2")
        assert (await engine.resume(ALL_REGIONS)).changed == frozenset()
        assert len(script.asked) == heard

        await engine.flush()  # A flush before the pause is no licence to release after it.
        await engine.pause(PauseMode.RETRACT)
        with pytest.raises(CallRefused, match="pause and flush first"):
            await engine.release(ALL_REGIONS)
        with pytest.raises(CallRefused, match="waits for paused requests"):
            await engine.unload_adapter("a")
        await engine.flush()
        assert (await engine.release(ALL_REGIONS)).released == ALL_REGIONS
        assert (await engine.release(ALL_REGIONS)).changed == frozenset()  # A second release is skipped.
        with pytest.raises(CallRefused, match="memory is released"):
            await engine.update(tmp_path / "n", "a:2")
        with pytest.raises(CallRefused, match="resume first"):
            await engine.continue_generation()
        await engine.resume(frozenset({Region.WEIGHTS}))
        await engine.update(tmp_path / "n", "a:2")
        with pytest.raises(CheckpointRejected):
            await engine.update(tmp_path / "missing", "a:3")
        await engine.resume(ALL_REGIONS)
        await engine.continue_generation()
        assert script.routes().count("release_memory_occupation") == 1
        assert script.routes().count("update_weights_from_disk") == 1

    asyncio.run(story())


def test_an_uncertain_memory_transition_ends_the_engine_s_use(tmp_path: Path) -> None:
    """After a failed release nobody knows what is mapped: every further transition and continue is refused."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), release_memory_occupation=answer(500, error="boom"))
        engine = await engine_of(script)
        await engine.pause(PauseMode.RETRACT)
        await engine.flush()
        with pytest.raises(EngineRefused, match="boom"):
            await engine.release(ALL_REGIONS)
        for call in (engine.release(ALL_REGIONS), engine.resume(ALL_REGIONS), engine.continue_generation()):
            with pytest.raises(CallRefused, match="replace the engine"):
                await call

    asyncio.run(story())


def test_both_labels_are_reported(tmp_path: Path) -> None:
    """The scheduler's and the front end's load id are two fields, because SGLang lets them differ."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), model_info=answer(200, weight_version="a:0"))
        report = await (await engine_of(script)).report()
        assert (report.load_id, report.front_end_load_id) == ("a:1", "a:0")

    asyncio.run(story())


def test_an_aborted_request_is_not_a_generation(tmp_path: Path) -> None:
    """An answer of status 200 that says 'abort' is a failed request, with the engine's words."""
    meta = {"id": "r", "finish_reason": {"type": "abort", "message": "queue is full", "status_code": 503}}

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), generate=answer(200, meta_info=meta, output_ids=[]))
        with pytest.raises(GenerationFailed, match="503: queue is full"):
            await (await engine_of(script)).generate(Request(input_ids=(1,), max_new_tokens=1))

    asyncio.run(story())


def test_layout_from_elsewhere_must_be_given(tmp_path: Path) -> None:
    """A checkpoint path that means nothing on this machine is an error that says what to pass."""

    async def story() -> None:
        script = Script(tmp_path / "on another machine")
        with pytest.raises(EngineNotSupported, match="pass its layout"):
            await connect(ADDRESS, limits=QUICK, transport=httpx.MockTransport(script))
        layout = read_layout(checkpoint(tmp_path / "m"))
        engine = await connect(ADDRESS, limits=QUICK, layout=layout, transport=httpx.MockTransport(script))
        assert engine.layout == layout

    asyncio.run(story())


def test_limits_must_be_positive() -> None:
    """A bound of zero would be no bound."""
    with pytest.raises(ValueError, match="flush_try_s must be positive"):
        Limits(flush_try_s=0)


def test_a_handle_that_was_shut_down_says_so(tmp_path: Path) -> None:
    """After shut_down, which may be called twice, calls fail at once and health is false."""

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m")))
        await engine.shut_down()
        await engine.shut_down()
        with pytest.raises(EngineUnreachable, match="was shut down"):
            await engine.report()
        assert not (await engine.health()).alive

    asyncio.run(story())


def test_an_adapter_that_was_unloaded_is_not_asked_for(tmp_path: Path) -> None:
    """SGLang would load it again by itself; a new load under the name makes it usable again."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), load_lora_adapter=answer(200, loaded_adapters={"a": "here"}))
        engine = await engine_of(script)
        request = Request(input_ids=(1,), max_new_tokens=1, adapter="a")
        await engine.unload_adapter("a")
        with pytest.raises(CallRefused, match="adapter a was unloaded"):
            await engine.generate(request)
        assert "generate" not in script.routes()
        (tmp_path / "adapter").mkdir()
        (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
        checkpoint(tmp_path / "x").joinpath("model.safetensors").rename(
            tmp_path / "adapter" / "adapter_model.safetensors"
        )
        await engine.load_adapter("a", tmp_path / "adapter")
        with pytest.raises(EngineNotSupported):  # It is asked; this script knows no answer.
            await engine.generate(request)
        assert script.routes()[-1] == "generate"

    asyncio.run(story())


def test_adapters_are_told_apart_from_the_base_model(tmp_path: Path) -> None:
    """In SGLang's list of models they have a parent; a list of another kind is said to be one."""
    cards = [{"id": "base", "root": "base", "parent": None}, {"id": "x@a:1", "root": "/x", "parent": "base"}]

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), **{"v1/models": answer(200, data=cards)})
        engine = await engine_of(script)
        assert await engine.adapters() == {"x@a:1": Path("/x")}
        script.answers["v1/models"] = answer(200, models=cards)
        with pytest.raises(EngineNotSupported, match="no list of models"):
            await engine.adapters()

    asyncio.run(story())


def test_a_checksum_is_told_or_refused(tmp_path: Path) -> None:
    """The digest over all ranks; an engine that tells none, or whose weights are away, has no checksum."""

    async def story() -> None:
        script = Script(checkpoint(tmp_path / "m"), weights_checker=answer(200, per_engine_checksum="abc"))
        engine = await engine_of(script)
        assert isinstance(engine, ChecksContent)
        assert await engine.checksum() == "abc"
        assert script.asked[-1] == ("weights_checker", {"action": "checksum", "selector": "target"})
        await engine.pause(PauseMode.RETRACT)
        await engine.flush()
        await engine.release(ALL_REGIONS)
        with pytest.raises(CallRefused, match="memory is released"):
            await engine.checksum()
        script.answers["weights_checker"] = answer(200, success=True)
        await engine.resume(ALL_REGIONS)
        with pytest.raises(EngineNotSupported, match="no per_engine_checksum"):
            await engine.checksum()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "message", "was_open"),
    [
        (200, "Success", True),
        (400, "no weight-update session is open; call begin_weight_update() first", False),
        (404, "Not Found", False),
    ],
)
def test_whether_an_update_session_was_open(tmp_path: Path, status: int, message: str, was_open: bool) -> None:
    """A release of SGLang that knows no sessions has none open."""

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), end_weight_update=answer(status, message=message)))
        assert await engine.end_update_session() is was_open

    run_simulated(story())


def test_a_session_that_cannot_be_ended_is_an_error(tmp_path: Path) -> None:
    """Nothing is concluded from a refusal of another kind."""

    async def story() -> None:
        engine = await engine_of(Script(checkpoint(tmp_path / "m"), end_weight_update=answer(500, message="broken")))
        with pytest.raises(EngineRefused, match="status 500: broken"):
            await engine.end_update_session()

    run_simulated(story())


def test_what_the_plugin_says(tmp_path: Path) -> None:
    """Over all ranks; nothing where there is no plugin, and little where it keeps no provenance."""
    counters = {"stale_prefixes": 2, "stale_adoptions": 1}
    good = {"load_id": "a:1", "mixed": False, "counters": counters}
    verified = {"able_to_share": True, "problems": []}
    script = Script(checkpoint(tmp_path / "m"))

    async def report(*states: dict[str, Any]) -> PluginReport | None:
        script.info["internal_states"] = [{"weight_version": "a:1"} | state for state in states]
        return await (await engine_of(script)).plugin()

    async def story() -> None:
        assert await report({}) is None
        idle = PluginReport(able_to_share=True, problems=(), provenance=False)
        assert await report({"reef_ref": verified}) == idle
        one = {"reef_ref": verified | {"provenance": good}}
        assert await report(one) == PluginReport(able_to_share=True, problems=(), provenance=True, stale=3)
        partial = {"able_to_share": False, "problems": ["p"], "provenance": good | {"load_id": None, "mixed": True}}
        assert await report(one, {"reef_ref": partial}) == PluginReport(
            able_to_share=False, problems=("p",), provenance=True, complete=False, mixed=True, stale=6
        )
        with pytest.raises(EngineNotSupported, match="not understood"):
            await report({"reef_ref": {}})

    run_simulated(story())
