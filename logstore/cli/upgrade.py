"""`logstore upgrade`: raises the log's format level once every replica runs a version that reads
it."""

from __future__ import annotations

import sys

import click
import msgspec

from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import endpoint_option, json_option, timeout_option
from logstore.cli.output import say, write_json
from logstore.client.client import connect
from logstore.client.core.upgrade import FormatLevels
from logstore.raft.quorum import majority


@click.command()
@click.option("--check", "is_check", is_flag=True, help="show the levels, and raise none")
@endpoint_option
@timeout_option
@json_option
def upgrade(is_check: bool, endpoints: str, timeout_s: float, json_path: str | None) -> None:
    """Raise the log to the newest format level that every replica reads.

    Start the new version on one replica after the other first. From then on an older version
    refuses the log. Exit status 4 if a replica needs a newer version, or does not answer and is in
    the way; nothing changes if the log has the level already. With --check, exit status 3 if
    nobody is known to be in the way and a replica does not answer: it cannot tell.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        found = client.admin.format_levels()
        if not is_check:
            for level in range(found.level + 1, found.common + 1):
                raised = client.admin.raise_level(level)
                found = msgspec.structs.replace(found, level=raised)
    if json_path is not None:
        write_json(_document(found), json_path)
    else:
        _say_levels(found)
    if found.in_the_way:
        sys.exit(ExitStatus.REFUSED)
    if is_check and found.silent:
        sys.exit(ExitStatus.UNREACHABLE)


def _document(found: FormatLevels) -> dict[str, object]:
    return {
        "level": found.level,
        "newest_levels": {str(node): level or None for node, level in found.newest_levels.items()},
        "common_level": found.common,
        "in_the_way": found.in_the_way,
    }


def _say_levels(found: FormatLevels) -> None:
    nodes, silent = len(found.newest_levels), found.silent
    at_least = " at least" if nodes - len(silent) < majority(nodes) else ""
    say(f"the log is at format level {found.level}{at_least}")
    for node, level in found.newest_levels.items():
        reads = f"reads levels up to {level}: start a newer version" if level else "does not answer"
        if 0 < level < found.level:
            say(f"node {node} takes no entries of the log: it {reads}")
        elif node in found.in_the_way:
            say(f"node {node} is in the way of level {found.newest}: it {reads}")
        elif node in found.learners and not level:
            say(f"node {node}, a learner, {reads}, and is not waited for")
        elif not level:
            say(f"node {node} {reads}")
    if found.level < found.common:
        who = "every voter" if silent else "every replica"
        say(f"{who} reads level {found.common}: `logstore upgrade` raises the log to it")
    elif found.in_the_way:
        pass
    elif silent:
        say("whether all its replicas read this level, or a newer one, is not known")
    else:
        say("this is the newest level that its replicas read")
