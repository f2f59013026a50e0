"""Appends that are answered on their own connection, at the produce port (PROTOCOL.md, section 12).

Owns how a session is opened there, and which connection its core has. What the core does with the
answers is what it does with those of the ack feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from actors.simulation.network.core_links import SimulatedLink
from logstore.client.core.backoff import Backoff
from logstore.client.core.connection import Session, session_of
from logstore.client.core.producer_machine import LEADER_TIMEOUT_S, ProducerMachine
from logstore.client.core.requests import Port
from logstore.client.core.routing import Routing
from logstore.client.core.serving import BACKOFF_MAX_S, BACKOFF_MIN_S
from logstore.client.core.steps import Host, Steps, Wait
from logstore.client.endpoint import Endpoint
from logstore.client.refusal import TRANSIENT
from logstore.errors import FormatError, LogStoreError
from logstore.format.client_messages import (
    Acks,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
    WatermarksReply,
    WatermarksRequest,
    append_prefix,
)
from logstore.format.conditional_prefix import Expectation, conditional_prefix
from logstore.format.message import decode_message
from logstore.model import Lsn

NO_ROUND = 0
_PREFIX = append_prefix(NO_ROUND)
_OPEN_TRY_S = 2.0


def open_answered_session(
    host: Host,
    routing: Routing,
    request: OpenSessionRequest,
    address_of: Callable[[int], str],
    *,
    timeout_s: float,
) -> Steps[Session]:
    """As the core's `open_session`, at the produce port. `address_of`: that of a node.

    Raises: as `open_session`.
    """
    deadline_ns = host.deadline_ns(timeout_s)
    pauses = Backoff(host, first_s=BACKOFF_MIN_S, max_s=BACKOFF_MAX_S)
    while True:
        try:
            node, _ = yield from routing.find_leader(deadline_ns=host.deadline_ns(LEADER_TIMEOUT_S))
            port = Port(host, address_of(node), cluster_id=routing.cluster_id)
            try:
                reply, _ = yield from port.request(
                    request, OpenSessionReply, deadline_ns=host.deadline_ns(_OPEN_TRY_S)
                )
            finally:
                port.close()
        except LogStoreError as error:
            if error.code not in TRANSIENT or host.clock.monotonic_ns() >= deadline_ns:
                raise
        else:
            return session_of(reply)
        yield pauses.wait(deadline_ns=deadline_ns)


class _AnsweredLinks:
    """What the core's machine asks of the links of its connection: here there is one."""

    def __init__(self, link: SimulatedLink) -> None:
        self.link = link
        self.wants_to_send = False

    def watch(self) -> None:
        """From now on a break ends each wait until it is looked at, as `Port.request` does not."""
        self.link.watch(refusals=False, loss=True)

    def wait_for_welcome(self, *, deadline_ns: int) -> Steps[None]:
        """There is no subscription to wait for."""
        del deadline_ns
        yield from ()

    def is_lost(self) -> bool:
        return self.link.is_lost()

    def wait(self, until_ns: int) -> Wait:
        return Wait(until_ns, (self.link,), (self.link,) if self.wants_to_send else ())


class AnsweredConnection:
    """A connection to the produce port of `node`, which is believed to lead: to the core's machine
    what its `Connection` is. Answers say no round, for there is one a connection."""

    round = NO_ROUND

    def __init__(
        self, host: Host, node: int, address: str, fetch: str, session: Session, cluster_id: bytes
    ) -> None:
        self.node = node
        self._host = host
        self._fetch = fetch
        self.session = session
        self._cluster_id = cluster_id
        self._port = Port(host, address, cluster_id=cluster_id)
        link: Any = self._port.link
        self.links = _AnsweredLinks(link)
        self.attempt = 0  # the newest push of this connection that expects an LSN

    def close(self) -> None:
        self._port.close()

    def confirm_leader(self, *, deadline_ns: int) -> Steps[None]:
        """Wait until a majority has confirmed that this node leads now."""
        port = Port(self._host, self._fetch, cluster_id=self._cluster_id)
        try:
            request = WatermarksRequest(Lsn(0), 0, True)
            yield from port.request(request, WatermarksReply, deadline_ns=deadline_ns)
        finally:
            port.close()

    def ask_state(self, *, round_number: int, deadline_ns: int) -> Steps[SessionStateReply]:
        """The first message over the connection, so no answer to a batch comes before the reply."""
        del round_number
        asked = self.session.producer_id, self.session.producer_epoch, NO_ROUND
        state, _ = yield from self._port.request(
            SessionStateRequest(*asked), SessionStateReply, deadline_ns=deadline_ns
        )
        self.links.watch()
        return state

    def try_push(self, batch: bytes, expected_next_lsn: int | None = None) -> bool:
        """Send a batch; False: there is no room, a wait on the links ends when there is."""
        prefix = _PREFIX
        if expected_next_lsn is not None:
            self.attempt += 1
            prefix = conditional_prefix(Expectation(NO_ROUND, expected_next_lsn, self.attempt))
        is_sent = self.links.link.try_send(prefix + batch)
        self.links.wants_to_send = not is_sent
        return is_sent

    def acks(self) -> Iterator[Acks]:
        """Received acknowledgements."""
        while (frames := self.links.link.try_receive()) is not None:
            try:
                envelope, message = decode_message(frames[0])
            except FormatError:
                continue
            if envelope.cluster_id == self._cluster_id and isinstance(message, Acks):
                yield message


class AnsweredMachine(ProducerMachine):
    """The core's producer with such connections. `address_of`: the produce port of a node;
    `link`: of the present connection, or the last; None: there was none."""

    address_of: Callable[[int], str]
    link: SimulatedLink | None = None

    def _connect(self, node: int, endpoint: Endpoint) -> Any:
        cluster_id = self._routing.cluster_id
        made = AnsweredConnection(
            self._host, node, self.address_of(node), endpoint.fetch, self.session, cluster_id
        )
        self.link = made.links.link
        return made
