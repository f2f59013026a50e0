"""A message of more frames than any of ours, on real ZeroMQ: what one receive costs (SAFETY W6)."""

from __future__ import annotations

import pytest

from logstore.cli.embedded import poll_until
from logstore.settings import PortOffset
from tests.contracts.receiving import poll_and_receive
from tests.faults.greedy import LAST, MORE, frame, zmtp_connection
from transport import link, listening
from transport.link import Lane
from transport.poller import Poller

PATIENCE_S = 30.0
MANY = 5_000  # 10 KB on the wire: of an append port's bound, 4 MiB, are two million
OFFSETS = {"router": PortOffset.CONTROL, "pull": PortOffset.APPEND}


@pytest.fixture(params=OFFSETS)
def kind(request):
    return request.param


@pytest.fixture
def listener(kind):
    any_port = "tcp://127.0.0.1:*"
    if kind == "router":
        made = link.router_bind(any_port, lane=Lane.CONTROL, message_size_max=4_096)
    else:
        made = link.pull_bind(any_port, message_size_max=4_096)
    yield made
    made.close()


@pytest.fixture
def connect(listener, kind):
    port = int(link.bound_endpoint(listener).rpartition(":")[2])
    offset = OFFSETS[kind]
    return lambda: zmtp_connection(("127.0.0.1", port - offset), offset)


def connections(listener):
    """Those that the socket knows now."""
    Poller().wait([listener.monitor_end], 0)
    listener.refresh(1)
    return listener.account.connections


def count_frames(monkeypatch):
    """How many frames were taken from sockets so far."""
    counted = [0]
    receive = listening.LinkSocket.recv

    def counting(socket, *args, **options):
        counted[0] += 1
        return receive(socket, *args, **options)

    monkeypatch.setattr(listening.ListeningSocket, "recv", counting, raising=False)
    return counted


def test_w6_a_receive_takes_a_bounded_number_of_frames(listener, connect, kind, monkeypatch):
    """Two million empty frames took 4 s and more in one call: a leader's ingress stood still until
    its replica stepped down, or the supervisor killed it, and one client sufficed."""
    counted = count_frames(monkeypatch)
    rest = []
    with connect() as stranger, connect() as honest:
        stranger.sendall(frame(MORE, b"") * MANY + frame(LAST, b""))
        assert poll_until(lambda: rest.append(poll_and_receive(listener)) or rest[-1], PATIENCE_S)
        assert len(rest[-1]) == listening.FRAMES_MAX
        assert counted[0] <= 16
        honest.sendall(frame(LAST, b"still here"))

        def receives() -> bool:
            before = counted[0]
            found = poll_and_receive(listener)
            assert counted[0] - before <= 1_024
            return found is not None and found[-1] == b"still here"

        assert poll_until(receives, PATIENCE_S)


def test_w6_each_message_that_is_too_long_ends_a_loop_over_all(listener, connect, monkeypatch):
    """A thousand messages of a thousand frames each are no better than one of a million."""
    counted = count_frames(monkeypatch)
    with connect() as stranger, connect() as honest:
        stranger.sendall((frame(MORE, b"") * 900 + frame(LAST, b"")) * 50)
        honest.sendall(frame(LAST, b"still here"))
        found = []

        def receives() -> bool:
            before = counted[0]
            while (frames := poll_and_receive(listener)) is not None:
                found.append(frames[-1])
            assert counted[0] - before <= 1_024 + 2 * 16
            return b"still here" in found

        assert poll_until(receives, PATIENCE_S)


def test_w6_the_sender_of_such_a_message_loses_its_connection(listener, connect):
    """Not of a few frames too many: that is a client's fault, of which it is told."""
    with connect() as clumsy, connect() as stranger:
        assert poll_until(lambda: len(connections(listener)) == 2, PATIENCE_S)
        clumsy.sendall(frame(MORE, b"") * 10 + frame(LAST, b""))
        assert poll_until(lambda: poll_and_receive(listener), PATIENCE_S)
        stranger.sendall(frame(MORE, b"") * MANY + frame(LAST, b""))
        assert poll_until(lambda: poll_and_receive(listener), PATIENCE_S)
        assert poll_until(lambda: len(connections(listener)) == 1, PATIENCE_S)
        clumsy.sendall(frame(LAST, b"still here"))

        def receives() -> bool:
            found = poll_and_receive(listener)
            return found is not None and found[-1] == b"still here"

        assert poll_until(receives, PATIENCE_S)


def test_w6_all_frames_of_such_a_message_are_counted_as_taken(listener, connect):
    """Else what it sent would count as unread, and the guard look for its memory."""
    with connect() as stranger:
        assert poll_until(lambda: connections(listener), PATIENCE_S)
        [connection] = listener.account.connections.values()
        stranger.sendall(frame(MORE, b"") * MANY + frame(LAST, b""))
        assert poll_until(lambda: poll_and_receive(listener) or connection.taken, PATIENCE_S)
        assert poll_until(
            lambda: poll_and_receive(listener) or connection.taken == 2 * (MANY + 1), PATIENCE_S
        )
