"""How much of its answers may be under way to a client, and to all of them (SAFETY W6).

ZeroMQ's marks count messages, and an answer is up to 4 MiB: 20 clients that asked 40 times and read
nothing cost 700 MiB (2026-11-22). So an answer is made once there is room for it: what was sent to
the client and has not arrived there is counted in bytes. A client with nothing under way gets one
answer of any size; beyond the sum of all, whoever takes longest to receive what is under way is
left.
"""

from __future__ import annotations

import msgspec

from actors.topology import Counter
from transport.ports import AnsweringSocket

# Only where there is no room left for anybody: a client that has not received in so long what was
# under way to it then does not read, or reads so slowly that others should not wait for it.
BUSY_MAX_NS = 10_000_000_000
# Clients of whom it is not known that they have received everything: many are gone meanwhile.
BUSY_SPARE = 1_024


class UnderWay(msgspec.Struct):
    """Bytes under way to a client as last asked, and how many of those that were under way at
    `since_ns` still are."""

    size_bytes: int
    since_ns: int
    left_bytes: int


class AnswerCredit:
    """Asked before each answer, told of each."""

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
        if now_ns != self._asked_all_ns:  # 2 µs each, and everybody who waits comes by here
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
