"""Contract of a link, on ZeroMQ over TCP, on the fake and on the virtual network: what arrives, is
refused, is dropped.

No test sleeps: the real world waits in its poll until what it expects is there.
"""

from __future__ import annotations

import itertools
import socket as tcp
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Protocol

import pytest
import zmq

from actors.simulation.network.network import VirtualNetwork
from actors.simulation.network.socket import VirtualSocket
from tests.contracts.receiving import poll_and_look, poll_and_receive, poll_and_receive_views
from tests.simulation.event_queue import EventQueue, Process
from transport import link
from transport.errors import PortInUse
from transport.inproc import FakeNetwork, FakePoller, FakeSocket, FakeWatch
from transport.link import Lane, try_send
from transport.poller import Poller
from transport.ports import Watch

MARK = 4
PATIENCE_MS = 10_000


class World(Protocol):
    """What a test needs of a transport, real or fake."""

    def bind(self, kind: int, endpoint: str = ..., **options: Any) -> tuple[Any, str]: ...

    def unused_endpoint(self) -> str: ...

    def connect(self, kind: int, endpoint: str, **options: Any) -> Any: ...

    def wait(self, *sockets: Any) -> list[Any]: ...

    def watch(self, socket: Any) -> Watch: ...

    def until(self, is_done: Callable[[], bool]) -> None: ...


class RealWorld:
    def __init__(self) -> None:
        self.sockets: list[Any] = []

    def bind(self, kind: int, endpoint: str = "tcp://127.0.0.1:*", **options: Any) -> Any:
        make: dict[int, Callable[..., Any]] = {
            zmq.ROUTER: lambda **each: link.router_bind(lane=Lane.CONTROL, **each),
            zmq.PULL: link.pull_bind,
            zmq.XPUB: link.xpub_bind,
        }
        socket = make[kind](endpoint=endpoint, message_size_max=1 << 20, **options)
        self.sockets.append(socket)
        return socket, link.bound_endpoint(socket)

    def unused_endpoint(self) -> str:
        with tcp.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"tcp://127.0.0.1:{probe.getsockname()[1]}"

    def connect(self, kind: int, endpoint: str, **options: Any) -> Any:
        make: dict[int, Callable[..., Any]] = {
            zmq.DEALER: lambda **each: link.dealer_connect(lane=Lane.CONTROL, **each),
            zmq.PUSH: link.push_connect,
            zmq.SUB: link.sub_connect,
        }
        socket = make[kind](endpoint=endpoint, message_size_max=1 << 20, **options)
        self.sockets.append(socket)
        return socket

    def watch(self, socket: Any) -> Watch:
        return link.watch_connection(socket)

    def wait(self, *sockets: Any) -> list[Any]:
        return list(Poller().wait(sockets, PATIENCE_MS))

    def until(self, is_done: Callable[[], bool]) -> None:
        """Ask again and again, parking 1 ms between; the suite's timeout ends what never comes."""
        while not is_done():
            Poller().wait([], 1)

    def close(self) -> None:
        for socket in self.sockets:
            socket.close(linger=0)


class FakeWorld:
    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.ports = itertools.count(1)

    def bind(self, kind: int, endpoint: str = "", **options: Any) -> tuple[FakeSocket, str]:
        endpoint = endpoint or self.unused_endpoint()
        return self.network.bind(kind, endpoint, **options), endpoint

    def unused_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{next(self.ports)}"

    def connect(self, kind: int, endpoint: str, **options: Any) -> FakeSocket:
        return self.network.connect(kind, endpoint, **options)

    def watch(self, socket: FakeSocket) -> Watch:
        return FakeWatch(socket)

    def wait(self, *sockets: Any) -> list[Any]:
        return list(FakePoller().wait(sockets))

    def until(self, is_done: Callable[[], bool]) -> None:
        assert is_done() or is_done()  # nothing takes time here


class VirtualWorld:
    def __init__(self) -> None:
        self.queue = EventQueue()
        self.network = VirtualNetwork(self.queue, Random(1), node_of=lambda _: 1)
        self.server = self.network.links(Process(self.queue, 1))
        self.client = self.network.links(Process(self.queue, 0))
        self.ports = itertools.count(1)

    def bind(self, kind: int, endpoint: str = "", **options: Any) -> tuple[VirtualSocket, str]:
        endpoint = endpoint or self.unused_endpoint()
        make: dict[int, Callable[..., VirtualSocket]] = {
            zmq.ROUTER: lambda *each, **more: self.server.router_bind(
                *each, lane=Lane.CONTROL, **more
            ),
            zmq.PULL: self.server.pull_bind,
            zmq.XPUB: self.server.xpub_bind,
        }
        return make[kind](endpoint, message_size_max=1 << 20, **options), endpoint

    def unused_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{next(self.ports)}"

    def connect(self, kind: int, endpoint: str, **options: Any) -> VirtualSocket:
        make: dict[int, Callable[..., VirtualSocket]] = {
            zmq.DEALER: lambda *each, **more: self.client.dealer_connect(
                *each, lane=Lane.CONTROL, **more
            ),
            zmq.PUSH: self.client.push_connect,
            zmq.SUB: self.client.sub_connect,
        }
        return make[kind](endpoint, message_size_max=1 << 20, **options)

    def watch(self, socket: VirtualSocket) -> Watch:
        return self.client.watch_connection(socket)

    def wait(self, *sockets: Any) -> list[Any]:
        self.until(lambda: any(socket.is_readable for socket in sockets))
        return [socket for socket in sockets if socket.is_readable]

    def until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self.queue.run_one()


@pytest.fixture(params=["real", "fake", "virtual"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    if request.param == "virtual":
        yield VirtualWorld()
        return
    real = RealWorld()
    yield real
    real.close()


def send(world: World, socket: Any, frames: Sequence[bytes]) -> None:
    world.until(lambda: try_send(socket, frames))


def receive(world: World, socket: Any) -> list[bytes] | None:
    assert world.wait(socket) == [socket]
    return poll_and_receive(socket)


def subscriptions(world: World, publisher: Any, count: int) -> list[bytes]:
    got = [receive(world, publisher) for _ in range(count)]
    return sorted(frame for frames in got if frames is not None for frame in frames)


def test_a_router_knows_who_asked_and_answers_that_one(world: World) -> None:
    router, endpoint = world.bind(zmq.ROUTER)
    dealers = [world.connect(zmq.DEALER, endpoint, routing_id=name) for name in (b"n1", b"n2")]
    send(world, dealers[0], [b"hello", b"", b"body"])
    assert receive(world, router) == [b"n1", b"hello", b"", b"body"]
    send(world, dealers[1], [b"other"])
    assert receive(world, router) == [b"n2", b"other"]
    assert try_send(router, [b"n1", memoryview(b"answer")])
    assert receive(world, dealers[0]) == [b"answer"]
    assert poll_and_receive(dealers[1]) is None
    assert try_send(router, [b"n2", b"other answer"])
    assert receive(world, dealers[1]) == [b"other answer"]


def test_dealers_without_a_name_get_one_each(world: World) -> None:
    router, endpoint = world.bind(zmq.ROUTER)
    dealers = [world.connect(zmq.DEALER, endpoint) for _ in range(2)]
    for number, dealer in enumerate(dealers):
        send(world, dealer, [bytes([number])])
    names = {}
    for _ in dealers:
        frames = receive(world, router)
        assert frames is not None
        names[frames[1]] = frames[0]
    assert len(set(names.values())) == 2
    assert try_send(router, [names[b"\1"], b"for the second"])
    assert receive(world, dealers[1]) == [b"for the second"]


def test_a_router_refuses_whom_it_does_not_know(world: World) -> None:
    """SAFETY M5, FAULTS Z3: MANDATORY, so that a drop is seen and can be counted."""
    router, _ = world.bind(zmq.ROUTER)
    assert not try_send(router, [b"nobody", b"message"])


def test_nothing_is_queued_before_there_is_a_connection(world: World) -> None:
    """SAFETY M5, FAULTS Z2: IMMEDIATE."""
    endpoint = world.unused_endpoint()
    for kind in (zmq.PUSH, zmq.DEALER):
        assert not try_send(world.connect(kind, endpoint), [b"lost"])


def test_who_listens_later_is_found(world: World) -> None:
    endpoint = world.unused_endpoint()
    push = world.connect(zmq.PUSH, endpoint)
    assert not try_send(push, [b"too early"])
    pull, _ = world.bind(zmq.PULL, endpoint)
    send(world, push, [b"now"])
    assert receive(world, pull) == [b"now"]


def test_a_full_lane_refuses_and_loses_nothing_it_took(world: World) -> None:
    pull, endpoint = world.bind(zmq.PULL, high_water_mark=MARK)
    push = world.connect(zmq.PUSH, endpoint, high_water_mark=MARK)
    body = bytes(1 << 20)
    send(world, push, [b"0", body])
    taken = 1
    while try_send(push, [b"%d" % taken, body]):
        taken += 1
    for number in range(taken):
        frames = receive(world, pull)
        assert frames is not None
        assert frames[0] == b"%d" % number
    world.until(lambda: try_send(push, [b"again"]))


def test_a_router_refuses_a_peer_whose_queue_is_full(world: World) -> None:
    """FAULTS Z3."""
    router, endpoint = world.bind(zmq.ROUTER, high_water_mark=MARK)
    dealer = world.connect(zmq.DEALER, endpoint, routing_id=b"n1", high_water_mark=MARK)
    send(world, dealer, [b"hello"])
    receive(world, router)
    body = bytes(1 << 20)
    assert try_send(router, [b"n1", body])
    while try_send(router, [b"n1", body]):
        pass
    assert receive(world, dealer) == [body]


def test_messages_of_many_producers_reach_one_pull(world: World) -> None:
    pull, endpoint = world.bind(zmq.PULL)
    pushes = [world.connect(zmq.PUSH, endpoint) for _ in range(3)]
    for number, push in enumerate(pushes):
        send(world, push, [bytes([number])])
    got = [receive(world, pull) for _ in pushes]
    assert sorted(frames[0] for frames in got if frames) == [b"\0", b"\1", b"\2"]


def test_frames_can_be_received_as_views(world: World) -> None:
    pull, endpoint = world.bind(zmq.PULL)
    push = world.connect(zmq.PUSH, endpoint)
    assert poll_and_receive_views(pull) is None
    send(world, push, [b"envelope", b"x" * 100_000])
    assert world.wait(pull) == [pull]
    views = poll_and_receive_views(pull)
    assert views is not None
    assert [bytes(view) for view in views] == [b"envelope", b"x" * 100_000]


@pytest.mark.parametrize("try_receive_any", [poll_and_receive, poll_and_receive_views])
def test_a_message_of_many_frames_is_cut_and_the_next_one_is_whole(
    world: World, try_receive_any: Callable[[Any], Any]
) -> None:
    """SAFETY W6: MAXMSGSIZE bounds a frame; nobody bounds how many an unkind peer sends."""
    pull, endpoint = world.bind(zmq.PULL)
    push = world.connect(zmq.PUSH, endpoint)
    send(world, push, [b"%d" % number for number in range(1_000)])
    send(world, push, [b"next", b"message"])
    assert world.wait(pull) == [pull]
    assert [bytes(frame) for frame in try_receive_any(pull)] == [b"0", b"1", b"2", b"3"]
    found = None
    while found is None:  # the real one drops the rest in a turn of its own
        assert world.wait(pull) == [pull]
        found = try_receive_any(pull)
    assert [bytes(frame) for frame in found] == [b"next", b"message"]


def test_a_publisher_sees_every_subscription_and_its_end(world: World) -> None:
    """SAFETY M5, V8: XPUB_VERBOSE, so that each newcomer can be answered."""
    publisher, endpoint = world.bind(zmq.XPUB)
    first = world.connect(zmq.SUB, endpoint, topics=[b"t", b"a"])
    assert subscriptions(world, publisher, 2) == [b"\1a", b"\1t"]
    second = world.connect(zmq.SUB, endpoint, topics=[b"t"])
    assert subscriptions(world, publisher, 1) == [b"\1t"]
    first.close(linger=0)
    assert subscriptions(world, publisher, 1) == [b"\0a"]
    second.close(linger=0)
    assert subscriptions(world, publisher, 1) == [b"\0t"]


def test_a_subscriber_gets_its_topics_only_from_its_subscription_on(world: World) -> None:
    publisher, endpoint = world.bind(zmq.XPUB)
    assert try_send(publisher, [b"tail", b"before anybody listens"])
    subscriber = world.connect(zmq.SUB, endpoint, topics=[b"tail", b"tip"])
    subscriptions(world, publisher, 2)
    for frames in ([b"tail-1", b"x"], [b"other", b"y"], [b"tip", b"z"]):
        assert try_send(publisher, frames)
    assert receive(world, subscriber) == [b"tail-1", b"x"]
    assert receive(world, subscriber) == [b"tip", b"z"]


def test_a_welcome_reaches_those_whose_topic_it_begins_with(world: World) -> None:
    publisher, endpoint = world.bind(zmq.XPUB, welcome=b"welcome")
    subscriber = world.connect(zmq.SUB, endpoint, topics=[b"welcome"])
    deaf = world.connect(zmq.SUB, endpoint, topics=[b"tail"])
    subscriptions(world, publisher, 2)
    assert receive(world, subscriber) == [b"welcome"]
    assert try_send(publisher, [b"tail"])
    assert receive(world, deaf) == [b"tail"]


def test_a_publisher_drops_silently_at_a_slow_subscriber(world: World) -> None:
    """SAFETY M5, FAULTS Z1: try_send says True all the same; only a gap in the contents tells."""
    publisher, endpoint = world.bind(zmq.XPUB, high_water_mark=MARK)
    subscriber = world.connect(zmq.SUB, endpoint, topics=[b""], high_water_mark=MARK)
    subscriptions(world, publisher, 1)
    sent = 200
    body = bytes(1 << 16)
    for number in range(sent):
        assert try_send(publisher, [b"%03d" % number, body])
    got: list[bytes] = []

    def is_last_seen() -> bool:
        assert try_send(publisher, [b"last"])
        while (frames := poll_and_receive(subscriber)) is not None:
            got.append(frames[0])
        return got[-1:] == [b"last"]

    world.until(is_last_seen)
    assert got[0] == b"000"
    assert got == sorted(got)
    assert len(got) < sent


def test_a_peer_that_comes_back_takes_its_name_over(world: World) -> None:
    """A restarted replicator has the routing id of one whose end was not noticed yet: nobody is
    known by it (FAULTS Z5)."""
    router, endpoint = world.bind(zmq.ROUTER)
    old = world.connect(zmq.DEALER, endpoint, routing_id=b"n1")
    send(world, old, [b"old"])
    assert receive(world, router) == [b"n1", b"old"]
    new = world.connect(zmq.DEALER, endpoint, routing_id=b"n1")
    send(world, new, [b"new"])
    assert receive(world, router) == [b"n1", b"new"]
    assert try_send(router, [b"n1", b"answer"])
    assert receive(world, new) == [b"answer"]


def test_a_port_in_use_says_so(world: World) -> None:
    _, endpoint = world.bind(zmq.PULL)
    with pytest.raises(PortInUse, match="in use"):
        world.bind(zmq.PULL, endpoint)


def test_a_watch_reports_that_the_connection_ended_until_there_is_another(world: World) -> None:
    router, endpoint = world.bind(zmq.ROUTER)
    dealer = world.connect(zmq.DEALER, endpoint)
    watch = world.watch(dealer)
    send(world, dealer, [b"before"])
    assert receive(world, router)
    poll_and_look(watch)  # tries to connect may have failed
    assert not poll_and_look(watch)
    router.close(linger=0)
    world.until(lambda: poll_and_look(watch))
    router, _ = world.bind(zmq.ROUTER, endpoint)

    def is_received() -> bool:  # what is sent too soon goes with the old connection
        try_send(dealer, [b"after"])
        return poll_and_receive(router) is not None

    world.until(is_received)
    poll_and_look(watch)
    assert not poll_and_look(watch)
    watch.close()
