"""Requests that free space are taken while the disk is full, batches are not (SAFETY S9)."""

from __future__ import annotations

import pytest

from actors.ingress.actor import groups_in_flight
from actors.topology import Counter
from logstore.config import parse_config
from logstore.errors import ErrorCode
from logstore.format.client_messages import DoneReply, EndSessionRequest, SessionStateRequest
from logstore.format.cursor_entries import Cursor, encode_cursor
from logstore.format.level import FIRST_LEVEL
from logstore.limits import FULL_DISK_KEPT_BYTES
from logstore.model import EntryKind
from logstore.raft import effects
from logstore.raft.space import most_bytes
from tests.unit.ingress_stage import CONFIG, open_request
from tests.unit.test_ingress_cursors import confirm, set_request
from tests.unit.test_ingress_snapshots import make_due, settle
from tests.unit.test_ingress_trims import bounds, leader_with_entries, snapshot, trim


@pytest.fixture
def full():
    """A snapshot is committed; then the disk is full, and the gen takes no batches."""
    stage = leader_with_entries()
    snapshot(stage)
    stage.slots[Counter.DISK_FULL] = 1
    stage.tell(effects.AdmissionClosed(1, 6, "disk_full"))
    reopen(stage, 2, takes_batches=False)
    return stage


@pytest.fixture
def client(full):
    return full.client()


def reopen(stage, gen, *, takes_batches, room=1 << 20):
    """`room`: for entries that are not TRIMs."""
    stage.slots[Counter.ROOM_FOR_CHANGES] = room
    stage.tell(effects.Admit(1, gen, len(stage.entries), 1, takes_batches=takes_batches))


def test_s9_on_a_full_disk_a_trim_is_taken(full, client):
    assert trim(client, 6) is None
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.TRIM]
    assert client.answer() == DoneReply(5)


def test_s9_on_a_full_disk_the_snapshot_that_a_trim_needs_is_taken(full, client):
    with_news(full)
    assert trim(client, 11) is None
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.SESSION]
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.TRIM]
    assert client.answer() == DoneReply(11)


def with_news(stage, *, accepted=0):
    """The log has LSNs after its newest snapshot, at LSN 9; then disks are full again."""
    stage.tell(effects.AdmissionClosed(2, accepted, "disk_has_space"))
    reopen(stage, 3, takes_batches=True)
    stage.pushed.push(4)
    stage.accept_and_commit()
    stage.tell(effects.AdmissionClosed(3, 1, "disk_full"))
    reopen(stage, 4, takes_batches=False)
    return stage.ingress.admission.snapshot_most_bytes


def test_s9_a_trim_whose_snapshot_has_no_room_is_refused_at_once_with_one_that_can_be_done(
    full, client
):
    """Parts that do not become a whole snapshot only took the room, and the trim waited in vain."""
    full.slots[Counter.ROOM_FOR_CHANGES] = with_news(full) - 1
    answer = confirmed(full, client, 11)
    assert bounds(answer) == (1, 9)
    assert answer.text.decode() == (
        "the log can be trimmed up to LSN 9: more needs a snapshot of the sessions, for which full "
        "disks have no room; trim --to 9 first"
    )
    assert trim(client, 9) is None
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.TRIM]
    assert client.answer() == DoneReply(9)


def confirmed(stage, client, lsn):
    """The answer to a trim, once raft has confirmed the leader."""
    assert trim(client, lsn) is None
    confirm(stage)
    return client.answer()


def test_s9_a_snapshot_that_just_has_room_is_taken_whole(full, client):
    """What it is said to take at most is counted as raft counts it."""
    full.ingress.admission._snapshots._part_max_bytes = 512
    for number in range(24):
        client.ask(set_request(b"cursor %030d" % number, 5))
        full.accept_and_commit()
        client.answer()
    with_news(full, accepted=24)
    room = full.ingress.admission.snapshot_most_bytes
    full.slots[Counter.ROOM_FOR_CHANGES] = room
    assert trim(client, 11) is None
    found = len(full.entries)
    assert set(settle(full)) == {EntryKind.SESSION, EntryKind.TRIM}
    *parts, _ = [header.body_size for header, _ in full.entries[found:]]
    assert len(parts) > 2
    assert sum(map(most_bytes, parts)) <= room
    assert isinstance(client.answer(), DoneReply)


def test_s9_where_no_snapshot_was_taken_and_none_has_room_space_is_to_be_freed():
    stage = leader_with_entries()
    stage.tell(effects.AdmissionClosed(1, 5, "disk_full"))
    reopen(stage, 2, takes_batches=False, room=0)
    answer = confirmed(stage, stage.client(), 5)
    assert bounds(answer) == (1, 1)
    assert answer.text.decode().endswith("; free some space on a majority of nodes first")
    assert stage.take_proposals() == []


def test_s9_on_a_full_disk_no_snapshot_is_taken_for_its_age(full, client):
    """Each gen began with one where the log had enough after the last; a trim could not come."""
    make_due(full)
    reopened(full, 3)
    assert full.take_proposals() == []
    assert trim(client, 6) is None
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.TRIM]


def reopened(stage, gen):
    stage.tell(effects.AdmissionClosed(gen - 1, 0, "disk_full"))
    reopen(stage, gen, takes_batches=False)


@pytest.mark.parametrize(("spare", "holds", "is_taken"), [
    (0, True, True), (-1, True, False), (-1, False, True),
    (-FULL_DISK_KEPT_BYTES, False, True), (-FULL_DISK_KEPT_BYTES - 1, False, False),
])  # fmt: skip
def test_s9_an_archive_that_moves_its_cursor_leaves_room_to_delete_it(
    full, client, spare, holds, is_taken
):
    """A cursor that is held is what a trim may wait for."""
    room = most_bytes(len(encode_cursor(Cursor(b"held", 1, True)))) + FULL_DISK_KEPT_BYTES
    full.slots[Counter.ROOM_FOR_CHANGES] = room + spare
    client.ask(set_request(b"held", 1 if holds else 0, is_held=holds))
    assert len(full.accept_and_commit()) == is_taken
    answer = client.answer()
    assert isinstance(answer, DoneReply) == is_taken
    if not is_taken:
        assert answer.code == ErrorCode.DISK_FULL
        assert b"trim the log first" in answer.text


def test_s9_what_raft_has_not_accepted_takes_room_too(full, client):
    """Many requests came before raft said anew how much there is, and what is kept was gone."""
    size = most_bytes(len(encode_cursor(Cursor(b"held 1", 1, True))))
    full.slots[Counter.ROOM_FOR_CHANGES] = 2 * size + FULL_DISK_KEPT_BYTES
    for number in range(3):
        client.ask(set_request(b"held %d" % number, 1, is_held=True))
    assert client.answer().code == ErrorCode.DISK_FULL
    assert [header.kind for header in full.accept_and_commit()] == 2 * [EntryKind.CURSOR]


def test_s9_below_the_level_of_trims_a_full_disk_asks_for_an_upgrade(full, client):
    full.slots[Counter.ROOM_FOR_CHANGES] = 0
    full.tell(effects.Committed(full.term, len(full.entries), FIRST_LEVEL))
    client.ask(set_request(b"held", 1, is_held=True))
    assert b"run `logstore upgrade`" in client.answer().text


def test_s9_sessions_are_not_ended_with_the_last_room(full, client):
    request = EndSessionRequest(full.pushed.id)
    full.slots[Counter.ROOM_FOR_CHANGES] = FULL_DISK_KEPT_BYTES
    client.ask(request)
    assert (full.accept_and_commit(), client.answer().code) == ([], ErrorCode.DISK_FULL)
    full.slots[Counter.ROOM_FOR_CHANGES] += 1_000
    client.ask(request)
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.EXPIRE]


def test_s9_on_a_full_disk_a_cursor_can_be_released_however_many_requests_came(full, client):
    for lsn in range(1, 20):
        client.ask(set_request(b"held", lsn % 4 + 1, is_held=lsn % 2 == 0))
        assert [header.kind for header in full.accept_and_commit()] == [EntryKind.CURSOR]
        assert isinstance(client.answer(), DoneReply)


def test_s9_on_a_full_disk_batches_stay_unread_and_producers_are_told(full, client):
    full.pushed.push(4)
    assert full.take_proposals() == []
    assert full.ingress._ports.append not in full.ingress.wait_on()
    client.ask(open_request(name=b"new"))
    assert client.answer().code == ErrorCode.DISK_FULL
    client.ask(SessionStateRequest(full.pushed.id, full.pushed.epoch, 2))
    assert client.answer().code == ErrorCode.DISK_FULL
    full.slots[Counter.DISK_FULL] = 0
    full.tell(effects.AdmissionClosed(2, 0, "disk_has_space"))
    reopen(full, 3, takes_batches=True)
    assert [header.kind for header in full.accept_and_commit()] == [EntryKind.DATA]


def test_s9_where_followers_are_full_producers_are_to_ask_later(full, client):
    full.slots[Counter.DISK_FULL] = 0
    client.ask(open_request(name=b"new"))
    assert client.answer().code == ErrorCode.NOT_READY


@pytest.mark.parametrize(
    ("segment", "wanted", "found"),
    [("256MiB", 16, 16), ("2MiB", 16, 5), ("2MiB", 4, 4), ("1MiB", 64, 2)],
)
def test_groups_in_flight_fit_into_what_a_full_disk_has_for_batches(segment, wanted, found):
    config = parse_config(
        CONFIG.partition("[limits]")[0]
        + f'[storage]\nsegment = "{segment}"\n[limits]\nbatch_max = "256KiB"\n'
        + f'group_max = "128KiB"\ngroups_in_flight = {wanted}\n'
    )
    assert groups_in_flight(config) == found
