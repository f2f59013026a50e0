"""Listening sockets that know their connections, and the guard that bounds them, on real ZeroMQ
(SAFETY W6)."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import msgspec
import pytest
import zmq

from actors import guard as guard_module
from actors.guard import LOOK_EVERY_NS, ConnectionGuard, CounterSlots, Guarded
from logstore.cli.embedded import poll_until
from tests.contracts.receiving import poll_and_receive
from tests.faults.greedy import frame, zmtp_connection
from transport import link, listening
from transport.link import Lane
from transport.process_memory import open_descriptors, raise_descriptor_limit
from transport.tcp_state import end_connection, inode_of, tcp_state

PATIENCE_S = 60.0
OPEN, MOST, REFUSED, ENDED = range(4)
PING = b"\x04\x0b\x04PING\0\x0a1234"  # a command of ZMTP: its time to live, its context


class Stage:
    """A ROUTER under guard."""

    def __init__(self, *, is_for_peers: bool = False) -> None:
        self.socket = link.router_bind(
            "tcp://127.0.0.1:*", lane=Lane.BULK, message_size_max=4_096, high_water_mark=16
        )
        self.address = ("127.0.0.1", int(link.bound_endpoint(self.socket).rpartition(":")[2]))
        self.slots = memoryview(bytearray(64)).cast("Q")
        self.guard = ConnectionGuard(
            [Guarded("test", self.socket, 4_096, 1 << 20, is_for_peers)],
            self.slots,
            CounterSlots(OPEN, MOST, REFUSED, ENDED),
            memory_max_bytes=1 << 30,
            guards=1,
        )
        self.received: list[bytes] = []

    def work(self) -> None:
        self.guard._due_ns = 0
        self.guard.do_work(time.monotonic_ns())
        while (frames := poll_and_receive(self.socket)) is not None:
            self.received.append(frames[1])

    def until(self, is_true) -> None:
        def worked() -> bool:
            self.work()
            return is_true()

        assert poll_until(worked, PATIENCE_S)

    def fds(self) -> list[int]:
        return list(self.socket.account.connections)

    def expect_kept(self, fd: int, peer: socket.socket) -> None:
        """Four of seven connections are ended, and this one is not."""
        self.until(lambda: self.slots[REFUSED] >= 4)
        self.until(lambda: len(self.fds()) <= 3)
        assert fd in self.fds()
        peer.sendall(frame(0, b"still here"))
        self.until(lambda: b"still here" in self.received)


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.socket.close()


def is_closed(connection) -> bool:
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_beyond_the_bound_the_newest_connection_is_refused_and_old_ones_go_on(stage):
    stage.guard.connections_max = 2
    with ExitStack() as stack:
        old = [stack.enter_context(zmtp_connection(stage.address, 0)) for _ in range(2)]
        stage.until(lambda: stage.slots[OPEN] == 2)
        new = stack.enter_context(zmtp_connection(stage.address, 0))
        stage.until(lambda: stage.slots[REFUSED] == 1)
        assert is_closed(new)
        for connection in old:
            connection.sendall(frame(0, b"still here"))
        stage.until(lambda: stage.received == [b"still here"] * 2)
        stage.until(lambda: stage.slots[OPEN] == 2)
    stage.until(lambda: stage.slots[OPEN] == 0)
    with zmtp_connection(stage.address, 0) as after:
        after.sendall(frame(0, b"room again"))
        stage.until(lambda: stage.received[-1] == b"room again")


def test_a_port_with_room_to_spare_takes_some_beyond_the_bound(stage):
    """The status of a crowded replica is asked for there."""
    stage.guard._guarded = [msgspec.structs.replace(stage.guard._guarded[0], spare=1)]
    stage.guard.connections_max = 1
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(zmtp_connection(stage.address, 0))
        stage.until(lambda: stage.slots[OPEN] == 2)
        assert stage.slots[REFUSED] == 0
        assert is_closed(stack.enter_context(_refused(stage)))
        assert stage.slots[REFUSED] == 1


@contextmanager
def _refused(stage):
    with zmtp_connection(stage.address, 0) as connection:
        stage.until(lambda: stage.slots[REFUSED] == 1)
        yield connection


def test_strangers_on_a_peers_port_go_before_peers(monkeypatch):
    monkeypatch.setattr(guard_module, "PEER_CONNECTIONS_MAX", 3)
    stage = Stage(is_for_peers=True)
    with ExitStack() as stack:
        stack.callback(stage.socket.close)
        strangers = [stack.enter_context(zmtp_connection(stage.address, 0)) for _ in range(3)]
        stage.until(lambda: len(stage.fds()) == 3)
        peer = stack.enter_context(zmtp_connection(stage.address, 0))
        peer.sendall(frame(0, b"a peer"))
        stage.until(lambda: b"a peer" in stage.received)
        stage.until(lambda: stage.slots[REFUSED] > 0)
        stage.until(lambda: len(stage.fds()) <= 3)
        peer.sendall(frame(0, b"again"))
        stage.until(lambda: b"again" in stage.received)
        assert any(is_closed(each) for each in strangers[:1])


def test_strangers_that_talk_do_not_drive_an_old_peer_out(monkeypatch):
    stage = Stage(is_for_peers=True)
    with ExitStack() as stack:
        stack.callback(stage.socket.close)
        peer = stack.enter_context(zmtp_connection(stage.address, 0))
        peer.sendall(frame(0, b"a peer"))
        stage.until(lambda: b"a peer" in stage.received)
        [fd] = stage.fds()
        for number in range(3):
            stranger = stack.enter_context(zmtp_connection(stage.address, 0))
            stranger.sendall(frame(0, b"stranger %d" % number))
        stage.until(lambda: len(stage.received) == 4)
        monkeypatch.setattr(guard_module, "PEER_CONNECTIONS_MAX", 3)
        stack.enter_context(zmtp_connection(stage.address, 0))  # the guard looks at each new one
        stage.until(lambda: stage.slots[REFUSED] > 1)
        stage.until(lambda: len(stage.fds()) <= 3)
        assert fd in stage.fds()
        peer.sendall(frame(0, b"again"))
        stage.until(lambda: b"again" in stage.received)


def test_strangers_do_not_drive_out_an_old_peer_that_sends_heartbeats_only(monkeypatch):
    """A follower sends its leader nothing else over its own connection, and counts the leader as
    gone if that connection is ended (C1)."""
    monkeypatch.setattr(guard_module, "PEER_CONNECTIONS_MAX", 3)
    stage = Stage(is_for_peers=True)
    with ExitStack() as stack:
        stack.callback(stage.socket.close)
        peer = stack.enter_context(zmtp_connection(stage.address, 0))
        stage.until(lambda: len(stage.fds()) == 1)
        [fd] = stage.fds()
        [connection] = stage.socket.account.connections.values()
        assert not connection.has_spoken()
        peer.sendall(PING * 10)
        assert poll_until(connection.has_spoken, PATIENCE_S)
        for _ in range(6):
            stack.enter_context(zmtp_connection(stage.address, 0))
        stage.expect_kept(fd, peer)


def test_strangers_that_say_nothing_do_not_drive_out_a_peer_that_has_just_connected(monkeypatch):
    """Its first heartbeats come after a second, its handshake at once."""
    monkeypatch.setattr(guard_module, "PEER_CONNECTIONS_MAX", 3)
    stage = Stage(is_for_peers=True)
    with ExitStack() as stack:
        stack.callback(stage.socket.close)
        peer = stack.enter_context(zmtp_connection(stage.address, 0))
        stage.until(lambda: len(stage.fds()) == 1)
        [fd] = stage.fds()
        for _ in range(6):
            stack.enter_context(socket.create_connection(stage.address, PATIENCE_S))
        stage.expect_kept(fd, peer)


def test_a_guard_that_left_events_unread_looks_again_soon(stage, monkeypatch):
    """They have no bound: strangers that come and go faster than that would fill the memory."""
    monkeypatch.setattr(listening, "EVENTS_MAX", 2)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(zmtp_connection(stage.address, 0))
        now_ns = 1
        for known, is_behind in ((2, True), (4, True), (4, False)):
            stage.guard.do_work(now_ns)
            assert len(stage.fds()) == known
            assert (stage.guard.next_timer_ns - now_ns <= LOOK_EVERY_NS) is is_behind
            now_ns = stage.guard.next_timer_ns


def test_what_is_unread_is_told_from_what_was_taken(stage):
    with zmtp_connection(stage.address, 0) as connection:
        stage.until(lambda: stage.slots[OPEN] == 1)
        [known] = stage.socket.account.connections.values()
        for _ in range(20):
            connection.sendall(frame(0, b"x" * 1_000))
        stage.until(lambda: len(stage.received) == 20)
        now_ns = time.monotonic_ns()
        assert known.unread_bytes(now_ns) < 500
        connection.sendall(frame(1, b"x" * 4_000))  # the message goes on
        assert poll_until(lambda: known.unread_bytes(now_ns) >= 4_000, PATIENCE_S)


def test_a_connection_that_takes_over_a_descriptor_is_not_charged_with_what_was_taken(stage):
    """The monitor is read later than messages: they are counted for the connection before."""
    with zmtp_connection(stage.address, 0):
        stage.until(lambda: stage.slots[OPEN] == 1)
    with zmtp_connection(stage.address, 0) as connection:
        connection.sendall(frame(0, b"x" * 4_000) * 20)

        def has_all() -> bool:
            while (frames := poll_and_receive(stage.socket)) is not None:
                stage.received.append(frames[1])
            return len(stage.received) == 20

        assert poll_until(has_all, PATIENCE_S)
        stage.until(lambda: stage.slots[OPEN] == 1)
        [known] = stage.socket.account.connections.values()
        assert known.unread_bytes(time.monotonic_ns()) < 500


def test_what_a_client_has_not_received_is_counted_until_it_reads(stage):
    with ExitStack() as stack:
        context = stack.enter_context(zmq.Context())
        client = stack.enter_context(context.socket(zmq.DEALER))
        client.setsockopt(zmq.RCVHWM, 1)
        client.setsockopt(zmq.RCVBUF, 4_096)
        client.setsockopt(zmq.LINGER, 0)
        client.connect(link.bound_endpoint(stage.socket))
        client.send(b"ask")
        found: list[list[bytes]] = []
        stage.guard.do_work(time.monotonic_ns())
        assert poll_until(lambda: bool(stage.socket.is_readable), PATIENCE_S)
        frames = poll_and_receive(stage.socket)
        assert frames is not None
        stage.socket.asked_by(frames[0])
        stage.guard._due_ns = 0
        stage.guard.do_work(time.monotonic_ns())
        answer = b"x" * (1 << 20)
        for _ in range(8):
            assert link.try_send(stage.socket, [frames[0], answer])
            stage.socket.answered(frames[0], len(answer))
        assert stage.socket.unacknowledged_bytes(frames[0]) > 1 << 20
        while len(found) < 8:
            found.append(client.recv_multipart())
        assert poll_until(lambda: stage.socket.unacknowledged_bytes(frames[0]) == 0, PATIENCE_S)
        assert stage.socket.unacknowledged_bytes(b"nobody") == 0


def test_a_descriptor_that_is_somebody_elses_by_now_is_left_alone(tmp_path):
    with open(tmp_path / "file", "wb") as other:
        fd = other.fileno()
        assert tcp_state(fd, inode_of(fd)) is None
        end_connection(fd, inode_of(fd) + 1)
        end_connection(fd, inode_of(fd))
        other.write(b"untouched")
    assert inode_of(fd) == 0
    assert tcp_state(fd, 7) is None


def test_the_soft_limit_of_descriptors_is_raised_to_the_hard_one():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))
        assert raise_descriptor_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert open_descriptors() > 2


LISTENER = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
from tests.contracts.test_link_connections import Stage
stage = Stage()
print(stage.address[1], stage.slots[1], flush=True)
while not sys.stdin.closed:
    stage.work()
    if stage.received and stage.received[-1] == b"end":
        break
stage.until(lambda: stage.slots[0] <= stage.slots[1])
print(stage.slots[2], flush=True)
"""


@pytest.mark.slow
def test_a_process_at_its_limit_never_runs_out_of_descriptors():
    """FAULTS P21: libzmq would spin, accepting in vain: 78 % of a core, and nobody new came in."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=os.getcwd(),
    ) as process, ExitStack() as stack:  # fmt: skip
        stack.callback(process.kill)
        assert process.stdout is not None
        port, most = map(int, process.stdout.readline().split())
        address = ("127.0.0.1", port)
        first = stack.enter_context(zmtp_connection(address, 0))
        opened = 0
        for _ in range(600):
            try:
                stack.enter_context(zmtp_connection(address, 0))
                opened += 1
            except ConnectionError:
                pass
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 400
        assert opened >= most - 1
        first.sendall(frame(0, b"end"))
        assert int(process.stdout.readline()) > 0
        process.wait(PATIENCE_S)
