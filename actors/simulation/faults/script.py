"""A fault script as data: which faults strike when, and the constants of the world (its ground).

Everything is drawn before a run (FAULTS section 3.2), so that a script can be replayed and shrunk:
leaving a fault out changes no other. `draw` makes scripts from a seed, `fault_injector` runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from logstore.format.level import NEW_LOG_LEVEL


class FaultClass(StrEnum):
    """What `--faults` chooses from; each seed draws which are on (swarm testing)."""

    DELAY = "delay"  # slow and jittery links
    LOSS = "loss"  # single messages are lost
    DUPLICATION = "duplication"  # messages arrive twice, some copies seconds later
    REORDERING = "reordering"  # messages overtake each other
    PARTITION = "partition"  # links cut: symmetric, one-way, partial
    CLOG = "clog"  # links hold all messages, then deliver them
    DISCONNECT = "disconnect"  # connections end; what ZeroMQ had queued on them is lost
    KILL_PROCESS = "kill-process"
    KILL_REPLICA = "kill-replica"
    POWER_CUT = "power-cut"  # unflushed writes are kept, lost, torn or garbled
    PAUSE = "pause"  # SIGSTOP and SIGCONT
    CLOCK = "clock"  # offset, drift, jumps
    RINGS = "rings"  # stores become visible late, counters out of order
    DISK_STALL = "disk-stall"
    DISK_ERROR = "disk-error"  # EIO
    DISK_FULL = "disk-full"
    LYING_FLUSH = "lying-flush"
    ROT = "rot"  # flipped bits, zeroed, garbled, misdirected, stale and unreadable sectors
    OPERATOR = "operator"  # transfers of leadership, orderly restarts
    VERSION = "version"  # replicas are started as newer or older versions
    MEMBERS = "members"  # disks lost and put back, changes of the members, machines that join


class FaultKind(StrEnum):
    """What a `Fault` does; in parentheses the fields it uses besides `at_ns`."""

    LINK_QUALITY = "link-quality"  # (links, lane, for_ns, delay_ns, loss, duplication, reordering)
    # (links, for_ns, lane, mode: "drop" | "hold" | "reset": hold, then lose with the connections)
    PARTITION = "partition"
    DISCONNECT = "disconnect"  # (links)
    KILL_PROCESS = "kill-process"  # (node, process, calls)
    KILL_REPLICA = "kill-replica"  # (node, for_ns, calls, process: "" or a `Moment`)
    # (nodes, for_ns, calls, pick, mode: "" | "garble", process: "" or a `Moment`)
    POWER_CUT = "power-cut"
    PAUSE = "pause"  # (node, process: "" all, for_ns)
    WALL_JUMP = "wall-jump"  # (node, amount: ns, may be negative)
    MONOTONIC_JUMP = "monotonic-jump"  # (node, amount: ns, forward)
    DISK_STALL = "disk-stall"  # (node, for_ns, delay_ns per flush, process: end of the path)
    DISK_ERROR = (
        "disk-error"  # (node, mode: "write" | "flush" | "read", process: end of the path, amount)
    )
    DISK_FULL = "disk-full"  # (node, for_ns)
    LYING_FLUSH = "lying-flush"  # (node, for_ns), then a power cut of that node
    # (node, mode: a RotKind, pick, process: end of the path, or a `RotPlace` with its amount)
    ROT = "rot"
    LOST_DISK = "lost-disk"  # (node, for_ns): an empty one takes its place
    OLD_DISK = "old-disk"  # (node, for_ns): the one that was lost last is back for so long
    TRANSFER = "transfer"  # (node: the target, 0: the leader chooses)
    # Every producer sends (mode: "" as much as may be in flight | "again" what is in flight)
    FLOOD = "flood"
    RESTART = "restart"  # (node): an orderly stop and a start
    # (node, amount: the newest format level that the next version reads, 0: the one that the node
    # knows the log to have): an orderly stop, and a start as that one
    VERSION = "version"


class Moment(StrEnum):
    """The disk call from which `calls` counts, itself the first."""

    ROLL = "roll"  # the write of a segment's first header
    FIRST_GROUP = "first-group"  # the write of its first frames
    INSTALL = "install"  # the write of META by which a log is to be dropped
    REMOVAL = "removal"  # a segment's first unlink, as a TRIM or a start removes it


class RotPlace(StrEnum):
    """Where rot is aimed, in the newest segment with entries."""

    FRAME = "frame"  # of one of the `amount` newest entries
    RECORD = "record"  # likewise
    FRAMES = "frames"  # of each of the `amount` newest entries
    ENTRY = "entry"  # both, of one with at least `amount` entries after it
    HEADER = "header"  # of one file of one of the `amount` newest segments


class Fault(msgspec.Struct, frozen=True):
    """One fault. Unused fields keep their defaults. Times are ns of the world.

    Faults of one `group` are aimed together: the leader when the first of them strikes is their
    node 1, and the others are counted from it. Group 0: nodes are meant as they are.

    One that `awaits_joint` strikes from `at_ns` on, as soon as a leader has appended a joint
    configuration that no committed one has followed; without one it does not strike.
    """

    at_ns: int
    kind: FaultKind
    node: int = 0
    nodes: tuple[int, ...] = ()
    process: str = ""
    links: tuple[tuple[int, int], ...] = ()  # directed: (from node, to node); 0 is the clients'
    for_ns: int = 0
    delay_ns: int = 0
    loss: int = 0  # of 1,000 messages; so are the next two
    duplication: int = 0
    reordering: int = 0
    calls: int = -1  # die at this disk call from `at_ns` on; -1: at once
    amount: int = 0
    pick: int = 0  # seed of the fault's own choices
    mode: str = ""
    group: int = 0
    lane: str = ""  # of the links between replicas: "control" or "bulk"; "": both
    awaits_joint: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What it is counted as: its kind, and `kind.detail` for each detail."""
        return (self.kind, *(f"{self.kind}.{each}" for each in self._details()))

    def _details(self) -> Iterator[str]:
        if self.awaits_joint:
            yield "amid a change"
        match self.kind:
            case FaultKind.LINK_QUALITY:
                parts = {
                    "delay": self.delay_ns, "loss": self.loss, "duplication": self.duplication,
                    "reordering": self.reordering,
                }  # fmt: skip
                yield from (name for name, value in parts.items() if value)
                if self.lane:
                    yield self.lane
            case FaultKind.PARTITION:
                is_both = all((to, start) in self.links for start, to in self.links)
                yield self.mode
                if self.lane:
                    yield self.lane
                yield "both ways" if is_both else "one way"
            case FaultKind.ROT | FaultKind.DISK_ERROR:
                yield self.mode
            case FaultKind.POWER_CUT:
                yield "garble" if self.mode else "clean"
            case FaultKind.KILL_PROCESS:
                yield self.process.partition("-")[0]


class Ground(msgspec.Struct, frozen=True):
    """The constants of one world: timing, and sizes so small that bounds are met."""

    replicas: int
    safety_ns: int  # how long faults may strike
    heartbeat_ms: int
    election_ms: int
    stream_mode: str
    segment_bytes: int
    segment_records: int
    ring_bytes: int
    command_ring_bytes: int
    batch_max_bytes: int
    group_max_bytes: int
    bulk_window_bytes: int
    groups_in_flight: int
    snapshot_every_batches: int
    rows_kept: int  # raft's rows in memory (M9)
    flush_entries_max: int  # entries of one flush group
    link_delay_ns: tuple[int, int]  # lowest, highest
    flush_ns: tuple[int, int]
    write_ns: int
    wake_ns: int  # from a bell to the run of its process; more bells may ring by then
    ring_delay_ns: int  # ring stores and bells become visible up to this late
    counters_lag: bool  # counters become visible late and out of order
    clock_offset_ns: tuple[int, ...]  # of each node's wall clock
    clock_drift_ppm: tuple[int, ...]  # of each node
    producers: int
    consumers: int
    append_every_ns: int  # of each producer, on average
    payload_max_bytes: int
    batch_max_payloads: int
    first_lsn: int = 1  # above 1: the cluster is formed by an operator
    imports: int = 0  # batches of another log, before the first append
    client_memory_bytes: int = 1 << 20
    is_struck_at_birth: bool = False  # faults strike during the bootstrap, too
    sessions_max: int = 64
    session_idle_ms: int = 0  # after which a nameless session may be ended; 0: the product's
    session_expiry_ms: int = 604_800_000
    kept_names_max: int = 64
    snapshot_part_bytes: int = 4_096
    answered_producers: int = 0  # so many of them append at the produce port
    has_brink: bool = False  # a producer whose sequence numbers run out
    has_flooder: bool = False  # a client that opens a named session in bursts
    comparers: int = 0  # producers that expect LSNs, beside the others
    # the first version of each node; (): this version's, and no client raises a level
    newest_levels: tuple[int, ...] = ()
    new_log_level: int = NEW_LOG_LEVEL  # 1: as if an older version had begun the log
    trim_every_ms: int = 0  # mean; 0: no client moves the log start
    # what leaders keep at least; 0: they give up nothing for that
    retention_age_ms: int = 0
    retention_bytes: int = 0
    retention_payloads: int = 0
    # Process to the actors that it runs on every node; others run alone (M3)
    groups: dict[str, tuple[str, ...]] = {}
    joiners: int = 0  # machines besides the founders, which an operator may make members
    # whether an empty replica takes a lost voter's place by itself; else an operator gives it
    is_lost_replaced: bool = True

    @property
    def machines(self) -> int:
        return self.replicas + self.joiners

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults that last for the whole run, counted once per seed."""
        parts = {
            "clock.offset": any(self.clock_offset_ns),
            "clock.drift": any(self.clock_drift_ppm),
            "ring.delay": self.ring_delay_ns,
            "ring.counters": self.counters_lag,
            "groups": bool(self.groups),
        }
        return tuple(name for name, is_on in parts.items() if is_on)


class Script(msgspec.Struct, frozen=True):
    """Everything a seed decides before it runs."""

    seed: int
    classes: tuple[FaultClass, ...]
    ground: Ground
    faults: tuple[Fault, ...]  # in order of time
