"""An operator's requests: status, watermarks, the leader, transfer, trim, initialisation.

Owns no state. A status names the replicas that do not answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from logstore.client.core.backoff import Backoff
from logstore.client.core.leader import LeaderRequest
from logstore.client.core.replica_reader import ReplicaReader, replica_wait_ms
from logstore.client.core.requests import Port, Survey
from logstore.client.core.routing import Routing
from logstore.client.core.spans import Spans, read_spans
from logstore.client.core.start import AtTime
from logstore.client.core.steps import Host, Steps
from logstore.client.endpoint import Endpoint
from logstore.client.refusal import TRANSIENT
from logstore.client.replica_trace import ReplicaTrace, parse_trace
from logstore.client.status import merge_status, parse_status
from logstore.errors import (
    FormatError,
    InvalidRequest,
    LogStoreError,
    TransferFailed,
    Unreachable,
)
from logstore.format.client_messages import (
    DoneReply,
    InitializeRequest,
    StatusReply,
    StatusRequest,
    TimeLookupReply,
    TraceReply,
    TraceRequest,
    TransferRequest,
    TrimRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.format.first_lsn import pack_first_lsn
from logstore.limits import FIRST_LSN_MAX, POSITION_MAX
from logstore.model import FIRST_LSN, Lsn

# Status asks every replica: how long the slower ones may take after the first has answered.
STATUS_SETTLE_S = 1.0
TRANSFER_TIMEOUT_S = 10.0
TRANSFER_ANSWER_S = 5.0
# The same for endpoints that the client was given and that are no member's: of a replica that left,
# perhaps, or another name of a member.
OTHERS_SETTLE_S = 0.2
# A leader without a majority cannot confirm that it leads: after this, look for the next one.
COMMIT_TIMEOUT_S = 2.0


class Watermarks(msgspec.Struct, frozen=True):
    """What a replica serves: LSNs [log_start_lsn, visible_lsn]; visible below start: nothing."""

    node: int
    log_start_lsn: int
    visible_lsn: int


class Cluster(NamedTuple):
    """Which cluster to ask, and for how long."""

    host: Host
    routing: Routing
    timeout_s: float

    def reader(self, replica: int | None) -> ReplicaReader:
        return ReplicaReader(self.host, self.routing, replica=replica, timeout_s=self.timeout_s)


def status(cluster: Cluster) -> Steps[dict[str, Any]]:
    """As `Admin.status`."""
    host, routing, timeout_s = cluster
    nodes = yield from routing.current_nodes(timeout_s=timeout_s)
    documents: dict[int, dict[str, Any] | None] = dict.fromkeys(nodes)
    others: dict[int, dict[str, Any]] = {}
    node_at = {endpoint: node for node, endpoint in nodes.items()}
    deadline_ns = host.deadline_ns(timeout_s)
    with Survey(
        host, routing.endpoints(), StatusRequest(), StatusReply, cluster_id=routing.cluster_id
    ) as survey:
        while answer := (yield from survey.next_answer(deadline_ns=deadline_ns)):
            endpoint, node = answer[0], node_at.get(answer[0], 0)
            document = parse_status(answer[1].document, node=node)
            if node:
                documents[node] = document
            elif (number := int(document.get("node", 0))) and number not in nodes:
                others[number] = document | {"host": endpoint.host, "port": endpoint.port}
            # A dead replica must not delay the answers of the others.
            settle_s = STATUS_SETTLE_S if None in documents.values() else OTHERS_SETTLE_S
            deadline_ns = min(deadline_ns, host.deadline_ns(settle_s))
    if not any(documents.values()):
        raise Unreachable("no replica answers: is the cluster up?")
    merged = merge_status(documents)
    for row in merged["nodes"]:
        row["host"], row["port"] = nodes[row["node"]].host, nodes[row["node"]].port
    merged["others"] = [
        {key: row.get(key) for key in ("node", "host", "port", "state", "refusal")}
        for _, row in sorted(others.items())
    ]
    merged["cluster_id"] = routing.cluster_id.hex()
    return merged


def traces(cluster: Cluster) -> Steps[dict[int, ReplicaTrace | str]]:
    """As `Admin.traces`."""
    host, routing, timeout_s = cluster
    nodes = yield from routing.current_nodes(timeout_s=timeout_s)
    found: dict[int, ReplicaTrace | str] = dict.fromkeys(nodes, "it does not answer")
    node_at = {endpoint: node for node, endpoint in nodes.items()}

    def on_refused(endpoint: Endpoint, error: InvalidRequest) -> None:
        found[node_at[endpoint]] = f"it runs a version that does not know this request ({error})"

    deadline_ns = host.deadline_ns(timeout_s)
    with Survey(
        host,
        nodes.values(),
        TraceRequest(),
        TraceReply,
        on_refused=on_refused,
        cluster_id=routing.cluster_id,
    ) as survey:
        while answer := (yield from survey.next_answer(deadline_ns=deadline_ns)):
            node = node_at[answer[0]]
            try:
                found[node] = parse_trace(answer[1].document, node=node)
            except FormatError as error:  # of one version among others
                found[node] = str(error)
            deadline_ns = min(deadline_ns, host.deadline_ns(STATUS_SETTLE_S))
    return found


def watermarks(
    cluster: Cluster, *, replica: int | None, min_lsn: int, is_linearizable: bool
) -> Steps[Watermarks]:
    """As `Admin.watermarks`."""
    if is_linearizable and replica is None:
        replica, _ = yield from leader(cluster)
    reader = cluster.reader(replica)
    try:
        reply, _ = yield from reader.request(
            WatermarksRequest(Lsn(min_lsn), replica_wait_ms(cluster.timeout_s), is_linearizable),
            WatermarksReply,
            timeout_s=cluster.timeout_s,
            answer_timeout_s=cluster.timeout_s,
        )
        return Watermarks(reader.node, reply.log_start_lsn, reply.visible_lsn)
    finally:
        reader.close()


def commit_lsn(cluster: Cluster) -> Steps[int]:
    """As `Admin.commit_lsn`."""
    host, routing, timeout_s = cluster
    deadline_ns = host.deadline_ns(timeout_s)
    pauses = Backoff(host)
    while True:
        _, endpoint = yield from routing.find_leader(deadline_ns=deadline_ns)
        port = Port(host, endpoint.fetch, cluster_id=routing.cluster_id)
        try:
            reply, _ = yield from port.request(
                WatermarksRequest(Lsn(0), 0, True),
                WatermarksReply,
                deadline_ns=min(deadline_ns, host.deadline_ns(COMMIT_TIMEOUT_S)),
            )
            return int(reply.visible_lsn)
        except LogStoreError as error:
            if error.code not in TRANSIENT or host.clock.monotonic_ns() >= deadline_ns:
                raise
        finally:
            port.close()
        yield pauses.wait(deadline_ns=deadline_ns)


def lsn_at(cluster: Cluster, time: AtTime, *, replica: int | None) -> Steps[int]:
    """As `Admin.lsn_at`."""
    reader = cluster.reader(replica)
    try:
        reply, _ = yield from reader.request(
            time.request(), TimeLookupReply, timeout_s=cluster.timeout_s
        )
        return int(reply.lsn)
    finally:
        reader.close()


def leader(cluster: Cluster) -> Steps[tuple[int, Endpoint]]:
    """Node id and address of the leader. Errors as `Admin.leader`."""
    deadline_ns = cluster.host.deadline_ns(cluster.timeout_s)
    return (yield from cluster.routing.find_leader(deadline_ns=deadline_ns))


def transfer(cluster: Cluster, target: int) -> Steps[int]:
    """As `Admin.transfer`."""
    host, routing, timeout_s = cluster
    if target and target not in (yield from routing.current_nodes(timeout_s=timeout_s)):
        raise InvalidRequest(f"no node {target} to transfer to")
    deadline_ns = host.deadline_ns(timeout_s)
    node, endpoint = yield from routing.find_leader(deadline_ns=deadline_ns)
    if target == node:
        return node
    deadline_ns = max(deadline_ns, host.deadline_ns(TRANSFER_TIMEOUT_S))
    pauses = Backoff(host)
    while not (yield from _is_transfer_taken(cluster, endpoint, target, deadline_ns)):
        yield pauses.wait(deadline_ns=deadline_ns)
        before = node
        node, endpoint = yield from routing.find_leader(deadline_ns=deadline_ns)
        if node == target or (not target and node != before):
            return node
    while True:
        next_leader, _ = yield from routing.find_leader(deadline_ns=deadline_ns)
        if next_leader != node:
            return next_leader
        if host.clock.monotonic_ns() >= deadline_ns:
            raise TransferFailed(f"node {node} still leads")
        yield pauses.wait(deadline_ns=deadline_ns)


def _is_transfer_taken(
    cluster: Cluster, endpoint: Endpoint, target: int, deadline_ns: int
) -> Steps[bool]:
    """Ask a leader for the transfer. False: it did not begin one, and another leader may.

    Raises:
      LogStoreError: it is refused; or it did not begin, and the time is over.
    """
    host = cluster.host
    try:
        answer_ns = min(deadline_ns, host.deadline_ns(TRANSFER_ANSWER_S))
        yield from _ask(cluster, endpoint, TransferRequest(target), answer_ns)
    except Unreachable:
        pass  # its answer is lost, or it died: who leads next shows what happened
    except LogStoreError as error:
        if error.code not in TRANSIENT or host.clock.monotonic_ns() >= deadline_ns:
            raise
        return False
    return True


def trim(cluster: Cluster, lsn: int) -> Steps[int]:
    """As `Admin.trim`."""
    if not FIRST_LSN <= lsn <= POSITION_MAX:
        raise InvalidRequest(f"trim to LSN {lsn}: give {FIRST_LSN} to {POSITION_MAX}")
    leader = LeaderRequest(cluster.host, cluster.routing, timeout_s=cluster.timeout_s)
    reply = yield from leader.ask(TrimRequest(Lsn(lsn)), DoneReply)
    return reply.value


def initialize(cluster: Cluster, *, first_lsn: int) -> Steps[None]:
    """As `Admin.initialize`."""
    host, routing, timeout_s = cluster
    deadline_ns = host.deadline_ns(timeout_s)
    if not FIRST_LSN <= first_lsn <= FIRST_LSN_MAX:
        raise InvalidRequest(f"first LSN {first_lsn}: give {FIRST_LSN} to {FIRST_LSN_MAX}")
    request = InitializeRequest(pack_first_lsn(Lsn(first_lsn)))
    pauses = Backoff(host)
    while True:
        left_s = max(0, deadline_ns - host.clock.monotonic_ns()) / 1e9
        try:
            nodes = yield from routing.nodes(timeout_s=left_s)
            yield from _ask(cluster, nodes[min(nodes)], request, deadline_ns)
            return
        except LogStoreError as error:
            if error.code not in TRANSIENT or host.clock.monotonic_ns() >= deadline_ns:
                raise
        yield pauses.wait(deadline_ns=deadline_ns)


def _ask(
    cluster: Cluster, endpoint: Endpoint, message: msgspec.Struct, deadline_ns: int
) -> Steps[int]:
    port = Port(cluster.host, endpoint.control, cluster_id=cluster.routing.cluster_id)
    try:
        reply, _ = yield from port.request(message, DoneReply, deadline_ns=deadline_ns)
        return reply.value
    finally:
        port.close()


def spans(
    cluster: Cluster,
    first_lsn: int,
    last_lsn: int,
    *,
    step_bytes: int,
    limit: int | None,
    replica: int | None,
) -> Steps[Spans]:
    """How the bytes of a range are spread, as one replica, or any, shows it; see `read_spans`."""
    reader = cluster.reader(replica)
    try:
        return (
            yield from read_spans(
                reader,
                first_lsn,
                last_lsn,
                step_bytes=step_bytes,
                limit=limit,
                timeout_s=cluster.timeout_s,
            )
        )
    finally:
        reader.close()
