"""Asks any replica where a time is in its log, and how the bytes of a range are spread (V7).

Owns what it asks for: ranges and times that replicas have reported, and some that do not exist.
"""

from __future__ import annotations

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.operating import lsn_at
from logstore.client.core.spans import read_spans
from logstore.client.core.start import AtTime
from logstore.client.core.steps import Steps
from logstore.format.client_messages import LSN_MAX

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

    def _draw_time(self) -> int:
        about = self._random.choice(self._stamps) + self._random.choice((-1, 0, 0, 0, 1))
        return self._random.choice((about, about, about, about, about, 0, _LATER))
