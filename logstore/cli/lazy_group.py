"""A click group whose commands are imported when they are called.

`logstore status` pays for no actor, `serve` for no table and neither for Spark.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import click

# command: module, attribute, one line of help
CommandTable = Mapping[str, tuple[str, str, str]]


class LazyGroup(click.Group):
    """A subclass names its commands in `table`."""

    table: CommandTable

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.table)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, attribute, _ = self.table[cmd_name]
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is no command")
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, _, words) in self.table.items()])
