"""`logstore trim`: gives up the beginning of the log."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from logstore.cli.consume import StartType
from logstore.cli.exit_status import ExitStatus
from logstore.cli.options import endpoint_option, json_option, timeout_option
from logstore.cli.output import printable, say, write_json
from logstore.client.client import connect
from logstore.client.core.start import AtTime
from logstore.client.core.trimming import TrimPlan


class KeepType(click.ParamType[int | AtTime]):
    """An LSN or an ISO 8601 time (local time unless it has a zone)."""

    name = "keep"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | AtTime:
        text = str(value)
        try:
            start = StartType().convert(text, param, ctx)
        except click.BadParameter:
            if text.isascii() and text.isdigit():
                raise  # it says between which numbers LSNs are
            start = text
        if isinstance(start, str):
            example = "2026-01-31T12:00:00+00:00"
            self.fail(f"{text!r}: give an LSN or a time like {example}", param, ctx)
        return start


@click.command()
@click.option(
    "--to",
    "to",
    type=KeepType(),
    required=True,
    metavar="LSN|TIME",
    help="the first LSN to keep, or the time of the oldest payload to keep, as ISO 8601: local "
    "time unless it has a zone, as 2026-01-31T12:00:00Z has",
)
@click.option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    help="show what it would give up, and the cursors in the way; not whether the log's format "
    "level or a follower that catches up is in the way, which only the trim says",
)
@endpoint_option
@timeout_option
@json_option
def trim(
    to: int | AtTime,
    is_dry_run: bool,
    endpoints: str,
    timeout_s: float,
    json_path: str | None,
) -> None:
    """Give up what lies below an LSN, on every replica. It asks nothing, and is not undone.

    Batches that were committed together are kept or given up together, so the log may begin
    somewhat below. Files are removed as a whole, once nothing in them is kept.

    Exit status 4 if a held cursor is in the way, or a follower that catches up, if so much is not
    committed yet, if full disks have no room for the snapshot of the sessions that it needs, or if
    every payload is older than the time: to give up everything, name the LSN. Nothing is given up
    then.
    """
    with connect(endpoints, timeout=timeout_s) as client:
        admin = client.admin
        plan = admin.plan_trim(to)
        if not is_dry_run:
            plan = _as_done(plan, admin.trim(plan.lsn))
    if json_path is not None:
        write_json(_document(to, plan, is_done=not is_dry_run), json_path)
    else:
        if is_dry_run:
            _say_plan(plan)
        else:
            _say_done(plan)
        if isinstance(to, AtTime):
            say(f"the time {to} stands for LSN {plan.lsn}")
    if is_dry_run and plan.lsn > plan.highest_lsn:
        sys.exit(ExitStatus.REFUSED)


def _as_done(plan: TrimPlan, kept_lsn: int) -> TrimPlan:
    """What a trim has given up that left the log beginning at `kept_lsn`. Elsewhere than planned,
    as after another trim at the same time, nobody can count the bytes any more."""
    if kept_lsn == plan.kept_lsn:
        return plan
    payloads = max(0, kept_lsn - plan.log_start_lsn)
    return msgspec.structs.replace(
        plan, kept_lsn=kept_lsn, payloads=payloads, size_bytes=None if payloads else 0
    )


def _document(to: int | AtTime, plan: TrimPlan, *, is_done: bool) -> dict[str, Any]:
    return {
        "time": str(to) if isinstance(to, AtTime) else None,
        "lsn": plan.lsn,
        "kept_lsn": plan.kept_lsn,
        "is_done": is_done,
        "previous_log_start_lsn": plan.log_start_lsn,
        "log_start_lsn": plan.kept_lsn if is_done else plan.log_start_lsn,
        "highest_lsn": plan.highest_lsn,
        "payloads": plan.payloads,
        "size_bytes": plan.size_bytes,
        "held_by": [{"name": each.name, "lsn": each.lsn} for each in plan.held_by],
    }


def _say_done(plan: TrimPlan) -> None:
    given_up = f"; given up: {_amount(plan)}" if plan.payloads else " already"
    say(f"the log begins at LSN {plan.kept_lsn}{given_up}")


def _say_plan(plan: TrimPlan) -> None:
    if plan.lsn > plan.highest_lsn:
        why = "no more is committed"
        if plan.held_by:
            cursors = "cursor" if len(plan.held_by) == 1 else "cursors"
            why = f"trim --to {plan.highest_lsn}, or delete the {cursors}"
        say(f"it would be refused: the log can be trimmed up to LSN {plan.highest_lsn}: {why}")
    elif not plan.payloads:
        say(f"nothing would be given up: the log begins at LSN {plan.log_start_lsn} already")
    else:
        say(f"it would give up LSN {plan.log_start_lsn} to {plan.kept_lsn - 1}: {_amount(plan)}")
    for cursor in plan.held_by:
        say(f"cursor {printable(cursor.name)} holds what follows, from LSN {cursor.lsn} on")


def _amount(plan: TrimPlan) -> str:
    size = "an unknown number of" if plan.size_bytes is None else plan.size_bytes
    return f"{plan.payloads} payloads, {size} bytes"
