"""A producer's links to one leader, and the steps before they may be used (SAFETY E9).

Owns nothing that outlives the leader; the batches belong to `Unresolved`. The ack feed may drop
messages, so `ask_state` decides what is committed, and the feed only says it sooner. An import uses
the append link and the ack feed, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from logstore.client.core.requests import Port, answer_of
from logstore.client.core.steps import Host, RequestLink, Steps, Wait
from logstore.client.endpoint import Endpoint
from logstore.errors import FormatError, NotReady
from logstore.format.client_messages import (
    Acks,
    OpenSessionReply,
    SessionStateReply,
    SessionStateRequest,
    WatermarksReply,
    WatermarksRequest,
    Welcome,
    append_prefix,
)
from logstore.format.conditional_prefix import Expectation, conditional_prefix
from logstore.format.message import decode_message
from logstore.model import Lsn

# Unread messages of the ack feed; one acknowledges many batches.
ACKS_QUEUE_MAX_MESSAGES = 256


class Session(msgspec.Struct, frozen=True):
    """What OpenSession granted. `opens_in_doubt`: attempts before this one that had no answer: each
    may raise the epoch yet, and is no other producer's (SAFETY E10)."""

    producer_id: int
    producer_epoch: int
    window: int
    window_bytes: int
    batch_max_bytes: int
    next_sequence: int
    opens_in_doubt: int = 0


def session_of(reply: OpenSessionReply) -> Session:
    """What the leader granted."""
    return Session(
        reply.producer_id,
        reply.producer_epoch,
        reply.window,
        reply.window_bytes,
        reply.batch_max_bytes,
        reply.next_sequence,
    )


class AppendLinks:
    """Append link and ack feed of the node that is believed to lead; `topic`: the id whose
    acknowledgements are subscribed to."""

    def __init__(self, host: Host, endpoint: Endpoint, *, topic: int, cluster_id: bytes) -> None:
        self.endpoint = endpoint
        self._cluster_id = cluster_id
        self._clock = host.clock
        self._wants_to_send = False
        with contextlib.ExitStack() as opened:
            self._feed = host.links.feed(
                endpoint.acks, topic.to_bytes(8, "little"), queue_max=ACKS_QUEUE_MAX_MESSAGES
            )
            opened.callback(self._feed.close)
            self._pusher = host.links.pusher(endpoint.appends)
            opened.pop_all()

    def close(self) -> None:
        self._pusher.close()
        self._feed.close()

    def wait_for_welcome(self, *, deadline_ns: int) -> Steps[None]:
        """Wait until the subscription to the ack feed is in force.

        Raises:
          NotReady: it is not by the deadline (monotonic ns).
        """
        while not any(isinstance(message, Welcome) for message in self.messages()):
            if self._clock.monotonic_ns() >= deadline_ns:
                raise NotReady(f"no welcome from the ack feed of {self.endpoint}")
            yield Wait(deadline_ns, (self._feed,))

    def try_push(self, frame: bytes) -> bool:
        """Send a frame; False: there is no room, `wait` ends when there is."""
        is_sent = self._pusher.try_send(frame)
        self._wants_to_send = not is_sent
        return is_sent

    def messages(self) -> Iterator[object]:
        """Received messages of this cluster. The topic frame before each says nothing new."""
        while (frames := self._feed.try_receive()) is not None:
            try:
                envelope, message = decode_message(frames[-1])
            except FormatError:
                continue
            if envelope.cluster_id == self._cluster_id:
                yield message

    def is_lost(self) -> bool:
        return self._pusher.is_lost()

    def wait_for_acks(self, until_ns: int) -> Wait:
        """A wait for acknowledgements alone."""
        return Wait(until_ns, (self._feed,))

    def wait(self, until_ns: int, *others: RequestLink) -> Wait:
        """A wait for acknowledgements, for room after a push was refused, or for a broken
        connection; for messages of `others`, too."""
        writes = (self._pusher,) if self._wants_to_send else ()
        return Wait(until_ns, (self._feed, self._pusher, *others), writes)


class Connection:
    """A producer's links to the node that is believed to lead, in one round after the other."""

    def __init__(
        self, host: Host, endpoint: Endpoint, session: Session, *, cluster_id: bytes
    ) -> None:
        self._host = host
        self._session = session
        self._cluster_id = cluster_id
        self.links = AppendLinks(host, endpoint, topic=session.producer_id, cluster_id=cluster_id)
        with contextlib.ExitStack() as opened:
            opened.callback(self.links.close)
            self._port = Port(host, endpoint.control, cluster_id=cluster_id)
            opened.pop_all()
        self._prefix = b""
        self.round = 0
        self.attempt = 0  # the newest push of this round that expects an LSN

    def close(self) -> None:
        self.links.close()
        self._port.close()

    def ask_state(self, *, round_number: int, deadline_ns: int) -> Steps[SessionStateReply]:
        """The state of every batch of the window, from the leader. Batches that are pushed after it
        carry `round_number`.

        Raises:
          NotLeader, NotReady, …: this node does not know.
          Fenced, UnknownProducer: the session is over.
          Unreachable: no answer by the deadline.
        """
        self.round = round_number
        self._prefix = append_prefix(round_number)
        state, _ = yield from self._port.request(
            state_request(self._session, round_number), SessionStateReply, deadline_ns=deadline_ns
        )
        return state

    def try_ask_state(self) -> bool:
        """Ask for the state without waiting for it; False: there is no connection.
        `try_take_state` gives it."""
        return self._port.try_send(state_request(self._session, self.round)) > 0

    def try_take_state(self) -> SessionStateReply | None:
        """An answer to `try_ask_state`; None: there is none yet.

        Raises: as `ask_state`.
        """
        received = self._port.try_receive()
        return None if received is None else answer_of(received[1], SessionStateReply)

    def wait(self, until_ns: int) -> Wait:
        """As that of the links, and for an answer to `try_ask_state`."""
        return self.links.wait(until_ns, self._port.link)

    def confirm_leader(self, *, deadline_ns: int) -> Steps[None]:
        """As `confirm_leader`, of this node."""
        yield from confirm_leader(
            self._host, self.links.endpoint, cluster_id=self._cluster_id, deadline_ns=deadline_ns
        )

    def try_push(self, batch: bytes, expected_next_lsn: int | None = None) -> bool:
        """Send a batch; False: there is no room, a wait on the links ends when there is."""
        if expected_next_lsn is None:
            return self.links.try_push(self._prefix + batch)
        self.attempt += 1
        expectation = Expectation(self.round, expected_next_lsn, self.attempt)
        return self.links.try_push(conditional_prefix(expectation) + batch)

    def acks(self) -> Iterator[Acks]:
        """Received acknowledgements of this session."""
        for message in self.links.messages():
            if (
                isinstance(message, Acks)
                and message.producer_id == self._session.producer_id
                and message.producer_epoch == self._session.producer_epoch
            ):
                yield message


def state_request(session: Session, round_number: int) -> SessionStateRequest:
    """Asks for the state of a session."""
    return SessionStateRequest(session.producer_id, session.producer_epoch, round_number)


def confirm_leader(
    host: Host, endpoint: Endpoint, *, cluster_id: bytes, deadline_ns: int
) -> Steps[None]:
    """Wait until a majority has confirmed that this node leads now. What it says of a session after
    that comes from a log that has everything acknowledged before.

    Raises:
      LogStoreError: it is not confirmed by the deadline (monotonic ns).
    """
    port = Port(host, endpoint.fetch, cluster_id=cluster_id)
    try:
        request = WatermarksRequest(Lsn(0), 0, True)
        yield from port.request(request, WatermarksReply, deadline_ns=deadline_ns)
    finally:
        port.close()
