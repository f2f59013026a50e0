"""The fetch port: bounds of work and memory, waiting, linearizable reads, damage, clusters."""

from __future__ import annotations

import errno
import os

import msgspec
import pytest

from actors.egress.fetch_port import (
    ANSWERS_QUEUED_MAX,
    SERVED_MAX,
    WAITING_MAX,
    WAITING_PER_CLIENT_MAX,
)
from actors.messages import RotReported
from actors.topology import Counter
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    PIECE,
    SPAN,
    FetchReply,
    SpansReply,
    SpansRequest,
    StatusRequest,
    TailGroup,
    VerifyRequest,
    WatermarksReply,
    WatermarksRequest,
)
from logstore.raft.effects import ReadIndexAnswered
from logstore.raft.events import ReadIndexRequested
from logstore.storage.disk import RealDisk
from tests.unit.egress_stage import EgressStage, fetch, messages_of
from transport import link

MS = 1_000_000
OTHER = b"o" * 16


@pytest.fixture
def egress(tmp_path, monkeypatch):
    stage = EgressStage(tmp_path, monkeypatch)
    yield stage
    stage.close()


def damage(egress, ending, position, size=1):
    [path] = sorted(egress.stage.folder.glob(f"data/*1.{ending}"))
    raw = bytearray(path.read_bytes())
    for at in range(position, position + size):
        raw[at] ^= 1
    path.write_bytes(raw)


def record_position(index):
    return 4_096 + 128 * (index - 1)


def pieces_of(answer):
    """(first LSN, index, count) of each piece."""
    reply, body = answer
    found, at = [], 0
    while at < len(body):
        first, index, _, _, count, size = PIECE.unpack_from(body, at)
        found.append((first, index, count))
        at += PIECE.size + size
    assert len(found) == reply.pieces
    return found


def test_a_fetch_gives_whole_batches_within_its_bounds_and_never_above_visible(egress):
    """FAULTS K11."""
    egress.append(8, 0, 8, 100, 8)
    egress.show(4)
    client = egress.client()
    answer = client.ask(fetch(1))
    assert answer[0] == FetchReply(1, 3, 4, 3)
    assert pieces_of(answer) == [(1, 1, 1), (2, 3, 1), (3, 4, 1)]
    assert pieces_of(client.ask(fetch(2, 2))) == [(2, 3, 1)]
    assert pieces_of(client.ask(fetch(3, max_bytes=0))) == [(3, 4, 1)]
    assert client.ask(fetch(4))[0].pieces == 0
    assert client.ask(fetch(5))[0].code == ErrorCode.OUT_OF_RANGE
    assert client.ask(fetch(3, 2))[0].code == ErrorCode.OUT_OF_RANGE


def test_a_cut_entry_ends_the_answer_though_a_smaller_one_behind_it_would_fit(egress):
    """Found by the simulator, seed 98 of 2026-11-21: LSN 3 was left out of an answer (V8, P3)."""
    egress.append_group(8, 8, 800)
    egress.append(8)
    egress.show()
    answer = egress.client().ask(fetch(2, max_bytes=400))
    assert pieces_of(answer) == [(2, 1, 1)]


def test_an_answer_has_no_more_bytes_than_the_replica_is_configured_to_give(egress):
    limits = msgspec.structs.replace(egress.stage.config.limits, fetch_max="4KiB")
    egress.stage.config = msgspec.structs.replace(egress.stage.config, limits=limits)
    egress.egress.on_close()
    egress.restart()
    egress.append(3_000, 3_000, 3_000)
    egress.show()
    assert pieces_of(egress.client().ask(fetch(1))) == [(1, 1, 1)]
    egress.append(10_000)
    egress.show()
    assert pieces_of(egress.client().ask(fetch(4))) == [(4, 4, 1)]  # one batch, at least


def test_what_waits_for_an_lsn_is_answered_when_it_shows_or_refused_at_the_deadline(egress):
    egress.append(8, 8)
    egress.show(1)
    client = egress.client()
    assert client.ask(fetch(2, min_lsn=2, wait_ms=100)) is None
    assert egress.egress.next_timer_ns() == egress.stage.now_ns + 100 * MS
    assert not egress.stage.is_busy_loop(egress.egress)
    egress.show(2)
    assert pieces_of(client.answers()[0]) == [(2, 2, 1)]
    assert client.ask(WatermarksRequest(3, 100, False)) is None
    egress.stage.now_ns += 100 * MS
    egress.work()
    assert client.answers()[0][0].code == ErrorCode.TIMED_OUT


def test_many_waiting_requests_are_answered_in_bounded_steps(egress):
    egress.append(8, 8)
    egress.show(1)
    clients = [egress.client() for _ in range(SERVED_MAX + 3)]
    for client in clients:
        client.ask(fetch(2, min_lsn=2, wait_ms=1_000))
    egress.slots[Counter.VISIBLE_INDEX] = 2
    egress.slots[Counter.VISIBLE] = 3
    assert egress.egress.do_work(egress.stage.now_ns) == SERVED_MAX
    assert sum(len(client.answers()) for client in clients) == SERVED_MAX
    egress.work()
    assert sum(len(client.answers()) for client in clients) == 3


def test_beyond_the_bound_of_waiting_requests_the_newest_is_refused(egress):
    egress.append(8)
    egress.show()
    clients = [egress.client() for _ in range(WAITING_MAX // WAITING_PER_CLIENT_MAX)]
    for client in clients:
        for _ in range(WAITING_PER_CLIENT_MAX):
            client.send(WatermarksRequest(2, 1_000, False))
        egress.work()
    assert [answer for client in clients for answer in client.answers()] == []
    assert egress.client().ask(WatermarksRequest(2, 1_000, False))[0].code == ErrorCode.OVERLOADED


def test_one_client_does_not_take_every_place_of_those_that_wait(egress):
    egress.append(8)
    egress.show()
    greedy = egress.client()
    for _ in range(WAITING_PER_CLIENT_MAX + 2):
        greedy.send(WatermarksRequest(2, 1_000, False))
    egress.work()
    assert [answer[0].code for answer in greedy.answers()] == [ErrorCode.OVERLOADED] * 2
    assert egress.client().ask(WatermarksRequest(1, 0, False)) is not None
    egress.stage.now_ns += 1_000_000_000
    egress.work()
    greedy.answers()
    assert greedy.ask(WatermarksRequest(1, 0, False))[0] == WatermarksReply(1, 1)


def test_answers_to_a_client_that_does_not_read_are_dropped_and_counted(egress):
    """Memory of a slow client is bounded: 16 answers of 4 MiB."""
    egress.append(8)
    egress.show()
    client = egress.client()
    for _ in range(ANSWERS_QUEUED_MAX + 2):
        client.send(fetch(1))
        egress.work()
    assert len(client.answers()) == ANSWERS_QUEUED_MAX
    assert egress.slots[Counter.SENDS_DROPPED] == 2


def test_a_linearizable_fetch_asks_raft_and_waits_for_what_it_says(egress):
    egress.append(8, 8)
    egress.show(1)
    client = egress.client()
    assert client.ask(fetch(1, is_linearizable=True)) is None
    [asked] = egress.heard()
    assert isinstance(asked, ReadIndexRequested)
    egress.stage.send("raft", "egress", ReadIndexAnswered(asked.request_id, True, 2))
    egress.work()
    assert client.answers() == []
    egress.show(2)
    assert client.answers()[0][0] == FetchReply(1, 2, 3, 2)


def test_no_leader_and_no_answer_are_refusals(egress):
    egress.append(8)
    egress.show()
    client = egress.client()
    client.ask(fetch(1, is_linearizable=True))
    egress.stage.send("raft", "egress", ReadIndexAnswered(egress.heard()[0].request_id, False, 0))
    egress.work()
    assert client.answers()[0][0].code == ErrorCode.NOT_LEADER
    client.ask(fetch(1, is_linearizable=True))
    egress.stage.now_ns = egress.egress.next_timer_ns()
    egress.work()
    assert client.answers()[0][0].code == ErrorCode.NO_QUORUM


def test_v5_an_answer_to_a_process_that_died_answers_no_request_of_the_next_one(egress):
    egress.append(8)
    egress.show()
    egress.client().ask(fetch(1, is_linearizable=True))
    [asked] = egress.heard()
    egress.egress.on_close()
    egress.stage.now_ns += 1
    egress.restart()
    client = egress.client()
    client.ask(fetch(1, is_linearizable=True))
    egress.stage.send("raft", "egress", ReadIndexAnswered(asked.request_id, True, 1))
    egress.work()
    assert client.answers() == []


def test_a_client_of_another_cluster_is_told_so_at_once(egress):
    egress.append(8)
    egress.show()
    answer = egress.client().ask(fetch(9, min_lsn=9, wait_ms=1_000), cluster=OTHER)
    assert answer[0].code == ErrorCode.WRONG_CLUSTER
    assert egress.slots[Counter.FRAMES_FOREIGN] == 1


def test_a_replica_that_has_no_cluster_yet_is_not_ready_rather_than_another_cluster(egress):
    egress.tell_identity(bytes(16))
    client = egress.client()
    assert client.ask(fetch(1))[0].code == ErrorCode.NOT_READY
    assert client.ask(fetch(1, wait_ms=100)) is None
    egress.tell_identity(OTHER)
    assert client.answers()[0][0].code == ErrorCode.WRONG_CLUSTER


def test_garbage_and_messages_of_another_shape_are_counted(egress):
    client = egress.client()
    for frames in ([b"garbage"], [b"a", b"b"], [b""] * 100):
        assert link.try_send(client.socket, frames)
    egress.work()
    assert client.answers() == []
    assert egress.slots[Counter.FRAMES_DROPPED] == 3


def test_what_is_no_request_of_the_fetch_port_is_told_so_before_anything_is_visible(egress):
    client = egress.client()
    assert client.ask(StatusRequest())[0].code == ErrorCode.INVALID_REQUEST
    assert egress.slots[Counter.REQUESTS_INVALID] == 1
    assert client.ask(fetch(1), cluster=OTHER)[0].code == ErrorCode.WRONG_CLUSTER
    assert client.ask(StatusRequest(), cluster=OTHER)[0].code == ErrorCode.WRONG_CLUSTER
    assert client.ask(FetchReply(1, 1, 1, 0), cluster=OTHER) is None
    assert egress.slots[Counter.FRAMES_DROPPED] == 1


def test_q5_a_damaged_body_is_named_with_its_lsns_and_raft_hears_of_it_once(egress):
    egress.append(8, 512, 8)
    damage(egress, "data", 4_096 + 128 + 64 + 200)
    egress.show()
    client = egress.client()
    assert pieces_of(client.ask(fetch(1))) == [(1, 1, 1)]
    for _ in range(3):
        reply = client.ask(fetch(2))[0]
        assert (reply.code, reply.first, reply.last) == (ErrorCode.CORRUPT_DATA, 2, 2)
    assert egress.heard() == [RotReported(2, 2, 2)]


def test_q5_a_damaged_record_hides_nothing_before_it_and_raft_hears_of_it(egress):
    egress.append(8, 8, 8, 8, 8)
    damage(egress, "raft", record_position(4) + 20)
    egress.show()
    client = egress.client()
    assert [lsn for lsn, _, _ in pieces_of(client.ask(fetch(1, 3)))] == [1, 2, 3]
    reply = client.ask(fetch(1))
    assert pieces_of(reply)[-1][0] == 3
    assert egress.heard() == []
    reply = client.ask(fetch(4))[0]
    assert (reply.code, reply.first, reply.last) == (ErrorCode.CORRUPT_DATA, 4, 4)
    assert egress.heard() == [RotReported(4, 4, 4)]
    assert pieces_of(client.ask(fetch(5))) == [(5, 5, 1)]


def test_q5_damaged_records_are_named_as_one_range_wherever_a_read_begins(egress):
    """Found by the simulator, seed 13 of 2026-11-21: the search for an LSN met a damaged record,
    and a client was told that the whole log is damaged."""
    egress.append(8, 8, 8, 0, 8, 8, 8)
    damage(egress, "raft", record_position(3), size=4 * 128)
    egress.show()
    client = egress.client()
    named = [client.ask(fetch(lsn))[0] for lsn in (3, 4, 5)]
    assert [(reply.code, reply.first, reply.last) for reply in named] == [
        (ErrorCode.CORRUPT_DATA, lsn, 5) for lsn in (3, 4, 5)
    ]
    assert pieces_of(client.ask(fetch(2))) == [(2, 2, 1)]
    assert pieces_of(client.ask(fetch(6))) == [(6, 7, 1)]
    assert egress.heard() == [RotReported(3, 3, 0)]


def test_q5_damage_at_the_end_reaches_to_the_visible_lsn(egress):
    egress.append(8, 8, 8)
    damage(egress, "raft", record_position(2), size=2 * 128)
    egress.show()
    reply = egress.client().ask(fetch(2))[0]
    assert (reply.code, reply.first, reply.last) == (ErrorCode.CORRUPT_DATA, 2, 3)


def spans_of(reply):
    """(last LSN, bytes) of each row."""
    return [row[:2] for row in SPAN.iter_unpack(reply.rows)]


def test_spans_are_whole_entries_of_at_least_the_step_with_nothing_left_out(egress):
    egress.append(8, 0, 8, 100, 8, 8)  # 64, 0, 64, 160, 64, 64 bytes with headers; LSNs 1 to 5
    egress.append_group(8, 8)  # LSNs 6 and 7, 128 bytes
    egress.append(8)
    egress.show(7)
    client = egress.client()
    [reply] = client.ask(SpansRequest(1, 99, 100, 9))
    assert (reply.log_start_lsn, reply.visible_lsn) == (1, 7)
    assert reply.timestamp_ns == egress.log.rows[1].header.timestamp_ns
    assert spans_of(reply) == [(2, 128), (3, 160), (5, 128), (7, 128)]
    assert spans_of(client.ask(SpansRequest(1, 99, 100, 2))[0]) == [(2, 128), (3, 160)]
    assert spans_of(client.ask(SpansRequest(2, 6, 1 << 40, 9))[0]) == [(6, 480)]
    assert spans_of(client.ask(SpansRequest(7, 7, 0, 9))[0]) == [(7, 128)]
    assert [row[0] for row in spans_of(client.ask(SpansRequest(1, 99, 1, 99))[0])] == [
        1, 2, 3, 4, 5, 7,
    ]  # fmt: skip


def test_spans_keep_to_the_bounds_of_a_fetch(egress):
    egress.append(8, 8)
    egress.show()
    client = egress.client()
    assert client.ask(SpansRequest(3, 3, 1, 1)) == (SpansReply(1, 2, 0, b""),)
    assert client.ask(SpansRequest(4, 4, 1, 1))[0].code == ErrorCode.OUT_OF_RANGE
    assert client.ask(SpansRequest(0, 4, 1, 1))[0].code == ErrorCode.OUT_OF_RANGE
    assert client.ask(SpansRequest(2, 1, 1, 1))[0].code == ErrorCode.OUT_OF_RANGE


def test_an_answer_has_at_most_64_spans(egress):
    egress.append(*[8] * 70)
    egress.show()
    [reply] = egress.client().ask(SpansRequest(1, 70, 1, 1_000))
    assert [row[0] for row in spans_of(reply)] == list(range(1, 65))


def test_verify_lists_damaged_bodies_and_records_and_goes_on(egress):
    egress.append(8, 512, 8, 8, 8)
    damage(egress, "data", 4_096 + 128 + 64 + 200)
    damage(egress, "raft", record_position(4) + 20)
    egress.show()
    [reply] = egress.client().ask(VerifyRequest(1, 1 << 20))
    faulty = msgspec.json.decode(reply.document)
    assert [row["first_index"] for row in faulty] == [2, 4]
    assert (reply.last_index, reply.last_lsn) == (5, 5)
    assert reply.chain == egress.log.rows[5].chain
    assert egress.heard() == [RotReported(2, 2, 2), RotReported(4, 4, 4)]


def test_a_replica_that_is_not_ready_says_when_its_disk_is_full(egress):
    """SAFETY S9: where all are full, nobody commits what would make a leader ready."""
    egress.slots[Counter.DISK_FULL] = 1
    [refused] = egress.client().ask(fetch(1))
    assert refused.code == ErrorCode.NOT_READY
    assert b"free some space" in refused.text


def test_watermarks_say_where_the_log_begins_and_ends(egress):
    client = egress.client()
    assert client.ask(WatermarksRequest(0, 0, False))[0].code == ErrorCode.NOT_READY
    egress.append(8, 8)
    egress.show()
    assert client.ask(WatermarksRequest(0, 0, False)) == (WatermarksReply(1, 2),)


def test_v7_a_replica_that_shows_nothing_any_more_keeps_no_file_open(egress, tmp_path):
    def open_files() -> int:
        links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
        return sum(
            os.readlink(each).startswith(str(tmp_path)) for each in links if os.path.islink(each)
        )

    before = open_files()
    egress.append(100)
    egress.show()
    egress.client().ask(fetch(1, 1))
    while_shown = open_files()
    egress.slots[Counter.VISIBLE] = 0  # no member any more
    egress.work()
    assert while_shown > before
    assert open_files() == before


def test_what_cannot_be_opened_now_is_asked_for_again(egress, monkeypatch):
    """For want of descriptors. In a shared process raft and ingress would end with this actor."""
    egress.append(100, 100)
    egress.show()
    client = egress.client()
    watermarks = WatermarksRequest(0, 0, False)
    socket = egress.subscribe()

    def refuse(*path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(RealDisk, "open_read", refuse)
        [refused] = client.ask(fetch(1))
        assert (refused.code, b"Too many open files" in refused.text) == (ErrorCode.NOT_READY, True)
        egress.append(100)
        egress.show()  # the tail cannot be read
        egress.slots[Counter.MAP_GENERATION] += 1
        [refused] = client.ask(watermarks)
        assert (refused.code, b"cannot be read" in refused.text) == (ErrorCode.NOT_READY, True)
    assert pieces_of(client.ask(fetch(1))) == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]
    published = [each for each in messages_of(socket) if isinstance(each, TailGroup)]
    assert len(published) == 1
