"""The replicator process: all traffic with one peer, in every role (SAFETY W4, W7).

It owns both lanes to the peer and the stream of entries. It originates nothing: raft orders control
messages, and appends follow `Describe` in index order. It reports when the control lane loses its
connection, since the peer may be gone. It sends from a private copy of ring or file
bytes, so a slow peer blocks nothing else.

Who the peer is, the configuration file says, but of a spare, and then each `PeerIs` of raft.
With another replica or address sockets and stream begin again: nothing of one peer reaches another.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from actors import topology
from actors.messages import (
    Identity,
    InitReceived,
    JoinReceived,
    PeerIs,
    PeerTaken,
    RotReported,
    StartReceived,
    TellJoin,
    TellStart,
)
from actors.replicator.bodies import Bodies
from actors.station import Station
from actors.topology import Counter, counter_of
from actors.trace import TracePoint
from logstore.errors import FormatError
from logstore.format.message import Envelope, decode_message, encode_message
from logstore.format.peer_messages import (
    Append,
    AppendAccepted,
    AppendFrame,
    AppendPersisted,
    AppendReject,
    ControlMessage,
    InitPrepared,
    InitStatus,
    JoinAnswer,
    Removed,
    StartMessage,
)
from logstore.limits import BULK_WINDOW_ENTRIES, CONTROL_MESSAGE_MAX_BYTES
from logstore.model import NO_INDEX, NO_NODE, Index, Lsn, NodeId
from logstore.raft.bootstrap import SendInit
from logstore.raft.effects import Describe, Lead, Rewind, Send, StopLeading
from logstore.raft.events import ConnectionLost, ControlReceived, StreamAnswer
from logstore.raft.stream import FollowerStream, SendFromFile, SendFromRing, SendInstall
from logstore.settings import PortOffset
from transport import link
from transport.errors import LinkError

# Appends sent per do_work: 32 x 100 us of Python bound how long an answer waits.
SENDS_MAX = 32
# A lane that accepted nothing (no connection, mark reached), and an entry that is not written yet,
# are tried again after this long, twice as long each time: a peer that is down would otherwise cost
# 200 wake-ups a second.
RETRY_NS = 5_000_000
RETRY_MAX_NS = 80_000_000
# After this long an address to which no socket could be opened is tried again.
REOPEN_NS = 1_000_000_000
NEVER_NS = 1 << 62

log = logging.getLogger("logstore.replicator")


class _Sockets:
    """Both lanes to one peer."""

    def __init__(self, control: Any, watch: Any, bulk: Any) -> None:
        self.control = control
        self.watch = watch
        self.bulk = bulk


class ReplicatorActor:
    """All traffic to `peer`; NO_NODE: there is none."""

    full_turn = SENDS_MAX  # answers taken from a lane, or appends

    def __init__(self, station: Station) -> None:
        self._station = station
        self._slots = station.slots
        self.peer = NO_NODE
        self._from_raft = station.inbox(topology.RAFT)
        self._to_raft = station.outbox(topology.RAFT)
        self._bound = PeerIs(NO_NODE, b"", "", 0)
        self._sockets: _Sockets | None = None  # to the peer, while there is one
        self._stream = self._make_stream()
        self._bodies = Bodies(station, report_rot=self._report_rot)
        self._identity: Identity | None = None
        self._peer_uuid = b""  # bound, or the first one heard
        self._logged_text = ""
        self._unsent: tuple[int, Index, list[bytes]] | None = None  # of a stream, an entry
        self._sent = station.stamper(TracePoint.SENT)
        self._confirmed = station.stamper(TracePoint.CONFIRMED)
        self._reopen_ns = NEVER_NS
        self._retry_ns = NEVER_NS
        self._retry_wait_ns = RETRY_NS
        self._retry_due_ns = 0  # of what waits now
        self._now_ns = 0

    def on_start(self) -> None:
        """Begin with the peer of the configuration file, whatever its uuid; a spare has none."""
        station = self._station
        if station.actor not in topology.SPARE_NAMES:
            peer = NodeId(int(station.actor.rpartition("-")[2]))
            settings = station.config.node(peer)
            self._be_bound(PeerIs(peer, b"", settings.host, settings.port))

    def do_work(self, now_ns: int) -> int:
        self._now_ns = now_ns
        work = 0
        for message in self._from_raft.receive():
            self._on_command(message)
            work += 1
        if now_ns >= self._reopen_ns:
            self._open_sockets()
        if self._sockets is not None:
            work += self._receive_answers(self._sockets.control)
            work += self._receive_answers(self._sockets.bulk)
            if self._sockets.watch.was_lost():
                self._to_raft.send(ConnectionLost(self.peer))
                work += 1
        self._to_raft.flush()  # raft may commit by these answers: send them before the appends
        self._reconnect_if_silent(now_ns)
        work += self._send_appends()
        self._bodies.publish_hold(self._stream)
        self._bodies.close_if_stale()
        self._to_raft.flush()
        return work

    def wait_on(self) -> Sequence[Any]:
        sockets = self._sockets
        return () if sockets is None else (sockets.control, sockets.bulk, sockets.watch.source)

    def next_timer_ns(self) -> int:
        ring_ns = self._to_raft.retry_ns(self._now_ns)
        return min(self._retry_ns, self._reopen_ns, self._stream.deadline_ns, ring_ns)

    def on_close(self) -> None:
        self._bodies.release_hold()
        self._close_sockets()

    # --- commands of raft ---

    def _on_command(self, message: Any) -> None:
        match message:
            case Describe():
                self._stream.on_describe(message)
            case Send():
                self._send_control(message.message)
            case SendInit() | TellStart() | TellJoin():
                self._send_control(message.message)
            case Lead():
                self._bodies.open_log(self._station.folder)
                self._stream.on_lead(message)
            case Rewind():
                self._stream.on_rewind(message)
            case StopLeading():
                if message.term >= self._stream.term:
                    self._unsent = None  # a stop of an older term than the last Lead stops nothing
                self._stream.on_stop(message)
            case PeerIs():
                self._be_bound(message)
                self._to_raft.send(PeerTaken(message.seq))
            case Identity():
                if self._identity is None or self._identity.cluster_id != message.cluster_id:
                    self._bodies.close_log()
                self._identity = message

    def _send_control(self, message: Any) -> None:
        sockets = self._sockets
        if sockets is None or not self._try_send(sockets.control, [self._encode(message)]):
            # raft's timers send again; a queued vote or heartbeat would only be stale (M5)
            self._slots[Counter.SENDS_DROPPED] += 1

    def _encode(self, message: Any) -> bytes:
        identity = self._identity
        return encode_message(
            message,
            cluster_id=identity.cluster_id if identity else bytes(16),
            sender_uuid=identity.replica_uuid if identity else bytes(16),
            sender=self._station.node,
            target=self.peer,
            correlation=identity.boot if identity else 0,
        )

    def _try_send(self, socket: Any, frames: list[bytes]) -> bool:
        return self._identity is not None and link.try_send(socket, frames)

    # --- who the peer is ---

    def _be_bound(self, peer: PeerIs) -> None:
        """Talk to `peer` from here on. The replica that was heard under this number and address may
        be named by its uuid now: then nothing changes."""
        before, self._bound = self._bound, peer
        has_moved = (before.node, before.host, before.port) != (peer.node, peer.host, peer.port)
        known = self._peer_uuid if peer.uuid else before.uuid  # "" again: any replica may answer
        if not has_moved and known in (b"", peer.uuid):
            self._peer_uuid = peer.uuid or self._peer_uuid
            return
        self._close_sockets()
        self._bodies.release_hold()
        self._bodies.close_log()
        self.peer, self._peer_uuid, self._logged_text = peer.node, peer.uuid, ""
        self._stream = self._make_stream()
        self._unsent = None
        self._forget_wait()
        if peer.node != NO_NODE:
            self._open_sockets()

    def _make_stream(self) -> FollowerStream:
        config = self._station.config
        return FollowerStream(
            self.peer,
            mode=config.raft.stream_mode,
            window_bytes=config.limits.bulk_window_bytes,
            window_entries=BULK_WINDOW_ENTRIES,
            resend_timeout_ns=config.raft.election_timeout_ns,
        )

    def _open_sockets(self) -> None:
        """Connect; later, where the address is none or there are no descriptors now. An address
        comes from the log, which every replica has: it must end no process."""
        links = self._station.host.links
        with ExitStack() as undo:
            try:
                control = links.dealer_connect(
                    self._endpoint(PortOffset.PEER_CONTROL),
                    lane=link.Lane.CONTROL,
                    message_size_max=CONTROL_MESSAGE_MAX_BYTES,
                )
                undo.callback(control.close)
                bulk = self._open_bulk()
                undo.callback(bulk.close)
                watch = links.watch_connection(control)
            except LinkError as error:
                self._log_once(f"cannot be connected to: {error}", "this is tried again")
                self._reopen_ns = self._now_ns + REOPEN_NS
                return
            undo.pop_all()
        self._reopen_ns = NEVER_NS
        self._sockets = _Sockets(control, watch, bulk)

    def _open_bulk(self) -> Any:
        return self._station.host.links.dealer_connect(
            self._endpoint(PortOffset.PEER_BULK),
            lane=link.Lane.BULK,
            message_size_max=CONTROL_MESSAGE_MAX_BYTES,
        )

    def _endpoint(self, offset: PortOffset) -> str:
        return f"tcp://{self._bound.host}:{self._bound.port + offset}"

    def _close_sockets(self) -> None:
        if self._sockets is not None:
            self._sockets.watch.close()
            self._sockets.control.close()
            self._sockets.bulk.close()
        self._sockets = None
        self._reopen_ns = NEVER_NS

    # --- answers of the peer ---

    def _receive_answers(self, socket: Any) -> int:
        work = 0
        while work < SENDS_MAX and (frames := link.try_receive(socket)) is not None:
            work += 1
            try:
                if len(frames) != 1:
                    raise FormatError(f"an answer is one frame, got {len(frames)}")
                envelope, message = decode_message(frames[0])
            except FormatError as error:
                self._slots[counter_of(error)] += 1
                continue
            if isinstance(message, InitStatus | InitPrepared):
                self._to_raft.send(InitReceived(self.peer, envelope.sender_uuid, message))
            elif isinstance(message, Removed | JoinAnswer) and self._is_of_cluster(envelope):
                # Of any replica: what it says is true whichever says it (C10, L4), and while this
                # one was away, or asked, another may have come in the place of the one it knew.
                self._to_raft.send(JoinReceived(self.peer, envelope.sender_uuid, message))
            elif not self._is_from_peer(envelope):
                self._slots[Counter.FRAMES_FOREIGN] += 1
            elif isinstance(message, AppendAccepted | AppendPersisted | AppendReject):
                boot = envelope.correlation
                for answer in self._stream.on_answer(boot, message, self._now_ns):
                    if isinstance(answer, AppendPersisted):
                        self._confirmed.stamp_through(answer.index)
                    self._to_raft.send(StreamAnswer(self.peer, boot, answer))
            elif isinstance(message, ControlMessage):
                self._to_raft.send(ControlReceived(self.peer, envelope.correlation, message))
            elif isinstance(message, StartMessage):
                uuid, boot = envelope.sender_uuid, envelope.correlation
                self._to_raft.send(StartReceived(self.peer, uuid, boot, message))
            else:
                self._slots[Counter.FRAMES_DROPPED] += 1
        return work

    def _is_of_cluster(self, envelope: Envelope) -> bool:
        """Whether cluster, sender and target fit."""
        identity = self._identity
        if identity is None or envelope.cluster_id != identity.cluster_id:
            return False
        return envelope.sender == self.peer and envelope.target == self._station.node

    def _is_from_peer(self, envelope: Envelope) -> bool:
        """Whether cluster, sender and target fit, and the peer's uuid is the
        one first seen (M6, L3)."""
        identity = self._identity
        if identity is None or not self._is_of_cluster(envelope):
            return False
        uuid = envelope.sender_uuid
        if uuid == identity.replica_uuid:
            self._log_once("has this replica's uuid: one data folder is a copy of the other's")
            return False
        if not self._peer_uuid:
            self._peer_uuid = uuid
        if uuid != self._peer_uuid:
            self._log_once("speaks under another replica uuid than before: its data folder changed")
            return False
        return True

    def _log_once(self, text: str, follows: str = "its messages are dropped") -> None:
        """Log an error, and what follows from it, once."""
        if text != self._logged_text:
            self._logged_text = text
            log.error("node %d %s; %s", self.peer, text, follows)

    # --- the stream of entries ---

    def _reconnect_if_silent(self, now_ns: int) -> None:
        """Begin the stream again, on a new connection, if its answers are missing.

        The bulk lane has no heartbeats, since back-pressure may leave it unread. So a peer that
        vanished while it was sending would keep the old connection for minutes. Where no new one
        can be opened, the stream begins again on the old one, and a timeout later this is tried
        again.
        """
        stream = self._stream.stream
        self._stream.on_tick(now_ns)
        if self._stream.stream == stream or self._sockets is None:
            return
        self._unsent = None
        try:
            bulk = self._open_bulk()
        except LinkError as error:
            self._log_once(f"cannot be connected to again: {error}", "this is tried again")
            return
        self._sockets.bulk.close()
        self._sockets.bulk = bulk

    def _send_appends(self) -> int:
        """Send what the window allows, from the ring or the files, in index order; first of all
        the log start, if the peer must get that."""
        self._retry_ns = NEVER_NS
        if self._identity is None or self._sockets is None:
            return 0  # these orders were for a predecessor; raft sends our identity next
        for sent in range(SENDS_MAX):
            if self._unsent is not None:
                stream, index, frames = self._unsent
                if stream == self._stream.stream:
                    if index != NO_INDEX:
                        self._sent.stamp(index)
                    if not self._try_send(self._sockets.bulk, frames):
                        self._retry_later()
                        return sent
                self._unsent = None
                self._forget_wait()
                continue
            written_seq = self._slots[Counter.WRITTEN]
            step = self._stream.next_send(written_seq, self._now_ns)
            if step is None:
                if self._stream.waits_for_files(written_seq):
                    self._retry_later()
                else:
                    self._forget_wait()
                return sent
            message = self._frames(step)
            if message is None:
                self._retry_later()
                return sent
            self._unsent = (self._stream.stream, _index_of(step), message)
        return SENDS_MAX

    def _retry_later(self) -> None:
        """Whatever wakes this process earlier tries, too, and puts the next try off no further."""
        if self._now_ns >= self._retry_due_ns:
            self._retry_due_ns = self._now_ns + self._retry_wait_ns
            self._retry_wait_ns = min(2 * self._retry_wait_ns, RETRY_MAX_NS)
        self._retry_ns = self._retry_due_ns

    def _forget_wait(self) -> None:
        self._retry_wait_ns, self._retry_due_ns = RETRY_NS, 0

    def _report_rot(self, index: Index, first_lsn: Lsn, last_lsn: Lsn) -> None:
        self._to_raft.send(RotReported(index, first_lsn, last_lsn))

    def _frames(self, step: SendFromRing | SendFromFile | SendInstall) -> list[bytes] | None:
        """The frames of one message; None when its entry cannot be read now."""
        if isinstance(step, SendInstall):
            return [self._encode(step.install)]
        found = self._bodies.of(step)
        if found is None:
            self._stream.unsend(step)
            return None
        header, body = found
        if isinstance(step, SendFromFile):
            self._stream.on_size_known(step, header.body_size)
        append = Append(step.term, step.stream, step.commit, header)
        first = self._encode(AppendFrame.of(append))
        return [first, body] if body else [first]


def _index_of(step: SendFromRing | SendFromFile | SendInstall) -> Index:
    """The entry that is sent; NO_INDEX: none."""
    match step:
        case SendFromRing():
            return step.header.index
        case SendFromFile():
            return step.index
        case SendInstall():
            return NO_INDEX
