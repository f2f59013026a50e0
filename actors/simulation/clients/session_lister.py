"""Lists the sessions of the log, a page at a time, and now and then ends one.

Owns what the last pages showed, and a connection to the node that showed them: an end that is asked
for in haste goes there at once, since whoever leads may be about to lose its office.
"""

from __future__ import annotations

from collections.abc import Collection

from actors.simulation.clients.asking import Asking
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.requests import Port
from logstore.client.core.session_admin import SessionAdmin
from logstore.client.core.steps import Steps
from logstore.errors import LogStoreError, UnknownProducer
from logstore.format.client_messages import (
    DoneReply,
    EndSessionRequest,
    SessionsReply,
    SessionsRequest,
)
from logstore.format.session_list import decode_sessions
from logstore.settings import PortOffset

_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once
_LIMITS = (0, 0, 1, 2, 5)
_END = 0.35
_END_BY_NAME = 0.2
# Whose session is ended under it begins anew, which costs it a second of its run.
_END_OF_APPENDER = 0.15
_KNOWN_MAX = 64


class SessionLister:
    """A subject. `appenders`: names of sessions that are mostly left alone."""

    def __init__(self, asking: Asking, appenders: Collection[str]) -> None:
        self._asking = asking
        self._random = asking.host.random
        self.ask_every_ns = self._random.randrange(*_ASK_EVERY_NS)
        self._appenders = appenders
        self._next_after = 0
        self._port: Port | None = None  # of the node that answered last
        self._known: dict[int, str] = {}  # producer id -> name; ended ones, too

    def hurry(self) -> None:
        """End the session that it has heard of last, at once. Wake its process."""
        port, self._port = self._port, None
        if port is not None and self._known:
            self._asking.client.start(self._end_newest(port))

    def ask(self) -> Steps[None]:
        host, routing, timeout_s = self._asking.cluster()
        admin = SessionAdmin(host, routing, timeout_s=timeout_s)
        try:
            if producer_id := self._draw_ending():
                name = self._known[producer_id]
                is_by_name = name and self._random.random() < _END_BY_NAME
                yield from admin.end(name if is_by_name else producer_id)
            else:
                yield from self._list(admin, timeout_s)
        except UnknownProducer:
            self._asking.witness.count("no-session")
        self._keep_connection(self._asking.routing.asked_last)

    def _end_newest(self, port: Port) -> Steps[None]:
        request = EndSessionRequest(max(self._known))
        deadline_ns = self._asking.core.deadline_ns(self._asking.patience_s())
        try:
            yield from port.request(request, DoneReply, deadline_ns=deadline_ns)
        except LogStoreError as error:
            self._asking.witness.failed(error)
        finally:
            port.close()

    def _keep_connection(self, node: int) -> None:
        address = self._asking.host.endpoint(node, PortOffset.CONTROL)
        if self._port is not None and self._port.address != address:
            self._port.close()
            self._port = None
        self._port = self._port or self._asking.port(address)

    def _list(self, admin: SessionAdmin, timeout_s: float) -> Steps[None]:
        """A page; the core asks for as many rows as the replica gives, so a limit is asked for by
        hand."""
        limit = self._random.choice(_LIMITS)
        if limit:
            leader = LeaderRequest(self._asking.core, self._asking.routing, timeout_s=timeout_s)
            request = SessionsRequest(self._next_after, limit)
            reply = yield from leader.ask(request, SessionsReply)
            rows = {row.producer_id: row.name.decode() for row in decode_sessions(reply.sessions)}
            self._next_after = reply.next_after
        else:
            page = yield from admin.page(self._next_after)
            rows = {row.producer_id: row.name for row in page.rows}
            self._next_after = page.next_after
        self._known |= rows
        while len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _draw_ending(self) -> int:
        """A session to end, whose end may have been asked for before; 0: list this time."""
        random = self._random
        if random.random() >= _END or not self._known:
            return 0
        producer_id = random.choice(list(self._known))
        if self._known[producer_id] in self._appenders and random.random() >= _END_OF_APPENDER:
            return 0
        return producer_id
