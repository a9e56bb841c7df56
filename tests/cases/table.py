"""Public reports on publications and prefix caches, and what stops each of them here.

`C` rows are reports on other systems and on upstream, `X` rows what reading SGLang's code foretells. A row is stopped
by a configuration that is judged (`Judged`), by a mutant of a protocol (any whose report names the row), by a bug that
is built into the implementation and noticed (`Code`), by a trace that is explained or not (`Told`), by a scenario on a
real engine (`LIVE`: any in the scenarios' catalogue that names it), or it is outside, with the reason. `Open` says
which part of the project still has to stop it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Judged:
    """A configuration and the rule that must decide it. `scoped`: whether cache keys name the adapter."""

    rule: str
    settings: dict[str, Any]
    scoped: bool = True


@dataclass(frozen=True)
class Code:
    """A known bug, by its name in `test_known_bugs` or `test_known_engine_bugs` of `tests/conformance`."""

    bug: str


@dataclass(frozen=True)
class Told:
    """A trace that is judged, by its name in `tests/cases/traces.py`."""

    trace: str


@dataclass(frozen=True)
class Live:
    """A scenario on a real engine shows it."""


@dataclass(frozen=True)
class Outside:
    """Nothing here has to stop it, and why."""

    reason: str


@dataclass(frozen=True)
class Open:
    """The part that has yet to stop it."""

    part: str


Stop = Judged | Code | Told | Live | Outside | Open


@dataclass(frozen=True, init=False)
class Row:
    """One report. `forms` are the ways in which it can be put: `a` configuration, `b` mutant, `c` trace, `d` engine."""

    id: str
    source: str
    forms: str
    title: str
    stops: tuple[Stop, ...]

    def __init__(self, id: str, source: str, forms: str, title: str, *stops: Stop) -> None:  # noqa: A002
        for name, value in zip(
            ("id", "source", "forms", "title", "stops"), (id, source, forms, title, stops), strict=True
        ):
            object.__setattr__(self, name, value)


LIVE = Live()
SHARE = {"disable_radix_cache": False}


def engine(
    mode: str,
    options: dict[str, Any],
    worker_type: str = "regular",
    update_weights: bool = True,
    **settings: Any,
) -> dict[str, Any]:
    """One engine on one GPU."""
    group = {"worker_type": worker_type, "num_gpus": 1, "gpus_per_engine": 1}
    models = [{"update_weights": update_weights, "groups": [group]}]
    return {"pause_mode": mode, "options": options, "models": models} | settings


def retract(options: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """An engine that publications pause by retract."""
    return engine("retract", options or {}, **settings)


def in_place(options: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    """An engine that publications pause in place."""
    return engine("in_place", options or {}, **settings)


ROWS = (
    Row("C01", "sglang#31962", "bcd", "A flush under a retract pause is refused for what waits in the queue", LIVE),
    Row("C02", "sglang#33783", "bcd", "Retracting leaves prefixes of the old weights matchable", LIVE),
    Row(
        "C03",
        "sglang#32153",
        "bd",
        "A refused flush inside an update or release kills the scheduler",
        LIVE,
        Code("memory_is_released_without_a_flush"),
    ),
    Row(
        "C05",
        "miles#1750",
        "ab",
        "The mode test takes any substring; refused flushes are repeated without a pause",
        Judged("pause-mode-known", retract(pause_mode="in")),
    ),
    Row(
        "C06",
        "slime#1953",
        "c",
        "Flush refusals are neither logged nor waited on",
        Told("nobody_waits_for_a_refused_flush"),
        Told("a_refused_flush_ends_the_publication"),
        Code("refusals_are_repeated_at_once"),
    ),
    Row("C07", "miles#847", "bc", "A request that never ends blocks every flush"),
    Row("C08", "AReaL#140", "bcd", "Requests still run when the update's flush comes", LIVE),
    Row("C09", "sglang#12099", "bcd", "Aborting everything is not waiting for everything"),
    Row("C10", "sglang#14062", "bd", "A look-ahead result keeps a finished request in the batch", LIVE),
    Row(
        "C11",
        "sglang#36869",
        "c",
        "The refusal's message hides what refused",
        LIVE,
        Told("a_refused_flush_ends_the_publication"),
    ),
    Row("C12", "reef#206", "bcd", "A compiling grammar blocks every paused flush", LIVE),
    Row(
        "C13",
        "miles#2782",
        "abcd",
        "In-place recipes leave entries of old weights in the tree",
        Judged("sharing-needs-retract", in_place(SHARE)),
        LIVE,
    ),
    Row("C14", "miles#2783", "bc", "Entries of mixed weights enter the tree and compound"),
    Row("C15", "sglang#21705", "b", "An in-place pause rearranges the batches"),
    Row(
        "C16",
        "sglang#10071 (review)",
        "a",
        "Nobody knows which pause goes with which flush",
        Judged("in-place-unshared", in_place()),
        Judged("retract-shared", retract()),
    ),
    Row("C18", "sglang#22754", "bc", "A continue slips between the check and the update"),
    Row("C19", "sglang#22290 / #22211", "b", "An update waits for readers that the pause holds"),
    Row("C20", "sglang#29670", "bc", "The same wait, in the session's last call"),
    Row(
        "C21",
        "sglang#24462",
        "ab",
        "Pause and update overtake each other between tokenizer workers",
        Judged("one-tokenizer-worker", retract({"tokenizer_worker_num": 2})),
    ),
    Row("C22", "sglang#22620", "b", "A broadcast starts while a look-ahead pass still runs"),
    Row(
        "C23",
        "sglang#23668 / #23672",
        "ab",
        "Disaggregated engines ignore a pause and cannot be retracted",
        Judged("retract-excludes-roles", retract(worker_type="prefill")),
        Judged("retract-excludes-roles", retract(worker_type="decode")),
    ),
    Row(
        "C24",
        "sglang#40730 / #39357",
        "c",
        "A retracted request is replayed on another prefill rank",
        Judged("retract-excludes-roles", retract(worker_type="prefill")),
    ),
    Row(
        "C25",
        "sglang#25372",
        "b",
        "Retracted requests of a decode engine keep its flush illegal",
        Judged("retract-excludes-roles", retract(worker_type="decode")),
    ),
    Row(
        "C26",
        "sglang-jax#984",
        "bc",
        "An abort pause leaks a chunk's KV and answers nobody",
        Judged("pause-mode-known", retract(pause_mode="abort")),
    ),
    Row("C27", "sglang-jax#1010", "d", "Re-prefilling in small chunks changes results", LIVE),
    Row(
        "C28",
        "ray#63769 (bot review)",
        "ac",
        "A pause that keeps requests is asked to clear the cache",
        Judged("offload-needs-retract", in_place(offload=True)),
        Told("a_pause_that_keeps_requests_and_a_flush"),
    ),
    Row(
        "C29",
        "sglang#26792",
        "abcd",
        "Storage gives old KV back after a flush",
        Judged("no-cache-beyond-flush", retract({"hicache_storage_backend": "file"})),
    ),
    Row(
        "C30",
        "sglang#29443",
        "bc",
        "Clearing storage fails on one rank and nobody says so",
        Judged("no-cache-beyond-flush", retract({"hicache_storage_backend": "mooncake"})),
    ),
    Row(
        "C31",
        "tokenspeed#1125 (bot review, 1)",
        "abc",
        "A stored namespace that only a version would advance",
        Judged("no-cache-beyond-flush", retract({"enable_unified_cache_external_linker": True})),
    ),
    Row(
        "C32",
        "tokenspeed#1125 (bot review, 2)",
        "b",
        "Ranks disagree about a flush and hang in the broadcast",
        Judged("every-rank-answers", retract({"dp_size": 2})),
    ),
    Row(
        "C33",
        "Tanguille/cluster#4213",
        "ac",
        "Stored KV is keyed by the served name alone",
        Judged("no-cache-beyond-flush", retract({"hicache_storage_backend": "mooncake"})),
    ),
    Row(
        "C34",
        "llm-d-kv-cache#396",
        "c",
        "A router still scores prefixes that are gone",
        Outside("no request is answered wrongly by a router's outdated index, only sent to a worse engine"),
    ),
    Row(
        "C36",
        "vllm#57970",
        "bc",
        "A cache without a reset answers nothing, and that counts as success",
        Judged("no-cache-beyond-flush", retract({"radix_cache_backend": "custom"})),
    ),
    Row(
        "C37",
        "vllm#44910 (+#45093, reverted #46125, #48762)",
        "bc",
        "Image embeddings outlive an update of the vision tower",
        Judged("no-cache-beyond-flush", retract({"enable_mm_global_cache": True})),
    ),
    Row(
        "C38",
        "trl#7198 / #7200",
        "ac",
        "After a sync only the prefix cache is reset",
        Judged("no-cache-beyond-flush", retract({"enable_mm_global_cache": True})),
    ),
    Row(
        "C39",
        "verl#6523",
        "ac",
        "The multimodal cache is not reset",
        Judged("no-cache-beyond-flush", in_place({"enable_mm_global_cache": True})),
    ),
    Row("C40", "vllm#47147", "b", "Front end and back end disagree about what is cached"),
    Row("C41", "vllm-omni#6739", "bc", "A reset that is a stub answers with a note"),
    Row("C42", "lmdeploy#4917 / #4918", "bcd", "An update leaves the prefix cache as it was", LIVE),
    Row("C43", "RLinf#96", "ab", "Only the colocated layout happens to flush", Judged("in-place-unshared", in_place())),
    Row(
        "C44",
        "pytorch/rl#4016 (1)",
        "a",
        "A flush is asked for under a pause that cannot honour it",
        Judged("offload-needs-retract", in_place(offload=True)),
        Judged("sharing-needs-retract", in_place(SHARE)),
    ),
    Row("C45", "pytorch/rl#4016 (2)", "bc", "A second way to update never resets"),
    Row("C46", "SkyRL#1824", "bc", "A reset does nothing while requests run"),
    Row(
        "C48",
        "vllm#12284",
        "c",
        "The reset answers 200 whether or not it reset",
        Told("a_flush_that_answers_and_does_nothing"),
    ),
    Row("C49", "vllm#34382", "b", "Requests in progress keep the cache from being cleared"),
    Row("C50", "vllm#9744", "b", "Loading weights invalidates nothing"),
    Row("C51", "vllm#17103 / ms-swift#5143", "bc", "Sleeping without a reset leaves hits on memory that is gone"),
    Row(
        "C52",
        "ms-swift#6343",
        "ab",
        "A sync of adapters alone skips the reset",
        Judged("sharing-needs-retract", in_place({"enable_lora": True} | SHARE)),
    ),
    Row("C53", "OpenRLHF#703", "b", "A prefix cache is added before anything resets it"),
    Row(
        "C54",
        "prime-rl#1650",
        "ac",
        "A dependency turns sharing on by itself",
        Judged("no-hidden-sharing", in_place({"disaggregation_decode_enable_radix_cache": True}, worker_type="decode")),
        Judged("unkeyed-adapters-unshared", retract({"lora_paths": ["a=/a"]}), scoped=False),
    ),
    Row(
        "C55",
        "prime-rl#2266 (bot review)",
        "ac",
        "A salt changes although the weights do not",
        Outside("no salt is used: an entry is valid because every publication empties the cache"),
    ),
    Row(
        "C56",
        "prime-rl#2314",
        "abc",
        "One request without the salt finds old entries",
        Judged("sharing-needs-retract", in_place(SHARE)),
    ),
    Row(
        "C57",
        "prime-rl#2687",
        "a",
        "A frozen model is invalidated with the trained one",
        Judged("retract-shared", retract(update_weights=False)),
    ),
    Row(
        "C58",
        "NeMo-RL#3152",
        "ab",
        "A flag is honoured under one style of update only",
        Judged("retract-shared", retract()),
        Judged("retract-shared", retract(offload=True)),
    ),
    Row(
        "C59",
        "NeMo-RL#4018",
        "abc",
        "KV in flight and shared prefixes hang on one flag",
        Judged("in-place-unshared", in_place()),
        Judged("sharing-needs-retract", in_place(SHARE)),
    ),
    Row(
        "C60",
        "NeMo-RL#3266 (review)",
        "ab",
        "Invalidation hangs on the allowed staleness",
        Judged("shape", retract() | {"max_staleness": 1}),
    ),
    Row(
        "C61",
        "NeMo-RL#2884 (review)",
        "c",
        "An invalidation that works reports that it does not",
        Told("a_flush_that_works_and_says_it_did_not"),
        Told("a_failed_flush_that_is_warned_of_and_ignored"),
    ),
    Row(
        "C62",
        "AReaL#466",
        "",
        "Nobody says whether KV is computed anew after a pause",
        Outside("a question; the answer is what the pause modes mean here"),
    ),
    Row(
        "C64",
        "trl#6344 (bot review)",
        "abc",
        "An adapter is replaced in place while prefixes are shared",
        Judged("sharing-needs-retract", in_place({"enable_lora": True} | SHARE)),
    ),
    Row(
        "C67",
        "vllm#30931",
        "abc",
        "Two adapters of one name share entries",
        Judged("sharing-needs-adapter-keys", retract({"enable_lora": True} | SHARE), scoped=False),
    ),
    Row(
        "C68",
        "vllm#44939",
        "bc",
        "A tower's adapter is reloaded and old embeddings are used",
        Judged("no-cache-beyond-flush", retract({"enable_lora": True, "enable_mm_global_cache": True})),
    ),
    Row(
        "C69",
        "vllm#3264",
        "b",
        "The key forgets the adapter",
        Judged("unkeyed-adapters-unshared", retract({"enable_lora": True}), scoped=False),
        LIVE,
    ),
    Row(
        "C70",
        "vllm#44250 / LMCache#2961",
        "abc",
        "A stored key forgets the adapter",
        Judged("no-cache-beyond-flush", retract({"enable_lora": True, "enable_lmcache": True})),
    ),
    Row(
        "C71",
        "sglang-jax#570",
        "b",
        "The radix key forgets the adapter",
        Judged("unkeyed-adapters-unshared", retract({"enable_lora": True}), scoped=False),
        LIVE,
    ),
    Row(
        "C72",
        "sglang#30913 (review)",
        "bc",
        "A failed replacement leaves an adapter half written",
    ),
    Row(
        "C73",
        "sglang#32238",
        "bc",
        "Unloading waits for requests that the pause holds",
        Code("an_adapter_is_unloaded_under_a_pause"),
        Code("an_adapter_is_activated_behind_the_latch"),
    ),
    Row(
        "C74",
        "miles#2780",
        "bc",
        "The same wait for retracted requests",
        Code("an_adapter_is_unloaded_under_a_pause"),
        Code("an_adapter_is_activated_behind_the_latch"),
    ),
    Row("C75", "sglang#36384", "bc", "A slot serves its predecessor's weights"),
    Row("C76", "SkyRL#1657", "bc", "A pause for one adapter must cover all users of its KV"),
    Row("C77", "vllm#57854", "bc", "Weights are written while their memory is released"),
    Row("C78", "vllm#29341 / trl#4571", "bc", "Memory comes back without its weights"),
    Row("C79", "sglang#24123", "bc", "A release when busy, or a resume without a release, kills"),
    Row("C80", "Relax#282", "bc", "A prefill that was left over runs after the release"),
    Row("C81", "miles#86 / slime#579", "b", "The release answers before memory is free"),
    Row("C82", "tokenspeed#272 (bot review)", "b", "A release does not wait for generation"),
    Row("C83", "sglang#14092", "bc", "Memory is resumed while the trainer holds it"),
    Row(
        "C84",
        "sglang#18646",
        "b",
        "Transfer buffers stay registered when KV is released",
        Judged("offload-excludes-roles", in_place(worker_type="decode", offload=True)),
    ),
    Row(
        "C86",
        "reef#61",
        "bc",
        "A wedged engine looks like a full one",
        Code("a_failed_eviction_is_ignored"),
        Code("a_new_engine_lacks_the_adapters"),
    ),
    Row("C88", "reef#62", "b", "A health check hides the retry"),
    Row("C89", "reef#206", "bc", "A failed barrier leaves the marker at CHECKPOINT"),
    Row(
        "C90",
        "reef#37",
        "b",
        "An adapter's replacement is not safe across restarts",
        Code("an_adapter_keeps_its_name"),
        Code("a_new_life_forgets_what_engines_hold"),
    ),
    Row("C91", "sglang-omni#678", "bc", "Weights change, the flush fails, and both count as one failure", LIVE),
    Row(
        "C93",
        "vllm#49040 / #54443",
        "c",
        "A label names a version that made no token",
        Told("a_label_from_the_admission"),
        Told("a_label_from_the_start"),
    ),
    Row(
        "C95",
        "slime#2279",
        "bc",
        "Samples are relabelled when an update lands before they end",
        Code("stamps_are_filled_in_afterwards"),
    ),
    Row(
        "C97", "miles#1893", "c", "Nothing to send, so nobody sends the version", Told("nothing_to_send_and_no_id_sent")
    ),
    Row("C98", "vime#45", "c", "One path forgets to record the version", Told("one_way_forgets_to_record_the_id")),
    Row(
        "C99",
        "dynamo#6094",
        "c",
        "The version changes in the front end only",
        Code("verification_asks_the_front_end"),
        Told("one_way_forgets_to_record_the_id"),
    ),
    Row(
        "C100",
        "verl#2455",
        "b",
        "Every rank asks for the flush",
        Code("only_one_engine_is_flushed"),
        Told("every_rank_asks_for_the_flush"),
    ),
    Row(
        "C101",
        "rllm#291",
        "ac",
        "With a certain memory flag nothing is ever synchronised",
        Judged("shape", retract() | {"free_cache_engine": False}),
        Told("nothing_to_send_and_no_id_sent"),
    ),
    Row("C102", "NeMo-RL#3944", "b", "A transfer goes on to a peer that is gone"),
    Row("C103", "xtuner#2027 (bot review)", "b", "Endpoints that are down count as targets"),
    Row(
        "C104",
        "vllm#39366 / prime-rl#2325",
        "b",
        "Ranks pause one after the other and hang",
        Judged("every-rank-answers", retract({"dp_size": 2})),
    ),
    Row(
        "C105",
        "tpu-inference#3362",
        "bc",
        "Aborted requests are answered by nobody",
        Judged("pause-mode-known", retract(pause_mode="abort")),
    ),
    Row(
        "C106",
        "prime-rl#2841",
        "bc",
        "Cancelling after the resume frees what is still in use",
        Outside(
            "a client cancels while KV is on its way from a prefill to a decode engine; such engines are refused under "
            "retract, and in place no publication touches that KV"
        ),
    ),
    Row("C107", "SkyRL#537 (bot review)", "bc", "Requests on the way in escape the pause"),
    Row(
        "X1",
        "SGLang 0.5.23, read",
        "cd",
        "After a retraction cached_tokens proves nothing",
        LIVE,
    ),
    Row(
        "X2",
        "SGLang 0.5.23, read",
        "cd",
        "A timed flush under a retract pause never succeeds",
        LIVE,
        Code("a_flush_with_a_time_out"),
    ),
    Row(
        "X3",
        "SGLang 0.5.23, read",
        "ab",
        "One rank of several refuses a flush, unheard",
        Judged("every-rank-answers", retract({"dp_size": 2})),
        Judged("every-rank-answers", retract({"attn_dp_size": 2})),
    ),
    Row(
        "X4",
        "SGLang 0.5.23, read",
        "a",
        "Pipeline parallelism and multiplexing ignore a pause",
        Judged("pause-is-obeyed", retract({"pp_size": 2})),
        Judged("pause-is-obeyed", retract({"enable_pdmux": True})),
    ),
    Row(
        "X5",
        "SGLang 0.5.23, read",
        "cd",
        "The first token after an in-place publication is labelled too new",
        LIVE,
    ),
    Row(
        "X6",
        "SGLang 0.5.23, read",
        "ad",
        "An abort pause after an in-place pause hangs",
        Judged("pause-mode-known", in_place(pause_mode="abort")),
        LIVE,
    ),
    Row(
        "X7",
        "SGLang 0.5.23, read",
        "ad",
        "A queue limit aborts what was retracted",
        Judged("no-queue-limit", retract({"max_queued_requests": 8})),
        LIVE,
    ),
    Row(
        "X8",
        "SGLang 0.5.23, read",
        "cd",
        "A refused flush inside an update leaves everything half new",
        LIVE,
        Told("a_flush_that_answers_and_does_nothing"),
    ),
    Row(
        "X9",
        "SGLang 0.5.23, read",
        "bc",
        "KV memory comes back after a release whose flush was refused",
        Code("memory_is_released_without_a_flush"),
    ),
    Row(
        "X10",
        "SGLang 0.5.23, read",
        "ab",
        "A streaming session goes on with its KV",
        Judged("no-streaming-sessions", retract({"enable_streaming_session": True})),
        Judged("no-streaming-sessions", in_place({"enable_streaming_session": True})),
    ),
    Row(
        "X11",
        "SGLang 0.5.23, read",
        "cd",
        "A failed update from disk rolls back to what failed",
        LIVE,
        Code("a_failed_update_is_taken_for_undone"),
    ),
    Row("X12", "SGLang 0.5.23, read", "bc", "A prefill between an update's parts", Told("a_prefill_between_two_parts")),
    Row(
        "X13",
        "SGLang 0.5.23, read",
        "ab",
        "A decode engine is updated, its prefill engine not yet",
        Judged("retract-excludes-roles", retract(worker_type="decode")),
    ),
    Row(
        "X14",
        "SGLang 0.5.23, read",
        "c",
        "Several samples of one request share its prompt, rightly",
        Told("samples_of_one_request_share_its_prompt"),
    ),
    Row(
        "X15",
        "SGLang 0.5.23, read",
        "cd",
        "A new request shares what another new one made, rightly",
        LIVE,
        Told("samples_of_one_request_share_its_prompt"),
    ),
    Row(
        "X16",
        "SGLang 0.5.23, read",
        "c",
        "News of a cleared cache comes only after the continue",
        Outside("no cache event is read here: that a cache is empty is known from the flush's own answer"),
    ),
)
"""In the order of their numbers."""
