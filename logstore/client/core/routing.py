"""Who the nodes are and which of them leads: learned from any one endpoint, kept for the whole
client.

Owns the map of the cluster, which everything made from one client shares. The members may change:
the map is that of the newest configuration that a replica has told, or of what the leader told,
and endpoints that the client was given stay in use, as a last resort. A leader is a node that
says of itself that it leads, in no older term than was seen before: what other nodes say may be
stale. Endpoints of two clusters are refused before either gets another request: `listed` asks each
for its cluster, and `check_endpoints` comes before every request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from logstore.client.core.backoff import Backoff
from logstore.client.core.listed import ListedEndpoints
from logstore.client.core.requests import NO_CLUSTER, Survey
from logstore.client.core.steps import Host, Steps
from logstore.client.endpoint import Endpoint
from logstore.client.metadata import Metadata, parse_metadata
from logstore.errors import (
    Closed,
    InvalidRequest,
    LogStoreError,
    NoQuorum,
    Unreachable,
    WrongCluster,
)
from logstore.format.client_messages import MetadataReply, MetadataRequest

# How long a client whose nodes are all silent looks for others, before it tries these again.
REFRESH_S = 1.0
# How often a client asks who the members are, if nothing else has told it: one that does nothing
# while its cluster moves machine by machine must hear of new ones before all old ones are gone. It
# costs a small request to each member, over connections that end with the first leader's answer.
# Each waits longer by up to a tenth: all clients hear of a new leader in the same moments.
KEEP_CURRENT_S = 60.0
KEEP_CURRENT_JITTER = 0.1


class NoReplicaAnswers(Unreachable):
    """No replica answered. `hosts`: names that may not exist; a lookup blocks, so the driver does
    it. `places`: the addresses that were tried."""

    def __init__(self, places: str, hosts: tuple[str, ...]) -> None:
        super().__init__(
            f"no replica answers at {places}: is the cluster up? An endpoint is a node's "
            "first port, `port` in its configuration, none of the seven after it"
        )
        self.places = places
        self.hosts = hosts


class Routing:
    """The nodes of one cluster and their leader. Everything made from one client may call every
    method."""

    def __init__(self, host: Host, seeds: Iterable[Endpoint]) -> None:
        self._host = host
        self._seeds = tuple(seeds)
        self._lock = host.new_lock()
        self._nodes: dict[int, Endpoint] = {}
        self._configuration = 0  # of which they are the members; 0: of a configuration file
        self._cluster_id = NO_CLUSTER
        self._learned_from: Endpoint | None = None
        self._learned_ns = host.clock.monotonic_ns()  # when members were told, or asked for, last
        self._term = 0  # the newest one in which a replica knew a leader
        self._leader = 0
        self._batch_max_bytes = 0
        # A single endpoint cannot belong to two clusters.
        listed = self._seeds if len(self._seeds) > 1 else ()
        self._listed = ListedEndpoints(host, listed)
        self._refusal = ""

    @property
    def cluster_id(self) -> bytes:
        """16 bytes; zeros until a replica has answered."""
        return self._cluster_id

    @property
    def leader(self) -> int:
        """The node that led when the leader was looked for last; 0: none was found yet."""
        return self._leader

    @property
    def batch_max_bytes(self) -> int:
        """The largest batch that this leader takes; 0: it was not told."""
        return self._batch_max_bytes

    def check_endpoints(self, *, deadline_ns: int) -> Steps[None]:
        """Learn the cluster of listed endpoints where it is not known; call it before anything is
        sent. Costs nothing once all are known.

        Args:
          deadline_ns: for an endpoint that may answer soon (monotonic).

        Raises:
          WrongCluster: the listed endpoints belong to more than one cluster.
        """
        self._check_refusal()
        while not self._listed.are_all_known:
            answers = yield from self._listed.wait_for_answers(deadline_ns=deadline_ns)
            if not answers:
                return
            self._learn_all(answers)

    def check_endpoints_now(self) -> None:
        """The same with the answers that are there, without a wait. Hot.

        Raises: as `check_endpoints`.
        """
        self._check_refusal()
        if not self._listed.are_all_known:
            self._learn_all(self._listed.take_answers())

    def close(self) -> None:
        """Stop asking listed endpoints for their cluster."""
        self._listed.close()

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every known address: the members' own first, then the seeds, of which some may be of
        machines that have left."""
        return tuple(dict.fromkeys((*self._nodes.values(), *self._seeds)))

    def nodes(self, *, timeout_s: float) -> Steps[dict[int, Endpoint]]:
        """The members by node id, as far as they are known; only the first call sends requests.

        Raises:
          Unreachable: no replica answered in time.
        """
        deadline_ns = self._host.deadline_ns(timeout_s)
        yield from self.check_endpoints(deadline_ns=deadline_ns)
        if not self._nodes:
            with _MetadataSurvey(self._host, self) as survey:
                while not self._nodes:
                    if (yield from survey.next_answer(deadline_ns=deadline_ns)) is None:
                        raise self._no_answer()
        return dict(self._nodes)

    def current_nodes(self, *, timeout_s: float) -> Steps[dict[int, Endpoint]]:
        """The members by node id, as a replica says now.

        Raises:
          Unreachable: no replica answered in time.
        """
        yield from self.limits(timeout_s=timeout_s)
        return dict(self._nodes)

    def refresh(self, *, timeout_s: float) -> Steps[None]:
        """Look for newer members, after those that are known did not answer. Where no replica
        answers, nothing changes."""
        with contextlib.suppress(Unreachable):
            yield from self.limits(timeout_s=min(timeout_s, REFRESH_S))

    def keep_current(self) -> Steps[float]:
        """Ask who the members are, unless that was told within KEEP_CURRENT_S; the seconds until it
        is time again. Where no replica answers, or all refuse, nothing changes: the next request
        says why.

        Raises:
          Closed: the client is.
        """
        left_s = self._stays_current_s()
        if left_s > 0:
            return self._spread_s(left_s)
        self._learned_ns = self._host.clock.monotonic_ns()
        deadline_ns = self._host.deadline_ns(REFRESH_S)
        try:
            with _MetadataSurvey(self._host, self) as survey:
                while answer := (yield from survey.next_answer(deadline_ns=deadline_ns)):
                    if answer[1].leader == answer[1].node and answer[1].term >= self._term:
                        break  # of others, some may be behind, or have left
        except Closed:
            raise
        except LogStoreError:
            pass
        return self._spread_s(self._stays_current_s())

    def _stays_current_s(self) -> float:
        passed_ns = self._host.clock.monotonic_ns() - self._learned_ns
        return max(0.0, KEEP_CURRENT_S - passed_ns / 1e9)

    def _spread_s(self, wait_s: float) -> float:
        return wait_s + self._host.random.uniform(0, KEEP_CURRENT_JITTER * KEEP_CURRENT_S)

    def has_left(self, node: int) -> bool:
        """Whether nodes are known, and it is none of them."""
        return bool(self._nodes) and node not in self._nodes

    def node(self, node: int, *, timeout_s: float) -> Steps[Endpoint]:
        """The address of one node. Asks again before it says that there is none: it may be new.

        Raises:
          InvalidRequest: the cluster has no such node.
          Unreachable: no replica answered in time.
        """
        nodes = yield from self.nodes(timeout_s=timeout_s)
        if node not in nodes:
            yield from self.refresh(timeout_s=timeout_s)
            nodes = dict(self._nodes)
        if node not in nodes:
            raise InvalidRequest(f"no node {node}; the cluster has {sorted(nodes)}")
        return nodes[node]

    def limits(self, *, timeout_s: float) -> Steps[dict[str, int]]:
        """The limits of a replica's configuration. Each call asks, since a restart may change them.

        Raises:
          Unreachable: no replica answered in time.
        """
        deadline_ns = self._host.deadline_ns(timeout_s)
        yield from self.check_endpoints(deadline_ns=deadline_ns)
        with _MetadataSurvey(self._host, self) as survey:
            answer = yield from survey.next_answer(deadline_ns=deadline_ns)
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
        """Node id and address of the leader. Each call asks, and waits for a leader until the
        deadline (monotonic).

        Raises:
          Unreachable: no replica answered at all.
          NoQuorum: replicas answered, none of them leads.
          WrongCluster: the listed endpoints belong to more than one cluster.
        """
        yield from self.check_endpoints(deadline_ns=deadline_ns)
        answered: set[Endpoint] = set()
        with _MetadataSurvey(self._host, self) as survey:
            while answer := (yield from survey.next_answer(deadline_ns=deadline_ns)):
                endpoint, metadata = answer
                answered.add(endpoint)
                if metadata.leader == metadata.node and metadata.term >= self._term:
                    self._leader = metadata.node
                    self._batch_max_bytes = metadata.limits.get("batch_max_bytes", 0)
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
        """Take in what the replica at `endpoint` says about the cluster.

        Raises:
          WrongCluster: it belongs to another cluster than one that answered before.
        """
        self._lock.acquire()
        try:
            if self._is_of_another_cluster(metadata):
                raise WrongCluster(
                    f"{endpoint} belongs to {_cluster_name(metadata.cluster_id)}, "
                    f"{self._learned_from} to {_cluster_name(self._cluster_id)}: "
                    "check the endpoints, all must be of one cluster"
                )
            if metadata.cluster_id != NO_CLUSTER:
                self._cluster_id = metadata.cluster_id
            self._learned_from = self._learned_from or endpoint
            if metadata.nodes and self._is_newest(metadata):
                self._learned_ns = self._host.clock.monotonic_ns()
                self._nodes, self._configuration = metadata.nodes, metadata.configuration
            if metadata.leader:  # one who was elected: a term may have none, and the last go on
                self._term = max(self._term, metadata.term)
        finally:
            self._lock.release()

    def was_given_away(self, endpoint: Endpoint, metadata: Metadata) -> bool:
        """Whether a machine has left the members, and is another cluster's by now."""
        is_members = not self._configuration or endpoint in self._nodes.values()
        return not is_members and self._is_of_another_cluster(metadata)

    def _check_refusal(self) -> None:
        if self._refusal:
            raise WrongCluster(self._refusal)

    def _learn_all(self, answers: Iterable[tuple[Endpoint, Metadata]]) -> None:
        """Take in what listed endpoints say. Once they differ, every later request is refused."""
        for endpoint, metadata in answers:
            try:
                self.learn(metadata, endpoint)
            except WrongCluster as error:
                self._refusal = str(error)
                raise

    def _is_newest(self, metadata: Metadata) -> bool:
        """Whether its nodes are those to use. A replica that is behind, or has left, names members
        of an older configuration; one that is part of no cluster those of its file. A leader's log
        decides, also against a configuration that was told before and did not last."""
        is_leaders = metadata.leader == metadata.node and metadata.term >= self._term
        return is_leaders or metadata.configuration >= self._configuration

    def _is_of_another_cluster(self, metadata: Metadata) -> bool:
        """By the cluster ids; where one is not formed yet, by the configured nodes, of which the
        replicas of one cluster share some, unless its members have changed since."""
        if NO_CLUSTER not in (self._cluster_id, metadata.cluster_id):
            return metadata.cluster_id != self._cluster_id
        if self._configuration or metadata.configuration:
            return False
        mine, theirs = set(self._nodes.values()), set(metadata.nodes.values())
        return bool(mine and theirs) and mine.isdisjoint(theirs)

    def _no_answer(self) -> NoReplicaAnswers:
        # Once a replica has answered, its name is known to exist.
        hosts = () if self._nodes else tuple(each.host for each in self._seeds)
        return NoReplicaAnswers(", ".join(map(str, self.endpoints())), hosts)


class _MetadataSurvey:
    """Asks every replica for its metadata, repeatedly, with pauses that grow; also replicas that
    it learns of."""

    def __init__(self, host: Host, routing: Routing) -> None:
        self._host = host
        self._routing = routing
        self._endpoints = routing.endpoints()
        self._survey = self._ask()

    def _ask(self) -> Survey[MetadataReply]:
        return Survey(
            self._host,
            self._endpoints,
            MetadataRequest(),
            MetadataReply,
            pauses=Backoff,
        )

    def next_answer(self, *, deadline_ns: int) -> Steps[tuple[Endpoint, Metadata] | None]:
        """The next answer, which `Routing` has learned; None: none came before the deadline."""
        endpoints = self._routing.endpoints()
        if endpoints != self._endpoints:
            self._survey.close()
            self._endpoints = endpoints
            self._survey = self._ask()
        while answer := (yield from self._survey.next_answer(deadline_ns=deadline_ns)):
            endpoint, metadata = answer[0], parse_metadata(answer[1].document)
            if not self._routing.was_given_away(endpoint, metadata):
                self._routing.learn(metadata, endpoint)
                return endpoint, metadata
        return None

    def __enter__(self) -> _MetadataSurvey:
        return self

    def __exit__(self, *_: object) -> None:
        self._survey.close()


def _cluster_name(cluster_id: bytes) -> str:
    return "a cluster not formed yet" if cluster_id == NO_CLUSTER else f"cluster {cluster_id.hex()}"
