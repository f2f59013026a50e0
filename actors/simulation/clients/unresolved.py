"""The batches of one producer epoch and what became of each: what to send, in which order (E7, E9).

Owns their fate and tells the ledger of it. Must not know sockets or rounds. Invariants: a sequence
keeps its bytes; what the log acknowledged once it never answers otherwise.
"""

from __future__ import annotations

from collections import deque

from actors.simulation.checkers.client_facts import AppendAcknowledged, AppendRefused, BatchRefused
from actors.simulation.checkers.invariant import Invariant
from actors.simulation.clients.append import Append
from actors.simulation.clients.wire import Wire
from logstore.errors import ErrorCode
from logstore.format.client_messages import ACK_ROW


class Unresolved:
    """`waiting` by sequence, in the order of their sequences; `settled` are final."""

    def __init__(self, wire: Wire, *, is_dense: bool) -> None:
        self._wire = wire
        self._is_dense = is_dense
        self.waiting: dict[int, Append] = {}
        self.settled: dict[int, Append] = {}
        self.to_send: deque[Append] = deque()
        self.withheld = -1  # a sequence not sent on purpose, although later ones are
        self.size_bytes = 0

    def add(self, append: Append) -> None:
        self.waiting[append.sequence] = append
        self.size_bytes += len(append.batch)

    def oldest_since_ns(self) -> int:
        """When the oldest batch began to wait for its answer; 0 if there is none."""
        for append in self.waiting.values():
            return append.since_ns
        return 0

    def acknowledge(self, sequence: int, first_lsn: int, count: int) -> None:
        """The log says: committed, with these LSNs."""
        wire = self._wire
        append = self.waiting.get(sequence)
        if append is None:
            self._acknowledge_again(sequence, first_lsn, count)
            return
        if not append.is_sent:
            wire.violated(Invariant.I7, f"sequence {sequence} was acknowledged before it was sent")
        elif 0 <= self.withheld < sequence:
            text = f"sequence {sequence} was stored, {self.withheld} before it was never sent"
            wire.violated(Invariant.I7, text)
        if count != append.count:
            text = f"{append.count} payloads of sequence {sequence}, {count} acknowledged"
            wire.violated(Invariant.I4, text)
        self._settle(append)
        append.first_lsn = first_lsn
        wire.count("acknowledged")
        host = wire.host
        host.tell(AppendAcknowledged(append.operation, first_lsn, count))

    def _acknowledge_again(self, sequence: int, first_lsn: int, count: int) -> None:
        wire, append = self._wire, self.settled.get(sequence)
        if append is None:
            wire.violated(Invariant.I7, f"sequence {sequence} was never sent, and acknowledged")
            return
        wire.count("acknowledged-again")
        if append.first_lsn == 0:
            append.first_lsn = first_lsn
        elif append.first_lsn != first_lsn or append.count != count:
            text = (
                f"sequence {sequence} has {append.count} payloads at LSN {append.first_lsn}, "
                f"told again as {count} at {first_lsn}"
            )
            wire.violated(Invariant.I7, text)
        host = wire.host
        host.tell(AppendAcknowledged(append.operation, first_lsn, count))

    def forget(self, sequence: int) -> None:
        """Committed, and its LSNs are not known any more."""
        append = self.waiting.get(sequence)
        if append is None:
            return
        if not append.is_sent:
            self._wire.violated(Invariant.I7, f"sequence {sequence} is committed, and was not sent")
        self._wire.count("committed-lsn-unknown")
        self._settle(append)
        host = self._wire.host
        code = ErrorCode.COMMITTED_LSN_UNKNOWN
        host.tell(AppendRefused(append.operation, code))

    def reconcile(self, next_sequence: int, rows: bytes, now_ns: int) -> bool:
        """Sort everything by what SessionState says; `to_send` is what has to be sent, in order.

        Returns:
          Whether a batch that waits, or a new one, can be the next one in this log. If not, the
          node does not know what it acknowledged (an old leader may say so), or has lost it.
        """
        known = {row[0]: row for row in ACK_ROW.iter_unpack(rows)}
        to_send: list[Append] = []
        self.withheld = -1
        for sequence, append in list(self.waiting.items()):
            append.since_ns = now_ns
            row = known.get(sequence)
            if row is None:
                if sequence >= next_sequence:
                    to_send.append(append)
                else:
                    self.forget(sequence)
                    self._wire.host.tell(BatchRefused(ErrorCode.COMMITTED_LSN_UNKNOWN))
            elif row[3] == ErrorCode.OK:
                self.acknowledge(sequence, row[1], row[2])
            elif not append.is_sent:
                text = f"sequence {sequence} is in the log, and was not sent"
                self._wire.violated(Invariant.I7, text)
            else:
                self._wire.count("in-log-unacknowledged")
        self.to_send = deque(to_send)
        if not self._is_dense:
            return True
        next_new = self._next_new()
        if next_sequence > next_new:
            text = f"the log expects sequence {next_sequence}, {next_new} was never sent"
            self._wire.violated(Invariant.I7, text)
        return next_sequence >= (to_send[0].sequence if to_send else next_new)

    def _next_new(self) -> int:
        """The lowest dense sequence above every one that was used."""
        newest = max(self.waiting, default=-1)
        return max(newest, max(self.settled, default=-1)) + 1

    def _settle(self, append: Append) -> None:
        del self.waiting[append.sequence]
        self.settled[append.sequence] = append
        self.size_bytes -= len(append.batch)
