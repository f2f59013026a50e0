"""How much of its answers may be under way to a client, and to all of them (SAFETY W6).

ZeroMQ's high-water marks count messages, and an answer has up to 4 MiB: 20 clients that asked 40
times and read nothing cost 700 MiB (2026-11-22). So an answer is made only once there is room for
it. What counts is the bytes that were sent to a client and have not arrived there. A client with
nothing under way gets one answer of any size. Where all clients together have too much under way,
the connection that has taken longest to receive its answers is closed.
"""

from __future__ import annotations

import msgspec

from actors.topology import Counter
from transport.ports import AnsweringSocket

# Applies only where no client has room left: a client that has not received the same answers for so
# long does not read, or reads so slowly that others should not wait for it.
BUSY_MAX_NS = 10_000_000_000
# Clients that may not have received everything yet are remembered; beyond so many each is asked
# about again, for many are gone meanwhile.
BUSY_SPARE = 1_024


class UnderWay(msgspec.Struct):
    """Bytes under way to a client as last asked, and how many of those that were under way at
    `since_ns` still are."""

    size_bytes: int
    since_ns: int
    left_bytes: int


class AnswerCredit:
    """Decides before each answer whether there is room for it, and counts each."""

    def __init__(
        self,
        socket: AnsweringSocket,
        slots: memoryview,
        *,
        per_client_bytes: int,
        total_max_bytes: int,
    ) -> None:
        self._socket = socket
        self._slots = slots
        self._per_client_bytes = per_client_bytes
        self._total_max_bytes = total_max_bytes
        self._busy: dict[bytes, UnderWay] = {}  # by routing id
        self._busy_max = BUSY_SPARE
        self._total_bytes = 0
        self._asked_all_ns = -1

    def asked_by(self, client: bytes) -> None:
        """The request that was just received is of this client."""
        self._socket.asked_by(client)

    def has_room(self, client: bytes, size_bytes: int, now_ns: int) -> bool:
        """Whether an answer of about this size may be made now."""
        under_way = self._ask(client, now_ns)
        if under_way and under_way + size_bytes > self._per_client_bytes:
            return False
        if self._total_bytes + size_bytes <= self._total_max_bytes:
            return True
        if now_ns != self._asked_all_ns:  # 2 µs each, and each request that waits comes here
            self._ask_all(now_ns)
        if self._total_bytes == 0 or self._total_bytes + size_bytes <= self._total_max_bytes:
            return True
        self._leave_slowest(now_ns)
        return False

    def answered(self, client: bytes, size_bytes: int, now_ns: int) -> None:
        """An answer of this size was sent."""
        self._socket.answered(client, size_bytes)
        self._total_bytes += size_bytes
        busy = self._busy.get(client)
        if busy is not None:
            busy.size_bytes += size_bytes
            return
        if len(self._busy) >= self._busy_max:
            self._ask_all(now_ns)
            self._busy_max = BUSY_SPARE + 2 * len(self._busy)
        self._busy[client] = UnderWay(size_bytes, now_ns, size_bytes)

    def _ask_all(self, now_ns: int) -> None:
        self._asked_all_ns = now_ns
        for each in tuple(self._busy):
            self._ask(each, now_ns)

    def _ask(self, client: bytes, now_ns: int) -> int:
        under_way = self._socket.unacknowledged_bytes(client)
        busy = self._busy.get(client)
        if busy is None:
            if under_way:
                self._total_bytes += under_way
                self._busy[client] = UnderWay(under_way, now_ns, under_way)
            return under_way
        arrived = busy.size_bytes - under_way
        self._total_bytes -= arrived
        if not under_way:
            del self._busy[client]
            return 0
        busy.size_bytes = under_way
        busy.left_bytes -= arrived
        if busy.left_bytes <= 0:  # a reader that always has answers under way, but others
            busy.since_ns, busy.left_bytes = now_ns, under_way
        return under_way

    def _leave_slowest(self, now_ns: int) -> None:
        client = min(self._busy, key=lambda each: self._busy[each].since_ns)
        if now_ns - self._busy[client].since_ns >= BUSY_MAX_NS:
            self._socket.end_connection(client)
            self._slots[Counter.EGRESS_CONNECTIONS_ENDED] += 1
