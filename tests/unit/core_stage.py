"""A cluster played in memory for the client's core: links, nodes and time, no sockets or threads.

`World` is the core's `Host` and the replicas behind it. They answer at once; time passes only where
`finish` has nothing else to do, so a test of ten seconds takes a moment. By default node 1 leads,
takes appends of one dense session (or imports) into a log, and commits them at once.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import json
import os
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from logstore.client.core.routing import Routing
from logstore.client.core.steps import Frame, Host, Steps, Wait
from logstore.client.core.task import Task
from logstore.client.endpoint import Endpoint
from logstore.errors import ErrorCode
from logstore.format.batch import encode_batch, read_batch_header
from logstore.format.client_messages import (
    ACK_ROW,
    APPEND_PREFIX,
    PIECE,
    Acks,
    ErrorReply,
    FetchReply,
    FetchRequest,
    ImportRequest,
    MetadataReply,
    MetadataRequest,
    OpenSessionReply,
    OpenSessionRequest,
    SessionStateReply,
    SessionStateRequest,
    TailGroup,
    Tip,
    WatermarksReply,
    WatermarksRequest,
    Welcome,
    read_append_prefix,
)
from logstore.format.message import decode_message, encode_message
from logstore.settings import PortOffset

CLUSTER = bytes(range(16))
SECOND_NS = 1_000_000_000
PRODUCER = 7
BASE_PORT = 7_100
_T = TypeVar("_T")


class PlayedLock:
    """A flag: nobody else runs."""

    def __init__(self) -> None:
        self.is_held = False

    def acquire(self, blocking: bool = True) -> bool:
        assert not (blocking and self.is_held), "who waits for it waits for ever"
        taken, self.is_held = not self.is_held, True
        return taken

    def release(self) -> None:
        self.is_held = False


class PlayedLink:
    """One end of a connection to a port of a node, up as long as the node is."""

    def __init__(
        self,
        world: World,
        address: str,
        topic: bytes | None = None,
        *,
        reports_refusals: bool = False,
    ) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self.node = int(host.removeprefix("node"))
        self.offset = PortOffset(int(port) - BASE_PORT)
        self.topic = topic
        self.inbox: deque[list[Frame]] = deque()
        self.sent = 0
        self.is_closed = False
        self.is_broken = False
        self.reports_refusals = reports_refusals
        self._world = world

    @property
    def is_connected(self) -> bool:
        return self.node not in self._world.down

    def try_send(self, frame: bytes) -> bool:
        assert not self.is_closed
        if not self.is_connected:
            return False
        self.sent += 1
        self._world.take(self, frame)
        return True

    def try_receive(self) -> list[Frame] | None:
        assert not self.is_closed
        return self.inbox.popleft() if self.inbox else None

    def is_lost(self) -> bool:
        broken, self.is_broken = self.is_broken, False
        return broken

    def was_refused(self) -> bool:
        return self.reports_refusals and not self.is_connected

    def stop_reporting_refusals(self) -> None:
        assert not self.is_closed
        self.reports_refusals = False

    def close(self) -> None:
        self.is_closed = True


class World:
    """Nodes 1 to n, the log they share, the links of one client, and the time."""

    def __init__(self, nodes: int = 3, *, seed: int = 0) -> None:
        self.now_ns = 5 * SECOND_NS
        self.nodes = {n: Endpoint(f"node{n}", BASE_PORT) for n in range(1, nodes + 1)}
        self.leader, self.term, self.cluster_id = 1, 1, CLUSTER
        self.configuration = 0
        self.batch_max_bytes = 1 << 20
        self.down: set[int] = set()
        self.has_descriptors = True  # the client's process
        self.links: list[PlayedLink] = []
        self.requests: list[tuple[int, Any]] = []
        self.on: dict[type, Callable[[int, Any], Any]] = {
            MetadataRequest: lambda node, _: self.metadata(node),
            OpenSessionRequest: lambda *_: OpenSessionReply(PRODUCER, 1, 8, 1 << 22, 1 << 20, 0),
            SessionStateRequest: self.session_state,
            FetchRequest: self.fetch,
            WatermarksRequest: self.watermarks,
        }
        self.on_push: Callable[[int, int, bytes], None] = self.append
        self.log: list[tuple[int, bytes]] = []  # first LSN, batch
        self.committed = 0  # how many of them
        self.next_lsn = 1
        self.log_start_lsn = 1
        self.hidden: dict[int, int] = {}  # batches of the end that a node does not show
        self.loses_acks = False
        self.commits_at_once = True
        self._round = 0
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.host = Host(self, self, Random(seed), PlayedLock)
        self.routing = Routing(self.host, self.nodes.values() if nodes == 1 else [self.nodes[1]])

    # --- the host ---

    def monotonic_ns(self) -> int:
        return self.now_ns

    wall_ns = monotonic_ns

    def requester(
        self, address: str, *, reports_refusals: bool = False, is_probe: bool = False
    ) -> PlayedLink:
        return self._open(PlayedLink(self, address, reports_refusals=reports_refusals))

    def pusher(self, address: str) -> PlayedLink:
        return self._open(PlayedLink(self, address))

    def feed(self, address: str, topic: bytes, *, queue_max: int) -> PlayedLink:
        link = self._open(PlayedLink(self, address, topic))
        self._greet(link)
        return link

    def _open(self, link: PlayedLink) -> PlayedLink:
        if not self.has_descriptors:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.links = [each for each in self.links if not each.is_closed]
        self.links.append(link)
        return link

    # --- what a test does to it ---

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Do it so many seconds from now."""
        plan = (self.now_ns + int(seconds * SECOND_NS), next(self._numbers), act)
        heapq.heappush(self._plans, plan)

    def stop(self, node: int) -> None:
        """It dies, with what is under way to and from it."""
        self.down.add(node)
        for link in self._links_to(node):
            link.inbox.clear()
            link.is_broken = link.offset == PortOffset.APPEND  # where a break is watched for

    def start(self, node: int) -> None:
        self.down.discard(node)
        for link in self._links_to(node):
            self._greet(link)

    def lead(self, node: int, *, keep: int | None = None) -> None:
        """Another one leads, with the first `keep` of the entries that are not committed."""
        self.leader, self.term = node, self.term + 1
        if keep is not None:
            del self.log[self.committed + keep :]
        self.next_lsn = 1
        for first_lsn, batch in self.log:
            self.next_lsn = first_lsn + read_batch_header(batch).count

    def commit(self, count: int = 1 << 30) -> None:
        """So many more entries; they are acknowledged, and published."""
        first, self.committed = self.committed, min(len(self.log), self.committed + count)
        for place in range(first, self.committed):
            first_lsn, batch = self.log[place]
            header = read_batch_header(batch)
            self.acknowledge(header.sequence, first_lsn, header.count, ErrorCode.OK)

    def fill(self, *batches: list[bytes]) -> None:
        """Committed batches of somebody else."""
        for payloads in batches:
            self._add(
                encode_batch(payloads, producer_id=1, producer_epoch=1, sequence=0, timestamp_ns=1)
            )
        self.committed = len(self.log)

    def acknowledge(
        self, sequence: int, first_lsn: int, count: int, code: int, detail: int = 0
    ) -> None:
        row = ACK_ROW.pack(sequence, first_lsn, count, code, detail)
        self.publish(PortOffset.ACKS, Acks(PRODUCER, 1, self._round, row))

    def publish(self, offset: PortOffset, message: Any, *more: bytes, node: int = 0) -> None:
        """On a feed of this node; 0: the leader's."""
        if self.loses_acks and offset == PortOffset.ACKS:
            return
        topic = message.producer_id.to_bytes(8, "little") if isinstance(message, Acks) else b""
        for link in self._links_to(node or self.leader):
            if link.offset == offset and link.is_connected and topic.startswith(link.topic or b""):
                link.inbox.append([self._encode(message), *more])

    def publish_group(self, place: int, *, node: int) -> None:
        """One entry of the log, on a node's tail."""
        self.publish(
            PortOffset.TAIL, TailGroup(self.visible_lsn(node)), self._piece(place), node=node
        )

    def kinds_asked(self, node: int) -> list[type]:
        """Of the requests to it, in order."""
        return [type(request) for asked, request in self.requests if asked == node]

    # --- the nodes ---

    def take(self, link: PlayedLink, frame: bytes) -> None:
        if link.offset == PortOffset.APPEND:
            if frame.startswith(b"LMSG"):
                self.take_import(link.node, decode_message(frame)[1])
                return
            self.on_push(link.node, read_append_prefix(frame), frame[APPEND_PREFIX.size :])
            return
        envelope, request = decode_message(frame)
        self.requests.append((link.node, request))
        answer = self.on[type(request)](link.node, request)
        if answer is not None:
            message, *more = answer if isinstance(answer, tuple) else (answer,)
            link.inbox.append([self._encode(message, envelope.correlation), *more])

    def metadata(self, node: int) -> MetadataReply:
        rows = [{"node": n, "host": e.host, "port": e.port} for n, e in self.nodes.items()]
        document = {
            "cluster_id": self.cluster_id.hex(), "node": node, "leader": self.leader,
            "term": self.term, "nodes": rows, "limits": {"batch_max_bytes": self.batch_max_bytes},
            "configuration": self.configuration,
        }  # fmt: skip
        return MetadataReply(json.dumps(document).encode())

    def session_state(self, node: int, request: SessionStateRequest) -> Any:
        if node != self.leader:
            return not_leader(self.leader)
        rows = []
        for place, (first_lsn, batch) in enumerate(self.log):
            header = read_batch_header(batch)
            is_known = place < self.committed
            lsn, code = (first_lsn, 0) if is_known else (0, int(ErrorCode.OUTCOME_UNKNOWN))
            rows.append(ACK_ROW.pack(header.sequence, lsn, header.count, code, 0))
        return SessionStateReply(PRODUCER, 1, len(self.log), b"".join(rows))

    def append(self, node: int, round_number: int, batch: bytes) -> None:
        self._round = round_number
        sequence = read_batch_header(batch).sequence
        if node != self.leader:
            self.publish(PortOffset.ACKS, self._refusal(sequence, ErrorCode.NOT_LEADER), node=node)
        elif sequence > len(self.log):
            self.publish(PortOffset.ACKS, self._refusal(sequence, ErrorCode.GAP))
        elif sequence == len(self.log):
            self._add(batch)
            if self.commits_at_once:
                self.commit()
        else:
            first_lsn, known = self.log[sequence]
            assert known == batch, "a sequence is bound to its bytes (E7)"
            if sequence < self.committed:
                count = read_batch_header(batch).count
                self.acknowledge(sequence, first_lsn, count, ErrorCode.OK)

    def take_import(self, node: int, request: ImportRequest) -> None:
        """Where the log ends, and only there."""
        lsn, count = request.first_lsn, read_batch_header(request.batch).count
        code, detail = ErrorCode.OK, 0
        if node != self.leader:
            code, detail = ErrorCode.NOT_LEADER, self.leader
        elif lsn != self.next_lsn:
            code, detail = ErrorCode.GAP, self.next_lsn
        else:
            self._add(request.batch)
            self.commit()
        row = ACK_ROW.pack(lsn, 0 if code else lsn, count, code, detail)
        self.publish(PortOffset.ACKS, Acks(request.importer, 0, 0, row), node=node)

    def watermarks(self, node: int, request: WatermarksRequest) -> Any:
        if request.is_linearizable and node != self.leader:
            return not_leader(self.leader)
        return WatermarksReply(self.log_start_lsn, self.visible_lsn(node))

    def visible_lsn(self, node: int) -> int:
        shown = self._shown(node)
        return shown[-1][0] + read_batch_header(shown[-1][1]).count - 1 if shown else 0

    def fetch(self, node: int, request: FetchRequest) -> Any:
        visible = self.visible_lsn(node)
        if not self.log_start_lsn <= request.first_lsn <= visible + 1:
            return ErrorReply(ErrorCode.OUT_OF_RANGE, 0, self.log_start_lsn, visible, b"")
        last_lsn = min(request.last_lsn, visible)
        pieces, next_lsn = [], int(request.first_lsn)
        for place, (first_lsn, batch) in enumerate(self._shown(node)):
            end_lsn = first_lsn + read_batch_header(batch).count
            if end_lsn > request.first_lsn and first_lsn <= last_lsn and len(pieces) < 3:
                pieces.append(self._piece(place))
                next_lsn = end_lsn
        reply = FetchReply(self.log_start_lsn, visible, next_lsn, len(pieces))
        return reply, b"".join(pieces)

    # --- parts ---

    def _shown(self, node: int) -> list[tuple[int, bytes]]:
        return self.log[: max(0, self.committed - self.hidden.get(node, 0))]

    def _links_to(self, node: int) -> list[PlayedLink]:
        return [link for link in self.links if link.node == node and not link.is_closed]

    def _greet(self, link: PlayedLink) -> None:
        """A subscription is in force."""
        if link.topic is None or not link.is_connected:
            return
        visible = self.visible_lsn(link.node)
        greetings = [Welcome(visible), *[Tip(visible)] * (link.offset == PortOffset.TAIL)]
        link.inbox.extend([self._encode(each)] for each in greetings)

    def _add(self, batch: bytes) -> None:
        self.log.append((self.next_lsn, batch))
        self.next_lsn += read_batch_header(batch).count

    def _piece(self, place: int) -> bytes:
        first_lsn, batch = self.log[place]
        count = read_batch_header(batch).count
        return PIECE.pack(first_lsn, place + 1, 1, 1_000, count, len(batch)) + batch

    def _refusal(self, sequence: int, code: ErrorCode) -> Acks:
        row = ACK_ROW.pack(sequence, 0, 1, code, self.leader)
        return Acks(PRODUCER, 1, self._round, row)

    def _encode(self, message: Any, correlation: int = 0) -> bytes:
        return encode_message(
            message, cluster_id=self.cluster_id, sender_uuid=bytes(16), sender=1, target=0,
            correlation=correlation,
        )  # fmt: skip

    # --- time ---

    def has_news(self, wait: Wait) -> bool:
        """Whether something of what is waited for is there."""
        reads: Any = wait.reads
        is_there = any(each.inbox or each.is_broken or each.was_refused() for each in reads)
        return is_there or any(each.is_connected for each in wait.writes)

    def work(self, task: Task[Any]) -> None:
        """Everything that there is to do now."""
        for _ in range(10_000):
            task.do_work(self.now_ns)
            if task.is_done or not self.has_news(task.wait):
                return
        raise AssertionError("it never ends")

    def pass_time(self, until_ns: int) -> None:
        """Until then, or until something that was planned happens."""
        if self._plans and self._plans[0][0] <= until_ns:
            at_ns, _, act = heapq.heappop(self._plans)
            self.now_ns = max(self.now_ns, at_ns)
            act()
        else:
            self.now_ns = max(self.now_ns, until_ns)

    def finish(self, steps: Steps[_T]) -> _T:
        """Go through the steps; what they return."""
        task = Task(steps)
        try:
            for _ in range(10_000):
                self.work(task)
                if task.is_done:
                    return task.result
                self.pass_time(task.wait.until_ns)
        finally:
            task.close()
        raise AssertionError("it never ends")


def not_leader(leader: int) -> ErrorReply:
    return ErrorReply(ErrorCode.NOT_LEADER, leader, 0, 0, b"")
