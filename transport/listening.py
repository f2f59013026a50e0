"""A bound ZeroMQ socket that knows its connections (SAFETY M5, W6).

libzmq bounds its queues in messages per connection. It bounds neither the frames of a message
without an end, nor the number of connections, nor a subscriber's subscriptions. So a listening
socket counts, per connection, what arrived (TCP's own count), how much of that was taken from the
socket (`ZMQ_SRCFD` of each message names its connection), what was sent, and how much of that the
peer has acknowledged. The limits are decided elsewhere; `Connection.end` ends a connection.

Owns the monitor of its socket. Connections are learned from the monitor, so `refresh` is called now
and then. Measured (libzmq 4.3.5, 2026-11-22): 0.12 µs to ask a message for its connection, 1.2 µs
to ask TCP. A connection that is shut down frees its memory, that of an endless message, too.
"""

from __future__ import annotations

import struct
from typing import Any

import zmq

from transport.link_socket import LinkSocket
from transport.tcp_state import TcpState, end_connection, inode_of, kernel_bytes, tcp_state

NO_SOURCE = -1
# Frames kept of one message; ours have three at most, routing id included. MAXMSGSIZE bounds each
# frame, and libzmq does not bound their number: the rest is received and dropped.
FRAMES_MAX = 4
# Frames of one message that are taken at once; a few too many are a fault that its client is told.
# A frame takes 2 µs, a message is bounded in bytes only, and 4 MiB of empty frames are two million.
FRAMES_AT_ONCE = 16
# Frames of a longer message that are dropped at once: 2 ms, after which others have their turn.
FRAMES_DROPPED_AT_ONCE = 1_024
EVENTS_MAX = 4_096  # events of a monitor per call: about 10 ms
# Bytes a second that no message accounts for: pings and pongs, 5 of each, are 80.
HEARTBEAT_BYTES_PER_S = 128
# A handshake has 107 bytes, and replicas' heartbeats bring 16 a second, a PING and a PONG (libzmq
# 4.3.5, 2026-11-26), so a connection has received this many after its first second.
SPOKEN_BYTES = 120
GREETING_BYTES = 64  # the first part of a handshake; the rest answers ours
_NS_PER_S = 1_000_000_000
_MONITORED = int(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
_ACCEPTED = int(zmq.EVENT_ACCEPTED)
_EVENT = struct.Struct("=HI")
_DONTWAIT = int(zmq.DONTWAIT)
_SRCFD = int(zmq.SRCFD)
_ROUTER = int(zmq.ROUTER)
# bytes that ZMTP puts before a frame
_SHORT_FRAME_MAX = 255
_SHORT_HEAD, _LONG_HEAD = 2, 9


class Connection:
    """One accepted connection, and its listener's counts."""

    __slots__ = (
        "_acknowledged", "_acknowledged_extra", "_heartbeats", "_inode", "_looked_ns", "_moved_ns",
        "_was_sending", "accepted_ns", "fd", "sent", "taken", "topics",
    )  # fmt: skip

    def __init__(self, fd: int, inode: int, accepted_ns: int) -> None:
        self.fd = fd
        self.accepted_ns = accepted_ns
        self.taken = 0  # bytes of whole messages taken from the socket
        self.sent = 0  # bytes of answers given to libzmq
        self.topics: set[bytes] = set()
        self._inode = inode
        self._heartbeats = 0  # the most that no message accounted for, at the last call
        self._looked_ns = accepted_ns
        self._acknowledged_extra = 0
        self._acknowledged = 0
        self._moved_ns = accepted_ns  # last progress of sending, or nothing to send
        self._was_sending = False  # at the last call

    def count_early(self, size_bytes: int) -> None:
        """Count this much as taken before the connection was known, but no more than has come: the
        rest is of the one that had its descriptor before."""
        state = self._state() if size_bytes else None
        self.taken = 0 if state is None else min(size_bytes, state.received)

    def count_all_as_taken(self) -> None:
        """Count all that has arrived so far as taken."""
        state = self._state()
        if state is not None:
            self.taken = max(self.taken, state.received)

    def has_shaken_hands(self) -> bool:
        """Whether more than a greeting has come: it takes a round trip, and no heartbeat."""
        state = self._state()
        return state is not None and state.received > GREETING_BYTES

    def has_spoken(self) -> bool:
        """Whether a message was taken, or heartbeats have come for a second. A follower sends no
        message over its own connection to a leader: only heartbeats tell it from one that was
        opened and left."""
        if self.taken:
            return True
        state = self._state()
        return state is not None and state.received >= SPOKEN_BYTES

    def unread_bytes(self, now_ns: int) -> int:
        """About what arrived and was not taken: in the kernel, in messages that wait, and in a
        message without an end yet."""
        return self._unread_bytes(self._state(), now_ns)

    def _unread_bytes(self, state: TcpState | None, now_ns: int) -> int:
        if state is None:
            return 0
        # No more than came: who sends no heartbeats for a month is not owed 330 MB.
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        missing = max(0, state.received - self.taken)
        heartbeats = self._heartbeats + since_ns * HEARTBEAT_BYTES_PER_S // _NS_PER_S + 1
        self._heartbeats = min(missing, heartbeats)
        return missing - self._heartbeats

    def kernel_bytes(self) -> int:
        """The part of `unread_bytes` that libzmq has not read yet."""
        return kernel_bytes(self.fd)

    def unacknowledged_bytes(self) -> int:
        """About what was sent and not acknowledged: libzmq's queue and the kernel's."""
        state = self._state()
        if state is None:
            return 0
        missing = self.sent - (state.acknowledged - self._acknowledged_extra)
        if missing < 0:  # ZMTP's own bytes arrived, too
            self._acknowledged_extra -= missing
            missing = 0
        return missing

    def stalled_ns(self, now_ns: int) -> int:
        """How long bytes have waited to be sent without progress, judged at the calls of this
        method: what happened between two calls is unknown, so a connection that was idle at the
        last call counts from now."""
        return self._stalled_ns(self._state(), now_ns)

    def measure(self, now_ns: int) -> tuple[int, int]:
        """`unread_bytes` and `stalled_ns`, at one moment."""
        state = self._state()
        return self._unread_bytes(state, now_ns), self._stalled_ns(state, now_ns)

    def _stalled_ns(self, state: TcpState | None, now_ns: int) -> int:
        is_sending = state is not None and state.is_sending
        acknowledged = 0 if state is None else state.acknowledged
        if not (is_sending and self._was_sending and acknowledged == self._acknowledged):
            self._was_sending, self._acknowledged = is_sending, acknowledged
            self._moved_ns = now_ns
        return now_ns - self._moved_ns

    def end(self) -> None:
        end_connection(self.fd, self._inode)

    def _state(self) -> TcpState | None:
        return tcp_state(self.fd, self._inode)


class Account:
    """The connections of one listening socket, by descriptor."""

    def __init__(self) -> None:
        self.connections: dict[int, Connection] = {}
        self.source = NO_SOURCE  # the connection of the last message taken
        self.routes: dict[bytes, int] = {}  # connections by client, of clients that sent a request
        self._clients: dict[int, bytes] = {}  # the other way round
        # bytes of connections that the monitor has not reported yet, or has reported to be gone
        self._early: dict[int, int] = {}

    def on_taken(self, last_frame: Any, size_bytes: int) -> None:
        """Count a whole message as taken. Hot."""
        try:
            self.source = source = last_frame.get(_SRCFD)
        except zmq.ZMQError:  # libzmq's own: a topic has no subscriber
            self.source = NO_SOURCE
            return
        connection = self.connections.get(source)
        if connection is not None:
            connection.taken += size_bytes
        else:
            self._early[source] = self._early.get(source, 0) + size_bytes

    def asked_by(self, routing_id: bytes) -> None:
        """The last message taken is of this client. A client that had this connection's number
        before is gone, so there are never more clients than numbers."""
        fd = self.source
        before = self._clients.get(fd)
        if before is not None and before != routing_id and self.routes.get(before) == fd:
            del self.routes[before]
        self._clients[fd] = routing_id
        self.routes[routing_id] = fd

    def accepted(self, fd: int, now_ns: int) -> Connection:
        connection = Connection(fd, inode_of(fd), now_ns)
        connection.count_early(self._early.pop(fd, 0))
        self.connections[fd] = connection
        return connection

    def disconnected(self, fd: int) -> None:
        self.connections.pop(fd, None)
        self._early.pop(fd, None)


class ListeningSocket(LinkSocket):
    """Created and bound by `transport.link`, read by `link.try_receive`."""

    # pyzmq takes an attribute of a socket for an option unless its class has it
    account: Account = Account()
    monitor_end: Any = None
    is_router: bool = False
    is_amid_message: bool = False  # the rest of a message too long for one call waits

    def start_monitor(self) -> None:
        """Start to learn of connections.

        The monitor's queue has no mark, because libzmq's thread would wait for room in it. An event
        is about 100 bytes, and all are read five times a second at least, EVENTS_MAX at once.
        """
        self.account = Account()
        self.is_router = self.getsockopt(zmq.TYPE) == _ROUTER
        address = f"inproc://listening-{int(self.getsockopt(zmq.FD))}"
        self.monitor(address, _MONITORED)
        end = self.context.socket(zmq.PAIR, socket_class=LinkSocket)
        end.setsockopt(zmq.RCVHWM, 0)
        end.setsockopt(zmq.LINGER, 0)
        end.connect(address)
        self.monitor_end = end

    @property
    def has_more_events(self) -> bool:
        """`refresh` has left some, perhaps."""
        end = self.monitor_end
        return end is not None and end.hint.may_have_input

    def refresh(self, now_ns: int) -> list[Connection]:
        """Read the monitor's events; returns the connections that are new and still open. Call it
        when a poll has found `monitor_end` readable."""
        end, account = self.monitor_end, self.account
        fresh: dict[int, Connection] = {}
        gone: set[int] = set()
        for _ in range(EVENTS_MAX):
            if end is None or not end.may_receive():
                break
            event, fd = _EVENT.unpack(end.recv(_DONTWAIT))
            end.recv(_DONTWAIT)  # the endpoint
            if event == _ACCEPTED:
                fresh[fd] = connection = account.accepted(fd, now_ns)
                if fd in gone:
                    # what was taken from it so far was counted for its predecessor
                    connection.count_all_as_taken()
            else:
                gone.add(fd)
                account.disconnected(fd)
                fresh.pop(fd, None)
        return list(fresh.values())

    @property
    def is_readable(self) -> bool:
        return self.has_input()

    def try_take(self) -> list[Any] | None:
        """The next message, as in `link.try_receive`, as frames of pyzmq; it is counted. The caller
        has seen that there is one. Hot.

        Of a message of more than FRAMES_AT_ONCE frames the connection is ended, for none of ours
        has so many, and the next calls drop the rest; each of them returns None, so that a loop
        over all messages ends there, and the next poll finds the socket readable.
        """
        if self.is_amid_message:
            self._drop_rest()
            return None
        try:
            frame = self.recv(_DONTWAIT, copy=False)
        except zmq.Again:
            return None
        frames = [frame]
        size = len(frame)
        # ZMTP carries no routing id: libzmq adds it
        wire = 0 if self.is_router else size + _head(size)
        left = FRAMES_AT_ONCE - 1
        while frame.more and left:
            left -= 1
            frame = self.recv(_DONTWAIT, copy=False)
            size = len(frame)
            wire += size + _head(size)
            if len(frames) < FRAMES_MAX:
                frames.append(frame)
        self.account.on_taken(frame, wire)
        if frame.more:
            self.is_amid_message = True
            self._end_source()
        return frames

    def _drop_rest(self) -> None:
        """Drop more of the message that was too long for one call."""
        wire = 0
        for _ in range(FRAMES_DROPPED_AT_ONCE):
            frame = self.recv(_DONTWAIT, copy=False)
            wire += len(frame) + _head(len(frame))
            if not frame.more:
                self.is_amid_message = False
                break
        self.account.on_taken(frame, wire)

    def _end_source(self) -> None:
        """End the connection of the last message taken, if it is known yet."""
        connection = self.account.connections.get(self.account.source)
        if connection is not None:
            connection.end()

    # --- a ROUTER: what its clients have not received yet ---

    def asked_by(self, routing_id: bytes) -> None:
        """The last message taken is of this client."""
        self.account.asked_by(routing_id)

    def answered(self, routing_id: bytes, size_bytes: int) -> None:
        """Count a message of this size as sent to this client."""
        connection = self._connection_of(routing_id)
        if connection is not None:
            connection.sent += size_bytes

    def unacknowledged_bytes(self, routing_id: bytes) -> int:
        """What was sent to this client and not acknowledged; 0 if it is gone."""
        connection = self._connection_of(routing_id)
        return 0 if connection is None else connection.unacknowledged_bytes()

    def end_connection(self, routing_id: bytes) -> None:
        """End this client's connection and drop what is queued for it; it may connect again."""
        connection = self._connection_of(routing_id)
        if connection is not None:
            connection.end()

    def _connection_of(self, routing_id: bytes) -> Connection | None:
        account = self.account
        return account.connections.get(account.routes.get(routing_id, NO_SOURCE))

    def close(self, linger: int | None = None) -> None:
        end, self.monitor_end = self.monitor_end, None
        if end is not None:
            self.disable_monitor()
            end.close(linger=0)
        super().close(linger)


def _head(size_bytes: int) -> int:
    return _SHORT_HEAD if size_bytes <= _SHORT_FRAME_MAX else _LONG_HEAD
