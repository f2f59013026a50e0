"""Asks any replica where a time is in its log, and how the bytes of a range are spread (V7).

Owns what it asks for: ranges and times that it was told of, and some that nobody has. Must not know
what a right answer is; the ledger does.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actors.simulation.checkers.client_facts import DamageNamed, SpansTold, SurveyAsked, TimeTold
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.host import MS_NS, ClientHost
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    LSN_MAX,
    SPAN,
    ErrorReply,
    SpansReply,
    SpansRequest,
    TimeLookupReply,
    TimeLookupRequest,
)
from logstore.model import Lsn
from logstore.settings import PortOffset

_ASK_EVERY_NS = (600 * MS_NS, 2_000 * MS_NS)  # the mean, drawn once
_STAMPS_MAX = 64  # times that are kept to be asked for
_LATER = 1 << 62  # no entry is of that time, or of a later one
_LIMIT_MAX = 40


class Surveyor:
    """The subject of an inquirer."""

    port = PortOffset.FETCH

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.wire = Wire(host)
        self.ask_every_ns = host.random.randrange(*_ASK_EVERY_NS)
        self._request: SpansRequest | TimeLookupRequest = TimeLookupRequest(0)
        self._stamps: list[int] = []  # of entries
        self._shown_lsn = int(host.first_lsn) - 1  # the highest that any replica told of

    def question(self) -> tuple[msgspec.Struct, type[Any]]:
        self.host.tell(SurveyAsked())
        if self._stamps and self.host.random.random() < 0.6:
            self._request = TimeLookupRequest(self._draw_time())
            return self._request, TimeLookupReply
        self._request = self._draw_spans()
        return self._request, SpansReply

    def _draw_time(self) -> int:
        random = self.host.random
        about = random.choice(self._stamps) + random.choice((-1, 0, 0, 0, 1))
        return random.choice((about, about, about, about, about, 0, _LATER))

    def _draw_spans(self) -> SpansRequest:
        random, log_start = self.host.random, int(self.host.first_lsn)
        first_lsn = random.randrange(log_start, self._shown_lsn + 2)
        last_lsn = random.choice((first_lsn + random.randrange(100), LSN_MAX))
        step_bytes, limit = 1 << random.randrange(14), random.randint(1, _LIMIT_MAX)
        return SpansRequest(Lsn(first_lsn), Lsn(last_lsn), step_bytes, limit)

    def answered(self, node: int, message: Any) -> None:
        host, request = self.host, self._request
        if isinstance(request, TimeLookupRequest):
            self.wire.count("times")
            host.tell(TimeTold(node, request.timestamp_ns, message.lsn))
            return
        self.wire.count("spans")
        host.tell(SpansTold(node, request, message))
        self._shown_lsn = max(self._shown_lsn, message.visible_lsn)
        if message.timestamp_ns:
            stamps = (stamp for _, _, stamp in SPAN.iter_unpack(message.rows))
            self._stamps = [*self._stamps, message.timestamp_ns, *stamps][-_STAMPS_MAX:]

    def refused(self, node: int, error: ErrorReply) -> bool:
        request = self._request
        if error.code == ErrorCode.CORRUPT_DATA:
            named = error.first, error.last
            self.host.tell(DamageNamed(node, named))
        elif error.code != ErrorCode.OUT_OF_RANGE or isinstance(request, TimeLookupRequest):
            self.wire.violated(Invariant.I11, f"{request} was refused with {error} by node {node}")
        elif error.first <= request.first_lsn <= error.last + 1:
            text = f"node {node} has [{error.first}, {error.last}], refused {request}"
            self.wire.violated(Invariant.I5, text)
        return False
