"""`reef-ref config`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from reef_ref.config import Refusal, SGLangConfig
    from reef_ref.lora_schema import AdapterKeys

app = typer.Typer(
    name="config",
    add_completion=False,
    help="Judge configurations of engines.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class Form(StrEnum):
    """How the answer is written."""

    TEXT = "text"
    JSON = "json"


class AdapterKeyAnswer(StrEnum):
    """Who says whether SGLang's cache keys name the adapter: the SGLang installed here, or the caller."""

    ASK = "ask"
    YES = "yes"
    NO = "no"


@app.callback()
def config() -> None:
    """Judge configurations of engines."""


@app.command()
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Engines, or a deployment with Slime's arguments: YAML.")
    ],
    *,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which rule decides, why, and what changes it.")
    ] = False,
    form: Annotated[Form, typer.Option("--format", help="Of the answer.")] = Form.TEXT,
    adapter_keys: Annotated[
        AdapterKeyAnswer,
        typer.Option(help="Under LoRA: ask the SGLang installed here whether cache keys name the adapter, or assume."),
    ] = AdapterKeyAnswer.ASK,
) -> int:
    """Say who may share prefixes under a configuration.

    Exit status: 0 accepted, 2 refused or unreadable.
    """
    from reef_ref.cli.trouble import Status, Trouble
    from reef_ref.config import Refusal

    answer = _judge_file(file, adapter_keys)
    if isinstance(answer, Refusal):
        if form is Form.JSON:
            typer.echo(_json(_refusal(file, answer)))
        raise Trouble(_line(file, answer, explain=explain))
    typer.echo(_json(_accepted(file, answer)) if form is Form.JSON else _text(file, answer, explain=explain))
    return Status.HOLDS


def _judge_file(file: Path, adapter_keys: AdapterKeyAnswer) -> SGLangConfig | Refusal:
    from reef_ref.config import Refusal, Rule, judge
    from reef_ref.config_file import UnreadableError, read_yaml
    from reef_ref.slime import from_deployment, judge_slime

    try:
        settings = read_yaml(file)
    except UnreadableError as error:
        return Refusal(Rule.SHAPE, "", str(error), "")
    if not isinstance(settings, dict):
        found = "nothing" if settings is None else f"a {type(settings).__name__}"
        return Refusal(Rule.SHAPE, "", f"holds {found}, not names and values", "")
    ask = _ask(adapter_keys)
    if {"training", "inference"} & settings.keys():
        arguments = from_deployment(settings)
        return arguments if isinstance(arguments, Refusal) else judge_slime(arguments, ask=ask)
    return judge(settings, ask=ask)


def _ask(answer: AdapterKeyAnswer) -> Callable[[], AdapterKeys]:
    from reef_ref.lora_schema import AdapterKeys, installed_adapter_keys

    match answer:
        case AdapterKeyAnswer.ASK:
            return installed_adapter_keys
        case AdapterKeyAnswer.YES:
            return lambda: AdapterKeys(True, "cache keys name the adapter, as --adapter-keys says")
        case AdapterKeyAnswer.NO:
            return lambda: AdapterKeys(False, "cache keys do not name the adapter, as --adapter-keys says")


def _line(file: Path, refusal: Refusal, *, explain: bool) -> str:
    where = f"{file}: {refusal.key}" if refusal.key else str(file)
    separator = ": " if refusal.key else " "
    change = f"; right would be: {refusal.change}" if refusal.change else ""
    rule = f" [{refusal.rule}]" if explain else ""
    return f"{where}{separator}{refusal.reason}{change}{rule}"


def _text(file: Path, accepted: SGLangConfig, *, explain: bool) -> str:
    lines = [f"{file}: accepted, pause_mode {accepted.pause_mode}"]
    for scope in accepted.decision.scopes:
        shares = "unshared" if scope.disable_radix_cache else "shared"
        lines.append(f"  {scope.scope}: disable_radix_cache {str(scope.disable_radix_cache).lower()} ({shares})")
        if explain:
            lines.append(f"    rule    {scope.rule}")
            lines.append(f"    because {scope.because}")
            lines.append(f"    change  {scope.change}")
    return "\n".join(lines)


def _accepted(file: Path, accepted: SGLangConfig) -> dict[str, Any]:
    from dataclasses import asdict

    scopes = [asdict(scope) for scope in accepted.decision.scopes]
    return {"file": str(file), "accepted": True, "pause_mode": accepted.pause_mode, "scopes": scopes}


def _refusal(file: Path, refusal: Refusal) -> dict[str, Any]:
    from dataclasses import asdict

    return {"file": str(file), "accepted": False, **asdict(refusal)}


def _json(value: dict[str, Any]) -> str:
    import json

    return json.dumps(value, indent=2)


__all__ = ["app"]
