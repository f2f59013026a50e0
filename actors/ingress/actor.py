"""Ingress: in which order it does its work (SAFETY W7), and nothing else.

Every do_work handles raft's messages first, then the peers' control lane, then their bulk lane,
then clients' requests, then their batches, with the requests that producers send between these. A
full ring stops the bulk lane and the batches only.
Each part owns its socket and its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from actors.ingress.ack_levels import answered_at_commit
from actors.ingress.acks import AckFeed
from actors.ingress.admission import Admission
from actors.ingress.appends import Appends
from actors.ingress.bulk import MESSAGES_PER_WORK, PeerBulk
from actors.ingress.comparisons import Comparisons
from actors.ingress.configuration_bound import ConfigurationBound
from actors.ingress.configuration_offers import ConfigurationOffers
from actors.ingress.control import ControlPort
from actors.ingress.conversations import Conversations
from actors.ingress.full_disks import FullDisks
from actors.ingress.groups import Outcome
from actors.ingress.lags import Lags
from actors.ingress.linearizable_reads import LinearizableReads
from actors.ingress.peers import PeerControl, Peers
from actors.ingress.pending_requests import Requests
from actors.ingress.proposals import Proposals
from actors.ingress.raw_port import RawPort, raw_settings
from actors.ingress.replica_info import ReplicaInfo
from actors.ingress.retention import Retention
from actors.ingress.sockets_and_rings import Ports, guard_of, open_ports
from actors.ingress.stampers import Stampers, stampers_of
from actors.ingress.trim_bounds import TrimBounds
from actors.messages import Identity, InitAnswered, StatusReported, TellJoin, TellStart
from actors.station import DRAIN_MAX, Station
from logstore.config import Config
from logstore.model import NO_INDEX
from logstore.raft import effects
from logstore.raft.bootstrap import SendInit
from logstore.raft.space import BATCHES_LEAVE, most_bytes
from logstore.session.grants import SessionLimits

# While a part waits for room in a ring, or for the writer's counter, do_work runs this often: no
# bell rings for either.
_RETRY_NS = 1_000_000
# Its leader begins a stream again that got no answer for one election timeout.
_PATIENCE_TIMEOUTS = 2


class IngressActor:
    """Ingress of one replica. `open_ports` opens sockets and rings; a simulator passes its own."""

    full_turn = MESSAGES_PER_WORK  # of the bulk lane; what is taken elsewhere is bounded by more

    def __init__(
        self, station: Station, open_ports: Callable[[Station], Ports] = open_ports
    ) -> None:
        self._station = station
        self._open_ports = open_ports
        self._now_ns = 0
        self._committed = NO_INDEX  # what this do_work acknowledges, if it does

    def on_start(self) -> None:
        station = self._station
        slots, limits = station.slots, station.config.limits
        ports = self._ports = self._open_ports(station)
        replica = self._replica = ReplicaInfo(station.node)
        self._guard = guard_of(ports, station)
        stampers = stampers_of(station)
        self._acknowledged = stampers.acknowledged
        self._acks = AckFeed(ports.acks, ports.produce, replica, slots, self._guard)
        self._requests = Requests(replica, slots)
        self._proposals = _make_proposals(ports, station.config, stampers)
        self.admission = _make_admission(station, ports, self._proposals)
        self._reads = LinearizableReads(self.admission, self._requests, ports.to_raft)
        conversations = Conversations()
        full_disks = FullDisks(self.admission, slots, station.limits)
        bound = ConfigurationBound(ports.to_raft, slots)
        self._bounds = TrimBounds(self.admission, ports.open_log, slots, full_disks, bound)
        self._control = ControlPort(
            ports.control,
            self._requests,
            self.admission,
            self._bounds,
            self._reads,
            replica,
            conversations,
            station=station,
            to_raft=ports.to_raft,
            random_u64=ports.random_u64,
        )
        self._retention = Retention(station, self.admission, self._bounds, ports.clock)
        status = self._control.on_status, self._requests.is_pending
        self._lags = Lags(station, self.admission, replica, ports.clock, ports.to_raft, *status)
        self._comparisons = Comparisons(self.admission, conversations, self._acks, ports.to_raft)
        self._raw = RawPort(
            raw_settings(station), self.admission, self._guard, replica, slots, ports.clock
        )
        self._configurations = ConfigurationOffers(self.admission)
        self._appends = Appends(
            ports.append,
            ports.produce,
            self.admission,
            self._comparisons,
            self._acks,
            self._control,
            self._raw,
            replica,
            slots,
            batch_max_bytes=limits.batch_max_bytes,
        )
        self._peers = Peers(
            ports.peer_control,
            ports.peer_bulk,
            replica,
            slots=slots,
            answered=stampers.answered,
            election_timeout_ns=station.config.raft.election_timeout_ns,
            configured=frozenset(station.nodes),
        )
        self._peer_control = PeerControl(ports.peer_control, self._peers, ports.to_raft, slots)
        patience_ns = _PATIENCE_TIMEOUTS * station.config.raft.election_timeout_ns
        bulk = ports.peer_bulk, self._peers, ports.ring, ports.to_raft_bulk, slots, ports.clock
        self._peer_bulk = PeerBulk(*bulk, stampers, patience_ns=patience_ns)

    def do_work(self, now_ns: int) -> int:
        self._now_ns = now_ns
        self._guard.do_work(now_ns)
        ports = self._ports
        work = 0
        for message in ports.from_raft.receive():
            self._on_raft_message(message)
            work += 1
        # Acknowledgements leave now: producers need not wait for the rest of this do_work.
        if work:
            self._acks.flush()
            if self._committed:
                self._acknowledged.stamp_through(self._committed)
                self._committed = NO_INDEX
        is_up_to_date = work < DRAIN_MAX
        if self._replica.is_identified:
            self._peers.begin_turn(now_ns)
            work += self._peer_control.do_work()
            work += self._peer_bulk.do_work(now_ns)
            ports.to_raft.flush()
            ports.to_raft_bulk.flush()
        work += self._reads.do_work()  # before a gen may open
        work += self._control.do_work(now_ns)
        slices = self._lags.do_work(now_ns) + self._reads.has_more
        work += self._acks.take_subscriptions(now_ns)
        slices += self.admission.rebuild(now_ns, is_up_to_date=is_up_to_date)
        slices += self._retention.do_work(now_ns)
        work += self._appends.do_work(now_ns)
        work += self._configurations.do_work()
        is_leading = self.admission.gen is not None
        self._bounds.configurations.do_work(now_ns, is_leading=is_leading)
        work += self.admission.propose()
        slices += self.admission.has_next_part
        self.admission.update_counters()
        self._acks.flush()
        ports.to_raft.flush()
        ports.to_raft_bulk.flush()
        return max(work, self.full_turn) if slices else work

    def wait_on(self) -> Sequence[Any]:
        """Sockets that do_work would not read now are left out: polling one that stays readable
        would be a busy loop."""
        ports = self._ports
        sockets = [ports.control, ports.acks]
        if self._replica.is_identified:
            sockets.append(ports.peer_control)
            if not self._peer_bulk.is_held_back:
                sockets.append(ports.peer_bulk)
        return [*sockets, *self._appends.sockets]

    def next_timer_ns(self) -> int:
        waits_for_room = (
            self._peer_bulk.is_held_back
            or self._proposals.is_held_back
            or self.admission.is_rebuilding
            or self._appends.can_take_held
            or self._ports.to_raft.is_congested
            or self._ports.to_raft_bulk.is_congested
        )
        retry_ns = self._now_ns + _RETRY_NS if waits_for_room else self._control.next_timer_ns
        return min(
            retry_ns,
            self._control.next_timer_ns,
            self._guard.next_timer_ns,
            self._lags.next_timer_ns,
            self._retention.next_timer_ns,
            self._bounds.configurations.next_timer_ns,
        )

    def on_close(self) -> None:
        self._lags.close()
        self._raw.close()
        self._ports.close()

    def _on_raft_message(self, message: Any) -> None:
        """The first cases are the frequent ones."""
        match message:
            case effects.Committed():
                self._committed = message.index
                self._answer_clients(self.admission.commit(message))
            case effects.Accepted():
                self.admission.accept(message)
            case effects.Flushed():
                self._acks.tell_flushed(self.admission.flushed(message))
            case effects.Answer() | SendInit() | TellStart() | TellJoin():
                self._peers.answer(message)
            case effects.StreamAccepted():
                self._peer_bulk.on_stream_accepted(message)
            case effects.Admit():
                self.admission.admit(message)
            case effects.AdmissionClosed():
                self._answer_clients(self.admission.close(message))
            case effects.TermEnded():
                self._answer_clients(self.admission.end_term(message))
            case effects.ProposeConfiguration():
                self._configurations.take(message)
            case effects.HoldLogStart():
                self._bounds.hold_log_start(message)
            case effects.LeaderChanged():
                self._replica.on_leader_changed(message)
            case effects.ReadIndexAnswered():
                if not self._comparisons.on_read_index(message):
                    self._reads.on_read_index(message)
            case effects.MembersChanged():
                self._replica.on_members_changed(message)
                self._bounds.configurations.on_members(message)
            case effects.ChangeAnswered():
                self._control.on_change(message)
            case effects.LevelAnswered():
                self._control.on_level(message)
            case effects.TransferAnswered():
                self._control.on_transfer(message)
            case Identity():
                self._replica.identity = message
            case InitAnswered():
                self._control.on_init(message)
            case StatusReported():
                self._lags.take(message)

    def _answer_clients(self, outcome: Outcome) -> None:
        for group in outcome.committed:
            self._acks.acknowledge(answered_at_commit(group))
            self._requests.answer_committed(group)
        self._acks.acknowledge(outcome.retries)
        for group in outcome.forgotten:
            self._requests.answer_forgotten(group)
        self._comparisons.release()


def _make_proposals(ports: Ports, config: Config, stampers: Stampers) -> Proposals:
    limits = config.limits
    return Proposals(
        ports.ring,
        ports.to_raft_bulk,
        ports.clock,
        stampers,
        group_max_bytes=limits.group_max_bytes,
        in_flight_max=groups_in_flight(config),
        batch_max_bytes=limits.batch_max_bytes,
        lend_max_bytes=limits.client_memory_bytes,
    )


def _make_admission(station: Station, ports: Ports, proposals: Proposals) -> Admission:
    limits = station.config.limits
    return Admission(
        proposals,
        session_limits=SessionLimits(
            batch_max_bytes=limits.batch_max_bytes,
            client_memory_bytes=limits.client_memory_bytes,
            session_window_bytes=limits.session_window_bytes,
            sessions_max=station.limits.sessions_max,
            kept_names_max=station.limits.kept_names_max,
            provisional_window_min=station.limits.provisional_window_min,
        ),
        session_expiry_ns=limits.session_expiry_ns,
        snapshot_part_max_bytes=min(limits.group_max_bytes, station.limits.snapshot_part_max_bytes),
        replica_limits=station.limits,
        open_log=ports.open_log,
        clock=ports.clock,
        slots=station.slots,
        to_raft=ports.to_raft,
        observer=station.host.observer,
    )


def groups_in_flight(config: Config) -> int:
    """How many groups a leader has between acceptance and commit: what the configuration says, but
    only as many of the largest as fit into what a full disk has for batches. A TRIM comes after
    them in the log (S9)."""
    limits, segment_bytes = config.limits, config.storage.segment_bytes
    largest_bytes = max(limits.group_max_bytes, limits.batch_max_bytes)
    room_bytes = segment_bytes - segment_bytes // BATCHES_LEAVE
    return max(1, min(limits.groups_in_flight, room_bytes // most_bytes(largest_bytes)))
