"""What replicas with full disks still append (SAFETY S9).

Owns how much is left of the open segment, whose space was prepared before the disk was full, here
and, on a leader, at its peers. The leader accepts what a majority has room for, and but for TRIMs
and no-ops leaves what these need: they end this state. It takes no batches. A follower takes the
rest of the log while it fits, for the TRIM comes after it; only of batches, which were under way
when the leader heard of the full disk, it leaves a quarter for whoever leads without them.
Must not know where an entry lies: what is counted is an upper bound, so the writer may have more.
"""

from __future__ import annotations

from logstore.format.entry import takes_lsns
from logstore.format.group import FRAME_HEADER_SIZE
from logstore.format.level import TRIM_LEVEL
from logstore.format.peer_messages import HeartbeatReply
from logstore.format.trim_entry import TRIM_BODY_SIZE
from logstore.limits import POSITION_MAX, SECTOR_BYTES
from logstore.model import NO_INDEX, EntryKind, Index
from logstore.raft.events import DiskFullChanged
from logstore.raft.log_view import EntryLog
from logstore.raft.progress import Progress
from logstore.raft.state import Leading, Room, State

BATCHES_LEAVE = 4
# Of what is kept for TRIMs: one waits for a CONFIG where the newest is in its way (G1), and after
# that none is in the way of what the full disks have.
CONFIGS_LEAVE = 2
UNBOUNDED = POSITION_MAX


def most_bytes(body_size: int) -> int:
    """What an entry takes at most: it may begin a flush group, at the next sector (S6)."""
    return FRAME_HEADER_SIZE + body_size + SECTOR_BYTES


# --- this replica's disk ---


def record(state: State, changed: DiskFullChanged) -> None:
    """Record what the writer reports, less what it had not read of its orders."""
    state.is_disk_full = changed.is_full
    unread = state.persists.sizes_above(changed.seq)
    size_bytes = max(0, changed.room_bytes - sum(map(most_bytes, unread)))
    entries = max(0, changed.room_entries - len(unread))
    state.room = Room(size_bytes, entries, size_bytes // BATCHES_LEAVE, entries // BATCHES_LEAVE)


def take(state: State, body_size: int) -> None:
    """Count an entry that was appended."""
    if state.is_disk_full:
        state.room.size_bytes -= most_bytes(body_size)
        state.room.entries -= 1


def follower_takes(state: State, kind: int, body_size: int) -> bool:
    """Whether a follower appends an entry of its leader's."""
    room = state.room
    kept = (room.kept_bytes, room.kept_entries) if takes_lsns(kind) else (0, 0)
    return _fits(state, body_size, kept_bytes=kept[0], kept_entries=kept[1])


def room_told(state: State) -> int:
    """The room as the leader is told. Entries are counted with it: each takes something besides its
    body. A form of level 2, below which no TRIM is written (S11)."""
    is_told = state.is_disk_full and state.level >= TRIM_LEVEL
    return _own_room(state) if is_told else 0


def _own_room(state: State) -> int:
    room = state.room
    if not state.is_disk_full:
        return UNBOUNDED
    return max(0, min(room.size_bytes, room.entries * most_bytes(0)))


def _fits(state: State, body_size: int, *, kept_bytes: int, kept_entries: int) -> bool:
    room = state.room
    return not state.is_disk_full or (
        room.size_bytes - most_bytes(body_size) >= kept_bytes and room.entries > kept_entries
    )


# --- a leader, and its peers' disks ---


def may_propose(state: State) -> bool:
    """Whether this replica could append a TRIM."""
    return _fits(state, TRIM_BODY_SIZE, kept_bytes=0, kept_entries=0)


def leader_takes(state: State, kind: int, body_size: int) -> bool:
    """Whether this leader accepts an entry that the gen is for."""
    if kind == EntryKind.TRIM or takes_lsns(kind):
        return _fits(state, body_size, kept_bytes=0, kept_entries=0)
    kept_bytes = state.config.full_disk_kept_bytes
    if kind == EntryKind.CONFIG:
        kept_bytes //= CONFIGS_LEAVE
    return most_bytes(body_size) <= _room_besides(state, kept_bytes)


def room_for_changes(state: State) -> int:
    """What a leader may append, by `most_bytes`, besides what is kept for TRIMs, no-ops and
    CONFIGs; 0 on others."""
    return _room_besides(state, state.config.full_disk_kept_bytes)


def _room_besides(state: State, kept_bytes: int) -> int:
    """What a leader and enough of its peers for a majority have room for, and then `kept_bytes`
    more; 0 on others."""
    leading = state.leading
    if leading is None:
        return 0
    room = _own_room(state)
    if state.is_disk_full or any(peer.is_disk_full for peer in leading.progress.values()):
        rooms = {peer: _peer_room(state, each) for peer, each in leading.progress.items()}
        rooms[state.config.node] = room
        room = min(room, state.voters.reached(rooms))  # it appends whatever its peers have
    return room if room == UNBOUNDED else max(0, room - kept_bytes)


def record_peer(state: State, peer: Progress, reply: HeartbeatReply) -> None:
    """Record the room that a full peer reports, which is behind the last entry that it has, flushed
    or not. Before it has matched, that may be of another tail."""
    is_known = reply.is_disk_full and peer.match > NO_INDEX
    end = end_of(state.log, reply.last_index) if is_known else None
    peer.room_end = 0 if end is None else end + reply.room_bytes


def _peer_room(state: State, peer: Progress) -> int:
    since_ns = state.now_ns - state.config.election_timeout_ns
    if not (peer.has_replied and peer.was_heard_since(since_ns)):
        return 0
    if not peer.is_disk_full:
        return UNBOUNDED
    end = end_of(state.log, state.log.last_index)
    return 0 if end is None else max(0, peer.room_end - end)


def end_of(log: EntryLog, index: Index) -> int | None:
    """What all entries up to `index` take at most; None: it is not in memory."""
    size_bytes = log.bytes_in_memory(index)
    return None if size_bytes is None else size_bytes + index * most_bytes(0)


def takes_batches(state: State, leading: Leading) -> bool:
    """Whether this leader and a majority have space for more than what they have reserved."""
    if state.is_disk_full:
        return False
    peers = leading.progress.values()
    return not any(peer.is_disk_full for peer in peers) or not lacks_space(state, leading)


def lacks_space(state: State, leading: Leading) -> bool:
    """Fewer than a majority, this node included, have space: the other disks are full, or do not
    answer. If no disk is full, check-quorum makes sure that enough answer."""
    since_ns = state.now_ns - state.config.election_timeout_ns

    def has_space(peer: Progress) -> bool:
        return peer.was_heard_since(since_ns) and not peer.is_disk_full

    able = {peer for peer, progress in leading.progress.items() if has_space(progress)}
    return not state.voters.is_majority({state.config.node, *able})
