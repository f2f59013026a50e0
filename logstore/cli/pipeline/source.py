"""What pipelines read: the options for a lake, a log, or a range across both, as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
import msgspec

from logstore.cli.options import DEFAULT_ENDPOINTS, IntegerRange
from logstore.spark.columns import COLUMNS
from logstore.spark.seam import LogRange, plan_log

_F = TypeVar("_F", bound=Callable[..., Any])


class Source(msgspec.Struct, frozen=True):
    """A range of LSNs, both included; None: as far as there is something."""

    lake: str | None
    endpoints: str | None
    first_lsn: int | None
    last_lsn: int | None
    replica: str
    timeout_s: float

    def plan(self, columns: Sequence[str] = tuple(COLUMNS)) -> LogRange:
        """Raises: as `plan_log`."""
        endpoints = self.endpoints or (DEFAULT_ENDPOINTS if self.lake is None else None)
        options: dict[str, Any] = {
            "replica": self.replica,
            "fetchTimeoutMs": int(self.timeout_s * 1_000),
        }
        return plan_log(
            lake=self.lake,
            endpoints=endpoints,
            first_lsn=self.first_lsn,
            last_lsn=self.last_lsn,
            columns=columns,
            **options,
        )


_OPTIONS = (
    click.option(
        "--lake", type=click.Path(file_okay=False, resolve_path=True), help="a lake's folder"
    ),
    click.option(
        "--endpoint",
        "endpoints",
        envvar="LOGSTORE_ENDPOINT",
        metavar="HOST:PORT[,…]",
        help="control ports of the log's replicas; with a lake: for what the lake does not have; "
        f"without both: {DEFAULT_ENDPOINTS}",
    ),
    click.option("--from", "first_lsn", type=IntegerRange(1), metavar="LSN", help="the first"),
    click.option("--to", "last_lsn", type=IntegerRange(1), metavar="LSN", help="the last"),
    click.option(
        "--replica",
        default="any",
        show_default=True,
        metavar="WHICH",
        help="of the log: any (followers first), leader, follower or a node id",
    ),
)


def source_options(command: _F) -> _F:
    """--lake, --endpoint, --from, --to, --replica: the arguments of `Source` but its timeout."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
