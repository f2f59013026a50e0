"""How much of its answers may be under way to a client, and to all of them (SAFETY W6).

ZeroMQ's marks count messages, and an answer is up to 4 MiB: 20 clients that asked 40 times and read
nothing cost 700 MiB (2026-11-22). So an answer is made once there is room for it: what was sent to
the client and has not arrived there is counted in bytes. A client with nothing under way gets one
answer of any size; beyond the sum of all, whoever has had answers under way longest is left.
"""

from __future__ import annotations

from logstore import limits
from transport.ports import AnsweringSocket

# Only where there is no room left for anybody: a client that has had answers under way without a
# break for so long does not read them, or reads so slowly that others should not wait for it.
BUSY_MAX_NS = 10_000_000_000


class AnswerCredit:
    """Asked before each answer, told of each."""

    def __init__(self, socket: AnsweringSocket) -> None:
        self._socket = socket
        # by routing id: bytes under way as last asked, and since when there have been any
        self._busy: dict[bytes, tuple[int, int]] = {}
        self._total_bytes = 0

    def asked_by(self, client: bytes) -> None:
        """The request that was just received is of this client."""
        self._socket.asked_by(client)

    def has_room(self, client: bytes, size_bytes: int, now_ns: int) -> bool:
        """Whether an answer of about this size may be made now."""
        under_way = self._ask(client, now_ns)
        if under_way and under_way + size_bytes > limits.ANSWERS_PER_CLIENT_BYTES:
            return False
        if self._total_bytes + size_bytes <= limits.ANSWERS_BYTES_MAX:
            return True
        for each in tuple(self._busy):
            self._ask(each, now_ns)
        if self._total_bytes == 0 or self._total_bytes + size_bytes <= limits.ANSWERS_BYTES_MAX:
            return True
        self._leave_slowest(now_ns)
        return False

    def answered(self, client: bytes, size_bytes: int, now_ns: int) -> None:
        """An answer of this size was sent."""
        self._socket.answered(client, size_bytes)
        under_way, since_ns = self._busy.get(client, (0, now_ns))
        self._note(client, under_way + size_bytes, since_ns)

    def _ask(self, client: bytes, now_ns: int) -> int:
        under_way = self._socket.unacknowledged_bytes(client)
        self._note(client, under_way, self._busy.get(client, (0, now_ns))[1])
        return under_way

    def _note(self, client: bytes, under_way: int, since_ns: int) -> None:
        before, _ = self._busy.pop(client, (0, 0))
        self._total_bytes += under_way - before
        if under_way:
            self._busy[client] = (under_way, since_ns)

    def _leave_slowest(self, now_ns: int) -> None:
        client = min(self._busy, key=lambda each: self._busy[each][1])
        if now_ns - self._busy[client][1] >= BUSY_MAX_NS:
            self._socket.end_connection(client)
