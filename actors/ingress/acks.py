"""The ack feed: acknowledgements and refusals by producer, and the welcome of subscribers (SAFETY
E9).

Owns the XPUB socket. Decides nothing: `admission` decides what is committed. All rows of one
(producer, epoch, round) that a do_work produces are sent in one message. XPUB drops messages at a
slow subscriber's high-water mark, so no client may depend on one: SessionState is the authority.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.guard import ConnectionGuard
from actors.ingress.groups import Origin
from actors.ingress.replica_info import ReplicaInfo
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import ACK_ROW, Acks, Welcome
from logstore.model import Lsn
from transport import link
from transport.ports import Socket

_SUBSCRIPTIONS_MAX = 256  # per do_work
_SUBSCRIBED = 1
_OK = ErrorCode.OK


class AckFeed:
    """Collects rows; `flush` publishes them."""

    def __init__(
        self, socket: Socket, replica: ReplicaInfo, slots: memoryview, guard: ConnectionGuard
    ) -> None:
        self._socket = socket
        self._guard = guard
        self._replica = replica
        self._slots = slots
        self._rows: dict[tuple[int, int, int], list[bytes]] = {}

    def acknowledge(self, origins: Iterable[Origin]) -> None:
        """These batches are committed. Hot: one row a batch."""
        rows = self._rows
        pack = ACK_ROW.pack
        last_key: tuple[int, int, int] | None = None
        into: list[bytes] = []
        for producer_id, producer_epoch, round_, row in origins:
            key = (producer_id, producer_epoch, round_)
            if key != last_key:
                last_key = key
                into = rows.setdefault(key, [])
            into.append(pack(row.sequence, row.first_lsn, row.count, _OK, 0))

    def refuse(
        self,
        batch: tuple[int, int, int, int],
        round_: int,
        code: ErrorCode,
        detail: int,
    ) -> None:
        """A batch (producer id, producer epoch, sequence, count) was not taken. The detail of
        NOT_LEADER is who leads."""
        producer_id, producer_epoch, sequence, count = batch
        if code is ErrorCode.NOT_LEADER:
            detail = self._replica.leader
        self._slots[Counter.APPENDS_REFUSED] += 1
        rows = self._rows.setdefault((producer_id, producer_epoch, round_), [])
        rows.append(ACK_ROW.pack(sequence, 0, count, code, detail))

    def take_subscriptions(self, now_ns: int) -> int:
        """Answer every new subscription under its topic: rows that follow the Welcome reach it."""
        taken = 0
        while taken < _SUBSCRIPTIONS_MAX and (frames := link.try_receive(self._socket)) is not None:
            taken += 1
            is_taken = self._guard.subscribed(self._socket, frames[0], now_ns)
            if is_taken and frames[0][:1] == bytes((_SUBSCRIBED,)):
                visible = max(0, self._slots[Counter.VISIBLE] - 1)
                self._publish(frames[0][1:], self._replica.encode(Welcome(Lsn(visible))))
        return taken

    def flush(self) -> None:
        """Publish what was collected."""
        if not self._rows:
            return
        for (producer_id, producer_epoch, round_), rows in self._rows.items():
            message = Acks(producer_id, producer_epoch, round_, b"".join(rows))
            self._publish(producer_id.to_bytes(8, "little"), self._replica.encode(message))
        self._rows.clear()

    def _publish(self, topic: bytes, message: bytes) -> None:
        if not link.try_send(self._socket, (topic, message)):
            self._slots[Counter.SENDS_DROPPED] += 1
