"""A replica that stands still and comes back: what it believed of itself is void (FAULTS P4, P5,
T3; SAFETY C4, V5, E4).
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
import zmq

import logstore
from logstore.cli.embedded import poll_until
from logstore.format.client_messages import ErrorReply, WatermarksReply, WatermarksRequest
from logstore.format.message import decode_message, encode_message
from logstore.limits import MIB
from logstore.model import Lsn
from logstore.settings import PortOffset
from tests.faults.ledger import Load
from tests.faults.quick_cluster import (
    RECOVERY_TIMEOUT_S,
    QuickCluster,
    quick_cluster,
    quick_config,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
ANSWER_TIMEOUT_S = 15.0
ASK_AGAIN_S = 1.0
# What interpreters, allocators and ZeroMQ's small queues may take; far below what is appended.
MEMORY_GROWTH_MAX = 24 * MIB
APPENDED_WHILE_STOPPED = 48 * MIB


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuickCluster]:
    with quick_cluster(tmp_path_factory.mktemp("pauses"), quick_config()) as started:
        yield started


class LinearizableAsker:
    """A connection to one replica's fetch port that exists before the replica stands still. It has
    no heartbeats: what was sent to a stopped process waits in that process' socket.
    """

    def __init__(self, cluster: QuickCluster, node: int) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(cluster.config.endpoint(node, PortOffset.FETCH))
        self._ask(is_linearizable=False)
        assert isinstance(self._receive(ANSWER_TIMEOUT_S), WatermarksReply)

    def __enter__(self) -> LinearizableAsker:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._context.term()

    def ask(self) -> None:
        self._ask(is_linearizable=True)

    def answer(self) -> WatermarksReply | ErrorReply:
        """The first answer; asks again now and then, should the connection not have lasted."""
        for _ in range(int(ANSWER_TIMEOUT_S / ASK_AGAIN_S)):
            if (found := self._receive(ASK_AGAIN_S)) is not None:
                return found
            self.ask()
        pytest.fail("the replica that goes on answers nothing")

    def _ask(self, *, is_linearizable: bool) -> None:
        request = WatermarksRequest(Lsn(0), 5_000, is_linearizable)
        self._socket.send(
            encode_message(
                request, cluster_id=bytes(16), sender_uuid=bytes(16), sender=0, target=0,
                correlation=1,
            )
        )  # fmt: skip

    def _receive(self, timeout_s: float) -> WatermarksReply | ErrorReply | None:
        if not self._socket.poll(int(timeout_s * 1_000)):
            return None
        _, message = decode_message(self._socket.recv_multipart()[0])
        assert isinstance(message, WatermarksReply | ErrorReply)
        return message


@pytest.mark.long
@pytest.mark.promise("P6")
def test_a_leader_that_was_stopped_serves_and_acknowledges_nothing_of_its_old_term(
    cluster: QuickCluster,
) -> None:
    with Load(cluster) as load:
        old = cluster.wait_for_leader()
        old_term = cluster.counters(old)["term"]
        with LinearizableAsker(cluster, old) as asker:
            load.wait_until_in_flight()
            cluster.pause(old)
            new = cluster.wait_for_leader(RECOVERY_TIMEOUT_S, other_than=old)
            load.wait_for_progress(20)
            shown = cluster.visible_lsn(new)
            asker.ask()
            cluster.resume(old)
            answer = asker.answer()
        if isinstance(answer, WatermarksReply):  # it may have been elected again meanwhile
            assert answer.visible_lsn >= shown
        assert poll_until(lambda: not cluster.counters(old)["is_leader"], RECOVERY_TIMEOUT_S)
        assert poll_until(lambda: cluster.counters(old)["term"] > old_term, RECOVERY_TIMEOUT_S)
        load.wait_for_progress(20)
    load.assert_kept()


@pytest.mark.long
def test_a_stopped_follower_holds_up_nobody_and_catches_up(cluster: QuickCluster) -> None:
    stopped = cluster.followers()[0]
    others = [node for node in cluster.nodes if node != stopped]
    with Load(cluster, payload_bytes_max=1_900) as load:
        load.wait_for_progress(50)
        memory = _memory_by_process(cluster, others)
        cluster.pause(stopped)
        goal = _payload_bytes(cluster, others) + APPENDED_WHILE_STOPPED
        assert poll_until(lambda: _payload_bytes(cluster, others) >= goal, RECOVERY_TIMEOUT_S)
        grown = _memory_by_process(cluster, others)
        cluster.resume(stopped)
        load.wait_for_progress(20)
    growth = {name: grown[name] - before for name, before in memory.items()}
    assert max(growth.values()) < MEMORY_GROWTH_MAX, growth
    load.assert_kept()


def _payload_bytes(cluster: QuickCluster, nodes: list[int]) -> int:
    """Acknowledged so far, whichever of the nodes led."""
    return sum(cluster.counters(node)["payload_bytes_acknowledged"] for node in nodes)


def _memory_by_process(cluster: QuickCluster, nodes: list[int]) -> dict[tuple[int, str], int]:
    """Bytes of its own that each process holds; shared rings are bounded by their size."""
    found = {}
    for node in nodes:
        for name, pid in cluster.processes(node).items():
            memory = psutil.Process(pid).memory_info()
            found[node, name] = memory.rss - memory.shared
    return found


def test_the_whole_cluster_may_stand_still(cluster: QuickCluster) -> None:
    with Load(cluster) as load:
        for node in cluster.nodes:
            cluster.pause(node)
        # nobody can answer now: what shows that it lasted is a client's own clock
        with (
            logstore.connect(cluster.endpoints, timeout=1.0) as log,
            pytest.raises(logstore.LogStoreError),
        ):
            log.admin.status()
        for node in cluster.nodes:
            cluster.resume(node)
        load.wait_for_progress(20)
    load.assert_kept()
