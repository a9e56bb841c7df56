"""Groups of commands that live elsewhere: loaded when one is called, and absent where their module is."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from reef_ref.cli.trouble import Trouble

GROUPS = {
    "config": ("reef_ref.cli.config", "Judge configurations of engines."),
    "scenario": ("reef_ref.scenarios.cli", "Run scenarios on real SGLang engines."),
    "validate": ("reef_ref.cli.validate", "Hold a trace of events against the publication protocol."),
    "monitor": ("reef_ref.cli.monitor", "Watch a deployment while it serves."),
    "doctor": ("reef_ref.sglang.doctor", "Look at the SGLang that is installed."),
}
"""Command: the module that it mounts, by its `app` or its ``main(arguments) -> status``, and its line of help."""


class Deferred(TyperCommand):
    """Stands for a command whose module has not been imported."""

    def __init__(self, name: str, module: str, about: str) -> None:
        super().__init__(
            name=name,
            help=about,
            add_help_option=False,
            rich_markup_mode=None,
            context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        )
        self._module = module
        self._loaded: Any = None

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command; of this one, with every argument kept, where the module reads its own."""
        try:
            self._loaded = importlib.import_module(self._module)
        except ModuleNotFoundError as error:
            raise Trouble(f"{self.name} needs {error.name}: install reef-ref[engine]") from error
        if not hasattr(self._loaded, "app"):
            return super().make_context(info_name, args, parent=parent, **extra)
        command = get_command(self._loaded.app)
        command.name = self.name
        return command.make_context(info_name, args, parent=parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Let the module's own `main` do it."""
        return self._loaded.main(ctx.args)


class Commands(TyperGroup):
    """This command line's own commands, and those that live elsewhere and are installed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help text."""
        return [*super().list_commands(ctx), *(name for name, (module, _) in GROUPS.items() if _present(module))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        if cmd_name in GROUPS and _present(GROUPS[cmd_name][0]):
            return Deferred(cmd_name, *GROUPS[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is called. Typer's own looks for likely names among its own commands only."""
        for name in GROUPS:
            if args[:1] == [name] and (command := self.get_command(ctx, name)):
                return name, command, args[1:]
        return super().resolve_command(ctx, args)


def _present(module: str) -> bool:
    """The module is installed. Its package is looked at, not imported: that alone may load an engine."""
    package, name = module.rsplit(".", 1)
    found = importlib.util.find_spec(package)
    places = (found and found.submodule_search_locations) or ()
    return any((Path(place) / f"{name}.py").is_file() for place in places)


__all__ = ["GROUPS", "Commands", "Deferred"]
