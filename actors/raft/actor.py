"""The raft process: it runs the consensus core. It never sees a payload byte.

It turns ring messages into events, and effects into ring messages. It knows which
ranges of the payload ring are free, and publishes the visible LSN. A replica without a
log runs the bootstrap first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from actors import topology
from actors.messages import (
    ForgottenSaved,
    Identity,
    InitAnswered,
    InitReceived,
    InitRequested,
    InitSaved,
    JoinReceived,
    LogRecovered,
    PlacementReported,
    ProcessGone,
    ReadersWaiting,
    RecoveryDelayed,
    ReplicatorStarted,
    RotReported,
    SaveForgotten,
    StartReceived,
    StartSaved,
    StatusRequested,
    StopReady,
    StopRequested,
)
from actors.raft.bootstrap_driver import BootstrapDriver
from actors.raft.core_inputs import raft_config, recovered_log
from actors.raft.core_metrics import CoreMetrics
from actors.raft.log_files import FileLogView
from actors.raft.membership_driver import MembershipDriver
from actors.raft.replicator_inbox import ReplicatorInbox
from actors.raft.routes import Routes
from actors.raft.start_reports import StartReports, entries_forgotten
from actors.raft.status_document import FaultyLsns, status_document
from actors.raft.unsettled_ranges import UnsettledRanges
from actors.station import DRAIN_MAX, Inbox, Station
from actors.topology import Counter
from logstore.errors import ErrorCode, ReplicaLost
from logstore.format.meta import Forgotten
from logstore.model import FORMED_STATES, NO_NODE, Lsn, NodeId, Role
from logstore.raft.core import RaftCore
from logstore.raft.effects import (
    Accepted,
    Admit,
    ChangeAnswered,
    Effect,
    LevelAnswered,
    Log,
    MembersChanged,
    ReadIndexAnswered,
    Settle,
    TransferAnswered,
    Visible,
)
from logstore.raft.events import (
    AppendReceived,
    ChangeRequested,
    DiskFullChanged,
    EntryRotted,
    Event,
    IngressStalled,
    LevelRequested,
    LogStartMoved,
    Proposed,
    ReadIndexRequested,
    ReplicatorGone,
    Tick,
    TransferRequested,
)
from logstore.storage.log_reader import LogReader

# The orderly stop's own transfer; operators' requests are numbered from 1 by ingress.
STOP_TRANSFER_ID = 0
HOUSEKEEPING_INTERVAL_NS = 10_000_000
NEVER_NS = 1 << 62

log = logging.getLogger("logstore.raft")


class RaftActor:
    """Drives one `RaftCore`."""

    full_turn = DRAIN_MAX  # of one ring

    def __init__(self, station: Station) -> None:
        self._station = station
        self._slots = station.slots
        self._routes = Routes(station)
        self._freer = station.ring_freer()
        self._unsettled = UnsettledRanges()
        self._first_inboxes: list[Inbox] = [
            station.inbox(topology.SUPERVISOR),
            station.inbox(topology.WRITER),
            station.inbox(topology.INGRESS, topology.CONTROL),
        ]
        self._last_inboxes: list[Inbox] = [
            station.inbox(topology.EGRESS),
            station.inbox(topology.INGRESS, topology.BULK),
        ]
        self._inboxes = self._all_inboxes()
        self._rows: FileLogView | None = None
        self._core: RaftCore | None = None
        self._bootstrap: BootstrapDriver | None = None
        self._starts: StartReports | None = None
        self._membership: MembershipDriver | None = None
        self._recovered: LogRecovered | None = None
        self._faulty_lsns = FaultyLsns()
        self._ingress_loops = station.loops_slot(topology.INGRESS)
        self._ingress_progress = (0, 0)
        self._metrics = CoreMetrics(station, self._routes)
        self._replicators = station.replicators
        self._ingress_timeout_ns = 2 * station.config.raft.election_timeout_ns
        self._disk: DiskFullChanged | None = None  # as reported before the core existed
        self._delay = ""  # why recovery or the bootstrap is not done yet
        self._placement = b"null"  # what the supervisor last reported
        self._now_ns = 0
        self._housekeeping_due_ns = 0
        self._reported_role: Role | None = None
        # far below the room that W7 keeps beyond the largest batch
        self._free_lag_bytes = station.config.ring_bytes // 64

    def on_start(self) -> None:
        """Nothing to open: the writer's LogRecovered comes first."""

    def do_work(self, now_ns: int) -> int:
        self._now_ns = now_ns
        received = [message for inbox in self._inboxes for message in inbox.receive()]
        core = self._core
        if core is not None:
            if received or now_ns >= core.deadline_ns:
                self._tick(core)
        elif self._bootstrap is not None and now_ns >= self._bootstrap.deadline_ns:
            self._bootstrap.on_tick(now_ns)
        for message in received:
            self._on_message(message)
        if self._starts is not None:
            self._starts.on_tick(now_ns)
        if self._membership is not None:
            self._request(self._membership.on_tick(now_ns, self._core))
        self._routes.flush(now_ns)
        self._housekeep(now_ns)
        return len(received)

    def wait_on(self) -> Sequence[Any]:
        return ()

    def next_timer_ns(self) -> int:
        deadline_ns = self._routes.deadline_ns
        if self._starts is not None:
            deadline_ns = min(deadline_ns, self._starts.deadline_ns)
        if self._membership is not None:
            deadline_ns = min(deadline_ns, self._membership.deadline_ns)
        if self._core is not None:
            return min(deadline_ns, self._core.deadline_ns)
        return (
            deadline_ns
            if self._bootstrap is None
            else min(deadline_ns, self._bootstrap.deadline_ns)
        )

    def on_close(self) -> None:
        """Nothing to close."""

    # --- events in ---

    def _on_message(self, message: Any) -> None:
        match message:
            case Proposed() | AppendReceived():
                self._unsettled.received(message.ring_start, message.ring_end)
                if self._core is None:
                    self._unsettled.settled(message.ring_start, message.ring_end)
                else:
                    self._step(self._core, message)
            case LogRecovered():
                self._on_recovered(message)
            case RecoveryDelayed():
                self._delay = message.reason
            case InitReceived() | InitRequested() | InitSaved():
                if isinstance(message, InitSaved):
                    self._delay = ""
                if self._bootstrap is not None:
                    self._bootstrap.on_message(message)
                elif isinstance(message, InitRequested):
                    self._refuse_init(message)
            case StartReceived() | StartSaved() | ForgottenSaved():
                self._on_start(message)
            case JoinReceived():
                self._on_join(message)
            case RotReported():
                self._on_rot(message)
            case ReadersWaiting():
                self._routes.set_readers_waiting(are_waiting=message.are_waiting)
            case LogStartMoved():
                if self._core is not None:
                    self._step(self._core, message)
                    self._faulty_lsns.move_start(self._core.log_start.index)
                    self._publish_log_start(self._core)
            case ProcessGone():
                self._on_process_gone(message.process)
            case ReplicatorStarted():
                self._begin_replicator(message.actor)
            case PlacementReported():
                self._placement = message.document
            case StopRequested():
                self._on_stop_requested()
            case StatusRequested():
                drivers = [each for each in (self._bootstrap, self._membership) if each is not None]
                refusals = [each.refusal for each in drivers if each.refusal]
                self._routes.ingress.send(
                    status_document(
                        message,
                        self._station,
                        self._core,
                        self._recovered,
                        refusal=refusals[0] if refusals else self._delay,
                        faulty_lsns=self._faulty_lsns,
                        placement=self._placement,
                    )
                )
            case _:
                if self._core is not None:
                    self._step(self._core, message)
                else:
                    self._on_message_without_core(message)

    def _on_rot(self, report: RotReported) -> None:
        if self._core is not None:
            self._faulty_lsns.take(report.index, report.first_lsn, report.last_lsn)
            self._step(self._core, EntryRotted(report.index))

    def _on_message_without_core(self, message: Any) -> None:
        """Before the core exists. Peers repeat their messages; this replica's
        processes get an answer."""
        match message:
            case DiskFullChanged():
                self._disk = message
            case ReadIndexRequested():
                self._send(ReadIndexAnswered(message.request_id, False, Lsn(0)))
            case TransferRequested():
                reason = "this replica is not ready"
                self._send(TransferAnswered(message.request_id, False, reason))
            case LevelRequested():
                reason = "this replica is not ready"
                self._send(LevelAnswered(message.request_id, ErrorCode.NOT_READY, 0, reason))
            case ChangeRequested():
                reason = "this replica is not ready"
                self._send(ChangeAnswered(message.request_id, ErrorCode.NOT_READY, reason))

    def _tick(self, core: RaftCore) -> None:
        self._step(core, Tick(self._now_ns, self._station.host.clock.wall_ns()))

    def _step(self, core: RaftCore, event: Event) -> None:
        for effect in core.step(event):
            match effect:
                case Settle():
                    self._unsettled.settled(effect.ring_start, effect.ring_end)
                case Visible():
                    self._publish_log_start(core)  # an installed one becomes visible itself
                    self._slots[Counter.VISIBLE_INDEX] = effect.index
                    self._slots[Counter.VISIBLE] = effect.lsn + 1
                    self._routes.on_visible_moved()
                case Log():
                    log.warning("%s", effect.text)
                    if core.lost is not None:
                        self._forget(entries_forgotten(core.lost))
                        return  # what follows may be an answer that counts in a round
                case TransferAnswered():
                    self._on_transfer_answered(effect)
                case Admit() | Accepted() if not core.is_admitting:
                    self._slots[Counter.ROOM_FOR_CHANGES] = core.room_for_changes
                    self._send(effect)
                case ChangeAnswered() if self._membership and self._membership.takes(effect):
                    pass
                case MembersChanged() if self._membership:
                    self._membership.on_members(effect)
                    self._send(effect)
                case _:
                    self._send(effect)
        if self._routes.rebound:
            self._begin_streams()

    def _begin_streams(self) -> None:
        """Replicators were told of other peers, and begin their streams again."""
        rebound, self._routes.rebound = self._routes.rebound, []
        for peer in rebound:
            self._begin_stream(peer)

    def _request(self, request: ChangeRequested | None) -> None:
        if request is not None and self._core is not None:
            self._step(self._core, request)

    def _publish_log_start(self, core: RaftCore) -> None:
        if not core.is_installing:  # META may not have it yet
            self._slots[Counter.LOG_START_LSN] = core.log_start.next_lsn

    def _send(self, effect: Effect) -> None:
        self._routes.send(effect)

    # --- start ---

    def _on_recovered(self, recovered: LogRecovered) -> None:
        """Recovery is done: run the core, or the bootstrap if there is no log yet."""
        # the core has the lists, and lets go of what the log start passes
        self._recovered = msgspec.structs.replace(
            recovered, term_runs=(), faulty=(), trims=(), levels=()
        )
        self._faulty_lsns.take_recovered(recovered)
        self._delay = ""
        self._send_identity(recovered)
        if recovered.damage:
            log.error("this replica may not vote or acknowledge: %s", recovered.damage)
            return
        if self._bootstrap is None:
            self._bootstrap = BootstrapDriver(self._station, self._routes, recovered)
        if recovered.state not in FORMED_STATES:
            return
        self._membership = MembershipDriver(self._station, self._routes, recovered)
        if self._membership.is_admitted:
            self._take_part(recovered)

    def _take_part(self, recovered: LogRecovered) -> None:
        """Run the core. A replica that joins has an empty log until then."""
        self._slots[Counter.LOG_START_LSN] = recovered.start_next_lsn
        self._core = core = self._make_core(recovered)
        self._starts = StartReports(self._station, self._routes, recovered)
        self._tick(core)
        if self._disk is not None:
            self._step(core, self._disk)

    def _send_identity(self, recovered: LogRecovered) -> None:
        self._routes.to_all(_identity(recovered))

    def _make_core(self, recovered: LogRecovered) -> RaftCore:
        station = self._station
        # Not before there is a log: a reader remembers headers by number, and a bootstrap that was
        # broken off may have left one whose number is used again.
        self._rows = rows = FileLogView(
            LogReader(station.host.disk, station.folder),
            lambda: self._slots[Counter.MAP_GENERATION],
        )
        return station.host.observer.core_type(RaftCore)(
            raft_config(station, recovered),
            recovered_log(recovered),
            rows,
            Random(station.host.random_bytes(16)),
        )

    # --- amnesia (SAFETY L7) ---

    def _on_start(self, message: StartReceived | StartSaved | ForgottenSaved) -> None:
        if isinstance(message, ForgottenSaved):
            raise ReplicaLost(message.forgotten.words)  # the next incarnation says so (L6)
        if self._starts is None:
            return
        if isinstance(message, StartReceived) and self._membership is not None:
            self._membership.on_heard(message)
        if isinstance(message, StartSaved):
            self._starts.on_saved(message.start)
        elif (forgotten := self._starts.on_received(message)) is not None:
            self._forget(forgotten)

    def _on_join(self, received: JoinReceived) -> None:
        """A replica asks for a place, or a peer answers this one (SAFETY L4)."""
        if self._membership is None or self._recovered is None:
            return
        self._request(self._membership.on_join(received, self._core))
        if self._core is None and self._membership.is_admitted:
            self._take_part(self._recovered)

    def _forget(self, forgotten: Forgotten) -> None:
        """Vote and acknowledge no more. The incarnation ends once META has it."""
        if self._core is not None:
            log.critical("%s", forgotten.words)
            self._core = self._bootstrap = self._starts = self._membership = None
            self._routes.to_writer(SaveForgotten(forgotten))

    # --- operations ---

    def _on_process_gone(self, process: str) -> None:
        if process in self._replicators:
            self._freer.clear_hold(self._station.hold_slot(process))
            self._begin_replicator(process)
        elif process == topology.EGRESS and self._recovered is not None:
            self._routes.set_readers_waiting(are_waiting=False)
            self._routes.reset_egress(_identity(self._recovered))

    def _begin_replicator(self, actor: str) -> None:
        """The new process knows nothing: send our identity, then its peer and its stream. Orders to
        lead that its predecessor did not read must not count."""
        if self._recovered is None:
            return
        peer = self._routes.reset_replicator(actor, _identity(self._recovered))
        self._inboxes = self._all_inboxes()
        if peer != NO_NODE:
            self._begin_stream(peer)

    def _begin_stream(self, peer: NodeId) -> None:
        core = self._core
        if core is not None and core.role == Role.LEADER:
            self._step(core, ReplicatorGone(peer))
        elif core is not None:
            self._routes.stop_leading(peer, core.term)

    def _all_inboxes(self) -> list[Inbox | ReplicatorInbox]:
        """In the order in which they are read; of the replicators those that run."""
        return [*self._first_inboxes, *self._routes.inboxes.values(), *self._last_inboxes]

    def _refuse_init(self, request: InitRequested) -> None:
        recovered = self._recovered
        if recovered is not None and recovered.damage:
            reason = (
                f"the folder of node {self._station.node}, {self._station.folder}, is damaged: "
            )
            reason += recovered.damage
            answer = InitAnswered(request.request_id, ErrorCode.INVALID_REQUEST, reason)
        else:
            reason = self._delay or "the log is being recovered: ask again"
            answer = InitAnswered(request.request_id, ErrorCode.NOT_READY, reason)
        self._routes.ingress.send(answer)

    def _on_stop_requested(self) -> None:
        core = self._core
        if core is None or core.role != Role.LEADER or not self._routes.members:
            self._routes.supervisor.send(StopReady())
            return
        self._step(core, TransferRequested(STOP_TRANSFER_ID, NO_NODE))

    def _on_transfer_answered(self, answer: TransferAnswered) -> None:
        if answer.request_id != STOP_TRANSFER_ID:
            self._send(answer)
            return
        log.info("orderly stop: handed over: %s %s", answer.is_done, answer.reason)
        self._routes.supervisor.send(StopReady())

    # --- housekeeping ---

    def _housekeep(self, now_ns: int) -> None:
        """Free ring space, update metrics and check ingress, which need not happen in every
        do_work: every 10 ms, or at once after a change of role or when much can be freed. A
        replica that was removed shows nothing from now on."""
        core = self._core
        role = core.role if core is not None else None
        if role not in (None, Role.LEADER) and self._membership and self._membership.is_removed:
            self._slots[Counter.VISIBLE] = 0
        is_due = now_ns >= self._housekeeping_due_ns or role != self._reported_role
        if not is_due and self._unsettled.floor - self._freer.free < self._free_lag_bytes:
            return
        self._housekeeping_due_ns = now_ns + HOUSEKEEPING_INTERVAL_NS
        self._reported_role = role
        self._free_ring()
        if self._rows is not None:
            self._rows.close_if_stale()
        if core is not None:
            self._check_ingress(core)
            self._metrics.update(core)

    def _check_ingress(self, core: RaftCore) -> None:
        """V6: a leader whose ingress loop stands still for two election timeouts steps down."""
        loops, since_ns = self._ingress_progress
        seen = self._slots[self._ingress_loops]
        if seen != loops or core.role != Role.LEADER:
            self._ingress_progress = (seen, self._now_ns)
        elif self._now_ns - since_ns > self._ingress_timeout_ns:
            self._ingress_progress = (seen, self._now_ns)
            self._step(core, IngressStalled())
            self._routes.flush(self._now_ns)  # this do_work has rung its bells already (M7)

    # --- the payload ring ---

    def _free_ring(self) -> None:
        """FREE = the lower of the oldest unsettled start and the lowest live HOLD (M4)."""
        floor = self._unsettled.floor
        core = self._core
        if core is not None and core.role == Role.LEADER:
            hold = self._freer.lowest_hold(core.term, range(len(self._replicators)))
            if hold is not None:
                floor = min(floor, hold)
        if floor > self._freer.free:
            self._freer.set_free(floor)


def _identity(recovered: LogRecovered) -> Identity:
    """This replica's identity; a cluster id counts only once that cluster is formed (L2)."""
    is_formed = recovered.state in FORMED_STATES
    cluster_id = recovered.cluster_id if is_formed else bytes(len(recovered.cluster_id))
    return Identity(cluster_id, recovered.replica_uuid, recovered.boot, recovered.state)
