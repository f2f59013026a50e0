"""Lists the sessions of the log, a page at a time, and now and then ends one.

Owns what the last pages showed, and a connection to each node that was asked. Ends in haste are
sent at once to the node that was asked last, since a leader may be about to be deposed.
"""

from __future__ import annotations

from collections.abc import Collection

from actors.simulation.clients.inquirer import Inquirer
from actors.simulation.world.client_host import MS_NS
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.requests import Port
from logstore.client.core.session_admin import SessionAdmin
from logstore.client.core.steps import Steps, Wait
from logstore.errors import UnknownProducer
from logstore.format.client_messages import (
    EndSessionRequest,
    SessionsReply,
    SessionsRequest,
)
from logstore.format.session_list import decode_sessions

_ASK_EVERY_NS = (400 * MS_NS, 1_800 * MS_NS)  # the mean, drawn once
_LIMITS = (0, 0, 1, 2, 5)
_END = 0.35
_END_BY_NAME = 0.2
# Whose session is ended under it starts over, which costs it a second of its run.
_END_OF_APPENDER = 0.15
_KNOWN_MAX = 64
_ENDED_IN_HASTE = 4


class SessionLister:
    """A subject. `appenders`: names of sessions that are mostly left alone."""

    def __init__(self, inquirer: Inquirer, appenders: Collection[str]) -> None:
        self._inquirer = inquirer
        self._random = inquirer.host.random
        self.ask_every_ns = self._random.randrange(*_ASK_EVERY_NS)
        self._appenders = appenders
        self._next_after = 0
        self._ports: dict[int, Port] = {}  # of nodes that were asked
        self._known: dict[int, str] = {}  # the newest last: producer id -> name; ended ones, too

    def hurry(self) -> None:
        """End the sessions that it has seen last, at once. Wake its process."""
        port = self._ports.get(self._inquirer.routing.asked_last) if self._known else None
        if port is not None:
            self._inquirer.client.start(self._end_newest(port))

    def ask(self) -> Steps[None]:
        host, routing, timeout_s = self._inquirer.cluster()
        admin = SessionAdmin(host, routing, timeout_s=timeout_s)
        try:
            if producer_id := self._draw_ending():
                name = self._known[producer_id]
                is_by_name = name and self._random.random() < _END_BY_NAME
                yield from admin.end(name if is_by_name else producer_id)
            else:
                yield from self._list(admin, timeout_s)
        except UnknownProducer:
            self._inquirer.witness.count("no-session")
        node = self._inquirer.routing.asked_last
        self._ports[node] = self._inquirer.port(node)

    def _end_newest(self, port: Port) -> Steps[None]:
        """End several at once, since most have ended meanwhile and no reply says which. A session
        cannot be ended while batches of it are under way."""
        newest = list(reversed(self._known))
        others = [each for each in newest if self._known[each] not in self._appenders]
        ending = others[:_ENDED_IN_HASTE] or newest[:1]
        asked = {port.try_send(EndSessionRequest(each)) for each in ending} - {0}
        core = self._inquirer.core
        deadline_ns = core.deadline_ns(self._inquirer.draw_timeout_s())
        while asked and core.clock.monotonic_ns() < deadline_ns:
            received = port.try_receive()
            if received is None:
                yield Wait(deadline_ns, (port.link,))
            else:
                asked.discard(received[0])

    def _list(self, admin: SessionAdmin, timeout_s: float) -> Steps[None]:
        """Read a page. The core asks for as many rows as the replica gives, so a smaller limit is
        asked for directly."""
        limit = self._random.choice(_LIMITS)
        if limit:
            leader = LeaderRequest(self._inquirer.core, self._inquirer.routing, timeout_s=timeout_s)
            request = SessionsRequest(self._next_after, limit)
            reply = yield from leader.ask(request, SessionsReply)
            rows = {row.producer_id: row.name.decode() for row in decode_sessions(reply.sessions)}
            self._next_after = reply.next_after
        else:
            page = yield from admin.page(self._next_after)
            rows = {row.producer_id: row.name for row in page.rows}
            self._next_after = page.next_after
        for producer_id, name in rows.items():
            self._known.pop(producer_id, None)
            self._known[producer_id] = name
        while len(self._known) > _KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _draw_ending(self) -> int:
        """A session to end, which may have ended before; 0: list this time."""
        random = self._random
        if random.random() >= _END or not self._known:
            return 0
        producer_id = random.choice(list(self._known))
        if self._known[producer_id] in self._appenders and random.random() >= _END_OF_APPENDER:
            return 0
        return producer_id
