"""Contract of the links of the client's core: on ZeroMQ, played in memory, and in the simulator.

No test sleeps: the real world parks in its poll until what it waits for is there.
"""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol
from unittest.mock import ANY

import pytest

from actors.simulation.network.core_links import SimulatedLinks
from actors.simulation.network.network import VirtualNetwork
from logstore.cli.free_ports import find_free_ports
from logstore.client.core.steps import NEVER_NS, Wait
from logstore.errors import Closed
from logstore.format.batch import encode_batch
from logstore.format.client_messages import (
    APPEND_PREFIX,
    Acks,
    MetadataReply,
    MetadataRequest,
    Welcome,
    append_prefix,
)
from logstore.format.message import decode_message, encode_message
from logstore.limits import MESSAGE_MAX_BYTES
from logstore.model import Lsn
from logstore.settings import PortOffset
from tests.contracts.receiving import poll_and_receive
from tests.simulation.event_queue import EventQueue, Process
from tests.unit import core_stage
from transport import client_links, link
from transport.link import Lane

PRODUCER = core_stage.PRODUCER
TOPIC = PRODUCER.to_bytes(8, "little")
PARK_MS = 10
BATCH = encode_batch([b"one"], producer_id=PRODUCER, producer_epoch=1, sequence=0, timestamp_ns=0)


def encoded(message: Any, correlation: int = 0) -> bytes:
    return encode_message(
        message, cluster_id=core_stage.CLUSTER, sender_uuid=bytes(16), sender=1, target=0,
        correlation=correlation,
    )  # fmt: skip


class LinksWorld(Protocol):
    """One replica that answers every request with its metadata, and the links of one client."""

    links: Any
    pushed: list[bytes]  # batches that have arrived

    def address(self, offset: PortOffset) -> str: ...

    def stop(self) -> None:
        """The replica ends, and with it all its connections."""

    def start(self) -> None:
        """It is back."""

    def publish(self, producer_id: int) -> None:
        """Something on the ack feed, for this producer."""

    def wait(self, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
        """Let time pass until the driver would end this wait."""

    def until(self, is_done: Callable[[], bool]) -> None:
        """Let time pass until it is so."""

    def close(self) -> None: ...


class Ports:
    """The replica, on the sockets of `transport.link` or virtual ones."""

    def __init__(self, binds: Any, endpoint: Callable[[PortOffset], str]) -> None:
        self._binds, self._endpoint = binds, endpoint
        self.pushed: list[bytes] = []
        self.is_up = False
        self.start()

    def start(self) -> None:
        size: Any = {"message_size_max": MESSAGE_MAX_BYTES}
        control = self._endpoint(PortOffset.CONTROL)
        self.router = self._binds.router_bind(control, lane=Lane.CONTROL, **size)
        self.feed = self._binds.xpub_bind(self._endpoint(PortOffset.ACKS), **size)
        self.pull = self._binds.pull_bind(self._endpoint(PortOffset.APPEND), **size)
        self.is_up = True

    def stop(self) -> None:
        self.is_up = False
        for each in (self.router, self.feed, self.pull):
            each.close(0)

    def publish(self, producer_id: int) -> None:
        topic = producer_id.to_bytes(8, "little")
        link.try_send(self.feed, [topic, encoded(Acks(producer_id, 1, 1, b""))])

    def answer(self) -> None:
        if not self.is_up:
            return
        while (frames := poll_and_receive(self.router)) is not None:
            number = decode_message(frames[1])[0].correlation
            link.try_send(self.router, [frames[0], encoded(MetadataReply(b"{}"), number)])
        while (frames := poll_and_receive(self.feed)) is not None:
            if frames[0][:1] == b"\1":
                link.try_send(self.feed, [frames[0][1:], encoded(Welcome(Lsn(0)))])
        while (frames := poll_and_receive(self.pull)) is not None:
            self.pushed.append(frames[0][APPEND_PREFIX.size :])


class RealWorld:
    def __init__(self) -> None:
        base = find_free_ports(1, Random())[0]  # no outgoing connection may take it meanwhile
        self._endpoints = {offset: f"tcp://127.0.0.1:{base + offset}" for offset in PortOffset}
        ports = Ports(link, self._endpoints.__getitem__)
        self.address = self._endpoints.__getitem__
        self.links = client_links.Context(
            message_size_max=MESSAGE_MAX_BYTES, closed=lambda: Closed("closed")
        )
        self.start, self.publish = ports.start, ports.publish
        self.pushed = ports.pushed
        self._ports = ports

    def stop(self) -> None:
        """libzmq closes what listens in a thread of its own: a start at once may come too early."""
        self._ports.stop()
        for endpoint in self._endpoints.values():
            while _is_open(endpoint):
                pass

    def wait(self, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
        self._ports.answer()
        client_links.park(reads, writes, None, PARK_MS)

    def until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._ports.answer()
            client_links.park((), (), None, 1)

    def close(self) -> None:
        if self._ports.is_up:
            self._ports.stop()
        self.links.close()


def _is_open(endpoint: str) -> bool:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionError:
        return False
    return True


class SimulatedWorld:
    """And whatever ends a wait must wake the process."""

    def __init__(self) -> None:
        self._queue = EventQueue()
        network = VirtualNetwork(self._queue, Random(1), node_of=lambda _: 1)
        self._client = Process(self._queue, 0)
        self._ports = Ports(network.links(Process(self._queue, 1)), self.address)
        self.links = SimulatedLinks(network.links(self._client))
        self.start, self.stop, self.publish = (
            self._ports.start, self._ports.stop, self._ports.publish
        )  # fmt: skip
        self.pushed = self._ports.pushed

    @staticmethod
    def address(offset: PortOffset) -> str:
        return f"tcp://127.0.0.1:{7_000 + offset}"

    def wait(self, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
        def has_ended() -> bool:
            return any(each.has_news for each in reads) or any(each.can_send for each in writes)

        wakes = -1
        while not has_ended():
            wakes = self._client.wakes
            self._step()
        assert wakes < self._client.wakes, "nobody woke the process"

    def until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._step()

    def _step(self) -> None:
        self._ports.answer()
        self._queue.run_one()

    def close(self) -> None: ...


class PlayedWorld:
    def __init__(self) -> None:
        self.links = self._world = core_stage.World()
        self.pushed: list[bytes] = []
        self._world.on_push = lambda _, __, batch: self.pushed.append(batch)

    def address(self, offset: PortOffset) -> str:
        return f"tcp://node1:{core_stage.BASE_PORT + offset}"

    def stop(self) -> None:
        self._world.stop(1)

    def start(self) -> None:
        self._world.start(1)

    def publish(self, producer_id: int) -> None:
        self._world.publish(PortOffset.ACKS, Acks(producer_id, 1, 1, b""))

    def wait(self, reads: Sequence[Any] = (), writes: Sequence[Any] = ()) -> None:
        assert self._world.has_news(Wait(NEVER_NS, tuple(reads), tuple(writes)))

    def until(self, is_done: Callable[[], bool]) -> None:
        assert is_done()

    def close(self) -> None: ...


@pytest.fixture(params=[RealWorld, PlayedWorld, SimulatedWorld], ids=["real", "played", "sim"])
def world(request: pytest.FixtureRequest) -> Iterator[LinksWorld]:
    world: LinksWorld = request.param()
    yield world
    world.close()


@pytest.fixture
def requester(world: LinksWorld) -> Iterator[Any]:
    made = world.links.requester(world.address(PortOffset.CONTROL))
    yield made
    made.close()


@pytest.fixture
def watcher(world: LinksWorld) -> Iterator[Any]:
    made = world.links.requester(world.address(PortOffset.CONTROL), reports_refusals=True)
    yield made
    made.close()


@pytest.fixture
def pusher(world: LinksWorld) -> Iterator[Any]:
    made = world.links.pusher(world.address(PortOffset.APPEND))
    yield made
    made.close()


@pytest.fixture
def feed(world: LinksWorld) -> Iterator[Any]:
    made = world.links.feed(world.address(PortOffset.ACKS), TOPIC, queue_max=8)
    yield made
    made.close()


def ask(world: LinksWorld, requester: Any, number: int) -> tuple[int, Any]:
    """Send a request as soon as there is a connection; number and message of the reply."""
    while not requester.try_send(encoded(MetadataRequest(), number)):
        world.wait(writes=[requester])
    return receive(world, requester)


def receive(world: LinksWorld, link: Any) -> tuple[int, Any]:
    while (frames := link.try_receive()) is None:
        world.wait(reads=[link])
    envelope, message = decode_message(frames[-1])
    return envelope.correlation, message


def push(world: LinksWorld, pusher: Any) -> None:
    while not pusher.try_send(append_prefix(1) + BATCH):
        world.wait(writes=[pusher])


def test_a_request_waits_for_a_connection_and_is_answered(
    world: LinksWorld, requester: Any
) -> None:
    assert ask(world, requester, 5) == (5, MetadataReply(ANY))


def test_a_request_link_connects_again_by_itself(world: LinksWorld, requester: Any) -> None:
    ask(world, requester, 1)
    world.stop()
    world.until(lambda: not requester.try_send(encoded(MetadataRequest(), 2)))
    world.start()
    while ask(world, requester, 3)[0] != 3:
        pass


def test_refusals_are_seen_where_they_are_watched(world: LinksWorld, watcher: Any) -> None:
    ask(world, watcher, 1)
    world.stop()
    world.wait(reads=[watcher])
    world.until(watcher.was_refused)
    watcher.stop_reporting_refusals()
    assert not watcher.was_refused()


def test_refusals_are_not_seen_where_nobody_watches(world: LinksWorld, requester: Any) -> None:
    ask(world, requester, 1)
    world.stop()
    world.until(lambda: not requester.try_send(encoded(MetadataRequest(), 2)))
    assert not requester.was_refused()


def test_a_connection_that_lives_was_not_refused(world: LinksWorld, watcher: Any) -> None:
    ask(world, watcher, 1)
    watcher.was_refused()  # an early try may have failed
    ask(world, watcher, 2)
    assert not watcher.was_refused()


@pytest.mark.parametrize("kind", ["requester", "watcher", "pusher", "feed"])
def test_where_no_descriptor_is_left_no_link_is_opened_and_none_is_kept(kind: str) -> None:
    closed = partial(Closed, "closed")
    context = client_links.Context(message_size_max=MESSAGE_MAX_BYTES, closed=closed)
    address = "tcp://127.0.0.1:1"
    opens: dict[str, Callable[[], Any]] = {
        "requester": lambda: context.requester(address),
        "watcher": lambda: context.requester(address, reports_refusals=True),
        "pusher": lambda: context.pusher(address),
        "feed": lambda: context.feed(address, TOPIC, queue_max=8),
    }
    opens[kind]().close()  # the first one starts libzmq's threads, which need some
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # what is open stays so
    try:
        with pytest.raises(OSError, match="Too many open files"):
            opens[kind]()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    opens[kind]().close()
    context.close()


def test_an_append_arrives(world: LinksWorld, pusher: Any) -> None:
    push(world, pusher)
    world.until(lambda: world.pushed == [BATCH])
    assert not pusher.is_lost()


def test_a_broken_connection_of_appends_is_told_once(world: LinksWorld, pusher: Any) -> None:
    push(world, pusher)
    world.until(lambda: bool(world.pushed))
    world.stop()
    world.wait(reads=[pusher])
    assert pusher.is_lost()
    assert not pusher.is_lost()
    world.until(lambda: not pusher.try_send(append_prefix(1) + BATCH))


def test_what_was_never_connected_is_not_lost(world: LinksWorld) -> None:
    world.stop()
    pusher = world.links.pusher(world.address(PortOffset.APPEND))
    assert not pusher.try_send(append_prefix(1) + BATCH)
    assert not pusher.is_lost()
    world.start()
    push(world, pusher)
    assert not pusher.is_lost()
    pusher.close()


def test_a_feed_gives_its_own_topic_only(world: LinksWorld, feed: Any) -> None:
    assert isinstance(receive(world, feed)[1], Welcome)
    world.publish(PRODUCER + 1)
    world.publish(PRODUCER)
    assert receive(world, feed)[1] == Acks(PRODUCER, 1, 1, b"")
    assert feed.try_receive() is None
