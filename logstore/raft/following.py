"""What a follower does with its leader's appends and heartbeats.

Owns: matching (V2, S3), truncation only on a real conflict (W3, F8), one reject a stream (W1), and
which appends wait until a term is durable (C1). Must not know payload bytes: a body lies in a ring
range that is settled exactly once, here or when its Persist is answered (M4).
"""

from __future__ import annotations

from msgspec.structs import replace

from logstore.errors import InvariantViolated, ReplicaLost
from logstore.format.entry import EntryHeader, Row
from logstore.format.level import CONFIG_LEVEL, FIRST_LEVEL, TRIM_LEVEL, level_of
from logstore.format.peer_messages import (
    NO_ROUND,
    NO_STREAM,
    AppendAccepted,
    AppendReject,
    Heartbeat,
    HeartbeatReply,
)
from logstore.limits import DEFERRED_EVENTS_MAX
from logstore.model import NO_INDEX, NO_NODE, EntryKind, Index, NodeId, Role, Term
from logstore.raft import amnesia, commit, levels, space
from logstore.raft.effects import InstallLog, MoveLogStart, Persist, StreamAccepted, Truncate
from logstore.raft.events import AppendReceived, InstallReceived
from logstore.raft.faulty import FaultyEntries
from logstore.raft.log_view import Position, WholeLogStart
from logstore.raft.state import NEVER_NS, Installing, State


def follow_leader(state: State, sender: NodeId) -> None:
    """The sender leads the current term: follow it and restart the election timer."""
    if state.role == Role.LEADER or (state.leader and state.leader != sender):
        raise InvariantViolated(f"two leaders in term {state.term}: {state.leader} and {sender}")
    state.role = Role.FOLLOWER
    state.set_leader(sender)
    state.campaign.leader_heard_ns = state.now_ns
    state.campaign.quick_rounds, state.campaign.given_up_ns = 0, NEVER_NS
    state.reset_election_timer()


def on_heartbeat(state: State, sender: NodeId, beat: Heartbeat) -> None:
    """Follow the leader and its commit index, and answer the quorum round. A heartbeat verifies the
    prev tuple that it carries, no more (V2)."""
    follow_leader(state, sender)
    amnesia.check(state, sender, beat.prev_index)
    prev = Position(beat.prev_index, beat.prev_term, beat.prev_next_lsn, beat.prev_chain)
    is_settled = state.installing is None
    if is_settled and prev.index > state.verified and _matches(state, prev):
        state.verified = prev.index
    commit.follow_commit(state, beat.commit)
    if beat.level > state.level and beat.commit <= state.commit:
        levels.learn(state, sender, beat.level)
    if beat.round == NO_ROUND:
        return
    answer_heartbeat(state, sender, beat.round)
    if state.claimed_match > max(beat.prev_index, state.log.start.index):
        commit.repeat_match_report(state, state.claimed_match)


def answer_heartbeat(state: State, sender: NodeId, round_: int) -> None:
    """Report this node's term, log, clock, limits, whether its disk is full, its version's newest
    format level and the log's, and the room of a full disk."""
    first, last = state.faulty.first_range
    config = state.config
    fields = (state.log.last_index, first, last, state.wall_ns, config.limits_digest)
    levels_told = config.newest_level, state.level_told
    disk = state.is_disk_full, *levels_told, space.room_told(state)
    reply = HeartbeatReply(state.term, round_, *fields, *disk)
    state.answer(sender, reply)


def report_disk(state: State) -> None:
    """Tell the leader at once, not with the next heartbeat's answer, that this disk is full or has
    space again: what the leader accepts until it hears of a full disk takes the room that a TRIM
    needs (S9)."""
    if state.role == Role.FOLLOWER and state.leader != NO_NODE:
        answer_heartbeat(state, state.leader, NO_ROUND)


def answer_stale(state: State, sender: NodeId, term: Term, stream: int) -> None:
    """Report our term to the leader of an older one, once for each of its streams, but in the name
    of none: it may lead our term, too, and after a restart with the same stream ids (W1)."""
    seen = (sender, term, stream)
    if state.following.stale_rejected != seen:
        state.following.stale_rejected = seen
        last = state.log.last_index
        state.answer(
            sender, AppendReject(state.term, NO_STREAM, last, last, state.term, Index(last + 1))
        )


def on_append(state: State, event: AppendReceived) -> None:
    """Take one entry of the current term's leader; the caller has dealt with other terms."""
    follow_leader(state, event.sender)
    append = event.append
    if append.term > state.meta.durable_term:
        _defer(state, event)
        return
    header = append.header
    if not _takes_stream(state, event.sender, append.stream, level_of(header.kind)):
        state.settle(event.ring_start, event.ring_end)
        return
    if state.is_disk_full and not _is_held(state, header) and not _fits(state, header):
        state.settle(event.ring_start, event.ring_end)  # S9: until there is space
        state.following.lacks_space = True
        return
    prev = Position(Index(header.index - 1), header.prev_term, header.first_lsn, header.prev_chain)
    if prev.index == NO_INDEX and _begins_elsewhere(state, prev):
        state.settle(event.ring_start, event.ring_end)  # the stream sends it again
        _start_over(state, event.sender, WholeLogStart(prev, 0, 0, FIRST_LEVEL))
        return
    if not _matches(state, prev):
        _reject(state, event)
        return
    _take_entry(state, event, prev)
    state.verified = max(state.verified, header.index)
    commit.follow_commit(state, append.commit)
    _answer_accepted(state, event.sender, append.stream)


def on_install(state: State, event: InstallReceived) -> None:
    """The leader's log start, in the current term (G5): go on from there if the log has that entry,
    else drop it. While the term is not durable, another one is being installed or the entry is not
    flushed, it is not answered: the stream sends it again."""
    follow_leader(state, event.sender)
    install = event.install
    if install.term > state.meta.durable_term:
        return
    if not _takes_stream(state, event.sender, install.stream, install.level):
        return
    start = Position(
        install.start_index, install.start_term, install.start_next_lsn, install.start_chain
    )
    whole = WholeLogStart(
        start, install.start_cumulative_bytes, install.start_timestamp_ns, install.level
    )
    if not _has_entry_at(state, start):
        _start_over(state, event.sender, whole)
        return
    state.verified = max(state.verified, start.index)
    commit.follow_commit(state, start.index)
    if start.index > state.persisted:
        return  # META must not name an entry that a crash takes
    _keep_above(state, whole)
    commit.report_match(state)  # before: an AppendAccepted that waits would be left out for it
    _answer_accepted(state, event.sender, install.stream)


def finish_install(state: State) -> None:
    """The writer may have answered that the log starts over. Log start is committed, in any term;
    only now may anything claim it (G5a)."""
    installing = state.installing
    if installing is None or not state.persists.is_answered(installing.seq):
        return
    state.installing = None
    state.verified = max(state.verified, installing.start)
    commit.raise_commit(state, installing.start)


def redeliver_deferred(state: State) -> list[AppendReceived]:
    """Take the deferred appends; `on_append` defers those again whose term is still not durable."""
    events, state.deferred = state.deferred, []
    return events


def _defer(state: State, event: AppendReceived) -> None:
    if len(state.deferred) < DEFERRED_EVENTS_MAX:
        state.deferred.append(event)
    else:
        state.dropped += 1
        state.settle(event.ring_start, event.ring_end)


def _takes_stream(state: State, sender: NodeId, stream: int, level: int) -> bool:
    """Whether to read on in this stream of the leader's. `level`: what its message raises the log
    to."""
    following = state.following
    if stream < following.stream or (stream == following.stream and following.is_dead):
        return False
    if stream > following.stream:
        following.stream, following.is_dead = stream, False
        following.lacks_space = False
        following.match_reported = NO_INDEX  # its replicator may be new: report the match again
    if levels.refuse_if_too_new(state, sender, stream, max(level, following.refused_level)):
        return False
    return state.installing is None


def _begins_elsewhere(state: State, prev: Position) -> bool:
    """Whether this replica joined, has no entry yet, and `prev`, which is before the first entry of
    all, is at another LSN than it heard of: from replicas that had trimmed theirs, which its leader
    has not yet (L4). Every log that was never trimmed begins there."""
    start = state.log.start
    is_empty = state.config.has_joined and state.log.last_index == NO_INDEX
    is_alike = (prev.term, prev.chain) == (start.term, start.chain)
    return is_empty and is_alike and prev.next_lsn not in (start.next_lsn, 0)


def _has_entry_at(state: State, start: Position) -> bool:
    """Whether this log has the entry at the leader's log start (G5). What lies at or below the
    commit index is that entry. Above it the record here says, or the entry after it; where damage
    hides both, what is known of its term.

    Raises:
      ReplicaLost: nothing says which entry it is.
    """
    log = state.log
    if start.index < log.start.index:
        return True
    if start.index > log.last_index:
        return False
    ours = log.position(start.index) or log.position_by_next(start.index)
    if ours is None:
        return start.index <= state.commit or _has_term(state, start.index, start.term)
    if ours != start and (ours.term == start.term or start.index <= state.commit):
        raise InvariantViolated(
            f"the leader of term {state.term} begins its log after {start}, ours has {ours} there"
        )
    return ours == start


def _start_over(state: State, sender: NodeId, whole: WholeLogStart) -> None:
    """Drop the log: it ends below the leader's log start, or has another entry there (G5a); or it
    has no entry, and begins at another LSN (L4)."""
    start = whole.position
    state.alarm(
        f"node {state.config.node} drops its log, which ends at entry {state.log.last_index}: the "
        f"log of the leader, node {sender}, begins at LSN {start.next_lsn}, after entry "
        f"{start.index}"
    )
    seq = state.persists.start_over(start.index, now_ns=state.now_ns)
    state.installing = Installing(seq, start.index)
    state.faulty = FaultyEntries(())
    state.log.start_over(whole)
    state.configurations.start_over(start.index, needs_one=whole.level >= CONFIG_LEVEL)
    state.count_voters()
    state.emit(InstallLog(seq, whole))


def _keep_above(state: State, whole: WholeLogStart) -> None:
    """Move the log start here, too, and keep what follows: the TRIM may lie beyond what a full disk
    takes (S9). Not before the level of TRIMs is known: an older version would open the folder, and
    take a log that begins inside a pair for damaged (S11)."""
    if whole.position.index > state.log.start.index and state.level >= TRIM_LEVEL:
        state.emit(MoveLogStart(replace(whole, level=max(whole.level, state.level))))


def _matches(state: State, prev: Position) -> bool:
    """Whether our log contains `prev`. (index, term) decide; if they agree and next_lsn or the
    chain does not, the replica stops (S3).

    Below the log start everything is committed and therefore equal (G3, FAULTS.R8).
    """
    log = state.log
    if prev.index < log.start.index:
        return True
    if prev.index > log.last_index:
        return False
    if not _has_term(state, prev.index, prev.term):
        if prev.index <= state.commit:
            raise InvariantViolated(
                f"entry {prev.index} is committed in term {log.term_at(prev.index)}, "
                f"the leader of term {state.term} has it in term {prev.term}"
            )
        return False
    ours = log.position(prev.index)
    if ours is not None and ours != prev:
        raise InvariantViolated(f"same entry, different log: ours {ours}, the leader's {prev}")
    return True


def _has_term(state: State, index: Index, term: Term) -> bool:
    """Whether our entry at `index` is of `term`.

    Where damage left nothing of several entries, the log knows the last one's term from the entry
    that follows. Of the others it knows only that terms never fall. It must not guess: taken for a
    conflict, the entry would be truncated with whole entries after it that were claimed; taken for
    a match, it would verify another entry.

    Raises:
      ReplicaLost: the term cannot be known.
    """
    log = state.log
    ours = log.term_at(index)
    if state.faulty and index in state.faulty and log.position(index) is None:
        highest = log.term_at(state.faulty.range_of(index)[1])
        if ours < highest and ours <= term <= highest:
            if index <= state.commit:
                return True  # what is committed here is the leader's
            raise ReplicaLost(
                f"nothing is left of entry {index}, which is of a term in {ours} to {highest}, and "
                f"of term {term} in the log of the leader; replace this replica"
            )
    return ours == term


def _reject(state: State, event: AppendReceived) -> None:
    """Reject the stream, once (W1). The hint is the term that our log has
    there, and its first index."""
    append, log = event.append, state.log
    state.settle(event.ring_start, event.ring_end)
    state.following.is_dead = True
    prev_index = Index(append.header.index - 1)
    place = min(prev_index, log.last_index)
    message = AppendReject(
        append.term,
        append.stream,
        prev_index,
        log.last_index,
        log.term_at(place),
        log.run_first(place),
    )
    state.answer(event.sender, message)
    state.emit(StreamAccepted(append.term, append.stream, state.verified, True))


def _take_entry(state: State, event: AppendReceived, prev: Position) -> None:
    """Append the entry, which follows one we have, unless it is here already."""
    header, log = event.append.header, state.log
    if _is_held(state, header):
        _check_duplicate(state, header)
        state.settle(event.ring_start, event.ring_end)
        return
    if header.index <= log.last_index:
        _truncate(state, prev)
    before = log.last_header
    if before is not None and header.cumulative_bytes != before.cumulative_bytes + header.body_size:
        raise InvariantViolated(f"{header} does not add up to {before}")
    if header.body_size != event.ring_end - event.ring_start:
        raise InvariantViolated(f"{header} came with {event.ring_end - event.ring_start} bytes")
    if (header.kind == EntryKind.CONFIG) != (event.configuration is not None):
        raise InvariantViolated(f"{header} came with {event.configuration}")
    row = Row.of(header)
    log.append(row)
    if event.configuration is not None:
        state.configurations.append(header.index, event.configuration)
        state.count_voters()
    space.take(state, header.body_size)
    seq = state.persists.append(
        header.index, ring_start=event.ring_start, ring_end=event.ring_end, now_ns=state.now_ns
    )
    state.emit(Persist(seq, header, row.chain, event.ring_start, event.ring_end, state.commit))


def _fits(state: State, header: EntryHeader) -> bool:
    """Whether the open segment takes an entry that the log lacks. A truncation needs another
    segment. What comes after an entry of this stream that it did not take would be rejected, and
    the leader send both again at once, and so on: its resend timer is soon enough."""
    beyond = header.index - state.log.last_index
    is_next = beyond == 1 or (beyond > 1 and not state.following.lacks_space)
    return is_next and space.follower_takes(state, header.kind, header.body_size)


def _is_held(state: State, header: EntryHeader) -> bool:
    """The log holds this very entry, or it is below the log start."""
    log = state.log
    if header.index > log.last_index:
        return False
    return header.index <= log.start.index or _has_term(state, header.index, header.term)


def _check_duplicate(state: State, header: EntryHeader) -> None:
    if header.index > state.log.start.index:
        ours = state.log.row(header.index)
        if ours is not None and ours.chain != header.chain():
            raise InvariantViolated(
                f"same entry, different log: ours {ours}, the leader's {header}"
            )


def _truncate(state: State, kept: Position) -> None:
    """Truncate after `kept`, because of a real conflict (W3). Never at or below
    the commit index (F8)."""
    if kept.index < state.commit:
        raise InvariantViolated(
            f"the leader of term {state.term} conflicts at entry {kept.index + 1}, "
            f"but everything up to {state.commit} is committed"
        )
    first_index = Index(kept.index + 1)
    seq = state.persists.truncate(first_index, now_ns=state.now_ns)
    state.faulty.truncate(first_index)
    state.log.truncate(kept)
    state.configurations.truncate(first_index)
    state.count_voters()
    state.emit(Truncate(seq, first_index))


def _answer_accepted(state: State, sender: NodeId, stream: int) -> None:
    """Answer Accepted, and Persisted where the entry is flushed (FAULTS R6: the verified index)."""
    state.emit(StreamAccepted(state.term, stream, state.verified, False))
    state.answer(sender, AppendAccepted(state.term, stream, state.verified))
    commit.report_match(state)
