"""What a leader does: it gives entries their index and LSNs, sends heartbeats and counts what the
peers persisted.

Owns the decision that an entry is committed (V1, F9) and the order of heartbeats (W8). Must not
know payload bytes or sockets: entries travel in the replicators' streams.
"""

from __future__ import annotations

from logstore.errors import InvariantViolated
from logstore.format.entry import EntryHeader, Row, takes_lsns
from logstore.format.level import FIRST_LEVEL
from logstore.format.peer_messages import (
    NO_ROUND,
    NO_STREAM,
    AppendPersisted,
    AppendReject,
    BulkAnswer,
    Heartbeat,
    HeartbeatReply,
)
from logstore.limits import INSTALL_HOLD_ELECTION_TIMEOUTS
from logstore.model import NO_INDEX, EntryKind, Index, NodeId, Role
from logstore.raft import (
    clocks,
    commit,
    gens,
    leader_flush,
    read_index,
    role,
    space,
    stall,
    transfer,
)
from logstore.raft.effects import (
    Accepted,
    Committed,
    Describe,
    HoldLogStart,
    Lead,
    Log,
    Persist,
    Rewind,
)
from logstore.raft.events import Proposed
from logstore.raft.log_view import WholeLogStart
from logstore.raft.progress import Progress
from logstore.raft.quorum import commit_candidate
from logstore.raft.state import Leading, State


def begin_leading(state: State) -> None:
    """The election is won: begin a stream to every peer, append the term's no-op
    (V1) and open a gen (E3)."""
    config, now_ns, log = state.config, state.now_ns, state.log
    state.role = Role.LEADER
    state.emit(Log(f"node {config.node} leads term {state.term} after entry {log.last_index}"))
    state.set_leader(config.node)
    progress = {
        peer: Progress(peer, NO_INDEX, log.origin, heard_ns=now_ns, advanced_ns=now_ns)
        for peer in state.members
    }
    noop_index = Index(log.last_index + 1)
    state.leading = leading = Leading(
        noop_index,
        progress,
        now_ns,
        now_ns,
        leadership_check_ns=now_ns + config.heartbeat_ns,
        progressed_ns=now_ns,
        began_ns=now_ns,
    )
    for each in progress.values():
        begin_stream(state, each, noop_index)
    noop = append_empty_entry(state, EntryKind.NOOP)
    leading.is_log_new = _is_log_new(state, noop)
    send_heartbeats(state, leading)
    gens.open_if_allowed(state)


def _is_log_new(state: State, noop: EntryHeader) -> bool:
    """The log begins with its first entry, and no entry before `noop` has a body."""
    is_whole = state.log.start.index == NO_INDEX and not state.faulty
    return is_whole and noop.cumulative_bytes == 0


def on_proposed(state: State, event: Proposed) -> Index | None:
    """Accept the next prop of the open gen; its index. Only here does it get that and LSNs (S4)."""
    is_config = event.kind == EntryKind.CONFIG
    if (
        event.ring_end <= event.ring_start
        or (event.count > 0) != takes_lsns(event.kind)
        or is_config != (event.configuration is not None)
    ):
        raise InvariantViolated(f"ingress offered a group that cannot be: {event}")
    if event.term != state.term or not gens.try_accept(state, event):
        state.settle(event.ring_start, event.ring_end)
        return None
    header = append_entry(
        state,
        kind=event.kind,
        count=event.count,
        body_crc=event.body_crc,
        ring_start=event.ring_start,
        ring_end=event.ring_end,
        wall_ns=event.wall_ns,
    )
    state.emit(
        Accepted(
            state.term,
            event.gen,
            event.prop,
            header.index,
            header.first_lsn,
            header.timestamp_ns,
        )
    )
    if event.waits_for_flush and state.leading is not None:
        leader_flush.wait_for(state, state.leading, header.index)
    return header.index


def append_empty_entry(state: State, kind: int) -> EntryHeader:
    """Append an entry without a body to the leader's log."""
    return append_entry(state, kind=kind, count=0, body_crc=0, ring_start=0, ring_end=0, wall_ns=0)


def append_entry(
    state: State,
    *,
    kind: int,
    count: int,
    body_crc: int,
    ring_start: int,
    ring_end: int,
    wall_ns: int,
) -> EntryHeader:
    """Append one entry to the leader's log."""
    log = state.log
    last, before = log.last, log.last_header
    previous_ns = log.start_timestamp_ns if before is None else before.timestamp_ns
    body_size = ring_end - ring_start
    header = EntryHeader(
        kind=int(kind),
        count=count,
        term=state.term,
        index=Index(last.index + 1),
        prev_term=last.term,
        first_lsn=last.next_lsn,
        timestamp_ns=clocks.stamp_ns(state, previous_ns=previous_ns, wall_ns=wall_ns),
        cumulative_bytes=body_size
        + (log.start_bytes if before is None else before.cumulative_bytes),
        prev_chain=last.chain,
        body_size=body_size,
        body_crc=body_crc,
    )
    row = Row.of(header)
    log.append(row)
    space.take(state, body_size)
    seq = state.persists.append(
        header.index, ring_start=ring_start, ring_end=ring_end, now_ns=state.now_ns
    )
    state.emit(Persist(seq, header, row.chain, ring_start, ring_end, state.commit))
    if state.leading is not None:
        stall.on_appended(state, state.leading)
    if state.peers:
        state.emit(Describe(state.term, header, ring_start, ring_end, seq, state.commit))
    return header


def on_stream_answer(state: State, sender: NodeId, boot: int, answer: BulkAnswer) -> None:
    """A follower's answer on the bulk lane, of the current term."""
    leading = state.leading
    if leading is None:
        return
    progress = leading.progress.get(sender)
    if progress is None:
        return  # no member, or none any more
    _on_peer_alive(state, progress, boot)
    match answer:
        case AppendPersisted(index=index):
            if index > state.log.last_index:
                raise InvariantViolated(f"node {sender} claims entry {index} of a shorter log")
            if index > progress.match:
                stall.on_progress(state, leading, progress)
                progress.on_match(index, state.now_ns)
                commit_by_counting(state)
                _send_commit(state, progress)
        case AppendReject() if answer.stream != NO_STREAM:
            _on_reject(state, progress, answer)
        case _:
            pass  # AppendAccepted is for the replicator, and a reject of no stream only had a term;
            # here they show that the peer is alive


def other_limits(state: State) -> list[NodeId]:
    """Peers that reported limits which differ from this node's."""
    digest = state.config.limits_digest
    return [peer for peer, each in state.peers.items() if each.has_other_limits(digest)]


def _compare_limits(state: State, progress: Progress, digest: int) -> None:
    """Log once that a peer's limits differ. The nodes go on together, but an operator should know:
    what one admits, another may have no room for."""
    if digest == progress.limits_digest:
        return
    progress.limits_digest = digest
    if progress.has_other_limits(state.config.limits_digest):
        state.emit(
            Log(
                f"the limits of node {progress.peer} are not those of node {state.config.node}: "
                "compare [limits] and [storage] of their configurations"
            )
        )


def on_heartbeat_reply(state: State, sender: NodeId, boot: int, reply: HeartbeatReply) -> None:
    """A follower is alive, has answered a round, and reports the state of its log."""
    leading = state.leading
    if leading is None:
        return
    progress = leading.progress.get(sender)
    if progress is None:
        return
    _on_peer_alive(state, progress, boot)
    progress.has_replied = True
    # Versions before 2026-11-27 answer a heartbeat of an older term with its round (V5).
    if progress.round_answered < reply.round <= leading.round:
        clocks.record(state, progress, reply.clock_ns)
        progress.round_answered = reply.round
    if reply.last_index != progress.last_index:
        stall.on_progress(state, leading, progress)  # the peer accepted or truncated entries
        progress.last_index = reply.last_index
    progress.faulty_first, progress.faulty_last = reply.faulty_first, reply.faulty_last
    _compare_limits(state, progress, reply.limits_digest)
    space.record_peer(state, progress, reply)
    if reply.is_disk_full != progress.is_disk_full:
        progress.is_disk_full = reply.is_disk_full
        gens.open_if_allowed(state)  # with batches or without, as disks are full now
        if _needs_log_start(state, progress):
            begin_stream(state, progress, Index(progress.match + 1))
    commit.know_level(state, reply.level)
    if boot == progress.boot:  # a late reply is of the version that ran before
        progress.newest_level = reply.newest_level or FIRST_LEVEL
    read_index.on_round_answered(state, leading)
    begin_round_if_wanted(state, leading)


def on_replicator_gone(state: State, peer: NodeId) -> None:
    """A new replicator knows nothing: begin a stream with an id above every one
    that the old one used."""
    leading = state.leading
    if leading is not None and peer in leading.progress:
        progress = leading.progress[peer]
        begin_stream(state, progress, Index(progress.match + 1))


def begin_streams_at_start(state: State, leading: Leading) -> None:
    """The log start has moved. A peer whose match lies below it may have been sent entries that are
    gone now: its stream goes on after log start, if it has the entry there. One whose disk is full
    is sent log start."""
    for progress in leading.progress.values():
        if progress.match < state.log.start.index or progress.is_disk_full:
            begin_stream(state, progress, Index(progress.match + 1))


def commit_by_counting(state: State) -> None:
    """Commit what a majority has persisted, if it is of this term (V1, FAULTS.R1).

    The leader counts itself only for what its own flush covers, but it does not
    wait for that flush (F9).
    """
    leading = state.leading
    if leading is None:
        return
    leader_flush.report(state, leading)
    matches = {peer: progress.match for peer, progress in leading.progress.items()}
    matches[state.config.node] = state.persisted
    candidate = commit_candidate(state.voters, matches)
    if candidate <= state.commit or state.log.term_at(candidate) != state.term:
        return
    state.shown.is_ready = True
    leading.progressed_ns = state.now_ns
    commit.raise_commit(state, candidate)
    state.emit(Committed(state.term, candidate, state.level))
    leader_flush.report(state, leading)  # a damaged entry that is committed caps nothing more
    for progress in leading.progress.values():
        _send_commit(state, progress)
    begin_round_if_wanted(state, leading)
    gens.open_if_allowed(state)


def has_quorum_contact(state: State, leading: Leading) -> bool:
    """A majority, this node included, was heard within an election timeout (check-quorum, V6)."""
    since_ns = state.now_ns - state.config.election_timeout_ns
    heard = {peer for peer, each in leading.progress.items() if each.was_heard_since(since_ns)}
    return state.voters.is_majority({state.config.node, *heard})


def send_heartbeats(state: State, leading: Leading) -> None:
    """Send one heartbeat to every peer and begin a new round with it (W8)."""
    leading.heartbeat_deadline_ns = state.now_ns + state.config.heartbeat_ns
    leading.round += 1
    clocks.log_skews(state, leading)
    _hold_log_start(state, leading)
    read_index.on_round_begun(state, leading)
    for progress in leading.progress.values():
        _send_heartbeat(state, progress, round_=leading.round)
    read_index.on_round_answered(state, leading)  # a cluster of one is a majority by itself


def on_read_requested(state: State, request_id: int) -> None:
    """A linearizable read: the leader begins a round for it (V5)."""
    read_index.on_request(state, request_id)
    if state.leading is not None:
        begin_round_if_wanted(state, state.leading)


def begin_round_if_wanted(state: State, leading: Leading) -> None:
    """Begin a round if a read waits for one. Reads do not wait for the next heartbeat; those that
    come during a round share the next one."""
    if read_index.wants_round(state, leading):
        send_heartbeats(state, leading)


def step_down_without_quorum(state: State, leading: Leading) -> bool:
    """Check-quorum. True if this node stopped leading."""
    if has_quorum_contact(state, leading):
        return False
    role.step_down(state, leading, "no majority heard for an election timeout")
    return True


def _on_peer_alive(state: State, progress: Progress, boot: int) -> None:
    """The peer is alive. If it was restarted, what it had accepted and not flushed is
    gone. Its window may be full of such entries, and no append would ever be answered
    again: begin a new stream."""
    progress.heard_ns = state.now_ns
    if progress.has_restarted(boot):
        progress.newest_level = None
        begin_stream(state, progress, Index(progress.match + 1))


def begin_stream(
    state: State, progress: Progress, next_index: Index, install: WholeLogStart | None = None
) -> None:
    """Begin at `next_index`, or at the first entry that is left; with the log start, if the peer
    must get that first."""
    state.lead_count += 1
    stream = state.lead_count << 32
    log, seq = state.log, state.persists.last_seq
    if install is None and _needs_log_start(state, progress):
        install = log.whole_start()
        if install is not None and progress.last_index < log.start.index:
            progress.catches_up_to = log.last_index  # it will drop its log
    first = Index(max(next_index, log.start.index + 1))
    lead = Lead(
        progress.peer, state.term, stream, first, log.last_index, seq, state.commit, install
    )
    state.emit(lead)


def _send_heartbeat(state: State, progress: Progress, *, round_: int) -> None:
    """Send one heartbeat. Its prev tuple is the newest one in memory that the peer is known to
    hold, so a heartbeat never waits for a disk. If the peer lags far behind, the appends of its
    stream verify the rest."""
    if progress.known.index != progress.match:
        progress.known = state.log.position_in_memory(progress.match) or progress.known
    known = progress.known
    progress.commit_sent = state.commit
    prev = (known.index, known.term, known.next_lsn, known.chain)
    level = _level_at_commit(state, progress)
    state.send(progress.peer, Heartbeat(state.term, state.commit, round_, *prev, level))


def _level_at_commit(state: State, progress: Progress) -> int:
    """The level as the peer is told, if its version knows that field. Before the term's no-op is
    committed, META may know a level that was raised above the commit index."""
    leading = state.leading
    is_known = leading is not None and state.commit >= leading.noop_index
    reads_it = (progress.newest_level or FIRST_LEVEL) > FIRST_LEVEL
    return state.level_told if is_known and reads_it else 0


def _send_commit(state: State, progress: Progress) -> None:
    """Send the commit index at once if the peer has the whole log: no append will carry it (W8).

    The heartbeat belongs to no round and asks for no answer: with one append in flight, the answers
    were a third of a leader's wake-ups.
    """
    if progress.match == state.log.last_index and progress.commit_sent < state.commit:
        _send_heartbeat(state, progress, round_=NO_ROUND)


def _on_reject(state: State, progress: Progress, reject: AppendReject) -> None:
    """Rewind the stream to where the logs may agree, judged by terms, but never below match + 1
    (W2, FAULTS.N15)."""
    if reject.prev_index > state.log.last_index:
        raise InvariantViolated(f"node {progress.peer} rejected what was never sent: {reject}")
    if reject.prev_index <= progress.match:
        if reject.last_index < progress.match:
            state.alarm(
                f"node {progress.peer} ends at entry {reject.last_index} but had acknowledged "
                f"{progress.match}: it has lost data it had flushed"
            )
            return  # the replicator's resend timer sends again; at once would be a busy loop
        next_index = Index(max(progress.match, state.log.start.index) + 1)
    elif reject.prev_index <= state.log.start.index:
        _install_log_start(state, progress, reject)
        return
    else:
        next_index = Index(max(_agreeing_index(state, reject), progress.match) + 1)
    state.emit(Rewind(progress.peer, state.term, reject.stream, next_index))


def _install_log_start(state: State, progress: Progress, reject: AppendReject) -> None:
    """The peer does not have the entry at log start, and no entry before it is left to send (G5).
    Its stream begins with the log start, unless that is about to move, and then it begins there, or
    damage hides what follows it here: then this log has nothing to send either, and another replica
    leads if one is fit (Q3)."""
    log = state.log
    install, first = log.whole_start(), Index(log.start.index + 1)
    lacks = (
        f"node {progress.peer} ends at entry {reject.last_index} and lacks entry "
        f"{log.start.index}, after which this log begins:"
    )
    if install is not None:
        state.alarm(f"{lacks} it begins there, too")
        progress.catches_up_to = log.last_index
        begin_stream(state, progress, first, install)
        if state.leading is not None:
            _hold_log_start(state, state.leading)
    elif log.is_damaged(first):
        state.alarm(f"{lacks} entry {first} cannot be read here, and without it it cannot begin")
        transfer.on_rotted(state, first)


def _needs_log_start(state: State, progress: Progress) -> bool:
    """A peer whose disk is full gets log start first, and gives back what lies below: it may have
    no room for the TRIM, nor for an append that it would reject (G5, S9)."""
    return progress.is_disk_full and state.log.start.index > NO_INDEX


def _hold_log_start(state: State, leading: Leading) -> None:
    """Log start waits for followers that catch up and were heard lately, but never where a disk is
    full (G7)."""
    peers = leading.progress.values()
    held: Index | None = None
    if not (state.is_disk_full or any(each.is_disk_full for each in peers)):
        start = state.log.start.index
        silent_ns = INSTALL_HOLD_ELECTION_TIMEOUTS * state.config.election_timeout_ns
        held = min(
            (
                max(each.match, start)
                for each in peers
                if each.catches_up_to and each.was_heard_since(state.now_ns - silent_ns)
            ),
            default=None,
        )
    if held != leading.held:
        leading.held = held
        state.emit(HoldLogStart(state.term, held))


def _agreeing_index(state: State, reject: AppendReject) -> Index:
    """The highest index below the rejected one at which our log may agree with the peer's.

    The peer's log has `hint_term` from `hint_index` up to the place that both logs reach. Where our
    term is higher, no entry of ours above `hint_term` can agree. Where it is lower, no entry of the
    peer's `hint_term` can.
    """
    log = state.log
    index = Index(min(reject.prev_index, reject.last_index))
    if index <= log.start.index:
        return log.start.index
    ours = log.term_at(index)
    if ours > reject.hint_term:
        index = log.last_at_or_below_term(index, reject.hint_term)
    elif ours < reject.hint_term:
        index = Index(reject.hint_index - 1)
    return Index(max(min(index, reject.prev_index - 1), log.start.index))
