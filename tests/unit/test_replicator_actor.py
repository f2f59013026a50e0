"""The replicator: what it sends from where, when it stops, whom it believes, what it holds."""

from __future__ import annotations

import errno

import pytest

from actors.messages import JoinReceived, TellJoin
from actors.replicator.actor import RETRY_MAX_NS, RETRY_NS
from actors.station import RING_RETRY_NS
from actors.topology import Counter
from logstore.format.client_messages import OpenSessionReply
from logstore.format.message import decode_message
from logstore.format.peer_messages import (
    AppendAccepted,
    AppendPersisted,
    AppendReject,
    Heartbeat,
    Install,
    JoinAnswer,
    JoinRequest,
    Removed,
    RemovedQuestion,
    VoteReply,
)
from logstore.raft.effects import Rewind, Send, StopLeading
from logstore.raft.events import ConnectionLost, ControlReceived, StreamAnswer
from logstore.raft.log_view import Position, WholeLogStart
from logstore.settings import PortOffset
from logstore.storage.disk import RealDisk
from tests.unit.actor_stage import OUR_UUID, PEER_UUID, receive_all
from tests.unit.replicator_stage import PEER, STREAM, ReplicatorStage
from transport import link
from transport.errors import LinkError

BEAT = Heartbeat(1, 0, 1, 0, 0, 1, 0)


@pytest.fixture
def replicator(tmp_path, monkeypatch):
    stage = ReplicatorStage(tmp_path, monkeypatch)
    yield stage
    stage.close()


@pytest.fixture
def leading(replicator):
    replicator.identify()
    replicator.lead()
    return replicator


def hold(stage):
    """The lowest position held in term 1, None for none."""
    return stage.stage.freer.lowest_hold(1, [0, 1])


def test_nothing_leaves_before_raft_said_who_we_are(replicator):
    replicator.lead()
    replicator.append(80)
    replicator.tell(Send(PEER, BEAT))
    assert replicator.appends() == []
    assert replicator.controls() == []
    replicator.identify()
    assert replicator.indexes() == [1]


def test_entries_go_out_from_the_ring_before_they_are_on_disk(leading):
    leading.append(80, 0, 160)
    assert [(i, len(body)) for _, i, body in leading.appends()] == [(1, 80), (2, 0), (3, 160)]


def test_w4_what_was_not_described_is_read_from_the_files_once_it_is_written(replicator):
    replicator.identify()
    replicator.append(80, 160, is_described=False)
    replicator.lead()
    assert replicator.appends() == []
    assert not replicator.stage.is_busy_loop(replicator.replicator)
    replicator.write()
    assert [(i, len(body)) for _, i, body in replicator.appends()] == [(1, 80), (2, 160)]


def test_w4_what_is_not_written_yet_is_looked_for_again_soon(replicator):
    """WRITTEN is a counter, for which no bell rings."""
    replicator.identify()
    replicator.append(80, is_described=False)
    replicator.lead()
    assert replicator.indexes() == []
    assert replicator.replicator.next_timer_ns() <= replicator.stage.now_ns + RETRY_MAX_NS
    replicator.log.settle()
    replicator.stage.now_ns = replicator.replicator.next_timer_ns()
    replicator.work()
    assert replicator.indexes() == [1]


def test_w4_what_wakes_a_replicator_that_waits_does_not_put_its_next_try_off(replicator):
    """Each wake-up doubled the wait: five heartbeats, and the entry came 80 ms late."""
    replicator.identify()
    replicator.append(80, is_described=False)
    replicator.lead()
    due_ns = replicator.replicator.next_timer_ns()
    assert due_ns <= replicator.stage.now_ns + RETRY_NS
    for _ in range(5):
        replicator.stage.now_ns += 1_000
        replicator.work()
        assert replicator.replicator.next_timer_ns() == due_ns
    waits = []
    for _ in range(6):
        replicator.stage.now_ns = replicator.replicator.next_timer_ns()
        replicator.work()
        waits.append(replicator.replicator.next_timer_ns() - replicator.stage.now_ns)
    assert waits == [min(RETRY_NS << each, RETRY_MAX_NS) for each in range(1, 7)]


def test_w4_who_waits_anew_waits_short_again(replicator):
    replicator.identify()
    replicator.append(80, is_described=False)
    replicator.lead()
    for _ in range(6):
        replicator.stage.now_ns = replicator.replicator.next_timer_ns()
        replicator.work()
    replicator.tell(StopLeading(1))
    replicator.lead(term=2)
    assert replicator.replicator.next_timer_ns() <= replicator.stage.now_ns + RETRY_NS


def test_g5_the_log_start_goes_first_and_what_follows_after_its_answer(replicator):
    replicator.identify()
    orders = replicator.append(80, 160, is_described=False)
    replicator.write()
    start = WholeLogStart(Position(1, 1, orders[1].header.first_lsn, orders[0].chain), 80, 7, 1)
    replicator.lead(next_index=2, install=start)
    [frames] = receive_all(replicator.ports[PortOffset.PEER_BULK])
    install = decode_message(frames[1])[1]
    at = start.position
    assert install == Install(1, STREAM, 1, 1, at.next_lsn, at.chain, 80, 7, 1)
    assert not replicator.stage.is_busy_loop(replicator.replicator)
    replicator.answer(AppendPersisted(1, 1))
    assert replicator.indexes() == [2]


def test_m4_ring_bytes_that_were_overwritten_are_read_from_the_files(replicator):
    replicator.identify()
    replicator.lead()
    replicator.stage.network.cut(replicator.stage.config.endpoint(PEER, PortOffset.PEER_BULK))
    orders = replicator.append(80, is_described=False)
    replicator.write()
    replicator.overwrite_ring()
    replicator.describe(*orders)
    replicator.stage.network.heal(replicator.stage.config.endpoint(PEER, PortOffset.PEER_BULK))
    replicator.stage.now_ns = replicator.replicator.next_timer_ns()
    replicator.work()
    [(_, index, body)] = replicator.appends()
    assert (index, len(body)) == (1, 80)
    assert replicator.slots[Counter.RING_OVERWRITTEN] == 1


def test_w5_ring_bytes_lost_before_the_files_have_them_are_not_replaced_by_others(leading):
    """The files hold another entry at this index, of a log that is being truncated."""
    leading.append(80, is_described=False)
    leading.log.settle()
    leading.log.rows.pop()
    [order] = leading.log.persist(160, term=1)
    leading.overwrite_ring()
    leading.describe(order)
    assert leading.appends() == []
    assert leading.heard() == []
    leading.log.stage.heard("raft", "writer")


def test_the_window_holds_back_and_answers_open_it(leading):
    leading.append(*[60_000] * 3)
    assert leading.indexes() == [1]
    leading.answer(AppendAccepted(1, STREAM, 1))
    assert leading.indexes() == []
    leading.answer(AppendPersisted(1, 1))
    assert leading.indexes() == [2]
    assert leading.heard() == [StreamAnswer(PEER, 1, AppendPersisted(1, 1))]


def test_an_append_without_a_connection_is_sent_once_when_there_is_one(tmp_path, monkeypatch):
    replicator = ReplicatorStage(tmp_path, monkeypatch, is_peer_up=False)
    replicator.identify()
    replicator.lead()
    replicator.append(80)
    assert not replicator.stage.is_busy_loop(replicator.replicator)
    replicator.start_peer()
    replicator.stage.now_ns = replicator.replicator.next_timer_ns()
    replicator.work()
    assert replicator.indexes() == [1]
    replicator.close()


def unsent(tmp_path, monkeypatch):
    """One append waits for a connection."""
    replicator = ReplicatorStage(tmp_path, monkeypatch, is_peer_up=False)
    replicator.identify()
    replicator.lead()
    replicator.append(80)
    return replicator


def connect(replicator):
    replicator.start_peer()
    replicator.stage.now_ns = replicator.replicator.next_timer_ns()
    replicator.work()


def test_w4_nothing_of_a_term_leaves_after_its_stop(tmp_path, monkeypatch):
    replicator = unsent(tmp_path, monkeypatch)
    replicator.tell(StopLeading(1))
    replicator.start_peer()
    replicator.work()
    assert replicator.appends() == []
    replicator.close()


def test_a_stop_of_an_older_term_takes_nothing_back(tmp_path, monkeypatch):
    """What it counts as sent must be sent: the follower would see a gap."""
    replicator = unsent(tmp_path, monkeypatch)
    replicator.tell(StopLeading(0))
    connect(replicator)
    assert replicator.indexes() == [1]
    replicator.close()


def test_an_unsent_append_of_an_older_stream_is_dropped(tmp_path, monkeypatch):
    replicator = unsent(tmp_path, monkeypatch)
    replicator.write()
    replicator.tell(Rewind(PEER, 1, STREAM, 1))
    connect(replicator)
    assert [(stream, index) for stream, index, _ in replicator.appends()] == [(STREAM + 1, 1)]
    replicator.close()


def test_w1_a_reject_goes_to_raft_once_and_nothing_leaves_until_it_rewinds(leading):
    leading.append(80, 80)
    leading.appends()
    reject = AppendReject(1, STREAM, 0, 0, 0, 0)
    leading.answer(reject)
    leading.answer(reject)
    assert leading.heard() == [StreamAnswer(PEER, 1, reject)]
    leading.append(80)
    leading.write()
    assert leading.appends() == []
    leading.tell(Rewind(PEER, 1, STREAM, 1))
    assert [(stream, index) for stream, index, _ in leading.appends()] == [
        (STREAM + 1, index) for index in (1, 2, 3)
    ]


def test_a_silent_peer_is_tried_again_on_a_new_connection(leading):
    leading.append(80)
    leading.write()
    old = leading.replicator._sockets.bulk
    leading.appends()
    leading.stage.now_ns = leading.replicator.next_timer_ns()
    leading.work()
    assert leading.replicator._sockets.bulk is not old
    assert [(stream, index) for stream, index, _ in leading.appends()] == [(STREAM + 1, 1)]


def test_a_new_connection_that_cannot_be_opened_leaves_the_old_one(leading, monkeypatch, caplog):
    """For want of descriptors. In a shared process raft and ingress would end with this actor."""
    leading.append(80)
    leading.write()
    old = leading.replicator._sockets.bulk
    leading.appends()

    def refuse(at, **options):
        raise LinkError("cannot make a socket: Too many open files")

    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(link, "dealer_connect", refuse)
        for number in (1, 2):
            leading.stage.now_ns = leading.replicator.next_timer_ns()
            leading.work()
            assert leading.replicator._sockets.bulk is old
            assert [(each[0], each[1]) for each in leading.appends()] == [(STREAM + number, 1)]
    assert len(caplog.messages) == 1
    leading.stage.now_ns = leading.replicator.next_timer_ns()
    leading.work()
    assert leading.replicator._sockets.bulk is not old


def test_an_entry_is_read_again_where_its_file_cannot_be_opened_now(replicator, monkeypatch):
    replicator.identify()
    replicator.append(80, is_described=False)
    replicator.write()

    def refuse(self, path):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(RealDisk, "open_read", refuse)
        replicator.lead(commit=1)
        assert replicator.appends() == []
    replicator.stage.now_ns = replicator.replicator.next_timer_ns()
    replicator.work()
    assert replicator.indexes() == [1]
    assert replicator.heard() == []


def test_control_messages_leave_at_once_or_never(tmp_path, monkeypatch):
    """SAFETY M5, W8, FAULTS Z4: a queued heartbeat would only be stale."""
    replicator = ReplicatorStage(tmp_path, monkeypatch, is_peer_up=False)
    replicator.identify()
    replicator.tell(Send(PEER, BEAT))
    assert replicator.slots[Counter.SENDS_DROPPED] == 1
    replicator.start_peer()
    replicator.work()
    assert replicator.controls() == []
    replicator.tell(Send(PEER, BEAT))
    assert replicator.controls() == [BEAT]
    replicator.close()


def test_l3_a_copied_and_an_exchanged_data_folder_are_named_once(leading, caplog):
    """FAULTS O3."""
    vote = VoteReply(1, True)
    for uuid in (OUR_UUID, OUR_UUID, PEER_UUID, b"x" * 16, b"x" * 16):
        leading.answer(vote, is_bulk=False, uuid=uuid)
    copied, exchanged = (record.getMessage() for record in caplog.records)
    assert copied.startswith("node 2 has this replica's uuid")
    assert exchanged.startswith("node 2 speaks under another replica uuid than before")


def test_only_the_peer_itself_is_believed(leading):
    """SAFETY M6, L3: cluster, sender, target, and the uuid first seen."""
    vote = VoteReply(1, True)
    leading.answer(vote, is_bulk=False, uuid=OUR_UUID)
    leading.answer(vote, is_bulk=False)
    for wrong in ({"cluster": b"o" * 16}, {"node": 3}, {"target": 3}, {"uuid": b"x" * 16}):
        leading.answer(vote, is_bulk=False, **wrong)
    assert leading.heard() == [ControlReceived(PEER, 1, vote)]
    assert leading.slots[Counter.FRAMES_FOREIGN] == 5


def test_a_replica_that_joins_asks_and_hears_the_answer(leading):
    asked, refused = JoinRequest(7100, b"node-1"), JoinAnswer(1, 3, b"node-3:7100")
    leading.tell(TellJoin(PEER, asked))
    assert asked in leading.controls()
    leading.answer(refused, is_bulk=False)
    assert leading.heard() == [JoinReceived(PEER, PEER_UUID, refused)]


def test_l4_a_replica_that_joins_hears_one_that_came_under_a_number_while_it_asked(leading):
    """The node's disk was lost meanwhile and another replica has its place, and leads now: without
    its answer no place is given to this one, whose log names no member yet."""
    refused, given = JoinAnswer(1, 3, b"node-3:7100"), JoinAnswer(0, PEER, b"")
    leading.answer(refused, is_bulk=False)
    leading.answer(given, is_bulk=False, uuid=b"x" * 16)
    for wrong in ({"cluster": b"o" * 16}, {"node": 3}, {"target": 3}):
        leading.answer(given, is_bulk=False, uuid=b"x" * 16, **wrong)
    assert leading.heard() == [
        JoinReceived(PEER, PEER_UUID, refused),
        JoinReceived(PEER, b"x" * 16, given),
    ]


def test_a_member_asks_whether_it_was_removed_and_hears_the_answer(leading):
    leading.tell(TellJoin(PEER, RemovedQuestion(7)))
    assert RemovedQuestion(7) in leading.controls()
    leading.answer(Removed(9), is_bulk=False)
    leading.answer(RemovedQuestion(9), is_bulk=False)
    assert leading.heard() == [JoinReceived(PEER, PEER_UUID, Removed(9))]


def test_a_member_hears_that_it_was_removed_from_one_that_came_while_it_was_away(leading):
    """SAFETY C10: the other's disk was lost, and another replica has its place. It was the only one
    left to say so."""
    leading.answer(Removed(9), is_bulk=False)
    leading.answer(Removed(9), is_bulk=False, uuid=b"x" * 16)
    for wrong in ({"cluster": b"o" * 16}, {"node": 3}, {"target": 3}):
        leading.answer(Removed(9), is_bulk=False, **wrong)
    heard = [each.sender_uuid for each in leading.heard()]
    assert heard == [PEER_UUID, b"x" * 16]


def test_an_answer_of_many_frames_is_dropped_and_counted(leading):
    leading.answer(VoteReply(1, True), is_bulk=False, more=(b"more",))
    assert leading.heard() == []
    assert leading.slots[Counter.FRAMES_DROPPED] == 1


def test_an_answer_that_no_peer_gives_is_dropped_and_counted(leading):
    """A client's message is a whole one, too; raft could not read it from its ring."""
    leading.answer(OpenSessionReply(1, 1, 1, 1, 1, 1), is_bulk=False)
    assert leading.heard() == []
    assert leading.slots[Counter.FRAMES_DROPPED] == 1


def test_m4_the_hold_is_what_is_still_wanted_from_the_ring(leading):
    assert hold(leading) is None
    leading.append(*[60_000] * 3)
    leading.appends()
    assert hold(leading) == 60_000
    leading.answer(AppendPersisted(1, 1))
    assert hold(leading) == 120_000
    leading.tell(StopLeading(1))
    assert hold(leading) is None


def test_m4_a_stream_that_begins_anew_wants_nothing_of_the_ring_any_more(leading):
    """Else FREE would stand still until the next entry, half a ring of it."""
    leading.append(*[60_000] * 3)
    leading.write()
    leading.lead(stream=2 * STREAM)
    assert hold(leading) is None


def test_a_new_process_holds_nothing_of_its_predecessors(leading):
    leading.append(*[60_000] * 3)
    leading.restart()
    assert hold(leading) is None


def test_v7_a_roll_is_followed_without_a_new_stream(leading):
    leading.append(*[60_000] * 8, is_described=False)
    leading.log.settle()
    leading.lead(stream=2 * STREAM)
    found = []
    for index in range(1, 9):
        found += leading.indexes()
        leading.answer(AppendPersisted(1, index))
    assert found == list(range(1, 9))


def test_a_replicator_that_has_everything_acknowledged_is_idle(leading):
    leading.append(80)
    leading.answer(AppendPersisted(1, 1))
    assert leading.replicator.next_timer_ns() > leading.stage.now_ns + 10**12


def test_c1_a_lost_connection_is_reported_once(replicator):
    replicator.work()
    assert replicator.heard() == []
    replicator.ports[PortOffset.PEER_CONTROL].close()
    replicator.work()
    replicator.work()
    assert replicator.heard() == [ConnectionLost(PEER)]


def test_m8_what_found_no_room_in_the_ring_to_raft_is_offered_again_soon(replicator):
    """Nothing rings when raft has made room."""
    outbox = replicator.replicator._to_raft
    sent = 0
    while not outbox.is_congested:
        outbox.send(ConnectionLost(PEER))
        sent += 1
    replicator.work()
    assert replicator.replicator.next_timer_ns() <= replicator.stage.now_ns + RING_RETRY_NS
    heard = 0
    while found := len(replicator.heard()):
        heard += found
    replicator.work()
    assert heard + len(replicator.heard()) == sent
    assert replicator.replicator.next_timer_ns() > replicator.stage.now_ns + RING_RETRY_NS
