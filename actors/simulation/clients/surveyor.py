"""Asks any replica where a time is in its log, and how the bytes of a range are spread (V7); asks a
leader how far followers and cursors lag.

Owns what it asks for: ranges and times that replicas have reported, and some that do not exist. It
tells each lag as the span that it must equal, from a position to the end of what the leader shows.
"""

from __future__ import annotations

from typing import Any

from actors.simulation.checkers.client_facts import SpansTold, SurveyAsked
from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.operating import Cluster, lsn_at, status
from logstore.client.core.spans import read_spans
from logstore.client.core.start import AtTime
from logstore.client.core.steps import Steps
from logstore.format.client_messages import LSN_MAX, SPAN, SpansReply, SpansRequest
from logstore.limits import POSITION_MAX
from logstore.model import Lsn

_ASK_EVERY_NS = (600 * MS_NS, 2_000 * MS_NS)  # the mean, drawn once
_STAMPS_MAX = 64  # times that are kept to be asked for
_LATER = 1 << 62  # no entry is of that time, or of a later one
_LIMIT_MAX = 40


class Surveyor:
    """A subject."""

    def __init__(self, inquirer: Inquirer) -> None:
        self._inquirer = inquirer
        self._random = inquirer.host.random
        self.ask_every_ns = self._random.randrange(*_ASK_EVERY_NS)
        self._stamps: list[int] = []  # of entries
        self._shown_lsn = int(inquirer.host.first_lsn) - 1  # the highest that any replica told of

    def ask(self) -> Steps[None]:
        cluster, node = self._inquirer.cluster(), self._inquirer.host.any_node()
        if self._random.random() < 0.3:
            yield from self._ask_for_lags(cluster)
            return
        if self._stamps and self._random.random() < 0.6:
            yield from lsn_at(cluster, AtTime(self._draw_time()), replica=node)
            return
        first_lsn = self._random.randrange(int(self._inquirer.host.first_lsn), self._shown_lsn + 2)
        last_lsn = self._random.choice((first_lsn + self._random.randrange(100), LSN_MAX))
        replica = cluster.reader(node)
        try:
            spans = yield from read_spans(
                replica,
                first_lsn,
                last_lsn,
                step_bytes=1 << self._random.randrange(14),
                limit=self._random.randint(1, _LIMIT_MAX),
                timeout_s=cluster.timeout_s,
            )
        finally:
            replica.close()
        self._shown_lsn = max(self._shown_lsn, spans.visible_lsn)
        if spans.timestamp_ns:
            stamps = [row.timestamp_ns for row in spans.rows]
            self._stamps = [*self._stamps, spans.timestamp_ns, *stamps][-_STAMPS_MAX:]

    def _ask_for_lags(self, cluster: Cluster) -> Steps[None]:
        tell = self._inquirer.host.tell
        tell(SurveyAsked())
        found = yield from status(cluster)
        for node in found["nodes"]:
            lag = node.get("lag") or {"followers": [], "cursors": None}
            for row in (*lag["followers"], *(lag["cursors"] or ())):
                if row["bytes"] is not None:
                    tell(_told(node["node"], lag, row))

    def _draw_time(self) -> int:
        about = self._random.choice(self._stamps) + self._random.choice((-1, 0, 0, 0, 1))
        return self._random.choice((about, about, about, about, about, 0, _LATER))


def _told(node: int, lag: dict[str, Any], row: dict[str, Any]) -> SpansTold:
    first_lsn, payloads = max(row["next_lsn"], lag["log_start_lsn"]), row["payloads"]
    end = SPAN.pack(first_lsn + payloads - 1, row["bytes"], lag["newest_ns"])
    return SpansTold(
        node,
        SpansRequest(Lsn(first_lsn), Lsn(LSN_MAX), POSITION_MAX, 1),
        SpansReply(
            lag["log_start_lsn"], lag["visible_lsn"], row["since_ns"], end if payloads else b""
        ),
    )
