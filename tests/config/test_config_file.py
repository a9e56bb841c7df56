"""Whatever a file holds: an answer or one line, never a traceback."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reef_ref.cli import main
from reef_ref.config import Refusal, SGLangConfig, judge
from reef_ref.config_file import MAX_BYTES, UnreadableError, parse_yaml, read_yaml
from reef_ref.lora_schema import AdapterKeys
from reef_ref.options import JUDGED
from reef_ref.slime import SlimeArguments, from_deployment, judge_slime

KNOWN = sorted(
    {*JUDGED, *SGLangConfig.model_fields, *SlimeArguments.model_fields, "training", "inference", "groups", "num_gpus"}
    | {"gpus_per_engine", "worker_type", "update_weights"}
)
NAMES = st.sampled_from(KNOWN).flatmap(lambda name: st.sampled_from([name, name.replace("_", "-")]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
    | st.sampled_from(["retract", "in_place", "regular", "decode", "null", "file"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


UNHURRIED = settings(deadline=None, derandomize=True)
"""The first example pays for imports, and the machine may be busy."""


def no() -> AdapterKeys:
    return AdapterKeys(False, "said so")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs") / "file.yaml"


def run(file: Path, text: bytes) -> int:
    """The command on a file: its status, after what it printed was looked at."""
    file.write_bytes(text)
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(["config", "check", str(file), "--adapter-keys", "no", "--explain"])
    printed, line = out.getvalue(), err.getvalue()
    if status == 0:
        assert printed.startswith(f"{file}: accepted")
        assert not line
    else:
        assert status == 2
        assert not printed
        assert line.startswith(f"reef-ref: {file}")
        assert line.endswith("\n")
        assert line.removesuffix("\n").isprintable()
    return status


@UNHURRIED
@given(text=st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(text=b"!!bool maybe")
@example(text=b"!!timestamp x")
@example(text=b"!!int ''")
@example(text=b"!!float a")
@example(text=b"!!python/object/apply:os.system [true]")
@example(text=b"? [1, 2]\n: 3")
@example(text=b"? {a: 1}\n: 3")
@example(text=b"&a [*a]")
@example(text=b"options: &a {x: *a}")
@example(text=b"models: &a [*a]")
@example(text=b"<<: 3")
@example(text=b"a: 1\n---\nb: 2")
@example(text=b"2001-99-99")
@example(text=b"\xff\xfe")
@example(text=b"'\\e[31m': 1")
@example(text=b'"\\e[31m": 1')
@example(text=b'"a\\nb": 1')
@example(text=b'pause_mode: "\\e[31m\\n"')
@example(text=b"num_gpus: " + b"9" * 5000)
@example(text=b"num_gpus: 0x" + b"f" * 5000)
@example(text=b"engine_port_base: 0x" + b"f" * 5000)
@example(text=b"options: {disable_radix_cache: 0x" + b"f" * 5000 + b"}")
@example(text=b"[" * 5000)
@example(text=b"options: " + b"{a: " * 400 + b"}" * 400)
def test_any_bytes(text: bytes, file: Path) -> None:
    run(file, text)


@UNHURRIED
@given(said=st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_settings(said: dict[str, object], file: Path) -> None:
    """Known names with values of every kind reach the rules."""
    run(file, yaml.safe_dump(said).encode())


GROUP = st.fixed_dictionaries(
    {"num_gpus": st.sampled_from([1, 2, 4]), "gpus_per_engine": st.sampled_from([1, 2])},
    optional={
        "worker_type": st.sampled_from(["regular", "prefill", "decode", "encoder", "placeholder"]),
        "options": st.dictionaries(st.sampled_from(sorted(JUDGED)), VALUES, max_size=2),
    },
)
MODEL = st.fixed_dictionaries({"groups": st.lists(GROUP, max_size=2)}, optional={"update_weights": st.booleans()})


@UNHURRIED
@given(
    mode=st.sampled_from(["retract", "in_place"]),
    models=st.lists(MODEL, min_size=1, max_size=2),
    options=st.dictionaries(st.sampled_from(sorted(JUDGED)), VALUES, max_size=2),
    offload=st.booleans(),
)
def test_whoever_shares_retracts_whatever_the_file(
    mode: str, models: list[dict[str, object]], options: dict[str, object], offload: bool
) -> None:
    """Configurations of the right shape: the decision is about what engines are started with."""
    gpus = sum(group["num_gpus"] for model in models for group in model["groups"])  # type: ignore[attr-defined]
    said = {"pause_mode": mode, "num_gpus": gpus, "models": models, "options": options, "offload": offload}
    answer = judge(said, ask=no)
    if isinstance(answer, Refusal):
        assert answer.rule
        assert answer.reason
        return
    for key, _, group in answer.groups():
        effective = answer.effective_options(f"{key}.options")
        if effective["disable_radix_cache"] is False:
            assert mode == "retract"
            assert not effective.get("enable_lora")
            assert group.worker_type not in ("prefill", "decode")
        stated = group.options.get("disable_radix_cache", options.get("disable_radix_cache"))
        assert stated in (None, effective["disable_radix_cache"])


@UNHURRIED
@given(deployment=st.dictionaries(st.sampled_from(["training", "inference"]), VALUES, min_size=1))
def test_any_deployment(deployment: dict[object, object]) -> None:
    arguments = from_deployment(deployment)
    if not isinstance(arguments, Refusal):
        assert isinstance(judge_slime(arguments, ask=no), (Refusal, SGLangConfig))


def test_a_key_given_twice_is_refused_where_it_stands() -> None:
    with pytest.raises(UnreadableError, match=r"^line 2, column 1: 'a' is given twice"):
        parse_yaml("a: 1\na: 2\n")
    with pytest.raises(UnreadableError, match="line 1"):
        parse_yaml("options: {a: 1, a: 2}")


def test_merged_keys_may_be_overridden() -> None:
    assert parse_yaml("x: &x {a: 1}\ny: {<<: *x, a: 2}") == {"x": {"a": 1}, "y": {"a": 2}}


def test_shared_nodes_that_would_fill_memory_are_not_shown(file: Path) -> None:
    """Nine levels of nine: a billion when written out."""
    lines = ["x0: &x0 [1]"] + [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 10)]
    text = "\n".join([*lines, "options: {disable_radix_cache: *x9}"])
    assert run(file, text.encode()) == 2
    assert run(file, "options: {disable_radix_cache: *x9}\n".join(["", ""]).encode()) == 2


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = tmp_path / "long.yaml"
    long.write_bytes(b"#" * (MAX_BYTES + 1))
    for path, why in ((tmp_path, "directory"), (tmp_path / "none", "No such file"), (long, "longer than")):
        with pytest.raises(UnreadableError, match=why):
            read_yaml(path)
        assert main(["config", "check", str(path)]) == 2
        assert why in capsys.readouterr().err


def test_json_of_a_refusal_keeps_the_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard output for programs, on standard error for people."""
    file.write_text("pause_mode: abort")
    assert main(["config", "check", str(file), "--format", "json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["rule"] == "pause-mode-known"
    assert "pause_mode" in shown.err
