"""Acknowledgements and refusals: on the ack feed by producer, with the welcome of subscribers, and
to the connections of the produce port (SAFETY E9, E10).

Owns the XPUB socket. Decides nothing: `admission` decides what is committed. All rows of one
(producer, epoch, route) that a do_work produces are sent in one message. XPUB drops messages at a
slow subscriber's high-water mark, and what a connection takes no more is dropped as well, so no
client may depend on one: SessionState is the authority.
"""

from __future__ import annotations

from collections.abc import Iterable

from actors.guard import ConnectionGuard
from actors.ingress.groups import Origin, Route
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
_NO_ROUND = 0  # at the produce port
_OF_NO_PRODUCER = (0, 0, 0)  # of the raw port, which answers nothing


class AckFeed:
    """Collects rows; `flush` sends them. `produce`: the socket of the produce port, if there is
    one."""

    def __init__(
        self,
        socket: Socket,
        produce: Socket | None,
        replica: ReplicaInfo,
        slots: memoryview,
        guard: ConnectionGuard,
    ) -> None:
        self._socket = socket
        self._produce = produce
        self._guard = guard
        self._replica = replica
        self._slots = slots
        self._rows: dict[tuple[int, int, Route], list[bytes]] = {}

    def acknowledge(self, origins: Iterable[Origin]) -> None:
        """These batches are committed. Hot: one row a batch."""
        rows = self._rows
        pack = ACK_ROW.pack
        last_key: tuple[int, int, Route] | None = None
        into: list[bytes] = []
        for producer_id, producer_epoch, route, row in origins:
            key = (producer_id, producer_epoch, route)
            if key != last_key:
                last_key = key
                into = rows.setdefault(key, [])
            into.append(pack(row.sequence, row.first_lsn, row.count, _OK, 0))

    def tell_flushed(self, origins: Iterable[Origin]) -> None:
        """This leader has flushed these batches: they are provisional, without LSNs (E10)."""
        for producer_id, producer_epoch, route, row in origins:
            rows = self._rows.setdefault((producer_id, producer_epoch, route), [])
            rows.append(ACK_ROW.pack(row.sequence, 0, row.count, ErrorCode.PROVISIONAL, 0))

    def refuse(
        self,
        batch: tuple[int, int, int, int],
        route: Route,
        code: ErrorCode,
        detail: int,
        attempt: int = 0,
    ) -> None:
        """A batch (producer id, producer epoch, sequence, count) was not taken. The detail of
        NOT_LEADER is who leads. `attempt`: which one was refused for good (E11)."""
        producer_id, producer_epoch, sequence, count = batch
        if code is ErrorCode.NOT_LEADER:
            detail = self._replica.leader
        self._slots[Counter.APPENDS_REFUSED] += 1
        rows = self._rows.setdefault((producer_id, producer_epoch, route), [])
        rows.append(ACK_ROW.pack(sequence, attempt, count, code, detail))

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
        """Send what was collected."""
        self._rows.pop(_OF_NO_PRODUCER, None)
        if not self._rows:
            return
        for (producer_id, producer_epoch, route), rows in self._rows.items():
            if isinstance(route, int):
                message = Acks(producer_id, producer_epoch, route, b"".join(rows))
                self._publish(producer_id.to_bytes(8, "little"), self._replica.encode(message))
            else:
                message = Acks(producer_id, producer_epoch, _NO_ROUND, b"".join(rows))
                self._send(self._produce, route, self._replica.encode(message))
        self._rows.clear()

    def _publish(self, topic: bytes, message: bytes) -> None:
        self._send(self._socket, topic, message)

    def _send(self, socket: Socket | None, to: bytes, message: bytes) -> None:
        if socket is None or not link.try_send(socket, (to, message)):
            self._slots[Counter.SENDS_DROPPED] += 1
