"""Which actors a replica has, which rings connect them, and which counters they share.

Pure description: names, sizes and slots. The supervisor creates the regions and bells, `station`
attaches a process to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from actors.loop_usage import USAGE
from logstore.config_layout import SPARE
from logstore.errors import DamagedMessage, FormatError
from logstore.format.client_request import Silence
from logstore.model import NodeId

INGRESS = "ingress"
RAFT = "raft"
WRITER = "writer"
EGRESS = "egress"
SUPERVISOR = "supervisor"
REPLICATOR = "replicator"

# Replicators of a replica besides those that its configuration file names, for members that come
# later. With 8 of the file's they take all HOLD slots of the payload ring.
SPARES = 8
SPARE_NAMES = tuple(f"{SPARE}-{number}" for number in range(1, SPARES + 1))

CONTROL = "control"
BULK = "bulk"


def replicator(peer: NodeId) -> str:
    """Name of the actor that talks to `peer`."""
    return f"{REPLICATOR}-{peer}"


def replicators(node: NodeId, nodes: tuple[NodeId, ...]) -> tuple[str, ...]:
    """Every replicator of a replica, in the order of their HOLD slots: those of its configuration
    file, and the spares."""
    return (*(replicator(peer) for peer in nodes if peer != node), *SPARE_NAMES)


def ring_name(source: str, target: str, channel: str = "") -> str:
    return f"{source}>{target}.{channel}" if channel else f"{source}>{target}"


def rings(node: NodeId, nodes: tuple[NodeId, ...]) -> tuple[str, ...]:
    """Every command ring of a replica, in the order in which they are in the region."""
    fixed = (
        ring_name(INGRESS, RAFT, CONTROL),
        ring_name(INGRESS, RAFT, BULK),
        ring_name(RAFT, INGRESS),
        ring_name(RAFT, WRITER),
        ring_name(WRITER, RAFT),
        ring_name(RAFT, EGRESS),
        ring_name(EGRESS, RAFT),
        ring_name(RAFT, SUPERVISOR),
        ring_name(SUPERVISOR, RAFT),
    )
    peers = replicators(node, nodes)
    to_peers = tuple(ring_name(RAFT, peer) for peer in peers)
    return fixed + to_peers + tuple(ring_name(peer, RAFT) for peer in peers)


def rings_of_spare(spare: str) -> tuple[str, str]:
    """The two rings of a spare replicator, which have memory once it is started."""
    return ring_name(RAFT, spare), ring_name(spare, RAFT)


class Counter(IntEnum):
    """Shared counters of a replica, one u64 each; what they may be used for is SAFETY U1. Each has
    its slot and its `meaning`, which /metrics shows."""

    meaning: str

    def __new__(cls, slot: int, meaning: str) -> Counter:
        self = int.__new__(cls, slot)
        self._value_ = slot
        self.meaning = meaning
        return self

    WRITTEN = 0, "persist sequence up to which pwritev has returned"  # frames and records (W4)
    MAP_GENERATION = 1, "durable rolls, truncations and unlinks of the writer"  # after them (V7)
    # The visible LSN + 1; 0: not ready (V3, V4)
    VISIBLE = 2, "newest LSN that this replica shows: committed and on its disk; 0 if not ready"
    VISIBLE_INDEX = 3, "index of the newest entry that this replica shows"  # before VISIBLE
    LOG_START_LSN = 4, "first LSN that the log still holds"
    IS_LEADER = 5, "1 while this replica leads"  # liveness and metrics only
    TERM = 6, "Raft term"  # metrics only
    COMMIT_INDEX = 7, "index of the newest entry that is known to be committed"  # metrics only
    LAST_INDEX = 8, "index of the newest entry"  # metrics only
    DISK_FULL = 9, "1 while the next segment cannot be prepared"  # S9
    PAYLOAD_BYTES_ACKNOWLEDGED = 10, "payload bytes of batches that this leader acknowledged"
    PAYLOADS_ACKNOWLEDGED = 11, "payloads of batches that this leader acknowledged"
    GROUPS_COMMITTED = 12, "entries with batches that this leader acknowledged"
    DISK_BYTES_DATA = 13, "bytes written to data files"  # given to pwrite
    DISK_BYTES_RAFT = 14, "bytes written to Raft files"
    DISK_BYTES_META = 15, "bytes written to META"
    FLUSHES = 16, "fdatasync calls of the writer"
    # Not decoded, not of this port, or an answer where requests are expected (M6)
    FRAMES_DROPPED = 17, "messages of peers and clients that this replica cannot take"
    FRAMES_FOREIGN = 18, "messages of another cluster, for another node, or of a uuid seen twice"
    BULK_STALE = 19, "bulk frames dropped before the copy: late, or accepted already"  # W1
    BULK_CORRUPT = 20, "bulk frames and pushed batches with a wrong CRC"
    APPENDS_REFUSED = 21, "batches of clients answered with a refusal"
    SENDS_DROPPED = 22, "sends that ZeroMQ refused: mark reached, or peer unknown"
    FETCHES = 23, "fetch requests answered"
    FETCH_BYTES = 24, "bytes of batches in answers to fetches"
    RING_OVERWRITTEN = 25, "ring copies that came too late: the replicator read files instead"
    REPLICA_RESTARTS = 26, "restarts of the replica by its supervisor, since that one started"
    CHILD_RESTARTS = 27, "replicators and egress started again"
    FRAMES_DAMAGED = 28, "messages of peers and clients whose envelope has a wrong CRC"
    REQUESTS_INVALID = 29, "whole requests answered INVALID_REQUEST or UNSUPPORTED_VERSION"
    # The folder is an older copy, or the device lost them
    FLUSHED_LOST = 30, "entries that this replica had flushed and acknowledged and no longer has"
    SESSIONS = 31, "open producer sessions; 0 on a replica that does not lead"
    # Names (E8) and bytes (W6) are 0 there, too
    SESSION_NAMES_KEPT = 32, "names of monotone sessions that were idle for too long"
    CLIENT_BYTES_LENT = 33, "bytes of batches that were read and are not committed yet"
    INGRESS_CONNECTIONS = 34, "connections of clients to control, append and acknowledgement ports"
    INGRESS_CONNECTIONS_MAX = 35, "connections that ingress takes, by limits and descriptors"
    EGRESS_CONNECTIONS = 36, "connections of clients to the fetch and tail ports"
    EGRESS_CONNECTIONS_MAX = 37, "connections that egress takes, by limits and descriptors"
    INGRESS_CONNECTIONS_REFUSED = 38, "connections to ingress above its number"
    EGRESS_CONNECTIONS_REFUSED = 39, "connections to egress above its number"
    # Unread bytes, subscriptions, memory
    INGRESS_CONNECTIONS_ENDED = 40, "connections that ingress ended for their cost"
    EGRESS_CONNECTIONS_ENDED = 41, "connections that egress ended for their cost"
    RING_TOO_SMALL = 42, "bytes of a peer's largest entry that the payload ring cannot take"
    FORMAT_LEVEL = 43, "format level of the log, as far as this replica knows"  # metrics only (S11)
    # Its wall clock was set, or stamps lie ahead of it (G2)
    AGE_TRIMS_OFF = 44, "1 while this leader gives up nothing for its age: clocks are or were wrong"
    RETENTION_OFF = 45, "1 while this leader's log is below the format level that trims need"
    # While disks are full (S9)
    ROOM_FOR_CHANGES = 46, "bytes that this leader may append on full disks; 2^63 - 1: none is full"
    # One of each at a time: the growth of one, over time, is how busy that half of the disk is
    DATA_FLUSH_NS = 47, "nanoseconds in which the writer wrote and flushed frames"
    RECORD_FLUSH_NS = 48, "nanoseconds in which the writer wrote and flushed records"
    # As payload_bytes_acknowledged, but of a compressed batch its block
    STORED_BYTES_ACKNOWLEDGED = 49, "payload bytes, as stored, of batches that it acknowledged"


def counter_of(why: FormatError | Silence) -> Counter:
    """The counter of a message that was dropped without an answer."""
    is_damaged = why is Silence.DAMAGED or isinstance(why, DamagedMessage)
    return Counter.FRAMES_DAMAGED if is_damaged else Counter.FRAMES_DROPPED


PROCESS_GAUGES = ("pid", "loops", "cpu_permille", "rss_bytes")


CLOCK = "clock"
SKEW_ZERO_MS = 1 << 62


def clock_slot(node: NodeId | str) -> str:
    """The counter of how far a replica's clock is ahead of a majority's, in ms above
    `SKEW_ZERO_MS`; 0: unknown. Only a leader knows (G2). `node`: or the spare that serves it."""
    return f"{CLOCK}.{node}"


def served_slot(spare: str) -> str:
    """The counter of the number of the member that a spare replicator serves; 0: none."""
    return f"{spare}.serves"


def counter_names(processes: Iterable[str], nodes: tuple[NodeId, ...]) -> tuple[str, ...]:
    """Names of all slots: the counters, gauges and usage of each process, each replica's clock, and
    whom each spare serves. `processes`: of the replica's layout, without its supervisor."""
    names = [counter.name.lower() for counter in Counter]
    for process in (SUPERVISOR, *processes, *SPARE_NAMES):
        names += [f"{process}.{value}" for value in (*PROCESS_GAUGES, *USAGE)]
    names += [*map(clock_slot, nodes), *map(clock_slot, SPARE_NAMES)]
    names += map(served_slot, SPARE_NAMES)
    return tuple(names)
