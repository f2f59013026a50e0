"""What a listening socket keeps of each connection (SAFETY W6)."""

from __future__ import annotations

import socket as sockets

from transport import link
from transport.link import Lane
from transport.listening import Account, Connection
from transport.tcp_state import TcpState

DESCRIPTOR = 7
SECOND_NS = 1_000_000_000


class Played(Connection):
    """One of which TCP says what a test says."""

    __slots__ = ("state",)

    def _state(self) -> TcpState | None:
        return self.state


def played(state: TcpState) -> Played:
    made = Played(DESCRIPTOR, 1, accepted_ns=0)
    made.state = state
    return made


def test_clients_that_come_and_go_leave_nothing_behind():
    """A descriptor's number is used again and again: it names the client that asked last."""
    socket = link.router_bind("tcp://127.0.0.1:*", lane=Lane.BULK, message_size_max=4_096)
    try:
        account = socket.account
        for number in range(5_000):
            connection = played(TcpState(0, 0, is_sending=False))
            account.connections[DESCRIPTOR] = connection
            account.source = DESCRIPTOR
            client = number.to_bytes(5, "big")
            socket.asked_by(client)
            socket.answered(client, 100)
            assert connection.sent == 100
            account.disconnected(DESCRIPTOR)
        assert len(account.routes) == 1
    finally:
        socket.close()


class LastFrame:
    """Of a message that came over `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def get(self, option: int) -> int:
        return self.descriptor


def test_what_is_read_late_of_a_connection_that_is_gone_counts_for_none_that_comes_after_it():
    """A stranger that left much unread, and came again at once, could leave as much once more, and
    no guard saw it."""
    account = Account()
    with (
        sockets.create_server(("127.0.0.1", 0)) as server,
        sockets.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        frame = LastFrame(accepted.fileno())
        account.accepted(frame.descriptor, 0)
        account.disconnected(frame.descriptor)
        account.on_taken(frame, 2_000_000)
        assert not account.accepted(frame.descriptor, 0).has_spoken()
        account.disconnected(frame.descriptor)
        account.on_taken(frame, 2_000_000)
        client.sendall(bytes(100))
        accepted.recv(100, sockets.MSG_PEEK | sockets.MSG_WAITALL)
        assert account.accepted(frame.descriptor, 0).taken == 100
        account.disconnected(frame.descriptor)
        account.on_taken(frame, 60)  # its own, before the monitor reported it
        assert account.accepted(frame.descriptor, 0).taken == 60


def test_a_client_that_comes_again_by_another_descriptor_is_known_there():
    socket = link.router_bind("tcp://127.0.0.1:*", lane=Lane.BULK, message_size_max=4_096)
    try:
        account = socket.account
        old, new = (played(TcpState(0, 0, is_sending=False)) for _ in range(2))
        account.connections.update({DESCRIPTOR: old, DESCRIPTOR + 1: new})
        for fd in (DESCRIPTOR, DESCRIPTOR + 1):
            account.source = fd
            socket.asked_by(b"client")
        account.source = DESCRIPTOR
        socket.asked_by(b"another")  # the old descriptor has a new owner
        socket.answered(b"client", 100)
        assert (old.sent, new.sent) == (0, 100)
    finally:
        socket.close()


def test_who_was_idle_for_long_and_is_just_being_sent_something_is_not_stalled():
    connection = played(TcpState(500, 0, is_sending=False))
    assert connection.stalled_ns(SECOND_NS) == 0
    connection.state = TcpState(500, 0, is_sending=True)
    assert connection.stalled_ns(3_600 * SECOND_NS) == 0
    assert connection.stalled_ns(3_603 * SECOND_NS) == 3 * SECOND_NS
    connection.state = TcpState(501, 0, is_sending=True)
    assert connection.stalled_ns(3_604 * SECOND_NS) == 0


DAY_NS = 24 * 3_600 * SECOND_NS


def test_heartbeats_of_a_month_are_not_taken_for_something_unread():
    connection = played(TcpState(0, 0, is_sending=False))
    for day in range(1, 31):
        connection.state = TcpState(0, day * 24 * 3_600 * 80, is_sending=False)
        assert connection.unread_bytes(day * DAY_NS) == 0


def test_whoever_was_silent_for_a_month_may_leave_no_more_unread_than_others():
    connection = played(TcpState(0, 0, is_sending=False))
    now_ns, sent, step = 30 * DAY_NS, 0, 8 << 20
    for _ in range(4):  # a guard looks again for every 8 MiB by which memory grows
        sent += step
        connection.state = TcpState(0, sent, is_sending=False)
        unread = connection.unread_bytes(now_ns)
        now_ns += SECOND_NS // 100
    assert unread >= sent - step - 1_024
