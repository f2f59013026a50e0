"""What one connection, or many, may cost a replica: bounded memory and descriptors (SAFETY W6,
FAULTS Z6).

Memory is what the process alone has, with a wide margin; nothing here is timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random

import psutil
import pytest
import zmq

import logstore
from logstore.cli.embedded import poll_until
from logstore.format.client_messages import FetchRequest
from logstore.format.message import encode_message
from logstore.limits import ANSWERS_BYTES_MAX, MIB
from logstore.settings import PortOffset
from tests.faults.greedy import send_endless_message, send_subscriptions
from tests.faults.quick_cluster import QuickCluster, quick_cluster, quick_config

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
PATIENCE_S = 60.0
MARGIN_BYTES = 96 * MIB
FETCHERS = 20
FETCHES_EACH = 40
STORED_BYTES = 6 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    folder = tmp_path_factory.mktemp("greedy")
    with quick_cluster(folder, quick_config(segment="16MiB")) as started:
        yield started


def address_of(cluster: QuickCluster, node: int) -> tuple[str, int]:
    settings = cluster.config.node(node)
    return settings.host, settings.port


def own_bytes(cluster: QuickCluster, node: int, process: str) -> int:
    memory = psutil.Process(cluster.pid_of(node, process)).memory_info()
    return int(memory.rss - memory.shared)


def process_of(offset: int) -> str:
    is_read = offset in (PortOffset.FETCH, PortOffset.TAIL)
    return "egress" if is_read else "ingress"


@pytest.mark.parametrize(
    "offset",
    [
        PortOffset.CONTROL, PortOffset.APPEND, PortOffset.FETCH, PortOffset.PEER_CONTROL,
        PortOffset.PEER_BULK, PortOffset.PRODUCE,
    ],
    ids=lambda offset: offset.name,
)  # fmt: skip
def test_w6_a_message_without_an_end_is_cut_off_and_its_memory_returns(
    cluster: QuickCluster, offset: PortOffset
) -> None:
    """It cost 200 MiB in 0.6 s, and went on."""
    node, process = cluster.wait_for_leader(), process_of(offset)
    before = own_bytes(cluster, node, process)
    ended = cluster.counters(node)[f"{process}_connections_ended"]
    sent = send_endless_message(address_of(cluster, node), offset, bytes_max=512 * MIB)
    assert sent < 256 * MIB
    name = f"{process}_connections_ended"
    assert poll_until(lambda: cluster.counters(node)[name] > ended, PATIENCE_S)
    assert poll_until(
        lambda: own_bytes(cluster, node, process) - before < MARGIN_BYTES, PATIENCE_S
    ), (own_bytes(cluster, node, process) - before) >> 20


@pytest.mark.parametrize("offset", [PortOffset.ACKS, PortOffset.TAIL], ids=lambda each: each.name)
@pytest.mark.parametrize("topic_bytes", [8, 50, 1_000])
def test_w6_subscriptions_beyond_the_bound_end_their_connection(
    cluster: QuickCluster, offset: PortOffset, topic_bytes: int
) -> None:
    """6,000 long ones cost 285 MiB, and stayed."""
    node, process = cluster.wait_for_leader(), process_of(offset)
    before = own_bytes(cluster, node, process)
    random = Random(5)
    topics = [random.randbytes(topic_bytes) for _ in range(20_000)]
    send_subscriptions(address_of(cluster, node), offset, topics)
    assert poll_until(
        lambda: own_bytes(cluster, node, process) - before < MARGIN_BYTES, PATIENCE_S
    ), (own_bytes(cluster, node, process) - before) >> 20
    with logstore.connect(cluster.endpoints) as log, log.producer() as producer:
        producer.append(b"among the greedy").result(PATIENCE_S)


def test_w6_fetchers_that_read_nothing_cost_a_bounded_sum(cluster: QuickCluster) -> None:
    """20 of them, each with 40 answers of 4 MiB to come, cost 700 MiB."""
    noise = Random(7).randbytes(200_000)
    with logstore.connect(cluster.endpoints) as log:
        with log.producer() as producer:
            futures = [producer.append(noise) for _ in range(STORED_BYTES // len(noise))]
            last = futures[-1].result(PATIENCE_S).last
        node = cluster.wait_for_leader()
        cluster.wait_until_visible(node, last)
        before = own_bytes(cluster, node, "egress")
        request = FetchRequest(
            first_lsn=last - 25, last_lsn=last, min_lsn=0, max_bytes=4 * MIB, wait_ms=0,
            is_linearizable=False,
        )  # fmt: skip
        host, port = address_of(cluster, node)
        most = 0
        with ExitStack() as stack:
            context = stack.enter_context(zmq.Context())
            for _ in range(FETCHERS):
                fetcher = stack.enter_context(context.socket(zmq.DEALER))
                fetcher.setsockopt(zmq.RCVHWM, 1)
                fetcher.setsockopt(zmq.RCVBUF, 1 << 16)
                fetcher.setsockopt(zmq.LINGER, 0)
                fetcher.connect(f"tcp://{host}:{port + PortOffset.FETCH}")
                for number in range(FETCHES_EACH):
                    fetcher.send(
                        encode_message(
                            request,
                            cluster_id=bytes(16),
                            sender_uuid=bytes(16),
                            sender=0,
                            target=0,
                            correlation=number + 1,
                        )
                    )
            served = cluster.counters(node)["fetches"]
            # an honest reader is served beside them
            for _ in range(20):
                assert len(log.read(last, last, replica=node).__next__()) == 1
                most = max(most, own_bytes(cluster, node, "egress") - before)
            assert cluster.counters(node)["fetches"] >= served + 20
        assert most < ANSWERS_BYTES_MAX + MARGIN_BYTES, most >> 20
