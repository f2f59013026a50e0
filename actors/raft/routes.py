"""Where each effect of the core is sent.

Each target gets its effects in order. Only entry descriptors may be left out, when a replicator's
ring is full (M8). The replicator then reads the files. The newest descriptor, which says where the
log ends, is kept and offered again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from actors import messages, topology
from actors.raft.peer_routes import Bind, Order, PeerRoutes, Unserved, Want
from actors.raft.replicator_inbox import ReplicatorInbox
from actors.station import Outbox, Station
from actors.topology import Counter
from actors.trace import TracePoint
from logstore.format.peer_messages import NO_ROUND, AppendAccepted, AppendPersisted, Heartbeat
from logstore.model import NO_NODE, NodeId, Term
from logstore.raft import effects
from logstore.raft.bootstrap import SendInit

COALESCED_MAX_NS = 20_000_000
# If an append came within this time after the last commit, the news of the next commit waits this
# long for an append to carry it.
COMMIT_NEWS_DELAY_NS = 4_000_000
COALESCED_MAX = 1_024
NEVER_NS = 1 << 62

log = logging.getLogger("logstore.raft")


class ReplicatorRoute:
    """The ring to one replicator.

    A replicator that crashes again and again may read nothing for hours (M3). So messages that
    raft's timers repeat are dropped and counted when the ring is full; only orders wait.
    """

    def __init__(self, outbox: Outbox, slots: memoryview) -> None:
        self.outbox = outbox
        self._slots = slots
        self._newest_descriptor: bytes | None = None
        self._commit_news: effects.Send | None = None
        self.deadline_ns = NEVER_NS
        self._has_committed = False  # since the last flush
        self._commit_ns = 0  # the last commit
        self._was_described = False  # an entry since the last flush
        self._is_followed = False  # an entry came within COMMIT_NEWS_DELAY_NS of the last commit

    def send(self, message: Any) -> None:
        """An order to the replicator. Every later message to the peer carries a commit index that
        is at least as high, so commit news that still waits is dropped (M8)."""
        self._drop_commit_news()
        self.outbox.send(message)

    def send_control(self, send: effects.Send) -> None:
        """Commit news is held where appends come one after the other: the next one carries it. It
        leaves with the next flush where they do not."""
        message = send.message
        if isinstance(message, Heartbeat) and message.round == NO_ROUND:
            self._commit_news = send
            self._has_committed = True
        elif isinstance(message, Heartbeat):
            self._drop_commit_news()
            self.offer(send)
        else:
            self.offer(send)

    def offer(
        self, message: effects.Send | SendInit | messages.TellStart | messages.TellJoin
    ) -> None:
        """Send a message to the peer, or drop it if the ring is full, as a network may."""
        if not self.outbox.try_send_encoded(messages.encode(message)):
            self._slots[Counter.SENDS_DROPPED] += 1

    def reset(self) -> None:
        """A new process will read this ring: drop what waits for the old one."""
        self.forget_news()
        self.outbox.drop_unsent()

    def forget_news(self) -> None:
        """Drop what was to be offered to the peer: another one will be behind this ring."""
        self._drop_commit_news()
        self._newest_descriptor = None

    def describe(self, described: bytes) -> None:
        self._drop_commit_news()
        self._was_described = True
        if not self.outbox.try_send_encoded(described):
            self._newest_descriptor = described

    def flush(self, now_ns: int) -> None:
        if self._has_committed:
            self._has_committed, self._commit_ns = False, now_ns
        if self._was_described:
            self._was_described = False
            self._is_followed = now_ns - self._commit_ns < COMMIT_NEWS_DELAY_NS
        if self._commit_news is not None:
            if self.deadline_ns == NEVER_NS:
                self.deadline_ns = now_ns + self._is_followed * COMMIT_NEWS_DELAY_NS
            if now_ns >= self.deadline_ns:
                self.offer(self._commit_news)
                self._drop_commit_news()
        if self._newest_descriptor is not None and self.outbox.try_send_encoded(
            self._newest_descriptor
        ):
            self._newest_descriptor = None
        self.outbox.flush()

    def _drop_commit_news(self) -> None:
        self._commit_news = None
        self.deadline_ns = NEVER_NS


class IngressRoute:
    """The ring to ingress. Messages that need no action are coalesced, COALESCED_MAX_NS at most.

    They are Accepted, StreamAccepted and AppendAccepted. The commit or flush that follows
    within milliseconds then wakes ingress and the peer's replicator once instead of twice. If
    the disk is slow they are kept for far less than the resend timeout that waits for them
    (SAFETY W1). Order is kept.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._coalesced: list[Any] = []
        self._due_ns = NEVER_NS

    @property
    def deadline_ns(self) -> int:
        """When the coalesced messages must be sent."""
        return self._due_ns

    def retry_ns(self, now_ns: int) -> int:
        """When what found no room in the ring is offered again."""
        return self._outbox.retry_ns(now_ns)

    def send(self, message: Any) -> None:
        self._release()
        self._outbox.send(message)

    def coalesce(self, message: Any) -> None:
        """Keep `message` until another one is sent, or its time is up."""
        self._coalesced.append(message)
        if len(self._coalesced) >= COALESCED_MAX:
            self._release()

    def answer(self, answer: effects.Answer) -> None:
        if isinstance(answer.message, AppendAccepted):
            self.coalesce(answer)
            return
        if isinstance(answer.message, AppendPersisted):
            self._drop_accepted(answer.peer, answer.message)
        self.send(answer)

    def flush(self, now_ns: int) -> None:
        if self._coalesced:
            if self._due_ns == NEVER_NS:
                self._due_ns = now_ns + COALESCED_MAX_NS
            elif now_ns >= self._due_ns:
                self._release()
        self._outbox.flush()

    def _drop_accepted(self, peer: NodeId, persisted: AppendPersisted) -> None:
        """Drop AppendAccepted that `persisted` includes: what is persisted was accepted."""
        self._coalesced = [
            kept
            for kept in self._coalesced
            if not (
                isinstance(kept, effects.Answer)
                and kept.peer == peer
                and isinstance(kept.message, AppendAccepted)
                and kept.message.term == persisted.term
                and kept.message.index <= persisted.index
            )
        ]

    def _release(self) -> None:
        for message in self._coalesced:
            self._outbox.send(message)
        self._coalesced.clear()
        self._due_ns = NEVER_NS


class Routes:
    """Every ring that raft writes."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._slots = station.slots
        self._writer = station.outbox(topology.WRITER)
        self.ingress = IngressRoute(station.outbox(topology.INGRESS))
        self._egress = station.outbox(topology.EGRESS)
        self.supervisor = station.outbox(topology.SUPERVISOR)
        nodes = {peer: station.config.node(peer) for peer in station.peers}
        self._peers = PeerRoutes(
            station.node, {peer: (each.host, each.port) for peer, each in nodes.items()}
        )
        # Of the replicators that run, by actor; and of those that serve a peer, by its number.
        self._running: dict[str, ReplicatorRoute] = {}
        self._replicators: dict[NodeId, ReplicatorRoute] = {}
        self.inboxes: dict[str, ReplicatorInbox] = {}
        # Peers of which a replicator that runs has just been told: they need their streams.
        self.rebound: list[NodeId] = []
        for peer in station.peers:
            self._open(topology.replicator(peer))
        self._egress_bell = station.bell_of(topology.EGRESS)
        self._is_egress_gone = False  # it died, and nobody has made room in its ring since
        self._retry_ns = NEVER_NS  # when what found no room is offered again
        self._has_visible_moved = False
        self._are_readers_waiting = False
        self._appended = station.stamper(TracePoint.APPENDED)
        self._committed = station.stamper(TracePoint.COMMITTED)
        self._send: dict[type[Any], Callable[[Any], None]] = {
            effects.Describe: self._describe,
            effects.StopLeading: self._stop_leading,
            effects.ReadIndexAnswered: self._answer_read,
            effects.Answer: self.ingress.answer,
            effects.Send: self._to_peer,
            effects.Accepted: self.ingress.coalesce,
            effects.StreamAccepted: self.ingress.coalesce,
        }
        kind: type[Any]
        for kind in (
            effects.Truncate, effects.InstallLog, effects.ApplyTrim,
            effects.MoveLogStart, effects.SaveMeta, effects.SaveLevel,
        ):  # fmt: skip
            self._send[kind] = self._writer.send
        self._send[effects.Persist] = self._persist
        self._send[effects.Committed] = self._commit
        self._send[effects.Lead] = self._lead
        self._send[effects.Rewind] = self._rewind
        for kind in (
            effects.Admit, effects.AdmissionClosed, effects.Flushed, effects.TermEnded,
            effects.LeaderChanged, effects.HoldLogStart, effects.TransferAnswered,
            effects.LevelAnswered, effects.ProposeConfiguration, effects.ChangeAnswered,
        ):  # fmt: skip
            self._send[kind] = self.ingress.send
        self._send[effects.MembersChanged] = self._take_members

    def send(self, effect: Any) -> None:
        """Send an effect to its process."""
        self._send[type(effect)](effect)

    def to_writer(self, message: Any) -> None:
        self._writer.send(message)

    def to_peer(self, message: SendInit | messages.TellStart | messages.TellJoin) -> None:
        """Send a message that is not the core's on our own pair of sockets."""
        route = self._route_to(message.peer)
        if route is not None:
            route.offer(message)

    def take_leader(self, node: NodeId, host: str, port: int) -> None:
        """Another replica says who leads, and where: one without members talks to it, too."""
        self._carry_out(self._peers.take_leader(node, host, port))

    def reset_replicator(self, actor: str, identity: messages.Identity) -> NodeId:
        """That replicator is started, for the first time or after a death: it gets our identity
        first, then its peer. Returns the number that it serves; NO_NODE: none."""
        if actor not in self._running:
            self._open(actor)
        self._running[actor].reset()
        self._running[actor].outbox.send(identity)
        peer = self._peers.begin(actor)
        if peer is not None:
            self._bind(actor, peer)
        self._find_serving()
        return self._peers.number_of(actor)

    @property
    def members(self) -> tuple[NodeId, ...]:
        """The numbers of the other replicas, by the configuration in force; the same object until
        they change."""
        return self._peers.members

    def number_of(self, actor: str) -> NodeId:
        """Whom that replicator serves; NO_NODE: none."""
        return self._peers.number_of(actor)

    def reset_egress(self, identity: messages.Identity) -> None:
        """Egress died: drop what waits for it. The next one gets our identity."""
        self._egress.drop_unsent()
        self._egress.send(identity)
        self._is_egress_gone = True

    def stop_leading(self, peer: NodeId, term: Term) -> None:
        """Order one replicator to send nothing of `term` or older."""
        route = self._route_to(peer)
        if route is not None:
            route.send(effects.StopLeading(term))

    def to_all(self, identity: messages.Identity) -> None:
        self.ingress.send(identity)
        self._egress.send(identity)
        for replicator in self._running.values():
            replicator.outbox.send(identity)

    def set_readers_waiting(self, *, are_waiting: bool) -> None:
        """Whether egress wants its bell when the visible LSN moves. When that begins, it gets one
        bell at once, so it misses nothing."""
        self._are_readers_waiting = self._has_visible_moved = are_waiting

    def on_visible_moved(self) -> None:
        """Egress reads a counter; if readers wait there, its bell rings with the next flush."""
        self._has_visible_moved = self._are_readers_waiting

    @property
    def deadline_ns(self) -> int:
        """When `flush` has something to send without a new message."""
        deadline_ns = min(self.ingress.deadline_ns, self._retry_ns)
        for replicator in self._running.values():
            if replicator.deadline_ns < deadline_ns:
                deadline_ns = replicator.deadline_ns
        return deadline_ns

    def flush(self, now_ns: int) -> None:
        """Offer what found no room, then ring once each bell whose ring has new messages (M7)."""
        # Replicators first: a follower's path to its disk is longer than this replica's.
        for replicator in self._running.values():
            replicator.flush(now_ns)
        self._writer.flush()
        self.ingress.flush(now_ns)
        self._egress.flush()
        self.supervisor.flush()
        self._is_egress_gone = self._is_egress_gone and self._egress.is_congested
        # A replicator or egress that is started again and again may read nothing for hours: what is
        # for it waits for the next flush.
        self._retry_ns = min(
            self._writer.retry_ns(now_ns),
            self.ingress.retry_ns(now_ns),
            NEVER_NS if self._is_egress_gone else self._egress.retry_ns(now_ns),
        )
        if self._has_visible_moved:
            self._has_visible_moved = False
            self._egress_bell.ring()

    def _persist(self, effect: effects.Persist) -> None:
        self._appended.stamp(effect.header.index)
        self._writer.send(effect)

    def _commit(self, effect: effects.Committed) -> None:
        self._committed.stamp_through(effect.index)
        self.ingress.send(effect)

    def _describe(self, effect: effects.Describe) -> None:
        encoded = messages.encode(effect)
        for replicator in self._replicators.values():
            replicator.describe(encoded)

    def _stop_leading(self, effect: effects.StopLeading) -> None:
        for peer, replicator in self._replicators.items():
            if effect.peer in (NO_NODE, peer):
                replicator.send(effect)
        self._carry_out(self._peers.on_stop(effect.peer))

    def _answer_read(self, answer: effects.ReadIndexAnswered) -> None:
        """To the process that asked. On ingress' ring it follows every Committed it includes."""
        is_of_ingress = answer.request_id >= messages.READS_OF_INGRESS
        (self.ingress if is_of_ingress else self._egress).send(answer)

    def _lead(self, effect: effects.Lead) -> None:
        route = self._route_to(effect.peer)
        if route is not None:
            self._peers.on_lead(effect.peer)
            route.send(effect)

    def _rewind(self, effect: effects.Rewind) -> None:
        # It carries no commit index, so commit news keeps waiting.
        route = self._route_to(effect.peer)
        if route is not None:
            route.outbox.send(effect)

    def _to_peer(self, effect: effects.Send) -> None:
        route = self._route_to(effect.peer)
        if route is not None:
            route.send_control(effect)

    # --- who serves whom ---

    def _route_to(self, peer: NodeId) -> ReplicatorRoute | None:
        """None: no replicator serves it now, and what was for it is lost, as in a network. When one
        is started, or told of the peer, its stream begins again."""
        route = self._replicators.get(peer)
        if route is None:
            self._slots[Counter.SENDS_DROPPED] += 1
        return route

    def _take_members(self, effect: effects.MembersChanged) -> None:
        self.ingress.send(effect)
        self._carry_out(self._peers.take_members(effect.configuration))

    def _carry_out(self, orders: Iterable[Order]) -> None:
        for order in orders:
            match order:
                case Bind():
                    self._bind(order.actor, order.peer)
                    if order.peer.node != NO_NODE:
                        self.rebound.append(order.peer.node)
                case Want():
                    self.supervisor.send(messages.ReplicatorWanted(order.actor))
                case Unserved():
                    log.error(
                        "node %d gets nothing from this replica: the %d spare replicators serve"
                        " other members; list the members under [[nodes]] in the configuration"
                        " file of node %d and start it again",
                        order.node,
                        topology.SPARES,
                        self._station.node,
                    )
        self._find_serving()

    def _bind(self, actor: str, peer: messages.PeerIs) -> None:
        route = self._running[actor]
        route.forget_news()
        route.outbox.send(peer)
        self.inboxes[actor].expect(peer.seq)

    def _open(self, actor: str) -> None:
        """Attach to the rings of a replicator that runs."""
        self._running[actor] = ReplicatorRoute(self._station.outbox(actor), self._slots)
        self.inboxes[actor] = ReplicatorInbox(self._station.inbox(actor))
        self._find_serving()

    def _find_serving(self) -> None:
        self._replicators = {
            number: self._running[actor]
            for number, actor in self._peers.serving().items()
            if actor in self._running
        }
        for spare in topology.SPARE_NAMES:
            served = self._station.slot(topology.served_slot(spare))
            self._slots[served] = self._peers.number_of(spare)
