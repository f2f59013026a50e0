"""Who the nodes are and which of them leads: learned from any one endpoint, kept for the whole
client.

Owns the map of the cluster, which everything made from one client shares. A leader is a node that
says of itself that it leads, in no older term than was seen before: what others say of it may be
stale. Endpoints of two clusters are refused before anything else is asked of either: `listed` asks
each for its cluster, and whoever is about to send calls `check_endpoints` first.
"""

from __future__ import annotations

from collections.abc import Iterable

from logstore.client.core.listed import ListedEndpoints
from logstore.client.core.requests import NO_CLUSTER, Survey
from logstore.client.core.steps import Host, Steps
from logstore.client.endpoint import Endpoint
from logstore.client.metadata import Metadata, parse_metadata
from logstore.errors import InvalidRequest, NoQuorum, Unreachable, WrongCluster
from logstore.format.client_messages import MetadataReply, MetadataRequest

# How soon after its answer a replica is asked again who leads.
ASK_AGAIN_MS = 25


class NobodyAnswered(Unreachable):
    """No replica has answered. `hosts`: those of them that there may not be; looking their names up
    takes its time, so that is the driver's to do. `places`: where it was tried."""

    def __init__(self, places: str, hosts: tuple[str, ...]) -> None:
        super().__init__(
            f"no replica answers at {places}: is the cluster up? An endpoint is a node's "
            "first port, `port` in its configuration, none of the seven after it"
        )
        self.places = places
        self.hosts = hosts


class Routing:
    """The map of one cluster. Whoever shares the client may call every method."""

    def __init__(self, host: Host, seeds: Iterable[Endpoint]) -> None:
        self._host = host
        self._seeds = tuple(seeds)
        self._lock = host.new_lock()
        self._nodes: dict[int, Endpoint] = {}
        self._cluster_id = NO_CLUSTER
        self._told_by: Endpoint | None = None
        self._term = 0
        self._leader = 0
        # One endpoint alone can name no second cluster.
        listed = self._seeds if len(self._seeds) > 1 else ()
        self._listed = ListedEndpoints(host, listed)
        self._refusal = ""

    @property
    def cluster_id(self) -> bytes:
        """16 bytes; zeros until a replica has told."""
        return self._cluster_id

    def check_endpoints(self, *, deadline_ns: int) -> Steps[None]:
        """Learn the cluster of listed endpoints that have not told it; call it before anything is
        sent. Costs nothing once all have told.

        Args:
          deadline_ns: for an endpoint that may yet tell soon (monotonic).

        Raises:
          WrongCluster: the listed endpoints belong to more than one cluster.
        """
        self._check_refusal()
        while not self._listed.are_all_known:
            heard = yield from self._listed.hear(deadline_ns=deadline_ns)
            if not heard:
                return
            self._learn_all(heard)

    def check_endpoints_now(self) -> None:
        """The same with what they have told by now: for who is at work. Hot.

        Raises: as `check_endpoints`.
        """
        self._check_refusal()
        if not self._listed.are_all_known:
            self._learn_all(self._listed.hear_now())

    def close(self) -> None:
        """Ask no more of endpoints that have not told their cluster."""
        self._listed.close()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every known address: the nodes' own first, then the seeds."""
        return tuple(dict.fromkeys((*self._nodes.values(), *self._seeds)))

    def nodes(self, *, timeout_s: float) -> Steps[dict[int, Endpoint]]:
        """The configured nodes by id, asked for once.

        Raises:
          Unreachable: no replica answered in time.
        """
        deadline_ns = self._host.deadline_ns(timeout_s)
        yield from self.check_endpoints(deadline_ns=deadline_ns)
        if not self._nodes:
            with _Question(self._host, self) as question:
                while not self._nodes:
                    if (yield from question.next_answer(deadline_ns=deadline_ns)) is None:
                        raise self._no_answer()
        return dict(self._nodes)

    def node(self, node: int, *, timeout_s: float) -> Steps[Endpoint]:
        """The address of one node.

        Raises:
          InvalidRequest: the cluster has no such node.
          Unreachable: no replica answered in time.
        """
        nodes = yield from self.nodes(timeout_s=timeout_s)
        if node not in nodes:
            raise InvalidRequest(f"no node {node}; the cluster has {sorted(nodes)}")
        return nodes[node]

    def limits(self, *, timeout_s: float) -> Steps[dict[str, int]]:
        """The limits of a replica's configuration, asked for anew: they change with a restart.

        Raises:
          Unreachable: no replica answered in time.
        """
        deadline_ns = self._host.deadline_ns(timeout_s)
        yield from self.check_endpoints(deadline_ns=deadline_ns)
        with _Question(self._host, self) as question:
            answer = yield from question.next_answer(deadline_ns=deadline_ns)
        if answer is None:
            raise self._no_answer()
        return answer[1].limits

    def replicas(self, *, timeout_s: float, avoid: int = 0) -> Steps[list[int]]:
        """Node ids in the order a reader tries them: followers before the leader, `avoid` last."""
        nodes = yield from self.nodes(timeout_s=timeout_s)
        return sorted(nodes, key=lambda node: (node == avoid, node == self._leader, node))

    def is_answering(self, node: int, *, timeout_s: float) -> Steps[bool]:
        """Whether a node answers at all."""
        endpoint = yield from self.node(node, timeout_s=timeout_s)
        deadline_ns = self._host.deadline_ns(timeout_s)
        with Survey(self._host, [endpoint], MetadataRequest(), MetadataReply) as survey:
            return (yield from survey.next_answer(deadline_ns=deadline_ns)) is not None

    def find_leader(self, *, deadline_ns: int) -> Steps[tuple[int, Endpoint]]:
        """Node id and address of the leader, asked for anew; waits for one until the deadline.

        The deadline is monotonic.

        Raises:
          Unreachable: no replica answered at all.
          NoQuorum: replicas answered, none of them leads.
          WrongCluster: the listed endpoints belong to more than one cluster.
        """
        yield from self.check_endpoints(deadline_ns=deadline_ns)
        answered: set[Endpoint] = set()
        with _Question(self._host, self) as question:
            while answer := (yield from question.next_answer(deadline_ns=deadline_ns)):
                endpoint, metadata = answer
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

    def learn(self, metadata: Metadata, endpoint: Endpoint) -> None:
        """What the replica at `endpoint` says of the cluster.

        Raises:
          WrongCluster: it belongs to another cluster than one that answered before.
        """
        self._lock.acquire()
        try:
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
        finally:
            self._lock.release()

    def _check_refusal(self) -> None:
        if self._refusal:
            raise WrongCluster(self._refusal)

    def _learn_all(self, heard: Iterable[tuple[Endpoint, Metadata]]) -> None:
        """What listed endpoints say; if it does not fit together, nothing is asked of any again."""
        for endpoint, metadata in heard:
            try:
                self.learn(metadata, endpoint)
            except WrongCluster as error:
                self._refusal = str(error)
                raise

    def _is_of_another_cluster(self, metadata: Metadata) -> bool:
        """By the cluster ids; where one is not formed yet, by the configured nodes, of which the
        replicas of one cluster share some."""
        if NO_CLUSTER not in (self._cluster_id, metadata.cluster_id):
            return metadata.cluster_id != self._cluster_id
        mine, theirs = set(self._nodes.values()), set(metadata.nodes.values())
        return bool(mine and theirs) and mine.isdisjoint(theirs)

    def _no_answer(self) -> NobodyAnswered:
        # Where somebody has answered before, names were known.
        hosts = () if self._nodes else tuple(each.host for each in self._seeds)
        return NobodyAnswered(", ".join(map(str, self.endpoints())), hosts)


class _Question:
    """Who leads, asked of every replica again and again; who is learned of meanwhile is asked."""

    def __init__(self, host: Host, routing: Routing) -> None:
        self._host = host
        self._routing = routing
        self._endpoints = routing.endpoints()
        self._survey = self._ask()

    def _ask(self) -> Survey[MetadataReply]:
        again_ns = ASK_AGAIN_MS * 1_000_000
        return Survey(
            self._host, self._endpoints, MetadataRequest(), MetadataReply, again_ns=again_ns
        )

    def next_answer(self, *, deadline_ns: int) -> Steps[tuple[Endpoint, Metadata] | None]:
        """The next answer, which the map has learned from; None: none came before the deadline."""
        endpoints = self._routing.endpoints()
        if endpoints != self._endpoints:
            self._survey.close()
            self._endpoints = endpoints
            self._survey = self._ask()
        answer = yield from self._survey.next_answer(deadline_ns=deadline_ns)
        if answer is None:
            return None
        metadata = parse_metadata(answer[1].document)
        self._routing.learn(metadata, answer[0])
        return answer[0], metadata

    def __enter__(self) -> _Question:
        return self

    def __exit__(self, *_: object) -> None:
        self._survey.close()


def _cluster_words(cluster_id: bytes) -> str:
    return "a cluster not formed yet" if cluster_id == NO_CLUSTER else f"cluster {cluster_id.hex()}"
