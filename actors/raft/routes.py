"""Where each effect of the core goes: the raft actor's sending side.

Order per target is the order of the effects. Entry descriptors are the one kind that may be left
out when a replicator's ring is full (M8): it then reads the files, and learns the end of the log
from the newest descriptor, which is kept and offered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actors import messages, topology
from actors.station import Outbox, Station
from actors.topology import Counter
from logstore.format.peer_messages import NO_ROUND, AppendAccepted, AppendPersisted, Heartbeat
from logstore.model import NodeId, Term
from logstore.raft import effects
from logstore.raft.bootstrap import SendInit

PATIENCE_NS = 20_000_000
NEWS_PATIENCE_NS = 1_000_000
PATIENT_MAX = 1_024
NEVER_NS = 1 << 62


class ReplicatorLane:
    """The ring to one replicator.

    A replicator that crashes again and again reads nothing for hours (M3). So what raft's timers
    say again is dropped and counted where there is no room; only orders wait.
    """

    def __init__(self, outbox: Outbox, slots: memoryview) -> None:
        self.outbox = outbox
        self._slots = slots
        self._newest: bytes | None = None
        self._news: effects.Send | None = None
        self.deadline_ns = NEVER_NS

    def send(self, message: Any) -> None:
        """An order to the replicator. Whatever goes to a peer later than commit news carries a
        commit index that is not lower, so news that still waits is dropped (M8)."""
        self._drop_news()
        self.outbox.send(message)

    def send_control(self, send: effects.Send) -> None:
        """Commit news waits a moment: with appends one after the other, the next one carries it."""
        message = send.message
        if isinstance(message, Heartbeat) and message.round == NO_ROUND:
            self._news = send
        elif isinstance(message, Heartbeat):
            self._drop_news()
            self.offer(send)
        else:
            self.offer(send)

    def offer(self, message: effects.Send | SendInit) -> None:
        """A message to the peer; lost where there is no room, as on a wire."""
        if not self.outbox.try_send_encoded(messages.encode(message)):
            self._slots[Counter.SENDS_DROPPED] += 1

    def begin_anew(self) -> None:
        """A new process will read this ring: nothing that waits was meant for it."""
        self._drop_news()
        self._newest = None
        self.outbox.forget_unsent()

    def describe(self, described: bytes) -> None:
        self._drop_news()
        if not self.outbox.try_send_encoded(described):
            self._newest = described

    def flush(self, now_ns: int) -> None:
        if self._news is not None:
            if self.deadline_ns == NEVER_NS:
                self.deadline_ns = now_ns + NEWS_PATIENCE_NS
            elif now_ns >= self.deadline_ns:
                self.offer(self._news)
                self._drop_news()
        if self._newest is not None and self.outbox.try_send_encoded(self._newest):
            self._newest = None
        self.outbox.flush()

    def _drop_news(self) -> None:
        self._news = None
        self.deadline_ns = NEVER_NS


class IngressLane:
    """The ring to ingress. Facts on which ingress has nothing to do at once wait for company.

    Accepted says where a proposal stands, StreamAccepted what need not be copied, an AppendAccepted
    that nothing was lost: the commit or the flush that follows within milliseconds brings ingress,
    and the peer's replicator, one wake-up instead of two. A full disk queue keeps them at most
    PATIENCE_NS, far below the resend timeout that watches them (SAFETY W1). Order is kept.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._patient: list[Any] = []
        self._due_ns = NEVER_NS

    @property
    def deadline_ns(self) -> int:
        """When what is kept must go."""
        return self._due_ns

    def send(self, message: Any) -> None:
        self._release()
        self._outbox.send(message)

    def send_with_company(self, message: Any) -> None:
        """Keep `message` until another one goes, or its time is up."""
        self._patient.append(message)
        if len(self._patient) >= PATIENT_MAX:
            self._release()

    def answer(self, answer: effects.Answer) -> None:
        if isinstance(answer.message, AppendAccepted):
            self.send_with_company(answer)
            return
        if isinstance(answer.message, AppendPersisted):
            self._drop_accepted(answer.peer, answer.message)
        self.send(answer)

    def flush(self, now_ns: int) -> None:
        if self._patient:
            if self._due_ns == NEVER_NS:
                self._due_ns = now_ns + PATIENCE_NS
            elif now_ns >= self._due_ns:
                self._release()
        self._outbox.flush()

    def _drop_accepted(self, peer: NodeId, persisted: AppendPersisted) -> None:
        """What is persisted was accepted: saying both in one breath would be a message too many."""
        self._patient = [
            kept
            for kept in self._patient
            if not (
                isinstance(kept, effects.Answer)
                and kept.peer == peer
                and isinstance(kept.message, AppendAccepted)
                and kept.message.term == persisted.term
                and kept.message.index <= persisted.index
            )
        ]

    def _release(self) -> None:
        for message in self._patient:
            self._outbox.send(message)
        self._patient.clear()
        self._due_ns = NEVER_NS


class Routes:
    """Every ring out of raft."""

    def __init__(self, station: Station) -> None:
        self._writer = station.outbox(topology.WRITER)
        self.ingress = IngressLane(station.outbox(topology.INGRESS))
        self._egress = station.outbox(topology.EGRESS)
        self.supervisor = station.outbox(topology.SUPERVISOR)
        self._lanes = {
            peer: ReplicatorLane(station.outbox(topology.replicator(peer)), station.slots)
            for peer in station.peers
        }
        self._egress_bell = station.bell_of(topology.EGRESS)
        self._is_visible_news = False
        self._is_watched = False
        self._send: dict[type[Any], Callable[[Any], None]] = {
            effects.Describe: self._describe,
            effects.StopLeading: self._to_every_replicator,
            effects.ReadIndexAnswered: self._answer_read,
            effects.Answer: self.ingress.answer,
            effects.Send: self._to_peer,
            effects.Accepted: self.ingress.send_with_company,
            effects.StreamAccepted: self.ingress.send_with_company,
        }
        kind: type[Any]
        for kind in (effects.Persist, effects.Truncate, effects.SaveMeta):
            self._send[kind] = self._writer.send
        self._send[effects.Lead] = self._lead
        self._send[effects.Rewind] = self._rewind
        for kind in (
            effects.Admit, effects.AdmissionClosed, effects.Committed, effects.TermEnded,
            effects.LeaderChanged, effects.TransferAnswered,
        ):  # fmt: skip
            self._send[kind] = self.ingress.send

    def send(self, effect: Any) -> None:
        """Carry out an effect that leaves this process."""
        self._send[type(effect)](effect)

    def to_writer(self, message: Any) -> None:
        self._writer.send(message)

    def to_peer(self, message: effects.Send | SendInit) -> None:
        """A bootstrap message on our own lane."""
        self._lanes[message.peer].offer(message)

    def begin_anew(self, peer: NodeId, identity: messages.Identity) -> None:
        """The replicator to `peer` is dead: the next one learns first who we are."""
        self._lanes[peer].begin_anew()
        self._lanes[peer].outbox.send(identity)

    def stop_leading(self, peer: NodeId, term: Term) -> None:
        """To one replicator: nothing of `term`, or older, is sent any more."""
        self._lanes[peer].send(effects.StopLeading(term))

    def to_everybody(self, identity: messages.Identity) -> None:
        self.ingress.send(identity)
        self._egress.send(identity)
        for lane in self._lanes.values():
            lane.outbox.send(identity)

    def set_watched(self, *, is_watched: bool) -> None:
        """Whether egress wants its bell for visible LSNs; it looks once more when that begins."""
        self._is_watched = self._is_visible_news = is_watched

    def visible_moved(self) -> None:
        """Egress follows a counter; while it watches, its bell rings with the next flush."""
        self._is_visible_news = self._is_watched

    @property
    def deadline_ns(self) -> int:
        """When `flush` has something to do by itself."""
        deadline_ns = self.ingress.deadline_ns
        for lane in self._lanes.values():
            if lane.deadline_ns < deadline_ns:
                deadline_ns = lane.deadline_ns
        return deadline_ns

    def flush(self, now_ns: int) -> None:
        """Offer what found no room, then ring each bell that has news, once (M7)."""
        # replicators first: a follower's way to the disk is longer than our own writer's
        for lane in self._lanes.values():
            lane.flush(now_ns)
        self._writer.flush()
        self.ingress.flush(now_ns)
        self._egress.flush()
        self.supervisor.flush()
        if self._is_visible_news:
            self._is_visible_news = False
            self._egress_bell.ring()

    def _describe(self, effect: effects.Describe) -> None:
        encoded = messages.encode(effect)
        for lane in self._lanes.values():
            lane.describe(encoded)

    def _to_every_replicator(self, effect: effects.StopLeading) -> None:
        for lane in self._lanes.values():
            lane.send(effect)

    def _answer_read(self, answer: effects.ReadIndexAnswered) -> None:
        """On ingress' ring it comes behind every Committed that it stands for."""
        is_of_ingress = answer.request_id >= messages.READS_OF_INGRESS
        (self.ingress if is_of_ingress else self._egress).send(answer)

    def _lead(self, effect: effects.Lead) -> None:
        self._lanes[effect.peer].send(effect)

    def _rewind(self, effect: effects.Rewind) -> None:
        self._lanes[effect.peer].outbox.send(effect)  # carries no commit: news keeps waiting

    def _to_peer(self, effect: effects.Send) -> None:
        self._lanes[effect.peer].send_control(effect)
