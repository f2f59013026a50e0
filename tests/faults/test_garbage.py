"""Garbage on every port of every replica: counted, dropped, and nobody else notices."""

from __future__ import annotations

import http.client
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import pytest
import zmq

import logstore
from logstore.cli.embedded import poll_until
from tests.cluster.raw_client import CONTROL, RawClient, RawProducer
from tests.cluster.raw_messages import ENVELOPE, encode_message, seal
from tests.faults.garbage import (
    GREETING,
    HTTP_PORT,
    PARTNERS,
    PORTS,
    TCP_TIMEOUT_S,
    frames_garbage,
    send_frames,
    send_tcp,
    send_zmtp,
    tcp_garbage,
)
from tests.faults.quick_cluster import QuickCluster, quick_cluster, quick_config

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
MIB = 1 << 20
# What garbage may add to one process: allocator slack and ZeroMQ's queues, not what was sent.
GROWTH_MAX_BYTES = 48 * MIB
PEER_CONTROL, PEER_BULK = 5, 6
# A vote request for a transfer, a heartbeat and an append of a term that nobody has reached.
FAR_TERM = (
    (PEER_CONTROL, 3, struct.pack("<QQQB", 900, 1 << 40, 899, 1)),
    (PEER_CONTROL, 5, struct.pack("<QQQQQQQ", 900, 1 << 40, 1, 1, 1, 1, 1)),
    (PEER_BULK, 32, struct.pack("<QQQ", 900, 1, 1) + bytes(72)),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("garbage"), quick_config()) as running:
        yield running


@pytest.fixture
def unharmed(cluster: QuickCluster) -> Iterator[QuickCluster]:
    """The same processes before and after, not much larger; they take appends and serve reads."""
    with RawClient(cluster.endpoints[0]) as raw:
        producer = raw.open_session()
        producer.wait_acknowledged(producer.append([b"before"]))
        term = raw.metadata(raw.leader())["term"]
        before = {name: each.pid for name, each in cluster.all_processes().items()}
        sizes = {name: each.memory_info().rss for name, each in cluster.all_processes().items()}
        yield cluster
        sequence = producer.append([b"after", b"and still in order"])
        row = producer.wait_acknowledged(sequence)
        for node in cluster.nodes:
            assert raw.read(node, row.first_lsn, row.first_lsn + 1) == [
                b"after",
                b"and still in order",
            ]
        after = cluster.all_processes()
        assert {name: each.pid for name, each in after.items()} == before, cluster.said()
        assert raw.metadata(raw.leader())["term"] == term, "garbage cost an election"
        grown = {
            name: each.memory_info().rss - sizes[name]
            for name, each in after.items()
            if each.memory_info().rss - sizes[name] > GROWTH_MAX_BYTES
        }
        assert not grown
        producer.close()


def address_of(cluster: QuickCluster, node: int) -> tuple[str, int]:
    settings = cluster.config.node(node)
    return settings.host, settings.port


def dropped_at(cluster: QuickCluster, node: int) -> int:
    """Messages that got no answer, whatever was wrong with them."""
    counters = cluster.counters(node)
    return counters["frames_dropped"] + counters["frames_damaged"]


def test_bytes_that_are_no_zeromq_are_ignored_on_every_port(unharmed: QuickCluster) -> None:
    """FAULTS X1."""
    random = Random(11)
    for node in unharmed.nodes:
        host, port = address_of(unharmed, node)
        for offset in PORTS:
            for data in tcp_garbage(random):
                send_tcp((host, port + offset), data)


def test_connections_that_say_nothing_more_cost_nobody_anything(unharmed: QuickCluster) -> None:
    """Half a greeting and silence, forty times on each port of a leader; a dozen at the metrics,
    which take sixteen at a time and hang up on the silent after two seconds."""
    host, port = address_of(unharmed, unharmed.leader())
    with ExitStack() as stack, RawClient(unharmed.endpoints[0]) as raw:
        for offset in PORTS:
            for number in range(12 if offset == HTTP_PORT else 40):
                idle = socket.create_connection((host, port + offset), TCP_TIMEOUT_S)
                stack.enter_context(idle)
                idle.sendall(GREETING[: number % len(GREETING)])
        producer = raw.open_session()
        producer.wait_acknowledged(producer.append([b"among the silent"]))
        producer.close()


def test_frames_that_are_no_messages_are_dropped_on_every_socket(unharmed: QuickCluster) -> None:
    random = Random(12)
    counted = [0, 1, 4, 5, 6, 8]  # subscriptions are ZeroMQ's own: any bytes may be a topic
    dropped = {node: dropped_at(unharmed, node) for node in unharmed.nodes}
    messages = frames_garbage(random)
    for node in unharmed.nodes:
        for offset in PARTNERS:
            send_frames(address_of(unharmed, node), offset, messages)
    for node in unharmed.nodes:
        wanted = dropped[node] + len(counted) * (len(messages) - 2)

        def is_counted(node: int = node, wanted: int = wanted) -> bool:
            return dropped_at(unharmed, node) >= wanted

        assert poll_until(is_counted, PATIENCE_S), dropped_at(unharmed, node)


def test_cancelling_subscriptions_that_were_never_made_does_not_silence_the_tail(
    unharmed: QuickCluster,
) -> None:
    """SAFETY V8: Tips go on, and what they show is fetched."""
    host, port = address_of(unharmed, 1)
    with RawClient(unharmed.endpoints[0]) as raw:
        tail = raw.tail(1)
        strangers = [b"\0" + bytes((number,)) for number in range(50)] + [b"\0"] * 50
        send_zmtp((host, port + 3), b"SUB", strangers)
        producer = raw.open_session()
        for _ in range(20):
            row = producer.wait_acknowledged(producer.append([b"on the tail"]))
            assert list(tail.follow(row.first_lsn))[-1] == b"on the tail"
        followed = tail.expected - 1 - tail.welcome_lsn
        assert tail.from_feed + tail.from_fetch == followed >= 20  # each once, none left out
        producer.close()


def test_a_flood_of_garbage_pushes_is_bounded_and_lets_honest_ones_through(
    unharmed: QuickCluster,
) -> None:
    """SAFETY W6: 128 MiB of noise into a PULL whose replica holds no more than a queue of it."""
    random = Random(13)
    leader = unharmed.leader()
    before = unharmed.counters(leader)["frames_dropped"]
    noise = [random.randbytes(1 << 16) for _ in range(8)]
    send_frames(address_of(unharmed, leader), 1, [[noise[n % 8]] for n in range(2_048)])
    assert poll_until(
        lambda: unharmed.counters(leader)["frames_dropped"] >= before + 2_048, PATIENCE_S
    )


def peer_message(type_: int, body: bytes, *, cluster_id: bytes, sender: int, target: int) -> bytes:
    head = ENVELOPE.pack(
        b"LMSG", 1, type_, len(body), 0, cluster_id, b"a stranger's id.", sender, target, 1
    )
    return seal(head + body, 12)


def test_peers_of_another_cluster_or_with_another_uuid_are_counted_and_not_heard(
    unharmed: QuickCluster,
) -> None:
    """SAFETY M6, L3, FAULTS N18: a vote request of a far term would depose the leader if heard."""
    with RawClient(unharmed.endpoints[0]) as raw:
        own = raw.cluster_id
    leader = unharmed.leader()
    for node in unharmed.nodes:
        sender = node % 3 + 1
        before = unharmed.counters(node)["frames_foreign"]
        strangers = [(b"another cluster!", sender, node), (own, sender, sender)]
        if node != leader:
            strangers.append((own, leader, node))  # a uuid that is not the leader's
        for cluster_id, sender_id, target in strangers:
            for offset, type_, body in FAR_TERM:
                message = peer_message(
                    type_, body, cluster_id=cluster_id, sender=sender_id, target=target
                )
                send_frames(address_of(unharmed, node), offset, [[message]])
        sent = len(strangers) * len(FAR_TERM)

        def is_counted(node: int = node, wanted: int = before + sent) -> bool:
            return unharmed.counters(node)["frames_foreign"] >= wanted

        assert poll_until(is_counted, PATIENCE_S), unharmed.counters(node)["frames_foreign"]


def test_a_far_term_of_an_unknown_number_deposes_no_leader(unharmed: QuickCluster) -> None:
    """Any number may be a member by a CONFIG that this replica does not have yet, but
    none other than members is heard while they are."""
    with RawClient(unharmed.endpoints[0]) as raw:
        own = raw.cluster_id
    leader = unharmed.leader()
    term = unharmed.counters(leader)["term"]
    for node in unharmed.nodes:
        for offset, type_, body in FAR_TERM:
            message = peer_message(type_, body, cluster_id=own, sender=9, target=node)
            send_frames(address_of(unharmed, node), offset, [[message]])
    with logstore.connect(unharmed.endpoints, timeout=PATIENCE_S) as log, log.producer() as to:
        assert to.append(b"still led").result(PATIENCE_S).first > 0
    assert (unharmed.leader(), unharmed.counters(leader)["term"]) == (leader, term)


def test_the_metrics_port_answers_after_garbage(unharmed: QuickCluster) -> None:
    for node in unharmed.nodes:
        host, port = address_of(unharmed, node)
        for data in tcp_garbage(Random(14)):
            send_tcp((host, port + HTTP_PORT), data)
        connection = http.client.HTTPConnection(host, port + HTTP_PORT, timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.status == 200
        assert b"frames_dropped" in response.read()
        connection.close()


def test_a_client_that_never_reads_its_answers_does_not_hold_the_port(
    unharmed: QuickCluster,
) -> None:
    """Its queue fills up and what is beyond is dropped; others are answered."""
    with RawClient(unharmed.endpoints[0]) as raw:
        deaf = raw.socket(zmq.DEALER, raw.nodes[1], CONTROL)
        deaf.rcvhwm = 1
        for number in range(3_000):
            deaf.send(encode_message(64, b"", correlation=number))
        assert raw.metadata(1)["node"] == 1
        assert isinstance(raw.open_session(), RawProducer)
