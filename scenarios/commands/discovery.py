"""Verbs that other rooms and packages add to `kvtier` through the entry-point group `kvtier.commands`."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from models.errors import KvTierError

GROUP = "kvtier.commands"


class KvTierGroup(TyperGroup):
    """The built-in verbs, then the installed ones: those are looked for only if a verb is not built in, or for help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all verbs."""
        built_in = list(super().list_commands(ctx))
        return built_in + sorted(set(_installed()) - set(built_in))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb by name, or None; raises KvTierError where an installed one cannot be loaded."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        entry_point = _installed().get(cmd_name)
        if entry_point is None:
            return None
        try:
            found = entry_point.load()
        except Exception as error:  # a package of somebody else may fail in any way while it is imported
            problem = f"{type(error).__name__}: {error}"
            raise KvTierError(f"verb '{cmd_name}' ({entry_point.value}) cannot be loaded: {problem}") from error
        if not isinstance(found, typer.Typer):
            raise KvTierError(f"verb '{cmd_name}' ({entry_point.value}) is no typer.Typer")
        command = typer.main.get_command(found)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; a reader that closed the pipe ends it quietly, where typer would say that it failed."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop_stdout()
            raise typer.Exit(0) from None


class GenerateCommand(TyperCommand):
    """A verb whose help text ends with the names of the generators, looked up when it is shown."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the names."""
        from sim.generators import GENERATORS

        formatter.write_paragraph()
        formatter.write_text(f"Generators: {', '.join(GENERATORS.names())}")


def drop_stdout() -> None:
    """Send what is left on stdout nowhere: the reader has what it wanted (`kvtier list | head`)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _installed() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
