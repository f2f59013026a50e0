"""The nouns of the configuration: every table and key, its default and its meaning.

The docstrings are the reference that `configs/README.md` shows. Owns what a value is on its own;
`config_relations` owns what must hold between values, `config` how they are read. A `Config` is
frozen; one that came from `config` has passed every check.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import msgspec

from logstore import limits
from logstore.errors import InvalidRequest
from logstore.units import parse_duration, parse_size

PROCESS_NAMES = ("ingress", "raft", "writer", "replicator", "egress", "supervisor")
# In a row, from the base port on. The produce port comes right after them, or elsewhere.
PORTS_PER_NODE = 8
HIGHEST_PORT = 65_535
NO_PORT = 0


class PortOffset(IntEnum):
    """What a node listens on: its `port` plus this."""

    CONTROL = 0  # ROUTER: sessions, status, admin
    APPEND = 1  # PULL: batches of producers
    ACKS = 2  # XPUB: acknowledgements and refusals
    TAIL = 3  # XPUB: what becomes visible
    FETCH = 4  # ROUTER: reads by LSN or time
    PEER_CONTROL = 5  # ROUTER: votes, heartbeats, commit news
    PEER_BULK = 6  # ROUTER: appends of the leader
    METRICS = 7  # HTTP: /metrics
    PRODUCE = 8  # ROUTER: appends that are answered there; see `Config.produce_port`


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the cluster is, the same on every node.

    Attributes:
      name: The cluster's name, in process titles and logs: letters, digits, `-` and `_`.
      auto_init: Whether an empty cluster forms itself once all nodes answer. `false` waits for
        `logstore init`.
      insecure: Whether nodes may listen beyond loopback. There is no authentication yet, so
        anyone who reaches the ports can read and append.
      replace_lost: Whether an empty replica may take the place of a lost voter, with its number and
        address, without an operator. `auto`: the leader lets it, once it has not heard that voter
        for ten election timeouts. `manual`: after `logstore member replace` only, so that a folder
        that is missing by mistake, unmounted for example, costs no voter.
    """

    name: str
    auto_init: bool = True
    insecure: bool = False
    replace_lost: Literal["auto", "manual"] = "auto"


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica.

    Attributes:
      node: The node id, 1 to 65535, never given to another replica of this cluster.
      host: The IPv4 address or host name that the node listens on and is reached at.
      port: The first of eight ports in a row: control, append, acks, tail, fetch, peer control,
        peer bulk, metrics. The produce port is the ninth. Where that is another node's on a host,
        with nodes eight ports apart, the produce ports of all nodes come after the highest `port`
        and its eight, in the order of node ids.
      raw_port: Where any ZeroMQ PUSH may send bare payloads while this node leads, without session,
        order or acknowledgement; 0: nowhere.
      cpus: Process name to the CPU numbers it may run on, such as `{writer = [1], ingress =
        [0]}`; `replicator` means all of them, `replicator-2` the one to node 2. A process that is
        named neither here nor under `[process]` runs anywhere.
      nice: Process name to its niceness, -20 to 19, such as `{writer = -5}`; names as in `cpus`,
        without `supervisor`. Others have the one that the replica is started with. Below that one,
        the replica needs the right to it (CAP_SYS_NICE, or a limit such as systemd's `LimitNICE`).
      io_threads: Process name to its ZeroMQ IO threads, 1 to 8, such as `{ingress = 2}`; of
        processes with sockets, those of ingress, egress and replicators. Others have one.
    """

    node: int
    host: str = "127.0.0.1"
    port: int
    raw_port: int = 0
    cpus: dict[str, list[int]] = {}
    nice: dict[str, int] = {}
    io_threads: dict[str, int] = {}


class RaftSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Consensus timing.

    Attributes:
      heartbeat: How often a leader sends its followers a heartbeat. A duration.
      election_timeout: How long a follower waits for a heartbeat before it stands for election;
        each wait is drawn between one and two of it, the first one after a start between one and
        two heartbeats. At least five heartbeats. A duration.
      stream_mode: `streaming` keeps several appends in flight to a follower, `paper` one at a
        time.
    """

    heartbeat: str = "200ms"
    election_timeout: str = "1s"
    stream_mode: Literal["streaming", "paper"] = "streaming"

    @property
    def heartbeat_ns(self) -> int:
        return parse_duration(self.heartbeat, key="raft.heartbeat")

    @property
    def election_timeout_ns(self) -> int:
        return parse_duration(self.election_timeout, key="raft.election_timeout")


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the logs lie on disk.

    Attributes:
      segment: Space of one segment's data log. Two segments are prepared at any time, so a node
        takes at least twice this plus their Raft logs. A size, at least four times the larger of
        `batch_max` and `group_max`.
      segment_records: Raft records of one segment, 128 bytes each; a segment ends when either its
        data or its records are full.
    """

    segment: str = "256MiB"
    segment_records: int = 131_072

    @property
    def segment_bytes(self) -> int:
        return parse_size(self.segment, key="storage.segment")


RING_AUTO = "auto"
RING_STEP_BYTES = 64 * limits.KIB


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds, most of them in bytes. The same on every node: a batch that one takes, all must.

    Attributes:
      batch_max: The largest batch, whole. A size, 4 KiB to 16 MiB. One above
        8 MiB needs a larger `bulk_window`.
      group_max: What ingress joins into one Raft entry; a single larger batch is one of its own.
        A size, at most 4 MiB.
      ring: Each replica's payload ring in shared memory. "auto", or a size, a multiple of 64 KiB
        and at least what "auto" takes: four of the larger of `batch_max` and `group_max`, a
        `bulk_window` a peer and a message. With three nodes that is 36928KiB, some 36 MiB.
      bulk_window: What a leader has in flight to one follower. A size.
      groups_in_flight: Groups a leader has between acceptance and commit; small, so that groups
        grow under load instead of queues. With a small `segment` fewer: the largest ones fit into
        three quarters of it, so that a trim is taken however full the disks are.
      client_memory: What a leader has read of all producers together and not committed yet; what
        they send beyond waits in their sockets. A size.
      session_window: Unacknowledged bytes of one session at most; new sessions get less where
        there are more than 32, `client_memory` shared by all, but at least `batch_max`. A size.
      session_expiry: A session that was not used for so long of committed time, the timestamps of
        entries, ends. What its name has committed stays known. A duration, a minute or more.
      fetch_max: The largest answer to one fetch, one whole batch excepted. A size.
    """

    batch_max: str = "4MiB"
    group_max: str = "1MiB"
    ring: str = RING_AUTO
    bulk_window: str = "8MiB"
    groups_in_flight: int = limits.GROUPS_IN_FLIGHT_MAX
    client_memory: str = "1GiB"
    session_window: str = "32MiB"
    session_expiry: str = "7d"
    fetch_max: str = "4MiB"

    @property
    def batch_max_bytes(self) -> int:
        return parse_size(self.batch_max, key="limits.batch_max")

    @property
    def message_max_bytes(self) -> int:
        """The largest frame on an append port or a bulk lane."""
        largest = max(self.batch_max_bytes, limits.BATCH_MAX_BYTES)  # a session table is an entry
        return largest + limits.MESSAGE_MARGIN_BYTES

    @property
    def group_max_bytes(self) -> int:
        return parse_size(self.group_max, key="limits.group_max")

    @property
    def bulk_window_bytes(self) -> int:
        return parse_size(self.bulk_window, key="limits.bulk_window")

    @property
    def client_memory_bytes(self) -> int:
        return parse_size(self.client_memory, key="limits.client_memory")

    @property
    def session_window_bytes(self) -> int:
        return parse_size(self.session_window, key="limits.session_window")

    @property
    def session_expiry_ns(self) -> int:
        return parse_duration(self.session_expiry, key="limits.session_expiry")

    @property
    def fetch_max_bytes(self) -> int:
        return parse_size(self.fetch_max, key="limits.fetch_max")


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the log is kept. What exceeds any of these bounds is given up, whole segments at
    a time and the newest never, so a node keeps up to two segments more. With none, the default,
    the log grows until somebody trims it. The leader's configuration decides.

    Attributes:
      age: Payloads older than this are given up; `0s` keeps them. Age is the time between stamps,
        up to the newest one: a log that takes no appends does not age. If the clocks of a majority
        are or were wrong, take `age` out before another node leads. A duration, 1s to 106751d.
      bytes: What the log holds at least, in bytes of whole batches; `0B` is no bound. A size, at
        least two segments.
      payloads: How many payloads the log holds at least; `0` is no bound.
    """

    age: str = "0s"
    bytes: str = "0B"
    payloads: int = 0

    @property
    def age_ns(self) -> int:
        return parse_duration(self.age, key="retention.age")

    @property
    def size_bytes(self) -> int:
        return parse_size(self.bytes, key="retention.bytes")


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a replica runs. `cpus`, `nice` and `io_threads` are of every node and have the form that
    they have in `[[nodes]]`, which comes first, name by name. With `spin` they are the *placement*
    of the processes (`placement.md` has layouts). A running replica reads its placement again when
    the file changes: CPUs and niceness at once, the rest when a process starts.

    Attributes:
      mode: The layout, which actors run together in one process. `processes`: each in a process of
        its own, with its name. `shared`: all but the writer in the process `shared`. `single`: all
        in the process `single`. `auto`: `processes` where each replica of a host has four CPUs or
        more, else `shared`; names of processes that the chosen one lacks are passed over.
        `custom`: as `groups` says.
      groups: Of `custom`: the name of a process to the actors that it runs, such as `{core =
        ["ingress", "raft"], senders = ["replicator", "egress"]}`; `replicator` means all of them.
        An actor that is not named has a process of its own.
      spin: Names of processes that spin instead of parking. Each needs CPUs of its own on every
        node.
      cpus: Process name to the CPU numbers it may run on.
      nice: Process name to its niceness.
      io_threads: Process name to its ZeroMQ IO threads.
      metrics: Whether the supervisor serves `/metrics` over HTTP.
      produce: Whether ingress listens on the produce port. `false` where another program, or
        another cluster of this machine, has that port.
    """

    mode: Literal["processes", "shared", "single", "auto", "custom"] = "auto"
    groups: dict[str, list[str]] = {}
    spin: list[str] = []
    cpus: dict[str, list[int]] = {}
    nice: dict[str, int] = {}
    io_threads: dict[str, int] = {}
    metrics: bool = True
    produce: bool = True


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole, checked configuration. Sizes are bytes and durations ns through the properties,
    which parse at each call: read them once, at start."""

    cluster: ClusterSettings
    nodes: list[NodeSettings]
    raft: RaftSettings = msgspec.field(default_factory=RaftSettings)
    storage: StorageSettings = msgspec.field(default_factory=StorageSettings)
    limits: LimitSettings = msgspec.field(default_factory=LimitSettings)
    retention: RetentionSettings = msgspec.field(default_factory=RetentionSettings)
    process: ProcessSettings = msgspec.field(default_factory=ProcessSettings)

    def node(self, node: int) -> NodeSettings:
        """The settings of node id `node`; `InvalidRequest` names the ids there are."""
        for settings in self.nodes:
            if settings.node == node:
                return settings
        known = ", ".join(str(settings.node) for settings in self.nodes)
        raise InvalidRequest(f"no node {node} in the configuration; there are {known}")

    def node_ids(self) -> list[int]:
        return [settings.node for settings in self.nodes]

    def peer_ids(self, node: int) -> list[int]:
        """Every node id but `node`, in the file's order."""
        return [other for other in self.node_ids() if other != node]

    @property
    def ring_bytes_min(self) -> int:
        """The smallest payload ring that takes what is granted (SAFETY W7): what peers may send
        while clients fill the rest, so neither can stop the other."""
        return self.ring_bytes_min_of(len(self.nodes))

    def ring_bytes_min_of(self, nodes: int) -> int:
        """The same among so many nodes."""
        bounds = self.limits
        largest = max(bounds.batch_max_bytes, bounds.group_max_bytes)
        peers = nodes - 1
        granted = 4 * largest + peers * bounds.bulk_window_bytes + bounds.message_max_bytes
        return -(-granted // RING_STEP_BYTES) * RING_STEP_BYTES

    @property
    def ring_bytes(self) -> int:
        if self.limits.ring == RING_AUTO:
            return self.ring_bytes_min
        return parse_size(self.limits.ring, key="limits.ring")

    def produce_port(self, node: int) -> int:
        """The port where `node` answers appends; NO_PORT: it has none. All replicas find the same.

        It follows the node's other ports. Configurations of before 2026-11-26 may have the next
        node's there: then every node has one above all of them, whatever hosts they are on, since
        two names may be of one machine.
        """
        if not self.process.produce:
            return NO_PORT
        bases = [each.port for each in self.nodes]
        follows = PortOffset.PRODUCE
        gaps = (base + follows - other for base in bases for other in bases)
        if not any(0 <= gap < PORTS_PER_NODE for gap in gaps):
            port = self.node(node).port + follows
            last = max(bases) + follows
        else:
            port = max(bases) + follows + sorted(self.node_ids()).index(node)
            last = max(bases) + follows + len(bases) - 1
        return port if last <= HIGHEST_PORT else NO_PORT

    def port(self, node: int, offset: PortOffset) -> int:
        """The port of one listener. NO_PORT: the node has no such listener."""
        if offset is PortOffset.PRODUCE:
            return self.produce_port(node)
        if offset is PortOffset.METRICS and not self.process.metrics:
            return NO_PORT
        return self.node(node).port + offset

    def raw_endpoint(self, node: int) -> str:
        """The ZeroMQ address of the raw port of a node that has one."""
        return f"tcp://{self.node(node).host}:{self.node(node).raw_port}"

    def endpoint(self, node: int, offset: PortOffset) -> str:
        """The ZeroMQ address of one listener, such as "tcp://127.0.0.1:7100"."""
        return f"tcp://{self.node(node).host}:{self.port(node, offset)}"
