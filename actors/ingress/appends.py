"""The append port: pushed batches go into the stream of proposals, or are refused (SAFETY E1, E9,
W7).

Owns the PULL socket. A leader reads it only while it may propose; a replica that does not lead
reads it to refuse what comes. What was read is at most one group that is being formed and one batch
beyond it.
"""

from __future__ import annotations

from actors.ingress.acks import AckFeed
from actors.ingress.admission import Admission
from actors.ingress.imports import Imports
from actors.ingress.pushes import PREFIX_SIZE, BadPush, Push, Unreadable, read_push
from actors.ingress.replica_info import ReplicaInfo
from actors.topology import Counter
from logstore.session.session import Refused
from transport import link
from transport.ports import Socket

# Groups formed and proposed in one do_work. A message counts as 1 KiB at least: 4 x 1,024 batches
# of 7 µs bound the loop at 29 ms, far below a heartbeat (measured 2026-11-20, 1 KiB payloads).
_GROUPS_PER_WORK = 4
_CHARGE_MIN_BYTES = 1_024
_REFUSALS_PER_WORK = 256
# From this frame size on a view of libzmq's buffer is cheaper than a copy.
_VIEW_FROM_BYTES = 32_768


class Appends:
    """Reads pushed batches."""

    def __init__(
        self,
        socket: Socket,
        admission: Admission,
        acks: AckFeed,
        replica: ReplicaInfo,
        slots: memoryview,
        *,
        batch_max_bytes: int,
    ) -> None:
        self._socket = socket
        self._admission = admission
        self._acks = acks
        self._replica = replica
        self._slots = slots
        self._batch_max_bytes = batch_max_bytes
        self._imports = Imports(admission, acks, replica, batch_max_bytes=batch_max_bytes)
        self._has_large = False

    @property
    def wants_to_read(self) -> bool:
        """Whether do_work would read the socket now."""
        if self._admission.table is None:
            return not self._replica.is_leading and not self._admission.is_rebuilding
        return self._admission.room_bytes > 0

    def do_work(self, now_ns: int) -> int:
        """Read, join and propose; returns how many messages and groups were handled."""
        admission = self._admission
        if admission.table is None:
            return self._refuse(now_ns) if self.wants_to_read else 0
        work = 0
        for _ in range(_GROUPS_PER_WORK):
            room_bytes = admission.room_bytes
            read = 0
            if room_bytes > 0:
                admission.appends_had_their_turn()
            while room_bytes > 0 and (frame := self._receive()) is not None:
                read += 1
                room_bytes -= max(len(frame), _CHARGE_MIN_BYTES)
                if frame:
                    self._take(frame, now_ns)
            work += read + admission.propose()
            if room_bytes > 0:  # the socket is empty
                break
        return work

    def _receive(self) -> bytes | memoryview | None:
        """The next frame, empty if the message has another shape; None: nothing there."""
        frames: list[bytes] | list[memoryview] | None
        if self._has_large:
            frames = link.try_receive_views(self._socket)
        else:
            frames = link.try_receive(self._socket)
        if frames is None:
            return None
        frame = frames[0]
        self._has_large = len(frame) >= _VIEW_FROM_BYTES
        if len(frames) != 1 or not frame:
            self._slots[Counter.FRAMES_DROPPED] += 1
            return b""
        return frame

    def _take(self, frame: bytes | memoryview, now_ns: int) -> None:
        """Hot: one call a batch."""
        push = read_push(frame, self._batch_max_bytes)
        if not isinstance(push, Push):
            self._take_other(frame, push)
            return
        outcome = self._admission.take_batch(push, memoryview(frame)[PREFIX_SIZE:], now_ns)
        if outcome is None:
            return
        if isinstance(outcome, Refused):
            header = push.header
            batch = (header.producer_id, header.producer_epoch, header.sequence, header.count)
            self._acks.refuse(batch, push.round, outcome.code, outcome.detail)
        else:
            self._acks.acknowledge((outcome,))

    def _take_other(self, frame: bytes | memoryview, bad: BadPush | Unreadable) -> None:
        """An import, or a batch to refuse; what is unreadable is counted and dropped (W6)."""
        if bad is Unreadable.GARBAGE:
            why_dropped = self._imports.take(frame)
            if why_dropped is not None:
                self._slots[why_dropped] += 1
        elif bad is Unreadable.DAMAGED:
            self._slots[Counter.BULK_CORRUPT] += 1
        else:
            self._acks.refuse(bad.batch, bad.round, bad.code, 0)

    def _refuse(self, now_ns: int) -> int:
        """This replica does not lead: refuse, with the leader's node id as a hint."""
        work = 0
        while work < _REFUSALS_PER_WORK and (frame := self._receive()) is not None:
            work += 1
            if frame:
                self._take(frame, now_ns)
        return work
