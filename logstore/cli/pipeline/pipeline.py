"""`logstore pipeline`: which pipelines there are, and that Spark is there for them."""

from __future__ import annotations

import importlib.util

import click

from logstore.cli.lazy_group import CommandTable, LazyGroup
from logstore.errors import ConfigError

NEEDED = ("pyspark", "pyarrow")
PIPELINES: CommandTable = {
    "archive": ("logstore.cli.pipeline.archive", "archive", "Log to lake, once or for ever."),
    "restore": ("logstore.cli.pipeline.restore", "restore", "Lake to a fresh cluster."),
    "replay": ("logstore.cli.pipeline.replay", "replay", "Lake or other log to log, each once."),
    "audit": ("logstore.cli.pipeline.audit", "audit", "Replicas, lakes and folders, compared."),
    "stats": ("logstore.cli.pipeline.stats", "stats", "Traffic by time, producer and size."),
    "read": ("logstore.cli.pipeline.read", "read", "Records from a lake, a log, or across both."),
}


class _Pipelines(LazyGroup):
    table = PIPELINES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.table and (words := missing_words()):
            return _command_without_spark(cmd_name, self.table[cmd_name][2], words)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Pipelines)
def pipeline() -> None:
    """Move the log's data in bulk, and compute on it, on Spark.

    A lake is a folder of Parquet files by ranges of LSNs, with a manifest. Every pipeline may be
    broken off at any moment and called again: it goes on where it was, and does nothing twice.
    """


def missing_words() -> str:
    """What is not installed and how to install it, in a line; empty: nothing."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"pipelines need {', '.join(missing)}, which this Python does not have: "
        "`make .venv-spark` in a clone, and call .venv-spark/bin/logstore; elsewhere "
        "pip install 'pyspark>=4.2' pyarrow (and Java 17 or newer)"
    )


def _command_without_spark(name: str, what: str, words: str) -> click.Command:
    """Says what it is and what to install: its options are known once Spark can be imported."""

    def refuse(**_: object) -> None:
        raise ConfigError(words)

    return click.Command(
        name,
        callback=refuse,
        help=f"{what}\n\nIts options are shown where Spark is installed: {words}.",
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
    )
