"""The tail feed: groups as they become visible, notices for large ones, tips (SAFETY V8).

Reads no group while it has no subscriber. A subscriber fetches what it misses: the feed promises
only that a `Tip` follows each burst within 50 ms, and one a second in quiet times.

libzmq also passes on the cancellation of a subscription that was never made, so that a stranger's
looks like the last subscriber's. It stops groups until the next subscription, but never Tips, from
which a subscriber learns what to fetch (test_cancelling_subscriptions_that_were_never_made…).
"""

from __future__ import annotations

from typing import Any

from actors.egress.reads import Bounds, whole_group
from actors.guard import ConnectionGuard
from actors.messages import Identity
from actors.topology import Counter
from logstore.errors import CorruptData
from logstore.format.client_messages import TailGroup, TailNotice, Tip, Welcome
from logstore.format.entry import takes_lsns
from logstore.format.message import encode_message
from logstore.format.raft_record import RaftRecord
from logstore.limits import TAIL_GROUP_MAX_BYTES
from logstore.model import NO_INDEX, NO_NODE, Index, Lsn, NodeId
from logstore.storage.log_reader import BelowLogStart, LogReader
from transport import link

TIP_AFTER_BURST_NS = 20_000_000
TIP_EVERY_NS = 1_000_000_000
# Entries published per do_work: at most 64 x 256 KiB, about 10 ms.
PUBLISH_MAX = 64
SUBSCRIPTIONS_MAX = 64  # taken per do_work; one welcome answers them all
NEVER_NS = 1 << 62


class Tail:
    """The XPUB side of the tail. Without a subscriber it sends only a Tip a burst; before the first
    one, nothing."""

    def __init__(self, socket: Any, slots: memoryview, guard: ConnectionGuard) -> None:
        self._socket = socket
        self._guard = guard
        self._slots = slots
        self._identity: Identity | None = None
        self._node = NO_NODE
        self.was_subscribed = False
        self._is_watched = False
        self._published_index = NO_INDEX
        self._shown_lsn = Lsn(0)
        self._tip_due_ns = NEVER_NS
        self._is_ready = False

    @property
    def next_timer_ns(self) -> int:
        """When a Tip is due; a replica that is not ready yet is woken by raft's bell."""
        return self._tip_due_ns if self._is_ready else NEVER_NS

    def set_identity(self, identity: Identity, node: NodeId) -> None:
        self._identity = identity
        self._node = node

    def do_work(self, now_ns: int, log: LogReader | None, bounds: Bounds | None) -> int:
        work = self._take_subscriptions(now_ns, bounds)
        self._is_ready = bounds is not None and self._identity is not None
        if log is None or bounds is None or self._identity is None:
            return work
        if not self._is_watched or self._published_index == NO_INDEX:
            # A new subscriber fetches older groups, up to the Tip that it gets.
            self._published_index = bounds.visible_index
        if not self.was_subscribed:
            return work
        published = 0
        if bounds.visible_index > self._published_index:
            published = self._publish(log, bounds)
            work += published
        # A backlog may go on after a Tip, such as a new subscriber's: another Tip follows it, too.
        if published or bounds.visible_lsn > self._shown_lsn:
            self._shown_lsn = bounds.visible_lsn
            self._tip_due_ns = min(self._tip_due_ns, now_ns + TIP_AFTER_BURST_NS)
        if now_ns >= self._tip_due_ns:
            self._send(Tip(bounds.visible_lsn))
            self._tip_due_ns = now_ns + TIP_EVERY_NS
            work += 1
        return work

    def _take_subscriptions(self, now_ns: int, bounds: Bounds | None) -> int:
        work, is_welcome_due = 0, False
        while work < SUBSCRIPTIONS_MAX and (frames := link.try_receive(self._socket)) is not None:
            work += 1
            if not self._guard.subscribed(self._socket, frames[0], now_ns):
                continue
            if frames[0][:1] == b"\x01":
                self.was_subscribed = self._is_watched = is_welcome_due = True
            elif frames[0] == b"\x00":
                self._is_watched = False
        if is_welcome_due:
            self._send(Welcome(bounds.visible_lsn if bounds else Lsn(0)))
            self._tip_due_ns = now_ns
        return work

    def _publish(self, log: LogReader, bounds: Bounds) -> int:
        """Publish the entries that became visible, a bounded number at a time."""
        work = 0
        while self._published_index < bounds.visible_index and work < PUBLISH_MAX:
            index = Index(self._published_index + 1)
            try:
                record = log.record(index)
                header = record.header
                if header.next_lsn > bounds.visible_lsn + 1:
                    break  # the index was loaded after the LSN and is ahead of it
                if takes_lsns(header.kind):
                    self._publish_group(log, bounds, record)
            except CorruptData:
                pass  # subscribers see the jump and fetch; the fetch names the damage
            except BelowLogStart:
                # The fetch names the log start. It may lie 100 million entries on (G5).
                index = log.start.index
            except OSError:
                break  # no descriptor is left, say: subscribers learn of it by the next Tip
            self._published_index = index
            work += 1
        return work

    def _publish_group(self, log: LogReader, bounds: Bounds, record: RaftRecord) -> None:
        header = record.header
        if header.body_size > TAIL_GROUP_MAX_BYTES:
            self._send(TailNotice(header.first_lsn, Lsn(header.next_lsn - 1)))
            return
        self._send(TailGroup(bounds.visible_lsn), whole_group(log, record))

    def _send(self, message: Any, *more: bytes) -> None:
        identity = self._identity
        frame = encode_message(
            message,
            cluster_id=identity.cluster_id if identity else bytes(16),
            sender_uuid=identity.replica_uuid if identity else bytes(16),
            sender=self._node,
            target=NO_NODE,
            correlation=identity.boot if identity else 0,
        )
        if not link.try_send(self._socket, [frame, *more]):
            self._slots[Counter.SENDS_DROPPED] += 1
