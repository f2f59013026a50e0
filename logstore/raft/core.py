"""The consensus core: events in, effects out.

Owns terms, votes, indexes, LSNs and the commit index of one replica. Must not know payload bytes,
files, sockets, clocks or randomness: time comes with `Tick`, randomness as an argument.

The driver's contract is one rule: every effect may be carried out at once, in order per target. The
core withholds what must wait for a disk until `Persisted` or `MetaPersisted` arrives. `step` is the
only way to change consensus state.
"""

from __future__ import annotations

from random import Random
from typing import assert_never

from logstore.errors import InvariantViolated
from logstore.format.entry import Row
from logstore.format.peer_messages import (
    NO_ROUND,
    Heartbeat,
    HeartbeatReply,
    PreVoteReply,
    PreVoteRequest,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from logstore.limits import TERM_JUMP_MAX
from logstore.model import Index, Lsn, NodeId, Role, Term
from logstore.raft import (
    clocks,
    commit,
    election,
    following,
    gens,
    levels,
    membership,
    read_index,
    replication,
    role,
    space,
    stall,
    transfer,
)
from logstore.raft.effects import Effect
from logstore.raft.events import (
    AppendReceived,
    ChangeRequested,
    ConnectionLost,
    ControlReceived,
    DiskFullChanged,
    EntryRotted,
    Event,
    IngressStalled,
    InstallReceived,
    LevelRequested,
    LogStartMoved,
    MetaPersisted,
    Persisted,
    Proposed,
    ReadIndexRequested,
    ReplicatorGone,
    StreamAnswer,
    Tick,
    TransferRequested,
)
from logstore.raft.log_view import LogView, Position, RecoveredLog, WholeLogStart
from logstore.raft.raft_config import RaftConfig
from logstore.raft.state import Lost, State


class RaftCore:
    """One voter's consensus state machine.

    Args:
      config: who votes, and the timeouts.
      state: what recovery found on disk.
      log_view: the port on older rows of the Raft log.
      random: seeded by the caller; only election timeouts draw from it.
    """

    __slots__ = ("_state",)

    def __init__(
        self, config: RaftConfig, state: RecoveredLog, log_view: LogView, random: Random
    ) -> None:
        self._state = State(config, state, log_view, random)

    @property
    def deadline_ns(self) -> int:
        """When the next Tick is due at the latest; 0 before the first one."""
        state = self._state
        if not state.started:
            return 0
        leading = state.leading
        if leading is None:
            deadlines = [state.campaign.deadline_ns]
            if state.handed_over is not None:
                deadlines.append(state.handed_over.deadline_ns)
        else:
            deadlines = [leading.heartbeat_deadline_ns, leading.leadership_check_ns]
            if leading.transfer is not None:
                deadlines.append(leading.transfer.deadline_ns)
        return min(deadlines)

    def step(self, event: Event) -> list[Effect]:
        """Everything that follows from `event`, in order per target.

        Raises:
          InvariantViolated: a promise is broken, here or at a peer; this incarnation must end.
        """
        state = self._state
        _dispatch(state, event)
        transfer.conclude(state)
        membership.advance(state)
        save = state.meta.save()
        if save is not None:
            state.out.append(save)
        effects, state.out = state.out, []
        return effects

    # --- state for status, metrics and tests; reading it changes nothing ---

    @property
    def configuration(self) -> membership.InForce:
        """The one in force, and what is known of it."""
        return membership.what_is_in_force(self._state)

    @property
    def role(self) -> Role:
        return self._state.role

    @property
    def term(self) -> Term:
        return self._state.term

    @property
    def vote(self) -> NodeId:
        """The node that this node voted for in its term; 0: none."""
        return self._state.meta.vote

    @property
    def leader(self) -> NodeId:
        """The leader of the term; 0: unknown."""
        return self._state.leader

    @property
    def last_index(self) -> Index:
        return self._state.log.last_index

    @property
    def commit(self) -> Index:
        return self._state.commit

    @property
    def commit_lsn(self) -> Lsn:
        """The last committed LSN; the last visible one while damage hides it."""
        position = self._state.log.position(self._state.commit)
        return self._state.shown.lsn if position is None else Lsn(position.next_lsn - 1)

    @property
    def persisted(self) -> Index:
        """The highest index to which this replica's log is flushed and whole."""
        return self._state.persisted

    @property
    def verified(self) -> Index:
        """The highest index to which the log is known to equal this term's leader's (V2)."""
        return self._state.verified

    @property
    def visible_lsn(self) -> Lsn | None:
        """The last LSN that readers see. None: not ready, no leader was heard
        since the start (V4)."""
        shown = self._state.shown
        return None if shown.index is None else shown.lsn

    @property
    def match(self) -> dict[NodeId, Index]:
        """What each peer has flushed, on a leader; empty elsewhere."""
        return {peer: progress.match for peer, progress in self._state.peers.items()}

    @property
    def silences_ns(self) -> dict[NodeId, int]:
        """For how long each peer was not heard, at most for as long as this node leads; empty where
        it does not."""
        now_ns, peers = self._state.now_ns, self._state.peers
        return {peer: now_ns - progress.heard_ns for peer, progress in peers.items()}

    @property
    def faulty(self) -> tuple[tuple[Index, Index], ...]:
        """This replica's damaged entries, as ranges [first, last]."""
        return tuple(self._state.faulty.ranges)

    @property
    def peers_faulty(self) -> dict[NodeId, tuple[Index, Index]]:
        """The first damaged range of each peer that has one, on a leader; empty elsewhere."""
        return {
            peer: (progress.faulty_first, progress.faulty_last)
            for peer, progress in self._state.peers.items()
            if progress.faulty_first
        }

    @property
    def catching_up(self) -> list[NodeId]:
        """Peers that got this log's start and do not have yet what followed then, on a leader."""
        return [peer for peer, each in self._state.peers.items() if each.catches_up_to]

    @property
    def is_installing(self) -> bool:
        """This replica is dropping its log, to start over at its leader's log start."""
        return self._state.installing is not None

    @property
    def last_bytes(self) -> int:
        """The bytes of all entries up to the last one, trimmed ones included."""
        log = self._state.log
        return log.start_bytes if log.last_header is None else log.last_header.cumulative_bytes

    @property
    def log_start(self) -> Position:
        """The position before the first entry that is left."""
        return self._state.log.start

    @property
    def lost(self) -> Lost | None:
        """What this replica had acknowledged and does not have, if a leader reported it."""
        return self._state.lost

    @property
    def clock_skews_ns(self) -> dict[NodeId, int]:
        """How far each clock is ahead of the majority's, on a leader; empty elsewhere."""
        state, leading = self._state, self._state.leading
        return {} if leading is None else clocks.skews_ns(state, leading)

    @property
    def other_limits(self) -> list[NodeId]:
        """Peers whose limits differ from this node's, on a leader."""
        return replication.other_limits(self._state)

    @property
    def level(self) -> int:
        """The log's format level: forms up to it may be written and sent (S11)."""
        return self._state.level

    @property
    def newest_levels(self) -> dict[NodeId, int | None]:
        """The newest level that each voter reads, on a leader; None: not reported."""
        return levels.newest_levels(self._state)

    @property
    def refused_level(self) -> int:
        """The level of the leader's log, if it is too new for this version; 0: it is not."""
        return self._state.following.refused_level

    @property
    def open_gen(self) -> int | None:
        """The number of the open gen, if one is open."""
        gen = self._state.gen
        return gen.number if gen.is_open else None

    @property
    def is_admitting(self) -> bool:
        """Whether a gen is open that takes batches."""
        gen = self._state.gen
        return gen.is_open and gen.takes_batches

    @property
    def room_for_changes(self) -> int:
        """Bytes that a leader may append where disks are full, besides TRIMs and no-ops (S9)."""
        return space.room_for_changes(self._state)

    @property
    def dropped(self) -> int:
        """Messages dropped because no sound peer would send them, or a bound was reached."""
        return self._state.dropped

    def row(self, index: Index) -> Row | None:
        """The entry at `index`; None when there is none, or damage made it unreadable."""
        log = self._state.log
        return log.row(index) if log.start.index < index <= log.last_index else None


def _dispatch(state: State, event: Event) -> None:
    match event:
        case Tick():
            state.wall_ns = event.wall_ns
            _on_tick(state, event.now_ns)
        case Proposed():
            membership.on_proposed(state, event)
        case AppendReceived():
            _on_append(state, event)
        case StreamAnswer():
            _on_stream_answer(state, event)
        case ControlReceived():
            if _is_credible(state, event.sender, event.message.term):
                _on_control(state, event)
        case Persisted():
            _on_persisted(state, event.seq)
        case MetaPersisted():
            _on_meta_persisted(state, event.seq)
        case TransferRequested():
            transfer.on_requested(state, event)
        case ReadIndexRequested():
            replication.on_read_requested(state, event.request_id)
        case DiskFullChanged():
            _on_disk_full(state, event)
        case IngressStalled():
            role.on_ingress_stalled(state)
        case ReplicatorGone():
            replication.on_replicator_gone(state, event.peer)
        case ConnectionLost():
            election.on_connection_lost(state, event.peer)
        case EntryRotted():
            transfer.on_rotted(state, event.index)
        case LevelRequested():
            levels.on_requested(state, event)
        case ChangeRequested():
            membership.on_requested(state, event)
        case LogStartMoved():
            _on_log_start_moved(state, event.start)
        case InstallReceived():
            _on_install(state, event)
        case _:
            assert_never(event)


def _on_tick(state: State, now_ns: int) -> None:
    gap_ns = now_ns - state.now_ns
    if not state.started:
        state.started = True
        state.now_ns = now_ns
        state.begin_election_timer()
        return
    if gap_ns < 0:
        raise InvariantViolated(f"the monotonic clock went back by {-gap_ns} ns")
    state.now_ns = now_ns
    leading = state.leading
    if leading is None:
        if now_ns >= state.campaign.deadline_ns:
            election.on_election_timeout(state)
        return
    was_paused = gap_ns > state.config.pause_ns
    if was_paused:
        read_index.on_pause(leading)
    # A timer of its own: rounds for reads postpone the heartbeats for as long as there are reads.
    if was_paused or now_ns >= leading.leadership_check_ns:
        leading.leadership_check_ns = now_ns + state.config.heartbeat_ns
        if replication.step_down_without_quorum(state, leading) or stall.give_up_if_stalled(
            state, leading
        ):
            return
        transfer.begin_if_disk_is_unfit(state, leading)
        gens.open_if_allowed(state)  # also because a full replica is silent now, or heard again
        levels.raise_new_log(state, leading)
        membership.begin_intended(state, leading)
    if was_paused or now_ns >= leading.heartbeat_deadline_ns:
        replication.send_heartbeats(state, leading)
    transfer.advance(state, leading)


def _on_control(state: State, event: ControlReceived) -> None:
    """Compare terms first. A message of an older term is answered with ours, and a heartbeat of one
    without its round: its sender may lead our term, too, and would count it (V5). A newer term is
    adopted, except from vote requests that stickiness refuses."""
    sender, message = event.sender, event.message
    match message:
        case PreVoteRequest():
            election.on_pre_vote_request(state, sender, message)
        case PreVoteReply():
            if not message.is_granted:
                _follow_newer(state, message.term)
            election.on_pre_vote_reply(state, sender, message)
        case VoteRequest():
            if message.term > state.term and not message.is_transfer and election.is_sticky(state):
                return  # the term stays, so that a replica that was cut off disturbs nobody (C1)
            _follow_newer(state, message.term)
            if message.term < state.term:
                state.answer(sender, VoteReply(state.term, False))
            else:
                election.on_vote_request(state, sender, event.uuid, message)
        case VoteReply():
            _follow_newer(state, message.term)
            election.on_vote_reply(state, sender, message)
        case Heartbeat():
            _follow_newer(state, message.term)
            if message.term < state.term:
                following.answer_heartbeat(state, sender, NO_ROUND)
            else:
                following.on_heartbeat(state, sender, message)
        case HeartbeatReply():
            _follow_newer(state, message.term)
            if message.term == state.term:
                replication.on_heartbeat_reply(state, sender, event.boot, message)
        case TimeoutNow():
            election.on_timeout_now(state, sender, message)
        case _:
            assert_never(message)


def _on_append(state: State, event: AppendReceived) -> None:
    append = event.append
    header = append.header
    is_sound = header.index > 0 and header.prev_term <= header.term <= append.term  # U2
    if not is_sound or not _is_credible(state, event.sender, append.term):
        state.dropped += not is_sound
        state.settle(event.ring_start, event.ring_end)
        return
    _follow_newer(state, append.term)
    if append.term < state.term:
        state.settle(event.ring_start, event.ring_end)
        following.answer_stale(state, event.sender, append.term, append.stream)
        return
    following.on_append(state, event)


def _on_install(state: State, event: InstallReceived) -> None:
    install = event.install
    is_sound = (
        0 < install.start_term <= install.term
        and install.start_index > 0
        and install.start_next_lsn > 0  # META could not be read again
    )
    if not is_sound or not _is_credible(state, event.sender, install.term):
        state.dropped += not is_sound
        return
    _follow_newer(state, install.term)
    if install.term < state.term:
        following.answer_stale(state, event.sender, install.term, install.stream)
        return
    following.on_install(state, event)


def _on_stream_answer(state: State, event: StreamAnswer) -> None:
    message = event.message
    if not _is_credible(state, event.sender, message.term):
        return
    _follow_newer(state, message.term)
    if message.term == state.term:
        replication.on_stream_answer(state, event.sender, event.boot, message)
        if state.leading is not None:
            transfer.advance(state, state.leading)


def _on_persisted(state: State, seq: int) -> None:
    for ring_start, ring_end in state.persists.on_persisted(seq):
        state.settle(ring_start, ring_end)
    following.finish_install(state)
    commit.advance_visible(state)
    commit.report_match(state)
    replication.commit_by_counting(state)


def _on_meta_persisted(state: State, seq: int) -> None:
    state.out.extend(state.meta.on_persisted(seq))
    election.on_meta_durable(state, seq)
    for event in following.redeliver_deferred(state):
        _on_append(state, event)


def _on_disk_full(state: State, changed: DiskFullChanged) -> None:
    """With a full disk a replica appends what it has room for, votes, sends or answers heartbeats
    and serves reads (S9)."""
    space.record(state, changed)
    if state.leading is None:
        following.report_disk(state)
    else:
        transfer.on_own_disk(state, state.leading)


def _on_log_start_moved(state: State, whole: WholeLogStart) -> None:
    """Everything that begins at log start follows, unless the log is being dropped."""
    start = whole.position
    if state.installing is not None:
        return
    if start.index > state.commit:
        raise InvariantViolated(f"log start {start} above the commit index {state.commit}")
    state.log.move_start(whole)
    commit.follow_level(state, start.index)
    state.faulty.move_start(start.index)
    if state.leading is not None:
        replication.begin_streams_at_start(state, state.leading)


def _is_credible(state: State, sender: NodeId, term: Term) -> bool:
    """The sender is another replica of the cluster, member or not as far as this one knows (C10),
    and elections can have reached the term (C1, FAULTS.R19)."""
    if sender == state.config.node:
        state.dropped += 1
        return False
    if term > state.term + TERM_JUMP_MAX:
        state.dropped += 1
        state.alarm(f"node {sender} speaks of term {term} in term {state.term}: dropped")
        return False
    return True


def _follow_newer(state: State, term: Term) -> None:
    if term > state.term:
        role.enter_newer_term(state, term, f"term {term} was seen")
