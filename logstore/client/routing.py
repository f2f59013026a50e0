"""Who the nodes are and which of them leads: learned from any one endpoint, kept for the whole
client.

Owns the map of the cluster, shared by all threads of a client under one lock. A leader is a node
that says of itself that it leads, in no older term than was seen before: what others say of it may
be stale. Endpoints of two clusters are refused before anything else is asked of either: `listed`
asks each for its cluster, and whoever is about to send calls `check_endpoints` first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from logstore.client.clock import monotonic_ns, seconds_from_now
from logstore.client.endpoint import Endpoint
from logstore.client.link import Context
from logstore.client.listed import ListedEndpoints
from logstore.client.metadata import Metadata, parse_metadata
from logstore.client.names import unknown_hosts
from logstore.client.requests import NO_CLUSTER, Survey
from logstore.errors import InvalidRequest, NoQuorum, Unreachable, WrongCluster
from logstore.format.client_messages import MetadataReply, MetadataRequest

# How soon after its answer a replica is asked again who leads.
ASK_AGAIN_MS = 25


class Routing:
    """The map of one cluster. Every method may be called from any thread."""

    def __init__(self, context: Context, seeds: Iterable[Endpoint]) -> None:
        self._context = context
        self._seeds = tuple(seeds)
        self._lock = threading.Lock()
        self._nodes: dict[int, Endpoint] = {}
        self._cluster_id = NO_CLUSTER
        self._told_by: Endpoint | None = None
        self._term = 0
        self._leader = 0
        # One endpoint alone can name no second cluster.
        listed = self._seeds if len(self._seeds) > 1 else ()
        self._listed = ListedEndpoints(context, listed)
        self._refusal = ""

    @property
    def cluster_id(self) -> bytes:
        """16 bytes; zeros until a replica has told."""
        return self._cluster_id

    def check_endpoints(self, *, deadline_ns: int) -> None:
        """Learn the cluster of listed endpoints that have not told it; call it before anything is
        sent. Costs nothing once all have told.

        Args:
          deadline_ns: for an endpoint that may yet tell soon (monotonic); 0: waits for none.

        Raises:
          WrongCluster: the listed endpoints belong to more than one cluster.
        """
        if self._refusal:
            raise WrongCluster(self._refusal)
        if self._listed.are_all_known:
            return
        while heard := self._listed.hear(deadline_ns=deadline_ns):
            for endpoint, metadata in heard:
                try:
                    self._learn(metadata, endpoint)
                except WrongCluster as error:
                    self._refusal = str(error)
                    raise

    def close(self) -> None:
        """Ask no more of endpoints that have not told their cluster."""
        self._listed.close()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every known address: the nodes' own first, then the seeds."""
        with self._lock:
            return tuple(dict.fromkeys((*self._nodes.values(), *self._seeds)))

    def nodes(self, *, timeout_s: float) -> dict[int, Endpoint]:
        """The configured nodes by id, asked for once.

        Raises:
          Unreachable: no replica answered in time.
        """
        deadline_ns = seconds_from_now(timeout_s)
        self.check_endpoints(deadline_ns=deadline_ns)
        if not self._nodes:
            for _ in self._watch(deadline_ns):
                if self._nodes:
                    break
            if not self._nodes:
                raise self._no_answer()
        with self._lock:
            return dict(self._nodes)

    def node(self, node: int, *, timeout_s: float) -> Endpoint:
        """The address of one node.

        Raises:
          InvalidRequest: the cluster has no such node.
          Unreachable: no replica answered in time.
        """
        nodes = self.nodes(timeout_s=timeout_s)
        if node not in nodes:
            raise InvalidRequest(f"no node {node}; the cluster has {sorted(nodes)}")
        return nodes[node]

    def limits(self, *, timeout_s: float) -> dict[str, int]:
        """The limits of a replica's configuration, asked for anew: they change with a restart.

        Raises:
          Unreachable: no replica answered in time.
        """
        deadline_ns = seconds_from_now(timeout_s)
        self.check_endpoints(deadline_ns=deadline_ns)
        for metadata, _ in self._watch(deadline_ns):
            return metadata.limits
        raise self._no_answer()

    def replicas(self, *, timeout_s: float, avoid: int = 0) -> list[int]:
        """Node ids in the order a reader tries them: followers before the leader, `avoid` last."""
        nodes = self.nodes(timeout_s=timeout_s)
        return sorted(nodes, key=lambda node: (node == avoid, node == self._leader, node))

    def is_answering(self, node: int, *, timeout_s: float) -> bool:
        """Whether a node answers at all."""
        endpoint = self.node(node, timeout_s=timeout_s)
        with Survey(self._context, [endpoint]) as survey:
            answers = survey.gather(
                MetadataRequest(), MetadataReply, timeout_s=timeout_s, settle_s=0.0
            )
            return any(True for _ in answers)

    def find_leader(self, *, deadline_ns: int) -> tuple[int, Endpoint]:
        """Node id and address of the leader, asked for anew; waits for one until the deadline.

        The deadline is monotonic.

        Raises:
          Unreachable: no replica answered at all.
          NoQuorum: replicas answered, none of them leads.
          WrongCluster: the listed endpoints belong to more than one cluster.
        """
        self.check_endpoints(deadline_ns=deadline_ns)
        answered: set[Endpoint] = set()
        for metadata, endpoint in self._watch(deadline_ns):
            answered.add(endpoint)
            if metadata.leader == metadata.node and metadata.term >= self._term:
                self._leader = metadata.node
                return metadata.node, self._nodes.get(metadata.node, endpoint)
        names = ", ".join(str(each) for each in self.endpoints() if each in answered)
        if answered and self._cluster_id == NO_CLUSTER:
            raise NoQuorum(
                f"replicas answer at {names}, but none is part of a cluster yet: with "
                "auto_init = false `logstore init` forms it, else it forms once every node answers"
            )
        if answered:
            raise NoQuorum(f"replicas answer at {names}, but none of them leads")
        raise self._no_answer()

    def _watch(self, deadline_ns: int) -> Iterator[tuple[Metadata, Endpoint]]:
        """What replicas say of the cluster, learned as it comes; whoever is learned of is asked."""
        while monotonic_ns() < deadline_ns:
            endpoints = self.endpoints()
            with Survey(self._context, endpoints) as survey:
                answers = survey.watch(
                    MetadataRequest(), MetadataReply, again_ms=ASK_AGAIN_MS, deadline_ns=deadline_ns
                )
                for endpoint, answer in answers:
                    metadata = parse_metadata(answer.document)
                    self._learn(metadata, endpoint)
                    yield metadata, endpoint
                    if self.endpoints() != endpoints:
                        break

    def _learn(self, metadata: Metadata, endpoint: Endpoint) -> None:
        with self._lock:
            if self._is_of_another_cluster(metadata):
                raise WrongCluster(
                    f"{endpoint} belongs to {_cluster_words(metadata.cluster_id)}, "
                    f"{self._told_by} to {_cluster_words(self._cluster_id)}: "
                    "check the endpoints, all must be of one cluster"
                )
            if metadata.cluster_id != NO_CLUSTER:
                self._cluster_id = metadata.cluster_id
            self._told_by = self._told_by or endpoint
            if metadata.nodes:
                self._nodes = metadata.nodes
            self._term = max(self._term, metadata.term)

    def _is_of_another_cluster(self, metadata: Metadata) -> bool:
        """By the cluster ids; where one is not formed yet, by the configured nodes, of which the
        replicas of one cluster share some."""
        if NO_CLUSTER not in (self._cluster_id, metadata.cluster_id):
            return metadata.cluster_id != self._cluster_id
        mine, theirs = set(self._nodes.values()), set(metadata.nodes.values())
        return bool(mine and theirs) and mine.isdisjoint(theirs)

    def _no_answer(self) -> Unreachable:
        # Where somebody has answered before, names were known: a loop of retries looks up none.
        hosts = [] if self._nodes else [each.host for each in self._seeds]
        if unknown := unknown_hosts(hosts):
            return Unreachable(
                f"no replica answers at {self._names()}; unknown to this machine: "
                f"{', '.join(unknown)}: check the endpoints"
            )
        return Unreachable(
            f"no replica answers at {self._names()}: is the cluster up? An endpoint is a node's "
            "first port, `port` in its configuration, none of the seven after it"
        )

    def _names(self) -> str:
        return ", ".join(map(str, self.endpoints()))


def _cluster_words(cluster_id: bytes) -> str:
    return "a cluster not formed yet" if cluster_id == NO_CLUSTER else f"cluster {cluster_id.hex()}"
