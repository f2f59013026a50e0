"""The bulk lane: the leader's appends, from the socket into the payload ring (SAFETY W1, W7, U2),
and its log start, for a log that ends below it (G5).

Owns the bulk socket's reading side and one message for which there was no room. When the ring is
full the lane is left unread, and the leader stops when its window is full. Messages of a dead
stream, and entries that raft has accepted already, are dropped before the copy.

Where there is no room for long, on a full disk say, the leader begins its stream again and again,
each time on a new connection, whose messages lie in this process's memory. So after `patience_ns`
the lane is read again, and what finds no room is dropped: the leader sends it again.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from crc32c import crc32c

from actors.host import Clock
from actors.ingress.peers import Peers
from actors.ingress.sockets_and_rings import ToRaft
from actors.ingress.stampers import Stampers
from actors.topology import Counter
from actors.trace import is_sampled
from logstore.errors import FormatError
from logstore.format.configuration_body import Configuration, decode_configuration
from logstore.format.message import Envelope
from logstore.format.peer_messages import Append, AppendFrame, Install
from logstore.model import NO_INDEX, NO_TERM, EntryKind, Term
from logstore.raft.effects import StreamAccepted
from logstore.raft.events import AppendReceived, InstallReceived
from transport import link
from transport.payload_ring import PayloadRingWriter
from transport.ports import Socket

# Bounds one do_work at about 16 x 1 MiB of CRC and copy: 6 ms.
MESSAGES_PER_WORK = 16

_log = logging.getLogger(__name__)


class _Held(msgspec.Struct, frozen=True, gc=False):
    envelope: Envelope
    append: Append
    body: memoryview | None
    received_ns: int  # 0: the entry is not sampled
    configuration: Configuration | None  # what a CONFIG holds


class PeerBulk:
    """Reads appends."""

    def __init__(
        self,
        socket: Socket,
        peers: Peers,
        ring: PayloadRingWriter,
        to_raft_bulk: ToRaft,
        slots: memoryview,
        clock: Clock,
        stampers: Stampers,
        *,
        patience_ns: int,
    ) -> None:
        self._socket = socket
        self._peers = peers
        self._ring = ring
        self._to_raft_bulk = to_raft_bulk
        self._slots = slots
        self._clock = clock
        self._stampers = stampers
        self._patience_ns = patience_ns
        self._held: _Held | InstallReceived | None = None
        self._full_since_ns: int | None = None  # the rings; None: the last message found room
        self._accepted = StreamAccepted(NO_TERM, 0, NO_INDEX, False)

    @property
    def is_held_back(self) -> bool:
        """A message waits for room in a ring, so the socket is not read."""
        return self._held is not None

    def on_stream_accepted(self, accepted: StreamAccepted) -> None:
        """Raft has these entries: further copies of them are dropped."""
        self._accepted = accepted

    def do_work(self, now_ns: int) -> int:
        """Pass on the message that waited for room, then read while there is room."""
        work = 0
        while work < MESSAGES_PER_WORK:
            if not self._pass_on(now_ns):
                return work
            frames = link.try_receive_views(self._socket)
            if frames is None:
                return work
            work += 1
            self._held = self._check(frames)
        self._pass_on(now_ns)
        return work

    def _pass_on(self, now_ns: int) -> bool:
        """Whether no message waits for room any more."""
        if self._held is None:
            return True
        if self._offer_to_raft(self._held):
            self._full_since_ns = None
        elif self._full_since_ns is None:
            self._full_since_ns = now_ns
            return False
        elif now_ns < self._full_since_ns + self._patience_ns:
            return False
        else:
            self._slots[Counter.BULK_STALE] += 1
        self._held = None
        return True

    def _check(self, frames: list[memoryview]) -> _Held | InstallReceived | None:
        """The append or log start in a message, if it is whole, comes from a peer, and is not
        stale."""
        if not 2 <= len(frames) <= 3:
            self._slots[Counter.FRAMES_DROPPED] += 1
            return None
        found = self._peers.decode(bytes(frames[0]), frames[1], is_bulk=True)
        if found is None:
            return None
        envelope, message = found
        if isinstance(message, Install) and len(frames) == 2:
            return self._check_install(envelope, message)
        append = self._append_of(message)
        body = frames[2] if len(frames) == 3 else None
        size_bytes = len(body) if body is not None else 0
        if (
            append is None
            or size_bytes != append.header.body_size
            or append.header.term > append.term  # U2
        ):
            self._slots[Counter.FRAMES_DROPPED] += 1
            return None
        if self._is_stale(append):
            self._slots[Counter.BULK_STALE] += 1
            return None
        received_ns = self._clock.monotonic_ns() if is_sampled(append.header.index) else 0
        if size_bytes > self._ring.size_bytes:
            self._refuse(envelope, append)
            return None
        if body is not None and crc32c(body) != append.header.body_crc:
            self._slots[Counter.BULK_CORRUPT] += 1
            _log.error(
                "entry %d of node %d: its body's CRC does not fit; dropped",
                append.header.index,
                envelope.sender,
            )
            return None
        try:
            configuration = _configuration_in(append, body)
        except FormatError as error:
            self._slots[Counter.BULK_CORRUPT] += 1
            _log.error(
                "entry %d of node %d: %s; dropped", append.header.index, envelope.sender, error
            )
            return None
        return _Held(envelope, append, body, received_ns, configuration)

    def _check_install(self, envelope: Envelope, install: Install) -> InstallReceived | None:
        if self._is_of_dead_stream(install.term, install.stream):
            self._slots[Counter.BULK_STALE] += 1
            return None
        return InstallReceived(envelope.sender, envelope.correlation, install)

    def _refuse(self, envelope: Envelope, append: Append) -> None:
        """Its leader admits larger entries, or once did. Only a larger ring helps: report that to
        the operator."""
        size_bytes = append.header.body_size
        if size_bytes > self._slots[Counter.RING_TOO_SMALL]:
            self._slots[Counter.RING_TOO_SMALL] = size_bytes
            _log.error(
                "entry %d of node %d has %d bytes, and the payload ring of this replica %d: it can"
                " take no entry from here on; raise `ring` under [limits] and start it again",
                append.header.index,
                envelope.sender,
                size_bytes,
                self._ring.size_bytes,
            )

    def _append_of(self, message: Any) -> Append | None:
        if not isinstance(message, AppendFrame):
            return None
        try:
            return message.append()
        except FormatError:
            return None

    def _is_stale(self, append: Append) -> bool:
        """W1: of an older term or stream, of a dead stream, or accepted already."""
        accepted = self._accepted
        if self._is_of_dead_stream(append.term, append.stream):
            return True
        is_same = (append.term, append.stream) == (accepted.term, accepted.stream)
        return is_same and append.header.index <= accepted.index

    def _is_of_dead_stream(self, term: Term, stream: int) -> bool:
        accepted = self._accepted
        if term != accepted.term:
            return term < accepted.term
        return stream < accepted.stream or (stream == accepted.stream and accepted.is_dead)

    def _offer_to_raft(self, held: _Held | InstallReceived) -> bool:
        """Copy the body into the ring and pass the append on; False: no room now."""
        if self._to_raft_bulk.is_congested:
            return False
        if isinstance(held, InstallReceived):
            self._to_raft_bulk.send(held)
            return True
        written = self._ring.try_write([held.body] if held.body is not None else [])
        if written is None:
            return False
        if held.received_ns:
            index = held.append.header.index
            self._stampers.received.stamp_at(index, held.received_ns)
            self._stampers.proposed.stamp(index)
        self._to_raft_bulk.send(
            AppendReceived(
                held.envelope.sender,
                held.envelope.correlation,
                held.append,
                *written,
                held.configuration,
            )
        )
        return True


def _configuration_in(append: Append, body: memoryview | None) -> Configuration | None:
    """What the entry holds, if it is a CONFIG.

    Raises:
      FormatError: a CONFIG that is none, or of a newer version.
    """
    if append.header.kind != EntryKind.CONFIG:
        return None
    return decode_configuration(b"" if body is None else body)
