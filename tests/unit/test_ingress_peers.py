"""The lanes of peers: who is heard, what is copied, what is dropped (SAFETY M6, U2, W1, W7)."""

from __future__ import annotations

import msgspec
import pytest
from crc32c import crc32c

from actors.messages import InitReceived, JoinReceived, TellJoin
from actors.topology import Counter
from logstore.format.configuration_body import (
    Configuration,
    Member,
    decode_configuration,
    encode_configuration,
)
from logstore.format.entry import EntryHeader
from logstore.format.message import decode_message, encode_message
from logstore.format.peer_messages import (
    Append,
    AppendAccepted,
    AppendFrame,
    AppendPersisted,
    Heartbeat,
    HeartbeatReply,
    InitStatus,
    InitStatusRequest,
    Install,
    JoinAnswer,
    JoinRequest,
    PreVoteReply,
    Removed,
    StartSeen,
    VoteReply,
    VoteRequest,
)
from logstore.model import EntryKind
from logstore.raft import effects, events
from logstore.raft.bootstrap import SendInit
from tests.unit.ingress_stage import CLUSTER, OUR_UUID, Stage
from transport import link

BEAT = Heartbeat(3, 0, 1, 0, 0, 1, 0)
JOIN = JoinRequest(7100, b"node-2")


@pytest.fixture
def stage():
    stage = Stage()
    stage.identify()
    return stage


def append(index=1, body=b"12345678", *, term=3, stream=1, entry_term=None, crc=None, size=None):
    header = EntryHeader(
        kind=EntryKind.DATA if body else EntryKind.NOOP,
        count=1 if body else 0,
        term=entry_term or term,
        index=index,
        prev_term=0,
        first_lsn=1,
        timestamp_ns=1,
        cumulative_bytes=100_000,
        prev_chain=0,
        body_size=len(body) if size is None else size,
        body_crc=(crc32c(body) if body else 0) if crc is None else crc,
    )
    message = AppendFrame.of(Append(term, stream, 0, header))
    return (message, body) if body else (message,)


def received(stage):
    """What raft hears on the bulk ring, with the bytes in the payload ring."""
    found = []
    for message in stage.heard(bulk=True):
        views = stage.reader.views(message.ring_start, message.ring_end)
        found.append((message, b"".join(views)))
        for view in views:
            view.release()
    return found


def test_control_messages_reach_raft_with_the_senders_boot_counter(stage):
    stage.peer_send("peer_control", BEAT, correlation=12)
    assert stage.heard() == [events.ControlReceived(2, 12, BEAT, b"\2" * 16)]


@pytest.mark.parametrize(
    "envelope",
    [
        {"cluster_id": b"another cluster!"},
        {"cluster_id": bytes(16)},
        {"target": 3},
        {"sender": 0},
        {"sender": 1},
        {"sender_uuid": OUR_UUID},
    ],
)
def test_messages_of_strangers_are_dropped_and_counted(stage, envelope):
    """SAFETY M6, L3."""
    stage.peer_send("peer_control", BEAT, **envelope)
    stage.peer_send("peer_bulk", *append(), **envelope)
    assert stage.heard() == []
    assert stage.heard(bulk=True) == []
    assert stage.counter(Counter.FRAMES_FOREIGN) == 2


def test_a_second_uuid_of_a_node_is_not_heard(stage):
    """SAFETY L1, L3."""
    stage.peer_send("peer_control", BEAT)
    stage.peer_send("peer_control", BEAT, sender_uuid=b"x" * 16)
    stage.peer_send("peer_control", BEAT)
    assert len(stage.heard()) == 2
    assert stage.counter(Counter.FRAMES_FOREIGN) == 1


def test_bootstrap_messages_pass_without_a_cluster_id(stage):
    """SAFETY L2."""
    stage.peer_send("peer_control", InitStatusRequest(5), cluster_id=bytes(16))
    assert stage.heard() == [InitReceived(2, b"\2" * 16, InitStatusRequest(5))]
    stage.peer_send("peer_control", InitStatusRequest(5), cluster_id=b"another cluster!")
    assert stage.heard() == []


def test_a_replica_that_asks_to_join_is_not_yet_who_answers_under_its_number(stage):
    """SAFETY L1: nor does its request say who is."""
    stage.peer_send("peer_control", JOIN, sender_uuid=b"x" * 16)
    stage.peer_send("peer_control", BEAT)
    stage.peer_send("peer_control", JOIN, sender_uuid=b"x" * 16)
    stage.peer_send("peer_control", BEAT, sender_uuid=b"x" * 16)
    asked = JoinReceived(2, b"x" * 16, JOIN)
    assert stage.heard() == [asked, events.ControlReceived(2, 3, BEAT, b"\2" * 16), asked]
    refused = JoinAnswer(18, 1, b"no place is reserved")
    stage.tell(TellJoin(2, refused, b"x" * 16))
    assert stage.peer_receive("peer_control")[1] == refused


def test_the_place_of_one_replica_is_told_to_no_other_that_asks_under_its_number(stage):
    """It would take part without a place (SAFETY L4)."""
    for uuid in (b"x" * 16, b"y" * 16):
        stage.peer_send("peer_control", JOIN, sender_uuid=uuid)
    stage.tell(TellJoin(2, JoinAnswer(0, 1, b""), b"x" * 16))
    assert stage.peer_receive("peer_control") is None
    assert stage.counter(Counter.SENDS_DROPPED) == 1
    refused = JoinAnswer(18, 1, b"one of the two must stop")
    stage.tell(TellJoin(2, refused, b"y" * 16))
    assert stage.peer_receive("peer_control")[1] == refused


@pytest.mark.parametrize(
    "envelope",
    [{"cluster_id": b"another cluster!"}, {"cluster_id": bytes(16)}, {"sender_uuid": OUR_UUID}],
)
def test_a_replica_of_another_cluster_or_a_copy_does_not_join(stage, envelope):
    stage.peer_send("peer_control", JOIN, **envelope)
    assert stage.heard() == []
    assert stage.counter(Counter.FRAMES_FOREIGN) == 1


def test_answers_return_on_the_pair_and_lane_of_the_question(stage):
    """SAFETY W7."""
    stage.peer_send("peer_control", BEAT)
    stage.peer_send("peer_bulk", *append())
    reply, accepted = HeartbeatReply(3, 1, 0, 0, 0), AppendAccepted(3, 1, 1)
    stage.tell(effects.Answer(2, reply), effects.Answer(2, accepted))
    envelope, message = stage.peer_receive("peer_control")
    assert message == reply
    assert (envelope.sender, envelope.target, envelope.correlation) == (1, 2, 7)
    assert (envelope.cluster_id, envelope.sender_uuid) == (CLUSTER, OUR_UUID)
    assert stage.peer_receive("peer_bulk")[1] == accepted
    assert stage.counter(Counter.SENDS_DROPPED) == 0


def test_what_is_flushed_is_told_over_the_control_lane_while_the_bulk_lane_has_no_way_back(stage):
    """Found by the simulator, seed 3077 of 2026-11-21: a leader with a full window, on a bulk
    connection made anew, never heard that its entry was flushed, and no append went on (W1)."""
    stage.peer_send("peer_bulk", *append())
    stage.peer_send("peer_control", BEAT)
    stage.peer_sockets.pop(("peer_bulk", 2)).close(linger=0)
    stage.peer_socket("peer_bulk")
    accepted, persisted = AppendAccepted(3, 1, 1), AppendPersisted(3, 1)
    stage.tell(effects.Answer(2, accepted), effects.Answer(2, persisted))
    assert stage.peer_receive("peer_control")[1] == persisted
    assert stage.peer_receive("peer_control") is None
    assert stage.counter(Counter.SENDS_DROPPED) == 1


def test_an_answer_to_a_peer_that_never_spoke_is_counted_not_awaited(stage):
    stage.tell(effects.Answer(3, HeartbeatReply(3, 1, 0, 0, 0)))
    assert stage.counter(Counter.SENDS_DROPPED) == 1


def test_answers_follow_a_replicator_that_was_started_again(stage):
    stage.peer_send("peer_control", BEAT)
    stage.peer_sockets.pop(("peer_control", 2)).close(linger=0)
    stage.peer_send("peer_control", BEAT)
    stage.tell(effects.Answer(2, HeartbeatReply(3, 1, 0, 0, 0)))
    assert stage.peer_receive("peer_control") is not None


@pytest.mark.parametrize("body", [b"12345678" * 100, b""])
def test_an_append_is_copied_into_the_ring_and_raft_is_told_where(stage, body):
    message = append(index=4, body=body)
    stage.peer_send("peer_bulk", *message, correlation=9)
    ((heard, stored),) = received(stage)
    assert stored == body
    assert (heard.sender, heard.boot, heard.append) == (2, 9, message[0].append())


def test_bodies_that_do_not_fit_their_header_are_dropped(stage):
    """FAULTS I11: corrupted bytes are never replicated further."""
    stage.peer_send("peer_bulk", *append(crc=5))
    assert stage.counter(Counter.BULK_CORRUPT) == 1
    stage.peer_send("peer_bulk", *append(size=16))
    stage.peer_send("peer_bulk", append()[0])
    stage.peer_send("peer_bulk", *append(), b"third")
    stage.peer_send("peer_bulk", BEAT)
    assert stage.counter(Counter.FRAMES_DROPPED) == 4
    assert received(stage) == []


def test_an_entry_of_a_term_above_its_messages_is_dropped(stage):
    """SAFETY U2."""
    stage.peer_send("peer_bulk", *append(term=3, entry_term=4))
    stage.peer_send("peer_bulk", *append(term=4, entry_term=3))
    assert [heard.append.term for heard, _ in received(stage)] == [4]


def test_stale_appends_are_dropped_before_the_copy(stage):
    """SAFETY W1."""
    stage.tell(effects.StreamAccepted(3, 5, 10, False))
    for stale in (
        append(index=20, term=2, stream=9),
        append(index=20, stream=4),
        append(index=10, stream=5),
    ):
        stage.peer_send("peer_bulk", *stale)
    assert stage.counter(Counter.BULK_STALE) == 3
    for fresh in (
        append(index=11, stream=5),
        append(index=8, stream=6),
        append(index=1, term=4, stream=1),
    ):
        stage.peer_send("peer_bulk", *fresh)
    assert len(received(stage)) == 3
    stage.tell(effects.StreamAccepted(3, 5, 10, True))
    stage.peer_send("peer_bulk", *append(index=11, stream=5))
    assert stage.counter(Counter.BULK_STALE) == 4
    assert stage.writer.head == 24


def install(*, term=3, stream=1):
    return Install(term, stream, 9, 2, 40, 7, 1_000, 5, 1)


def test_g5_a_log_start_reaches_raft_in_its_order_among_the_appends(stage):
    stage.peer_send("peer_bulk", *append(index=1))
    stage.peer_send("peer_bulk", install())
    stage.peer_send("peer_bulk", *append(index=10))
    first, second, third = stage.heard(bulk=True)
    assert (first.append.header.index, third.append.header.index) == (1, 10)
    assert second == events.InstallReceived(2, second.boot, install())


def test_w1_a_log_start_of_a_dead_stream_is_dropped(stage):
    stage.tell(effects.StreamAccepted(3, 5, 10, False))
    for stale in (install(term=2, stream=9), install(stream=4)):
        stage.peer_send("peer_bulk", stale)
    assert stage.counter(Counter.BULK_STALE) == 2
    for fresh in (install(stream=5), install(stream=6), install(term=4)):
        stage.peer_send("peer_bulk", fresh)
    assert len(stage.heard(bulk=True)) == 3
    stage.tell(effects.StreamAccepted(3, 5, 10, True))
    stage.peer_send("peer_bulk", install(stream=5))
    assert stage.counter(Counter.BULK_STALE) == 3


def test_a_log_start_with_a_body_is_no_message(stage):
    stage.peer_send("peer_bulk", install(), b"body")
    assert stage.counter(Counter.FRAMES_DROPPED) == 1
    assert not stage.heard(bulk=True)


def test_a_full_ring_leaves_the_bulk_lane_unread_and_the_control_lane_goes_on():
    """SAFETY W7: never dropped because of fullness, never waited for."""
    stage = Stage(ring_bytes=64 * 1024)
    stage.identify()
    body = b"x" * 24_000
    for index in range(1, 6):
        stage.peer_send("peer_bulk", *append(index=index, body=body))
    assert [heard.append.header.index for heard, _ in received(stage)] == [1, 2]
    assert stage.ingress._ports.peer_bulk not in stage.ingress.wait_on()
    assert stage.ingress.next_timer_ns() <= stage.clock.now_ns + 1_000_000
    stage.peer_send("peer_control", BEAT)
    assert len(stage.heard()) == 1
    stage.freer.set_free(48_000)
    stage.work()
    assert [heard.append.header.index for heard, _ in received(stage)] == [3, 4]
    stage.freer.set_free(96_000)
    stage.work()
    assert [heard.append.header.index for heard, _ in received(stage)] == [5]
    assert stage.ingress._ports.peer_bulk in stage.ingress.wait_on()


def test_a_ring_that_stays_full_leaves_no_messages_in_memory():
    """A full disk held the ring, and each new connection of the leader left a window unread: 60 MB
    a minute."""
    stage = Stage(ring_bytes=64 * 1024)
    stage.identify()
    body = b"x" * 24_000
    stale = stage.counter(Counter.BULK_STALE)
    for index in range(1, 5):
        stage.peer_send("peer_bulk", *append(index=index, body=body))
    assert [heard.append.header.index for heard, _ in received(stage)] == [1, 2]
    bulk = stage.ingress._ports.peer_bulk
    assert bulk not in stage.ingress.wait_on()
    stage.clock.now_ns += 2 * stage.config.raft.election_timeout_ns
    stage.work()
    assert bulk in stage.ingress.wait_on()
    assert link.try_receive_views(bulk) is None
    assert stage.counter(Counter.BULK_STALE) == stale + 2
    stage.freer.set_free(48_000)
    stage.peer_send("peer_bulk", *append(index=3, body=body))
    assert [heard.append.header.index for heard, _ in received(stage)] == [3]
    for index in range(4, 6):
        stage.peer_send("peer_bulk", *append(index=index, body=body))
    assert bulk not in stage.ingress.wait_on(), "patient again"


def test_an_entry_that_the_ring_can_never_take_is_named_once_and_holds_up_nothing(caplog):
    """Its leader has larger limits: silence would look like a follower that lags for ever."""
    largest = 64 * 1024
    stage = Stage(ring_bytes=largest)
    stage.identify()
    for _ in range(3):
        stage.peer_send("peer_bulk", *append(index=1, body=bytes(largest + 8)))
    stage.peer_send("peer_bulk", *append(index=2))
    stage.work()
    assert [message.append.header.index for message, _ in received(stage)] == [2]
    assert stage.slots[Counter.RING_TOO_SMALL] == largest + 8
    [line] = [each.getMessage() for each in caplog.records]
    assert "raise `ring`" in line
    assert "entry 1 of node 2" in line


def test_a_congested_ring_to_raft_holds_the_bulk_lane(stage):
    while stage.bulk_ring.offer(bytes(50)):
        pass
    for index in range(1, 200):
        stage.peer_send("peer_bulk", *append(index=index))
    stage.bulk_ring.drain(10_000)
    stage.work()
    heard = []
    while more := received(stage):
        heard += more
        stage.work()
    assert [each.append.header.index for each, _ in heard] == list(range(1, 200))


def test_garbage_on_the_peer_ports_is_counted_and_dropped(stage):
    for lane in ("peer_control", "peer_bulk"):
        socket = stage.peer_socket(lane)
        for frames in ([b""], [b"x" * 64], [b"1", b"2", b"3", b"4"]):
            link.try_send(socket, frames)
    stage.work()
    assert stage.counter(Counter.FRAMES_DROPPED) == 6
    assert stage.heard() == stage.heard(bulk=True) == []


def test_peers_wait_until_we_know_who_we_are():
    stage = Stage()
    frame = encode_message(
        BEAT, cluster_id=CLUSTER, sender_uuid=b"\2" * 16, sender=2, target=1, correlation=3
    )
    link.try_send(stage.peer_socket("peer_control"), [frame])
    stage.work()
    assert stage.ingress._ports.peer_control not in stage.ingress.wait_on()
    stage.identify()
    assert len(stage.heard()) == 1


CONFIGURATION = Configuration(1, (Member(1, bytes([7] * 16), "node-1", 7100),))


def config_append(body):
    message, _ = append(body=body)
    header = msgspec.structs.replace(message.append().header, kind=EntryKind.CONFIG, count=0)
    return AppendFrame.of(Append(3, 1, 0, header)), body


def test_raft_hears_what_a_config_holds(stage):
    stage.peer_send("peer_bulk", *config_append(encode_configuration(CONFIGURATION)))
    [(message, body)] = received(stage)
    assert message.configuration == CONFIGURATION == decode_configuration(body)


def test_a_config_that_is_none_is_dropped(stage):
    stage.peer_send("peer_bulk", *config_append(b"12345678"))
    assert received(stage) == []
    assert stage.counter(Counter.BULK_CORRUPT) == 1


# --- members come and go ---


def members_changed(*uuids: bytes, number: int = 1) -> effects.MembersChanged:
    voters = tuple(Member(1 + at, uuid, "host", 7_000 + at) for at, uuid in enumerate(uuids))
    return effects.MembersChanged(5, True, Configuration(number, voters))


def test_a_replica_that_no_configuration_file_names_is_heard_and_answered(stage):
    stage.peer_send("peer_control", BEAT, node=9)
    assert stage.heard() == [events.ControlReceived(9, 3, BEAT, b"\t" * 16)]
    stage.tell(effects.Answer(9, HeartbeatReply(3, 1, 0, 0, 0)))
    assert stage.peer_receive("peer_control", 9)[1] == HeartbeatReply(3, 1, 0, 0, 0)


def test_a_stranger_that_spoke_first_keeps_no_member_out(stage):
    """The configuration in force says who a number is, on both lanes."""
    stage.peer_send("peer_control", BEAT, sender_uuid=b"x" * 16)
    stage.tell(members_changed(OUR_UUID, b"\2" * 16))
    stage.heard()
    stage.peer_send("peer_bulk", *append())
    assert len(received(stage)) == 1
    stage.peer_send("peer_control", BEAT, sender_uuid=b"x" * 16)
    assert stage.heard() == []
    assert stage.counter(Counter.FRAMES_FOREIGN) == 1


def test_the_file_counts_where_the_log_has_no_configuration(stage):
    stage.peer_send("peer_control", BEAT)
    stage.tell(members_changed(OUR_UUID, b"x" * 16, number=0))
    stage.peer_send("peer_control", BEAT, sender_uuid=b"x" * 16)
    assert stage.counter(Counter.FRAMES_FOREIGN) == 1


def test_another_replica_takes_the_number_of_one_that_is_silent(stage):
    """SAFETY L1: a wiped folder comes back under another uuid."""
    stage.peer_send("peer_control", BEAT)
    for _ in range(4):
        stage.clock.now_ns += stage.config.raft.election_timeout_ns // 4
        stage.work()
    stage.heard()
    stage.peer_send("peer_control", BEAT, sender_uuid=b"x" * 16)
    assert stage.heard() == [events.ControlReceived(2, 3, BEAT, b"x" * 16)]


def test_an_answer_for_one_replica_does_not_go_to_another_of_its_number(stage):
    """A vote is for the replica that asked."""
    stage.peer_send("peer_control", VoteRequest(4, 1, 1, False), sender_uuid=b"x" * 16)
    stage.tell(effects.Answer(2, VoteReply(4, True), b"x" * 16))
    assert stage.peer_receive("peer_control")[1] == VoteReply(4, True)
    stage.tell(members_changed(OUR_UUID, b"\2" * 16))
    stage.peer_send("peer_control", BEAT)
    stage.tell(effects.Answer(2, VoteReply(4, True), b"x" * 16))
    assert stage.peer_receive("peer_control") is None
    assert stage.counter(Counter.SENDS_DROPPED) == 1
    stage.tell(effects.Answer(2, VoteReply(4, True), b"\2" * 16))
    assert stage.peer_receive("peer_control")[1] == VoteReply(4, True)


@pytest.mark.parametrize(
    "answer",
    [
        VoteReply(3, True),
        PreVoteReply(3, True),
        HeartbeatReply(3, 1, 0, 0, 0),
        InitStatus(0, 0, bytes(16)),
        StartSeen(OUR_UUID, 1, 1),
        Removed(5),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_answer_comes_on_our_own_connection_and_counts_on_no_other(stage, answer):
    stage.peer_send("peer_control", answer)
    assert stage.heard() == []
    assert stage.counter(Counter.FRAMES_DROPPED) == 1


def test_an_answer_of_the_bootstrap_goes_to_the_replica_that_asked(stage):
    """SAFETY L2: under the number of one that is heard, too."""
    stage.peer_send("peer_control", BEAT)
    wiped = stage.peer_sockets.pop(("peer_control", 2))
    stage.peer_send("peer_control", InitStatusRequest(5), sender_uuid=b"x" * 16)
    status = InitStatus(3, 0, CLUSTER)
    stage.tell(SendInit(2, status), effects.Answer(2, HeartbeatReply(3, 1, 0, 0, 0)))
    assert stage.peer_receive("peer_control")[1] == status
    [frame] = link.try_receive(wiped)
    assert decode_message(frame)[1] == HeartbeatReply(3, 1, 0, 0, 0)
