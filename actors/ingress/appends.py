"""Batches of producers go into the stream of proposals, or are refused (SAFETY E1, E9, E11, W7).

Owns the PULL of the append port, and the ROUTER of the produce port, where requests of producers
come in between; the raw port is read with them. A leader reads them only while it may propose; a
replica that does not lead reads them to refuse what comes. What was read is at most one group that
is being formed and one batch beyond it; and one that is held, because its session's window is full
and its producer cannot know (E10). Nothing is read while one is held, so batches keep their order.
The port that filled a group is read last for the next one, so that neither waits for the others to
be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from actors.ingress.ack_levels import Held, has_window_room
from actors.ingress.acks import AckFeed
from actors.ingress.admission import Admission
from actors.ingress.codec_level import refusal_of_codec
from actors.ingress.comparisons import Comparisons
from actors.ingress.control import ControlPort
from actors.ingress.groups import Origin
from actors.ingress.imports import Imports
from actors.ingress.pushes import BadPush, Push, Unreadable, read_push
from actors.ingress.raw_port import RawPort
from actors.ingress.replica_info import ReplicaInfo
from actors.topology import Counter
from logstore.limits import CONTROL_MESSAGE_MAX_BYTES
from logstore.session.session import Refused
from transport import link
from transport.ports import Socket

# Groups formed and proposed in one do_work. A message counts as 1 KiB at least: 4 x 1,024 batches
# of 7 µs bound the loop at 29 ms, far below a heartbeat (measured 2026-11-20, 1 KiB payloads).
_GROUPS_PER_WORK = 4
_CHARGE_MIN_BYTES = 1_024
_REFUSED_PER_WORK_BYTES = 256 * _CHARGE_MIN_BYTES
# Requests at the produce port: one SessionState of 4,096 rows takes 3 ms (V6).
_REQUESTS_PER_WORK = 16
# From this size on a view of libzmq's buffer is cheaper than a copy.
_VIEW_FROM_BYTES = 32_768

_Frames: TypeAlias = Sequence[bytes | memoryview]
_FEED = b""  # in place of a connection: answers go to the ack feed


class _Port(msgspec.Struct):
    """A socket, and what is done with its messages: whether one was a request. `size_bytes`: of all
    frames of the last one."""

    socket: Socket
    take: Callable[[_Frames, int], bool]
    size_bytes: int = 0

    def receive(self) -> _Frames | None:
        """Hot: one call a message."""
        frames: _Frames | None
        if self.size_bytes >= _VIEW_FROM_BYTES:  # those that follow are as large, mostly
            frames = link.try_receive_views(self.socket)
        else:
            frames = link.try_receive(self.socket)
        if frames is not None:
            self.size_bytes = sum(map(len, frames))
        return frames


class Appends:
    """Reads batches. `produce`: the socket of the produce port; None: there is no such port."""

    def __init__(
        self,
        socket: Socket,
        produce: Socket | None,
        admission: Admission,
        comparisons: Comparisons,
        acks: AckFeed,
        control: ControlPort,
        raw: RawPort,
        replica: ReplicaInfo,
        slots: memoryview,
        *,
        batch_max_bytes: int,
    ) -> None:
        self._ports = [_Port(socket, self._take_pushed)]
        if produce is not None:
            self._ports.append(_Port(produce, self._take_produced))
        self._raw = raw
        self._raw_socket: Socket | None = None  # that is among the ports
        self._produce = produce
        self._admission = admission
        self._comparisons = comparisons
        self._acks = acks
        self._control = control
        self._replica = replica
        self._slots = slots
        self._batch_max_bytes = batch_max_bytes
        self._imports = Imports(admission, acks, replica, batch_max_bytes=batch_max_bytes)
        self._requests_left = 0  # in this do_work
        # A batch of a session whose window is full.
        self._held: tuple[Push, memoryview] | None = None

    @property
    def wants_to_read(self) -> bool:
        """Whether do_work would read the sockets now."""
        if self._admission.table is None:
            return not self._replica.is_leading and not self._admission.is_rebuilding
        return self._admission.room_bytes > 0 and self._held is None

    @property
    def sockets(self) -> list[Socket]:
        """What is read once a message is there."""
        return [port.socket for port in self._ports] if self.wants_to_read else []

    @property
    def can_take_held(self) -> bool:
        """Whether do_work would take the held batch now, or refuse it. A commit makes room in its
        session's window, and its message wakes this actor; what else it may have waited for, room
        in a ring or the end of a snapshot, does not."""
        if self._held is None:
            return False
        table = self._admission.table
        if table is None:
            return not (self._replica.is_leading or self._admission.is_rebuilding)
        return self._admission.room_bytes > 0 and has_window_room(table, self._held[0].header)

    def do_work(self, now_ns: int) -> int:
        """Read, join and propose; returns how many messages and groups were handled."""
        admission = self._admission
        self._requests_left = _REQUESTS_PER_WORK
        self._open_or_close_raw(now_ns)
        if admission.table is None:
            return self._refuse_all(now_ns) if self.wants_to_read else 0
        work = self._take_held(now_ns) if self.can_take_held else 0
        for _ in range(_GROUPS_PER_WORK):
            room_bytes = admission.room_bytes
            read = 0
            if room_bytes > 0:
                admission.appends_had_their_turn()
            if room_bytes > 0 and self._held is None:
                read, room_bytes = self._read(room_bytes, now_ns)
                self._raw.flush()
            work += read + admission.propose()
            if room_bytes > 0 or not self._requests_left:
                break  # the sockets are empty, or others have their turn
        return work

    def _read(self, room_bytes: int, now_ns: int) -> tuple[int, int]:
        """Read until there is no room or nothing left: how many messages, and the room then. Hot:
        one loop a message. Where a replica does not lead, each is refused."""
        read = 0
        for number, port in enumerate(self._ports, 1):
            while room_bytes > 0 and self._held is None and (frames := port.receive()) is not None:
                read += 1
                room_bytes -= max(port.size_bytes, _CHARGE_MIN_BYTES)
                if port.take(frames, now_ns):
                    room_bytes = self._room_after_request(room_bytes)
            if room_bytes <= 0 or self._held is not None:
                self._ports = self._ports[number:] + self._ports[:number]
                break
        return read, room_bytes

    def _open_or_close_raw(self, now_ns: int) -> None:
        self._raw.open_or_close(now_ns)
        if self._raw.socket is not self._raw_socket:
            self._ports = [port for port in self._ports if port.socket is not self._raw_socket]
            self._raw_socket = self._raw.socket
            if self._raw_socket is not None:
                self._ports.append(_Port(self._raw_socket, self._raw.take))

    def _room_after_request(self, room_bytes: int) -> int:
        """A session that was opened may have made a snapshot due, and nothing is read before it."""
        self._requests_left -= 1
        if not self._requests_left:
            return 0
        admission = self._admission
        return room_bytes if admission.table is None else min(room_bytes, admission.room_bytes)

    def _take_pushed(self, frames: _Frames, now_ns: int) -> bool:
        """What came to the append port: a batch or an import. Hot: one call a batch."""
        frame = frames[0]
        if len(frames) != 1 or not frame:
            self._slots[Counter.FRAMES_DROPPED] += 1
        elif not self._take_batch(frame, _FEED, now_ns):
            why_dropped = self._imports.take(frame)
            if why_dropped is not None:
                self._slots[why_dropped] += 1
        return False

    def _take_produced(self, frames: _Frames, now_ns: int) -> bool:
        """What came to the produce port: a batch or a request. Hot: one call a batch."""
        if len(frames) == 2 and self._take_batch(frames[1], bytes(frames[0]), now_ns):
            return False
        if self._produce is None or sum(map(len, frames[1:])) > CONTROL_MESSAGE_MAX_BYTES:
            self._slots[Counter.FRAMES_DROPPED] += 1
            return False
        self._control.take_produce_request(self._produce, [bytes(each) for each in frames], now_ns)
        return True

    def _take_batch(self, frame: bytes | memoryview, connection: bytes, now_ns: int) -> bool:
        """Whether it was a batch, sound or damaged; what is damaged is counted and dropped (W6)."""
        push = read_push(frame, self._batch_max_bytes, connection)
        if not isinstance(push, Push):
            return self._refuse(push)
        self._offer(push, memoryview(frame)[push.start :], now_ns)
        return True

    def _take_held(self, now_ns: int) -> int:
        """Offer the held batch again; returns how many were offered."""
        held, self._held = self._held, None
        if held is None:
            return 0
        self._offer(*held, now_ns)
        return 1

    def _offer(self, push: Push, batch: memoryview, now_ns: int) -> None:
        """Hot: one call a batch."""
        outcome: Origin | Refused | Held | None
        if push.expectation is not None:  # their level is that of compressed batches, too
            outcome = self._comparisons.take(push, batch, push.expectation, now_ns)
        else:
            outcome = refusal_of_codec(self._admission, push.header)
            if outcome is None:
                outcome = self._admission.take_batch(push, batch, now_ns)
        if outcome is None:
            return
        if isinstance(outcome, Held):
            self._held = push, batch
        elif isinstance(outcome, Refused):
            header = push.header
            numbers = (header.producer_id, header.producer_epoch, header.sequence, header.count)
            self._acks.refuse(numbers, push.route, outcome.code, outcome.detail)
        else:
            self._acks.acknowledge((outcome,))

    def _refuse(self, bad: BadPush | Unreadable) -> bool:
        if bad is Unreadable.GARBAGE:
            return False
        if bad is Unreadable.DAMAGED:
            self._slots[Counter.BULK_CORRUPT] += 1
        else:
            self._acks.refuse(bad.batch, bad.route, bad.code, 0)
        return True

    def _refuse_all(self, now_ns: int) -> int:
        """This replica does not lead: refuse, with the leader's node id as a hint."""
        return self._take_held(now_ns) + self._read(_REFUSED_PER_WORK_BYTES, now_ns)[0]
