"""What only real sockets show: options, hostile peers, back-pressure, the poll (SAFETY M5)."""

from __future__ import annotations

import os
import resource
import select
import socket as tcp
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.contracts.receiving import poll_and_receive
from transport import link
from transport.doorbell import Doorbell
from transport.errors import InsecureBind, LinkError, PortInUse, UnsupportedMachine
from transport.link import Lane, bound_endpoint, try_receive, try_send
from transport.link_socket import LinkSocket
from transport.poller import Poller

ANY_PORT = "tcp://127.0.0.1:*"
PATIENCE_MS = 10_000
ROUTING_ID = b"peer"
Closing = Callable[[Any], Any]


@pytest.fixture
def closing() -> Iterator[Closing]:
    sockets: list[Any] = []

    def keep(socket: Any) -> Any:
        sockets.append(socket)
        return socket

    yield keep
    for socket in sockets:
        socket.close(linger=0)


@contextmanager
def disconnections(socket: Any) -> Iterator[Any]:
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        yield monitor
    finally:
        socket.disable_monitor()
        monitor.close()


def until(is_done: Callable[[], bool]) -> None:
    while not is_done():
        Poller().wait([], 1)


def is_parted_while_sending(socket: Any, *, seconds: float) -> bool:
    """Keep the lane full; whether the connection ends before `seconds` are over."""
    deadline = time.monotonic() + seconds
    with disconnections(socket) as monitor:
        while time.monotonic() < deadline:
            try_send(socket, [bytes(1 << 20)])
            if monitor.poll(5):
                return bool(recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED)
    return False


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process may open `count` descriptors more."""
    taken = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.close(taken)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken + count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("left", [0, 1])
def test_a_connection_that_cannot_be_watched_for_want_of_descriptors_is_a_link_error(
    closing: Closing, left: int
) -> None:
    """None is left for the monitor, or for the socket that reads it."""
    lane = {"lane": Lane.CONTROL, "message_size_max": 99}
    router = closing(link.router_bind(ANY_PORT, **lane))
    connected = closing(link.dealer_connect(bound_endpoint(router), **lane))
    until(lambda: try_send(connected, [b"connected"]))
    poll_and_receive(router)
    with descriptors_left(left), pytest.raises(LinkError, match="Too many open files"):
        link.watch_connection(connected)
    link.watch_connection(connected).close()


@pytest.mark.slow
def test_a_lane_under_back_pressure_stays_connected(closing: Closing) -> None:
    """Neither heartbeats (1 s) nor TCP_MAXRT (3 s) may part it from who does not read now."""
    pull = closing(link.pull_bind(ANY_PORT, message_size_max=1 << 20, high_water_mark=4))
    push = closing(
        link.push_connect(bound_endpoint(pull), message_size_max=1 << 20, high_water_mark=4)
    )
    assert not is_parted_while_sending(push, seconds=4.0)
    assert poll_and_receive(pull) == [bytes(1 << 20)]


@pytest.mark.slow
def test_a_control_lane_that_is_not_read_is_parted(closing: Closing) -> None:
    """Why bulk lanes have no heartbeats: a full queue answers none of them."""
    options = {"lane": Lane.CONTROL, "message_size_max": 1 << 20, "high_water_mark": 4}
    router = closing(link.router_bind(ANY_PORT, **options))
    dealer = closing(link.dealer_connect(bound_endpoint(router), **options))
    assert is_parted_while_sending(dealer, seconds=20.0)


def test_a_frame_above_the_limit_parts_its_sender_and_is_not_delivered(closing: Closing) -> None:
    """SAFETY W6, FAULTS Z9."""
    options = {"lane": Lane.CONTROL, "message_size_max": 4_096}
    router = closing(link.router_bind(ANY_PORT, **options))
    dealer = closing(link.dealer_connect(bound_endpoint(router), **options))
    with disconnections(dealer) as monitor:
        until(lambda: try_send(dealer, [bytes(4_097)]))
        assert monitor.poll(PATIENCE_MS)
    until(lambda: try_send(dealer, [bytes(4_096)]) and Poller().wait([router], 10) == [router])
    frames = poll_and_receive(router)
    assert frames is not None
    assert frames[1:] == [bytes(4_096)]


def test_garbage_on_a_port_disturbs_nobody(closing: Closing) -> None:
    pull = closing(link.pull_bind(ANY_PORT, message_size_max=4_096))
    port = int(bound_endpoint(pull).rpartition(":")[2])
    with tcp.create_connection(("127.0.0.1", port)) as garbage:
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        push = closing(link.push_connect(bound_endpoint(pull), message_size_max=4_096))
        until(lambda: try_send(push, [b"honest"]))
        assert Poller().wait([pull], PATIENCE_MS) == [pull]
        assert poll_and_receive(pull) == [b"honest"]
        assert poll_and_receive(pull) is None


def test_a_sent_view_may_be_overwritten_at_once(closing: Closing) -> None:
    """SAFETY M4: libzmq never holds the sender's memory, however large the frame."""
    pull = closing(link.pull_bind(ANY_PORT, message_size_max=1 << 20))
    push = closing(link.push_connect(bound_endpoint(pull), message_size_max=1 << 20))
    memory = bytearray(b"a" * (1 << 20))
    until(lambda: try_send(push, [memoryview(memory)]))
    memory[:] = b"b" * len(memory)
    assert Poller().wait([pull], PATIENCE_MS) == [pull]
    assert poll_and_receive(pull) == [b"a" * (1 << 20)]


def test_a_message_refused_half_way_is_sent_to_its_end() -> None:
    """Else libzmq would take the next message for the rest of this one and drop it too."""

    class PartedAtTheSecondFrame:
        def __init__(self) -> None:
            self.sent: list[tuple[bytes | memoryview, int]] = []

        def send(self, data: bytes | memoryview, flags: int = 0) -> None:
            self.sent.append((data, flags))
            if len(self.sent) == 2:
                raise zmq.Again

        def recv(self, flags: int = 0, copy: bool = True) -> bytes:
            raise zmq.Again

        def close(self, linger: int | None = None) -> None:
            return None

    socket = PartedAtTheSecondFrame()
    assert not try_send(socket, [b"1", b"2", b"3"])
    more = zmq.DONTWAIT | zmq.SNDMORE
    assert socket.sent == [(b"1", more), (b"2", more), (b"3", zmq.DONTWAIT)]


def test_a_closed_socket_is_an_error_not_a_refusal() -> None:
    push = link.push_connect("tcp://127.0.0.1:1", message_size_max=4_096)
    push.close(linger=0)
    with pytest.raises(zmq.ZMQError):
        try_send(push, [b"message"])


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:9999", "tcp://0.0.0.0:9999", "tcp://192.0.2.1:9999", "tcp://[::]:9", "tcp://eth0:9"],
)
def test_an_address_that_others_reach_is_refused(endpoint: str) -> None:
    with pytest.raises(InsecureBind, match="insecure = true"):
        link.pull_bind(endpoint, message_size_max=4_096)


def test_an_address_that_others_reach_is_taken_when_the_operator_says_so(closing: Closing) -> None:
    pull = closing(link.pull_bind("tcp://0.0.0.0:*", message_size_max=4_096, insecure=True))
    assert bound_endpoint(pull).startswith("tcp://0.0.0.0:")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_loopback_is_taken(closing: Closing, host: str) -> None:
    try:
        pull = closing(link.pull_bind(f"tcp://{host}:*", message_size_max=4_096))
    except LinkError:
        if host != "[::1]":
            raise
        pytest.skip("no IPv6 on this machine")
    assert bound_endpoint(pull)


def test_ipc_is_taken_only_in_a_folder_of_this_user_alone(closing: Closing, tmp_path: Path) -> None:
    """FAULTS X11."""
    endpoint = f"ipc://{tmp_path}/control"
    tmp_path.chmod(0o755)
    with pytest.raises(InsecureBind, match="chmod it to 700"):
        link.router_bind(endpoint, lane=Lane.CONTROL, message_size_max=4_096)
    tmp_path.chmod(0o700)
    closing(link.router_bind(endpoint, lane=Lane.CONTROL, message_size_max=4_096))
    with pytest.raises(LinkError, match="No such file"):
        link.pull_bind(f"ipc://{tmp_path}/missing/control", message_size_max=4_096)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:5", "udp://127.0.0.1:5", "inproc://name", ""])
def test_other_transports_are_refused(endpoint: str) -> None:
    with pytest.raises(LinkError, match=r"take tcp://HOST:PORT"):
        link.pull_bind(endpoint, message_size_max=4_096)


def test_endpoints_that_are_none_say_so() -> None:
    with pytest.raises(LinkError, match="cannot connect to 'nowhere'"):
        link.push_connect("nowhere", message_size_max=4_096)
    for endpoint in ("tcp://127.0.0.1:99999", "tcp://127.0.0.1:-1", "tcp://127.0.0.1"):
        with pytest.raises(LinkError, match="a port is 1 to 65535"):
            link.pull_bind(endpoint, message_size_max=4_096)
        with pytest.raises(LinkError, match="a port is 1 to 65535"):
            link.push_connect(endpoint, message_size_max=4_096)
    with pytest.raises(LinkError, match="cannot listen on"):
        link.pull_bind("tcp://localhost.invalid:*", message_size_max=4_096, insecure=True)


def test_a_port_in_use_is_named(closing: Closing) -> None:
    endpoint = bound_endpoint(closing(link.pull_bind(ANY_PORT, message_size_max=4_096)))
    port = endpoint.rpartition(":")[2]
    with pytest.raises(PortInUse, match=f"port {port} in use"):
        link.pull_bind(endpoint, message_size_max=4_096)


def test_an_old_libzmq_is_refused() -> None:
    link.require_libzmq((4, 3, 4))
    with pytest.raises(UnsupportedMachine, match=r"libzmq 4\.3\.3"):
        link.require_libzmq((4, 3, 3))


def test_one_poll_waits_on_sockets_bells_and_descriptors(closing: Closing) -> None:
    pull = closing(link.pull_bind(ANY_PORT, message_size_max=4_096))
    push = closing(link.push_connect(bound_endpoint(pull), message_size_max=4_096))
    bell = Doorbell.create()
    read_end, write_end = os.pipe()
    poller = Poller()
    everything = [bell, read_end, pull]
    assert poller.wait(everything, 0) == []
    bell.ring()
    assert poller.wait(everything, None) == [bell]
    os.write(write_end, b"x")
    assert poller.wait(everything, PATIENCE_MS) == [bell, read_end]
    until(lambda: try_send(push, [b"message"]))
    until(lambda: poller.wait(everything, PATIENCE_MS) == [bell, read_end, pull])
    assert poller.wait([bell, read_end], 0) == [bell, read_end]  # as under back-pressure
    bell.clear()
    assert poller.wait((pull, bell), PATIENCE_MS) == [pull]
    bell.close()
    os.close(read_end)
    os.close(write_end)


def test_m7_a_message_that_a_send_made_libzmq_see_is_not_slept_through(closing: Closing) -> None:
    """A send may look at what came; then the descriptor is silent, and the message waits."""
    router, dealer = connected(closing)
    assert Poller().wait([dealer], 0) == []
    until(lambda: try_send(router, [ROUTING_ID, b"to the dealer"]))
    assert select.select([dealer.descriptor], [], [], PATIENCE_MS / 1e3)[0]
    assert not select.select([], [], [], 0.01)[0]  # libzmq looks again after 3,000,000 ticks
    assert try_send(dealer, [b"to the router"])
    assert not select.select([dealer.descriptor], [], [], 0)[0]
    assert Poller().wait([dealer], 0) == [dealer]
    assert try_receive(dealer) == [b"to the dealer"]


def test_m7_a_message_that_comes_between_two_questions_is_not_slept_through(
    closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that waits for a message and for room asks for both, and each answer empties the
    descriptor."""
    router, dealer = connected(closing)
    looked = []

    def look(socket: LinkSocket) -> bool:
        found = bool(socket.hint.has_message or socket.has_input())
        if not looked:
            looked.append(socket)
            until(lambda: try_send(router, [ROUTING_ID, b"too late for that look"]))
            assert select.select([dealer.descriptor], [], [], PATIENCE_MS / 1e3)[0]
        return found

    monkeypatch.setattr(LinkSocket, "look", look)
    monkeypatch.setattr(LinkSocket, "has_room", lambda socket: socket.has_input() and False)
    dealer.hint.may_have_input = True
    assert Poller().wait([dealer], PATIENCE_MS, [dealer]) == [dealer]
    assert looked
    assert try_receive(dealer) == [b"too late for that look"]


def test_a_socket_is_not_asked_while_it_can_have_nothing(
    closing: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    router, dealer = connected(closing)
    poller = Poller()
    assert poller.wait([dealer], 0) == []
    asked: list[int] = []
    monkeypatch.setattr(LinkSocket, "has_input", lambda _: asked.append(1))
    assert try_receive(dealer) is None
    assert poller.wait([dealer], 0) == []
    assert asked == []
    monkeypatch.undo()
    until(lambda: try_send(router, [ROUTING_ID, b"1"]) and try_send(router, [ROUTING_ID, b"2"]))
    for expected in ([b"1"], [b"2"]):
        assert poller.wait([dealer], PATIENCE_MS) == [dealer]
        assert try_receive(dealer) == expected


def test_m7_what_is_left_in_a_socket_is_seen_by_the_next_poll(closing: Closing) -> None:
    """An actor that stopped at a bound, or did not want to read for a while."""
    router, dealer = connected(closing)
    for number in range(3):
        until(lambda number=number: try_send(router, [ROUTING_ID, b"%d" % number]))
    poller = Poller()
    for number in range(3):
        assert poller.wait([dealer], PATIENCE_MS) == [dealer]
        assert poller.wait([], 0) == []
        assert poller.wait([dealer], 0) == [dealer]
        assert try_receive(dealer) == [b"%d" % number]
    assert poller.wait([dealer], 0) == []


def test_a_poll_waits_for_room_to_send_too(closing: Closing, tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/late"
    push = closing(link.push_connect(endpoint, message_size_max=4_096))
    poller = Poller()
    assert poller.wait([], 0, [push]) == []
    closing(link.pull_bind(endpoint, message_size_max=4_096))
    assert poller.wait([], PATIENCE_MS, [push]) == [push]
    assert poller.wait([push], 0) == [], "there is nothing to read"
    assert try_send(push, [b"message"])


def connected(closing: Closing) -> tuple[Any, Any]:
    """A ROUTER and a DEALER that it knows as ROUTING_ID."""
    router = closing(link.router_bind(ANY_PORT, lane=Lane.CONTROL, message_size_max=4_096))
    dealer = closing(
        link.dealer_connect(
            bound_endpoint(router), lane=Lane.CONTROL, message_size_max=4_096, routing_id=ROUTING_ID
        )
    )
    until(lambda: try_send(dealer, [b"here"]))
    assert Poller().wait([router], PATIENCE_MS) == [router]
    assert try_receive(router) == [ROUTING_ID, b"here"]
    return router, dealer
