"""Readers of a log whose start moves: they are told what is gone, and keep no removed file open.

SAFETY G4, G6, V7: egress, replicators, raft's rows, the rebuilding of the session table.
"""

from __future__ import annotations

import os

import pytest

from actors.egress import tail
from actors.raft.log_files import FileLogView
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    ErrorReply,
    SpansRequest,
    TailGroup,
    TimeLookupRequest,
    VerifyRequest,
    WatermarksRequest,
)
from logstore.storage.log_reader import BelowLogStart, LogReader
from tests.crash.storage_trial import entry_elsewhere
from tests.unit.egress_stage import EgressStage, fetch, messages_of
from tests.unit.replicator_stage import ReplicatorStage
from tests.unit.writer_stage import WriterStage

BIG = 60 << 10


@pytest.fixture
def removed_files_open(tmp_path):
    """How many removed files of this test's log this process still has open."""

    def count():
        found = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{name}")
            except FileNotFoundError:
                continue
            is_removed = target.endswith((".data (deleted)", ".raft (deleted)"))
            found += is_removed and target.startswith(f"{tmp_path}/")
        return found

    return count


@pytest.fixture
def egress(tmp_path, monkeypatch):
    """LSNs 1 to 9, one an entry, in pairs that begin at 1, 5 and 9."""
    stage = EgressStage(tmp_path, monkeypatch)
    for _ in range(9):
        stage.append(BIG)
    stage.show()
    yield stage
    stage.close()


@pytest.fixture
def client(egress):
    return egress.client()


def refused_by(answer):
    [reply] = answer
    assert isinstance(reply, ErrorReply)
    return reply.code, reply.first, reply.last


def test_g6_what_is_below_the_log_start_is_out_of_range_and_what_is_above_is_served(egress, client):
    egress.log.trim(4)
    egress.work()
    out_of_range = (ErrorCode.OUT_OF_RANGE, 5, 9)
    for first, last in ((1, 9), (4, 4), (4, 9)):
        assert refused_by(client.ask(fetch(first, last))) == out_of_range
        assert refused_by(client.ask(SpansRequest(first, last, 1, 9))) == out_of_range
    for first in range(5, 10):
        assert client.ask(fetch(first, first))[0].next_lsn == first + 1
        assert client.ask(SpansRequest(first, 9, 1, 64))[0].log_start_lsn == 5
    assert client.ask(WatermarksRequest(0, 0, False))[0].log_start_lsn == 5
    assert client.ask(TimeLookupRequest(0))[0].lsn == 5
    assert egress.heard() == []


def test_g6_a_fetch_during_the_removal_is_told_so_and_names_no_damage(egress, client):
    """The pair is gone and egress was not told: META says what that means."""
    generation = egress.slots[Counter.MAP_GENERATION]
    egress.log.trim(4)
    egress.slots[Counter.MAP_GENERATION] = generation
    assert refused_by(client.ask(fetch(2))) == (ErrorCode.OUT_OF_RANGE, 5, 9)
    assert client.ask(fetch(5, 5))[0].next_lsn == 6
    assert egress.heard() == []


def test_g6_a_search_during_the_removal_is_made_again(egress, client):
    """It begins at the new log start, and is no refusal."""
    client.ask(fetch(9))
    generation = egress.slots[Counter.MAP_GENERATION]
    egress.log.trim(4)
    egress.slots[Counter.MAP_GENERATION] = generation
    assert client.ask(TimeLookupRequest(0))[0].lsn == 5


def test_g5_a_time_is_found_no_lower_than_a_log_start_above_what_is_shown(egress, client):
    """A follower's log begins where its leader's does, above what it has shown by then."""
    egress.show(3)
    egress.log.trim(8)
    assert refused_by(client.ask(fetch(1))) == (ErrorCode.OUT_OF_RANGE, 9, 3)
    assert client.ask(TimeLookupRequest(0))[0].lsn == 9
    assert client.ask(TimeLookupRequest(1 << 62))[0].lsn == 9


def test_g6_what_is_there_is_not_out_of_range_however_often_the_log_start_moves_meanwhile(
    egress, client, monkeypatch
):
    """Each search meets an entry that has just gone. The third would find the LSN."""
    starts = iter((2, 4))
    find = LogReader.index_of_lsn

    def removed_meanwhile(log, lsn, last_index):
        if (index := next(starts, None)) is not None:
            egress.log.trim(index)
            raise BelowLogStart("an entry that the search looked at")
        return find(log, lsn, last_index)

    monkeypatch.setattr(LogReader, "index_of_lsn", removed_meanwhile)
    assert refused_by(client.ask(fetch(9)))[0] == ErrorCode.NOT_READY
    assert client.ask(fetch(9))[0].next_lsn == 10


def test_a_verification_begins_at_the_log_start(egress, client):
    whole = client.ask(VerifyRequest(1, 1 << 30))[0]
    egress.log.trim(6)
    egress.show()
    reply = client.ask(VerifyRequest(1, 1 << 30))[0]
    assert (reply.last_index, reply.payloads, reply.document) == (10, 3, b"[]")
    first = client.ask(VerifyRequest(7, 1))[0]
    assert (first.last_index, first.payloads) == (7, 1)
    assert whole.payloads == 9


def test_v7_egress_lets_go_of_removed_files_also_if_nobody_asks(egress, client, removed_files_open):
    for lsn in (1, 5, 9):
        client.ask(fetch(lsn))
    egress.log.trim(8)
    assert removed_files_open() == 4
    egress.work()
    assert removed_files_open() == 0


BEFORE = entry_elsewhere(20, 1)
NEXT_LSN = BEFORE.header.next_lsn


def test_g6_readers_of_a_log_that_begins_anew_are_told_what_is_gone_and_keep_no_file(
    egress, client, removed_files_open
):
    """SAFETY G5a, V7. The writer is done a moment before raft moves the visible LSN."""
    for lsn in (1, 5, 9):
        client.ask(fetch(lsn))
    subscriber = egress.subscribe()
    messages_of(subscriber)
    egress.log.install(BEFORE)
    assert removed_files_open() == 6
    egress.work()
    assert removed_files_open() == 0
    for first in (1, 9, 10, NEXT_LSN - 1):
        assert refused_by(client.ask(fetch(first)))[:2] == (ErrorCode.OUT_OF_RANGE, NEXT_LSN)
    egress.show()
    for first in (1, NEXT_LSN - 1):
        bounds = (ErrorCode.OUT_OF_RANGE, NEXT_LSN, NEXT_LSN - 1)
        assert refused_by(client.ask(fetch(first))) == bounds
    egress.append(8)
    egress.show()
    assert client.ask(fetch(NEXT_LSN))[0].next_lsn == NEXT_LSN + 1
    heard = messages_of(subscriber)
    assert [each.visible_lsn for each in heard if isinstance(each, TailGroup)] == [NEXT_LSN]
    assert egress.heard() == []


def test_g6_a_fetch_while_the_log_is_dropped_names_no_damage(egress, client):
    """The pairs are gone and egress was not told: META says what that means."""
    generation = egress.slots[Counter.MAP_GENERATION]
    egress.log.install(BEFORE)
    egress.slots[Counter.MAP_GENERATION] = generation
    for first in (2, 6, 9):
        assert refused_by(client.ask(fetch(first)))[:2] == (ErrorCode.OUT_OF_RANGE, NEXT_LSN)
    assert egress.heard() == []


def test_the_tail_passes_over_what_is_gone(egress):
    """A subscriber that lags fetches what it missed, and the fetch tells it."""
    subscriber = egress.subscribe()
    messages_of(subscriber)
    egress.append(8)
    egress.log.trim(10)
    egress.append(8)
    egress.show()
    heard = messages_of(subscriber)
    assert [each.visible_lsn for each in heard if isinstance(each, TailGroup)] == [11]
    assert egress.heard() == []


def test_the_tail_passes_over_a_long_stretch_that_is_gone_at_once(egress, monkeypatch):
    """SAFETY G5: a log may start over any number of entries after the last one that was shown."""
    monkeypatch.setattr(tail, "PUBLISH_MAX", 2)
    subscriber = egress.subscribe()
    messages_of(subscriber)
    egress.log.install(entry_elsewhere(1_000_000, 1))
    egress.append(8)
    egress.show()
    heard = messages_of(subscriber)
    assert [each.visible_lsn for each in heard if isinstance(each, TailGroup)] == [
        egress.log.rows[-1].header.first_lsn
    ]


# --- replicators ---


@pytest.fixture
def replicator(tmp_path, monkeypatch):
    stage = ReplicatorStage(tmp_path, monkeypatch)
    stage.identify()
    yield stage
    stage.close()


def test_a_replicator_reads_nothing_below_the_log_start_and_reports_no_damage(replicator):
    """It sends nothing until raft begins the stream after log start."""
    for _ in range(6):
        replicator.append(BIG, is_described=False)
        replicator.write()
    replicator.log.trim(4)
    replicator.lead(next_index=3, commit=6)
    assert replicator.indexes() == []
    assert replicator.heard() == []
    replicator.lead(next_index=5, stream=2 << 32, commit=6)
    assert replicator.indexes()[0] == 5


def test_v7_a_replicator_lets_go_of_removed_files_also_if_it_has_nothing_to_send(
    replicator, removed_files_open
):
    for _ in range(6):
        replicator.append(BIG, is_described=False)
        replicator.write()
    replicator.lead()
    assert replicator.indexes()
    replicator.log.trim(6)
    assert removed_files_open() == 2
    replicator.work()
    assert removed_files_open() == 0


def test_v7_a_replicator_lets_go_of_a_log_that_was_dropped(replicator, removed_files_open):
    """It led once; now this replica follows."""
    for _ in range(6):
        replicator.append(BIG, is_described=False)
        replicator.write()
    replicator.lead()
    assert replicator.indexes()
    replicator.log.install(BEFORE)
    assert removed_files_open()
    replicator.work()
    assert removed_files_open() == 0
    assert replicator.heard() == []


# --- raft ---


def test_v7_rafts_rows_let_go_of_removed_files(tmp_path):
    writer = WriterStage(tmp_path)
    writer.bear()
    for _ in range(6):
        writer.persist(BIG)
        writer.settle()
    reader = LogReader(writer.disk, writer.writer._folder._station.folder)
    view = FileLogView(reader, lambda: writer.counter(Counter.MAP_GENERATION))
    view.row(1)
    view.row(5)
    writer.trim(4)
    view.close_if_stale()
    assert reader.pairs_open == 0
    assert view.row(6).header.index == 6
    with pytest.raises(LookupError):
        view.row(4)
    writer.install(BEFORE)
    view.close_if_stale()
    assert reader.pairs_open == 0
    with pytest.raises(LookupError):
        view.row(6)
    writer.close()
