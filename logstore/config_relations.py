"""What must hold between the settings. Every check names the key, the reason and what to write.

Knows nothing of files. A relation that only fails under load (a ring too small for two large
batches, an election timeout within the jitter of a heartbeat) is refused at start instead.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from logstore import limits
from logstore.config_layout import (
    ACTOR_KINDS,
    AUTO_MODES,
    REPLICATOR,
    SUPERVISOR,
    Layout,
    actor_names,
    kind_of,
    layout_in,
    possible_groups,
    process_of,
    with_mode,
)
from logstore.config_placement import WITH_SOCKETS, has_sockets, placement_of, process_names
from logstore.errors import ConfigError
from logstore.settings import (
    HIGHEST_PORT,
    NO_PORT,
    PORTS_PER_NODE,
    RING_AUTO,
    RING_STEP_BYTES,
    Config,
    NodeSettings,
    PortOffset,
    ProcessSettings,
)
from logstore.units import DURATION_UNITS, SIZE_UNITS, size_words

RING_BYTES_MAX = 16 << 30
# Below, heartbeats cost more than an earlier election saves; above, a dead leader is noticed too
# late.
HEARTBEAT_MIN_NS = 5_000_000
HEARTBEAT_MAX_NS = 10_000_000_000
# One lost heartbeat and a flush that takes long must not look like a death.
ELECTION_PER_HEARTBEAT_MIN = 5
SEGMENT_RECORDS_MIN = 256
# Below, a pause of a producer ends its session; above, no time of the log gets there.
SESSION_EXPIRY_MIN_NS = 60_000_000_000
SESSION_EXPIRY_MAX_NS = 36_500 * 86_400_000_000_000
BATCHES_PER_SEGMENT_MIN = 4
# Stamps may be a second ahead of a majority's clocks (G2): a shorter age says nothing.
RETENTION_AGE_MIN_NS = limits.CLOCK_AHEAD_MAX_NS
# What still fits into an LSN, a stamp or a number of bytes: 292 years.
RETENTION_AGE_MAX = f"{limits.POSITION_MAX // DURATION_UNITS['d']}d"
RETENTION_BYTES_MAX = f"{limits.POSITION_MAX // SIZE_UNITS['TiB']}TiB"
# What the kernel knows: CPUs of the largest machines, niceness from the most to the least urgent.
CPUS_MAX = 4_096
NICE_MIN, NICE_MAX = -20, 19
# The newest segment is never given up, and the one before only once it is not needed: a log that
# holds less cannot be had.
RETENTION_SEGMENTS_MIN = 2
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_GROUP_NAME = re.compile(r"[A-Za-z0-9_-]{1,16}")  # in process titles, counters and metrics
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def check_relations(config: Config) -> None:
    """Raise `ConfigError` at the first relation that does not hold."""
    _check_nodes(config)
    _check_ports(config.nodes)
    _check_raw_ports(config)
    _check_raft(config)
    _check_limits(config)
    _check_storage(config)
    _check_retention(config)
    _check_groups(config)
    _check_placement(config.process, _layouts(config, config.node_ids()), key="process")
    for position, node in enumerate(config.nodes):
        layouts = _layouts(config, config.peer_ids(node.node))
        _check_placement(node, layouts, key=f"nodes[{position}]")
    _check_spin(config)


def _require(holds: bool, key: str, reason: str) -> None:
    if not holds:
        raise ConfigError(f"{key}: {reason}")


def _require_between(value: int, low: int, high: int, key: str) -> None:
    _require(low <= value <= high, key, f"is {value}; it must be between {low} and {high}")


def _require_size(value: int, low: int, high: int, key: str) -> None:
    reason = f"must be between {size_words(low)} and {size_words(high)}"
    _require(low <= value <= high, key, f"is {size_words(value)}; it {reason}")


def _check_nodes(config: Config) -> None:
    _require(
        _NAME.fullmatch(config.cluster.name) is not None,
        "cluster.name",
        f"is {config.cluster.name!r}; write 1 to 64 letters, digits, '-' or '_'",
    )
    _require_between(len(config.nodes), 1, limits.NODES_MAX, "nodes (their number)")
    seen: set[int] = set()
    for position, node in enumerate(config.nodes):
        key = f"nodes[{position}]"
        _require_between(node.node, 1, 65_535, f"{key}.node")
        _require(node.node not in seen, f"{key}.node", f"{node.node} is given twice")
        seen.add(node.node)
        _check_host(node.host, key=f"{key}.host", is_insecure=config.cluster.insecure)


def _check_host(host: str, *, key: str, is_insecure: bool) -> None:
    """SAFETY M5: loopback only until there are roles and CURVE, unless the operator says
    otherwise."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        _require(
            _HOST_NAME.fullmatch(host) is not None,
            key,
            f"{host!r} is neither an IPv4 address nor a host name",
        )
        is_loopback = host == "localhost"
    else:
        _require(address.version == 4, key, f"{host} is IPv6; write an IPv4 address or a host name")
        _require(
            not address.is_unspecified, key, f"{host} names no node; write one that peers reach"
        )
        is_loopback = address.is_loopback
    _require(
        is_loopback or is_insecure,
        key,
        f"{host} is not loopback and there is no authentication yet; "
        "use 127.0.0.1, or set cluster.insecure = true on a network you trust",
    )


def _check_ports(nodes: Sequence[NodeSettings]) -> None:
    for position, node in enumerate(nodes):
        key = f"nodes[{position}].port"
        _require_between(node.port, 1, 65_535 - PORTS_PER_NODE + 1, key)
        for other in nodes[:position]:
            _require(
                other.host != node.host or abs(other.port - node.port) >= PORTS_PER_NODE,
                key,
                f"{node.port} overlaps node {other.node}'s {other.port}: "
                f"each takes {PORTS_PER_NODE} ports in a row",
            )


def _check_raw_ports(config: Config) -> None:
    """A raw port must not be any other port of the configuration: two names may be of one host."""
    taken: dict[int, str] = {}
    for node in config.nodes:
        for offset in PortOffset:
            port = config.port(node.node, offset)
            taken[port] = f"node {node.node}'s {offset.name.lower().replace('_', ' ')} port"
    taken.pop(NO_PORT, None)
    seen: dict[tuple[str, int], int] = {}
    for position, node in enumerate(config.nodes):
        if not node.raw_port:
            continue
        key = f"nodes[{position}].raw_port"
        _require_between(node.raw_port, 1, HIGHEST_PORT, key)
        what = taken.get(node.raw_port)
        _require(what is None, key, f"{node.raw_port} is {what}: choose another one")
        other = seen.setdefault((node.host, node.raw_port), node.node)
        _require(other == node.node, key, f"{node.raw_port} is node {other}'s: choose another one")


def _check_raft(config: Config) -> None:
    heartbeat_ns = config.raft.heartbeat_ns
    election_ns = config.raft.election_timeout_ns
    _require(
        HEARTBEAT_MIN_NS <= heartbeat_ns <= HEARTBEAT_MAX_NS,
        "raft.heartbeat",
        f"is {config.raft.heartbeat}; it must be between 5ms and 10s",
    )
    _require(
        election_ns >= ELECTION_PER_HEARTBEAT_MIN * heartbeat_ns,
        "raft.election_timeout",
        f"is {config.raft.election_timeout}, less than {ELECTION_PER_HEARTBEAT_MIN} heartbeats of "
        f"{config.raft.heartbeat}: one late heartbeat would start an election; raise it",
    )
    _require(
        election_ns <= 60_000_000_000,
        "raft.election_timeout",
        f"is {config.raft.election_timeout}; at most 60s, or a dead leader goes unnoticed",
    )


def _check_limits(config: Config) -> None:
    bounds = config.limits
    _require_size(bounds.batch_max_bytes, 4_096, limits.BATCH_WALL_BYTES, "limits.batch_max")
    _require_size(bounds.group_max_bytes, 4_096, limits.FLUSH_MAX_BYTES, "limits.group_max")
    largest = max(bounds.batch_max_bytes, bounds.group_max_bytes)
    _require(
        bounds.bulk_window_bytes >= largest,
        "limits.bulk_window",
        f"is {bounds.bulk_window}, less than the larger of batch_max ({bounds.batch_max}) and "
        f"group_max ({bounds.group_max}); raise limits.bulk_window to at least "
        f"{size_words(largest)}",
    )
    _require_size(bounds.bulk_window_bytes, largest, 1 << 30, "limits.bulk_window")
    _require_between(bounds.groups_in_flight, 1, 1_024, "limits.groups_in_flight")
    _require_size(bounds.fetch_max_bytes, 4_096, limits.FETCH_MAX_BYTES, "limits.fetch_max")
    _require_size(
        bounds.session_window_bytes, bounds.batch_max_bytes, 1 << 30, "limits.session_window"
    )
    _require(
        bounds.client_memory_bytes >= bounds.session_window_bytes,
        "limits.client_memory",
        f"is {bounds.client_memory}, less than one session_window of "
        f"{bounds.session_window}; raise it",
    )
    _require(
        SESSION_EXPIRY_MIN_NS <= bounds.session_expiry_ns <= SESSION_EXPIRY_MAX_NS,
        "limits.session_expiry",
        f"is {bounds.session_expiry}; it must be between 1min and 36500d",
    )
    _check_ring(config)


def _check_ring(config: Config) -> None:
    """SAFETY W7: what peers may send, and clients, have room beside each other."""
    ring, peers = config.limits.ring, len(config.nodes) - 1
    _require(
        config.ring_bytes >= config.ring_bytes_min,
        "limits.ring",
        f"is {ring}; with {peers} peers it must be at least {size_words(config.ring_bytes_min)} "
        "(4 of the larger of batch_max and group_max, a bulk_window a peer, a message); "
        f'write "{RING_AUTO}", which is that, or lower bulk_window',
    )
    _require(
        config.ring_bytes % RING_STEP_BYTES == 0 and config.ring_bytes <= RING_BYTES_MAX,
        "limits.ring",
        f'is {ring}; write "{RING_AUTO}" or a multiple of 64KiB, at most 16GiB',
    )


def _check_storage(config: Config) -> None:
    segment_bytes = config.storage.segment_bytes
    smallest = BATCHES_PER_SEGMENT_MIN * max(
        config.limits.batch_max_bytes, config.limits.group_max_bytes
    )
    _require(
        smallest <= segment_bytes <= 64 << 30,
        "storage.segment",
        f"is {config.storage.segment}; it must be at least {size_words(smallest)}, "
        f"{BATCHES_PER_SEGMENT_MIN} of the larger of batch_max and group_max, and at most 64GiB",
    )
    _require_between(
        config.storage.segment_records, SEGMENT_RECORDS_MIN, 1 << 24, "storage.segment_records"
    )


def _check_retention(config: Config) -> None:
    retention = config.retention
    _require(
        retention.age_ns <= limits.POSITION_MAX,
        "retention.age",
        f"is {retention.age}; write {RETENTION_AGE_MAX} or less, or 0s to keep payloads of any age",
    )
    _require(
        not retention.age_ns or retention.age_ns >= RETENTION_AGE_MIN_NS,
        "retention.age",
        f"is {retention.age}; write 1s or more, or 0s to keep payloads of any age",
    )
    smallest = RETENTION_SEGMENTS_MIN * config.storage.segment_bytes
    _require(
        retention.size_bytes <= limits.POSITION_MAX,
        "retention.bytes",
        f"is {retention.bytes}; write {RETENTION_BYTES_MAX} or less, or 0B for no bound",
    )
    _require(
        not retention.size_bytes or smallest <= retention.size_bytes,
        "retention.bytes",
        f"is {retention.bytes}; whole segments of {config.storage.segment} are given up and the "
        f"newest never is: write at least {size_words(smallest)}, two of them, or 0B for no bound",
    )
    _require(
        0 <= retention.payloads <= limits.POSITION_MAX,
        "retention.payloads",
        f"is {retention.payloads}; write how many payloads to keep at least, up to "
        f"{limits.POSITION_MAX}, or 0 for no bound",
    )


def _check_groups(config: Config) -> None:
    """SAFETY M3: each actor runs in one process."""
    mode, groups = config.process.mode, config.process.groups
    _require(
        mode != "custom" or len(groups) > 0,
        "process.groups",
        'mode = "custom" needs one group or more, such as {core = ["ingress", "raft"]}; '
        'without groups, mode = "processes" is meant',
    )
    _require(
        mode == "custom" or not groups,
        "process.groups",
        f'counts with mode = "custom" only, and mode is "{mode}": write that, or take groups out',
    )
    replicators = {f"{REPLICATOR}-{node}" for node in config.node_ids()}
    grouped: set[str] = set()
    for process, actors in groups.items():
        key = f"process.groups.{process}"
        _require(
            _GROUP_NAME.fullmatch(process) is not None,
            key,
            "a group's name has 1 to 16 letters, digits, '-' or '_'",
        )
        _require(
            kind_of(process) not in (*ACTOR_KINDS, SUPERVISOR),
            key,
            "an actor, or the supervisor, has this name; choose another one for the group",
        )
        _require(len(actors) > 0, key, "is empty; name the actors that it runs, or take it out")
        for actor in actors:
            _require(
                actor in ACTOR_KINDS or actor in replicators,
                key,
                f"no such actor, {actor!r}; there are {', '.join(ACTOR_KINDS)}, and "
                f"{', '.join(sorted(replicators))}",
            )
            _require(
                actor not in grouped,
                key,
                f"{actor!r} is in a group twice; each actor runs in one process",
            )
            grouped.add(actor)
    both = replicators & grouped if REPLICATOR in grouped else ()
    _require(
        not both,
        "process.groups",
        f"has {', '.join(sorted(both))} twice, `replicator` is all of them; name one or the other",
    )


def _layouts(config: Config, peers: Sequence[int]) -> list[Layout]:
    """What this configuration may come to where `peers` have replicators."""
    actors = actor_names(0, peers)  # no node has the id 0
    return [layout_in(groups, actors) for groups in possible_groups(config.process)]


def _check_placement(
    settings: NodeSettings | ProcessSettings, layouts: Sequence[Layout], *, key: str
) -> None:
    for name, cpus in settings.cpus.items():
        _require_process(name, layouts, f"{key}.cpus.{name}")
        _require(
            len(cpus) > 0 and all(0 <= cpu < CPUS_MAX for cpu in cpus),
            f"{key}.cpus.{name}",
            f"is {cpus}; write at least one CPU number, 0 to {CPUS_MAX - 1}",
        )
    for name, nice in settings.nice.items():
        _require(
            name != SUPERVISOR,
            f"{key}.nice.{name}",
            "the supervisor keeps the niceness it is started with; start the replica with nice -n",
        )
        _require_process(name, layouts, f"{key}.nice.{name}")
        _require_between(nice, NICE_MIN, NICE_MAX, f"{key}.nice.{name}")
    for name, threads in settings.io_threads.items():
        _require_process(name, layouts, f"{key}.io_threads.{name}")
        _require(
            any(has_sockets(layout.get(name, (name,))) for layout in layouts),
            f"{key}.io_threads.{name}",
            "this process has no ZeroMQ sockets; write one that runs one of "
            f"{', '.join(WITH_SOCKETS)}",
        )
        _require_between(threads, 1, limits.IO_THREADS_MAX, f"{key}.io_threads.{name}")


def _require_process(name: str, layouts: Sequence[Layout], key: str) -> None:
    """`name` is a process of one of the layouts, or all its replicators."""
    processes = [process for layout in layouts for process in layout]
    names = dict.fromkeys((SUPERVISOR, *map(kind_of, processes), *processes))
    known = f"there are {', '.join(names)}"
    groups = {process_of(layout, name) for layout in layouts} - {name}
    if name not in names and groups:
        known = f"this actor runs in {', '.join(sorted(groups))}: name that; {known}"
    _require(name in names, key, f"no such process; {known}")


def _check_spin(config: Config) -> None:
    """SAFETY M7: a process that spins on a shared core takes it from those it waits for."""
    for name in config.process.spin:
        _require(name != SUPERVISOR, "process.spin", "the supervisor cannot spin; take it out")
        _require_process(name, _layouts(config, config.node_ids()), "process.spin")
        modes = AUTO_MODES if config.process.mode == "auto" else (config.process.mode,)
        for node in config.nodes:
            for mode in modes:
                _check_spin_on(with_mode(config, mode), node.node, name)


def _check_spin_on(config: Config, node: int, name: str) -> None:
    placed = {each: placement_of(config, node, each).cpus for each in process_names(config, node)}
    for process, own in placed.items():
        if name not in (process, kind_of(process)):
            continue
        others = {cpu for other, cpus in placed.items() if other != process for cpu in cpus}
        _require(
            bool(own) and others.isdisjoint(own),
            "process.spin",
            f"{name!r} has no CPU of its own on node {node}; "
            f"give it one in that node's cpus, or take it out of spin",
        )
