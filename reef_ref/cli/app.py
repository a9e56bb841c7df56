"""The commands and their options. Each body imports what it needs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reef_ref.cli.deferred import Commands
from reef_ref.cli.sizes import size

app = typer.Typer(
    cls=Commands,
    name="reef-ref",
    help="Check protocols of weight publication under a prefix cache: every state, or the shortest story of a break."
    "\n\nExit status: 0 holds, 1 violated, 2 bad usage or input, 3 undetermined.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"


class TableFormat(StrEnum):
    """How a table is written."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class Brief(StrEnum):
    """How a shorter report is written."""

    TEXT = "text"
    JSON = "json"


class Language(StrEnum):
    """What another checker reads."""

    PROMELA = "promela"
    TLA = "tla"
    CFG = "cfg"


ProtocolName = Annotated[
    str, typer.Argument(metavar="PROTOCOL", help="A protocol that 'list' names, or module:attribute of your own.")
]
ScopeName = Annotated[
    str, typer.Option("--scope", metavar="NAME", help="A scope that 'list' names, or sizes: Engine=2,Load=1,faults=1.")
]
MutantName = Annotated[
    str | None, typer.Option("--mutant", metavar="NAME", help="A wrong variant in the protocol's place.")
]
ToldMutantName = Annotated[
    str | None,
    typer.Option(
        "--mutant", metavar="NAME", help="A wrong variant in the protocol's place, judged by the property it names."
    ),
]
PropertyNames = Annotated[
    list[str] | None, typer.Option("--property", metavar="NAME", help="Judge only this; may be given again.")
]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Threads.  [default: one a processor]")]
MaxStates = Annotated[int | None, typer.Option(min=1, help="Give up past so many states: undetermined.")]
MaxSeconds = Annotated[float | None, typer.Option(min=0, help="Give up after so long: undetermined.")]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        parser=size,
        metavar="SIZE",
        help="What the search may take, as in 2GiB, before states go to disk.  [default: most of what is free]",
    ),
]
InMemory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        parser=size,
        metavar="SIZE",
        help="What the search may take, as in 2GiB.  [default: most of what is free]",
    ),
]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write the report here, all or nothing.")]


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"reef-ref {version('reef-ref')}")
        raise typer.Exit


@app.callback()
def reef_ref(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which.")] = False,
) -> None:
    """Only options that come before a command."""


@app.command()
def check(
    protocol: ProtocolName = "publication",
    *,
    scope: ScopeName = "pr",
    mutant: ToldMutantName = None,
    only: PropertyNames = None,
    symmetry: Annotated[
        bool, typer.Option("--symmetry/--no-symmetry", help="Explore one of the states that only exchange elements.")
    ] = True,
    orbits: Annotated[
        bool, typer.Option("--orbits", help="Also count the states that representatives stand for.")
    ] = False,
    workers: Workers = None,
    max_states: MaxStates = None,
    max_seconds: MaxSeconds = None,
    memory: Memory = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep states here, and go on from what an earlier run kept."),
    ] = None,
    report_format: Annotated[Format, typer.Option("--format", help="Of the report.")] = Format.TEXT,
    output: Output = None,
    itf: Annotated[
        Path | None,
        typer.Option("--itf", metavar="FILE", help="Where there is a violation, write its run here, as ITF."),
    ] = None,
) -> int:
    """Explore every state of a protocol.

    A violation is told as the shortest story that leads to it.
    """
    from reef_ref.cli.check import run_check

    return run_check(
        protocol,
        scope,
        mutant=mutant,
        only=only,
        symmetry=symmetry,
        orbits=orbits,
        workers=workers,
        max_states=max_states,
        max_seconds=max_seconds,
        memory=memory,
        checkpoint=checkpoint,
        report_format=report_format.value,
        output=output,
        itf=itf,
    )


@app.command()
def liveness(
    protocol: ProtocolName = "publication",
    *,
    scope: ScopeName = "pr",
    mutant: ToldMutantName = None,
    only: PropertyNames = None,
    symmetry: Annotated[
        bool, typer.Option("--symmetry", help="Refused: a loop of representatives need not be one of states.")
    ] = False,
    workers: Workers = None,
    max_states: MaxStates = None,
    max_seconds: MaxSeconds = None,
    memory: InMemory = None,
    report_format: Annotated[Format, typer.Option("--format", help="Of the report.")] = Format.TEXT,
    output: Output = None,
) -> int:
    """Judge what must happen in the end, on every fair run.

    Faults end, and what the protocol counts on is done; the report says what that is. A run that never gets there is
    told as a way and a loop.
    """
    from reef_ref.cli.liveness import run_liveness

    return run_liveness(
        protocol,
        scope,
        mutant=mutant,
        only=only,
        symmetry=symmetry,
        workers=workers,
        max_states=max_states,
        max_seconds=max_seconds,
        memory=memory,
        report_format=report_format.value,
        output=output,
    )


@app.command()
def prove(
    protocol: ProtocolName = "publication",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every protocol that 'list' names.")] = False,
    mutant: MutantName = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME", help="Only this, and what it rests on; may be given again."),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Tell every obligation, not only every claim.")] = False,
    suggested: Annotated[
        bool, typer.Option("--suggest", help="Look for lemmas that close the proofs that are open.")
    ] = False,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="LEMMA", help="With --suggest: as if there were none such.")
    ] = None,
    scope: Annotated[
        str, typer.Option("--scope", metavar="NAME", help="With --suggest: the world whose states are explored.")
    ] = "smoke",
    workers: Annotated[int | None, typer.Option("--workers", min=1, help="Processes.  [default: two]")] = None,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="For one question to z3, before it is unknown.")] = 60,
    report_format: Annotated[TableFormat, typer.Option("--format", help="Of the report.")] = TableFormat.TEXT,
    output: Output = None,
) -> int:
    """Prove a protocol for worlds of every size, by induction.

    Every property holds at first and is kept by every action. Where a step breaks one, it is told with its state.
    """
    from reef_ref.cli.prove import run_prove

    if suggested:
        from reef_ref.cli.suggest import run_suggest

        return run_suggest(
            protocol,
            scope,
            mutant=mutant,
            only=only,
            without=without or (),
            max_seconds=max_seconds,
            report_format=report_format.value,
            output=output,
        )
    return run_prove(
        protocol,
        everything=everything,
        mutant=mutant,
        only=only,
        each=each,
        workers=workers,
        max_seconds=max_seconds,
        report_format=report_format.value,
        output=output,
    )


@app.command()
def mutants(
    protocol: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROTOCOL...", help="As for check; several are explored one after another."),
    ] = None,
    *,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="As for check; may be given again.  [default: smoke]")
    ] = None,
    mutant: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this; may be given again.")] = None,
    survivors: Annotated[
        bool, typer.Option("--survivors", help="Instead drop every part of every action, and list what nobody notices.")
    ] = False,
    ray: Annotated[
        bool, typer.Option("--ray", help="Spread them over the Ray cluster of RAY_ADDRESS, or one of this machine.")
    ] = False,
    max_seconds: Annotated[float, typer.Option(min=0, help="For one mutant, before it is undetermined.")] = 600,
    report_format: Annotated[TableFormat, typer.Option("--format", help="Of the report.")] = TableFormat.TEXT,
    output: Output = None,
) -> int:
    """Explore the wrong protocols: who notices?

    Says which property kills each named mutant, in how many steps, and whether it is the one that the mutant names.
    """
    from reef_ref.cli.mutants import run_mutants, run_survivors

    protocols, scopes = protocol or ["publication"], scope or ["smoke"]
    if not survivors:
        return run_mutants(
            protocols,
            scopes,
            names=mutant,
            max_seconds=max_seconds,
            ray=ray,
            report_format=report_format.value,
            output=output,
        )
    if len(protocols) > 1 or len(scopes) > 1 or ray:
        raise typer.BadParameter("--survivors takes one protocol and one scope, and is one process")
    return run_survivors(protocols[0], scopes[0], report_format=report_format.value, output=output)


@app.command()
def refine(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="A protocol that has an ideal.")] = "publication",
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every protocol that has an ideal.")] = False,
    scope: ScopeName = "smoke",
    mutant: MutantName = None,
    workers: Workers = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Give up on an exploration after so long: undetermined.")
    ] = None,
    report_format: Annotated[Brief, typer.Option("--format", help="Of the report.")] = Brief.TEXT,
    output: Output = None,
) -> int:
    """Hold a protocol to its ideal.

    Seen from outside, every step must be a step of the ideal or change nothing, and each of the ideal's must happen.
    """
    from reef_ref.cli.refine import run_refine

    return run_refine(
        protocol,
        scope,
        everything=everything,
        mutant=mutant,
        workers=workers,
        max_seconds=max_seconds,
        report_format=report_format.value,
        output=output,
    )


@app.command()
def simulate(
    protocol: ProtocolName = "publication",
    *,
    scope: ScopeName = "pr",
    mutant: MutantName = None,
    only: PropertyNames = None,
    seed: Annotated[int, typer.Option(help="Of the random numbers: the same seed, the same walks.")] = 0,
    walks: Annotated[int, typer.Option(min=1, help="How many walks.")] = 50,
    steps: Annotated[int, typer.Option(min=1, help="The most steps of a walk.")] = 100,
    report_format: Annotated[Brief, typer.Option("--format", help="Of the report.")] = Brief.TEXT,
    output: Output = None,
) -> int:
    """Walk through a protocol at random.

    Properties are judged on the way. That nothing is found proves nothing.
    """
    from reef_ref.cli.simulate import run_simulate

    return run_simulate(
        protocol,
        scope,
        mutant=mutant,
        only=only,
        seed=seed,
        walks=walks,
        steps=steps,
        report_format=report_format.value,
        output=output,
    )


@app.command()
def export(
    protocol: Annotated[
        str,
        typer.Argument(metavar="PROTOCOL", help="A protocol that 'list' names, module:attribute of your own, or all."),
    ] = "publication",
    *,
    to: Annotated[
        Language,
        typer.Option("--to", help="Promela for SPIN, a TLA+ module, or TLC's configuration of that for a scope."),
    ],
    scope: ScopeName = "smoke",
    mutant: MutantName = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the text here; of all, a folder.")
    ] = None,
) -> int:
    """Write a protocol in the language of another checker.

    So that nobody has to trust this one: SPIN and TLC find the same states and the same violations.
    """
    from reef_ref.cli.export import run_export

    return run_export(protocol, scope, to.value, mutant=mutant, output=output)


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A run in ITF, as 'check --itf' writes it.")],
    protocol: ProtocolName = "publication",
    *,
    scope: Annotated[
        str | None, typer.Option("--scope", metavar="NAME", help="The world of the run.  [default: as the trace says]")
    ] = None,
    mutant: MutantName = None,
) -> int:
    """Take the steps of a trace, one by one.

    Says where it is no run of the protocol, or else which properties it violates.
    """
    from reef_ref.cli.replay import run_replay

    return run_replay(trace, protocol, scope, mutant=mutant)


@app.command("list")
def list_(
    protocol: Annotated[
        str | None, typer.Argument(metavar="PROTOCOL", help="Everything about this one.", show_default=False)
    ] = None,
) -> int:
    """Name protocols, scopes and mutants.

    Of one protocol, also its claims, actions and fields.
    """
    from reef_ref.cli.listing import run_list

    return run_list(protocol)


__all__ = ["app"]
