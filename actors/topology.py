"""Which processes a replica has, which rings connect them, and which counters they share.

Pure description: names, sizes and slots. The supervisor creates the regions and bells, `station`
attaches a process to them.
"""

from __future__ import annotations

from enum import IntEnum

from logstore.errors import DamagedMessage, FormatError
from logstore.format.client_request import Silence
from logstore.model import NodeId

INGRESS = "ingress"
RAFT = "raft"
WRITER = "writer"
EGRESS = "egress"
SUPERVISOR = "supervisor"
REPLICATOR = "replicator"

CONTROL = "control"
BULK = "bulk"


def replicator(peer: NodeId) -> str:
    """Name of the process that talks to `peer`."""
    return f"{REPLICATOR}-{peer}"


def processes(node: NodeId, nodes: tuple[NodeId, ...]) -> tuple[str, ...]:
    """The child processes of `node`, in the order they are started."""
    peers = (replicator(peer) for peer in nodes if peer != node)
    return (WRITER, RAFT, INGRESS, EGRESS, *peers)


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
    peers = tuple(replicator(peer) for peer in nodes if peer != node)
    to_peers = tuple(ring_name(RAFT, peer) for peer in peers)
    return fixed + to_peers + tuple(ring_name(peer, RAFT) for peer in peers)


class Counter(IntEnum):
    """Shared counters of a replica, one u64 each; what they may be used for is SAFETY U1."""

    WRITTEN = 0  # persist sequence whose frames and records pwritev has returned for (W4)
    MAP_GENERATION = 1  # the writer raises it after every durable roll, truncation or unlink (V7)
    VISIBLE = 2  # visible LSN + 1; 0: not ready (V3, V4)
    VISIBLE_INDEX = 3  # stored before VISIBLE: everything up to it is committed and persisted
    LOG_START_LSN = 4  # first LSN the log still holds
    IS_LEADER = 5  # liveness and metrics only: 1 while this replica leads
    TERM = 6  # metrics only
    COMMIT_INDEX = 7  # metrics only
    LAST_INDEX = 8  # metrics only
    DISK_FULL = 9  # 1 while the next segment cannot be prepared (S9)
    PAYLOAD_BYTES_ACKNOWLEDGED = 10  # payload bytes of batches this leader acknowledged
    PAYLOADS_ACKNOWLEDGED = 11
    GROUPS_COMMITTED = 12  # DATA groups this leader acknowledged
    DISK_BYTES_DATA = 13  # given to pwrite for data files since start
    DISK_BYTES_RAFT = 14  # … for Raft files
    DISK_BYTES_META = 15  # … for META
    FLUSHES = 16  # fdatasync calls of the writer
    # Messages of peers and clients that could not be decoded, that this port does not take, or that
    # are answers where requests are expected (M6)
    FRAMES_DROPPED = 17
    FRAMES_FOREIGN = 18  # … of another cluster, for another node, from a uuid seen twice
    BULK_STALE = 19  # bulk frames dropped before the copy (W1)
    BULK_CORRUPT = 20  # bulk frames and pushed batches whose CRC failed
    APPENDS_REFUSED = 21  # client batches answered with a refusal
    SENDS_DROPPED = 22  # sends that ZeroMQ refused (mark reached, peer unknown)
    FETCHES = 23  # fetch requests answered
    FETCH_BYTES = 24
    RING_OVERWRITTEN = 25  # ring copies that came too late; the replicator read files instead
    REPLICA_RESTARTS = 26  # by the supervisor, since it started
    CHILD_RESTARTS = 27  # replicators and egress started again
    FRAMES_DAMAGED = 28  # messages of peers and clients whose envelope's CRC failed
    REQUESTS_INVALID = 29  # whole requests of clients answered INVALID_REQUEST or newer version
    # Entries that this replica had flushed and acknowledged and no longer has: its folder is an
    # older copy, or its device lost them
    FLUSHED_LOST = 30
    SESSIONS = 31  # open sessions; this and the next two are 0 on a replica that does not lead
    SESSION_NAMES_KEPT = 32  # names of monotone sessions that were idle for too long (E8)
    CLIENT_BYTES_LENT = 33  # bytes of batches read and not committed yet (W6)
    INGRESS_CONNECTIONS = 34  # of clients, to the control, append and acknowledgement ports
    INGRESS_CONNECTIONS_MAX = 35  # … that ingress accepts, by limits and descriptors
    EGRESS_CONNECTIONS = 36  # of clients, to the fetch and tail ports
    EGRESS_CONNECTIONS_MAX = 37
    INGRESS_CONNECTIONS_REFUSED = 38  # above that number
    EGRESS_CONNECTIONS_REFUSED = 39
    INGRESS_CONNECTIONS_ENDED = 40  # ended for their cost: unread bytes, subscriptions, memory
    EGRESS_CONNECTIONS_ENDED = 41
    RING_TOO_SMALL = 42  # bytes of a peer's largest entry that the ring cannot take


def counter_of(why: FormatError | Silence) -> Counter:
    """The counter of a message that was dropped without an answer."""
    is_damaged = why is Silence.DAMAGED or isinstance(why, DamagedMessage)
    return Counter.FRAMES_DAMAGED if is_damaged else Counter.FRAMES_DROPPED


PROCESS_GAUGES = ("pid", "loops", "cpu_permille", "rss_bytes")


CLOCK = "clock"
SKEW_ZERO_MS = 1 << 62


def clock_slot(node: NodeId) -> str:
    """The counter of how far a replica's clock is ahead of a majority's, in ms above
    `SKEW_ZERO_MS`; 0: unknown. Only a leader knows (G2)."""
    return f"{CLOCK}.{node}"


def counter_names(node: NodeId, nodes: tuple[NodeId, ...]) -> tuple[str, ...]:
    """Names of all slots: the counters, the gauges of each process, the clock of each replica."""
    names = [counter.name.lower() for counter in Counter]
    for process in (SUPERVISOR, *processes(node, nodes)):
        names += [f"{process}.{gauge}" for gauge in PROCESS_GAUGES]
    names += map(clock_slot, nodes)
    return tuple(names)
