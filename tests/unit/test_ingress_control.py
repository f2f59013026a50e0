"""The control port: documents, transfer, bootstrap, and what it refuses."""

from __future__ import annotations

import msgspec
import pytest

from actors import topology
from actors.messages import (
    InitAnswered,
    InitRequested,
    StatusReported,
    StatusRequested,
)
from actors.topology import Counter
from logstore import limits
from logstore.config_layout import actor_names
from logstore.errors import ErrorCode
from logstore.format.client_messages import (
    DoneReply,
    ErrorReply,
    InitializeRequest,
    MetadataRequest,
    RaiseLevelRequest,
    StatusRequest,
    TransferRequest,
)
from logstore.format.first_lsn import pack_first_lsn
from logstore.format.message import encode_message
from logstore.format.peer_messages import TimeoutNow
from logstore.limits import FIRST_LSN_MAX
from logstore.raft.effects import LevelAnswered, TransferAnswered
from logstore.raft.events import LevelRequested, TransferRequested
from tests.unit.ingress_stage import CLUSTER, Stage
from transport import link


@pytest.fixture
def stage():
    stage = Stage()
    stage.lead()
    stage.heard()
    return stage


def test_metadata_says_who_leads_and_where_the_nodes_are(stage):
    client = stage.client()
    client.ask(MetadataRequest())
    document = msgspec.json.decode(client.answer().document)
    assert document["cluster_id"] == CLUSTER.hex()
    assert (document["node"], document["leader"], document["term"]) == (1, 1, 1)
    assert document["nodes"][1] == {
        "node": 2, "host": "127.0.0.1", "port": 7100, "produce_port": 7108, "role": "voter",
    }  # fmt: skip
    assert document["limits"]["batch_max_bytes"] == 64 * 1024


def test_metadata_is_told_before_there_is_a_cluster():
    client = Stage().client()
    client.ask(MetadataRequest())
    assert msgspec.json.decode(client.answer().document)["leader"] == 0


def test_status_joins_rafts_facts_with_processes_and_counters(stage):
    names = topology.counter_names(actor_names(1, (1, 2, 3)), (1, 2, 3))
    stage.slots[names.index("supervisor.pid")] = 4321
    stage.slots[names.index("replicator-3.pid")] = 99
    stage.slots[names.index("replicator-3.cpu_permille")] = 125
    stage.slots[names.index("replicator-3.rss_bytes")] = 3 << 20
    client = stage.client()
    client.ask(StatusRequest())
    (asked,) = stage.heard()
    assert isinstance(asked, StatusRequested)
    assert client.answer() is None
    stage.tell(StatusReported(asked.request_id, b'{"role":"leader","term":1}'))
    document = msgspec.json.decode(client.answer().document)
    assert (document["role"], document["pid"]) == ("leader", 4321)
    assert document["processes"]["replicator-3"] == {
        "actors": ["replicator-3"],
        "pid": 99,
        "cpu_percent": 12.5,
        "rss_mb": 3.0,
    }
    assert "flushes" in document["counters"]


@pytest.mark.parametrize(("is_done", "reason"), [(True, ""), (False, "target too far behind")])
def test_a_transfer_is_answered_with_rafts_word(stage, is_done, reason):
    client = stage.client()
    client.ask(TransferRequest(2))
    (asked,) = stage.heard()
    assert asked == TransferRequested(asked.request_id, 2)
    stage.tell(TransferAnswered(asked.request_id, is_done, reason))
    reply = client.answer()
    if is_done:
        assert reply == DoneReply(0)
    else:
        assert (reply.code, reply.text) == (ErrorCode.TRANSFER_FAILED, reason.encode())


def test_a_transfer_to_nobody_or_from_a_follower_is_refused(stage):
    client = stage.client()
    client.ask(TransferRequest(9))
    assert client.answer().code == ErrorCode.INVALID_REQUEST
    follower = Stage()
    follower.identify()
    client = follower.client()
    client.ask(TransferRequest(2))
    assert client.answer().code == ErrorCode.NOT_LEADER


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ErrorCode.OK, ""),
        (ErrorCode.LEVEL_REFUSED, "node 2 reads levels up to 1"),
        (ErrorCode.OUTCOME_UNKNOWN, "term 2 was seen"),
    ],
)
def test_a_raise_of_the_level_is_answered_with_rafts_word(stage, code, reason):
    client = stage.client()
    client.ask(RaiseLevelRequest(2))
    (asked,) = stage.heard()
    assert asked == LevelRequested(asked.request_id, 2)
    stage.tell(LevelAnswered(asked.request_id, code, 2, reason))
    reply = client.answer()
    if code is ErrorCode.OK:
        assert reply == DoneReply(2)
    else:
        assert (reply.code, reply.text) == (code, reason.encode())


def test_a_follower_raises_no_level():
    follower = Stage()
    follower.identify()
    client = follower.client()
    client.ask(RaiseLevelRequest(2))
    assert client.answer().code == ErrorCode.NOT_LEADER


def test_initialisation_is_handed_to_raft_who_says_how_it_ended():
    stage = Stage()
    client = stage.client()
    client.ask(InitializeRequest(pack_first_lsn(7_000)))
    (asked,) = stage.heard()
    assert asked == InitRequested(asked.request_id, 7_000)
    stage.tell(InitAnswered(asked.request_id, ErrorCode.OK, ""))
    assert client.answer() == DoneReply(0)
    client.ask(InitializeRequest())
    (asked,) = stage.heard()
    stage.tell(InitAnswered(asked.request_id, ErrorCode.INVALID_REQUEST, "it begins at 7000"))
    reply = client.answer()
    assert (reply.code, reply.text) == (ErrorCode.INVALID_REQUEST, b"it begins at 7000")


@pytest.mark.parametrize("first_lsn", [0, 1, FIRST_LSN_MAX + 1, 2**64 - 1])
def test_p1_a_first_lsn_outside_of_its_bounds_is_refused(first_lsn):
    """LSN 1 is told by saying nothing: there is one way to say each LSN."""
    stage = Stage()
    client = stage.client()
    client.ask(InitializeRequest(first_lsn.to_bytes(8, "little")))
    assert client.answer().code == ErrorCode.INVALID_REQUEST
    assert stage.heard() == []


def test_a_request_for_another_cluster_is_refused(stage):
    client = stage.client()
    client.ask(MetadataRequest(), cluster_id=b"other cluster id")
    assert client.answer().code == ErrorCode.WRONG_CLUSTER
    client.ask(MetadataRequest(), cluster_id=CLUSTER)
    assert client.answer().document


def test_a_replica_without_a_cluster_answers_whoever_asks():
    client = Stage().client()
    client.ask(MetadataRequest(), cluster_id=CLUSTER)
    assert client.answer().document


def test_what_is_no_request_is_told_so(stage):
    client = stage.client()
    client.ask(TimeoutNow(1))
    assert client.answer().code == ErrorCode.INVALID_REQUEST


def test_an_unknown_type_is_refused_and_garbage_is_dropped(stage):
    client = stage.client()
    client.number = 77
    frame = bytearray(
        encode_message(
            MetadataRequest(),
            cluster_id=bytes(16),
            sender_uuid=bytes(16),
            sender=0,
            target=0,
            correlation=77,
        )
    )
    frame[6:8] = (120).to_bytes(2, "little")
    client.send(bytes(_with_crc(frame)))
    assert client.answer().code == ErrorCode.INVALID_REQUEST
    for garbage in (b"", b"x" * 64, bytes(frame[:-1]) + b"!"):
        client.send(garbage)
        assert client.answer() is None
    link.try_send(client.socket, [b"two", b"frames"])
    stage.work()
    dropped, damaged = Counter.FRAMES_DROPPED, Counter.FRAMES_DAMAGED
    assert (stage.counter(dropped), stage.counter(damaged)) == (3, 1)
    assert stage.counter(Counter.REQUESTS_INVALID) == 1


def _with_crc(frame):
    from crc32c import crc32c

    frame[12:16] = crc32c(bytes(frame[16:]), crc32c(bytes(frame[:12]))).to_bytes(4, "little")
    return frame


def test_an_answer_to_another_cluster_that_somebody_hands_on_here_is_not_answered(stage):
    """Two clusters' ports would refuse each other's refusals for ever."""
    client = stage.client()
    client.ask(ErrorReply(ErrorCode.WRONG_CLUSTER, 0, 0, 0, b"no"), cluster_id=b"another cluster!")
    assert client.answer() is None
    assert stage.counter(Counter.FRAMES_DROPPED) == 1
    client.ask(StatusRequest(), cluster_id=b"another cluster!")
    assert client.answer().code == ErrorCode.WRONG_CLUSTER


def test_pending_requests_are_bounded_in_number_and_time(stage, monkeypatch):
    monkeypatch.setattr("actors.ingress.pending_requests.REQUESTS_PENDING_MAX", 2)
    client = stage.client()
    for _ in range(3):
        client.ask(StatusRequest())
    assert client.answer().code == ErrorCode.OVERLOADED
    assert stage.ingress.next_timer_ns() == stage.clock.now_ns + limits.REQUEST_TIMEOUT_NS
    stage.clock.now_ns += limits.REQUEST_TIMEOUT_NS
    stage.work()
    timed_out = [link.try_receive(client.socket) is not None for _ in range(3)]
    assert timed_out == [True, True, False]
    client.ask(StatusRequest())
    (*_, asked) = stage.heard()
    stage.tell(StatusReported(asked.request_id, b'{"role":"none"}'))
    assert client.answer().document
