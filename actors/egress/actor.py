"""Egress: the process that serves reads. Owns the tail feed and the fetch port.

It follows two counters, the visible LSN and the map generation, and reads the log files up to that
LSN; it never shows anything above it. It decides nothing and acknowledges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actors import topology
from actors.egress.fetch_port import ANSWERS_QUEUED_MAX, SERVED_MAX, Requests
from actors.egress.reads import Bounds
from actors.egress.tail import Tail
from actors.guard import (
    ConnectionGuard,
    CounterSlots,
    Guarded,
    guards_beside,
    memory_max_bytes,
)
from actors.messages import Identity, ReadersWaiting, RotReported
from actors.station import Station
from actors.topology import Counter
from logstore.limits import (
    CONTROL_MESSAGE_MAX_BYTES,
    SUBSCRIPTION_MAX_BYTES,
)
from logstore.model import Index, Lsn
from logstore.raft.effects import ReadIndexAnswered
from logstore.settings import PortOffset
from logstore.storage.damaged_lsns import UNKNOWN_LSNS, damaged_lsns
from logstore.storage.log_reader import LogReader
from transport import link

# Damaged entries that were reported to raft are remembered; beyond so many they are reported again.
ROT_REMEMBERED_MAX = 1_024


class EgressActor:
    """Serves fetches and publishes the tail."""

    full_turn = SERVED_MAX  # a publication is bounded by more

    def __init__(self, station: Station) -> None:
        self._station = station
        self._slots = station.slots
        self._from_raft = station.inbox(topology.RAFT)
        self._to_raft = station.outbox(topology.RAFT)
        self._log: LogReader | None = None
        self._generation = -1
        self._identity: Identity | None = None
        self._are_readers_waiting = False  # what raft was told last
        self._rotted: set[Index] = set()
        self._now_ns = 0

    def on_start(self) -> None:
        config, node = self._station.config, self._station.node
        small = CONTROL_MESSAGE_MAX_BYTES
        links = self._station.host.links
        self._fetch_socket = links.router_bind(
            config.endpoint(node, PortOffset.FETCH),
            lane=link.Lane.BULK,
            message_size_max=small,
            high_water_mark=ANSWERS_QUEUED_MAX,
            insecure=config.cluster.insecure,
        )
        self._tail_socket = links.xpub_bind(
            config.endpoint(node, PortOffset.TAIL),
            message_size_max=SUBSCRIPTION_MAX_BYTES,
            insecure=config.cluster.insecure,
        )
        self._guard = ConnectionGuard(
            [
                Guarded("fetch", self._fetch_socket, small, ANSWERS_QUEUED_MAX * small),
                Guarded("tail", self._tail_socket, small, ANSWERS_QUEUED_MAX * small),
            ],
            self._slots,
            CounterSlots(
                open=Counter.EGRESS_CONNECTIONS,
                most=Counter.EGRESS_CONNECTIONS_MAX,
                refused=Counter.EGRESS_CONNECTIONS_REFUSED,
                ended=Counter.EGRESS_CONNECTIONS_ENDED,
            ),
            memory_max_bytes=memory_max_bytes(self._station),
            guards=guards_beside(self._station),
        )
        self._tail = Tail(self._tail_socket, self._slots, self._guard)
        self._requests = Requests(
            self._fetch_socket,
            self._slots,
            node=node,
            fetch_max_bytes=config.limits.fetch_max_bytes,
            replica_limits=self._station.limits,
            ask_read_index=self._to_raft.send,
            report_rot=self._report_rot,
        )

    def do_work(self, now_ns: int) -> int:
        self._now_ns = now_ns
        self._guard.do_work(now_ns)
        work = 0
        for message in self._from_raft.receive():
            work += 1
            if isinstance(message, Identity):
                self._take_identity(message)
            elif isinstance(message, ReadIndexAnswered):
                self._requests.on_read_index(message)
        log, bounds = self._readable()
        work += self._requests.do_work(now_ns, log, bounds)
        work += self._tail.do_work(now_ns, log, bounds)
        are_waiting = self._tail.was_subscribed or self._requests.has_waiting
        if are_waiting != self._are_readers_waiting:
            self._are_readers_waiting = are_waiting
            self._to_raft.send(ReadersWaiting(are_waiting))
        self._to_raft.flush()
        return work

    def wait_on(self) -> Sequence[Any]:
        return (self._fetch_socket, self._tail_socket)

    def next_timer_ns(self) -> int:
        return min(
            self._tail.next_timer_ns,
            self._requests.next_timer_ns,
            self._guard.next_timer_ns,
            self._to_raft.retry_ns(self._now_ns),
        )

    def on_close(self) -> None:
        self._fetch_socket.close()
        self._tail_socket.close()
        self._close_log()

    def _take_identity(self, identity: Identity) -> None:
        if self._identity is None or self._identity.cluster_id != identity.cluster_id:
            self._close_log()
        self._identity = identity
        self._requests.identity = identity
        self._tail.set_identity(identity, self._station.node)

    def _readable(self) -> tuple[LogReader | None, Bounds | None]:
        """The reader and what it may show now; None while the replica is not ready (V4), or is no
        member any more: then no file stays open, for the writer may remove any. None, too, while
        the headers cannot be read, for want of descriptors.

        Loads the visible LSN first and the map generation after it (V7)."""
        slots = self._slots
        visible = slots[Counter.VISIBLE]
        visible_index = slots[Counter.VISIBLE_INDEX]
        generation = slots[Counter.MAP_GENERATION]
        if visible == 0 or self._identity is None:
            self._close_log()
            return None, None
        try:
            log = self._log_of(generation)
        except OSError:
            self._close_log()
            return None, None
        return log, Bounds(log.start.next_lsn, Lsn(visible - 1), Index(visible_index))

    def _log_of(self, generation: int) -> LogReader:
        """The files as of this map generation."""
        if self._log is None:
            self._log = LogReader(self._station.host.disk, self._station.folder)
        elif generation != self._generation:
            self._log.refresh()
        self._generation = generation
        return self._log

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
        self._log = None

    def _report_rot(self, index: Index) -> None:
        """Report damage to raft once, however often a client asks for the entry."""
        if index in self._rotted:
            return
        if len(self._rotted) >= ROT_REMEMBERED_MAX:
            self._rotted.clear()
        self._rotted.add(index)
        lsns = UNKNOWN_LSNS if self._log is None else damaged_lsns(self._log, index, index)
        self._to_raft.send(RotReported(index, *lsns))
