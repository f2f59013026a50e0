"""SAFETY S9: what replicas with full disks still append, so that a TRIM can end that state."""

from __future__ import annotations

from typing import Any

import pytest

from logstore.errors import InvariantViolated
from logstore.format.peer_messages import (
    NO_ROUND,
    AppendAccepted,
    AppendReject,
    HeartbeatReply,
)
from logstore.format.trim_entry import TRIM_BODY_SIZE
from logstore.limits import FULL_DISK_KEPT_BYTES
from logstore.model import EntryKind, Index, Role
from logstore.raft.effects import (
    Accepted,
    AdmissionClosed,
    Admit,
    Effect,
    Persist,
    Settle,
    Truncate,
)
from logstore.raft.events import DiskFullChanged, Proposed
from logstore.raft.space import most_bytes
from tests.paper.one_node import OneNode, of_type, rows_of, sent
from tests.paper.test_stalled_leaders import TIMEOUT_MS, answer_heartbeats
from tests.paper.virtual_node import MS

ROOM = 1 << 20
MANY = 10_000
FULL = DiskFullChanged(True, ROOM, MANY)
KEPT = FULL_DISK_KEPT_BYTES
TRIM_BYTES = most_bytes(TRIM_BODY_SIZE)
PART_BYTES = 100 << 10
FREE = DiskFullChanged(False)


def leader(*, room: DiskFullChanged | None = None, voters: tuple[int, ...] = (1, 2, 3)) -> OneNode:
    node = OneNode(voters=voters)
    node.lead_and_commit()
    if room is not None:
        node.step(room)
    return node


def propose(
    node: OneNode,
    prop: int,
    gen: int,
    kind: EntryKind = EntryKind.TRIM,
    size: int = TRIM_BODY_SIZE,
) -> list[Effect]:
    start, end = node.reserve(size)
    return node.step(Proposed(node.core.term, gen, prop, kind, 0, 7, start, end, 0))


def gens(effects: list[Effect]) -> list[Any]:
    """The gens that were opened, as (number, takes batches), and why others were closed."""
    return [
        (each.gen, each.takes_batches) if isinstance(each, Admit) else each.reason
        for each in effects
        if isinstance(each, Admit | AdmissionClosed)
    ]


def test_s9_a_full_leader_that_nobody_relieves_opens_a_gen_without_batches() -> None:
    node = leader()
    assert gens(node.step(FULL)) == ["disk_full", (2, False)]
    assert not node.core.is_admitting
    assert of_type(propose(node, 0, 2), Accepted)
    with pytest.raises(InvariantViolated, match="gen 2 takes no batches"):
        node.propose(1)


def test_s9_with_space_it_opens_a_gen_for_batches_again() -> None:
    node = leader(room=FULL)
    assert gens(node.step(FREE)) == ["disk_has_space", (3, True)]
    assert of_type(node.propose(0), Accepted)


def test_s9_a_leader_without_room_takes_no_trim_either() -> None:
    node = leader()
    assert gens(node.step(DiskFullChanged(True, 100, 100))) == ["disk_full"]
    assert gens(node.step(DiskFullChanged(True, ROOM, 0))) == []
    assert gens(node.step(FULL)) == [(2, False)]


def test_s9_a_gen_without_batches_is_closed_when_the_room_is_used_up() -> None:
    node = leader(room=DiskFullChanged(True, ROOM, 2))
    for prop in range(2):
        assert of_type(propose(node, prop, 2), Accepted)
    effects = propose(node, 2, 2)
    assert gens(effects) == ["disk_full"]
    assert of_type(effects, Settle)
    node.flush()
    node.hear_match(2, node.core.last_index)
    assert node.core.commit == node.core.last_index
    assert node.core.open_gen is None


def test_s9_changes_of_cursors_leave_room_for_a_trim() -> None:
    """An archive that notes where it is all the time must not use up what a TRIM needs."""
    node = leader(room=DiskFullChanged(True, KEPT + 14 * TRIM_BYTES, MANY))
    hear_rooms(node, {2: 100 * PART_BYTES, 3: 100 * PART_BYTES})
    for prop in range(14):
        assert of_type(propose(node, prop, 2, EntryKind.CURSOR), Accepted)
    assert gens(propose(node, 14, 2, EntryKind.CURSOR)) == ["disk_full"]
    effects = answer_heartbeats(node, TIMEOUT_MS, full=(2, 3))
    assert gens(effects) == [(3, False)]
    assert of_type(propose(node, 0, 3), Accepted)


def test_s9_parts_of_a_snapshot_leave_room_for_the_trim_that_needs_it() -> None:
    """Parts that do not become a whole snapshot must not use up what is left for a trim to the old
    one."""
    node = leader(room=DiskFullChanged(True, KEPT + 3 * PART_BYTES, MANY))
    hear_rooms(node, {2: 100 * PART_BYTES, 3: 100 * PART_BYTES})
    for prop in range(2):
        effects = propose(node, prop, 2, EntryKind.SESSION, size=PART_BYTES)
        assert of_type(effects, Accepted)
    effects = propose(node, 2, 2, EntryKind.SESSION, size=PART_BYTES)
    assert gens(effects) == ["disk_full"]
    node.tick(node.config.heartbeat_ns // MS)
    for prop in range(KEPT // TRIM_BYTES):
        assert of_type(propose(node, prop, 3), Accepted)


@pytest.mark.parametrize("kind", [EntryKind.CURSOR, EntryKind.SESSION, EntryKind.EXPIRE])
@pytest.mark.parametrize(("room_bytes", "entries"), [(3, MANY), (40, 3)])
def test_s9_what_is_kept_for_trims_does_not_shrink_where_a_restart_finds_little_room(
    kind: EntryKind, room_bytes: int, entries: int
) -> None:
    """Shares of what is left shrank with every start that found the disk full."""
    node = leader(room=DiskFullChanged(True, room_bytes * TRIM_BYTES, entries))
    assert gens(propose(node, 0, 2, kind)) == ["disk_full"]
    node.tick(node.config.heartbeat_ns // MS)
    for prop in range(3):
        assert of_type(propose(node, prop, 3), Accepted)


def test_s9_what_the_writer_had_not_read_takes_room_too() -> None:
    node = leader()
    seq = node.persist_seq
    for prop in range(3):
        node.propose(prop)
    node.step(DiskFullChanged(True, 4 * TRIM_BYTES, MANY, seq + 1))
    accepted = [of_type(propose(node, prop, 2), Accepted) for prop in range(3)]
    assert [bool(each) for each in accepted] == [True, True, False]


def full_peers(
    rooms: dict[int, int], *, leader_room: DiskFullChanged | None = None, level: int = 2
) -> OneNode:
    """A leader of a log of this level that hears these followers, whose disks are full, and which
    have its no-op; whoever is not among them is down."""
    node = OneNode(rows=rows_of([1], raises={Index(1): level} if level > 1 else {}))
    node.lead()
    node.flush()
    for peer in rooms:
        node.hear_match(peer, node.core.last_index)
    node.step(FREE if leader_room is None else leader_room)
    hear_rooms(node, rooms)
    node.tick(TIMEOUT_MS)  # who is not heard now was heard an election timeout ago
    hear_rooms(node, rooms)
    node.tick(1)
    return node


def hear_rooms(node: OneNode, rooms: dict[int, int], *, last: int = 0) -> list[Effect]:
    """Followers with full disks and so much room report that their logs end at `last`, or where the
    leader's does; room -1: the disk is not full."""
    effects: list[Effect] = []
    for peer, room in rooms.items():
        end = Index(last or node.core.last_index)
        fields = (node.core.term, NO_ROUND, end, Index(0), Index(0), 0, 0)
        effects += node.hear(peer, HeartbeatReply(*fields, room >= 0, 2, 2, max(0, room)))
    return effects


@pytest.mark.parametrize("kind", [EntryKind.CURSOR, EntryKind.SESSION])
def test_s9_changes_leave_room_for_a_trim_on_a_follower_that_is_needed_to_commit_it(
    kind: EntryKind,
) -> None:
    """A follower with less room than its leader dropped a change; the TRIM comes after it in the
    log. Node 3 is down."""
    node = full_peers({2: KEPT + 2 * TRIM_BYTES}, leader_room=FULL)
    gen = node.core.open_gen or 0
    accepted = [of_type(propose(node, prop, gen, kind), Accepted) for prop in range(3)]
    assert [bool(each) for each in accepted] == [True, True, False]
    hear_rooms(node, {2: KEPT + 2 * TRIM_BYTES}, last=node.core.last_index - 2)
    node.tick(node.config.heartbeat_ns // MS)
    gen = node.core.open_gen or 0
    assert gens(propose(node, 0, gen, kind)) == ["disk_full"], "two are on their way there"
    node.tick(node.config.heartbeat_ns // MS)
    assert of_type(propose(node, 0, node.core.open_gen or 0), Accepted)


def test_s9_what_a_full_follower_has_and_has_not_flushed_takes_its_room_once() -> None:
    """It had taken it off what it reported. A snapshot that fitted was cut between two parts."""
    node = full_peers({2: KEPT + 3 * TRIM_BYTES}, leader_room=FULL)
    gen = node.core.open_gen or 0
    assert of_type(propose(node, 0, gen, EntryKind.SESSION), Accepted)
    assert of_type(propose(node, 1, gen, EntryKind.SESSION), Accepted)
    hear_rooms(node, {2: KEPT + TRIM_BYTES})  # no match: its flush is under way
    assert of_type(propose(node, 2, gen, EntryKind.SESSION), Accepted)
    assert gens(propose(node, 3, gen, EntryKind.SESSION)) == ["disk_full"]


def test_s9_a_new_leader_with_a_full_disk_counts_on_no_peer_before_it_answers() -> None:
    node = OneNode(rows=rows_of([1], raises={Index(1): 2}))
    node.step(FULL)
    node.lead()
    assert node.core.room_for_changes == 0
    hear_rooms(node, {2: -1})
    assert node.core.room_for_changes > 0


@pytest.mark.parametrize(
    ("leader_room", "rooms", "are_taken"),
    [
        (FREE, {2: 0, 3: -1}, True),
        (FREE, {2: 0}, False),
        *(
            (leader_room, rooms, are_taken)
            for leader_room in (FREE, FULL)
            for rooms, are_taken in (
                ({2: 0, 3: KEPT + 2 * TRIM_BYTES}, True),
                ({2: KEPT + 2 * TRIM_BYTES, 3: 0}, True),
                ({2: 0, 3: KEPT + TRIM_BYTES}, False),
            )
        ),
    ],
    ids=str,
)
def test_s9_a_full_follower_that_no_majority_needs_stops_no_change(
    leader_room: DiskFullChanged, rooms: dict[int, int], *, are_taken: bool
) -> None:
    node = full_peers(rooms, leader_room=leader_room)
    for prop, kind in enumerate((EntryKind.TRIM, EntryKind.CURSOR)):
        effects = propose(node, prop, node.core.open_gen or 0, kind)
        assert bool(of_type(effects, Accepted)) == (kind is EntryKind.TRIM or are_taken)


def test_s9_a_leader_counts_on_no_room_that_it_knows_nothing_of() -> None:
    """A follower whose match is not known yet may lack anything."""
    node = OneNode(rows=rows_of([1, 1], raises={Index(1): 2}))
    node.lead()
    node.step(FULL)
    room = KEPT + 2 * most_bytes(10)
    hear_rooms(node, {2: room, 3: room})
    assert node.core.room_for_changes == 0
    node.hear_match(2, node.core.last_index)
    hear_rooms(node, {2: room, 3: room})
    assert node.core.room_for_changes == 2 * most_bytes(10)


def test_s9_a_leader_takes_no_batches_while_too_many_followers_are_full() -> None:
    """What it took could not be committed, and a TRIM that comes after it neither."""
    node = leader()
    assert gens(answer_heartbeats(node, TIMEOUT_MS, full=(2,))) == []
    assert gens(answer_heartbeats(node, TIMEOUT_MS, full=(2, 3))) == ["disk_full", (2, False)]
    assert of_type(propose(node, 0, 2), Accepted)
    effects = answer_heartbeats(node, TIMEOUT_MS, full=(3,))
    assert gens(effects) == ["disk_has_space", (3, True)]


def test_s9_a_leader_acts_on_it_as_soon_as_it_hears_that_a_follower_is_full() -> None:
    """What it accepts meanwhile takes the room that a TRIM needs."""
    node = leader()
    term, none = node.core.term, Index(0)
    full, free = (HeartbeatReply(term, 0, Index(1), none, none, is_disk_full=is_full)
                  for is_full in (True, False))  # fmt: skip
    assert gens(node.hear(2, full)) == []
    assert gens(node.hear(3, full)) == ["disk_full", (2, False)]
    assert gens(node.hear(3, full)) == []
    assert gens(node.hear(2, free)) == ["disk_has_space", (3, True)]


def test_s9_a_leader_of_full_disks_commits_its_no_op() -> None:
    node = OneNode()
    node.step(FULL)
    effects = node.lead()
    assert gens(effects) == [(1, False)]


def test_s9_a_full_single_replica_takes_a_trim() -> None:
    node = leader(voters=(1,))
    assert gens(node.step(FULL)) == ["disk_full", (2, False)]
    assert of_type(propose(node, 0, 2), Accepted)


@pytest.mark.parametrize("entries", [4, 5])
def test_s9_a_full_follower_takes_changes_while_they_fit(entries: int) -> None:
    """The TRIM comes after them: it had kept an eighth for a TRIM that it could not take."""
    rows = rows_of([1] * 5, changes=(1, 2, 3, 4), trims=(5,))
    node = OneNode(rows=(), term=1)
    node.follow(2, 1)
    node.step(DiskFullChanged(True, ROOM, entries))
    took = [row.header.index for row in rows if of_type(node.hear_append(2, row), Persist)]
    assert took == [1, 2, 3, 4, 5][:entries]


def test_s9_a_full_follower_reports_its_room_from_the_level_of_trims_on() -> None:
    """An older version would not understand the answer."""
    for level, told in ((1, 0), (2, most_bytes(0) * 7)):
        raises = {Index(1): 2} if level == 2 else {}
        rows = rows_of([1] * 3, noops=(1,) if level == 1 else (), raises=raises)
        node = OneNode(rows=rows[:1], term=1)
        node.follow(2, 1)
        node.hear_heartbeat(2, term=1, commit=1, prev=rows[0])
        node.step(DiskFullChanged(True, ROOM, 8))
        node.hear_append(2, rows[1])
        ((_, reply),) = sent(node.hear_heartbeat(2, term=1), HeartbeatReply)
        assert reply.room_bytes == told
        node.step(FREE)
        ((_, reply),) = sent(node.hear_heartbeat(2, term=1), HeartbeatReply)
        assert reply.room_bytes == 0


def follower(room: DiskFullChanged, rows: int, kept: int) -> OneNode:
    """It has the first `kept` of so many entries, those in (3, 5) are TRIMs."""
    node = OneNode(rows=rows_of([1] * rows, trims=(3, 5))[:kept], term=1)
    node.follow(2, 1)
    node.step(room)
    return node


def test_s9_a_follower_reports_at_once_that_its_disk_is_full_and_that_it_has_space_again() -> None:
    """It answers no round with that: no read may count it (V5)."""
    node = OneNode(rows=rows_of([1]), term=1)
    assert sent(node.step(FULL), HeartbeatReply) == []  # it knows no leader yet
    node.follow(2, 1)
    for changed in (FREE, FULL):
        ((peer, reply),) = sent(node.step(changed), HeartbeatReply)
        assert (peer, reply.round, reply.is_disk_full) == (2, NO_ROUND, changed.is_full)


def test_s9_a_full_follower_takes_what_comes_before_a_trim_and_the_trim() -> None:
    rows = rows_of([1] * 5, trims=(3, 5))
    node = follower(FULL, 5, 1)
    for row in rows[1:]:
        assert of_type(node.hear_append(2, row), Persist)
    (reply,) = sent(node.hear_heartbeat(2, term=1), HeartbeatReply)
    assert reply[1].is_disk_full


@pytest.mark.parametrize(
    ("room", "taken"),
    [
        (DiskFullChanged(True, ROOM, 4), [1, 2, 3]),  # a quarter is left for entries without
        (DiskFullChanged(True, ROOM, 2), [1, 2]),
        (DiskFullChanged(True, 1_000, 100), [1]),
        (DiskFullChanged(True, 400, 100), []),
    ],
    ids=str,
)
def test_s9_a_full_follower_keeps_a_quarter_for_entries_without_payloads(
    room: DiskFullChanged, taken: list[int]
) -> None:
    rows = rows_of([1] * 8)
    node = follower(room, 8, 0)
    took = [row.header.index for row in rows if of_type(node.hear_append(2, row), Persist)]
    assert took == taken


def test_s9_the_kept_quarter_takes_trims() -> None:
    rows = rows_of([1] * 5, trims=(3, 4, 5))
    node = OneNode(rows=(), term=1)
    node.follow(2, 1)
    node.step(DiskFullChanged(True, ROOM, 3))
    took = [row.header.index for row in rows if of_type(node.hear_append(2, row), Persist)]
    assert took == [1, 2, 3]


def test_s9_what_follows_an_entry_that_has_no_room_is_dropped_with_it() -> None:
    """Rejected, both would come again at once, as fast as the network is, for as long as the disk
    is full."""
    rows = rows_of([1] * 4, trims=(3, 4))  # there is room for a TRIM
    node = OneNode(rows=rows[:1], term=1)
    node.follow(2, 1)
    node.step(DiskFullChanged(True, 800, 100))
    for row in rows[1:]:
        assert [type(each) for each in node.hear_append(2, row)] == [Settle]
    # a stream that begins later learns where the log ends
    ((_, reject),) = sent(node.hear_append(2, rows[2], stream=2 << 32), AppendReject)
    assert reject.last_index == 1
    node.hear_append(2, rows[1], stream=3 << 32)
    node.step(FREE)
    assert sent(node.hear_append(2, rows[2], stream=3 << 32), AppendReject)


def test_s9_a_full_follower_truncates_nothing() -> None:
    """That would need another segment."""
    node = OneNode(rows=rows_of([1, 1]), term=2)
    node.follow(2, 2)
    node.step(FULL)
    row = rows_of([1, 2])[1]
    effects = node.hear_append(2, row)
    assert [type(each) for each in effects] == [Settle]
    assert of_type(node.step(FREE), Persist) == []
    assert of_type(node.hear_append(2, row), Truncate)


def test_s9_room_is_counted_anew_with_each_report() -> None:
    node = follower(DiskFullChanged(True, ROOM, 1), 8, 0)
    rows = rows_of([1] * 8)
    assert sent(node.hear_append(2, rows[0]), AppendAccepted)
    assert not of_type(node.hear_append(2, rows[1]), Persist)
    node.step(FREE)
    assert of_type(node.hear_append(2, rows[1]), Persist)
    assert node.core.role == Role.FOLLOWER
    assert node.core.last_index == Index(2)


def stuck(*, full: tuple[int, ...], is_full: bool = True) -> OneNode:
    """A leader whose flush does not end, since its disk is full or slow. Its followers have
    entry 2, which is committed, and do not get entry 3."""
    node = leader()
    for prop in range(2):
        node.propose(prop)
    node.tick(1)
    for peer in (2, 3):
        node.hear_match(peer, 2)
    if is_full:
        node.step(FULL)
    answer_heartbeats(node, 6 * TIMEOUT_MS, last=2, full=full)
    return node


def test_s9_a_leader_whose_disk_holds_up_what_full_followers_do_not_take_gives_up() -> None:
    """It had handed over every two election timeouts, to who could never get level, while its
    followers had room for the TRIM that it refused."""
    assert stuck(full=(2, 3)).core.role == Role.FOLLOWER
    assert stuck(full=(2, 3), is_full=False).core.role == Role.LEADER
