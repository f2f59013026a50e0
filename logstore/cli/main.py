"""The `logstore` command: which commands there are, and what an error becomes.

The table below is the place to add one. They are imported when they are called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from logstore.cli.exit_status import ExitStatus, exit_status_of
from logstore.cli.interrupts import Terminated
from logstore.cli.lazy_group import CommandTable, LazyGroup
from logstore.cli.stdout_reader import discard_output
from logstore.errors import LogStoreError

COMMANDS: CommandTable = {
    "demo": ("logstore.cli.demo.demo", "demo", "Real text through a log whose leader dies."),
    "cluster": ("logstore.cli.cluster", "cluster", "Start, stop and look at a local cluster."),
    "serve": ("logstore.cli.serve", "serve", "Run one replica in the foreground."),
    "init": ("logstore.cli.operate", "init", "Form the cluster where auto_init is off."),
    "produce": ("logstore.cli.produce", "produce", "Append the lines of a file or of stdin."),
    "consume": ("logstore.cli.consume", "consume", "Write committed payloads to stdout."),
    "status": ("logstore.cli.operate", "status", "Who leads, and how each replica is doing."),
    "lag": ("logstore.cli.lag", "lag", "How far followers and cursors are behind."),
    "explain": (
        "logstore.cli.explain.explain",
        "explain",
        "Where an append's time goes, and what bounds throughput.",
    ),
    "transfer": ("logstore.cli.operate", "transfer", "Hand leadership to another replica."),
    "upgrade": ("logstore.cli.upgrade", "upgrade", "Raise the log's format level."),
    "member": (
        "logstore.cli.member",
        "member",
        "The replicas: list, add, promote, remove, replace.",
    ),
    "trim": ("logstore.cli.trim", "trim", "Give up the beginning of the log."),
    "cursor": ("logstore.cli.cursor", "cursor", "Named cursors: set, list, delete."),
    "session": ("logstore.cli.session", "session", "Producer sessions: list, end."),
    "placement": (
        "logstore.cli.placement",
        "placement",
        "Where and how processes run: show, set.",
    ),
    "verify": ("logstore.cli.operate", "verify", "Compare the replicas, byte for byte."),
    "digest": ("logstore.cli.digest", "digest", "What equal logs have in common, in a line."),
    "pipeline": (
        "logstore.cli.pipeline.pipeline",
        "pipeline",
        "Move the log's data in bulk, and compute on it, on Spark.",
    ),
    "simulate": (
        "logstore.cli.simulate",
        "simulate",
        "Search a simulated world for broken promises.",
    ),
    "inspect": ("logstore.cli.inspect", "inspect", "Show what lies in a file, without a node."),
    "salvage": (
        "logstore.cli.salvage",
        "salvage",
        "What one replica still holds, into a fresh cluster.",
    ),
    "reset": ("logstore.cli.reset", "reset", "Move a stopped replica's data folder aside."),
}


class _OutputClosed(Exception):
    """The reader of stdout has closed it."""


class _Commands(LazyGroup):
    """click would end the process with 1 where the reader of stdout has enough, and say "aborted"
    where SIGTERM came."""

    table = COMMANDS

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with _past_click():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with _past_click():
            return super().invoke(ctx)


@contextmanager
def _past_click() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise _OutputClosed from error
    except Terminated as error:
        raise SystemExit(ExitStatus.TERMINATED) from error


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="logstore")
def logstore() -> None:
    """A replicated log with one global, gap-free order.

    Exit status: 0 done, 1 the answer is no or the output cannot be written, 2 usage, 3 unreachable
    or no quorum, 4 refused, 5 damaged, 130 ended by Ctrl-C (SIGINT), 143 by SIGTERM.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit status. What goes wrong is one line on stderr.

    A reader of stdout that has enough is no error, and mends none; output that cannot be written is
    one.
    """
    status: int = ExitStatus.DONE
    try:
        status = _run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except (BrokenPipeError, _OutputClosed):
        discard_output()
        return status
    except OSError as error:  # a file that was opened by name is named
        discard_output()
        if error.filename is not None:
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            return ExitStatus.USAGE
        reason = error.strerror or error
        print(f"error: the output cannot be written: {reason}", file=sys.stderr)
        return ExitStatus.NO


def _run(arguments: Sequence[str] | None) -> int:
    try:
        logstore.main(arguments, prog_name="logstore", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else ExitStatus.DONE
    except click.ClickException as error:
        error.show(sys.stderr)
        return ExitStatus.USAGE
    except LogStoreError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_status_of(error)
    except (KeyboardInterrupt, click.Abort):
        return ExitStatus.INTERRUPTED
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())
